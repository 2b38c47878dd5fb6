"""hdr: HdrHistogram, which computes quantiles to a number of significant digits and merges exactly.

Source: Gil Tene, HdrHistogram (hdrhistogram.org). The buckets and their indices are those of HdrHistogram's counts
array. The lowest discernible value is 1. The range of values is not limited: the histogram grows automatically.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arguments import checked_whole
from aggr.arrays import Flags, Floats, Whole
from aggr.arrow import compute as pc
from aggr.arrow.damaged_state import DamagedState, field_of_type
from aggr.compiling.jit import Int, compiled
from aggr.exact.expression import ExactNumbers
from aggr.exact.multiples import has_exact_units_in_doubles, multiples_of, unscaled_integers
from aggr.excluded_counts import ExcludedCounts
from aggr.fields import COUNT, GREATEST, LEAST, Field
from aggr.function import Function
from aggr.functions.limits import ERROR
from aggr.functions.refused_values import (
    BAD_VALUES_PARAMETER,
    REFUSED,
    SKIP,
    bad_values_parameter,
    check_bad_values,
    refused_count_fields,
    without_refused,
)
from aggr.groups.numbers import Numbers
from aggr.histograms.bucket_ranges import BucketRanges
from aggr.histograms.bucket_state import BucketState
from aggr.histograms.buckets import Buckets
from aggr.histograms.column import Histograms
from aggr.input_types import NUMBERS
from aggr.quantile_methods import HDR_HISTOGRAM, check_method, interpolate, interpolates, stacked_ranks
from aggr.quantile_parameters import DEFAULT_QUANTILES, check_quantiles, quantile_struct
from aggr.values import Values


@dataclass(frozen=True)
class Layout:
    """The conversion of whole numbers, at least 0, to indices of HdrHistogram's counts array, and back.

    >>> Layout(3).index(np.array([1, 2047, 2048, 2049, 2050]))
    array([   1, 2047, 2048, 2048, 2049])
    """

    digits: int

    @property
    def half_magnitude(self) -> int:
        """The binary logarithm of half the number of sub-buckets, which HdrHistogram calls the half count magnitude."""
        return math.ceil(math.log2(2 * 10**self.digits)) - 1

    @property
    def last_index(self) -> int:
        """The index of the largest int64 in the counts array."""
        half = self.half_magnitude
        return ((2**63 - 1) >> (62 - half)) + ((62 - half) << half)

    def index(self, values: Whole) -> Whole:
        """Return the index of each value in the counts array."""
        half = self.half_magnitude
        if not len(values) or values.max() < 2 << half:
            return values
        return _index(values, half)

    def lowest(self, index: Whole) -> Whole:
        """Return the lowest value that is counted at each index of the counts array."""
        bucket, sub_bucket = self._parts(index)
        return sub_bucket << bucket

    def highest(self, index: Whole) -> Whole:
        """Return the highest value that is counted at each index of the counts array."""
        bucket, sub_bucket = self._parts(index)
        return (sub_bucket << bucket) + ((np.int64(1) << bucket) - 1)

    def middle(self, index: Whole) -> Whole:
        """Return the middle of the values that are counted at each index of the counts array.

        HdrHistogram computes means and variances from these middles.
        """
        bucket, sub_bucket = self._parts(index)
        return (sub_bucket << bucket) + ((np.int64(1) << bucket) >> 1)

    def _parts(self, index: Whole) -> tuple[Whole, Whole]:
        half = self.half_magnitude
        bucket = np.maximum((index >> half) - 1, 0)
        return bucket, index - (bucket << half)


@compiled
def _index(values: Whole, half: int) -> Whole:
    index = np.empty(len(values), np.int64)
    for i in range(len(values)):
        # Beyond 2^53, the conversion to double may round a value up to the next power of two, so that ``bucket`` is one
        # too large. The index is correct nevertheless, because for such a value the formula returns the same index for
        # ``bucket`` as for ``bucket - 1``.
        magnitude = (np.float64(values[i]).view(np.int64) >> 52) - 1023
        bucket: Int = max(magnitude - half, 0)
        index[i] = (values[i] >> bucket) + (bucket << half)
    return index


@compiled
def _indices(x: Floats, unit: float, half: int) -> NDArray[np.int32]:
    """Round floats to whole units, and return their indices in the counts array, shape (len(x),).

    The floats must be at least 0 and below 2^63 units. ``half`` is `Layout.half_magnitude`.
    """
    index = np.empty(len(x), np.int32)
    for i in range(len(x)):
        units = np.rint(x[i] / unit)
        bucket: Int = max((np.float64(units).view(np.int64) >> 52) - 1023 - half, 0)
        index[i] = (np.int64(units) >> bucket) + (bucket << half)
    return index


@dataclass(frozen=True)
class HdrState(BucketState):
    """The state of an HdrHistogram: the counts of values that were rounded to whole units, the count of NaN, the
    minimum and the maximum.

    ``bad_values`` determines the action for a value that cannot be counted in units, such as a negative number.
    ``"error"`` raises an error. ``"skip"`` skips the value and counts it in a separate field.
    """

    digits: int
    unit: float | None
    bad_values: str = ERROR

    name = "hdr"
    optional_parameters = BAD_VALUES_PARAMETER
    optional_fields = (REFUSED,)

    @property
    def parameters(self) -> Mapping[str, pa.DataType]:
        return {"digits": pa.int8(), "unit": pa.float64(), **bad_values_parameter(self.bad_values)}

    @property
    def counted_by(self) -> tuple[str, ...]:
        return ("nan", "buckets", *refused_count_fields(self.bad_values))

    @property
    def layout(self) -> Layout:
        """The layout of the buckets."""
        return Layout(self.digits)

    @property
    def fields(self) -> Mapping[str, Field]:
        refused_fields = refused_count_fields(self.bad_values)
        return {"nan": COUNT, "min": LEAST, "max": GREATEST, "buckets": self.histogram, **refused_fields}

    def excluded_counts(self, states: pa.StructArray) -> ExcludedCounts:
        return ExcludedCounts(None, states.field(REFUSED).to_numpy() if self.bad_values == SKIP else None)

    @property
    def histogram(self) -> Buckets:
        """The field with the number of values in each bucket."""
        return Buckets(None, 0, self.layout.last_index)

    def check_consistency(self, states: pa.StructArray) -> None:
        buckets = states.field("buckets")
        counts = states.field("buckets").field("total").to_numpy()
        for name, key_field in (("min", "low"), ("max", "high")):
            extremes = field_of_type(pc.fill_null(states.field(name), 0), pa.int64()).to_numpy()
            is_empty = states.field(name).is_null().to_numpy(zero_copy_only=False)
            index = self.layout.index(np.maximum(extremes, 0))
            if (
                (is_empty != (counts == 0)).any()
                or (extremes < 0).any()
                or (index != buckets.field(key_field).to_numpy()).any()
            ):
                raise DamagedState(f"its {name} and its buckets contradict each other")

    def reduce_values(self, values: Values) -> Mapping[str, pa.Array]:
        if self.bad_values != SKIP:
            return self._reduce_fields(values)
        values, refused_counts = without_refused(values, self._find_refused(values))
        return {**self._reduce_fields(values), REFUSED: refused_counts}

    def _find_refused(self, values: Values) -> Flags:
        """Return a mask of the values that cannot be counted in units, shape (len(values),). NaN is not in the mask."""
        if not pa.types.is_floating(values.array.type):
            units, is_fraction = multiples_of(values.array, self._exact_unit)
            refused: Flags = ((unscaled_integers(values.array) < 0) | (units >= 2**63)).astype(np.bool_)
            return refused | is_fraction if self.unit is None else refused
        x = values.floats.array
        with np.errstate(over="ignore"):
            refused = (x < 0) | np.isinf(x) | (x / (self.unit or 1.0) >= 2.0**63)
        return refused | ((np.rint(x) != x) & ~np.isnan(x)) if self.unit is None else refused

    def _reduce_fields(self, values: Values) -> Mapping[str, pa.Array]:
        """Reduce values to one state per group, and return the fields of the states.

        Raise ``ValueError`` for a value that cannot be counted in units.
        """
        nan = pa.array(np.zeros(values.groups.n, np.int64))
        if (pa.types.is_integer(values.array.type) and self.unit is None) or not has_exact_units_in_doubles(
            values.array, self._exact_unit
        ):
            units = Numbers(self._whole_units(values.array), values.groups)
            index = self.layout.index
            minima = LEAST.of_numbers(units)
            maxima = GREATEST.of_numbers(units)
            keys: NDArray[np.integer] = index(units.sorted_by_group if values.weights is None else units.array)
        else:
            if len(values) and np.isnan(values.floats.min_max[1]):
                is_nan = np.isnan(values.floats.array)
                nan = pa.array(values.filter(is_nan).counts)
                values = values.filter(~is_nan)
            x = values.floats
            self._check_floats(x.array, x.min_max)
            sorted_floats = x.sorted_by_group if values.weights is None else x.array
            keys = _indices(sorted_floats, self.unit or 1.0, self.layout.half_magnitude)
            # Rounding to units keeps the order, so the minimum in units is the rounded minimum of the floats. The
            # minimum of the floats is computed once for all functions of the column.
            minima, maxima = (self._round_to_units(field.of_numbers(x)) for field in (LEAST, GREATEST))
        if values.weights is None:
            buckets = Buckets().count(keys, values.groups, self._key_ranges(minima, maxima))
        else:
            buckets = Buckets().count_weighted(keys, values.weights, values.groups)
        return {"nan": nan, "min": minima, "max": maxima, "buckets": buckets}

    @property
    def _exact_unit(self) -> Fraction:
        """The unit as an exact fraction.

        If the unit is the double nearest to 1/n for an integer n above 1, the fraction is 1/n, because `values_of` then
        divides numbers of units by n. For example, n is 10 for the unit 0.1. For every other unit, the fraction is the
        exact value of the double.
        """
        unit = self.unit or 1.0
        units_per_one = round(1.0 / unit)
        return Fraction(1, units_per_one) if units_per_one > 1 and 1.0 / units_per_one == unit else Fraction(unit)

    def _whole_units(self, values: pa.Array) -> Whole:
        """Convert integers or decimals to whole units exactly.

        Raise ``ValueError`` for values that cannot be counted.
        """
        if pa.types.is_integer(values.type) and self.unit is None:
            return _whole_numbers(values)
        units, is_fraction = multiples_of(values, self._exact_unit)
        if unscaled_integers(values).min() < 0:
            raise ValueError(
                f"hdr accepts only numbers of at least 0; got {pc.min(values)}; dds accepts negative numbers too"
            )
        if self.unit is None and is_fraction.any():
            raise ValueError(
                f"hdr counts whole numbers; got {values[int(np.argmax(is_fraction))]}; pass unit, such as unit=0.001, "
                "to count values in multiples of that unit"
            )
        if units.max() >= 2**63:
            raise ValueError(
                f"hdr accepts only numbers of at most 2^63 - 1 units; got {pc.max(values)}; use a larger unit, or dds"
            )
        return units.astype(np.int64)

    def _key_ranges(self, minima: pa.Array, maxima: pa.Array) -> tuple[Whole, Whole]:
        """Return, for each group, the indices of its minimum and its maximum in the counts array: two arrays of shape
        (n,).

        A group without values, whose minimum and maximum are null, has the indices 1 and 0.
        """
        is_empty = minima.is_null().to_numpy(zero_copy_only=False)
        low, high = (self.layout.index(pc.fill_null(end, 0).to_numpy()) for end in (minima, maxima))
        return np.where(is_empty, 1, low), np.where(is_empty, 0, high)

    def _round_to_units(self, extremes: pa.Array) -> pa.Array:
        """Round floats to whole units, as int64.

        The floats must have been checked by `_check_floats`. Null stays null.
        """
        units = np.rint(pc.fill_null(extremes, 0.0).to_numpy() / (self.unit or 1.0))
        return pa.array(units.astype(np.int64), mask=extremes.is_null().to_numpy(zero_copy_only=False))

    def _check_floats(self, x: Floats, min_max: tuple[float, float]) -> None:
        """Raise ``ValueError`` for floats that cannot be counted in units. ``min_max`` is their minimum and maximum."""
        if not len(x):
            return
        low, high = min_max
        if low < 0:
            raise ValueError(f"hdr accepts only numbers of at least 0; got {low}; dds accepts negative numbers too")
        if math.isinf(high):
            raise ValueError("hdr accepts finite numbers only; got inf; dds accepts infinities too")
        if self.unit is None and (fraction := np.flatnonzero(np.rint(x) != x)).size:
            raise ValueError(
                f"hdr counts whole numbers; got {x[fraction[0]]}; pass unit, such as unit=0.001, to count values in "
                "multiples of that unit"
            )
        if high / (self.unit or 1.0) >= 2.0**63:
            raise ValueError(
                f"hdr accepts only numbers of at most 2^63 - 1 units; got {high}; use a larger unit, or dds"
            )

    def share_up_to(self, states: pa.StructArray, value: float) -> pa.Array:
        """Compute the share of values up to ``value`` in each state (see `BucketState.share_up_to`).

        The bucket that contains ``value`` is counted completely. The result is therefore the exact share of the values
        up to the upper edge of this bucket. The edge and ``value`` have the same first ``digits`` significant digits.
        """
        buckets = self.histogram.packed(states, "buckets")
        counts = buckets.totals
        units = self._units_up_to(value)
        last_index = self.layout.index(np.array([units])) if units >= 0 else np.array([-1])
        counts_up_to = buckets.up_to(np.repeat(last_index, len(counts)))
        return pa.array(counts_up_to / np.maximum(counts, 1), mask=counts == 0)

    def _units_up_to(self, value: float) -> int:
        """Return the largest whole number of units whose value is at most ``value``, or -1 if ``value`` is negative."""
        if value < 0:
            return -1
        units = value / (self.unit or 1.0)
        if units >= 2.0**63:
            return 2**63 - 1
        if self.unit is None:
            return math.floor(value)
        rounded = round(units)
        is_above = bool(self.values_of(np.array([rounded]), np.array([False]))[0].as_py() > value)
        return min(rounded - is_above, 2**63 - 1)

    def buckets(self, states: pa.StructArray) -> BucketRanges:
        histograms = Histograms.from_arrow(states.field("buckets"))
        unit = self.unit or 1.0
        # Bucket ranges exclude their lower edge. Values are whole units, so the lower edge is the highest value of the
        # bucket below.
        low = np.maximum(self.layout.lowest(histograms.keys) - 1, 0).astype(np.float64)
        high = self.layout.highest(histograms.keys).astype(np.float64)
        return BucketRanges(histograms.rows().astype(np.int64), low * unit, high * unit, histograms.counts)

    def values_of(self, units: Whole, mask: Flags) -> pa.Array:
        """Convert whole units to values: multiply each entry of ``units`` by the unit. Entries in ``mask`` become null.

        The values are rounded correctly: with the unit 0.1, 3 units are 0.3, not 0.30000000000000004.
        """
        if self.unit is None:
            return pa.array(units, mask=mask)
        units_per_one = round(1.0 / self.unit)
        is_reciprocal = units_per_one > 1 and 1.0 / units_per_one == self.unit
        if not is_reciprocal:
            return pa.array(units * self.unit, mask=mask)
        values = units / units_per_one
        # A number of units above 2^53 would be rounded twice, by the conversion to double and by the division. Such
        # numbers are therefore divided as exact numbers.
        if (large := units > 2**53).any():
            divisors = np.full(large.sum(), units_per_one)
            values[large] = ExactNumbers.of(units[large]).over_integers(divisors)
        return pa.array(values, mask=mask)


@dataclass(frozen=True)
class Hdr(Function):
    """Compute an HdrHistogram of a column: count, min, max, mean, stdev, var and quantiles.

    A quantile is the highest value in the bucket that contains the value at rank ``int(q·n + 0.5)``. Ranks are counted
    from 1. The quantile 0 is the lowest value in its bucket. Values in one bucket agree in their first ``digits``
    significant digits. HdrHistogram for C and Python has the same rules. The parameter ``method`` can select another
    rule for ranks. Mean, stdev and var are computed as in HdrHistogram: for the population, from the middles of the
    buckets.

    Parameters
    ----------
    quantiles : floats in [0, 1]
        The quantiles to compute; others can be computed from the same states later.
    digits : int, 1 to 5
        The number of significant decimal digits. The state depends on this parameter and on ``unit``.
    unit : float, optional
        The unit of the values, such as 0.001. Values are rounded to the nearest multiple of the unit; floats are
        divided by the unit in double arithmetic. Without a unit, values must be whole numbers.
    method : str
        The rule that locates a quantile among n sorted values, by numpy's names: "lower", "higher", "nearest",
        "linear", "midpoint", "inverted_cdf" (the rule of HdrHistogram in Java and JavaScript), and numpy's others, or
        "hdrhistogram". This parameter affects only results, not states.
    bad_values : "error" or "skip"
        The action for negative and infinite numbers, numbers of 2^63 units or more, and fractions without a ``unit``:
        raise an error, or skip them and count them in the state. A value whose weight is negative or not whole is
        treated in the same way, and counts once. The state depends on this parameter.

    Raises
    ------
    ValueError
        If a quantile is outside [0, 1] or occurs twice, ``digits`` or ``unit`` is outside its range, or ``method`` or
        ``bad_values`` is unknown.

    References
    ----------
    Gil Tene, HdrHistogram.

    Examples
    --------
    >>> from aggr import hdr
    >>> hdr("latency_ms", [0.5, 0.99], digits=2)
    hdr('latency_ms', quantiles=[0.5, 0.99], digits=2)
    """

    quantiles: tuple[float, ...] = field(default=DEFAULT_QUANTILES, metadata={"accepts": "Sequence[float] | float"})
    digits: int = 3
    unit: float | None = None
    method: str = field(default=HDR_HISTOGRAM, kw_only=True)
    bad_values: str = field(default=ERROR, kw_only=True)

    name = "hdr"
    takes = NUMBERS.described(
        "A column of integers, floats or decimals from 0. Other values raise an error, or are skipped."
    )
    keeps = "HdrHistogram buckets, min, max"
    returns = "record: count, min, max, mean, stdev, var, quantiles; null if there are no values"
    takes_weights = True
    guarantee = "count, min and max are exact; the other fields are accurate to the chosen number of significant digits"

    def __post_init__(self) -> None:
        object.__setattr__(self, "quantiles", check_quantiles(self.quantiles))
        checked_whole(self.digits, "digits", 1, 5)
        if self.unit is not None:
            if isinstance(self.unit, bool) or not isinstance(self.unit, int | float) or not 0 < self.unit < math.inf:
                raise ValueError(f"unit must be a number above 0, such as 0.001; got {self.unit!r}")
            object.__setattr__(self, "unit", float(self.unit))
        check_method(self.method)
        check_bad_values(self.bad_values)

    @property
    def skips_bad_values(self) -> bool:
        return self.bad_values == SKIP

    @property
    def own_state(self) -> HdrState:
        return HdrState(self.digits, self.unit, self.bad_values)

    @property
    def layout(self) -> Layout:
        """The layout of the buckets."""
        return self.own_state.layout

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        buckets = self.own_state.histogram.packed(states, "buckets")
        counts = buckets.totals
        has_values = counts > 0
        order = np.argsort(self.quantiles, kind="stable")
        sorted_quantiles = [self.quantiles[i] for i in order]
        lower_ranks, upper_ranks, upper_weights = stacked_ranks(sorted_quantiles, counts, self.method)
        keys, mean, variance = buckets.keys_and_moments(lower_ranks, self.layout.half_magnitude)
        unit = self.unit or 1.0
        position = np.argsort(order)
        variance = variance * unit * unit
        mean = mean * unit

        def values_of_keys(q: float, key: Whole) -> pa.Array:
            return self.own_state.values_of(self.layout.highest(key) if q else self.layout.lowest(key), ~has_values)

        quantiles = [values_of_keys(q, keys[i]) for q, i in zip(self.quantiles, position, strict=True)]
        dtype = pa.int64() if self.unit is None else pa.float64()
        if interpolates(self.method):
            keys = buckets.keys_at(upper_ranks)
            dtype = pa.float64()
            above = [values_of_keys(q, keys[i]) for q, i in zip(self.quantiles, position, strict=True)]
            pairs = zip(quantiles, above, position, strict=True)
            quantiles = [
                _interpolate_columns(values, upper_values, upper_weights[i], ~has_values)
                for values, upper_values, i in pairs
            ]
        children = {
            "count": pa.array(counts),
            "min": self.own_state.values_of(*_extreme(states, "min")),
            "max": self.own_state.values_of(*_extreme(states, "max")),
            "mean": pa.array(mean, mask=~has_values),
            "stdev": pa.array(np.sqrt(variance), mask=~has_values),
            "var": pa.array(variance, mask=~has_values),
            "quantiles": quantile_struct(self.quantiles, quantiles, dtype),
        }
        return pa.StructArray.from_arrays(list(children.values()), names=list(children), mask=pa.array(~has_values))

    def is_always_readable(self, state_type: pa.StructType) -> bool:
        return True


def _interpolate_columns(
    lower_values: pa.Array, upper_values: pa.Array, upper_weights: Floats, mask: Flags
) -> pa.Array:
    """Interpolate between two columns. ``upper_weights`` are the weights of ``upper_values``, in [0, 1]. The result is
    null for rows in ``mask``.
    """
    lower, upper = (pc.fill_null(column, 0).to_numpy().astype(np.float64) for column in (lower_values, upper_values))
    return pa.array(interpolate(lower, upper, upper_weights), mask=mask)


def _whole_numbers(values: pa.Array) -> Whole:
    """Return integers as an int64 array. Raise ``ValueError`` if one of them is negative or exceeds int64."""
    try:
        numbers: Whole = values.cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid:
        raise ValueError(
            f"hdr accepts only numbers of at most 2^63 - 1; got {pc.max(values)}; pass unit, such as unit=1000, or use "
            "dds"
        ) from None
    if len(numbers) and numbers.min() < 0:
        raise ValueError(
            f"hdr accepts only numbers of at least 0; got {numbers.min()}; dds accepts negative numbers too"
        )
    return numbers


def _extreme(states: pa.StructArray, name: str) -> tuple[Whole, Flags]:
    column = states.field(name)
    return pc.fill_null(column, 0).to_numpy(), column.is_null().to_numpy(zero_copy_only=False)
