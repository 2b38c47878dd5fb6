"""Functions that are broken on purpose: their faults concern parameters, times, and declarations about values.
``exact`` computes the documented result from the rows of one group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aggr.extend import COUNT, GREATEST, LEAST, Field, InputTypes, State
from tests.aggr.broken_functions import INTEGERS, TIMES, Documented, Largest

INT64 = InputTypes("int64", "Of int64.", lambda dtype: dtype == pa.int64())
NUMBERS_AND_DECIMALS = InputTypes(
    "int64 or decimal", "Of int64 or decimals.", lambda dtype: dtype == pa.int64() or pa.types.is_decimal(dtype)
)


@dataclass(frozen=True)
class IgnoresFactor(Documented):
    """The count, times a factor; the fault: the factor is ignored."""

    name = "ignores_factor"
    takes = INTEGERS
    factor: int = 1
    fields: ClassVar = {"count": COUNT}

    def finish_states(self, states):
        return states.field("count")

    def exact(self, rows):
        return len(rows) * self.factor


@dataclass(frozen=True)
class UnknownEdge(Documented):
    """The least or the greatest value; the fault: one of the two words raises an error."""

    name = "unknown_edge"
    takes = INT64
    edge: str = "lower"
    fields: ClassVar = {"least": LEAST, "greatest": GREATEST}

    def finish_states(self, states):
        return states.field({"lower": "least"}[self.edge])

    def exact(self, rows):
        extreme = min if self.edge == "lower" else max
        return extreme(rows.to_pylist(), default=None)


@dataclass(frozen=True)
class _CountAbove(State):
    threshold: int
    name: ClassVar = "count_above"
    fields: ClassVar = {"count": COUNT}
    parameters: ClassVar = {"threshold": pa.int64()}

    def reduce_values(self, values):
        above = values.array.to_numpy() > 5
        counts = np.bincount(values.groups.ids[above], minlength=values.groups.n)
        return {"count": pa.array(counts.astype(np.int64))}


@dataclass(frozen=True)
class IgnoresThreshold(Documented):
    """The count of values above a threshold, which the state stores; the fault: 5 is always used."""

    name = "ignores_threshold"
    takes = INT64
    threshold: int = 5

    @property
    def own_state(self):
        return _CountAbove(self.threshold)

    def finish_states(self, states):
        return states.field("count")

    def exact(self, rows):
        return sum(value > self.threshold for value in rows.to_pylist())


@dataclass(frozen=True)
class WholeSeconds(Largest):
    """The latest time, of the input's type; the fault: parts of a second are lost."""

    name = "whole_seconds"
    takes = TIMES

    def finish_states(self, states):
        column = states.field("largest")
        return column.cast(pa.timestamp("s", column.type.tz), safe=False).cast(column.type)


@dataclass(frozen=True)
class TimeOfDayInSeconds(Largest):
    """The latest time of day; the fault: parts of a second are lost."""

    name = "time_of_day_in_seconds"
    takes = InputTypes("times of day", "Of times of day.", pa.types.is_time)

    def finish_states(self, states):
        column = states.field("largest")
        return column.cast(pa.time32("s"), safe=False).cast(column.type)


@dataclass(frozen=True)
class AssumesMicroseconds(Documented):
    """The microseconds from the first to the last event time; the fault: all units are read as microseconds."""

    name = "assumes_microseconds"
    inputs: ClassVar = ("value", "time")
    takes: ClassVar = {"value": INT64, "time": TIMES}
    fields: ClassVar = {"first": LEAST, "last": GREATEST}

    def reduce_values(self, values):
        micros = values.array.field("time").cast(pa.int64())
        return {"first": LEAST.merge(micros, values.groups), "last": GREATEST.merge(micros, values.groups)}

    def finish_states(self, states):
        return pc.subtract(states.field("last"), states.field("first"))

    def exact(self, rows):
        times = rows.field("time")
        micros = times.cast(pa.timestamp("us", times.type.tz), safe=False).cast(pa.int64()).to_pylist()
        return max(micros) - min(micros) if micros else None


@dataclass(frozen=True)
class ClaimsToBeReadable(Largest):
    """The greatest value; the fault: a large one is rejected, although each state is declared to have a result."""

    name = "claims_to_be_readable"
    takes = INT64

    def is_always_readable(self, state_type):
        return True

    def finish_states(self, states):
        if (pc.max(states.field("largest")).as_py() or 0) > 2**62:
            raise OverflowError("the value is too large")
        return states.field("largest")


@dataclass(frozen=True)
class RejectsDecimals(Largest):
    """The greatest number; the fault: decimals are declared, and all are rejected."""

    name = "rejects_decimals"
    takes = NUMBERS_AND_DECIMALS

    def reduce_values(self, values):
        if pa.types.is_decimal(values.array.type):
            raise ValueError("decimals are not supported")
        return {"largest": GREATEST.merge(values.array, values.groups)}


@dataclass(frozen=True)
class ExactOfNothing(Largest):
    """The greatest value; the fault: the least value is returned, and ``exact`` computes only the result of no rows."""

    name = "exact_of_nothing"
    takes = INT64
    fields: ClassVar = {"largest": LEAST}

    def finish_states(self, states):
        return states.field("largest")

    def exact(self, rows):
        if len(rows):
            raise ValueError("the exact result is not known")
        return None


class _Capped(Field):
    """Adds counts up to a limit."""

    def __init__(self, limit):
        self.limit = limit

    def merge(self, column, groups):
        counts = np.zeros(groups.n, np.int64)
        np.add.at(counts, groups.ids, column.fill_null(0).to_numpy(zero_copy_only=False))
        return pa.array(np.minimum(counts, self.limit))

    def initial(self, dtype):
        return pa.scalar(0, pa.int64())


@dataclass(frozen=True)
class UndeclaredLimit(Documented):
    """The count of rows, at most a limit; the fault: the limit shapes the state and is not declared."""

    name = "undeclared_limit"
    takes = INT64
    limit: int = 1000

    def __post_init__(self):
        if self.limit < 100:
            raise ValueError("limit must be at least 100")

    @property
    def state_fields(self):
        return {"count": _Capped(self.limit)}

    def reduce_values(self, values):
        return {"count": pa.array(np.minimum(values.counts, self.limit))}

    def finish_states(self, states):
        return states.field("count")
