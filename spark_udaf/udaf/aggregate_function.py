"""UDAFs: a function as an aggregate function of Spark's own, for `groupBy().agg()`, windows and SQL.

Spark sends all rows of a group to one Python call: no combine before the shuffle. `spark_udaf.aggregate` has one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import pandas as pd
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import ArrayType, DataType, StructType

from aggr import Function, Groups
from aggr.function import EVENT_TIME, WEIGHT
from aggr.kernels.normalize import normalized_type, with_nulls
from spark_udaf.udaf.typed_udf import arrow_udf, pandas_udf
from tiltframe.event_time import event_times

_TIME = pa.timestamp("us", "UTC")
# one type of each kind of input, to find out whether results depend on it
_KINDS = [pa.float64(), pa.int64(), pa.decimal128(10, 2), _TIME, pa.string(), pa.date32(), pa.bool_(), pa.binary()]


@dataclass(frozen=True)
class Reading:
    """How a UDAF reads its column.

    Parameters
    ----------
    function : Function
    label : str
        The call as the user wrote it, for messages.
    dtype : Arrow type or None
        What values are read as; None: as they come, for the result has one type whatever they are.
    states : bool
        Give the state instead of the result.
    weighted : bool
        Values come as a struct, its last field how many rows each row stands for.
    """

    function: Function
    label: str
    dtype: pa.DataType | None
    states: bool = False
    weighted: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The columns it takes, by name."""
        return (*self.function.inputs, *([WEIGHT] if self.weighted else []))

    @property
    def result(self) -> pa.DataType:
        """The Arrow type of what comes out."""
        dtype = self.dtype or accepted(self.function)[0]
        state = self.function.state_type(_input(self.function, dtype))
        return state if self.states else self.function.result_type(state)

    def of_columns(self, columns: pa.Array) -> pa.Array:
        """Aggregate the columns of one group: the values, or a struct of all by `names`."""
        if not self.weighted:
            return self.results(columns)
        kept = [columns.field(name) for name in self.function.inputs]
        values = kept[0] if len(kept) == 1 else pa.StructArray.from_arrays(kept, names=list(self.function.inputs))
        return self.results(values, columns.field(WEIGHT))

    def results(self, values: pa.Array, weights: pa.Array | None = None) -> pa.Array:
        """Aggregate the values of one group, and perhaps their weights; the answer is an array of one."""
        with naming(self.label):
            states = self.function.reduce(self._read(values), Groups.single(len(values)), weights)
            return states if self.states else self.function.finish(states)

    def _read(self, values: pa.Array) -> pa.Array:
        if self.dtype is None:
            return values
        wanted = _input(self.function, self.dtype)
        if len(self.function.inputs) == 1:
            return self._cast(values, wanted)
        names = self.function.inputs
        parts = [self._cast(values.field(names[0]), self.dtype)]
        for name in names[1:]:  # results do not depend on the types of further inputs, states do
            given = values.field(name)
            if self.states:
                given = _times(given) if name == EVENT_TIME else self._cast(given, wanted.field(name).type)
            parts.append(given)
        return pa.StructArray.from_arrays(parts, names=list(names), mask=values.is_null())

    def _cast(self, values: pa.Array, wanted: pa.DataType) -> pa.Array:
        given = normalized_type(values.type)
        if given == wanted or pa.types.is_null(values.type):
            return values.cast(wanted)
        named = from_arrow_type(given).simpleString()
        say = f"; say type={named!r} (in SQL, a function that su.register makes for this type), or cast it"
        if not (_is_number(given) and _is_number(wanted)) and not (
            pa.types.is_timestamp(given) and pa.types.is_timestamp(wanted)
        ):
            raise TypeError(f"the column holds {given}, and is read as {wanted}{say}")
        try:
            return values.cast(wanted)
        except pa.ArrowInvalid as error:
            raise ValueError(f"read as {wanted}, a value would change: {error}{say}") from None


@contextmanager
def naming(label: str) -> Iterator[None]:
    """Name the call in an error of a worker, where nothing else tells which one it was."""
    try:
        yield
    except (TypeError, ValueError, OverflowError) as error:
        raise type(error)(f"{label}: {error}") from None
    except pa.ArrowNotImplementedError as error:
        raise TypeError(f"{label}: {str(error).splitlines()[0]}") from None


def reading(
    function: Function, label: str, type: DataType | str | None, states: bool = False, weighted: bool = False
) -> Reading:
    """Choose what the column is read as: the given type; nothing in particular; or, where the result needs one, double.

    Raises ``TypeError`` for a type the function does not take, and ``ValueError`` for one that cannot be read.
    """
    if type is not None:
        dtype = arrow_type(type)
        function.check_input(_input(function, dtype))
        return Reading(function, label, dtype, states, weighted)
    kinds = accepted(function)
    free = len({Reading(function, label, dtype, states).result for dtype in kinds}) == 1
    if free and len(function.inputs) == 1:
        return Reading(function, label, None, states, weighted)
    if pa.float64() not in kinds:
        raise TypeError(f"{label} needs the type of its column: say type='{from_arrow_type(kinds[0]).simpleString()}'")
    return Reading(function, label, pa.float64(), states, weighted)


