"""Backends: the storage of a store's log, with the protocol of a backend and helpers for new backends."""

from tiltframe.instants import instants_of
from tiltframe.ranges import Range, inside
from tiltframe.store.backends.buckets import bucket_names
from tiltframe.store.backends.cache_memory import set_cache_memory
from tiltframe.store.backends.open import absolute_uri, backend_at, scheme_of
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
    "absolute_uri",
    "backend_at",
    "bucket_names",
    "inside",
    "instants_of",
    "scheme_of",
    "set_cache_memory",
]
