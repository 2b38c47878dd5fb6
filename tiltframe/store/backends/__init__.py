"""Backends: reading and writing of stores in Delta Lake, PostgreSQL or other storage. This package exports the protocol
of a backend and the names that a new backend needs: columns and types of stored states, bounds of keys, and checks of
the names of stores.
"""

from tiltframe.event_time import INSTANT
from tiltframe.instants import instants_of
from tiltframe.names import END, LEVEL, PARTIAL, START
from tiltframe.ranges import Range, inside
from tiltframe.store.backends.buckets import bucket_names
from tiltframe.store.backends.cache_memory import set_cache_memory
from tiltframe.store.backends.key_bounds import KeyBound, bounds_of_keys
from tiltframe.store.backends.open import absolute_uri, backend_at, scheme_of
from tiltframe.store.backends.protocol import (
    Backend,
    Part,
    PartChecker,
    Record,
    ResultReader,
    ResultTables,
    RowFunction,
    Snapshot,
    TableKeeper,
    Transaction,
    Vacuumed,
)
from tiltframe.store.backends.stored_types import cast_stored, stored, stored_schema, stored_type
from tiltframe.store.log.errors import Conflict, DamagedStore, MissingStore, OtherFrame, StoreError, UnreachableStore
from tiltframe.store.log.manifest import FORMAT, check_name, schemas_in
from tiltframe.store.log.records import EXPIRED

__all__ = [
    "END",
    "EXPIRED",
    "FORMAT",
    "INSTANT",
    "LEVEL",
    "PARTIAL",
    "START",
    "Backend",
    "Conflict",
    "DamagedStore",
    "KeyBound",
    "MissingStore",
    "OtherFrame",
    "Part",
    "PartChecker",
    "Range",
    "Record",
    "ResultReader",
    "ResultTables",
    "RowFunction",
    "Snapshot",
    "StoreError",
    "TableKeeper",
    "Transaction",
    "UnreachableStore",
    "Vacuumed",
    "absolute_uri",
    "backend_at",
    "bounds_of_keys",
    "bucket_names",
    "cast_stored",
    "check_name",
    "inside",
    "instants_of",
    "schemas_in",
    "scheme_of",
    "set_cache_memory",
    "stored",
    "stored_schema",
    "stored_type",
]
