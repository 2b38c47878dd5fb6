"""SignedSketch: the common code of sketches that count positive and negative numbers in buckets.

    -inf | negative buckets | zero | positive buckets | inf        NaN separate; sum, min and max are exact

The buckets of small numbers are narrower than those of large numbers. The sketches differ in the mapping from
magnitudes to buckets, and in the value that represents a bucket.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from aggr.arrays import Floats, Whole
from aggr.arrow import compute as pc
from aggr.exact.number_columns import NEGATIVE, POSITIVE, scale_of, with_special
from aggr.exact.scaled_sums import read_scaled, with_places
from aggr.fields import COUNT, GREATEST, LEAST, SCALED, Field
from aggr.function import Function
from aggr.groups.numbers import TOO_MANY_VALUES
from aggr.histograms.bucket_ranges import BucketRanges
from aggr.histograms.bucket_state import BucketState
from aggr.histograms.buckets import Buckets
from aggr.histograms.column import Histograms
from aggr.histograms.reading import PackedHistograms
from aggr.input_types import NUMBERS
from aggr.quantile_methods import LOWER, check_method, interpolate, interpolates, stacked_ranks
from aggr.quantile_parameters import DEFAULT_QUANTILES, check_quantiles, quantile_struct
from aggr.values import Values

COUNTS = ("zero", "nan", "positive_infinity", "negative_infinity")


@dataclass(frozen=True)
class SketchState(BucketState):
    """The state of a sketch: buckets for positive and for negative numbers, and the exact sum, minimum and maximum.

    Zeros, NaN and infinities are counted separately.
    """

    @property
    @abstractmethod
    def zero_threshold(self) -> float:
        """The magnitude up to which a value counts as zero."""

    @property
    @abstractmethod
    def side(self) -> Buckets:
        """The declaration of the fields ``positive`` and ``negative``, which contain the buckets of one sign each."""

    @abstractmethod
    def count_finite(self, values: Values) -> dict[str, pa.Array]:
        """Count finite values in each group.

        Return the fields ``zero``, ``positive`` and ``negative`` of the states.
        """

    @abstractmethod
    def keys_of(self, size: float, states: pa.StructArray) -> Whole:
        """Return the key of the bucket that contains the magnitude ``size`` in each state, shape (states,).

        Infinity has a key above all others.
        """

    @abstractmethod
    def values_at(self, keys: Whole, states: pa.StructArray) -> Floats:
        """Return the value that represents each bucket.

        ``keys`` contains keys of buckets. The last axis of ``keys`` has one entry per state. The result has the shape
        of ``keys``.
        """

    @abstractmethod
    def edges(self, keys: Whole, rows: Whole, states: pa.StructArray) -> tuple[Floats, Floats]:
        """Return the lower and the upper edges of buckets, each of shape (buckets,).

        Bucket i has the key ``keys[i]`` in the state ``states[rows[i]]``.
        """

    @property
    def fields(self) -> Mapping[str, Field]:
        exact = {"min": LEAST, "max": GREATEST, "sum": SCALED}
        return {**dict.fromkeys(COUNTS, COUNT), **exact, **dict.fromkeys(("positive", "negative"), self.side)}

    def reduce_values(self, values: Values) -> Mapping[str, pa.Array]:
        no_counts = pa.array(np.zeros(values.groups.n, np.int64))
        columns = {"nan": no_counts, "positive_infinity": no_counts, "negative_infinity": no_counts}
        finite = without_nan = values
        if len(values) and not np.isfinite(values.floats.min_max).all():
            x = values.floats.array
            masks = (np.isnan(x), np.isposinf(x), np.isneginf(x))
            columns = {name: pa.array(values.filter(mask).counts) for name, mask in zip(columns, masks, strict=True)}
            finite = values.filter(np.isfinite(x))
            without_nan = values.filter(~masks[0])
        columns["min"] = LEAST.of_numbers(without_nan.floats)
        columns["max"] = GREATEST.of_numbers(without_nan.floats)
        places = scale_of(values.array.type)
        # Access to `values.counts` also checks the counts: it raises ``OverflowError`` if a count exceeds int64.
        columns["sum"] = with_places(values.exact_sum, places, values.counts > 0)
        return columns | self.count_finite(finite)

    def share_up_to(self, states: pa.StructArray, value: float) -> pa.Array:
        """Compute the share of values up to ``value`` in each state (see `BucketState.share_up_to`).

        The result is the exact share of the values up to a limit near ``value``, not up to ``value`` itself. The
        relative distance between this limit and ``value`` is at most the relative accuracy of the sketch.
        """
        state_counts = SketchCounts.from_states(states, self.side)
        zero = state_counts.zero
        counts = state_counts.counts
        below_zero = state_counts.negative_infinity + state_counts.negative.totals
        if value > self.zero_threshold:
            keys = self.keys_of(value, states)
            counts_up_to = below_zero + zero + state_counts.positive.up_to(keys)
            if value == np.inf:
                counts_up_to = counts_up_to + state_counts.positive_infinity
        elif value < -self.zero_threshold:
            counts_up_to = below_zero - state_counts.negative.up_to(self.keys_of(-value, states) - 1)
        else:
            counts_up_to = below_zero + zero
        minimum, maximum = (pc.fill_null(states.field(name), np.nan).to_numpy() for name in ("min", "max"))
        counts_up_to = np.where(value < minimum, 0, np.where(value >= maximum, counts, counts_up_to))
        return pa.array(counts_up_to / np.maximum(counts, 1), mask=counts == 0)

    def buckets(self, states: pa.StructArray) -> BucketRanges:
        positive, negative = (self._ranges_of_sign(states, sign) for sign in ("positive", "negative"))
        low, zero, high = (whole_numbers(states, f) for f in ("negative_infinity", "zero", "positive_infinity"))
        lowest = BucketRanges.single(low, -np.inf, -np.inf)
        highest = BucketRanges.single(high, np.inf, np.inf)
        middle = BucketRanges.single(zero, -self.zero_threshold, self.zero_threshold)
        return BucketRanges.joined([lowest, negative.mirrored(), middle, positive, highest])

    def _ranges_of_sign(self, states: pa.StructArray, sign: str) -> BucketRanges:
        histograms = Histograms.from_arrow(states.field(sign))
        rows = histograms.rows().astype(np.int64)
        return BucketRanges(rows, *self.edges(histograms.keys, rows, states), histograms.counts)


@dataclass(frozen=True)
class SignedSketch(Function):
    """The base class of functions that sketch positive and negative numbers, with exact count, sum, min, max, mean."""

    quantiles: tuple[float, ...] = field(default=DEFAULT_QUANTILES, metadata={"accepts": "Sequence[float] | float"})
    method: str = field(default=LOWER, kw_only=True)

    takes = NUMBERS.described("A column of integers, floats or decimals, of either sign.")
    takes_weights = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "quantiles", check_quantiles(self.quantiles))
        check_method(self.method)

    @property
    @abstractmethod
    def own_state(self) -> SketchState:
        """The state of the sketch, which depends on the parameters."""

    def _further_fields(self, states: pa.StructArray) -> dict[str, pa.Array]:
        """Return the additional fields of the result of a sketch. They precede the quantiles in the result."""
        return {}

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        parts = SketchCounts.from_states(states, self.own_state.side)
        counts = parts.counts
        has_values = counts > 0
        sums = read_scaled(states.field("sum"))
        special = ((parts.positive_infinity > 0) * POSITIVE + (parts.negative_infinity > 0) * NEGATIVE).astype(np.int8)
        means = with_special(sums.over_integers(np.maximum(counts, 1)), special)
        children = {
            "count": pa.array(counts),
            "sum": pa.array(with_special(sums.over_integers(), special), mask=~has_values),
            "min": states.field("min"),
            "max": states.field("max"),
            "mean": pa.array(means, mask=~has_values),
            **self._further_fields(states),
            "quantiles": quantile_struct(self.quantiles, self._quantiles(states, parts), pa.float64()),
        }
        return pa.StructArray.from_arrays(list(children.values()), names=list(children), mask=pa.array(~has_values))

    def _quantiles(self, states: pa.StructArray, parts: SketchCounts) -> list[pa.Array]:
        """Return one column per quantile, in the order of ``self.quantiles``. ``method`` selects the ranks to read."""
        counts = parts.counts
        order = np.argsort(self.quantiles, kind="stable")
        sorted_quantiles = [self.quantiles[i] for i in order]
        lower_ranks, upper_ranks, upper_weights = stacked_ranks(sorted_quantiles, counts, self.method)
        values = self._at_ranks(states, parts, lower_ranks)
        if interpolates(self.method):
            values = interpolate(values, self._at_ranks(states, parts, upper_ranks), upper_weights)
        position = np.argsort(order)
        is_empty = counts == 0
        return [pa.array(values[position[i]], mask=is_empty) for i in range(len(order))]

    def _at_ranks(self, states: pa.StructArray, parts: SketchCounts, ranks: Whole) -> Floats:
        """Return the values at ``ranks``, shape (ranks, states). The ranks of a state must ascend."""
        negative_infinity = parts.negative_infinity
        zero = parts.zero
        counts = parts.counts
        below = parts.negative.totals
        middle = negative_infinity + below  # the number of values below 0, which is the rank of the first zero
        keys = parts.positive.keys_at(ranks - (middle + zero))
        is_negative = np.zeros(0, np.bool_)
        if not below.any():
            parts.negative.check()
        else:
            is_negative = ranks < middle
            keys = np.where(is_negative, parts.negative.keys_at((middle - 1 - ranks)[::-1])[::-1], keys)
        values = self.own_state.values_at(keys, states)
        if len(is_negative):
            values = np.where(is_negative, -values, values)
        if zero.any():
            values[(ranks >= middle) & (ranks < middle + zero)] = 0.0
        values = np.clip(values, *(finite_floats(states.field(name)) for name in ("min", "max")))
        values += 0.0  # clip may return -0.0; the addition converts it to 0.0
        if negative_infinity.any() or parts.positive_infinity.any():
            is_positive_infinity = ranks >= counts - parts.positive_infinity
            values = np.where(ranks < negative_infinity, -np.inf, np.where(is_positive_infinity, np.inf, values))
        return values


@dataclass(frozen=True)
class SketchCounts:
    """The counts of n states: arrays of shape (n,), and the buckets of both signs, whose counts are still encoded.

    ``negative_infinity``, ``zero`` and ``positive_infinity`` are the fields of the states with these names. ``counts``
    contains the number of all values of each state except NaN.
    """

    negative_infinity: Whole
    negative: PackedHistograms
    zero: Whole
    positive: PackedHistograms
    positive_infinity: Whole
    counts: Whole

    @classmethod
    def from_states(cls, states: pa.StructArray, field: Buckets) -> SketchCounts:
        """Return the counts of states. ``field`` declares the buckets of the states, as `SketchState.side` does.

        Raise ``OverflowError`` if a total exceeds int64.
        """
        positive, negative = (field.packed(states, sign) for sign in ("positive", "negative"))
        negative_infinity = whole_numbers(states, "negative_infinity")
        zero = whole_numbers(states, "zero")
        positive_infinity = whole_numbers(states, "positive_infinity")
        counts = negative_infinity
        for part in (negative.totals, zero, positive.totals, positive_infinity):
            counts = counts + part
            if (counts < 0).any():
                positive.check()
                negative.check()
                raise OverflowError(TOO_MANY_VALUES)
        return cls(
            negative_infinity=negative_infinity,
            negative=negative,
            zero=zero,
            positive=positive,
            positive_infinity=positive_infinity,
            counts=counts,
        )


def whole_numbers(states: pa.StructArray, name: str) -> Whole:
    """Return the counts in the field ``name`` of states, as an int64 array of shape (n,)."""
    numbers: Whole = states.field(name).to_numpy()
    return numbers


def finite_floats(column: pa.Array) -> Floats:
    """Return a column of doubles as an array. Null becomes 0, and an infinity the largest double of the same sign."""
    bounds: Floats = np.nan_to_num(pc.fill_null(column, 0.0).to_numpy())
    return bounds
