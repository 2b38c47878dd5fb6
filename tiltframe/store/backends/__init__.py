"""Backends: what keeps a store's log; the protocol, and what those need who write one."""

from tiltframe.level_chain import instants_of
from tiltframe.ranges import Range, inside
from tiltframe.store.backends.buckets import bucket_names
from tiltframe.store.backends.protocol import Backend, Part, Record, ResultTables, Snapshot, Transaction, Vacuumed
from tiltframe.store.log.errors import Conflict

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
