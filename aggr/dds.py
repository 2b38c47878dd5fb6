"""dds: DDSketch, quantiles with relative accuracy, exact under merge.

Source: Masson, Rim, Lee, "DDSketch: a fast and fully-mergeable quantile sketch with relative-error guarantees",
VLDB 2019. The buckets are those of DataDog's ``LogarithmicMapping``, key for key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from aggr.buckets import Buckets
from aggr.exact import Limbs
from aggr.fields import ADD, EXACT, GREATEST, LEAST, Field, ends_of_numbers
from aggr.function import Function, refuse
from aggr.groups import Groups
from aggr.histograms import Histograms
from aggr.logarithmic import Floats, LogarithmicMapping
from aggr.numbers import NEGATIVE, POSITIVE, as_floats, parts_of, with_special
from aggr.quantile import DEFAULT, checked, record
from aggr.rounding import quotient, rounded
from aggr.sums import sum_exactly


@dataclass(frozen=True)
class Dds(Function):
    """DDSketch: count, sum, min, max, mean and quantiles of numbers of either sign.

    Parameters
    ----------
    quantiles : floats in [0, 1]
        What `finish` reads; new ones can be asked of old states.
    relative_accuracy : float in (0, 1)
        α: each quantile is within ``α·|true value|``.
    max_bins : int or None
        Keep at most so many buckets a sign, folding the lowest ones together; None keeps all.
    """

    quantiles: tuple[float, ...] = DEFAULT
    relative_accuracy: float = 0.01
    max_bins: int | None = None

    name = "dds"
    keeps = "DDSketch buckets, exact Σx, count, min, max"
    returns = "record: count, sum, min, max, mean, quantiles; null where there is nothing"
    guarantee = "quantiles within α·|x| of the true one; the rest exact"
    shape: ClassVar[Mapping[str, pa.DataType]] = {"relative_accuracy": pa.float64(), "max_bins": pa.int32()}

    def __post_init__(self) -> None:
        """Check the parameters."""
        object.__setattr__(self, "quantiles", checked(self.quantiles))
        accuracy = self.relative_accuracy
        if isinstance(accuracy, bool) or not isinstance(accuracy, float) or not 1e-6 <= accuracy < 1.0:
            raise ValueError(f"relative_accuracy must be a number from 1e-6 to below 1, say 0.01; got {accuracy!r}")
        most = self.max_bins
        if most is not None and (isinstance(most, bool) or not isinstance(most, int) or not 1 <= most < 2**31):
            raise ValueError(f"max_bins must be a whole number from 1, or None for no limit; got {most!r}")

    @property
    def mapping(self) -> LogarithmicMapping:
        """The mapping between values and buckets."""
        return LogarithmicMapping(self.relative_accuracy)

    @property
    def merges(self) -> Mapping[str, Field]:
        """Counts, sums and buckets add up."""
        buckets = Buckets(self.max_bins)
        counts = {"zero": ADD, "nan": ADD, "positive_infinity": ADD, "negative_infinity": ADD}
        return {
            **counts,
            "min": LEAST,
            "max": GREATEST,
            "sum": EXACT,
            "positive": buckets,
            "negative": buckets,
        }

    def check_input(self, kind: pa.DataType) -> None:
        """Take integers, floats and decimals, as float64."""
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
            raise refuse(self, kind, "integers, floats and decimals")

    def _reduce(self, values: pa.Array, groups: Groups) -> Mapping[str, pa.Array]:
        x = as_floats(values)
        none = pa.array(np.zeros(groups.n, np.int64))
        columns = {"nan": none, "positive_infinity": none, "negative_infinity": none}
        finite = x
        inside = groups
        if len(x) and not np.isfinite(groups.span(x)).all():
            tests = (np.isnan(x), np.isposinf(x), np.isneginf(x))
            columns = {name: _count(test, groups) for name, test in zip(columns, tests, strict=True)}
            rows = np.isfinite(x)
            finite, inside = x[rows], groups.where(rows)
            x, groups = x[~tests[0]], groups.where(~tests[0])
        columns["min"] = LEAST.merge(pa.array(x), groups)
        columns["max"] = GREATEST.merge(pa.array(x), groups)
        whole = pa.types.is_integer(values.type)  # beyond 2^53 the sum still counts every unit
        columns["sum"] = sum_exactly(parts_of(values, groups)[0] if whole else [finite], inside)
        return columns | self._buckets(finite, inside)

    def _buckets(self, x: Floats, groups: Groups) -> dict[str, pa.Array]:
        buckets, mapping, least = Buckets(self.max_bins), self.mapping, self.mapping.least
        if len(x) and groups.span(x)[0] > least:  # the common case: nothing to sort out
            none = pa.array(np.zeros(groups.n, np.int64))
            keys, ends = mapping.keys(x, groups.span(x)), self._ends(x, groups)
            nothing = buckets.reduce(np.zeros(0, np.int32), Groups(groups.ids[:0], groups.n))
            return {"zero": none, "positive": buckets.reduce(keys, groups, ends), "negative": nothing}
        above, below = x > least, x < -least
        signs = {
            "positive": (x[above], groups.where(above)),
            "negative": (-x[below], groups.where(below)),
        }
        zero = _count(~(above | below), groups)
        columns = {sign: buckets.reduce(mapping.keys(part, of.span(part)), of) for sign, (part, of) in signs.items()}
        return {"zero": zero, **columns}

    def _ends(self, x: Floats, groups: Groups) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """Find the least and the greatest key of each group of positive numbers: 1 and 0 where there are none."""
        ends = ends_of_numbers(x, groups)
        if ends is None:
            return None
        low, high = (self.mapping.keys(pc.fill_null(end, 1.0).to_numpy()).astype(np.int64) for end in ends)
        empty = ends[0].is_null().to_numpy(zero_copy_only=False)
        return np.where(empty, 1, low), np.where(empty, 0, high)

    def rank(self, states: pa.StructArray, value: float) -> pa.Array:
        """Read the share of values that are at most ``value``, exact for a value within α of it; null where empty."""
        parts = _Parts.of(states)
        low, below, zero, counts = parts.low, parts.negative.totals(), parts.zero, parts.counts
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

    def _finish(self, states: pa.StructArray) -> pa.Array:
        parts = _Parts.of(states)
        positive, negative, high, low, zero = parts.positive, parts.negative, parts.high, parts.low, parts.zero
        below, counts = negative.totals(), parts.counts
        present = counts > 0
        limbs = Limbs.of_arrow(states.field("sum"))
        special = ((high > 0) * POSITIVE + (low > 0) * NEGATIVE).astype(np.int8)
        least, most = (_floats(states.field(name)) for name in ("min", "max"))

        def at(q: float) -> pa.Array:
            rank = np.floor(q * (counts - 1.0)).astype(np.int64)
            value = self.mapping.values(positive.key_at(rank - low - below - zero))
            value = np.where(rank < low + below + zero, 0.0, value)
            mirrored = -self.mapping.values(negative.key_at(below - 1 - (rank - low)))
            value = np.clip(np.where(rank < low + below, mirrored, value), least, most)
            value = np.where(rank < low, -np.inf, np.where(rank >= counts - high, np.inf, value))
            return pa.array(value, mask=~present)

        means = with_special(quotient(limbs, np.maximum(counts, 1)), special)
        children = {
            "count": pa.array(counts),
            "sum": pa.array(with_special(rounded(limbs), special), mask=~present),
            "min": states.field("min"),
            "max": states.field("max"),
            "mean": pa.array(means, mask=~present),
            "quantiles": record(self.quantiles, [at(q) for q in self.quantiles], pa.float64()),
        }
        return pa.StructArray.from_arrays(list(children.values()), names=list(children), mask=pa.array(~present))


@dataclass(frozen=True)
class _Parts:
    """What a column of states counts, from -inf over the negative, zero and the positive to inf."""

    low: NDArray[np.int64]
    negative: Histograms
    zero: NDArray[np.int64]
    positive: Histograms
    high: NDArray[np.int64]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, states: pa.StructArray) -> _Parts:
        positive, negative = Histograms.of(states.field("positive")), Histograms.of(states.field("negative"))
        high, low, zero = (_whole(states, f) for f in ("positive_infinity", "negative_infinity", "zero"))
        return cls(low, negative, zero, positive, high, low + negative.totals() + zero + positive.totals() + high)


def _count(rows: NDArray[np.bool_], groups: Groups) -> pa.Array:
    return pa.array(groups.where(rows).counts())


def _whole(states: pa.StructArray, name: str) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = states.field(name).to_numpy()
    return numbers


def _floats(column: pa.Array) -> Floats:
    """Read finite bounds; null is 0, an infinity the largest double, so that clipping works."""
    bounds: Floats = np.nan_to_num(pc.fill_null(column, 0.0).to_numpy())
    return bounds
