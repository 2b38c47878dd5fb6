"""UDFs of Spark: its maker of Arrow functions, typed by what we give them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas import functions
from pyspark.sql.types import DataType

Udf = Callable[..., Column]  # of Columns; what Spark registers for SQL


def column(column_or_name: Column | str) -> Column:
    """Take a Column, or a name as Spark reads one: a dot in it asks for a field unless there are backticks around."""
    if isinstance(column_or_name, str) and column_or_name.strip():
        named: Column = F.col(column_or_name)
        return named
    if isinstance(column_or_name, Column):
        return column_or_name
    raise TypeError(f"a column must be a Column or a name; got {column_or_name!r}")


def arrow_udf(function: Callable[..., Any], dtype: DataType | str) -> Udf:
    """Make an Arrow function; its annotations tell Spark whether it maps arrays or aggregates them."""
    make: Any = functions.arrow_udf
    udf: Udf = make(function, dtype)
    return udf
