"""The frame store: states that last, in Delta Lake or PostgreSQL, and every way to ask for them."""

from tiltframe.store.errors import (
    CommitConflict,
    DamagedStore,
    MissingStore,
    OtherFrame,
    StoreError,
    UnreachableStore,
)
from tiltframe.store.frame_store import FrameStore
from tiltframe.store.query.execution import Expired

__all__ = [
    "CommitConflict",
    "DamagedStore",
    "Expired",
    "FrameStore",
    "MissingStore",
    "OtherFrame",
    "StoreError",
    "UnreachableStore",
]
