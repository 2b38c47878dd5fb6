"""Plain tables of results in PostgreSQL: one per level, computed by the last export, with the list of parts that it
contains.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pyarrow as pa

from aggr.extend.columns import one_array
from aggr.extend.tables import flat_schema
from tiltframe import TiltFrame
from tiltframe.store import StoreError
from tiltframe.store.backends import END, PARTIAL, START, Conflict, Range, stored, stored_type
from tiltframe.store.backends.postgres.literals import listed, moment, quoted
from tiltframe.store.backends.postgres.session import Session
from tiltframe.store.backends.postgres.state_columns import column_name, sql_type

_INCOMING = "tiltframe_incoming_flat"
_NAMES = (
    "SELECT attname::text AS name FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0 "
    "AND NOT attisdropped ORDER BY attnum"
)


def results_of(frame: TiltFrame, schema: pa.Schema, measure: str) -> dict[str, pa.DataType]:
    """Return the flat columns of a measure or expression that PostgreSQL can store, with their stored types."""
    result = frame.result_type(measure, schema)
    return {
        name: stored_type(field.type)
        for field in flat_schema(pa.schema([pa.field(measure, result)]))
        if _can_keep(stored_type(field.type)) and (name := column_name(field.name))
    }


def columns_of(frame: TiltFrame, schema: pa.Schema) -> dict[str, pa.DataType]:
    """Return the columns of a plain table with their types, without those of measures if flat names clash."""
    moments = dict.fromkeys((START, END), pa.timestamp("us", "UTC"))
    keys = {column_name(key): stored_type(schema.field(key).type) for key in frame.keys}
    columns_by_measure = [results_of(frame, schema, measure) for measure in frame.results]
    columns = {name: dtype for named in columns_by_measure for name, dtype in named.items()}
    own_names = {*moments, *keys, PARTIAL}
    if len(columns) < sum(map(len, columns_by_measure)) or own_names & columns.keys():
        columns = {}
    return {**moments, **keys, **columns, PARTIAL: pa.bool_()}


def create(frame: TiltFrame, schema: pa.Schema, table: str) -> str:
    """Return the SQL statement that creates a level's plain table."""
    columns = [f"{quoted(n)} {sql_type(t, n)}" for n, t in columns_of(frame, schema).items()]
    return f"CREATE TABLE {table} ({', '.join(columns)})"


def create_parts(table: str) -> str:
    """Return the SQL statement that creates the table with the lists of parts of plain tables."""
    return (
        f"CREATE TABLE {table} (level text NOT NULL, part text NOT NULL, least bigint NOT NULL, "
        "stop bigint NOT NULL, PRIMARY KEY (level, part))"
    )


def read_parts(db: Session, parts: str, level: str) -> dict[str, Range]:
    """Return the parts from which a level's plain table was computed."""
    rows = db.rows(f"SELECT part, least, stop FROM {parts} WHERE level = $1", level)
    return {row["part"]: (row["least"], row["stop"]) for row in rows}


def replace(
    db: Session,
    table: str,
    parts: str,
    level: str,
    ranges: Sequence[Range],
    results: pa.Table,
    sources: Mapping[str, Range],
) -> None:
    """Replace the rows of ranges, and the table's list of parts, in the caller's transaction."""
    for low, high in ranges:
        db.run(f"DELETE FROM {table} WHERE {START} >= {moment(str(low))} AND {START} < {moment(str(high))}")
    if results.num_rows:
        names = [row["name"] for row in db.rows(_NAMES, table)]
        result_names = {column_name(name): name for name in results.column_names}
        if not result_names.keys() >= set(names):
            raise Conflict(f"the table {table} now belongs to another frame")
        rows = pa.table({name: stored(one_array(results.column(result_names[name]))) for name in names})
        db.run(f"CREATE TEMP TABLE {_INCOMING} ON COMMIT DROP AS SELECT {listed(names)} FROM {table} WITH NO DATA")
        db.fill(_INCOMING, rows, temporary=True)
        db.run(f"INSERT INTO {table} ({listed(names)}) SELECT {listed(names)} FROM {_INCOMING}")
    db.run(f"DELETE FROM {parts} WHERE level = $1", level)
    db.run(
        f"INSERT INTO {parts} SELECT $1, p.key, (p.value->>0)::bigint, (p.value->>1)::bigint "
        "FROM json_each($2::json) AS p",
        level,
        json.dumps(sources),
    )


def _can_keep(dtype: pa.DataType) -> bool:
    try:
        sql_type(dtype, "")
    except StoreError:
        return False
    return True
