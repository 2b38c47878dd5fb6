"""SQL functions by ``pandas_udf``, for versions of PySpark without ``arrow_udf`` (before 4.1).

Such a function receives each column from pandas. If pandas cannot represent a column exactly, the job fails, and the
message contains an expression that pandas represents exactly. A state is a binary value: a fixed prefix, and an Arrow
stream of one row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyspark
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import BinaryType, DoubleType, MapType, StringType

from spark_udaf.versions.arrow_types import from_arrow_type
from spark_udaf.versions.features import refusal
from spark_udaf.versions.single_values import values_of_single_lists
from spark_udaf.versions.sql_function import SqlFunction

_STATE_PREFIX = b"tiltframe state\x00"
_ZONE = "spark.sql.session.timeZone"


def scalar_udf(sql_function: SqlFunction) -> Any:
    """Return a SQL function that computes one result per row as a user-defined function of pandas columns."""
    zone = _session_zone()

    def apply(*positional: pd.Series, **named: pd.Series) -> pd.Series:
        result = sql_function.function(
            *_arrays(sql_function, positional, zone), **_named_arrays(sql_function, named, zone)
        )
        if sql_function.returns_states:
            return pd.Series(pack_states(result), dtype=object)
        return (
            _records(sql_function, result)
            if pa.types.is_struct(sql_function.dtype)
            else _series(result.cast(sql_function.dtype))
        )

    apply.__name__ = sql_function.name
    return pandas_udf(apply, BinaryType() if sql_function.returns_states else from_arrow_type(sql_function.dtype))  # type: ignore[call-overload]


def aggregate_udf(sql_function: SqlFunction) -> Any:
    """Return a SQL function that aggregates rows as a user-defined function of pandas columns. If its result is a
    record, the function raises ``ValueError`` when a task calls it.
    """
    zone = _session_zone()
    is_record = pa.types.is_struct(sql_function.dtype) and not sql_function.returns_states

    def aggregate(*positional: pd.Series, **named: pd.Series) -> object:
        if is_record:
            alternative = f"write {sql_function.name}_finish({sql_function.name}_state(…)), or su.group_by in Python"
            raise ValueError(
                refusal(
                    feature=f"the SQL function {sql_function.name}, whose result is a record,",
                    since="4.1",
                    alternative=alternative,
                )
            )
        result = sql_function.function(
            *_arrays(sql_function, positional, zone), **_named_arrays(sql_function, named, zone)
        )
        value = pa.repeat(result, 1)
        return (
            pack_states(value)[0]
            if sql_function.returns_states
            else _python_value(sql_function, value.cast(sql_function.dtype))
        )

    aggregate.__name__ = sql_function.name
    # A function whose result is a record always raises an error in the task. The function is declared with a map as its
    # result type, so that Spark accepts a query that selects a field of the result, runs the query, and shows the
    # error.
    if is_record:
        kind: Any = MapType(StringType(), MapType(StringType(), DoubleType()))
    else:
        kind = BinaryType() if sql_function.returns_states else from_arrow_type(sql_function.dtype)
    return pandas_udf(aggregate, kind)  # type: ignore[call-overload]


def pack_states(states: pa.Array) -> list[bytes | None]:
    """Return each state of an array as a binary value, and null as None."""
    rows = [states.slice(row, 1) for row in range(len(states))]
    return [None if row.null_count else _pack_state(row) for row in rows]


def _pack_state(state: pa.Array) -> bytes:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([state], names=["state"])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return _STATE_PREFIX + bytes(sink.getvalue())


def unpack_states(values: Sequence[bytes | None]) -> pa.Array:
    """Return an array of states from the binary values of `pack_states`. None becomes null."""
    states = [None if value is None else _unpack_state(value) for value in values]
    dtypes = {state.type for state in states if state is not None}
    if len(dtypes) > 1:
        raise ValueError(
            f"states of different types cannot be in one column: {', '.join(sorted(map(str, dtypes)))}; cast the "
            "inputs to one type, or merge the states of each type separately"
        )
    (dtype,) = dtypes
    return pa.concat_arrays([pa.nulls(1, dtype) if state is None else state for state in states])


def _unpack_state(value: bytes) -> pa.Array:
    batch = pa.ipc.open_stream(memoryview(value)[len(_STATE_PREFIX) :]).read_next_batch()
    return batch.column(0)


def _arrays(sql_function: SqlFunction, columns: Sequence[Any], zone: str) -> list[pa.Array]:
    return [
        _array(sql_function, column, zone, position < sql_function.input_count)
        for position, column in enumerate(columns)
    ]


def _named_arrays(sql_function: SqlFunction, columns: Mapping[str, Any], zone: str) -> dict[str, pa.Array]:
    return {name: _array(sql_function, column, zone, is_input=False) for name, column in columns.items()}


def _array(sql_function: SqlFunction, column: Any, zone: str, is_input: bool) -> pa.Array:
    """Return a column as an Arrow array. Raise ``ValueError`` if pandas may have changed a value."""
    if isinstance(column, pd.DataFrame):
        alternative = (
            "make states by the _state functions in SQL, or use su.merge, su.finish and su.states.quantile in Python"
        )
        raise ValueError(refusal(feature=f"{sql_function.name} of a struct", since="4.1", alternative=alternative))
    if column.dtype == object:
        first = next((value for value in column if value is not None), None)
        if isinstance(first, bytes) and first.startswith(_STATE_PREFIX):
            return unpack_states(column.tolist())
        if isinstance(first, np.ndarray):
            return values_of_single_lists(_lists(column, zone)) if is_input else pa.array(column.tolist())
        return pa.array(column.tolist(), from_pandas=False)
    if pd.api.types.is_float_dtype(column.dtype) and column.isna().any():
        raise ValueError(
            f"{sql_function.name}: the column contains null or NaN, which PySpark {pyspark.__version__} does not "
            f"distinguish in SQL functions; write array_compact(array(x)) instead of x, or use su.group_by in Python"
        )
    return _with_zone(pa.Array.from_pandas(column), zone)


def _lists(column: Any, zone: str) -> pa.ListArray:
    """Convert a column of lists, which pandas passes as numpy arrays, to an Arrow array of lists. The elements must not
    be null, because pandas does not distinguish null from NaN.
    """
    lengths = np.fromiter((0 if value is None else len(value) for value in column), np.int64, len(column))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    elements = np.concatenate([value for value in column if value is not None])
    return pa.ListArray.from_arrays(pa.array(offsets), _with_zone(pa.array(elements, from_pandas=False), zone))


def _with_zone(values: pa.Array, registered_zone: str) -> pa.Array:
    """Return the values, with instants in UTC. PySpark passes instants to pandas functions as local times in the time
    zone of the session.

    Raise ``pyarrow.ArrowInvalid`` for a local time that occurs twice or never in this time zone.
    """
    if not pa.types.is_timestamp(values.type):
        return values
    context = TaskContext.get()
    zone = (context and context.getLocalProperty(_ZONE)) or registered_zone
    if values.type.tz is None:
        values = pc.assume_timezone(values.cast(pa.timestamp("us")), zone)
    return values.cast(pa.timestamp("us", "UTC"))


def _records(sql_function: SqlFunction, results: pa.StructArray) -> pd.DataFrame:
    children = zip(results.flatten(), sql_function.dtype, strict=True)
    return pd.DataFrame({field.name: _pandas_field(sql_function, child.cast(field.type)) for child, field in children})


def _pandas_field(sql_function: SqlFunction, values: pa.Array) -> pd.Series:
    if not pa.types.is_map(values.type):
        return _series(values)
    _check_no_nan(sql_function, values.items)
    return pd.Series([None if pairs is None else dict(pairs) for pairs in values.to_pylist()], dtype=object)


def _series(values: pa.Array) -> pd.Series:
    return pd.Series(pd.arrays.ArrowExtensionArray(values))


def _python_value(sql_function: SqlFunction, value: pa.Array) -> object:
    _check_no_nan(sql_function, value)
    return value[0].as_py()


def _check_no_nan(sql_function: SqlFunction, values: pa.Array) -> None:
    """Raise ``ValueError`` if a value is NaN, which PySpark would convert to null."""
    if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
        raise ValueError(
            f"{sql_function.name}: the result is NaN, which PySpark {pyspark.__version__} would turn into "
            "null; use su.group_by in Python, or remove NaN from the rows"
        )


def _session_zone() -> str:
    session = SparkSession.getActiveSession()
    return "UTC" if session is None else str(session.conf.get(_ZONE))
