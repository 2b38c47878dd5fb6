"""Tables of states and of results: checks, keys, merging by key or over ranges of rows, and conversion of nested
columns to plain columns.

These names are for programs that store, send or combine states of any function.
"""

from aggr.state_checks import FUNCTION, checked, mark_as_checked
from aggr.tables.by_key import merge_by
from aggr.tables.column_uses import ColumnUses
from aggr.tables.flat_results import flat_schema, flattened, leaves
from aggr.tables.identify import function_of
from aggr.tables.keys import key_column, key_type, keyed, plain_keys
from aggr.tables.ranges import merge_runs, scan

__all__ = [
    "FUNCTION",
    "ColumnUses",
    "checked",
    "flat_schema",
    "flattened",
    "function_of",
    "key_column",
    "key_type",
    "keyed",
    "leaves",
    "mark_as_checked",
    "merge_by",
    "merge_runs",
    "plain_keys",
    "scan",
]
