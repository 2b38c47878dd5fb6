"""dds: DDSketch, quantiles with relative accuracy, exact under merge.

Source: Masson, Rim, Lee, "DDSketch: a fast and fully-mergeable quantile sketch with relative-error guarantees",
VLDB 2019. The buckets are those of DataDog's ``LogarithmicMapping``, key for key.
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
    """A DDSketch: buckets of logarithms, to a relative accuracy."""

    relative_accuracy: float
    max_bins: int | None

    name = "dds"
    versions = (1, 2)  # of version 1, sums of decimals are those of the nearest doubles
    parameters: ClassVar[Mapping[str, pa.DataType]] = {"relative_accuracy": pa.float64(), "max_bins": pa.int32()}

    @property
    def counted_by(self) -> tuple[str, ...]:
        folds = self.max_bins is not None  # what was folded together cannot be told apart
        return () if folds else (*COUNTS, "positive", "negative")

    @property
    def mapping(self) -> LogarithmicMapping:
        """The mapping between values and buckets."""
        return LogarithmicMapping(self.relative_accuracy)

    @property
    def side(self) -> Buckets:
        return Buckets(self.max_bins, *self.mapping.reach)

    @property
    def least(self) -> float:
        return self.mapping.least

    def keys_of(self, size: float, states: pa.StructArray) -> Whole:
        key = int(self.mapping.keys(np.array([size]))[0]) if size < np.inf else 2**31
        return np.full(len(states), key, np.int64)

    def values_at(self, keys: Whole, states: pa.StructArray) -> Floats:
        return self.mapping.values(keys)

    def edges(self, keys: Whole, rows: Whole, states: pa.StructArray) -> tuple[Floats, Floats]:
        half = (1.0 + self.mapping.gamma) / 2.0  # from a bucket's value to its upper edge
        return self.mapping.values(keys - 1) * half, self.mapping.values(keys) * half

    def count_finite(self, values: Values) -> dict[str, pa.Array]:
        buckets, x, groups, least = Buckets(self.max_bins), values.floats, values.groups, self.mapping.least
        if len(values) and x.min_max[0] > least:  # the common case: nothing to sort out
            none = pa.array(np.zeros(groups.n, np.int64))
            nothing = buckets.count(np.zeros(0, np.int32), groups.slice(slice(0)))
            positive = self._signed(x, values.weights, self._ends(x))
            return {"zero": none, "positive": positive, "negative": nothing}
        above, below = x.array > least, x.array < -least
        columns = {"zero": pa.array(values.filter(~(above | below)).counts)}
        for sign, rows, sizes in (("positive", above, x.array), ("negative", below, -x.array)):
            weights = None if values.weights is None else values.weights[rows]
            columns[sign] = self._signed(Numbers(sizes[rows], groups.filter(rows)), weights)
        return columns

    def _signed(
        self, sizes: Numbers, weights: Weights | None, ends: tuple[Whole, Whole] | None = None
    ) -> pa.StructArray:
        buckets, mapping = Buckets(self.max_bins), self.mapping
        if weights is None:
            return buckets.count(mapping._keys_within(sizes.sorted_by_group, sizes.min_max), sizes.groups, ends)
        return buckets.count_weighted(mapping._keys_within(sizes.array, sizes.min_max), weights, sizes.groups)

    def _ends(self, x: Numbers) -> tuple[Whole, Whole] | None:
        """Find the least and the greatest key of each group of positive numbers: 1 and 0 if there are none."""
        ends = x.extremes
        if ends is None:
            return None
        filled = (np.where(ends.empty, 1.0, end) for end in (ends.low, ends.high))
        low, high = (self.mapping.keys(end).astype(np.int64) for end in filled)
        return np.where(ends.empty, 1, low), np.where(ends.empty, 0, high)

    def check_consistency(self, states: pa.StructArray) -> None:
        ends = [end for sign in ("negative", "positive") for end in self._held(states.field(sign))]
        counted = [whole_numbers(states, name) for name in ("negative_infinity", "zero", "positive_infinity")]
        values = [(finite_floats(states.field(name)), states.field(name).is_null()) for name in ("min", "max")]
        (least, no_least), (most, no_most) = ((end, none.to_numpy(zero_copy_only=False)) for end, none in values)
        held = pc.list_value_length(states.field("sum").field("limbs")).to_numpy()
        limits = self.mapping.least, self.mapping._multiplier / math.log(2.0), self.max_bins or FAR
        given: tuple[Any, ...] = (*ends, *counted, least, no_least, most, no_most, held, *limits)
        if not _all_agree(*given):
            raise DamagedState("its least and greatest value, its sum and its buckets contradict each other")

    @staticmethod
    def _held(column: pa.StructArray) -> list[NDArray[Any]]:
        return [column.field(name).to_numpy() for name in ("low", "high", "total")]


@dataclass(frozen=True)
class Dds(SignedSketch):
    """Keep a DDSketch of a column: quantiles with relative accuracy, and exact count, sum, min, max, mean.

    ``|quantile − true| ≤ α·|true|``, the true one being the value at rank ``floor(q·(n − 1))``, numpy's "lower", unless
    ``method`` names another; between two values the error is at most α of each. Magnitudes below 2.3e-308 count as 0.
    NaN is counted apart; infinities stand at the ends.

    Parameters
    ----------
    quantiles : floats in [0, 1]
        What to read; others can be read from the same states later.
    relative_accuracy : float in (0, 1)
        α. It shapes the state: states of unequal α are not merged.
    max_bins : int, optional
        Keep at most so many buckets a sign, folding the lowest ones together, whose accuracy is then lost.
    method : str
        Which of n values in order a quantile is, in numpy's words: "lower", "higher", "nearest", "linear", "midpoint",
        "inverted_cdf" and numpy's others, or "hdrhistogram". It only reads.

    Raises
    ------
    ValueError
        If a quantile is outside [0, 1] or given twice, α or ``max_bins`` is out of its range, or ``method`` is not
        known.

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
    guarantee = "quantiles within a relative error of α; the rest exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        accuracy = self.relative_accuracy
        # at 1e-6 the keys of all doubles lie within ±3.8e8, and so in 32 bits; at 1e-7 they would not
        if isinstance(accuracy, bool) or not isinstance(accuracy, float) or not 1e-6 <= accuracy < 1.0:
            raise ValueError(
                f"relative_accuracy must be a number from 1e-6 to below 1, say 0.01; got {shown(accuracy)}"
            )
        most = self.max_bins
        if most is not None and (isinstance(most, bool) or not isinstance(most, int) or not 1 <= most < 2**31):
            raise ValueError(f"max_bins must be a whole number from 1, or None for no limit; got {shown(most)}")

    @property
    def own_state(self) -> DdsState:
        return DdsState(self.relative_accuracy, self.max_bins)

    @property
    def mapping(self) -> LogarithmicMapping:
        """The mapping between values and buckets."""
        return self.own_state.mapping


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
    least: Floats,
    no_least: Any,
    most: Floats,
    no_most: Any,
    held: Any,
    tiny: float,
    multiplier: float,
    folded: Int,
) -> bool:
    for i in range(len(zero)):
        some = below[i] + zero[i] + above[i] > 0 or below[i] > 0 or above[i] > 0
        if no_least[i] != no_most[i] or no_least[i] == (some or minus[i] > 0 or plus[i] > 0):
            return False
        if (not some and held[i]) or not least[i] <= most[i]:
            return False
        # infinities are read as the greatest doubles
        if some and minus[i] == 0:
            wrong = False
            if below[i]:
                wrong = _outside(-least[i], high_below[i], high_below[i], multiplier)
            elif zero[i]:
                wrong = abs(least[i]) > tiny
            else:
                lowest = low_above[i] if high_above[i] - low_above[i] + 1 < folded else -FAR
                wrong = _outside(least[i], lowest, low_above[i], multiplier)
            if wrong:
                return False
        if some and plus[i] == 0:
            wrong = False
            if above[i]:
                wrong = _outside(most[i], high_above[i], high_above[i], multiplier)
            elif zero[i]:
                wrong = abs(most[i]) > tiny
            else:
                lowest = low_below[i] if high_below[i] - low_below[i] + 1 < folded else -FAR
                wrong = _outside(-most[i], lowest, low_below[i], multiplier)
            if wrong:
                return False
    return True


@compiled
def _outside(value: float, first: Int, last: Int, multiplier: float) -> bool:
    """Say whether a value lies in none of the buckets from ``first`` to ``last``, their edges taken generously."""
    if value <= 0.0:
        return True
    place = math.log(value) * multiplier
    return not first - 1.01 <= place <= last + 0.01
