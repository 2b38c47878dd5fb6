"""User-defined functions for SQL, created with ``arrow_udf`` if PySpark has it, and otherwise with ``pandas_udf``.

Without ``arrow_udf``, states are binary values in SQL, because an aggregate function that is created with
``pandas_udf`` cannot return a struct.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from spark_udaf.versions.arrow_types import from_arrow_type
from spark_udaf.versions.column_functions import arrow_udf
from spark_udaf.versions.features import has_arrow_udf
from spark_udaf.versions.single_values import values_of_single_lists
from spark_udaf.versions.sql_function import SqlFunction


def sql_udf(sql_function: SqlFunction) -> Any:
    """Return a SQL function in the form that ``spark.udf.register`` accepts."""
    if not has_arrow_udf():
        from spark_udaf.versions import pandas_sql

        return (
            pandas_sql.aggregate_udf(sql_function) if sql_function.is_aggregate else pandas_sql.scalar_udf(sql_function)
        )

    return arrow_udf(ArrowFunction(sql_function), from_arrow_type(sql_function.dtype), sql_function.is_aggregate)


class ArrowFunction:
    """The object that PySpark calls for a SQL function. Its arguments are Arrow arrays, one per argument in SQL."""

    def __init__(self, sql_function: SqlFunction) -> None:
        """Store the SQL function, and use its name as the name of this object."""
        self.__name__ = sql_function.name
        self._sql_function = sql_function

    def __call__(self, *positional: pa.Array, **named: pa.Array) -> Any:
        """Return an array with one result per row. If the function aggregates the rows of a group, return a scalar."""
        inputs = [
            values_of_single_lists(column) if pa.types.is_list(column.type) else column
            for column in positional[: self._sql_function.input_count]
        ]
        return self._sql_function.function(*inputs, *positional[self._sql_function.input_count :], **named)
