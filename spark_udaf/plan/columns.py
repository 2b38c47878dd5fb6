"""Columns: what of a DataFrame goes over to Python, by place, whatever its columns are called and the others hold.

Spark reads a name as an expression: a dot asks for a field, case is not told, and no name with a dot gets through
`mapInArrow`. So columns with such names are numbered on the way over, and get their names back in the task.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import StructField

from spark_udaf.plan.schema import spark_schema
from spark_udaf.versions.arrow_types import UnsupportedType, to_arrow_type
from tiltframe.names import LEVEL, START
from tiltframe.provenance import KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Batches = Iterator[pa.RecordBatch]


def arrow_schema(df: DataFrame, read: Sequence[str] | None = None) -> pa.Schema:
    """Return the Arrow schema in which a DataFrame's rows reach Python.

    Parameters
    ----------
    df : DataFrame
    read : names, optional
        The columns that are going to be read, all unless given. Others may have types that Python cannot be given;
        they stand in the schema as null.

    Raises
    ------
    TypeError
        For a column to be read whose type Spark cannot give to Python.
    ValueError
        For one whose name another column has too.
    """
    fields = list(df.schema)
    needed = {f.name for f in fields} if read is None else set(read)
    names = [f.name for f in fields]
    for name in names:
        if name in needed and names.count(name) > 1:
            raise ValueError(f"the DataFrame has {names.count(name)} columns called {name!r}; rename all but one")
    return _with_identity(pa.schema([_field(f, f.name in needed) for f in fields]))


def _with_identity(schema: pa.Schema) -> pa.Schema:
    """Describe frame states at the column of levels, from that of the windows if folders have been named by levels."""
    if LEVEL not in schema.names or START not in schema.names:
        return schema
    level, start = schema.field(LEVEL), schema.field(START)
    if KEY in (level.metadata or {}) or KEY not in (start.metadata or {}):
        return schema
    return schema.set(schema.names.index(LEVEL), level.with_metadata({KEY: start.metadata[KEY]}))


def _field(field: StructField, read: bool) -> pa.Field:
    if read:
        check_collation(field)
    try:
        description = (field.metadata or {}).get(KEY.decode())  # what frame states are of
        metadata = {KEY: description.encode()} if isinstance(description, str) else None
        return pa.field(field.name, to_arrow_type(field.dataType), field.nullable, metadata)
    except UnsupportedType:
        if not read:
            return pa.field(field.name, pa.null())
    raise TypeError(
        f"the column {field.name!r} has the type {field.dataType.simpleString()}, which Spark cannot give to Python; "
        "cast it, say to string, or leave it out"
    )


def check_collation(field: StructField) -> None:
    """Raise ``TypeError`` for a column of strings that Spark does not compare by their bytes."""
    collation = _collation(field.dataType)
    if collation is not None:
        raise TypeError(
            f"the column {field.name!r} is compared by Spark's collation {collation}, and by its bytes in tiltframe; "
            f"cast it, `CAST({field.name} AS STRING COLLATE UTF8_BINARY)`, or normalize it, say by lower(…)"
        )


def _collation(dtype: Any) -> str | None:
    """Return the collation of the first string in a type that has another one than UTF8_BINARY; None without one."""
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
    """Run a function over the batches of each partition, with the named columns only.

    Parameters
    ----------
    df : DataFrame
    names : names of its columns, each there once
    function : batches of columns of these names, in any order -> batches of ``schema``
    schema : Arrow schema
    """
    if not names:  # Spark would tell nothing of rows without columns, not even how many there are
        rows = df.selectExpr("0 AS c")

        def without_columns(batches: Batches) -> Batches:
            return function(batch.select([]) for batch in batches)

        without_columns.__name__ = getattr(function, "__name__", "read_rows")  # Spark names the stage after it
        return rows.mapInArrow(without_columns, spark_schema(schema))
    if _plain(names, df.columns):
        same = df.select(*(name for name in df.columns if name in names))  # in their order, nothing is left to do
        return same.mapInArrow(function, spark_schema(schema))
    names = list(names)

    def named(batches: Batches) -> Batches:
        return function(batch.rename_columns(names) for batch in batches)

    named.__name__ = getattr(function, "__name__", "read_rows")
    places = [df.columns.index(name) for name in names]
    numbered = df.toDF(*(f"c{place}" for place in range(len(df.columns))))
    return numbered.select(*(f"c{place}" for place in places)).mapInArrow(named, spark_schema(schema))


def unsliced_batches(table: pa.Table, most_rows: int) -> Batches:
    """Cut a table into batches of at most so many rows that begin at the start of their buffers.

    An engine that Python gives batches to within its process, as Sail does, may misread those that begin elsewhere.
    """
    for batch in table.combine_chunks().to_batches(max_chunksize=most_rows):
        whole = batch.num_rows == table.num_rows
        yield batch if whole else pa.ipc.read_record_batch(batch.serialize(), batch.schema)


def _plain(names: Sequence[str], available: Sequence[str]) -> bool:
    """Say whether Spark reads names as what they are: every row is spared a copy under other names."""
    lower_names = [name.lower() for name in available]
    return all(re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name) and lower_names.count(name.lower()) == 1 for name in names)


def check_distinct(names: Sequence[str], spark: SparkSession) -> None:
    """Raise ``ValueError`` for names of a result that Spark takes for one."""
    if str(spark.conf.get("spark.sql.caseSensitive")).lower() == "true":
        return
    first_names: dict[str, str] = {}
    for name in names:
        other = first_names.setdefault(name.lower(), name)
        if other != name:
            raise ValueError(f"Spark takes {other!r} and {name!r} for one name; rename one")
