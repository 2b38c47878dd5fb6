"""Schemas between Spark and Arrow; nothing here needs a JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def arrow_schema(df: DataFrame) -> pa.Schema:
    """Return the Arrow schema in which a DataFrame's rows reach Python."""
    return to_arrow_schema(df.schema, timezone="UTC")


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the Spark schema of Arrow columns."""
    return from_arrow_schema(schema)


def as_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Order columns as a schema has them and give them its types."""
    return table.select(schema.names).cast(schema)