def arrow_type(type: DataType | str) -> pa.DataType:
    """Read a Spark type, or its name in SQL, as an Arrow type."""
    try:
        if isinstance(type, str):
            (field,) = cast(StructType, StructType.fromDDL(f"x {type}"))
        return normalized_type(to_arrow_type(field.dataType if isinstance(type, str) else type, timezone="UTC"))
    except Exception:  # Spark has many for this, with pages of its own
        raise ValueError(
            f"cannot read {type!r} as a type; write one of Spark's, say 'bigint', 'string' or 'decimal(20,2)'"
        ) from None


@cache
def accepted(function: Function) -> list[pa.DataType]:
    """List the kinds of input that a function takes, one type each."""
    kinds = []
    for dtype in _KINDS:
        try:
            function.state_type(_input(function, dtype))
        except (TypeError, ValueError, pa.ArrowException):
            continue
        kinds.append(dtype)
    if not kinds:
        raise TypeError(f"{function.name} takes none of Spark's plain types")
    return kinds


def _input(function: Function, dtype: pa.DataType) -> pa.DataType:
    """Return the type of a function's input, or inputs; further ones are read as event times, or as doubles."""
    if len(function.inputs) == 1:
        return dtype
    others = [_TIME if name == EVENT_TIME else pa.float64() for name in function.inputs[1:]]
    return pa.struct(list(zip(function.inputs, [dtype, *others], strict=True)))


def _times(given: pa.Array) -> pa.Array:
    """Read event times as a frame does; null stays null."""
    known = pa.array(event_times(given.drop_null(), EVENT_TIME)).cast(_TIME)
    return with_nulls(known, given.is_valid())


def _is_number(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype))


def arrow_udaf(reading: Reading) -> Callable[..., Column]:
    """Make an Arrow UDAF (Spark 4.1 on) of values and perhaps further inputs: one Arrow array a group."""

    def aggregate(values: pa.Array) -> pa.Scalar:
        return reading.of_columns(values)[0]

    aggregate.__name__ = reading.function.name  # what Spark names the column after
    made = arrow_udf(aggregate, from_arrow_type(reading.result))

    def call(*columns: Column) -> Column:
        named = [column.alias(name) for column, name in zip(columns, reading.names, strict=True)]
        column: Column = made(columns[0] if len(columns) == 1 else F.struct(*named))
        return column

    return call


def pandas_udaf(reading: Reading) -> Callable[..., Column]:
    """Make a pandas UDAF (Spark 4.0 on): the same results, slower.

    pandas takes null for NaN, and large integers for floats where a null is among them, so values travel as
    structs, and floats and records come back as JSON; timestamps travel as microseconds.
    """
    result = reading.result
    several = pa.types.is_list(result)
    one = result.value_type if several else result
    moment, number = pa.types.is_timestamp(one), pa.types.is_floating(one)
    record = pa.types.is_struct(result) or (several and number)

    def aggregate(values: pd.Series) -> Any:
        given = pa.array([row["value"] for row in values])
        if moment and pa.types.is_integer(given.type):
            given = given.cast(one)
        others = [
            pa.array([row[name] for row in values], pa.int64() if name == EVENT_TIME else None)
            for name in reading.names[1:]
        ]
        if others:
            given = pa.StructArray.from_arrays([given, *others], names=list(reading.names))
        found = reading.of_columns(given)[0]
        if not found.is_valid:
            return None
        if record or number:
            return json.dumps(found.as_py())
        return found.cast(sent).as_py() if moment else found.as_py()

    aggregate.__name__ = reading.function.name
    sent = (pa.list_(pa.int64()) if several else pa.int64()) if moment else result
    made = pandas_udf(aggregate, "string" if record or number else from_arrow_type(sent))

    def call(values: Column, *others: Column) -> Column:
        parts = [(F.unix_micros(values) if moment else values).alias("value")]
        for name, column in zip(reading.names[1:], others, strict=True):
            times = name == EVENT_TIME  # of which only the order matters
            parts.append((F.unix_micros(column.cast("timestamp")) if times else column).alias(name))
        found = made(F.struct(*parts))
        if record:
            found = F.from_json(found, cast(StructType | ArrayType, from_arrow_type(result)))
        elif number or moment:
            moments = F.transform(found, F.timestamp_micros) if several else F.timestamp_micros(found)
            found = found.cast("double") if number else moments
        named: Column = found.alias(reading.label) if record or number or moment else found
        return named

    return call
