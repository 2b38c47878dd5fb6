"""sum, avg, var, stdev: exact Σx, exact Σx² and the count; rounded once, when read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.fields import COUNT, EXACT, OR, Field
from aggr.function import Function, refuse
from aggr.kernels.damage import DamagedState
from aggr.kernels.exact_sums import sum_exactly, sum_products, sum_squares
from aggr.kernels.groups import Groups
from aggr.kernels.numbers import (
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
from aggr.kernels.possible_sums import all_possible
from aggr.kernels.rounding import as_integers, quotient, variance, whole_number
from aggr.kernels.superaccumulator import Limbs, digits_of
from aggr.kernels.weights import Weights, count_rows, float_parts


@dataclass(frozen=True)
class _Summed(Function):
    """What sum, avg, var and stdev have in common: a count and an exact sum."""

    keeps = "exact Σx, count"
    guarantee = "correctly rounded"
    answers_for = frozenset({"count", "sum", "avg"})

    @property
    def state_fields(self) -> Mapping[str, Field]:
        """Counts and sums add up; the unit is the input's."""
        return {"count": COUNT, "unit": UNIT, "special": OR, "sum": EXACT}

    def check_input(self, dtype: pa.DataType) -> None:
        """Take whole numbers, floats and decimals of up to 38 digits."""
        if kept_type(dtype) is None or (pa.types.is_timestamp(dtype) and not self._takes_timestamps):
            takes = "integers, floats, decimals of up to 38 digits" + (" and timestamps" * self._takes_timestamps)
            hint = "; cast it to an integer" if pa.types.is_boolean(dtype) else ""
            raise refuse(self, dtype, takes, hint)

    _takes_timestamps = False

    def check_whole(self, states: pa.StructArray) -> None:
        """Refuse states that were cast to another unit, and sums that their counts cannot have."""
        dtype = states.field("unit").type
        try:
            self.check_input(dtype)
        except TypeError:
            raise DamagedState(f"its field 'unit' has type {dtype}") from None
        check_unit(states.field("unit"))
        counts, special = _counts(states), states.field("special").to_numpy()
        sums = digits_of(states.field("sum"))
        squares = digits_of(states.field("squares")) if "squares" in self.state_fields else None
        if not all_possible(counts, special, sums, squares, fractions=pa.types.is_floating(dtype)):
            raise DamagedState("its count, its sum and its special values contradict each other")

    def _reduce(self, values: pa.Array, groups: Groups) -> Mapping[str, pa.Array]:
        return self._summed(values, groups, None)

    def _summed(self, values: pa.Array, groups: Groups, weights: Weights | None) -> Mapping[str, pa.Array]:
        parts, special = parts_of(values, groups)
        flags = np.zeros(groups.n, np.int8)
        if special is not None:
            np.bitwise_or.at(flags, groups.ids, special)
        columns = {
            "count": count_rows(groups, weights),
            "unit": unit_of(kept_type(values.type), groups.n),
            "special": pa.array(flags),
            "sum": sum_exactly(parts, groups) if weights is None else sum_products(parts, float_parts(weights), groups),
        }
        if "squares" in self.state_fields:
            columns["squares"] = sum_squares(parts, groups)
        return columns


@dataclass(frozen=True)
class _Weighable(_Summed):
    """Sums of rows that may stand for several."""

    def _reduce_weighted(self, values: pa.Array, groups: Groups, weights: Weights) -> Mapping[str, pa.Array]:
        return self._summed(values, groups, weights)


@dataclass(frozen=True)
class Sum(_Weighable):
    """The sum, computed without error and rounded once.

    Parameters
    ----------
    dtype : str or None
        What it is read as: ``"decimal"`` for integers and decimals, of 38 digits, which a sum of integers never
        exceeds; ``"float64"``, which no sum exceeds; None for what the input's type says. It only reads; no state
        keeps it.
    """

    dtype: str | None = None

    name = "sum"
    returns = "int64, float64 or decimal by input, or as dtype says; null where there is nothing"

    def __post_init__(self) -> None:
        """Refuse a type that sums cannot be read as."""
        if self.dtype not in (None, "decimal", "float64"):
            raise ValueError(f"dtype must be 'decimal' or 'float64', or left out; got {self.dtype!r}")

    def _finish(self, states: pa.StructArray) -> pa.Array:
        total, dtype, present = (
            Limbs.of_arrow(states.field("sum")),
            states.field("unit").type,
            _counts(states) > 0,
        )
        if pa.types.is_floating(dtype) and self.dtype == "decimal":
            raise TypeError("sums of floats are read as float64; dtype='decimal' is for integers and decimals")
        if pa.types.is_floating(dtype) or self.dtype == "float64":
            return float_results(total, states.field("special").to_numpy(), present, scale_of(dtype))
        if pa.types.is_decimal(dtype) or self.dtype == "decimal":
            given = pa.decimal128(38, scale_of(dtype)) if self.dtype == "decimal" else dtype
            return decimal_results(total, present, given)
        return whole_results(total, present, "the sum")


@dataclass(frozen=True)
class Avg(_Weighable):
    """The mean, rounded once from the exact sum and the count."""

    name = "avg"
    aliases = ("mean",)
    state_name = "sum"
    returns = "float64, a timestamp for timestamps; null where there is nothing"
    _takes_timestamps = True

    def _finish(self, states: pa.StructArray) -> pa.Array:
        total, dtype, counts = Limbs.of_arrow(states.field("sum")), states.field("unit").type, _counts(states)
        present = counts > 0
        if pa.types.is_timestamp(dtype):
            return pa.array(_nearest(total, np.maximum(counts, 1)), mask=~present).view(dtype)
        means = quotient(total, np.maximum(counts, 1), scale_of(dtype))
        return pa.array(with_special(means, states.field("special").to_numpy()), mask=~present)


@dataclass(frozen=True)
class Var(_Summed):
    """The variance, rounded once from the exact Σx and Σx².

    Parameters
    ----------
    ddof : int
        Degrees of freedom taken off the count: 1 for the sample's variance, 0 for the population's. It only
        reads; no state keeps it.
    """

    ddof: int = 1

    name = "var"
    aliases = ("variance",)
    keeps = "exact Σx, exact Σx², count"
    returns = "float64; null where the count is not above ddof"
    answers_for = frozenset({"count", "sum", "avg", "var", "stdev"})

    def __post_init__(self) -> None:
        """Refuse a ddof that is no whole number from 0."""
        if isinstance(self.ddof, bool) or not isinstance(self.ddof, int) or self.ddof < 0:
            raise ValueError(
                f"ddof must be a whole number from 0, 1 for a sample, 0 for a population; got {self.ddof!r}"
            )

    @property
    def state_fields(self) -> Mapping[str, Field]:
        """Squares add up as well."""
        return {**super().state_fields, "squares": EXACT}

    def _finish(self, states: pa.StructArray) -> pa.Array:
        return self._variance(states, root=False)

    def _variance(self, states: pa.StructArray, root: bool) -> pa.Array:
        counts = _counts(states)
        enough = counts > self.ddof
        few = states if enough.all() else states.filter(pa.array(enough))
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
    """The standard deviation, rounded once from the exact Σx and Σx².

    Parameters
    ----------
    ddof : int
        Degrees of freedom taken off the count, as `Var` has it.
    """

    name = "stdev"
    aliases = ("stddev",)
    state_name = "var"

    def _finish(self, states: pa.StructArray) -> pa.Array:
        return self._variance(states, root=True)


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
