"""Records: JSON texts that are stored under a name together with the states of a store. Times are microseconds UTC.

tiltframe:expired     {"10s": 1714500000000000}    for each level, the time before which windows have expired
tiltframe:known       {"high": 1714500000000000}   for each added column of states, the time from which all rows have it
tiltframe:watermarks  {"w": 1714500000000000}      for each stream, the time before which it has closed its windows
tiltframe:writer W    {"last": 7, "states": {…}}   a writer's last commit number, and fingerprints of its last commits
any other name        a value that the caller of a commit has recorded
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from aggr.arguments import checked_mapping, is_name, shown
from tiltframe.ranges import EVER

if TYPE_CHECKING:
    from tiltframe.store.log.snapshot import Snapshot

# The prefix of the names of the store's own records.
RECORD_PREFIX = "tiltframe:"
# The name of the record with the time, for each added column of states, from which on all rows have this column. The
# record is written by replacements of rows, and by changes of the frame that add columns of states.
COLUMN_STARTS = f"{RECORD_PREFIX}known"
# The name of the record with the time, for each level, before which windows have expired. Every expiry and every
# replacement of rows writes this record, so that two such commits at the same time conflict.
EXPIRED = f"{RECORD_PREFIX}expired"
# The name of the record of `stream_watermarks`. Every stream that has a watermark writes this record.
WATERMARKS = f"{RECORD_PREFIX}watermarks"


def expired_before(snapshot: Snapshot) -> dict[str, int]:
    """Return the time before which the windows of each level have expired, as level → microseconds UTC. A level without
    expired windows has no entry.
    """
    return _times(snapshot, EXPIRED)


def available_from(snapshot: Snapshot, level: str) -> int:
    """Return the time, in microseconds UTC, before which the windows of a level have expired. Return ``EVER[0]``, the
    smallest possible time, if no window has expired.
    """
    return expired_before(snapshot).get(level, EVER[0])


def column_starts(snapshot: Snapshot) -> dict[str, int]:
    """For each column of states that was added later, return the time from which on all rows have the column, as
    column → microseconds UTC. Columns that all rows of the store have are left out.
    """
    return _times(snapshot, COLUMN_STARTS)


def _times(snapshot: Snapshot, name: str) -> dict[str, int]:
    text = snapshot.text(name)
    return {} if text is None else json.loads(text)


def checked_records(recorded: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the values ``recorded`` as JSON texts, by name. Raise ``ValueError`` if a name is not allowed, or JSON
    cannot represent a value.
    """
    texts = {}
    for name, value in checked_mapping({} if recorded is None else recorded, "recorded", "name -> plain data").items():
        if not is_name(name) or name.startswith(RECORD_PREFIX):
            raise ValueError(
                f"the name of a record must be text that does not begin with {RECORD_PREFIX!r} and is not empty; "
                f"got {shown(name)}"
            )
        try:
            texts[str(name)] = json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(
                f"recorded: the value of {shown(name)} cannot be written as JSON: {error}; pass numbers, texts, "
                "booleans, None, lists and dicts"
            ) from None
    return texts


def expected_texts(recorded: Mapping[str, Any] | None, replacing: Mapping[str, Any] | None) -> dict[str, str | None]:
    """Return the text that each record must have in the store at the moment of the commit, as name → text. ``recorded``
    has the new values, and ``replacing`` has the values that the new values replace. None means that the record must
    not exist.
    """
    before = checked_records(replacing)
    return {name: before.get(name) for name in (*(recorded or {}), *before)}


def record_values(texts: Mapping[str, str], names: Iterable[str]) -> dict[str, Any]:
    """Return the values of the named records by name. Records that do not exist are left out."""
    return {name: json.loads(texts[name]) for name in names if name in texts}
