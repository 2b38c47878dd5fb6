"""Functions that are broken on purpose: each differs from its documented result for some input.

They were written before the laws that detect them. Their faults concern numbers, the order of rows, shared memory, data
that is missing in a state, and differences between processes. A docstring gives the documented result and the fault. If
only a comparison with exact results detects the fault, ``exact`` computes the documented result from the rows of one
group.
"""

from __future__ import annotations

import ctypes
import math
import os
import random
import time
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aggr.extend import (
    COUNT,
    EXACT,
    GREATEST,
    LEAST,
    NUMBERS,
    ExactSums,
    Field,
    Function,
    InputTypes,
    Limbs,
    PerGroup,
    State,
    SumsState,
    quotient,
)

INTEGERS = InputTypes("integers", "Of integers.", pa.types.is_integer)
TEXT = InputTypes("texts", "Of texts.", pa.types.is_string)
TIMES = InputTypes("timestamps", "Of timestamps.", pa.types.is_timestamp)
DECIMALS = InputTypes("decimals", "Of decimals.", pa.types.is_decimal)
UNSIGNED = InputTypes("unsigned integers", "Of unsigned integers.", pa.types.is_unsigned_integer)
FLOATS = InputTypes("doubles", "Of doubles.", lambda dtype: dtype == pa.float64())


def ordered(value: Any) -> tuple[bool, Any, float]:
    """Return a sort key by which NaN is greatest and -0.0 is less than 0.0."""
    if not isinstance(value, float):
        return False, value, 0
    return math.isnan(value), 0 if math.isnan(value) else value, math.copysign(1, value)


def exact_sum(values: list[float]) -> float | None:
    """Add doubles without error and round once."""
    if not values:
        return None
    if not all(map(math.isfinite, values)):
        special = {value for value in values if not math.isfinite(value)}
        return special.pop() if len(special) == 1 else math.nan
    try:
        return float(sum(map(Fraction, values)))
    except OverflowError:
        return math.inf if sum(map(Fraction, values)) > 0 else -math.inf


class AddFloats(Field):
    """Floats that are added in the order of the rows."""

    def merge(self, column, groups):
        return pa.array(np.bincount(groups.ids, column.to_numpy(), minlength=groups.n).astype(np.float64))


class AddIntegers(Field):
    """Integers that are added and wrap."""

    def merge(self, column, groups):
        totals = np.zeros(groups.n, np.int64)
        np.add.at(totals, groups.ids, column.to_numpy())
        return pa.array(totals)


@dataclass(frozen=True, eq=False)
class OwnState(State):
    """The state of a function of this module, which defines fields and reduction itself."""

    function: Any

    @property
    def name(self):
        return self.function.name

    @property
    def fields(self):
        return self.function.state_fields

    @property
    def counted_by(self):
        return self.function.counted_by

    @property
    def versions(self):
        return self.function.versions

    def reduce_values(self, values):
        return self.function.reduce_values(values)


@dataclass(frozen=True)
class Documented(Function):
    """What the broken functions share: words for people, and fields that reduce values themselves."""

    keeps = "its fields"
    returns = "as documented"
    guarantee = "exact"
    fields: ClassVar[Mapping[str, Field]] = {}
    counted_by: ClassVar[tuple[str, ...]] = ()
    versions: ClassVar[tuple[int, ...]] = (1,)

    @property
    def own_state(self):
        return OwnState(self)

    @property
    def state_fields(self):
        return self.fields

    def reduce_values(self, values):
        return {name: field.reduce(values) for name, field in self.state_fields.items()}

    def finish_states(self, states):
        return states.field(next(iter(self.state_fields)))


@dataclass(frozen=True)
class Largest(Documented):
    """The greatest value, which several of the functions below are meant to return."""

    name = "largest"
    takes = NUMBERS
    fields: ClassVar = {"largest": GREATEST}

    def exact(self, rows):
        return max(rows.to_pylist(), key=ordered, default=None)


@dataclass(frozen=True)
class Total(ExactSums):
    """The sum of doubles, NaN if one is NaN or infinite, which several of the functions below are meant to return."""

    name = "total"
    takes = FLOATS
    keeps = "the exact sum"
    returns = "double"
    own_state = SumsState("total", {"total": "value"})

    def result(self, sums):
        return sums["total"].over_integers()

    def exact(self, rows):
        values = rows.to_pylist()
        return math.nan if not all(map(math.isfinite, values)) else exact_sum(values)


# Numbers


@dataclass(frozen=True)
class LosesInfinity(Documented):
    """The sum of doubles, infinite if one is; the fault: infinities are left out of the exact sum."""

    name = "loses_infinity"
    takes = FLOATS
    fields: ClassVar = {"count": COUNT, "total": EXACT}

    def reduce_values(self, values):
        return {"count": pa.array(values.counts), "total": values.exact_sum}

    def finish_states(self, states):
        counts = states.field("count").to_numpy()
        totals = quotient(Limbs.of_arrow(states.field("total")), np.ones(len(counts), np.int64))
        return pa.array(totals, mask=counts == 0)

    def exact(self, rows):
        return exact_sum(rows.to_pylist())


@dataclass(frozen=True)
class LosesNaN(Largest):
    """The greatest value, NaN if there is one; the fault: NaN is dropped like null."""

    name = "loses_nan"
    takes = FLOATS

    def reduce_values(self, values):
        return super().reduce_values(values.filter(~np.isnan(values.array.to_numpy())))


