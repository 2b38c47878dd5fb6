"""Conversion of schemas between Spark and Arrow, without a JVM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from aggr.tables.state_plan import StateColumn
from spark_udaf.versions.arrow_types import from_arrow_type
from tiltframe.names import LEVEL, START
from tiltframe.provenance import KEY, describe_states, description_in, state_difference, with_provenance


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the Spark schema of an Arrow schema. If the metadata of a column describe its states, the Spark schema has
    the same description. Raise ``TypeError`` for a type that Spark does not have.
    """
    for field in schema:
        for dtype in _leaves(field.type):
            if pa.types.is_unsigned_integer(dtype) or (pa.types.is_timestamp(dtype) and dtype.unit != "us"):
                raise TypeError(
                    f"the column {field.name!r} has the type {dtype}, which Spark does not support; cast the column "
                    "from which it is computed"
                )
    fields = []
    for field in schema:
        description = (field.metadata or {}).get(KEY)
        metadata = None if description is None else {KEY.decode(): description.decode()}
        fields.append(StructField(field.name, from_arrow_type(field.type), field.nullable, metadata))
    return StructType(fields)


def _leaves(dtype: pa.DataType) -> Iterator[pa.DataType]:
    if pa.types.is_struct(dtype):
        for field in dtype:
            yield from _leaves(field.type)
    else:
        yield dtype


def with_descriptions(schema: pa.Schema, states: Iterable[StateColumn]) -> pa.Schema:
    """Return the schema with descriptions of states in the metadata of its columns. In a schema for states of a tilt
    frame, the column ``level`` already has the description, which is copied to the column ``window_start``.

    Spark keeps the metadata of columns in tables, views and unions. It drops the metadata of a partition column, whose
    values become names of folders. If a table is partitioned by ``level``, only the copy in ``window_start`` remains.
    """
    if LEVEL in schema.names and KEY in (schema.field(LEVEL).metadata or {}):
        description = {KEY: schema.field(LEVEL).metadata[KEY]}
        return schema.set(schema.names.index(START), schema.field(START).with_metadata(description))
    for column in states:
        field = schema.field(column.name).with_metadata(with_provenance(describe_states(column)))
        schema = schema.set(schema.names.index(column.name), field)
    return schema


def check_has_description(field: pa.Field) -> None:
    """Raise ``ValueError`` if the metadata of a column does not describe its states."""
    if description_in(field) is None:
        raise ValueError(
            f"the column {field.name!r} does not record the measures of its states, because its metadata was lost; "
            "pass trust=True to read them as states of the measures that you name"
        )


def check_descriptions(schema: pa.Schema, states: Iterable[StateColumn], needs_description: bool) -> None:
    """Raise ``ValueError`` if the metadata of a column describe states from which its measures cannot be computed.

    ``states`` are the columns of states to be read, with their measures. With ``needs_description``, also raise the
    error for a column without a description.
    """
    for column in states:
        description = description_in(schema.field(column.name))
        if needs_description:
            check_has_description(schema.field(column.name))
        problem = None if description is None else state_difference(column.name, describe_states(column), description)
        if problem is not None:
            raise ValueError(
                f"these are not states of {', '.join(column.serves)}: {problem}; pass trust=True to read them "
                "nevertheless"
            )


def as_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table with the columns and types of a schema. Raise ``ValueError`` if the schema has no columns but
    the table has rows, because the rows would be lost.
    """
    result = table.select(schema.names).cast(schema)
    # If no columns are selected from a pyarrow table with rows, the result has 0 rows.
    if result.num_rows != table.num_rows:
        raise ValueError(
            f"a table of {table.num_rows:,} rows would lose its rows, because the result has no columns; add a column"
        )
    return result
