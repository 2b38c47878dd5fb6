"""UDFs of Spark: its makers of Arrow and pandas functions, typed by what we give them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql.pandas import functions
from pyspark.sql.types import DataType

Udf = Callable[..., Any]  # of Columns; what Spark registers for SQL


def arrow_udf(function: Callable[..., Any], kind: DataType | str) -> Udf:
    """Make an Arrow function; its annotations tell Spark whether it maps arrays or aggregates them."""
    make: Any = functions.arrow_udf
    made: Udf = make(function, kind)
    return made


def pandas_udf(function: Callable[..., Any], kind: DataType | str) -> Udf:
    """Make a pandas function; its annotations tell Spark whether it maps series or aggregates them."""
    make: Any = functions.pandas_udf
    made: Udf = make(function, kind)
    return made