@dataclass(frozen=True)
class ThroughDoubles(Largest):
    """The greatest integer; the fault: it passes through a double."""

    name = "through_doubles"
    takes = INTEGERS

    def reduce_values(self, values):
        doubles = GREATEST.of_numbers(values.floats)
        return {"largest": doubles}

    def finish_states(self, states):
        return states.field("largest").cast(pa.int64(), safe=False)


@dataclass(frozen=True)
class FloatSum(Documented):
    """The sum of numbers; the fault: doubles are added in the order of rows. On int8 it is right."""

    name = "float_sum"
    takes = NUMBERS
    fields: ClassVar = {"total": AddFloats()}

    def reduce_values(self, values):
        return {"total": AddFloats().merge(pa.array(values.floats.array), values.groups)}


@dataclass(frozen=True)
class SinglePrecision(Largest):
    """The greatest double; the fault: it is rounded to single precision."""

    name = "single_precision"
    takes = FLOATS

    def finish_states(self, states):
        return states.field("largest").cast(pa.float32()).cast(pa.float64())


@dataclass(frozen=True)
class WrapsUnsigned(Largest):
    """The greatest unsigned integer; the fault: numbers from 2^63 become negative."""

    name = "wraps_unsigned"
    takes = UNSIGNED

    def reduce_values(self, values):
        signed = values.array.cast(pa.int64(), safe=False)
        return {"largest": GREATEST.merge(signed, values.groups)}

    def finish_states(self, states):
        return states.field("largest").cast(pa.uint64(), safe=False)


@dataclass(frozen=True)
class LosesScale(Largest):
    """The greatest decimal; the fault: its digits after the point are cut."""

    name = "loses_scale"
    takes = DECIMALS

    def finish_states(self, states):
        column = states.field("largest")
        return pc.trunc(column).cast(column.type)


@dataclass(frozen=True)
class OverflowWraps(Documented):
    """The sum of integers, or an error beyond int64; the fault: it wraps."""

    name = "overflow_wraps"
    takes = InputTypes("int64", "Of int64.", lambda dtype: dtype == pa.int64())
    fields: ClassVar = {"total": AddIntegers()}

    def exact(self, rows):
        return sum(rows.to_pylist())


@dataclass(frozen=True)
class ZeroSignInStruct(Documented):
    """The least and the greatest value as a struct; the fault: -0.0 becomes 0.0."""

    name = "zero_sign_in_struct"
    takes = FLOATS
    fields: ClassVar = {"low": LEAST, "high": GREATEST}

    def finish_states(self, states):
        columns = [pc.add(states.field(name), pa.scalar(0.0)) for name in self.fields]
        return pa.StructArray.from_arrays(columns, list(self.fields))

    def exact(self, rows):
        values = sorted(rows.to_pylist(), key=ordered)
        return {"low": values[0], "high": values[-1]} if values else {"low": None, "high": None}


@dataclass(frozen=True)
class NaNInMap(Documented):
    """A map from ``"largest"`` to the greatest value; the fault: NaN becomes null inside the map."""

    name = "nan_in_map"
    takes = FLOATS
    fields: ClassVar = {"largest": GREATEST}

    def finish_states(self, states):
        values = [None if x is None or math.isnan(x) else x for x in states.field("largest").to_pylist()]
        return pa.array([[("largest", x)] for x in values], pa.map_(pa.string(), pa.float64()))

    def exact(self, rows):
        return [("largest", max(rows.to_pylist(), key=ordered, default=None))]


