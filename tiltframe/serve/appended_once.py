"""Bodies without a number of their own: the same bytes are added to a store once, also after a failure or a restart.

With the states of a body its digest is recorded, in the same commit. Digests are kept in 256 records, each of the last
40 bodies whose digest begins alike, so that a commit writes a small record and some 10,000 bodies are remembered.

    otlp 3f     {"last": 12, "digests": ["3f09…", "3fb2…"]}     and the writer ``otlp-3f`` has the numbers up to 12
"""

from __future__ import annotations

import hashlib
from typing import Any

import pyarrow as pa

from tiltframe import rollup
from tiltframe.serve.errors import Refused
from tiltframe.store import CommitConflict, FrameStore

_DIGITS = 24  # of a digest, hexadecimal
_REMEMBERED = 40  # digests in a record
_ATTEMPTS = 100  # each after another body of the same record was added first


def append_once(store: FrameStore, events: pa.Table, body: bytes) -> bool:
    """Add rows unless the same body was added before.

    Parameters
    ----------
    store : FrameStore
    events : table
        The rows of the body.
    body : bytes
        As it was before it was packed.

    Returns
    -------
    bool
        Whether the rows were added now.

    Raises
    ------
    ValueError, StoreError
        As `FrameStore.append`; after an error the same body can be sent again, and counts once.
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
            # False if another body with the same states took the number: its digest is not this one
            if store.append(states, f"otlp-{digest[:2]}", number, recorded={name: record}, replacing=before):
                return True
        except CommitConflict:
            continue  # another body took the number
    raise Refused(503, "other writers add to the same record all the time; send it again", {"retry-after": "1"})
