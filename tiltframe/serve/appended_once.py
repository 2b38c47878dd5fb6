"""Bodies without a number: the same bytes are added to a store only once, also after a failure or a restart.

A commit records the digest of a body together with its states. Digests are kept in 256 records by their first two
digits. Each has the last 40 bodies, so that a commit writes a small record and about 10,000 bodies are remembered.

    otlp 3f     {"last": 12, "digests": ["3f09…", "3fb2…"]}     and the writer ``otlp-3f`` has the numbers up to 12
"""

from __future__ import annotations

import hashlib
from typing import Any

import pyarrow as pa

from tiltframe import rollup
from tiltframe.serve.errors import Refused
from tiltframe.store import CommitConflict, FrameStore

_DIGITS = 24  # hexadecimal digits of a digest
_REMEMBERED = 40  # digests in a record
_ATTEMPTS = 100  # a retry follows if another body of the same record was added first


def append_once(store: FrameStore, events: pa.Table, body: bytes) -> bool:
    """Add rows unless the same body was added before.

    Parameters
    ----------
    store : FrameStore
    events : table
        The rows of the body.
    body : bytes
        The body as it was before compression.

    Returns
    -------
    bool
        Whether the rows were added now.

    Raises
    ------
    ValueError, StoreError
        On the same conditions as `FrameStore.append`; after an error the same body can be sent again, and counts once.
    """
    digest = hashlib.sha256(body).hexdigest()[:_DIGITS]
    name = f"otlp {digest[:2]}"
    states = rollup(events, store.frame)
    for _ in range(_ATTEMPTS):
        before = store.recorded([name])
        record: dict[str, Any] = before.get(name, {"last": 0, "digests": []})
        if digest in record["digests"]:
            return False
        number = record["last"] + 1
        record = {"last": number, "digests": [*record["digests"], digest][-_REMEMBERED:]}
        try:
            # False if another body with the same states used the number; it has another digest
            if store.append(states, f"otlp-{digest[:2]}", number, recorded={name: record}, replacing=before):
                return True
        except CommitConflict:
            continue  # another body used the number
    raise Refused(503, "other writers add to the same record all the time; send it again", {"retry-after": "1"})
