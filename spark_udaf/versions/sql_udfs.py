"""User-defined functions for SQL: by ``arrow_udf`` if PySpark has it, otherwise by ``pandas_udf``.

Without ``arrow_udf``, states are binary values in SQL, because an aggregate function by ``pandas_udf`` cannot return a
struct.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from spark_udaf.versions.arrow_types import from_arrow_type
from spark_udaf.versions.column_functions import arrow_udf
from spark_udaf.versions.features import has_arrow_udf
from spark_udaf.versions.single_values import values_of_single_lists
from spark_udaf.versions.sql_function import SqlFunction


def sql_udf(sql: SqlFunction) -> Any:
    """Return a SQL function in the form that ``spark.udf.register`` accepts."""
    if not has_arrow_udf():
        from spark_udaf.versions import pandas_sql

        return pandas_sql.aggregate_udf(sql) if sql.is_aggregate else pandas_sql.scalar_udf(sql)

    return arrow_udf(ArrowFunction(sql), from_arrow_type(sql.dtype), sql.is_aggregate)


class ArrowFunction:
    """The object that PySpark calls for a SQL function. Its arguments are Arrow arrays, one per argument in SQL."""

    def __init__(self, sql: SqlFunction) -> None:
        """Store the function."""
        self.__name__ = sql.name
        self._sql = sql

    def __call__(self, *positional: pa.Array, **named: pa.Array) -> Any:
        """Return an array with a result per row, or a scalar if the function aggregates the rows of a group."""
        inputs = [
            values_of_single_lists(column) if pa.types.is_list(column.type) else column
            for column in positional[: self._sql.input_count]
        ]
        return self._sql.function(*inputs, *positional[self._sql.input_count :], **named)
