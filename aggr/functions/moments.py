"""sum, avg, var, stdev: computed from exact Σx, exact Σx² and the count, and rounded once when they are read."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa

from aggr.arguments import shown
from aggr.arrays import Floats, Whole
from aggr.arrow.damaged_state import DamagedState
from aggr.exact.number_columns import decimal_results, float_results, scale_of, whole_results, with_special
from aggr.exact.rounding import as_integers, quotient, whole_number
from aggr.exact.superaccumulator import Limbs
from aggr.functions.exact_family import ExactSums, Sums, SumsState, check_ddof
from aggr.input_types import SUMMABLE_OR_TIMES

SUM = SumsState("sum", {"sum": "value"}, takes=SUMMABLE_OR_TIMES, rank=1)
SQUARES = SumsState("var", {"sum": "value", "squares": "value·value"}, rank=2)
MOMENTS = SumsState(
    "skewness",
    {
        "sum": "value",
        "squares": "value·value",
        "cubes": "value·value·value",
        "fourths": "value·value·value·value",
    },
    rank=2,
)


@dataclass(frozen=True)
class _SumAndCount(ExactSums):
    """The base class of `Sum` and `Avg`, whose state is a count and an exact sum. Rows may have weights."""

    keeps = "exact Σx, count"
    own_state = SUM
    reads = (SQUARES, MOMENTS)
    takes_weights = True


@dataclass(frozen=True)
class Sum(_SumAndCount):
    """Sum a column without error. The result is rounded once when it is read.

    The sum of a group with NaN, or with both inf and -inf, is NaN. A sum of integers beyond int64 raises an error that
    names the group.

    Parameters
    ----------
    dtype : str, optional
        The type of the result: ``"decimal"`` (with 38 digits) for integers and decimals, or ``"float64"``. This
        parameter affects only results: existing states can be read as either type, even if their sum exceeds int64.

    Raises
    ------
    ValueError
        If ``dtype`` is another text.

    References
    ----------
    Neal, "Fast exact summation using small and large superaccumulators", 2015.

    Examples
    --------
    >>> from aggr import sum
    >>> sum("bytes")
    sum('bytes')
    """

    dtype: str | None = None

    name = "sum"
    is_amount = True
    returns = (
        "int64, float64 or decimal, as determined by the type of the input or by dtype; null if there are no values"
    )

    def __post_init__(self) -> None:
        if self.dtype not in (None, "decimal", "float64"):
            raise ValueError(f"dtype must be 'decimal' or 'float64', or left out; got {shown(self.dtype)}")

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        total = Limbs.of_arrow(states.field("sum"))
        dtype = states.field("unit").type
        has_values = states.field("count").to_numpy() > 0
        if pa.types.is_timestamp(dtype):
            raise DamagedState(f"its field 'unit' has type {dtype}, and timestamps cannot be added")
        if pa.types.is_floating(dtype) and self.dtype == "decimal":
            raise TypeError(
                "dtype='decimal' works only for integers and decimals; leave dtype out for a sum of floats, which is "
                "float64"
            )
        if pa.types.is_floating(dtype) or self.dtype == "float64":
            return float_results(total, states.field("special").to_numpy(), has_values, scale_of(dtype))
        if pa.types.is_decimal(dtype) or self.dtype == "decimal":
            result_type = pa.decimal128(38, scale_of(dtype)) if self.dtype == "decimal" else dtype
            return decimal_results(total, has_values, result_type)
        return whole_results(total, has_values)

    def is_always_readable(self, state_type: pa.StructType) -> bool:
        is_floating = pa.types.is_floating(state_type.field("unit").type)
        return self.dtype == "float64" or (is_floating and self.dtype is None)


@dataclass(frozen=True)
class Avg(_SumAndCount):
    """Compute the mean of a column, rounded once from the exact sum and the count.

    Examples
    --------
    >>> from aggr import avg
    >>> avg("bytes")
    avg('bytes')
    """

    name = "avg"
    takes = SUMMABLE_OR_TIMES
    aliases = ("mean",)
    returns = "float64, or a timestamp for timestamps; null if there are no values"

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        total = Limbs.of_arrow(states.field("sum"))
        dtype = states.field("unit").type
        counts = states.field("count").to_numpy()
        has_values = counts > 0
        if pa.types.is_timestamp(dtype):
            return pa.array(_rounded_quotients(total, np.maximum(counts, 1)), mask=~has_values).view(dtype)
        means = quotient(total, np.maximum(counts, 1), scale=scale_of(dtype))
        return pa.array(with_special(means, states.field("special").to_numpy()), mask=~has_values)

    def is_always_readable(self, state_type: pa.StructType) -> bool:
        return True


@dataclass(frozen=True)
class Squared(ExactSums):
    """The base class of functions such as `Var`, whose state is a count, an exact sum and an exact sum of squares."""

    keeps = "exact Σx, exact Σx², count"
    own_state = SQUARES


@dataclass(frozen=True)
class Var(Squared):
    """Compute the variance of a column, rounded once from exact Σx and Σx².

    Parameters
    ----------
    ddof : int
        The number that is subtracted from the count in the divisor: 1 for a sample, 0 for the population. This
        parameter affects only results, not states.

    Raises
    ------
    ValueError
        If ``ddof`` is not a whole number of at least 0.

    Examples
    --------
    >>> from aggr import var
    >>> var("bytes", ddof=0)
    var('bytes', ddof=0)
    """

    ddof: int = 1

    name = "var"
    reads = (MOMENTS,)
    aliases = ("variance",)
    returns = "float64; null if the count is not above ddof"

    def __post_init__(self) -> None:
        check_ddof(self.ddof)

    def least_count(self) -> int:
        return self.ddof + 1

    def result(self, sums: Sums) -> Floats:
        return self._variance(sums, root=False)

    def is_always_readable(self, state_type: pa.StructType) -> bool:
        return True

    def _variance(self, sums: Sums, root: bool) -> Floats:
        return sums.cross("squares", "sum", "sum").over_integers(sums.counts, sums.counts - self.ddof, root=root)


@dataclass(frozen=True)
class Stdev(Var):
    """Compute the standard deviation of a column, rounded once from exact Σx and Σx².

    Parameters
    ----------
    ddof : int
        The number that is subtracted from the count in the divisor: 1 for a sample, 0 for the population. This
        parameter affects only results, not states.

    Raises
    ------
    ValueError
        If ``ddof`` is not a whole number of at least 0.

    Examples
    --------
    >>> from aggr import stdev
    >>> stdev("bytes", ddof=0)
    stdev('bytes', ddof=0)
    """

    name = "stdev"
    aliases = ("stddev",)

    def result(self, sums: Sums) -> Floats:
        return self._variance(sums, root=True)

    def is_always_readable(self, state_type: pa.StructType) -> bool:
        return True


def _rounded_quotients(totals: Limbs, counts: Whole) -> Whole:
    """Return ``totals / counts`` as int64, shape (n,), rounded to the nearest whole number, halves to even."""
    low, _, fits = as_integers(totals, -(2**63), 2**63 - 1)
    quotients, remainders = np.divmod(low.view(np.int64), counts)
    quotients += (remainders > counts - remainders) | ((remainders == counts - remainders) & (quotients % 2 == 1))
    for i in np.flatnonzero(~fits).tolist():
        quotients[i] = round(Fraction(whole_number(totals, i), int(counts[i])))
    return quotients
