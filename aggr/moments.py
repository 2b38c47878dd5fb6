"""sum, avg, var, stdev: exact Σx, exact Σx² and the count; rounded once, when read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.exact import Limbs
from aggr.fields import ADD, EXACT, OR, Field
from aggr.function import Function, refuse
from aggr.groups import Groups
from aggr.numbers import (
    UNIT,
    check_unit,
    decimal_results,
    float_results,
    kept_type,
    parts_of,
    scale_of,
    unit_of,
    whole_results,
    with_special,
)
from aggr.rounding import as_integers, quotient, variance, whole_number
from aggr.sums import sum_exactly, sum_squares


@dataclass(frozen=True)
class Sum(Function):
    """The sum, computed without error and rounded once."""

    name = "sum"
    keeps = "exact Σx, count"
    returns = "int64, float64 or decimal by input; null where there is nothing"
    guarantee = "correctly rounded"
    covers = frozenset({"count", "sum", "avg"})

    @property
    def merges(self) -> Mapping[str, Field]:
        """Counts and sums add up; the unit is the input's."""
        return {"count": ADD, "unit": UNIT, "special": OR, "sum": EXACT}

    def check_input(self, kind: pa.DataType) -> None:
        """Take whole numbers, floats and decimals of up to 38 digits."""
        if kept_type(kind) is None or (pa.types.is_timestamp(kind) and not self._takes_timestamps):
            takes = "integers, floats, decimals of up to 38 digits" + (" and timestamps" * self._takes_timestamps)
            hint = "; cast it to an integer" if pa.types.is_boolean(kind) else ""
            raise refuse(self, kind, takes, hint)

    _takes_timestamps = False

    def check_states(self, states: pa.StructArray) -> None:
        """Refuse states that were cast to another unit as well."""
        super().check_states(states)
        check_unit(states.field("unit"))

    def _reduce(self, values: pa.Array, groups: Groups) -> Mapping[str, pa.Array]:
        parts, special = parts_of(values, groups)
        flags = np.zeros(groups.n, np.int8)
        if special is not None:
            np.bitwise_or.at(flags, groups.ids, special)
        columns = {
            "count": pa.array(groups.counts()),
            "unit": unit_of(kept_type(values.type), groups.n),
            "special": pa.array(flags),
            "sum": sum_exactly(parts, groups),
        }
        if "squares" in self.merges:
            columns["squares"] = sum_squares(parts, groups)
        return columns

    def _finish(self, states: pa.StructArray) -> pa.Array:
        total, kind, present = (
            Limbs.of_arrow(states.field("sum")),
            states.field("unit").type,
            _counts(states) > 0,
        )
        if pa.types.is_int64(kind):
            return whole_results(total, present, "the sum")
        if pa.types.is_decimal(kind):
            return decimal_results(total, present, kind)
        return float_results(total, states.field("special").to_numpy(), present)


@dataclass(frozen=True)
class Avg(Sum):
    """The mean, rounded once from the exact sum and the count."""

    name = "avg"
    returns = "float64, a timestamp for timestamps; null where there is nothing"
    _takes_timestamps = True

    def _finish(self, states: pa.StructArray) -> pa.Array:
        total, kind, counts = Limbs.of_arrow(states.field("sum")), states.field("unit").type, _counts(states)
        present = counts > 0
        if pa.types.is_timestamp(kind):
            return pa.array(_nearest(total, np.maximum(counts, 1)), mask=~present).view(kind)
        means = quotient(total, np.maximum(counts, 1), scale_of(kind))
        return pa.array(with_special(means, states.field("special").to_numpy()), mask=~present)


@dataclass(frozen=True)
class Var(Sum):
    """The variance, rounded once from the exact Σx and Σx².

    Parameters
    ----------
    ddof : int
        Degrees of freedom taken off the count: 1 for the sample's variance, 0 for the population's. It only
        reads; no state keeps it.
    """

    ddof: int = 1

    name = "var"
    keeps = "exact Σx, exact Σx², count"
    returns = "float64; null where the count is not above ddof"
    covers = frozenset({"count", "sum", "avg", "var", "stdev"})

    def __post_init__(self) -> None:
        """Refuse a ddof that is no whole number from 0."""
        if isinstance(self.ddof, bool) or not isinstance(self.ddof, int) or self.ddof < 0:
            raise ValueError(
                f"ddof must be a whole number from 0, 1 for a sample, 0 for a population; got {self.ddof!r}"
            )

    @property
    def merges(self) -> Mapping[str, Field]:
        """Squares add up as well."""
        return {**super().merges, "squares": EXACT}

    def _finish(self, states: pa.StructArray) -> pa.Array:
        return self._spread(states, root=False)

    def _spread(self, states: pa.StructArray, root: bool) -> pa.Array:
        counts = _counts(states)
        enough = counts > self.ddof
        few = states.filter(pa.array(enough))
        spread = variance(
            Limbs.of_arrow(few.field("sum")),
            Limbs.of_arrow(few.field("squares")),
            counts[enough],
            self.ddof,
            scale_of(states.field("unit").type),
            root,
        )
        results = np.zeros(len(states))
        results[enough] = spread
        results[states.field("special").to_numpy() != 0] = np.nan
        return pa.array(results, mask=~enough)


@dataclass(frozen=True)
class Stdev(Var):
    """The standard deviation, rounded once from the exact Σx and Σx²."""

    name = "stdev"

    def _finish(self, states: pa.StructArray) -> pa.Array:
        return self._spread(states, root=True)


def _counts(states: pa.StructArray) -> NDArray[np.int64]:
    counts: NDArray[np.int64] = states.field("count").to_numpy()
    return counts


def _nearest(totals: Limbs, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Divide whole numbers by counts, rounding half to even."""
    low, _, fits = as_integers(totals, -(2**63), 2**63 - 1)
    whole, rest = np.divmod(low.view(np.int64), counts)
    whole += (rest > counts - rest) | ((rest == counts - rest) & (whole % 2 == 1))
    for i in np.flatnonzero(~fits).tolist():
        whole[i] = round(Fraction(whole_number(totals, i), int(counts[i])))
    return whole
