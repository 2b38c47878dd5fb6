"""Conditions and expressions in SQL, compiled for Arrow. `docs/conditions.md` describes the language.

text ──▶ `parse` (by sqlglot; nodes outside `function_table` are refused) ──▶ `Compiler`, with a schema ──▶ `Term` ──▶
`evaluate`, over the arrays of a table or as an expression of Arrow. `bounds` returns the range of values that a column
can have in the rows for which a condition is true. `check_regex_size` rejects regular expressions that would take too
long, and `plain_texts` returns the texts that a regular expression such as ``a|b`` lists.

The parser is loaded when a function is first used, because loading it takes a tenth of a second.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aggr.sql.column_bounds import Bound, bounds
    from aggr.sql.column_names import column_in
    from aggr.sql.equality_sides import Side, equalities
    from aggr.sql.evaluation import check_condition, evaluate, rows_where, to_expression, value_type
    from aggr.sql.parse import column_of, columns_of
    from aggr.sql.regular_expressions import check_regex_size, count_regex_steps, plain_texts
    from aggr.sql.uses import uses_among, uses_of

__all__ = [
    "Bound", "Side", "bounds", "check_condition", "check_regex_size", "column_in", "column_of", "columns_of",
    "count_regex_steps", "equalities", "evaluate", "plain_texts", "rows_where", "to_expression", "uses_among",
    "uses_of", "value_type",
]  # fmt: skip

_MODULES = {"column_in": "column_names", "column_of": "parse", "columns_of": "parse"}
_MODULES |= dict.fromkeys(("uses_among", "uses_of"), "uses")
_MODULES |= dict.fromkeys(("Bound", "bounds"), "column_bounds")
_MODULES |= dict.fromkeys(("check_regex_size", "count_regex_steps", "plain_texts"), "regular_expressions")
_MODULES |= dict.fromkeys(("Side", "equalities"), "equality_sides")


def __getattr__(name: str) -> Any:
    """Return a public name from its module. The module is loaded when the name is first used."""
    if name not in __all__:
        raise AttributeError(f"module 'aggr.sql' has no attribute {name!r}")
    function = getattr(import_module(f"aggr.sql.{_MODULES.get(name, 'evaluation')}"), name)
    globals()[name] = function
    return function
