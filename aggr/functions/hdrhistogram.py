"""hdr: HdrHistogram, quantiles to so many significant digits, exact under merge.

Source: Gil Tene, HdrHistogram (hdrhistogram.org). The buckets are its counts array, index for index, with a
lowest discernible value of 1 and no highest one: the histogram grows by itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arguments import checked_whole, shown
from aggr.arrays import Flags, Floats, Whole
from aggr.arrow import compute as pc
from aggr.arrow.damaged_state import DamagedState, field_of_type
from aggr.asked_quantiles import DEFAULT, capped_ranks, check_quantiles, percentile, record
from aggr.compiling.jit import Int, compiled
from aggr.fields import COUNT, GREATEST, LEAST, Field
from aggr.function import Function
from aggr.groups.numbers import Numbers
from aggr.histograms.bucket_ranges import BucketRanges
from aggr.histograms.buckets import Buckets
from aggr.histograms.column import Histograms
from aggr.input_types import NUMBERS
from aggr.values import Values

RANKS = ("nearest", "java")


@dataclass(frozen=True)
class Layout:
    """Whole numbers from 0 to indices of HdrHistogram's counts array, and back.

    >>> Layout(3).index(np.array([1, 2047, 2048, 2049, 2050]))
    array([   1, 2047, 2048, 2048, 2049])
    """

    digits: int

    @property
    def half_magnitude(self) -> int:
        """The binary logarithm of half the number of sub-buckets."""
        return math.ceil(math.log2(2 * 10**self.digits)) - 1

    @property
    def last(self) -> int:
        """The index of the greatest int64."""
        half = self.half_magnitude
        return ((2**63 - 1) >> (62 - half)) + ((62 - half) << half)

    def index(self, values: Whole) -> Whole:
        """Find the index of each value."""
        half = self.half_magnitude
        if not len(values) or values.max() < 2 << half:
            return values
        return _index(values, half)

    def lowest(self, index: Whole) -> Whole:
        """Return the lowest value of each index."""
        bucket, sub = self._parts(index)
        return sub << bucket

    def highest(self, index: Whole) -> Whole:
        """Return the highest value of each index."""
        bucket, sub = self._parts(index)
        return (sub << bucket) + ((np.int64(1) << bucket) - 1)

    def middle(self, index: Whole) -> Whole:
        """Return the value that stands for each index in means and variances."""
        bucket, sub = self._parts(index)
        return (sub << bucket) + ((np.int64(1) << bucket) >> 1)

    def _parts(self, index: Whole) -> tuple[Whole, Whole]:
        half = self.half_magnitude
        bucket = np.maximum((index >> half) - 1, 0)
        return bucket, index - (bucket << half)


@compiled
def _index(values: Whole, half: int) -> Whole:
    index = np.empty(len(values), np.int64)
    for i in range(len(values)):
        # Beyond 2^53 a double may have been rounded up to the next power of two; such a value lies in the last
        # index of its bucket, and one bucket further the sum below comes to the same.
        magnitude = (np.float64(values[i]).view(np.int64) >> 52) - 1023
        bucket: Int = max(magnitude - half, 0)
        index[i] = (values[i] >> bucket) + (bucket << half)
    return index


@compiled
def _indices(x: Floats, unit: float, half: int) -> NDArray[np.int32]:
    """Find the index of each float from 0, counted in units, below 2^63 of them: `_index` of what is rounded here."""
    index = np.empty(len(x), np.int32)
    for i in range(len(x)):
        units = np.rint(x[i] / unit)
        bucket: Int = max((np.float64(units).view(np.int64) >> 52) - 1023 - half, 0)
        index[i] = (np.int64(units) >> bucket) + (bucket << half)
    return index


@dataclass(frozen=True)
class Hdr(Function):
    """Keep an HdrHistogram of a column: count, min, max, mean, stdev, var and quantiles.

    A quantile is the highest value that is equivalent, to so many digits, to the one at HdrHistogram's rank. Mean,
    stdev and var are HdrHistogram's too: of the population, from the middles of the buckets.

    Parameters
    ----------
    quantiles : floats in [0, 1]
        What to read; others can be read from the same states later.
    digits : int, 1 to 5
        Significant decimal digits. It shapes the state, as does ``unit``.
    unit : float, optional
        The size of 1, say 0.001: values are counted as the nearest multiple. Without it, values must be whole.
    rank : "nearest" or "java"
        Which of n values a quantile q is, counted from 1: ``int(q·n + 0.5)``, as HdrHistogram has it in C and Python,
        or the next whole number from ``q·n``, as in Java and JavaScript. It only reads: one state answers either way.

    Raises
    ------
    ValueError
        If a quantile is outside [0, 1] or given twice, or ``digits`` or ``unit`` is out of its range.

    References
    ----------
    Gil Tene, HdrHistogram.

    Examples
    --------
    >>> from aggr import hdr
    >>> hdr("latency_ms", [0.5, 0.99], digits=2)
    hdr('latency_ms', quantiles=[0.5, 0.99], digits=2)
    """

    quantiles: tuple[float, ...] = field(default=DEFAULT, metadata={"accepts": "Sequence[float] | float"})
    digits: int = 3
    unit: float | None = None
    rank: str = "nearest"

    name = "hdr"
    takes = NUMBERS
    about: ClassVar[Mapping[str, str]] = {
        "value": "Of integers, floats or decimals from 0; others are refused by name."
    }
    accessors = frozenset({"quantile", "rank", "buckets"})
    keeps = "HdrHistogram buckets, min, max"
    returns = "record: count, min, max, mean, stdev, var, quantiles; null where there is nothing"
    takes_weights = True
    counted_by = ("nan", "buckets")
    guarantee = "all but count, min and max to the given significant digits"
    state_parameters: ClassVar[Mapping[str, pa.DataType]] = {"digits": pa.int8(), "unit": pa.float64()}

    def __post_init__(self) -> None:
        object.__setattr__(self, "quantiles", check_quantiles(self.quantiles))
        checked_whole(self.digits, "digits", 1, 5)
        if self.unit is not None:
            if isinstance(self.unit, bool) or not isinstance(self.unit, int | float) or not 0 < self.unit < math.inf:
                raise ValueError(f"unit must be a number above 0, say 0.001; got {self.unit!r}")
            object.__setattr__(self, "unit", float(self.unit))
        if not isinstance(self.rank, str) or self.rank not in RANKS:
            raise ValueError(
                "rank must be 'nearest', as in C and Python, or 'java', as in Java and JavaScript; "
                f"got {shown(self.rank)}"
            )

    @property
    def layout(self) -> Layout:
        """The layout of the buckets."""
        return Layout(self.digits)

    @property
    def state_fields(self) -> Mapping[str, Field]:
        return {"nan": COUNT, "min": LEAST, "max": GREATEST, "buckets": self._field}

    @property
    def _field(self) -> Buckets:
        return Buckets(None, 0, self.layout.last)

    def check_consistency(self, states: pa.StructArray) -> None:
        buckets, counts = states.field("buckets"), states.field("buckets").field("total").to_numpy()
        for name, end in (("min", "low"), ("max", "high")):
            kept = field_of_type(pc.fill_null(states.field(name), 0), pa.int64()).to_numpy()
            empty = states.field(name).is_null().to_numpy(zero_copy_only=False)
            index = self.layout.index(np.maximum(kept, 0))
            if (empty != (counts == 0)).any() or (kept < 0).any() or (index != buckets.field(end).to_numpy()).any():
                raise DamagedState(f"its {name} and its buckets contradict each other")

    def reduce_values(self, values: Values) -> Mapping[str, pa.Array]:
        nan = pa.array(np.zeros(values.groups.n, np.int64))
        if pa.types.is_integer(values.array.type) and self.unit is None:
            whole = Numbers(_whole(values.array), values.groups)
            index = self.layout.index
            least, most = LEAST.of_numbers(whole), GREATEST.of_numbers(whole)
            keys: NDArray[np.integer] = index(whole.sorted_by_group if values.weights is None else whole.array)
        else:
            if len(values) and np.isnan(values.floats.min_max[1]):
                missing = np.isnan(values.floats.array)
                nan, values = pa.array(values.filter(missing).counts), values.filter(~missing)
            x = values.floats
            self._check_floats(x.array, x.min_max)
            ordered = x.sorted_by_group if values.weights is None else x.array
            keys = _indices(ordered, self.unit or 1.0, self.layout.half_magnitude)
            # rounding to units keeps the order: the least in units is the least of the floats, which others want too
            least, most = (self._in_units(field.of_numbers(x)) for field in (LEAST, GREATEST))
        if values.weights is None:
            buckets = Buckets().count(keys, values.groups, self._ends(least, most))
        else:
            buckets = Buckets().count_weighted(keys, values.weights, values.groups)
        return {"nan": nan, "min": least, "max": most, "buckets": buckets}

    def _ends(self, least: pa.Array, most: pa.Array) -> tuple[Whole, Whole]:
        """Find the least and the greatest index of each group, whose extremes are known: without any, 1 and 0."""
        empty = least.is_null().to_numpy(zero_copy_only=False)
        low, high = (self.layout.index(pc.fill_null(end, 0).to_numpy()) for end in (least, most))
        return np.where(empty, 1, low), np.where(empty, 0, high)

    def _in_units(self, extremes: pa.Array) -> pa.Array:
        """Count floats that have been checked in units; null stays null."""
        units = np.rint(pc.fill_null(extremes, 0.0).to_numpy() / (self.unit or 1.0))
        return pa.array(units.astype(np.int64), mask=extremes.is_null().to_numpy(zero_copy_only=False))

    def _check_floats(self, x: Floats, span: tuple[float, float]) -> None:
        """Raise ``ValueError`` for floats that cannot be counted in units; ``span`` is from where to where they lie."""
        if not len(x):
            return
        low, high = span
        if low < 0:
            raise ValueError(f"hdr takes numbers from 0; got {low}; dds takes numbers of both signs")
        if math.isinf(high):
            raise ValueError("hdr takes finite numbers; got inf; dds counts infinities at the ends")
        if self.unit is None and (fraction := np.flatnonzero(np.rint(x) != x)).size:
            raise ValueError(
                f"hdr counts whole numbers; got {x[fraction[0]]}; give the size of one as unit, say unit=0.001, "
                "and values are counted in multiples of it"
            )
        if high / (self.unit or 1.0) >= 2.0**63:
            raise ValueError(f"hdr counts up to 2^63 - 1 units; got {high}; use a larger unit, or dds")

    def share_up_to(self, states: pa.StructArray, value: float) -> pa.Array:
        """Read the share as `Function` has it: exact for some value equal to ``value`` in the significant digits."""
        buckets = self._field.packed(states, "buckets")
        counts = buckets.totals
        units = min(max(np.rint(value / (self.unit or 1.0)), -1.0), 2.0**62)
        last = self.layout.index(np.array([int(units)])) if units >= 0 else np.array([-1])
        upto = buckets.up_to(np.repeat(last, len(counts)))
        return pa.array(upto / np.maximum(counts, 1), mask=counts == 0)

    def buckets(self, states: pa.StructArray) -> BucketRanges:
        part, unit = Histograms.of(states.field("buckets")), self.unit or 1.0
        below = np.maximum(self.layout.lowest(part.keys) - 1, 0).astype(np.float64)  # of whole units
        high = self.layout.highest(part.keys).astype(np.float64)
        return BucketRanges(part.rows().astype(np.int64), below * unit, high * unit, part.counts)

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        buckets = self._field.packed(states, "buckets")
        counts = buckets.totals
        present = counts > 0
        order = np.argsort(self.quantiles, kind="stable")
        ranks = np.stack([self._rank(self.quantiles[i], counts) for i in order])
        keys, mean, variance = buckets.described(ranks, self.layout.half_magnitude)
        unit, place = self.unit or 1.0, np.argsort(order)
        variance, mean = variance * unit * unit, mean * unit

        def at(q: float, key: Whole) -> pa.Array:
            return self._value(self.layout.highest(key) if q else self.layout.lowest(key), ~present)

        quantiles = [at(q, keys[i]) for q, i in zip(self.quantiles, place, strict=True)]
        dtype = pa.int64() if self.unit is None else pa.float64()
        children = {
            "count": pa.array(counts),
            "min": self._value(*_edge(states, "min")),
            "max": self._value(*_edge(states, "max")),
            "mean": pa.array(mean, mask=~present),
            "stdev": pa.array(np.sqrt(variance), mask=~present),
            "var": pa.array(variance, mask=~present),
            "quantiles": record(self.quantiles, quantiles, dtype),
        }
        return pa.StructArray.from_arrays(list(children.values()), names=list(children), mask=pa.array(~present))

    def _rank(self, q: float, counts: Whole) -> Whole:
        """Find the rank of a quantile, from 0, among so many values, as HdrHistogram does, which counts it from 1."""
        percent = percentile(q)
        if self.rank == "java":  # an ulp less, so that rounding does not reach into the next bucket
            ranks = np.ceil(max(math.nextafter(percent, -math.inf), 0.0) * counts / 100.0)
        else:
            ranks = np.floor(percent * counts / 100.0 + 0.5)
        return capped_ranks(np.maximum(ranks, 1.0) - 1.0, counts)

    def _value(self, units: Whole, mask: Flags) -> pa.Array:
        """Turn units into values: 3 units of 0.1 into 0.3, not 0.30000000000000004."""
        if self.unit is None:
            return pa.array(units, mask=mask)
        parts = round(1.0 / self.unit)
        exactly = parts > 1 and 1.0 / parts == self.unit
        return pa.array(units / parts if exactly else units * self.unit, mask=mask)


def _whole(values: pa.Array) -> Whole:
    """Read integers; those beyond int64 are refused."""
    try:
        whole: Whole = values.cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid:
        raise ValueError(f"hdr counts up to 2^63 - 1; got {pc.max(values)}; use a unit, or dds") from None
    if len(whole) and whole.min() < 0:
        raise ValueError(f"hdr takes numbers from 0; got {whole.min()}; dds takes numbers of both signs")
    return whole


def _edge(states: pa.StructArray, name: str) -> tuple[Whole, Flags]:
    column = states.field(name)
    return pc.fill_null(column, 0).to_numpy(), column.is_null().to_numpy(zero_copy_only=False)