@dataclass(frozen=True)
class CoarseQuantile(Documented):
    """The median within 1 % of its value; the fault: the buckets are 8 % wide."""

    name = "coarse_quantile"
    takes = FLOATS
    guarantee = "within 1 %"
    relative_error: ClassVar = 0.01

    @property
    def state_fields(self):
        return {"keys": _Sorted()}

    def reduce_values(self, values):
        x = np.clip(np.abs(values.array.to_numpy()), 1e-300, 1e300)
        keys = np.ceil(np.log(np.where(np.isnan(x), 1.0, x)) / math.log(1.08)).astype(np.int64)
        return {"keys": _Sorted().merge(_lists(keys.tolist()), values.groups)}

    def finish_states(self, states):
        lists = states.field("keys").to_pylist()
        return pa.array([1.08 ** keys[(len(keys) - 1) // 2] if keys else None for keys in lists], pa.float64())

    def exact(self, rows):
        magnitudes = sorted(min(max(abs(x), 1e-300), 1e300) if not math.isnan(x) else 1.0 for x in rows.to_pylist())
        return magnitudes[(len(magnitudes) - 1) // 2] if magnitudes else None


def _lists(values):
    return pa.array([[value] for value in values], pa.list_(pa.int64()))


class _Sorted(Field):
    """All values, sorted, at most ``limit``."""

    def __init__(self, limit: int = 1 << 40, merged_limit: int | None = None) -> None:
        self.limit = limit if merged_limit is None else merged_limit

    def merge(self, column, groups):
        lists: list[list[int]] = [[] for _ in range(groups.n)]
        for group, values in zip(groups.ids.tolist(), column.to_pylist(), strict=True):
            lists[group].extend(values)
        return pa.array([sorted(values)[: self.limit] for values in lists], pa.list_(pa.int64()))


# Order, batches and groups


@dataclass(frozen=True)
class FirstHundred(Documented):
    """The count of values; the fault: beyond 100 rows of a batch, it counts positive ones only by their place."""

    name = "first_hundred"
    takes = FLOATS
    fields: ClassVar = {"total": AddIntegers()}

    def reduce_values(self, values):
        place = np.zeros(len(values.array), np.int64)
        for group in range(values.groups.n):
            rows = np.flatnonzero(values.groups.ids == group)
            place[rows] = np.arange(len(rows))
        counted = (place < 100) | (values.array.to_numpy() > 0)
        return {"total": AddIntegers().merge(pa.array(counted.astype(np.int64)), values.groups)}


@dataclass(frozen=True)
class RandomSample(Documented):
    """The least of all values; the fault: beyond 1000 rows, of a random sample."""

    name = "random_sample"
    takes = FLOATS
    fields: ClassVar = {"least": LEAST}

    def reduce_values(self, values):
        if len(values.array) > 1000:
            chosen = np.random.default_rng().random(len(values.array)) < 0.01  # two samples rarely share their least
            values = values.filter(chosen)
        return super().reduce_values(values)


@dataclass(frozen=True)
class OffByOneBound(Documented):
    """The 500 least integers; the fault: a merge keeps 499 of them."""

    name = "off_by_one_bound"
    takes = InputTypes("int32", "Of int32.", lambda dtype: dtype == pa.int32())

    @property
    def state_fields(self):
        return {"least": _Sorted(merged_limit=499)}

    def reduce_values(self, values):
        return {"least": _Sorted(500).merge(_lists(values.array.to_pylist()), values.groups)}


@dataclass(frozen=True)
class NeighboursGroup(Total):
    """The sum of each group; the fault: a group without rows repeats the result of the group before it."""

    name = "neighbours_group"

    def finish_states(self, states):
        return pc.fill_null_forward(super().finish_states(states))


@dataclass(frozen=True)
class ShareOfAll(Documented):
    """The count of values; the fault: divided by the count of all groups that are read at once."""

    name = "share_of_all"
    takes = FLOATS
    fields: ClassVar = {"count": COUNT}

    def reduce_values(self, values):
        return {"count": pa.array(values.counts)}

    def finish_states(self, states):
        counts = states.field("count").to_numpy()
        return pa.array(counts / max(counts.sum(), 1))


class _SortedGroups(Field):
    def merge(self, column, groups):
        totals = np.zeros(groups.n, np.int64)
        if len(column):
            starts = np.flatnonzero(np.diff(groups.ids, prepend=-1) != 0)
            totals[groups.ids[starts]] = np.add.reduceat(column.to_numpy(), starts)
        return pa.array(totals)


@dataclass(frozen=True)
class SortedGroups(Documented):
    """The count of values; the fault: the rows of a group must lie next to each other."""

    name = "sorted_groups"
    takes = FLOATS
    fields: ClassVar = {"count": _SortedGroups()}

    def reduce_values(self, values):
        return {"count": _SortedGroups().merge(pa.array(np.ones(len(values.array), np.int64)), values.groups)}


class _NarrowGroups(Field):
    def merge(self, column, groups):
        totals = np.zeros(max(groups.n, 256), np.int64)
        np.add.at(totals, groups.ids.astype(np.uint8), column.to_numpy())
        return pa.array(totals[: groups.n])


@dataclass(frozen=True)
class NarrowGroups(Documented):
    """The count of values; the fault: the numbers of groups are kept as bytes."""

    name = "narrow_groups"
    takes = FLOATS
    fields: ClassVar = {"count": _NarrowGroups()}

    def reduce_values(self, values):
        return {"count": _NarrowGroups().merge(pa.array(np.ones(len(values.array), np.int64)), values.groups)}


class _LosesThird(Field):
    def merge(self, column, groups):
        totals = np.zeros(groups.n, np.int64)
        for group in range(groups.n):
            totals[group] = column.to_numpy()[groups.ids == group][:2].sum()
        return pa.array(totals)


@dataclass(frozen=True)
class MergeLosesState(Documented):
    """The count of values; the fault: a merge of more than two states loses the others."""

    name = "merge_loses_state"
    fields: ClassVar = {"count": _LosesThird()}

    def reduce_values(self, values):
        return {"count": pa.array(values.counts)}


@dataclass(frozen=True)
class MeanOfMeans(Documented):
    """The mean; the fault: a merge takes the mean of means."""

    name = "mean_of_means"
    takes = FLOATS

    @property
    def state_fields(self):
        return {"mean": _Mean()}


class _Mean(Field):
    def merge(self, column, groups):
        values, ids = column.to_numpy(zero_copy_only=False), groups.ids
        present = ~np.isnan(values)
        counts = np.bincount(ids[present], minlength=groups.n)
        totals = np.bincount(ids[present], values[present], minlength=groups.n)
        return pa.array(totals / np.maximum(counts, 1), mask=counts == 0)


@dataclass(frozen=True)
class BatchDistinct(Documented):
    """The count of distinct values; the fault: only duplicates within a batch are noticed."""

    name = "batch_distinct"
    takes = INTEGERS
    fields: ClassVar = {"count": AddIntegers()}

    def reduce_values(self, values):
        pairs = np.stack([values.groups.ids, values.array.to_numpy().astype(np.int64)])
        unique = np.unique(pairs, axis=1)
        return {"count": pa.array(np.bincount(unique[0], minlength=values.groups.n))}


@dataclass(frozen=True)
class NotAnIdentity(Documented):
    """The greatest value; the fault: a group without rows has 0, which hides negative values."""

    name = "not_an_identity"
    takes = FLOATS
    fields: ClassVar = {"largest": GREATEST}

    def reduce_values(self, values):
        return {"largest": GREATEST.reduce(values).fill_null(0.0)}


# Nulls, empty groups, types and lengths


@dataclass(frozen=True)
class SeesNulls(Documented):
    """The count of values that are not null; the fault: nulls are counted."""

    name = "sees_nulls"
    fields: ClassVar = {"count": COUNT}

    def drop_null(self, values):
        return values

    def reduce_values(self, values):
        return {"count": pa.array(values.counts)}


@dataclass(frozen=True)
class ZeroIfEmpty(Total):
    """The sum, null if there are no values; the fault: 0 if there are none."""

    name = "zero_if_empty"

    def finish_states(self, states):
        return super().finish_states(states).fill_null(0.0)


@dataclass(frozen=True)
class DropsEmpty(Total):
    """The sum of each group; the fault: groups without rows have no result."""

    name = "drops_empty"

    def finish_states(self, states):
        return super().finish_states(states).drop_null()


@dataclass(frozen=True)
class TypeByValue(Largest):
    """The greatest value; the fault: the type of results depends on the values."""

    name = "type_by_value"

    def finish_states(self, states):
        return pa.array(states.field("largest").to_pylist())


@dataclass(frozen=True)
class LosesZone(Largest):
    """The latest time, of the input's type; the fault: its zone is lost."""

    name = "loses_zone"
    takes = TIMES

    def finish_states(self, states):
        column = states.field("largest")
        return column.cast(pa.timestamp(column.type.unit))


@dataclass(frozen=True)
class TruncatesBefore1970(Documented):
    """The greatest whole hour of the times; the fault: times before 1970 are rounded up."""

    name = "truncates_before_1970"
    takes = TIMES
    fields: ClassVar = {"hour": GREATEST}

    def reduce_values(self, values):
        micros = values.array.cast(pa.timestamp("us"), safe=False).cast(pa.int64()).to_numpy()
        hours = np.trunc(micros / 3.6e9).astype(np.int64)
        return {"hour": GREATEST.merge(pa.array(hours), values.groups)}

    def exact(self, rows):
        micros = rows.cast(pa.timestamp("us"), safe=False).cast(pa.int64()).to_pylist()
        return max((value // 3_600_000_000 for value in micros), default=None)


@dataclass(frozen=True)
class EmptyTextIsNull(Documented):
    """The least text; the fault: empty texts are dropped like nulls."""

    name = "empty_text_is_null"
    takes = TEXT
    fields: ClassVar = {"least": LEAST}

    def reduce_values(self, values):
        kept = pc.not_equal(values.array, "").to_numpy(zero_copy_only=False)
        return super().reduce_values(values.filter(kept))

    def exact(self, rows):
        return min(rows.to_pylist(), key=lambda text: text.encode(), default=None)


@dataclass(frozen=True)
class ByUtf16(PerGroup):
    """The greatest text by code points; the fault: texts are compared by their UTF-16 units."""

    name = "by_utf16"
    takes = TEXT
    keeps, returns, guarantee = "the greatest text", "string", "exact"
    state_kind = result_kind = pa.string()

    def start(self):
        return None

    def add(self, state, value):
        return value if state is None else max(state, value, key=lambda text: text.encode("utf-16-be"))

    def combine(self, a, b):
        return a if b is None else self.add(a, b)

    def result(self, state):
        return state

    def exact(self, rows):
        return max(rows.to_pylist(), default=None)


@dataclass(frozen=True)
class IgnoresCase(ByUtf16):
    """The greatest text by code points; the fault: case is ignored, so that the order of rows decides between ties."""

    name = "ignores_case"

    def add(self, state, value):
        return value if state is None else max(state, value, key=str.casefold)


@dataclass(frozen=True)
class Normalizes(ByUtf16):
    """The greatest text by code points, as it was written; the fault: it is returned in composed form."""

    name = "normalizes"

    def add(self, state, value):
        composed = unicodedata.normalize("NFC", value)
        return composed if state is None else max(state, composed)


@dataclass(frozen=True)
class IgnoresOffset(Documented):
    """The greatest double; the fault: the offset of a sliced array is ignored."""

    name = "ignores_offset"
    takes = FLOATS
    fields: ClassVar = {"largest": GREATEST}

    def reduce_values(self, values):
        if not len(values.array):
            return super().reduce_values(values)
        start = np.frombuffer(values.array.buffers()[1], np.float64)[: len(values.array)]
        return {"largest": GREATEST.merge(pa.array(start), values.groups)}


# Memory and state outside of states


def writable(array):
    """View the memory of an array, however it is protected."""
    kind = ctypes.c_double if array.dtype == np.float64 else ctypes.c_int64
    return np.ctypeslib.as_array((kind * len(array)).from_address(array.ctypes.data)) if len(array) else array


@dataclass(frozen=True)
class WritesIntoValues(Documented):
    """The greatest magnitude; the fault: magnitudes overwrite the values that other measures read."""

    name = "writes_into_values"
    takes = NUMBERS
    fields: ClassVar = {"largest": GREATEST}

    def reduce_values(self, values):
        x = values.floats.array
        shared = writable(x)
        np.abs(shared, out=shared)
        return {"largest": GREATEST.merge(pa.array(x.copy()), values.groups)}


@dataclass(frozen=True)
class SortsGroupNumbers(Documented):
    """The count of values; the fault: the numbers of groups, which other measures read, are sorted in place."""

    name = "sorts_group_numbers"
    fields: ClassVar = {"count": COUNT}

    def reduce_values(self, values):
        counts = pa.array(values.counts)
        if len(values.groups.ids):
            writable(values.groups.ids).sort()
        return {"count": counts}


@dataclass(frozen=True)
class FinishMutates(Documented):
    """The count of values; the fault: reading results writes into the states."""

    name = "finish_mutates"
    fields: ClassVar = {"count": COUNT}

    def reduce_values(self, values):
        return {"count": pa.array(values.counts)}

    def finish_states(self, states):
        counts = states.field("count").to_numpy()
        results = pa.array(counts.copy())
        if len(counts):
            writable(counts)[:] = 0
        return results


_NUMBER_BY_TEXT: dict[str, int] = {}


@dataclass(frozen=True)
class NumbersByFirstSight(Documented):
    """The distinct texts; the fault: a state holds numbers that a process gives to texts as it first sees them."""

    name = "numbers_by_first_sight"
    takes = TEXT

    @property
    def state_fields(self):
        return {"numbers": _Union()}

    def reduce_values(self, values):
        numbers = [_NUMBER_BY_TEXT.setdefault(text, len(_NUMBER_BY_TEXT)) for text in values.array.to_pylist()]
        return {"numbers": _Union().merge(_lists(numbers), values.groups)}

    def finish_states(self, states):
        texts = list(_NUMBER_BY_TEXT)
        lists = states.field("numbers").to_pylist()
        return pa.array([sorted(texts[i] for i in numbers) for numbers in lists], pa.list_(pa.string()))


class _Union(_Sorted):
    def merge(self, column, groups):
        merged = super().merge(column, groups).to_pylist()
        return pa.array([sorted(set(values)) for values in merged], pa.list_(pa.int64()))


@dataclass(frozen=True)
class SaltedHashes(Documented):
    """The least hash of the texts; the fault: Python salts its hashes in each process."""

    name = "salted_hashes"
    takes = TEXT
    fields: ClassVar = {"least": LEAST}

    def reduce_values(self, values):
        hashes = pa.array([hash(text) for text in values.array.to_pylist()], pa.int64())
        return {"least": LEAST.merge(hashes, values.groups)}


@dataclass(frozen=True)
class ReadsClock(Total):
    """The sum; the fault: the time of the call is added."""

    name = "reads_clock"

    def finish_states(self, states):
        return pc.add(super().finish_states(states), time.time_ns() % 1_000_003)


@dataclass(frozen=True)
class CountsCalls(Documented):
    """The count of values; the fault: every tenth call is off by one."""

    name = "counts_calls"
    fields: ClassVar = {"count": COUNT}
    calls: ClassVar[list[int]] = [0]

    def reduce_values(self, values):
        self.calls[0] += 1
        return {"count": pa.array(values.counts + (self.calls[0] % 10 == 0))}


@dataclass(frozen=True)
class ReadsProcess(Documented):
    """The count of values; the fault: it depends on the process that counts."""

    name = "reads_process"
    takes = FLOATS
    fields: ClassVar = {"count": COUNT}

    def reduce_values(self, values):
        return {"count": pa.array(values.counts * os.getpid())}


@dataclass(frozen=True)
class UnseededRandom(Total):
    """The sum; the fault: noise is added to a result."""

    name = "unseeded_random"

    def finish_states(self, states):
        noise = [random.random() for _ in range(len(states))]
        return pc.add(super().finish_states(states), pa.array(noise, pa.float64()))


# Parameters, weights and what a state forgets


@dataclass(frozen=True)
class UndeclaredText(ByUtf16):
    """The greatest text after a conversion; the fault: the conversion shapes the state and is not declared."""

    name = "undeclared_text"
    conversion: str = "lower"

    def add(self, state, value):
        converted = value.upper() if self.conversion == "upper" else value.lower()
        return converted if state is None else max(state, converted)

    def combine(self, a, b):
        return a if b is None or (a is not None and a > b) else b

    exact = None


@dataclass(frozen=True)
class UndeclaredTuple(Documented):
    """The count of values between two edges; the fault: the edges shape the state and are not declared."""

    name = "undeclared_tuple"
    takes = FLOATS
    edges: tuple[float, float] = (0.0, 10.0)
    fields: ClassVar = {"count": COUNT}

    def reduce_values(self, values):
        x = values.array.to_numpy()
        inside = (x >= self.edges[0]) & (x < self.edges[1])
        return {"count": pa.array(values.filter(inside).counts)}


@dataclass(frozen=True)
class PickleLosesParameter(Documented):
    """The count of values in a unit; the fault: a copy by pickle has the default unit."""

    name = "pickle_loses_parameter"
    unit: int = 1
    fields: ClassVar = {"count": COUNT}

    def reduce_values(self, values):
        return {"count": pa.array(values.counts)}

    def finish_states(self, states):
        return pc.multiply(states.field("count"), self.unit)

    def __reduce__(self):
        return type(self), ()


class _KeepsOnSubtract(Field):
    def merge(self, column, groups):
        return AddIntegers().merge(column, groups)

    def subtract(self, column, gone):
        return column


@dataclass(frozen=True)
class SubtractsNothing(Documented):
    """The sum of int32 and a count; the fault: taking rows out leaves the sum as it was."""

    name = "subtracts_nothing"
    takes = InputTypes("int32", "Of int32.", lambda dtype: dtype == pa.int32())
    counted_by = ("count",)

    @property
    def state_fields(self):
        return {"total": _KeepsOnSubtract(), "count": COUNT}

    def reduce_values(self, values):
        total = AddIntegers().merge(values.array.cast(pa.int64()), values.groups)
        return {"total": total, "count": pa.array(values.counts)}


@dataclass(frozen=True)
class IgnoresWeights(Documented):
    """The count of values by their weights; the fault: weights beyond 255 wrap."""

    name = "ignores_weights"
    takes_weights = True
    fields: ClassVar = {"count": COUNT}

    def reduce_values(self, values):
        weights = np.ones(len(values.array), np.int64) if values.weights is None else values.weights
        narrow = weights & 0xFF if values.weights is not None else weights
        return {"count": AddIntegers().merge(pa.array(narrow), values.groups)}


@dataclass(frozen=True)
class ChangedMeaning(Documented):
    """The greatest magnitude; the fault: a state held the greatest value before, under the same version."""

    name = "changed_meaning"
    takes = FLOATS
    fields: ClassVar = {"largest": GREATEST}

    def reduce_values(self, values):
        return {"largest": GREATEST.merge(pc.abs(values.array), values.groups)}


# A second list, written when the laws caught all of the first one


@dataclass(frozen=True)
class WritesIntoWeights(Documented):
    """The count of values by their weights, at most 100 each; the fault: other measures read the capped weights."""

    name = "writes_into_weights"
    takes_weights = True
    fields: ClassVar = {"count": COUNT}

    def reduce_values(self, values):
        if values.weights is None:
            return {"count": pa.array(values.counts)}
        shared = writable(values.weights)
        np.minimum(shared, 100, out=shared)
        return {"count": AddIntegers().merge(pa.array(shared.copy()), values.groups)}


@dataclass(frozen=True)
class FirstOfTies(PerGroup):
    """The least value among those of the greatest key; the fault: the first row of the greatest key decides."""

    name = "first_of_ties"
    inputs = ("value", "key")
    takes: ClassVar = {"value": FLOATS, "key": FLOATS}
    keeps, returns, guarantee = "a value and its key", "float64", "exact"
    state_kind = pa.struct([("value", pa.float64()), ("key", pa.float64())])
    result_kind = pa.float64()

    def start(self):
        return None

    def add(self, state, row):
        return row if state is None or ordered(row["key"]) > ordered(state["key"]) else state

    def combine(self, a, b):
        return a if b is None else self.add(a, b)

    def result(self, state):
        return None if state is None else state["value"]


@dataclass(frozen=True)
class ListThroughDoubles(Documented):
    """A list of the least and the greatest integer; the fault: the list is made of doubles."""

    name = "list_through_doubles"
    takes = InputTypes("int64", "Of int64.", lambda dtype: dtype == pa.int64())
    fields: ClassVar = {"least": LEAST, "largest": GREATEST}

    def finish_states(self, states):
        pairs = zip(states.field("least").to_pylist(), states.field("largest").to_pylist(), strict=True)
        doubles = [
            None if low is None else [int(float(low)), int(float(high) - (high == 2**63 - 1))] for low, high in pairs
        ]
        return pa.array([None if p is None else [min(x, 2**63 - 1) for x in p] for p in doubles], pa.list_(pa.int64()))

    def exact(self, rows):
        values = rows.to_pylist()
        return [min(values), max(values)] if values else None


@dataclass(frozen=True)
class SixteenBits(Documented):
    """The count of values; the fault: the rows of a batch are counted in 16 bits."""

    name = "sixteen_bits"
    takes = FLOATS
    fields: ClassVar = {"count": COUNT}

    def reduce_values(self, values):
        return {"count": pa.array(values.counts.astype(np.uint16).astype(np.int64))}


@dataclass(frozen=True)
class SampleOfLargeBatches(Documented):
    """The greatest value; the fault: beyond 10,000 rows, only every second row of a batch is read."""

    name = "sample_of_large_batches"
    takes = FLOATS
    fields: ClassVar = {"largest": GREATEST}

    def reduce_values(self, values):
        if len(values.array) > 10_000:
            values = values.filter(np.arange(len(values.array)) % 2 == 0)
        return super().reduce_values(values)


class _SmallBuffer(Field):
    def merge(self, column, groups):
        totals = np.zeros(groups.n, np.int64)
        for group in range(groups.n):
            totals[group] = column.to_numpy()[groups.ids == group][:256].sum()
        return pa.array(totals)


@dataclass(frozen=True)
class SmallBuffer(Documented):
    """The count of values; the fault: a merge reads at most 256 states of a group."""

    name = "small_buffer"
    takes = FLOATS
    fields: ClassVar = {"count": _SmallBuffer()}

    def reduce_values(self, values):
        return {"count": pa.array(values.counts)}


@dataclass(frozen=True)
class LocalHour(Documented):
    """The greatest hour of the day; the fault: the hours are those of the time zone of the process."""

    name = "local_hour"
    takes = InputTypes("times", "Of times.", lambda dtype: dtype == pa.timestamp("us", "UTC"))
    fields: ClassVar = {"hour": GREATEST}

    def reduce_values(self, values):
        seconds = values.array.cast(pa.int64()).to_numpy() // 1_000_000
        hours = [time.localtime(second).tm_hour for second in seconds.tolist()]
        return {"hour": GREATEST.merge(pa.array(hours, pa.int64()), values.groups)}


_SCRATCH = np.zeros(1 << 17)


@dataclass(frozen=True)
class SharedScratch(Documented):
    """The greatest double; the fault: all threads copy the values into the same array."""

    name = "shared_scratch"
    takes = FLOATS
    fields: ClassVar = {"largest": GREATEST}

    def reduce_values(self, values):
        size = len(values.array)
        _SCRATCH[:size] = values.array.to_numpy()
        time.sleep(1e-3)  # another thread runs here, as it may while numpy or Arrow compute
        return {"largest": GREATEST.merge(pa.array(_SCRATCH[:size].copy()), values.groups)}


@dataclass(frozen=True)
class FailsWithoutGroups(Documented):
    """The count of values; the fault: an error if there are no groups, as in an empty partition."""

    name = "fails_without_groups"
    fields: ClassVar = {"count": COUNT}

    def reduce_values(self, values):
        counts = np.asarray(values.counts)
        assert counts.max() >= 0
        return {"count": pa.array(counts)}


class _SubtractsDoubles(Field):
    def merge(self, column, groups):
        return AddIntegers().merge(column, groups)

    def subtract(self, column, removed):
        difference = column.to_numpy().astype(float) - removed.to_numpy().astype(float)
        return pa.array(difference.astype(np.int64))


@dataclass(frozen=True)
class SubtractsDoubles(Documented):
    """The sum of uint32 times 2^24 and a count; the fault: rows are taken out of the sum in doubles."""

    name = "subtracts_doubles"
    takes = InputTypes("uint32", "Of uint32.", lambda dtype: dtype == pa.uint32())
    counted_by = ("count",)

    @property
    def state_fields(self):
        return {"total": _SubtractsDoubles(), "count": COUNT}

    def reduce_values(self, values):
        scaled = pa.array(values.array.cast(pa.int64()).to_numpy() << 24 | 1)
        return {"total": AddIntegers().merge(scaled, values.groups), "count": pa.array(values.counts)}


@dataclass(frozen=True)
class ZeroSignInList(Documented):
    """A struct with the list of the least and the greatest double; the fault: -0.0 becomes 0.0 in the list."""

    name = "zero_sign_in_list"
    takes = FLOATS
    fields: ClassVar = {"least": LEAST, "largest": GREATEST}

    def finish_states(self, states):
        pairs = zip(states.field("least").to_pylist(), states.field("largest").to_pylist(), strict=True)
        lists = [None if low is None else [low + 0.0, high + 0.0] for low, high in pairs]
        return pa.array([{"range": pair} for pair in lists], pa.struct([("range", pa.list_(pa.float64()))]))

    def exact(self, rows):
        values = sorted(rows.to_pylist(), key=ordered)
        return {"range": [values[0], values[-1]] if values else None}


# A third list, written without looking at the laws


@dataclass(frozen=True)
class MergeDropsNaN(Documented):
    """The greatest double, NaN if there is one; the fault: a merge of states prefers numbers to NaN."""

    name = "merge_drops_nan"
    takes = FLOATS

    @property
    def state_fields(self):
        return {"largest": _LargestNumber()}

    def reduce_values(self, values):
        return {"largest": GREATEST.merge(values.array, values.groups)}

    def exact(self, rows):
        return max(rows.to_pylist(), key=ordered, default=None)


class _LargestNumber(Field):
    def merge(self, column, groups):
        numbers = np.full(groups.n, np.nan)
        present = column.drop_null()
        ids = groups.ids[column.is_valid().to_numpy(zero_copy_only=False)]
        np.fmax.at(numbers, ids, present.to_numpy())
        return pa.array(numbers, mask=np.bincount(ids, minlength=groups.n) == 0)


class _AddThroughDoubles(Field):
    def merge(self, column, groups):
        totals = np.bincount(groups.ids, column.to_numpy(), minlength=groups.n)
        return pa.array(np.clip(totals, -(2.0**62), 2.0**62).astype(np.int64))


@dataclass(frozen=True)
class MergesThroughDoubles(Documented):
    """The sum of int32; the fault: states are added as doubles, which loses whole numbers beyond 2^53."""

    name = "merges_through_doubles"
    takes = INTEGERS
    fields: ClassVar = {"total": _AddThroughDoubles()}

    def reduce_values(self, values):
        numbers = values.array.cast(pa.int64(), safe=False)
        return {"total": AddIntegers().merge(pc.bit_wise_and(numbers, 2**60 - 1), values.groups)}


@dataclass(frozen=True)
class DecimalContext(PerGroup):
    """The greatest decimal; the fault: Python's decimal context rounds it to 28 digits."""

    name = "decimal_context"
    takes = InputTypes("decimals of 38 digits", "Of decimals.", lambda dtype: dtype == pa.decimal128(38, 10))
    keeps, returns, guarantee = "the greatest decimal", "decimal", "exact"
    state_kind = result_kind = pa.decimal128(38, 10)

    def start(self):
        return None

    def add(self, state, value):
        rounded = +value  # the unary plus rounds
        return rounded if state is None else max(state, rounded)

    def combine(self, a, b):
        return a if b is None else self.add(a, b)

    def result(self, state):
        return state

    def exact(self, rows):
        return max(rows.to_pylist(), default=None)


@dataclass(frozen=True)
class FlushesSubnormals(Largest):
    """The greatest double; the fault: magnitudes below 2.2e-308 become zero."""

    name = "flushes_subnormals"
    takes = FLOATS

    def reduce_values(self, values):
        x = values.array.to_numpy()
        flushed = np.where(np.abs(x) < np.finfo(np.float64).tiny, np.copysign(0.0, x), x)
        return {"largest": GREATEST.merge(pa.array(flushed), values.groups)}


_RESULTS_BY_LENGTH: dict[int, Any] = {}


@dataclass(frozen=True)
class RemembersByLength(Total):
    """The sum of doubles; the fault: results are remembered by the length of a column, not by its values."""

    name = "remembers_by_length"

    def finish_states(self, states):
        if len(states) not in _RESULTS_BY_LENGTH:
            _RESULTS_BY_LENGTH[len(states)] = super().finish_states(states)
        return _RESULTS_BY_LENGTH[len(states)]


@dataclass(frozen=True)
class UndeclaredWords(Documented):
    """The count of texts that are among some words; the fault: the words shape the state and are not declared."""

    name = "undeclared_words"
    takes = TEXT
    words: tuple[str, ...] = ("a", "b")
    fields: ClassVar = {"count": COUNT}

    def reduce_values(self, values):
        among = pc.is_in(values.array, pa.array(self.words, pa.string())).to_numpy(zero_copy_only=False)
        return {"count": pa.array(values.filter(among).counts)}


@dataclass(frozen=True)
class UndeclaredFlag(Documented):
    """The greatest double, or the greatest magnitude; the fault: the flag shapes the state and is not declared."""

    name = "undeclared_flag"
    takes = FLOATS
    magnitude: bool = False
    fields: ClassVar = {"largest": GREATEST}

    def reduce_values(self, values):
        column = pc.abs(values.array) if self.magnitude else values.array
        return {"largest": GREATEST.merge(column, values.groups)}


class _Pairwise(Field):
    """Doubles that are added in pairs, as NumPy adds many of them."""

    def merge(self, column, groups):
        x = column.to_numpy()
        with np.errstate(all="ignore"):
            totals = [float(np.sum(x[groups.ids == group])) for group in range(groups.n)]
        return pa.array(totals, pa.float64())


@dataclass(frozen=True)
class PairwiseSum(Documented):
    """The sum of doubles; the fault: it is rounded in an order that the number of rows decides."""

    name = "pairwise_sum"
    takes = FLOATS
    fields: ClassVar = {"total": _Pairwise()}

    def reduce_values(self, values):
        return {"total": self.fields["total"].merge(values.array, values.groups)}


@dataclass(frozen=True)
class SetOrder(PerGroup):
    """The first letter of some text; the fault: the order of a set, which differs between processes, decides."""

    name = "set_order"
    takes = TEXT
    keeps, returns, guarantee = "distinct first letters", "string", "exact"
    state_kind = pa.list_(pa.string())
    result_kind = pa.string()

    def start(self):
        return []

    def add(self, state, value):
        return self.combine(state, [value[:1]])

    def combine(self, a, b):
        return sorted({*a, *b})

    def result(self, state):
        return next(iter(set(state)), None)


@dataclass(frozen=True)
class ReadsUnitWrong(Documented):
    """The greatest time in microseconds; the fault: nanoseconds and seconds are read as microseconds."""

    name = "reads_unit_wrong"
    takes = TIMES
    fields: ClassVar = {"largest": GREATEST}

    def reduce_values(self, values):
        return {"largest": GREATEST.merge(values.array.cast(pa.int64()), values.groups)}

    def exact(self, rows):
        per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[rows.type.unit]
        numbers = rows.cast(pa.int64()).to_pylist()
        return max((number * 10**6 // per_second for number in numbers), default=None)


@dataclass(frozen=True)
class ReplacesInfinities(Documented):
    """The count of values; the fault: infinite numbers are set to zero in place, where there are any."""

    name = "replaces_infinities"
    takes = FLOATS
    fields: ClassVar = {"count": COUNT}

    def reduce_values(self, values):
        x = values.floats.array
        if np.isinf(x).any():
            shared = writable(x)
            shared[np.isinf(shared)] = 0.0
        return {"count": pa.array(values.counts)}


@dataclass(frozen=True)
class LongTexts(Documented):
    """The greatest length of a text in characters; the fault: texts are cut after 255 bytes."""

    name = "long_texts"
    takes = TEXT
    fields: ClassVar = {"longest": GREATEST}

    def reduce_values(self, values):
        lengths = [len(text.encode()[:255].decode(errors="ignore")) for text in values.array.to_pylist()]
        return {"longest": GREATEST.merge(pa.array(lengths, pa.int64()), values.groups)}

    def exact(self, rows):
        return max(map(len, rows.to_pylist()), default=None)


@dataclass(frozen=True)
class FloatCountState(State):
    """A count; the fault: rows are counted as doubles, and merged to int64."""

    name = "float_count"
    fields: ClassVar = {"n": COUNT}

    def reduce_values(self, values):
        return {"n": pa.array(values.counts.astype(np.float64))}


@dataclass(frozen=True)
class CountBelowState(State):
    """The count of values below a limit, which is a parameter."""

    limit: float = 0.5
    name = "default_state"
    fields: ClassVar = {"n": COUNT}
    parameters: ClassVar = {"limit": pa.float64()}

    def reduce_values(self, values):
        below = values.array.cast(pa.float64()).to_numpy() < self.limit
        return {"n": pa.array(np.bincount(values.groups.ids[below], minlength=values.groups.n))}


@dataclass(frozen=True)
class DefaultState(Function):
    """The count of values below a limit; the fault: the state always has the default limit."""

    limit: float = 0.5
    name, keeps, returns, guarantee = "default_state", "the count", "int64", "exact"
    takes = FLOATS
    own_state = CountBelowState()

    def finish_states(self, states):
        return states.field("n")

    def exact(self, rows):
        return sum(value < self.limit for value in rows.to_pylist())
