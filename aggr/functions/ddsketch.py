"""dds: DDSketch, quantiles with relative accuracy, exact under merge.

Source: Masson, Rim, Lee, "DDSketch: a fast and fully-mergeable quantile sketch with relative-error guarantees",
VLDB 2019. The buckets are those of DataDog's ``LogarithmicMapping``, key for key.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arguments import shown
from aggr.arrow import compute as pc
from aggr.arrow.damaged_state import DamagedState
from aggr.asked_quantiles import DEFAULT, capped_ranks, check_quantiles, record
from aggr.compiling.jit import Int, compiled
from aggr.exact.number_columns import NEGATIVE, POSITIVE, with_special
from aggr.exact.rounding import quotient
from aggr.exact.row_sums import sum_exactly, sum_products
from aggr.exact.superaccumulator import Limbs
from aggr.exact.weights import Weights
from aggr.fields import COUNT, EXACT, GREATEST, LEAST, Field
from aggr.function import Function
from aggr.groups.numbers import Numbers
from aggr.histograms.buckets import Buckets
from aggr.histograms.leb128 import FAR
from aggr.histograms.logarithmic_mapping import Floats, LogarithmicMapping
from aggr.histograms.reading import Packed
from aggr.input_types import NUMBERS
from aggr.values import Values

_COUNTS = ("zero", "nan", "positive_infinity", "negative_infinity")


@dataclass(frozen=True)
class Dds(Function):
    """Keep a DDSketch of a column: quantiles with relative accuracy, and exact count, sum, min, max, mean.

    ``|quantile − true| ≤ α·|true|``, the true one being the value at rank ``floor(q·(n − 1))``. Magnitudes below
    2.3e-308 count as 0. NaN is counted apart; infinities stand at the ends.

    Parameters
    ----------
    quantiles : floats in [0, 1]
        What to read; others can be read from the same states later.
    relative_accuracy : float in (0, 1)
        α. It shapes the state: states of unequal α are not merged.
    max_bins : int, optional
        Keep at most so many buckets a sign, folding the lowest ones together, whose accuracy is then lost.

    Raises
    ------
    ValueError
        If a quantile is outside [0, 1] or given twice, or α or ``max_bins`` is out of its range.

    References
    ----------
    Masson, Rim, Lee, "DDSketch", VLDB 2019.

    Examples
    --------
    >>> from aggr import dds
    >>> dds("latency_ms", [0.5, 0.99], relative_accuracy=0.005)
    dds('latency_ms', quantiles=[0.5, 0.99], relative_accuracy=0.005)
    """

    quantiles: tuple[float, ...] = field(default=DEFAULT, metadata={"accepts": "Sequence[float] | float"})
    relative_accuracy: float = 0.01
    max_bins: int | None = None

    name = "dds"
    takes = NUMBERS
    about: ClassVar[Mapping[str, str]] = {"value": "Of integers, floats or decimals, of either sign."}
    accessors = frozenset({"quantile", "rank"})
    keeps = "DDSketch buckets, exact Σx, count, min, max"
    returns = "record: count, sum, min, max, mean, quantiles; null where there is nothing"
    takes_weights = True
    guarantee = "quantiles within a relative error of α; the rest exact"
    state_parameters: ClassVar[Mapping[str, pa.DataType]] = {"relative_accuracy": pa.float64(), "max_bins": pa.int32()}

    def __post_init__(self) -> None:
        object.__setattr__(self, "quantiles", check_quantiles(self.quantiles))
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
    def counted_by(self) -> tuple[str, ...]:
        folds = self.max_bins is not None  # what was folded together cannot be told apart
        return () if folds else (*_COUNTS, "positive", "negative")

    @property
    def mapping(self) -> LogarithmicMapping:
        """The mapping between values and buckets."""
        return LogarithmicMapping(self.relative_accuracy)

    @property
    def state_fields(self) -> Mapping[str, Field]:
        buckets = self._field
        return {
            **dict.fromkeys(_COUNTS, COUNT),
            "min": LEAST,
            "max": GREATEST,
            "sum": EXACT,
            "positive": buckets,
            "negative": buckets,
        }

    @property
    def _field(self) -> Buckets:
        return Buckets(self.max_bins, *self.mapping.reach)

    def reduce_values(self, values: Values) -> Mapping[str, pa.Array]:
        none = pa.array(np.zeros(values.groups.n, np.int64))
        columns = {"nan": none, "positive_infinity": none, "negative_infinity": none}
        finite = ordered = values
        if len(values) and not np.isfinite(values.floats.min_max).all():
            x = values.floats.array
            tests = (np.isnan(x), np.isposinf(x), np.isneginf(x))
            columns = {name: pa.array(values.filter(test).counts) for name, test in zip(columns, tests, strict=True)}
            finite, ordered = values.filter(np.isfinite(x)), values.filter(~tests[0])
        columns["min"] = LEAST.of_numbers(ordered.floats)
        columns["max"] = GREATEST.of_numbers(ordered.floats)
        _ = values.counts  # refuses a total beyond int64
        if pa.types.is_decimal(values.array.type):  # as doubles, unlike integers, of which every unit counts
            parts = [values.floats]
            columns["sum"] = sum_exactly(parts) if values.weights is None else sum_products(parts, values.weight_parts)
        else:
            columns["sum"] = values.exact_sum
        return columns | self._buckets(finite)

    def _buckets(self, values: Values) -> dict[str, pa.Array]:
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
        self, sizes: Numbers, weights: Weights | None, ends: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
    ) -> pa.StructArray:
        """Count the sizes of numbers of one sign."""
        buckets, mapping = Buckets(self.max_bins), self.mapping
        if weights is None:
            return buckets.count(mapping._keys_within(sizes.sorted_by_group, sizes.min_max), sizes.groups, ends)
        return buckets.count_weighted(mapping._keys_within(sizes.array, sizes.min_max), weights, sizes.groups)

    def _ends(self, x: Numbers) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """Find the least and the greatest key of each group of positive numbers: 1 and 0 where there are none."""
        ends = x.extremes
        if ends is None:
            return None
        filled = (np.where(ends.empty, 1.0, end) for end in (ends.low, ends.high))
        low, high = (self.mapping.keys(end).astype(np.int64) for end in filled)
        return np.where(ends.empty, 1, low), np.where(ends.empty, 0, high)

    def check_consistency(self, states: pa.StructArray) -> None:
        ends = [end for sign in ("negative", "positive") for end in self._held(states.field(sign))]
        counted = [_whole(states, name) for name in ("negative_infinity", "zero", "positive_infinity")]
        values = [(_floats(states.field(name)), states.field(name).is_null()) for name in ("min", "max")]
        (least, no_least), (most, no_most) = ((end, none.to_numpy(zero_copy_only=False)) for end, none in values)
        held = pc.list_value_length(states.field("sum").field("limbs")).to_numpy()
        mapping, folded = self.mapping, self.max_bins or FAR
        multiplier = mapping._multiplier / math.log(2.0)
        given: tuple[Any, ...] = (
            *ends,
            *counted,
            least,
            no_least,
            most,
            no_most,
            held,
            mapping.least,
            multiplier,
            folded,
        )
        if not _all_agree(*given):
            raise DamagedState("its least and greatest value, its sum and its buckets contradict each other")

    @staticmethod
    def _held(column: pa.StructArray) -> list[NDArray[Any]]:
        return [column.field(name).to_numpy() for name in ("low", "high", "total")]

    def share_up_to(self, states: pa.StructArray, value: float) -> pa.Array:
        """Read the share of values that are at most a given one.

        Parameters
        ----------
        states : column of states, shape (rows,)
            None of them null; the caller has checked them.
        value : float
            Not NaN.

        Returns
        -------
        array of float64, shape (rows,)
            Exact for some value within α of ``value``; null where there are no values.
        """
        parts = _Parts.of(states, self._field)
        low, below, zero, counts = parts.low, parts.negative.totals, parts.zero, parts.counts
        if value > self.mapping.least:
            key = int(self.mapping.keys(np.array([value]))[0]) if value < np.inf else 2**31
            upto = low + below + zero + parts.positive.up_to(key) + (parts.high if value == np.inf else 0)
        elif value < -self.mapping.least:
            key = int(self.mapping.keys(np.array([-value]))[0]) if value > -np.inf else 2**31
            upto = low + below - parts.negative.up_to(key - 1)
        else:
            upto = low + below + zero
        least, most = (pc.fill_null(states.field(name), np.nan).to_numpy() for name in ("min", "max"))
        upto = np.where(value < least, 0, np.where(value >= most, counts, upto))
        return pa.array(upto / np.maximum(counts, 1), mask=counts == 0)

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        parts = _Parts.of(states, self._field)
        counts = parts.counts
        present = counts > 0
        limbs = Limbs.of_arrow(states.field("sum"))
        special = ((parts.high > 0) * POSITIVE + (parts.low > 0) * NEGATIVE).astype(np.int8)
        means = with_special(quotient(limbs, np.maximum(counts, 1)), special)
        children = {
            "count": pa.array(counts),
            "sum": pa.array(with_special(quotient(limbs), special), mask=~present),
            "min": states.field("min"),
            "max": states.field("max"),
            "mean": pa.array(means, mask=~present),
            "quantiles": record(self.quantiles, self._quantiles(states, parts), pa.float64()),
        }
        return pa.StructArray.from_arrays(list(children.values()), names=list(children), mask=pa.array(~present))

    def _quantiles(self, states: pa.StructArray, parts: _Parts) -> list[pa.Array]:
        """Find the value at the rank of each quantile, all in one pass over the buckets."""
        low, zero, counts = parts.low, parts.zero, parts.counts
        order = np.argsort(self.quantiles, kind="stable")
        ranks = np.stack([self._rank(self.quantiles[i], counts) for i in order])
        below = parts.negative.totals
        middle = low + below  # where the zeros begin
        keys = parts.positive.keys_at(ranks - (middle + zero))
        mirrored = np.zeros(0, np.bool_)
        if not below.any():
            parts.negative.check()
        else:
            mirrored = ranks < middle
            keys = np.where(mirrored, parts.negative.keys_at((middle - 1 - ranks)[::-1])[::-1], keys)
        values = self.mapping.values(keys)
        if len(mirrored):
            values = np.where(mirrored, -values, values)
        if zero.any():
            values[(ranks >= middle) & (ranks < middle + zero)] = 0.0
        values = np.clip(values, *(_floats(states.field(name)) for name in ("min", "max")))
        values += 0.0  # a zero is 0.0: which of two zeros clip gives depends on how many values it has
        if low.any() or parts.high.any():
            values = np.where(ranks < low, -np.inf, np.where(ranks >= counts - parts.high, np.inf, values))
        place, empty = np.argsort(order), counts == 0
        return [pa.array(values[place[i]], mask=empty) for i in range(len(order))]

    @staticmethod
    def _rank(q: float, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Find the rank of a quantile, from 0, among so many values: the one below where it lies between two."""
        return capped_ranks(np.floor(q * (counts - 1.0)), counts)


@dataclass(frozen=True)
class _Parts:
    """What a column of states counts, from -inf over the negative, zero and the positive to inf."""

    low: NDArray[np.int64]
    negative: Packed
    zero: NDArray[np.int64]
    positive: Packed
    high: NDArray[np.int64]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, states: pa.StructArray, field: Buckets) -> _Parts:
        positive, negative = (field.packed(states, sign) for sign in ("positive", "negative"))
        high, low, zero = (_whole(states, f) for f in ("positive_infinity", "negative_infinity", "zero"))
        counts = low
        for part in (negative.totals, zero, positive.totals, high):
            counts = counts + part
            if (counts < 0).any():
                positive.check()
                negative.check()
                raise OverflowError("a count grew beyond int64")
        return cls(low, negative, zero, positive, high, counts)


def _whole(states: pa.StructArray, name: str) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = states.field(name).to_numpy()
    return numbers


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


def _floats(column: pa.Array) -> Floats:
    """Read finite bounds; null is 0, an infinity the largest double, so that clipping works."""
    bounds: Floats = np.nan_to_num(pc.fill_null(column, 0.0).to_numpy())
    return bounds
