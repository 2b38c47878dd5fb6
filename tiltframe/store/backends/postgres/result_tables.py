"""Plain tables in PostgreSQL. The plain table of a level has one row per window and key, with the results of the level
in ordinary SQL columns. Another table lists the parts of the store from which each plain table was computed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from aggr.extend.columns import one_array
from aggr.extend.tables import flat_schema
from tiltframe import TiltFrame
from tiltframe.extend import json_text, python_values
from tiltframe.store.backends import END, PARTIAL, START, Conflict, Range, StoreError, stored, stored_type
from tiltframe.store.backends.postgres.literals import listed, moment, quoted
from tiltframe.store.backends.postgres.session import Session
from tiltframe.store.backends.postgres.state_columns import column_name, sql_type

_JSON = "jsonb"  # the type in PostgreSQL of results whose Arrow type PostgreSQL lacks
_INCOMING_TABLE = "tiltframe_incoming_flat"
_COLUMN_NAMES_SQL = (
    "SELECT attname::text AS name FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0 "
    "AND NOT attisdropped ORDER BY attnum"
)


def result_column_types(frame: TiltFrame, schema: pa.Schema, measure: str) -> dict[str, str]:
    """Return the columns of the results of a measure or expression, as name → type in PostgreSQL. A result that is a
    struct has a column for each field. Results that are maps or nested lists are stored as JSON.
    """
    result = frame.result_type(measure, schema)
    return {
        column_name(field.name): _type_of_result(field.type)
        for field in flat_schema(pa.schema([pa.field(measure, result)]))
    }


def plain_table_columns(frame: TiltFrame, schema: pa.Schema) -> dict[str, str]:
    """Return the columns of a plain table, as name → type in PostgreSQL. A key that is a struct has a column for each
    field, such as ``tags_host``. If a column of a measure would have the name of another column, such as a key or a
    column of another measure, the table has no columns for measures at all.
    """
    time_columns = dict.fromkeys((START, END), sql_type(pa.timestamp("us", "UTC"), START))
    key_columns = {
        column_name(field.name): sql_type(stored_type(field.type), field.name)
        for field in flat_schema(pa.schema([schema.field(key) for key in frame.keys]))
    }
    columns_by_measure = [result_column_types(frame, schema, measure) for measure in frame.results]
    measure_columns = {name: dtype for result_columns in columns_by_measure for name, dtype in result_columns.items()}
    other_names = {*time_columns, *key_columns, PARTIAL}
    if len(measure_columns) < sum(map(len, columns_by_measure)) or other_names & measure_columns.keys():
        measure_columns = {}
    return {**time_columns, **key_columns, **measure_columns, PARTIAL: sql_type(pa.bool_(), PARTIAL)}


def create_table_sql(frame: TiltFrame, schema: pa.Schema, table: str) -> str:
    """Return the SQL statement that creates the plain table of a level, which has the results of the level as columns.
    ``table`` is the quoted name of this table.
    """
    columns = [f"{quoted(name)} {dtype}" for name, dtype in plain_table_columns(frame, schema).items()]
    return f"CREATE TABLE {table} ({', '.join(columns)})"


def create_parts_sql(table: str) -> str:
    """Return the SQL statement that creates the table ``table``. This table lists the parts from which the plain tables
    of all levels were computed. ``table`` is its quoted name.
    """
    return (
        f"CREATE TABLE {table} (level text NOT NULL, part text NOT NULL, least bigint NOT NULL, "
        "stop bigint NOT NULL, PRIMARY KEY (level, part))"
    )


def read_parts(db: Session, parts_table: str, level: str) -> dict[str, Range]:
    """Return the parts from which a level's plain table was computed, as name → range of window starts in microseconds
    UTC. They are read from the table ``parts_table``.
    """
    rows = db.rows(f"SELECT part, least, stop FROM {parts_table} WHERE level = $1", level)
    return {row["part"]: (row["least"], row["stop"]) for row in rows}


def replace(
    db: Session,
    plain_table: str,
    parts_table: str,
    level: str,
    ranges: Sequence[Range],
    results: pa.Table,
    sources: Mapping[str, Range],
) -> None:
    """In ``plain_table``, remove the rows of the windows that begin in ``ranges``, and add the rows of ``results``. In
    ``parts_table``, store ``sources`` as the list of the parts from which the plain table of the level was computed.
    The caller commits the transaction.
    """
    for low, high in ranges:
        db.run(f"DELETE FROM {plain_table} WHERE {START} >= {moment(str(low))} AND {START} < {moment(str(high))}")
    if results.num_rows:
        names = [row["name"] for row in db.rows(_COLUMN_NAMES_SQL, plain_table)]
        result_names = {column_name(name): name for name in results.column_names}
        if not result_names.keys() >= set(names):
            raise Conflict(f"the columns of the table {plain_table} were changed by another process")
        columns = {name: results.column(result_names[name]) for name in names}
        json_names = {name for name, column in columns.items() if _type_of_result(column.type) == _JSON}
        rows = pa.table({n: _as_json(c) if n in json_names else stored(one_array(c)) for n, c in columns.items()})
        text_columns = _select_columns(names, json_names, "text")
        db.run(
            f"CREATE TEMP TABLE {_INCOMING_TABLE} ON COMMIT DROP AS SELECT {text_columns} "
            f"FROM {plain_table} WITH NO DATA"
        )
        db.append_rows(_INCOMING_TABLE, rows, temporary=True)
        json_columns = _select_columns(names, json_names, _JSON)
        db.run(f"INSERT INTO {plain_table} ({listed(names)}) SELECT {json_columns} FROM {_INCOMING_TABLE}")
    db.run(f"DELETE FROM {parts_table} WHERE level = $1", level)
    db.run(
        f"INSERT INTO {parts_table} SELECT $1, p.key, (p.value->>0)::bigint, (p.value->>1)::bigint "
        "FROM json_each($2::json) AS p",
        level,
        json.dumps(sources),
    )


def _type_of_result(dtype: pa.DataType) -> str:
    """Return PostgreSQL's type for a column of results. Types that PostgreSQL lacks are stored as JSON."""
    try:
        return sql_type(stored_type(dtype), "")
    except StoreError:
        return _JSON


def _as_json(column: pa.ChunkedArray) -> pa.Array:
    """Return the values of a column as JSON texts."""
    values = python_values(column)
    return pa.array([None if value is None else json_text(value) for value in values], pa.string())


def _select_columns(names: Sequence[str], cast: Collection[str], dtype: str) -> str:
    """Return the columns ``names`` of a SELECT as SQL. The columns in ``cast`` are cast to ``dtype``."""
    return ", ".join(f"{quoted(name)}::{dtype} AS {quoted(name)}" if name in cast else quoted(name) for name in names)
