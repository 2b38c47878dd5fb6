"""The current view: results of a level in plain SQL, merged over all readable rows, for tools that know nothing else.

    window_start  window_end  keys…  requests  latency_count  latency_min  latency_max  latency_sum  latency_mean

`tiltframe.store.postgres.sql_results` says, function by function, which columns a measure has; the view's comment names
what is left out. Values of types that PostgreSQL does not know appear as they are stored: durations as whole numbers.
Of ``-0.0`` and ``0.0``, either may be the least. Whole sums are numeric: they cannot overflow.
"""

from __future__ import annotations

import pyarrow as pa

from tiltframe.frame import END, START, TiltFrame
from tiltframe.store.core.stored_types import stored_schema
from tiltframe.store.postgres.flat import column_name, flat_schema
from tiltframe.store.postgres.session import quoted
from tiltframe.store.postgres.sql_results import sql_result
from tiltframe.store.postgres.sql_terms import Merged


def sql_view(frame: TiltFrame, schema: pa.Schema, table: str, parts: str, name: str) -> list[str]:
    """Write the statements that make the view of a level, and its comment.

    Parameters
    ----------
    frame : TiltFrame
    schema : schema
        Of the states of every level.
    table, parts : str
        The level's table and the table of parts, quoted.
    name : str
        The view is called ``<name>_current``.
    """
    keys = flat_schema(stored_schema(pa.schema([schema.field(key) for key in frame.keys]))).names
    merged = Merged()
    columns, left_out = _columns(frame, schema, merged, {START, END, *keys, *frame.measures})
    own = {f"k{i}": column for i, column in enumerate([START, END, *keys])}
    by = ", ".join(f"s.{quoted(column)}" for column in own.values())
    named = ", ".join(f"s.{quoted(column)} AS {alias}" for alias, column in own.items())
    outside = ", ".join(f"{alias} AS {quoted(column)}" for alias, column in own.items())
    inner = "".join(f", {sql} AS {alias}" for sql, alias in merged.names.items())
    outer = "".join(f", {sql} AS {quoted(column)}" for column, sql in columns.items())
    view = quoted(f"{name}_current")
    comment = f"Not in this view: {'; '.join(left_out)}" if left_out else "All measures are in this view"
    return [
        f"CREATE VIEW {view} AS SELECT {outside}{outer} "
        f"FROM (SELECT {named}{inner} FROM {table} AS s JOIN {parts} AS p ON p.part = s._part GROUP BY {by}) AS m",
        f"COMMENT ON VIEW {view} IS '{comment.replace(chr(39), 2 * chr(39))}'",
    ]


def _columns(frame: TiltFrame, schema: pa.Schema, merged: Merged, taken: set[str]) -> tuple[dict[str, str], list[str]]:
    """Choose the columns of measures, and say which parts of which measures have none."""
    columns: dict[str, str] = {}
    left_out = []
    for measure_name, measure in frame.measures.items():
        state = frame.state_of(measure_name)
        result = sql_result(measure.function, merged, state, schema.field(state).type)
        if result.left_out:
            left_out.append(f"{measure_name} ({measure.function.name}): {result.left_out}")
        for suffix, sql in result.columns.items():
            name = column_name(measure_name + suffix)
            if suffix and name in taken:
                left_out.append(f"{measure_name} ({measure.function.name}): {suffix[1:]}, for {name} is another column")
            else:
                columns[name] = sql
    return columns, left_out
