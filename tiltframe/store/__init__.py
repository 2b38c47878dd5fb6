"""The frame store: states that last, in Delta Lake or PostgreSQL, and every way to ask for them."""

from tiltframe.store.frame_store import FrameStore
from tiltframe.store.log.errors import (
    CommitConflict,
    DamagedStore,
    MissingStore,
    OtherFrame,
    StoreError,
    UnreachableStore,
)
from tiltframe.store.query.changed_windows import Changes, Seen
from tiltframe.store.query.execution import Answer, Expired, NotKnown
from tiltframe.store.query.lookup import Unmapped, lookup
from tiltframe.store.query.partitions import PlannedQuery
from tiltframe.store.query.query import Query

__all__ = [
    "Answer",
    "Changes",
    "CommitConflict",
    "DamagedStore",
    "Expired",
    "FrameStore",
    "MissingStore",
    "NotKnown",
    "OtherFrame",
    "PlannedQuery",
    "Query",
    "Seen",
    "StoreError",
    "Unmapped",
    "UnreachableStore",
    "lookup",
]
