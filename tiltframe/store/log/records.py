"""What a store records next to its states: names with JSON texts, of its own and of its users.

tiltframe:expired     {"10s": 1714500000000000}       before when levels hold no windows, microseconds UTC
tiltframe:known       {"high": 1714500000000000}      from when on all rows have an added column of states
tiltframe:writer W    {"last": 7, "states": {…}}      the last number of a writer, digests of its last commits
any other name        a record that a user's commit brought
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

OWN = "tiltframe:"  # recorded names that begin so are the store's own
KNOWN = f"{OWN}known"  # recorded by evolution, and by replacements that fill in the past
EXPIRED = f"{OWN}expired"  # recorded by every expiry and replacement, even unchanged: of two at once, one is refused


def snapshot_of(backend: Log, recorded: Iterable[str] = ()) -> Snapshot:
    """Return a snapshot of a store with the records of some names; raises `MissingStore` if there is none."""
    snapshot = backend.snapshot([EXPIRED, KNOWN, *recorded])
    if snapshot is None:
        raise MissingStore(f"there is no store {backend.display_uri}")
    return snapshot


def expired_before(snapshot: Snapshot) -> dict[str, int]:
    """Read before when levels hold no windows any more; levels that have let go of nothing are not in it."""
    expired: dict[str, int] = json.loads(snapshot.text(EXPIRED) or "{}")
    return expired


def held_from(snapshot: Snapshot, level: str) -> int:
    """Return the time from which on a level holds windows."""
    return expired_before(snapshot).get(level, EVER[0])


def known_from(snapshot: Snapshot) -> dict[str, int]:
    """Read from when on all rows have the columns of states that were added; those that all rows have are not in it."""
    starts: dict[str, int] = json.loads(snapshot.text(KNOWN) or "{}")
    return starts


def checked_records(recorded: Mapping[str, Any] | None) -> dict[str, str]:
    """Write records as JSON texts; raises ``ValueError`` for values that JSON lacks."""
    texts = {}
    for name, value in checked_mapping({} if recorded is None else recorded, "recorded", "name -> plain data").items():
        if not is_name(name) or name.startswith(OWN):
            raise ValueError(f"what is recorded is named by text that does not begin with {OWN!r}; got {shown(name)}")
        try:
            texts[str(name)] = json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"recorded: what {shown(name)} holds is not plain data that JSON has: {error}") from None
    return texts


def expected_texts(recorded: Mapping[str, Any] | None, replacing: Mapping[str, Any] | None) -> dict[str, str | None]:
    """Write what must still be recorded under names when others are recorded: None is nothing."""
    before = checked_records(replacing)
    return {name: before.get(name) for name in (*(recorded or {}), *before)}


def values_of(texts: Mapping[str, str], names: Iterable[str]) -> dict[str, Any]:
    """Read the records of some names."""
    return {name: json.loads(texts[name]) for name in names if name in texts}
