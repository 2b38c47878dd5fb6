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
from pyspark.sql.types import DataType, StructType

from aggr import Function, Groups
from aggr.plain import plain_type
from spark_udaf.udf import arrow_udf, pandas_udf

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
    kind : Arrow type or None
        What values are read as; None: as they come, for the result has one type whatever they are.
    states : bool
        Give the state instead of the result.
    """

    function: Function
    label: str
    kind: pa.DataType | None
    states: bool = False

    @property
    def result(self) -> pa.DataType:
        """The Arrow type of what comes out."""
        kind = self.kind or accepted(self.function)[0]
        state = self.function.state_type(_input(self.function, kind))
        return state if self.states else self.function.result_type(state)

    def results(self, values: pa.Array) -> pa.Array:
        """Aggregate the values of one group; the answer is an array of one."""
        with naming(self.label):
            states = self.function.reduce(self._read(values), Groups.single(len(values)))
            return states if self.states else self.function.finish(states)

    def _read(self, values: pa.Array) -> pa.Array:
        if self.kind is None:
            return values
        wanted = _input(self.function, self.kind)
        if pa.types.is_struct(wanted):
            times = values.field("time").cast(_TIME, safe=False) if self.states else values.field("time")
            parts = [self._cast(values.field("value"), self.kind), times]
            return pa.StructArray.from_arrays(parts, names=["value", "time"], mask=values.is_null())
        return self._cast(values, wanted)

    def _cast(self, values: pa.Array, wanted: pa.DataType) -> pa.Array:
        given = plain_type(values.type)
        if given == wanted or pa.types.is_null(values.type):
            return values.cast(wanted)
        say = f"; say type={from_arrow_type(given).simpleString()!r}"
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


def reading(function: Function, label: str, type: DataType | str | None, states: bool = False) -> Reading:
    """Choose what the column is read as: the given type; nothing in particular; or, where the result needs one, double.

    Raises ``TypeError`` for a type the function does not take, and ``ValueError`` for one that cannot be read.
    """
    if type is not None:
        kind = arrow_type(type)
        function.check_input(_input(function, kind))
        return Reading(function, label, kind, states)
    kinds = accepted(function)
    free = len({Reading(function, label, kind, states).result for kind in kinds}) == 1
    if free and not function.timed:
        return Reading(function, label, None, states)
    if pa.float64() not in kinds:
        raise TypeError(f"{label} needs the type of its column: say type='{from_arrow_type(kinds[0]).simpleString()}'")
    return Reading(function, label, pa.float64(), states)


def arrow_type(type: DataType | str) -> pa.DataType:
    """Read a Spark type, or its name in SQL, as an Arrow type."""
    try:
        given = cast(StructType, StructType.fromDDL(f"x {type}"))["x"].dataType if isinstance(type, str) else type
        return plain_type(to_arrow_type(given, timezone="UTC"))
    except Exception as error:  # Spark has many for this
        raise ValueError(
            f"cannot read {type!r} as a type; write one of Spark's, say 'bigint', 'string' or 'decimal(20,2)': {error}"
        ) from None


@cache
def accepted(function: Function) -> list[pa.DataType]:
    """List the kinds of input that a function takes, one type each."""
    kinds = []
    for kind in _KINDS:
        try:
            function.state_type(_input(function, kind))
        except (TypeError, ValueError, pa.ArrowException):
            continue
        kinds.append(kind)
    if not kinds:
        raise TypeError(f"{function.name} takes none of Spark's plain types")
    return kinds


def _input(function: Function, kind: pa.DataType) -> pa.DataType:
    return pa.struct([("value", kind), ("time", _TIME)]) if function.timed else kind


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def arrow_udaf(reading: Reading) -> Callable[..., Column]:
    """Make an Arrow UDAF (Spark 4.1 on) of values and perhaps event times: one Arrow array a group."""

    def aggregate(values: pa.Array) -> pa.Scalar:
        return reading.results(values)[0]

    aggregate.__name__ = reading.function.name  # what Spark names the column after
    made = arrow_udf(aggregate, from_arrow_type(reading.result))

    def call(values: Column, times: Column | None = None) -> Column:
        given = values if times is None else F.struct(values.alias("value"), times.alias("time"))
        column: Column = made(given)
        return column

    return call


def pandas_udaf(reading: Reading) -> Callable[..., Column]:
    """Make a pandas UDAF (Spark 4.0 on): the same results, slower.

    pandas takes null for NaN, and large integers for floats where a null is among them, so values travel as
    structs, and floats and records come back as JSON; timestamps travel as microseconds.
    """
    result = reading.result
    record, moment, number = pa.types.is_struct(result), pa.types.is_timestamp(result), pa.types.is_floating(result)

    def aggregate(values: pd.Series) -> Any:
        given = pa.array([row["value"] for row in values])
        if moment and pa.types.is_integer(given.type):
            given = given.cast(result)
        if reading.function.timed:
            times = pa.array([row["time"] for row in values], pa.int64())
            given = pa.StructArray.from_arrays([given, times], names=["value", "time"])
        found = reading.results(given)[0]
        if not found.is_valid:
            return None
        if record or number:
            return json.dumps(found.as_py())
        return found.cast(pa.int64()).as_py() if moment else found.as_py()

    aggregate.__name__ = reading.function.name
    made = pandas_udf(aggregate, "string" if record or number else "bigint" if moment else from_arrow_type(result))

    def call(values: Column, times: Column | None = None) -> Column:
        parts = [(F.unix_micros(values) if moment else values).alias("value")]
        if times is not None:  # only their order matters
            parts.append(F.unix_micros(times.cast("timestamp")).alias("time"))
        found = made(F.struct(*parts))
        if record:
            found = F.from_json(found, cast(StructType, from_arrow_type(result)))
        elif number or moment:
            found = found.cast("double") if number else F.timestamp_micros(found)
        named: Column = found.alias(reading.label) if record or number or moment else found
        return named

    return call
