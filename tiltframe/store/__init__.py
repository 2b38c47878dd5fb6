"""The frame store: durable states in Delta Lake or PostgreSQL, and all ways to query them."""

from tiltframe.exclusions import BeyondLimit, RefusedValues
from tiltframe.store.backends.protocol import Vacuumed
from tiltframe.store.changes.backfill import Backfill
from tiltframe.store.changes.group_commit import PreparedRows
from tiltframe.store.frame_store import FrameStore
from tiltframe.store.log.errors import (
    CommitConflict,
    DamagedStore,
    MissingStore,
    OtherFrame,
    StoreError,
    UnreachableStore,
)
from tiltframe.store.log.manifest import Manifest
from tiltframe.store.log.writers import check_writer
from tiltframe.store.planned_join import PlannedJoin
from tiltframe.store.query.answer import Answer, Cost
from tiltframe.store.query.changed_windows import Changes, SeenParts
from tiltframe.store.query.derived_keys import DerivedKey, Unmapped, key_kinds, register_kind
from tiltframe.store.query.execution import PlannedQuery
from tiltframe.store.query.join import JOIN_OPTIONS, Join
from tiltframe.store.query.join_execution import Joined
from tiltframe.store.query.missing import Expired, NotKnown
from tiltframe.store.query.query import FILLS, Measures, Query
from tiltframe.store.query.text_parameters import (
    BOOLEAN_PARAMETERS,
    LEAST_NUMBERS,
    REPEATABLE_PARAMETERS,
    number_from_text,
    query_from_words,
    truth_from_text,
)
from tiltframe.store.report import Report
from tiltframe.store.verify import VerifyReport
from tiltframe.store.view import HeldLevel, StoreView

__all__ = [
    "BOOLEAN_PARAMETERS",
    "FILLS",
    "JOIN_OPTIONS",
    "LEAST_NUMBERS",
    "REPEATABLE_PARAMETERS",
    "Answer",
    "Backfill",
    "BeyondLimit",
    "Changes",
    "CommitConflict",
    "Cost",
    "DamagedStore",
    "DerivedKey",
    "Expired",
    "FrameStore",
    "HeldLevel",
    "Join",
    "Joined",
    "Manifest",
    "Measures",
    "MissingStore",
    "NotKnown",
    "OtherFrame",
    "PlannedJoin",
    "PlannedQuery",
    "PreparedRows",
    "Query",
    "RefusedValues",
    "Report",
    "SeenParts",
    "StoreError",
    "StoreView",
    "Unmapped",
    "UnreachableStore",
    "Vacuumed",
    "VerifyReport",
    "check_writer",
    "key_kinds",
    "number_from_text",
    "query_from_words",
    "register_kind",
    "truth_from_text",
]
