"""Columns: pass selected columns of a DataFrame to Python by position, whatever the names and types of the other
columns are.

Spark parses a name as an expression: a dot selects a field, case is ignored, and `mapInArrow` does not accept names
with dots. Columns with such names are therefore numbered for the transfer, and renamed in the task.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField

from aggr import Function
from aggr.arrow import versions
from aggr.function import input_rule
from aggr.sql.number_columns import Use
from spark_udaf.plan.schema import spark_schema
from spark_udaf.versions.arrow_types import UnsupportedType, to_arrow_type
from spark_udaf.versions.same_version import TaskFunction
from tiltframe.names import LEVEL, START
from tiltframe.provenance import KEY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

Batches = Iterator[pa.RecordBatch]
# A regular expression in Spark's SQL. It matches the name of a type in which strings have a collation other than
# UTF8_BINARY.
COLLATED = " collate (?!UTF8_BINARY(,|>|$))"


def arrow_schema(df: DataFrame, read: Sequence[str] | None = None) -> pa.Schema:
    """Return the schema of the Arrow batches in which Spark passes the rows of a DataFrame to Python.

    Parameters
    ----------
    df : DataFrame
    read : names, optional
        The columns to be read; the default is all of them. Other columns may have types that Spark cannot pass to
        Python; their type in the schema is null.

    Raises
    ------
    TypeError
        If Spark cannot pass the type of a column in ``read`` to Python.
    ValueError
        If two columns have the same name.
    """
    fields = list(df.schema)
    needed = {f.name for f in fields} if read is None else set(read)
    names = [f.name for f in fields]
    for name in names:
        if name in needed and names.count(name) > 1:
            raise ValueError(f"the DataFrame has {names.count(name)} columns called {name!r}; rename all but one")
    return _with_description(pa.schema([_arrow_field(f, is_read=f.name in needed) for f in fields]))


def _with_description(schema: pa.Schema) -> pa.Schema:
    """Return the schema in which the metadata of the column ``level`` describe the states. If Spark has read this
    column from the names of folders, such as ``level=1h``, the column has no metadata. The description is then copied
    from the column ``window_start``.
    """
    if LEVEL not in schema.names or START not in schema.names:
        return schema
    level = schema.field(LEVEL)
    start = schema.field(START)
    if KEY in (level.metadata or {}) or KEY not in (start.metadata or {}):
        return schema
    return schema.set(schema.names.index(LEVEL), level.with_metadata({KEY: start.metadata[KEY]}))


def _arrow_field(field: StructField, is_read: bool) -> pa.Field:
    if is_read:
        check_collation(field)
    try:
        description = (field.metadata or {}).get(KEY.decode())  # None if the metadata do not describe states
        metadata = {KEY: description.encode()} if isinstance(description, str) else None
        return pa.field(field.name, to_arrow_type(field.dataType), field.nullable, metadata)
    except UnsupportedType:
        if not is_read:
            return pa.field(field.name, pa.null())
    raise TypeError(
        f"the column {field.name!r} has the type {field.dataType.simpleString()}, which Spark cannot send to "
        "Python; cast it to another type such as string, or leave it out"
    )


def is_collated(dtype: DataType) -> bool:
    """Return whether Spark compares strings of a type by a collation other than UTF8_BINARY."""
    return _collation(dtype) is not None


def check_collation(field: StructField) -> None:
    """Raise ``TypeError`` for a column of strings that Spark compares by a collation other than UTF8_BINARY."""
    collation = _collation(field.dataType)
    if collation is not None:
        raise TypeError(
            f"the column {field.name!r} has the collation {collation} in Spark, but tiltframe compares its bytes; "
            f"cast it, `CAST({field.name} AS STRING COLLATE UTF8_BINARY)`, or normalize it, such as with lower(…)"
        )


def compares_text(function: Function) -> bool:
    """Return whether a function compares texts, or stores them in its states."""
    return function.name != "count" and any(input_rule(function, role).use != Use.NUMBER for role in function.inputs)


def collation_message(call: str) -> str:
    """Return the message for a call that reads strings with a collation. The message has no quotes, so that it can be
    used in SQL.
    """
    return (
        f"a column of {call} has a collation in Spark, but tiltframe compares its bytes; cast it to STRING "
        "COLLATE UTF8_BINARY, or normalize it, such as with lower(…)"
    )


def with_collation_check(column: Column, name: str) -> Column:
    """Return a Column with the values of ``column`` and a check: the query fails if Spark compares strings of the
    column by a collation other than UTF8_BINARY. ``name`` is the call that reads the column, for the message.

    The type of the column is unknown before Spark analyzes the query. The check costs nothing per row, because Spark's
    optimizer evaluates a condition on a type before the query runs.
    """
    is_collated = F.typeof(column).rlike(COLLATED)
    return F.when(is_collated, F.raise_error(F.lit(collation_message(name)))).otherwise(column)


def _collation(dtype: Any) -> str | None:
    """Return the first collation other than UTF8_BINARY in a type, including its elements and fields, or None."""
    collation = getattr(dtype, "collation", "UTF8_BINARY")  # Spark 3.5 does not have collations
    if collation != "UTF8_BINARY":
        return str(collation)
    members = [getattr(dtype, name, None) for name in ("elementType", "keyType", "valueType")]
    members += [field.dataType for field in getattr(dtype, "fields", ())]
    collations = map(_collation, filter(None, members))
    return next((name for name in collations if name is not None), None)


def map_columns(
    df: DataFrame, names: Sequence[str], function: Callable[[Batches], Batches], schema: pa.Schema
) -> DataFrame:
    """Return a DataFrame with the batches that ``function`` returns for each partition. Only the columns ``names`` are
    sent to Python.

    Parameters
    ----------
    df : DataFrame
    names : names of columns, which must be unique
    function : callable
        Receives an iterator over the batches of a partition, whose columns are ``names`` in any order, and returns an
        iterator over batches of ``schema``.
    schema : Arrow schema
    """
    # Spark sends no batches for rows without columns, so that even the number of rows would be lost. A constant column
    # is sent instead, and removed in the task.
    if not names:
        rows = df.selectExpr("0 AS c")

        def remove_constant(batches: Batches) -> Batches:
            return function(batch.select([]) for batch in batches)

        # Spark shows the name of the function as the name of the stage.
        remove_constant.__name__ = getattr(function, "__name__", "read_rows")
        return rows.mapInArrow(TaskFunction(remove_constant), spark_schema(schema))
    available = df.columns
    if _can_keep_names(names, available):
        names_in_order = [name for name in available if name in names]
        selected = df if names_in_order == available else df.select(*names_in_order)
        return selected.mapInArrow(TaskFunction(function), spark_schema(schema))
    names = list(names)

    def with_original_names(batches: Batches) -> Batches:
        return function(versions.rename_columns(batch, names) for batch in batches)

    with_original_names.__name__ = getattr(function, "__name__", "read_rows")
    positions = [available.index(name) for name in names]
    numbered_columns = df.toDF(*(f"c{position}" for position in range(len(available))))
    return numbered_columns.select(*(f"c{position}" for position in positions)).mapInArrow(
        TaskFunction(with_original_names), spark_schema(schema)
    )


def unsliced_batches(table: pa.Table, max_rows: int) -> Batches:
    """Yield the rows of a table in batches of at most ``max_rows`` rows. Each batch begins at the start of its
    buffers.

    An engine that receives batches within the process, such as Sail, may misread batches with an offset.
    """
    for batch in table.combine_chunks().to_batches(max_chunksize=max_rows):
        is_unsliced = batch.num_rows == table.num_rows
        yield batch if is_unsliced else pa.ipc.read_record_batch(batch.serialize(), batch.schema)


def _can_keep_names(names: Sequence[str], available: Sequence[str]) -> bool:
    """Return whether each of ``names`` needs no quotes in Spark's SQL, and belongs to exactly one column. If so, the
    columns need not be renamed before they are sent to Python.
    """
    lower_names = [name.lower() for name in available]
    return all(re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name) and lower_names.count(name.lower()) == 1 for name in names)


def check_distinct_names(names: Sequence[str], spark: SparkSession) -> None:
    """Raise ``ValueError`` if two names of columns differ only in case, and the session ignores the case of names."""
    if str(spark.conf.get("spark.sql.caseSensitive")).lower() == "true":
        return
    first_names: dict[str, str] = {}
    for name in names:
        first_spelling = first_names.setdefault(name.lower(), name)
        if first_spelling != name:
            raise ValueError(f"Spark does not distinguish the names {first_spelling!r} and {name!r}; rename one")
