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
    """The state of a DDSketch: counts of buckets of equal relative width.

    ``relative_accuracy`` determines the width.
    """

    relative_accuracy: float
    max_bins: int | None

    name = "dds"
    # In version 1, the field ``sum`` of a column of decimals was the sum of the nearest doubles. In version 2, it is
    # the exact sum.
    versions = (1, 2)
    parameters: ClassVar[Mapping[str, pa.DataType]] = {"relative_accuracy": pa.float64(), "max_bins": pa.int32()}

    @property
    def counted_by(self) -> tuple[str, ...]:
        folds = self.max_bins is not None  # if low buckets were merged into one, their counts cannot be subtracted
        return () if folds else (*COUNTS, "positive", "negative")

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
        half = (1.0 + self.mapping.gamma) / 2.0  # the upper edge of a bucket, divided by the value that represents it
        return self.mapping.values(keys - 1) * half, self.mapping.values(keys) * half

    def count_finite(self, values: Values) -> dict[str, pa.Array]:
        buckets, x, groups = Buckets(self.max_bins), values.floats, values.groups
        zero_threshold = self.mapping.zero_threshold
        if len(values) and x.min_max[0] > zero_threshold:  # the usual case: all values are positive
            none = pa.array(np.zeros(groups.n, np.int64))
            nothing = buckets.count(np.zeros(0, np.int32), groups.slice(slice(0)))
            positive = self._signed(x, values.weights, self._key_ranges(x))
            return {"zero": none, "positive": positive, "negative": nothing}
        above, below = x.array > zero_threshold, x.array < -zero_threshold
        columns = {"zero": pa.array(values.filter(~(above | below)).counts)}
        for sign, rows, sizes in (("positive", above, x.array), ("negative", below, -x.array)):
            weights = None if values.weights is None else values.weights[rows]
            columns[sign] = self._signed(Numbers(sizes[rows], groups.filter(rows)), weights)
        return columns

    def _signed(
        self, sizes: Numbers, weights: Weights | None, key_ranges: tuple[Whole, Whole] | None = None
    ) -> pa.StructArray:
        buckets, mapping = Buckets(self.max_bins), self.mapping
        if weights is None:
            return buckets.count(mapping._keys_within(sizes.sorted_by_group, sizes.min_max), sizes.groups, key_ranges)
        return buckets.count_weighted(mapping._keys_within(sizes.array, sizes.min_max), weights, sizes.groups)

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

    ``|quantile − true| ≤ α·|true|``, where the true quantile is the value at rank ``floor(q·(n − 1))``, numpy's
    "lower", unless ``method`` names another rule. If ``method`` interpolates between two values, the relative error of
    each of them is at most α. Magnitudes below 2.3e-308 count as 0. NaN is counted separately. Infinities are the
    smallest and the greatest values.

    Parameters
    ----------
    quantiles : floats in [0, 1]
        The quantiles to compute; others can be computed from the same states later.
    relative_accuracy : float in (0, 1)
        α. States with different α cannot be merged, because the state depends on it.
    max_bins : int, optional
        The maximum number of buckets of each sign. If there are more, the lowest buckets are merged into one and lose
        their accuracy.
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
        # at 1e-6 the keys of all doubles are within ±3.8e8 and fit 32 bits; at 1e-7 they would not
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
    low_below: Any,
    high_below: Any,
    below: Any,
    low_above: Any,
    high_above: Any,
    above: Any,
    minus: Any,
    zero: Any,
    plus: Any,
    minimum: Floats,
    no_minimum: Any,
    maximum: Floats,
    no_maximum: Any,
    sum_sizes: Any,
    tiny: float,
    multiplier: float,
    folded: Int,
) -> bool:
    """Return whether the minimum, the maximum and the sum of each state agree with its buckets and counts.

    ``below`` and ``above`` count the values in the negative and in the positive buckets, whose keys are from
    ``low_…`` to ``high_…``. ``minus``, ``zero`` and ``plus`` count -inf, zeros and inf. ``sum_sizes`` has the number of
    digits of each sum. ``tiny`` is the largest magnitude that counts as zero. ``folded`` is ``max_bins``, or a number
    above all keys without this limit.
    """
    for i in range(len(zero)):
        has_finite = below[i] + zero[i] + above[i] > 0 or below[i] > 0 or above[i] > 0
        if no_minimum[i] != no_maximum[i] or no_minimum[i] == (has_finite or minus[i] > 0 or plus[i] > 0):
            return False
        if (not has_finite and sum_sizes[i]) or not minimum[i] <= maximum[i]:
            return False
        # All extremes are finite here: the caller has replaced an infinite minimum or maximum by the largest double of
        # the same sign.
        if has_finite and minus[i] == 0:
            wrong = False
            if below[i]:
                wrong = _outside(-minimum[i], high_below[i], high_below[i], multiplier)
            elif zero[i]:
                wrong = abs(minimum[i]) > tiny
            else:
                lowest = low_above[i] if high_above[i] - low_above[i] + 1 < folded else -FAR
                wrong = _outside(minimum[i], lowest, low_above[i], multiplier)
            if wrong:
                return False
        if has_finite and plus[i] == 0:
            wrong = False
            if above[i]:
                wrong = _outside(maximum[i], high_above[i], high_above[i], multiplier)
            elif zero[i]:
                wrong = abs(maximum[i]) > tiny
            else:
                lowest = low_below[i] if high_below[i] - low_below[i] + 1 < folded else -FAR
                wrong = _outside(-maximum[i], lowest, low_below[i], multiplier)
            if wrong:
                return False
    return True


@compiled
def _outside(value: float, first: Int, last: Int, multiplier: float) -> bool:
    """Return whether a magnitude lies outside the buckets with the keys ``first`` to ``last``.

    ``multiplier`` converts natural logarithms to keys. The edges have a tolerance of 0.01 keys, for rounding.
    """
    if value <= 0.0:
        return True
    place = math.log(value) * multiplier
    return not first - 1.01 <= place <= last + 0.01
