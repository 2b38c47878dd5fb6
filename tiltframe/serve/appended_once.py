"""Request bodies that are sent without the name of a writer and a commit number: the same bytes are added to a store
only once, also if a client sends them again after a failure or a restart.

In addition to states, a commit writes the digest of the body into a record. A store has up to 256 such records, one for
each value of the first two hexadecimal digits of a digest. A record has only the 40 digests that were written last, so
a commit writes only a small record. All records together have the digests of about 10,000 bodies. The following is the
record of the digests that begin with 3f. Commits that change this record use ``otlp-3f`` as the name of the writer, and
the last such commit had the number 12:

    otlp 3f     {"last": 12, "digests": ["3f09…", "3fb2…"]}
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tiltframe.extend import Note
from tiltframe.serve.errors import Refused
from tiltframe.store import CommitConflict, FrameStore, PreparedRows

# the number of hexadecimal digits of a digest
_DIGEST_DIGITS = 24
# the maximum number of digests in a record
_DIGESTS_PER_RECORD = 40
# the maximum number of attempts to add a body; an attempt fails if another request changes the same record
_MAX_ATTEMPTS = 100


def append_once(
    store: FrameStore,
    events: pa.Table,
    body: bytes,
    commit: Callable[[PreparedRows], bool],
    note: Note | None = None,
) -> bool:
    """Add rows, unless the same body was added before.

    Parameters
    ----------
    store : FrameStore
    events : table
        The rows that the body contains.
    body : bytes
        The bytes of the body before compression.
    commit : function of PreparedRows
        A function that commits the rows, and returns whether they were added.
    note : function of a text, optional
        See `FrameStore.append`.

    Returns
    -------
    bool
        Whether this call added the rows.

    Raises
    ------
    ValueError, StoreError
        For the same reasons as `FrameStore.append`. After an error the same body can be sent again, and counts once.
    """
    digest = hashlib.sha256(body).hexdigest()[:_DIGEST_DIGITS]
    name = f"otlp {digest[:2]}"
    writer = f"otlp-{digest[:2]}"
    for attempt in range(_MAX_ATTEMPTS):
        old_records = store.recorded([name])
        record: dict[str, Any] = old_records.get(name, {"last": 0, "digests": []})
        if digest in record["digests"]:
            return False
        # If another program has written under the name of the writer, its last number is greater than the recorded one.
        last_commit = (store.last_commit(writer) or 0) if attempt else 0
        number = max(record["last"], last_commit) + 1
        record = {"last": number, "digests": [*record["digests"], digest][-_DIGESTS_PER_RECORD:]}
        prepared = store.prepare_rows(events, writer, number, recorded={name: record}, replacing=old_records, note=note)
        try:
            # If `commit` returns False, another body with the same states was already committed with this commit
            # number. The digest of ``body`` is then not recorded yet, and the next attempt uses a new number.
            if commit(prepared):
                return True
        except CommitConflict:
            continue  # Another request has changed the record, so the next attempt reads it again.
    raise Refused(
        503,
        f"the rows were not added in {_MAX_ATTEMPTS} attempts, because other requests were added first; send the "
        "request again",
        {"retry-after": "1"},
    )
