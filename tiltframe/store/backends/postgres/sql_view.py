"""The current view: a view in the database with the results of a level, for programs that can only use SQL.

The view has the columns of ``query(…, flat=True)``. Columns that `sql_results` supports are always up to date. Other
columns, such as quantiles, come from the level's plain table (``<name>_<level>_flat``, written by `export`), which is
current only up to its last update. These columns are null for windows that have newer rows, and the comment of the view
lists these columns. Values whose types PostgreSQL lacks are shown in the types in which they are stored, such as
numeric for uint64. Sums of whole numbers have the type numeric.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from aggr import Measure
from aggr.extend.tables import FUNCTION
from aggr.extend.tables import flat_schema as result_schema
from tiltframe import TiltFrame
from tiltframe.store.backends import END, EXPIRED, PARTIAL, START, stored_schema
from tiltframe.store.backends.postgres.literals import moment, quoted
from tiltframe.store.backends.postgres.result_tables import plain_table_columns, result_column_types
from tiltframe.store.backends.postgres.sql_results import sql_result
from tiltframe.store.backends.postgres.sql_terms import SqlAggregates, column_of
from tiltframe.store.backends.postgres.state_columns import column_name, flat_schema


def sql_view(
    frame: TiltFrame, schema: pa.Schema, table: Callable[[str], str], level: str, is_evolved: bool = False
) -> list[str]:
    """Return two SQL statements: one creates the view of a level, the other the comment of the view. ``table`` is a
    function that returns the quoted name of a table of the store.

    If ``is_evolved`` is true, the frame has changed, and rows may lack the states of added measures. Results that
    include such rows are null.
    """
    keys = pa.schema([schema.field(key) for key in frame.keys])
    stored_columns = [START, END, *flat_schema(stored_schema(keys)).names]
    # The view names the columns of a struct as flat results do: the field ``host`` of a key ``tags`` is ``tags_host``.
    view_columns = [START, END, *map(column_name, result_schema(keys).names)]
    aggregates = SqlAggregates()
    columns, comment = _columns(
        frame, schema, aggregates=aggregates, own_columns={*view_columns, PARTIAL}, is_evolved=is_evolved
    )
    key_aliases = {f"k{i}": column for i, column in enumerate(view_columns)}
    group_columns = ", ".join(f"s.{quoted(column)}" for column in stored_columns)
    inner_keys = ", ".join(
        f"s.{quoted(column)} AS {alias}" for alias, column in zip(key_aliases, stored_columns, strict=True)
    )
    outer_keys = ", ".join(f"m.{alias} AS {quoted(column)}" for alias, column in key_aliases.items())
    inner_aggregates = "".join(f", {sql} AS {alias}" for sql, alias in aggregates.names.items())
    outer_results = "".join(f", {sql} AS {quoted(column)}" for column, sql in columns.items())
    same_keys = "".join(
        f" AND coalesce(f.{quoted(column)}::text, '') = coalesce(m.{alias}::text, '') "
        f"AND f.{quoted(column)} IS NOT DISTINCT FROM m.{alias}"
        for alias, column in list(key_aliases.items())[2:]
    )
    micros = f"(r.text::json->>{_text(level)})::bigint"
    expired = f"(SELECT {moment(micros)} FROM {table('recorded')} AS r WHERE r.name = {_text(EXPIRED)})"
    view = table(f"{level}_current")
    partial = f"m.k1 > now() OR coalesce(m.k0 < {expired}, false)"
    return [
        f"CREATE VIEW {view} AS SELECT {outer_keys}{outer_results}, {partial} AS {PARTIAL} "
        f"FROM (SELECT {inner_keys}{inner_aggregates}, bool_and(e.part IS NOT NULL) AS fresh "
        f"FROM {table('states')} AS s JOIN {table('parts')} AS p ON p.part = s._part AND p.unread_since IS NULL "
        f"LEFT JOIN {table('flat')} AS e ON e.level = {_text(level)} AND e.part = p.part::text "
        f"WHERE s.level = {_text(level)} GROUP BY {group_columns}) AS m "
        f"LEFT JOIN {table(f'{level}_flat')} AS f ON m.fresh AND f.{START} = m.k0{same_keys}",
        f"COMMENT ON VIEW {view} IS {_text(comment)}",
    ]


def _columns(
    frame: TiltFrame, schema: pa.Schema, aggregates: SqlAggregates, own_columns: set[str], is_evolved: bool
) -> tuple[dict[str, str], str]:
    """Return the columns of the view, as name → SQL expression, and the text of the view's comment. The comment lists
    the columns that the view lacks, and the columns that the last ``compact`` or ``export`` has computed. Columns of
    the second kind are null for windows that have newer rows.
    """
    columns: dict[str, str] = {}
    from_table: list[str] = []
    left_out: list[str] = []
    table_columns = plain_table_columns(frame, schema)
    for measure_name, measure in frame.results.items():
        kind = "expression" if isinstance(measure, str) else measure.function.name
        live_columns: dict[str, str] = {}
        if isinstance(measure, Measure):
            state = frame.state_of(measure_name)
            result = sql_result(measure.function, aggregates, state, schema.field(state).type)
            live_columns = {column_name(measure_name + suffix): sql for suffix, sql in result.items()}
            if is_evolved:
                lacks_states = aggregates(f"bool_or({column_of(state, FUNCTION)} IS NULL)")
                live_columns = {
                    name: f"CASE WHEN NOT {lacks_states} THEN {sql} END" for name, sql in live_columns.items()
                }
        column_types = result_column_types(frame, schema, measure_name)
        reserved = {*own_columns, *frame.results} - {measure_name}
        for name in dict.fromkeys([*column_types, *live_columns]):
            if name in live_columns and name not in reserved and name not in columns:
                columns[name] = live_columns[name]
            elif name in table_columns and name not in live_columns:
                columns[name] = f"f.{quoted(name)}"
                from_table.append(name)
            else:
                left_out.append(f"{measure_name} ({kind}): {name}")
        if not column_types and not live_columns:
            left_out.append(f"{measure_name} ({kind}): all columns")
    sentences = [f"Not in this view: {'; '.join(left_out)}"] if left_out else ["All measures are in this view"]
    if from_table:
        names = ", ".join(from_table)
        sentences.append(f"As of the last compact or export, and null in windows with newer rows: {names}")
    return columns, ". ".join(sentences)


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
