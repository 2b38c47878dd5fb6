"""Schemas between Spark and Arrow; nothing here needs a JVM."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from spark_udaf.versions.arrow_types import from_arrow_type
from tiltframe.provenance import KEY


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the Spark schema of Arrow columns; raises ``TypeError`` for a type that Spark does not have.

    Metadata of a column says what frame states are of.
    """
    for field in schema:
        for kind in _leaves(field.type):
            if pa.types.is_unsigned_integer(kind) or (pa.types.is_timestamp(kind) and kind.unit != "us"):
                raise TypeError(
                    f"{field.name!r} is of {kind}, which Spark does not have; cast the column that it reads"
                )
    fields = []
    for field in schema:
        description = (field.metadata or {}).get(KEY)
        metadata = None if description is None else {KEY.decode(): description.decode()}
        fields.append(StructField(field.name, from_arrow_type(field.type), field.nullable, metadata))
    return StructType(fields)


def _leaves(kind: pa.DataType) -> Iterator[pa.DataType]:
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(field.type)
    else:
        yield kind


def as_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Order columns as a schema has them and give them its types."""
    return table.select(schema.names).cast(schema)
