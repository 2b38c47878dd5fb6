"""dds: DDSketch, which computes quantiles with relative accuracy and merges exactly.

Source: Masson, Rim, Lee, "DDSketch: a fast and fully-mergeable quantile sketch with relative-error guarantees", VLDB
2019. The buckets and their keys are those of DataDog's ``LogarithmicMapping``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arguments import shown
from aggr.arrays import Floats, Whole
from aggr.arrow import compute as pc
from aggr.arrow.damaged_state import DamagedState
from aggr.compiling.jit import Int, compiled
from aggr.exact.weights import Weights
from aggr.functions.signed_sketch import COUNTS, SignedSketch, SketchState, finite_floats, whole_numbers
from aggr.groups.numbers import Numbers
from aggr.histograms.buckets import Buckets
from aggr.histograms.leb128 import FAR
from aggr.histograms.logarithmic_mapping import LogarithmicMapping
from aggr.values import Values


@dataclass(frozen=True)
class DdsState(SketchState):
    """The state of a DDSketch: the number of values in each bucket.

    All buckets have the same relative width, which ``relative_accuracy`` determines.
    """

    relative_accuracy: float
    max_bins: int | None

    name = "dds"
    # In version 1 of the state, the field ``sum`` of a column of decimals was the sum of the nearest doubles. In
    # version 2, it is the exact sum.
    versions = (1, 2)
    parameters: ClassVar[Mapping[str, pa.DataType]] = {"relative_accuracy": pa.float64(), "max_bins": pa.int32()}

    @property
    def counted_by(self) -> tuple[str, ...]:
        # With ``max_bins``, low buckets may have been merged into one. Their counts can then not be subtracted.
        merges_low_buckets = self.max_bins is not None
        return () if merges_low_buckets else (*COUNTS, "positive", "negative")

    @property
    def mapping(self) -> LogarithmicMapping:
        """The mapping between values and buckets."""
        return LogarithmicMapping(self.relative_accuracy)

    @property
    def side(self) -> Buckets:
        return Buckets(self.max_bins, *self.mapping.key_range)

    @property
    def zero_threshold(self) -> float:
        return self.mapping.zero_threshold

    def keys_of(self, size: float, states: pa.StructArray) -> Whole:
        key = int(self.mapping.keys(np.array([size]))[0]) if size < np.inf else 2**31
        return np.full(len(states), key, np.int64)

    def values_at(self, keys: Whole, states: pa.StructArray) -> Floats:
        return self.mapping.values(keys)

    def edges(self, keys: Whole, rows: Whole, states: pa.StructArray) -> tuple[Floats, Floats]:
        # the upper edge of a bucket, divided by the value that represents the bucket
        edge_ratio = (1.0 + self.mapping.gamma) / 2.0
        return self.mapping.values(keys - 1) * edge_ratio, self.mapping.values(keys) * edge_ratio

    def count_finite(self, values: Values) -> dict[str, pa.Array]:
        buckets = Buckets(self.max_bins)
        x = values.floats
        groups = values.groups
        zero_threshold = self.mapping.zero_threshold
        if len(values) and x.min_max[0] > zero_threshold:  # the usual case: all values are positive
            no_zeros = pa.array(np.zeros(groups.n, np.int64))
            no_buckets = buckets.count(np.zeros(0, np.int32), groups.slice(slice(0)))
            positive = self._count_magnitudes(x, values.weights, self._key_ranges(x))
            return {"zero": no_zeros, "positive": positive, "negative": no_buckets}
        is_positive = x.array > zero_threshold
        is_negative = x.array < -zero_threshold
        columns = {"zero": pa.array(values.filter(~(is_positive | is_negative)).counts)}
        for sign, rows, magnitudes in (("positive", is_positive, x.array), ("negative", is_negative, -x.array)):
            weights = None if values.weights is None else values.weights[rows]
            columns[sign] = self._count_magnitudes(Numbers(magnitudes[rows], groups.filter(rows)), weights)
        return columns

    def _count_magnitudes(
        self, magnitudes: Numbers, weights: Weights | None, key_ranges: tuple[Whole, Whole] | None = None
    ) -> pa.StructArray:
        buckets = Buckets(self.max_bins)
        mapping = self.mapping
        if weights is None:
            return buckets.count(
                mapping._keys_within(magnitudes.sorted_by_group, magnitudes.min_max), magnitudes.groups, key_ranges
            )
        return buckets.count_weighted(
            mapping._keys_within(magnitudes.array, magnitudes.min_max), weights, magnitudes.groups
        )

    def _key_ranges(self, x: Numbers) -> tuple[Whole, Whole] | None:
        """Return the keys of the minimum and of the maximum of each group, each of shape (groups,).

        ``x`` contains positive numbers with their groups. An empty group has the keys 1 and 0. Return None if a number
        is NaN.
        """
        extremes = x.extremes
        if extremes is None:
            return None
        filled = (np.where(extremes.empty, 1.0, extreme) for extreme in (extremes.low, extremes.high))
        low, high = (self.mapping.keys(extreme).astype(np.int64) for extreme in filled)
        return np.where(extremes.empty, 1, low), np.where(extremes.empty, 0, high)

    def check_consistency(self, states: pa.StructArray) -> None:
        key_columns = [end for sign in ("negative", "positive") for end in self._key_columns(states.field(sign))]
        counted = [whole_numbers(states, name) for name in ("negative_infinity", "zero", "positive_infinity")]
        extremes: list[NDArray[Any]] = []
        for name in ("min", "max"):
            column = states.field(name)
            extremes += [finite_floats(column), column.is_null().to_numpy(zero_copy_only=False)]
        sum_sizes = pc.list_value_length(states.field("sum").field("limbs")).to_numpy()
        limits = self.mapping.zero_threshold, self.mapping._multiplier / math.log(2.0), self.max_bins or FAR
        columns: tuple[Any, ...] = (*key_columns, *counted, *extremes, sum_sizes, *limits)
        if not _all_agree(*columns):
            raise DamagedState("its minimum, its maximum, its sum and its buckets contradict each other")

    @staticmethod
    def _key_columns(column: pa.StructArray) -> list[NDArray[Any]]:
        return [column.field(name).to_numpy() for name in ("low", "high", "total")]


@dataclass(frozen=True)
class Dds(SignedSketch):
    """Compute a DDSketch of a column: quantiles with relative accuracy, and exact count, sum, min, max, mean.

    With α = ``relative_accuracy``, a quantile satisfies ``|quantile − true| ≤ α·|true|``. The true quantile is the
    value at rank ``floor(q·(n − 1))``, which numpy calls "lower". The parameter ``method`` can select another rule. If
    it selects a rule that interpolates between two values, the relative error of each of the two is at most α.
    Magnitudes below 2.3e-308 count as 0. NaN is counted separately. Infinities are the smallest and the greatest
    values.

    Parameters
    ----------
    quantiles : floats in [0, 1]
        The quantiles to compute; others can be computed from the same states later.
    relative_accuracy : float in (0, 1)
        The maximum relative error α. States with different α cannot be merged, because the state depends on α.
    max_bins : int, optional
        The maximum number of buckets of each sign, from the lowest to the highest one, including empty buckets between
        them. If there are more, the lowest buckets are merged into one and lose their accuracy.
    method : str
        The rule that locates a quantile among n sorted values, by numpy's names: "lower", "higher", "nearest",
        "linear", "midpoint", "inverted_cdf" and numpy's others, or "hdrhistogram". This parameter affects only results,
        not states.

    Raises
    ------
    ValueError
        If a quantile is outside [0, 1] or occurs twice, α or ``max_bins`` is outside its range, or ``method`` is
        unknown.

    References
    ----------
    Masson, Rim, Lee, "DDSketch", VLDB 2019.

    Examples
    --------
    >>> from aggr import dds
    >>> dds("latency_ms", [0.5, 0.99], relative_accuracy=0.005)
    dds('latency_ms', quantiles=[0.5, 0.99], relative_accuracy=0.005)
    """

    relative_accuracy: float = 0.01
    max_bins: int | None = None

    name = "dds"
    keeps = "DDSketch buckets, exact Σx, count, min, max"
    returns = "record: count, sum, min, max, mean, quantiles; null if there are no values"
    guarantee = "quantiles have a relative error of at most α; the other fields are exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        accuracy = self.relative_accuracy
        # With an accuracy of 1e-6, the keys of all doubles are within ±3.8e8, so that they fit into 32 bits. With 1e-7,
        # they would not fit.
        if isinstance(accuracy, bool) or not isinstance(accuracy, float) or not 1e-6 <= accuracy < 1.0:
            raise ValueError(
                "relative_accuracy must be a number from 1e-6 up to, but not including, 1, such as 0.01; got "
                f"{shown(accuracy)}"
            )
        max_bins = self.max_bins
        if max_bins is None:
            return
        if isinstance(max_bins, bool) or not isinstance(max_bins, int) or not 1 <= max_bins < 2**31:
            raise ValueError(
                f"max_bins must be a whole number of at least 1, or None for no limit; got {shown(max_bins)}"
            )

    @property
    def own_state(self) -> DdsState:
        return DdsState(self.relative_accuracy, self.max_bins)

    @property
    def mapping(self) -> LogarithmicMapping:
        """The mapping between values and buckets."""
        return self.own_state.mapping

    def is_always_readable(self, state_type: pa.StructType) -> bool:
        return True


@compiled
def _all_agree(
    negative_low: Any,
    negative_high: Any,
    negative_count: Any,
    positive_low: Any,
    positive_high: Any,
    positive_count: Any,
    minus_infinity_count: Any,
    zero_count: Any,
    plus_infinity_count: Any,
    minimum: Floats,
    has_no_minimum: Any,
    maximum: Floats,
    has_no_maximum: Any,
    sum_sizes: Any,
    zero_threshold: float,
    multiplier: float,
    max_bins: Int,
) -> bool:
    """Return whether the minimum, the maximum and the sum of each state agree with its buckets and counts.

    ``negative_low`` and ``negative_high`` contain the lowest and the highest key of the negative buckets of each state,
    and ``negative_count`` the number of values in these buckets. ``positive_…`` describes the positive buckets in the
    same way. ``has_no_minimum`` and ``has_no_maximum`` are masks of the states whose minimum or maximum is null.
    ``sum_sizes`` contains the number of digits of each sum. ``zero_threshold`` is the largest magnitude that counts as
    zero. ``multiplier`` converts natural logarithms to keys. ``max_bins`` is the parameter ``max_bins`` of the sketch.
    If the sketch has no limit, ``max_bins`` is larger than every possible number of buckets.
    """
    for i in range(len(zero_count)):
        has_finite = negative_count[i] > 0 or zero_count[i] > 0 or positive_count[i] > 0
        if has_no_minimum[i] != has_no_maximum[i] or has_no_minimum[i] == (
            has_finite or minus_infinity_count[i] > 0 or plus_infinity_count[i] > 0
        ):
            return False
        if (not has_finite and sum_sizes[i]) or not minimum[i] <= maximum[i]:
            return False
        # Here, the minimum and the maximum are finite, because the caller has replaced an infinity by the largest
        # double of the same sign.
        if has_finite and minus_infinity_count[i] == 0:
            wrong = False
            if negative_count[i]:
                wrong = _is_outside(-minimum[i], negative_high[i], negative_high[i], multiplier)
            elif zero_count[i]:
                wrong = abs(minimum[i]) > zero_threshold
            else:
                lowest = positive_low[i] if positive_high[i] - positive_low[i] + 1 < max_bins else -FAR
                wrong = _is_outside(minimum[i], lowest, positive_low[i], multiplier)
            if wrong:
                return False
        if has_finite and plus_infinity_count[i] == 0:
            wrong = False
            if positive_count[i]:
                wrong = _is_outside(maximum[i], positive_high[i], positive_high[i], multiplier)
            elif zero_count[i]:
                wrong = abs(maximum[i]) > zero_threshold
            else:
                lowest = negative_low[i] if negative_high[i] - negative_low[i] + 1 < max_bins else -FAR
                wrong = _is_outside(-maximum[i], lowest, negative_low[i], multiplier)
            if wrong:
                return False
    return True


@compiled
def _is_outside(value: float, first: Int, last: Int, multiplier: float) -> bool:
    """Return whether a magnitude lies outside the buckets with the keys ``first`` to ``last``.

    ``multiplier`` converts natural logarithms to keys. The range has a tolerance of 0.01 keys at both ends, because
    the logarithm is rounded.
    """
    if value <= 0.0:
        return True
    key = math.log(value) * multiplier
    return not first - 1.01 <= key <= last + 0.01
