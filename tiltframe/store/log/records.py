"""Records stored with the states of a store: names with JSON texts, which the store or its users write.

tiltframe:expired     {"10s": 1714500000000000}       by level, the time before which it has no windows, in microseconds
tiltframe:known       {"high": 1714500000000000}      by added column of states, the time from which all rows have it
tiltframe:watermarks  {"w": 1714500000000000}          by stream, the time before which it has closed its windows
tiltframe:writer W    {"last": 7, "states": {…}}      the last number of a writer, digests of its last commits
any other name        a record of a user's commit
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from aggr.arguments import checked_mapping, is_name, shown
from tiltframe.ranges import EVER
from tiltframe.store.log.errors import MissingStore
from tiltframe.store.log.run import Log
from tiltframe.store.log.snapshot import Snapshot

OWN = "tiltframe:"  # the prefix of the names of the store's own records
KNOWN = f"{OWN}known"  # the record that a change of the frame, or a replacement of past windows, writes
EXPIRED = f"{OWN}expired"  # every expiry and replacement writes this record, so that they conflict
WATERMARKS = f"{OWN}watermarks"  # every stream with a watermark writes it; see `stream_watermarks`


def snapshot_of(backend: Log, recorded: Iterable[str] = ()) -> Snapshot:
    """Return a snapshot of a store with some of its records; raise `MissingStore` if the store does not exist."""
    snapshot = backend.snapshot([EXPIRED, KNOWN, WATERMARKS, *recorded])
    if snapshot is None:
        raise MissingStore(f"there is no store {backend.display_uri}")
    return snapshot


def expired_before(snapshot: Snapshot) -> dict[str, int]:
    """Return, for each level, the time before which it has no windows. A level without expired windows has no entry."""
    expired: dict[str, int] = json.loads(snapshot.text(EXPIRED) or "{}")
    return expired


def held_from(snapshot: Snapshot, level: str) -> int:
    """Return the time after which no window of a level has expired."""
    return expired_before(snapshot).get(level, EVER[0])


def known_from(snapshot: Snapshot) -> dict[str, int]:
    """Return, for each added column of states, the time from which on all rows have it. Columns that all rows have are
    left out.
    """
    starts: dict[str, int] = json.loads(snapshot.text(KNOWN) or "{}")
    return starts


def checked_records(recorded: Mapping[str, Any] | None) -> dict[str, str]:
    """Return records as JSON texts; raise ``ValueError`` for values that JSON cannot represent."""
    texts = {}
    for name, value in checked_mapping({} if recorded is None else recorded, "recorded", "name -> plain data").items():
        if not is_name(name) or name.startswith(OWN):
            raise ValueError(
                f"the name of a record must be text that does not begin with {OWN!r} and is not empty; "
                f"got {shown(name)}"
            )
        try:
            texts[str(name)] = json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"recorded: the value of {shown(name)} cannot be written as JSON: {error}") from None
    return texts


def expected_texts(recorded: Mapping[str, Any] | None, replacing: Mapping[str, Any] | None) -> dict[str, str | None]:
    """Return the text that each record must still have when new records are written; None means that there must be no
    record.
    """
    before = checked_records(replacing)
    return {name: before.get(name) for name in (*(recorded or {}), *before)}


def values_of(texts: Mapping[str, str], names: Iterable[str]) -> dict[str, Any]:
    """Return the values of some records."""
    return {name: json.loads(texts[name]) for name in names if name in texts}
