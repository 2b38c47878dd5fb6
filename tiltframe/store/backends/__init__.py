"""Backends: what keeps a store's log; the protocol, and what those need who write one."""

from tiltframe.level_chain import instants_of
from tiltframe.store.backends.buckets import bucket_names
from tiltframe.store.backends.protocol import Backend, Part, Record, ResultTables, Snapshot, Transaction, Vacuumed
from tiltframe.store.errors import Conflict
from tiltframe.store.ranges import Range, inside

__all__ = [
    "Backend",
    "Conflict",
    "Part",
    "Range",
    "Record",
    "ResultTables",
    "Snapshot",
    "Transaction",
    "Vacuumed",
    "bucket_names",
    "inside",
    "instants_of",
]
