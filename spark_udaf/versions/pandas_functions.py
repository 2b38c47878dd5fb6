"""Functions of Columns by ``pandas_udf``, for versions of PySpark without ``arrow_udf`` (before 4.1).

Spark sends values to Python as JSON text (`spark_udaf.versions.json_values`), together with the name of their type.
Lists of numbers and strings are sent as lists without their nulls, because Python then receives numpy arrays with the
exact values. The positions of the nulls are sent in a second column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import DataType

from spark_udaf.versions.column_text import text_of
from spark_udaf.versions.json_values import array_from_json, array_to_json, column_from_json, column_to_json
from spark_udaf.versions.same_version import TaskFunction
from spark_udaf.versions.type_names import parse_type_name

if TYPE_CHECKING:
    from pyspark.sql.window import WindowSpec

_EXACT_TYPES = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary")
_EXACT_LISTS = [f"array<{name}>" for name in _EXACT_TYPES]
_COLUMNS_PER_LIST = 4


def scalar_function(function: Callable[..., pa.Array], dtype: DataType) -> Callable[..., Column]:
    """Convert ``function`` by ``pandas_udf``, with the same parameters and result as
    `spark_udaf.versions.column_functions.scalar_function`.
    """
    compute = TaskFunction(function)

    def apply(*columns: pd.Series) -> pd.Series:
        return _texts(compute(*map(_values, columns[::2], columns[1::2])))

    udf = text_udf(apply, function.__name__)

    def call(*columns: Column) -> Column:
        text = udf(*(part for column in columns for part in _with_type(column)))
        return column_from_json(text, dtype).alias(_call_text(function.__name__, columns))

    return call


def window_function(
    function: Callable[[pa.Array], pa.Scalar], dtype: DataType
) -> Callable[[Column, WindowSpec], Column]:
    """Convert ``function`` by ``pandas_udf``, with the same parameters and result as
    `spark_udaf.versions.column_functions.window_function`.
    """
    compute = TaskFunction(function)

    def aggregate(texts: pd.Series, type_names: pd.Series) -> str:
        result = compute(_values(texts, type_names))
        return array_to_json(pa.repeat(result, 1))[0]

    aggregate.__name__ = function.__name__
    udf: Any = pandas_udf(aggregate, "string")  # type: ignore[call-overload]

    def call(column: Column, window: WindowSpec) -> Column:
        return column_from_json(udf(*_with_type(column)).over(window), dtype).alias(
            _call_text(function.__name__, [column])
        )

    return call


def list_function(
    function: Callable[[pa.ListArray], pa.Array], dtype: DataType, names: Sequence[str]
) -> Callable[[Column], Column]:
    """Convert ``function`` by ``pandas_udf``, with the same parameters and result as
    `spark_udaf.versions.column_functions.list_function`.
    """
    compute = TaskFunction(function)

    def apply(*columns: pd.Series) -> pd.Series:
        starts = range(0, len(columns), _COLUMNS_PER_LIST)
        lists = [_lists(*columns[start : start + _COLUMNS_PER_LIST]) for start in starts]
        if len(names) == 1:
            return _texts(compute(lists[0]))
        rows = pa.StructArray.from_arrays([values.values for values in lists], list(names))
        return _texts(compute(pa.ListArray.from_arrays(lists[0].offsets, rows)))

    udf = text_udf(apply, function.__name__)

    def call(lists: Column) -> Column:
        parts = [lists] if len(names) == 1 else [lists.getField(name) for name in names]
        columns = [column for part in parts for column in _as_columns(part, has_nulls=len(names) > 1)]
        return column_from_json(udf(*columns), dtype)

    return call


def text_udf(apply: Callable[..., Any], name: str) -> Callable[..., Column]:
    """Return a function of Columns that calls ``apply`` with pandas columns, and returns a Column of texts. Spark uses
    ``name`` in the name of the result column.
    """
    apply.__name__ = name
    udf: Callable[..., Column] = pandas_udf(apply, "string")  # type: ignore[call-overload]
    return udf


def _call_text(name: str, columns: Sequence[Column]) -> str:
    """Return the text of a call of the function ``name``, such as ``f(x, y)``. Spark would use this text as the name of
    the result if the function were called directly.
    """
    return f"{name}({', '.join(map(text_of, columns))})"


def _with_type(column: Column) -> tuple[Column, Column]:
    return column_to_json(column), F.typeof(column)


def _as_columns(lists: Column, has_nulls: bool) -> tuple[Column, Column, Column, Column]:
    """Return four Columns, which `_lists` reads. If pandas represents the elements exactly, the first Column contains
    the lists without their nulls, and the second Column contains lists of booleans that are true for null elements.
    Otherwise, the third Column contains the lists as JSON text. The fourth Column contains the name of the type of the
    lists.
    """
    # Spark evaluates this condition only once, when it plans the query, because the condition depends only on a type.
    is_exact = F.typeof(lists).isin(_EXACT_LISTS)
    values = F.when(is_exact, F.array_compact(lists) if has_nulls else lists)
    if has_nulls:
        nulls = F.when(is_exact, F.transform(lists, lambda value: value.isNull()))
    else:
        nulls = F.lit(None).cast("array<boolean>")
    return values, nulls, F.when(~is_exact, column_to_json(lists)), F.typeof(lists)


def _values(texts: pd.Series, type_names: pd.Series) -> pa.Array:
    dtype = parse_type_name(type_names.iloc[0]) if len(type_names) else pa.null()
    return array_from_json(texts.tolist(), dtype)


def _lists(values: pd.Series, nulls: pd.Series, texts: pd.Series, type_names: pd.Series) -> pa.ListArray:
    """Return an array of the lists that `_as_columns` has divided into four Columns. Null lists become empty lists."""
    dtype = parse_type_name(type_names.iloc[0]) if len(type_names) else pa.list_(pa.null())
    if not len(type_names) or type_names.iloc[0] not in _EXACT_LISTS:
        return array_from_json(texts.tolist(), dtype)
    elements = _flat(values, dtype.value_type)
    if nulls.iloc[0] is None:
        return pa.ListArray.from_arrays(_offsets(values), elements)
    is_null = _flat(nulls, pa.bool_()).to_numpy(zero_copy_only=False)
    element_indices = pa.array(np.cumsum(~is_null) - 1, mask=is_null)
    return pa.ListArray.from_arrays(_offsets(nulls), elements.take(element_indices))


def _offsets(lists: pd.Series) -> pa.Array:
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))


def _flat(lists: pd.Series, dtype: pa.DataType) -> pa.Array:
    parts = [part for part in lists if len(part)]
    return pa.array(np.concatenate(parts) if parts else [], dtype, from_pandas=False)


def _texts(results: pa.Array | pa.ChunkedArray) -> pd.Series:
    array = results.combine_chunks() if isinstance(results, pa.ChunkedArray) else results
    return pd.Series(array_to_json(array), dtype=object)
