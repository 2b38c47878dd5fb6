"""Functions of Columns, made from functions of arrays by ``arrow_udf`` if PySpark has it, or else ``pandas_udf``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_udaf.versions.arrow_types import parse_type
from spark_udaf.versions.features import has_arrow_udf, has_iterating_aggregate, refuse
from spark_udaf.versions.same_version import TaskFunction

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType
    from pyspark.sql.window import WindowSpec


def scalar_function(function: Callable[..., pa.Array], dtype: DataType | str) -> Callable[..., Column]:
    """Convert ``function``, which maps arrays to an array of the same length, to a function that receives and returns
    Columns.

    Parameters
    ----------
    function : arrays, one per Column -> array
    dtype : Spark type or its name
        The type of the result.
    """
    if has_arrow_udf():
        return arrow_udf(function, dtype, is_aggregate=False)
    from spark_udaf.versions import pandas_functions

    return pandas_functions.scalar_function(function, _type(dtype))


def list_function(
    function: Callable[[pa.ListArray], pa.Array], dtype: DataType, names: Sequence[str]
) -> Callable[[Column], Column]:
    """Convert ``function``, which maps an array of lists to an array, to a function that receives a Column of lists and
    returns a Column. Elements of the lists must not be null, but the fields of structs may be.

    Parameters
    ----------
    function : lists -> array with one value per list
    dtype : Spark type
        The type of the result.
    names : the names of the fields if the lists contain structs; a single name if they contain plain values
    """
    if has_arrow_udf():
        return arrow_udf(function, dtype, is_aggregate=False)
    from spark_udaf.versions import pandas_functions

    return pandas_functions.list_function(function, dtype, names)


def window_function(
    function: Callable[[pa.Array], pa.Scalar], dtype: DataType
) -> Callable[[Column, WindowSpec], Column]:
    """Convert ``function``, which maps all values of a window frame to one value, to a function that receives a Column
    and a window and returns a Column.
    """
    if has_arrow_udf():
        aggregate = arrow_udf(function, dtype, is_aggregate=True)
        return lambda column, window: aggregate(column).over(window)
    from spark_udaf.versions import pandas_functions

    return pandas_functions.window_function(function, dtype)


def iterating_function(
    function: Callable[[Iterator[pa.Array]], pa.Scalar], dtype: DataType
) -> Callable[[Column], Column]:
    """Convert ``function``, which computes the result of a group from an iterator over arrays of its values, to a
    function that receives a Column and returns a Column.

    Raise ``ValueError`` if this PySpark does not support such functions.
    """
    if not has_iterating_aggregate():
        refuse("groups='large'", "4.2", "use su.group_by(df, …).agg(…)")
    from pyspark.sql.pandas import functions

    aggregate = TaskFunction(function)

    def call(batches: Iterator[pa.Array]) -> Any:
        return aggregate(batches)

    call.__annotations__ = {"batches": Iterator[pa.Array], "return": pa.Scalar}
    call.__name__ = function.__name__
    make: Any = functions.arrow_udf
    udf: Callable[[Column], Column] = make(call, dtype)
    return udf


def arrow_udf(function: Callable[..., Any], dtype: DataType | str, is_aggregate: bool) -> Callable[..., Column]:
    """Convert a function of Arrow arrays to a function of Columns by ``arrow_udf``, which PySpark must have.

    If ``is_aggregate`` is true, the function returns one value per group, and otherwise one value per row. PySpark
    reads this property from the annotations of the function, which are therefore set.
    """
    from pyspark.sql.pandas import functions

    compute = TaskFunction(function)

    def call(*positional: pa.Array, **named: pa.Array) -> Any:
        return compute(*positional, **named)

    result = pa.Scalar if is_aggregate else pa.Array
    call.__annotations__ = {"positional": pa.Array, "named": pa.Array, "return": result}
    call.__name__ = function.__name__  # The name of the function becomes a part of the name of the result column.
    make: Any = functions.arrow_udf
    udf: Callable[..., Column] = make(call, dtype)
    return udf


def _type(dtype: DataType | str) -> DataType:
    return parse_type(dtype) if isinstance(dtype, str) else dtype
