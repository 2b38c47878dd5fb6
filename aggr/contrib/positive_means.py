"""geometric_mean and harmonic_mean, from exact sums of logarithms and reciprocals. Each term is rounded once.

    x = m · 2^e with 1 <= m < 2
    geometric_mean      Σ(e + log2 m)       log2 m is rounded to 53 binary places
    harmonic_mean       Σ(1/m · 2^-e)       1/m is rounded to the nearest double

The rounding of a term depends only on its row, so that sums have the same bits in any order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.extend import (
    COUNT,
    EXACT,
    OR,
    SUMMABLE,
    ExactNumbers,
    Field,
    Function,
    Limbs,
    Numbers,
    State,
    Values,
    sum_products,
)
from aggr.extend.columns import Floats, Whole
from aggr.extend.exact import NAN, NEGATIVE, PLACES, POSITIVE, binary_logarithm, power_of_two

# The range of the exponents of doubles. The exponents of means are computed from sums in states, and clipped to this
# range, because a damaged state may have a sum of any size.
_LEAST = -1074
_GREATEST = 1023
_ZERO = NEGATIVE  # a zero is recorded by the flag of -inf, which is the logarithm of 0


@dataclass(frozen=True)
class TermsState(State):
    """The base class of states with an exact sum of one term per row, such as the logarithm of the row's number.

    Only positive, finite numbers are summed. Zeros, infinities, NaN and negative numbers are recorded as flags.
    """

    counted_by: ClassVar[tuple[str, ...]] = ("count",)

    @property
    def fields(self) -> Mapping[str, Field]:
        return {"count": COUNT, "special": OR, "sum": EXACT}

    def reduce_values(self, values: Values) -> Mapping[str, pa.Array]:
        x = values.floats.array
        groups = values.groups
        is_plain = (x > 0) & (x < np.inf)
        flags = np.select([is_plain, x == 0, x > 0], [0, _ZERO, POSITIVE], NAN).astype(np.int8)
        special = np.zeros(groups.n, np.int8)
        np.bitwise_or.at(special, groups.ids[~is_plain], flags[~is_plain])
        fractions, exponents = np.frexp(np.where(is_plain, x, 1.0))
        parts, shifts = self.terms(2 * fractions, exponents.astype(np.int64) - 1)
        terms = [Numbers(np.where(is_plain, part, 0.0), groups) for part in parts]
        weights = values.weight_parts or [Numbers(np.ones(len(x)), groups)]
        return {
            "count": pa.array(values.counts),
            "special": pa.array(special),
            "sum": sum_products(terms, weights, shifts),
        }

    def terms(self, mantissas: Floats, exponents: Whole) -> tuple[list[Floats], Whole | None]:
        """Return the term of each row as a list of arrays of doubles, and an array of exponents or None. Each array has
        the shape (rows,).

        The number of a row is ``mantissa · 2^exponent``, with a mantissa from 1 to below 2. The term of a row is the
        exact sum of the row's doubles in the returned list. If exponents are returned, this sum is multiplied by 2 to
        the power of the row's returned exponent.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement terms")


@dataclass(frozen=True)
class LogarithmsState(TermsState):
    """The state of `GeometricMean`: the exact sum of the binary logarithms of positive numbers."""

    name = "geometric_mean"

    def terms(self, mantissas: Floats, exponents: Whole) -> tuple[list[Floats], Whole | None]:
        return [exponents.astype(np.float64), np.ldexp(binary_logarithm(mantissas).astype(np.float64), -PLACES)], None


@dataclass(frozen=True)
class ReciprocalsState(TermsState):
    """The state of `HarmonicMean`: the exact sum of the reciprocals of positive numbers."""

    name = "harmonic_mean"

    def terms(self, mantissas: Floats, exponents: Whole) -> tuple[list[Floats], Whole | None]:
        return [1.0 / mantissas], -exponents


@dataclass(frozen=True)
class _PositiveMean(Function):
    """A mean of numbers of at least 0, computed from an exact sum of one term per row."""

    takes = SUMMABLE
    takes_weights = True
    returns = "float64; null if there are no values"

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        counts, special = (states.field(name).to_numpy() for name in ("count", "special"))
        means = self._mean(ExactNumbers(Limbs.of_arrow(states.field("sum"))), np.maximum(counts, 1), special)
        return pa.array(np.where(special & NAN, np.nan, means), mask=counts == 0)

    def _mean(self, sums: ExactNumbers, counts: Whole, special: NDArray[np.int8]) -> Floats:
        raise NotImplementedError(f"{type(self).__name__} must implement _mean")


@dataclass(frozen=True)
class GeometricMean(_PositiveMean):
    """Compute the geometric mean of a column of numbers of at least 0: the n-th root of the product of its n values.

    The result is 0 if there is a zero, and infinite if there is an infinity. It is NaN if there are both, or if there
    is a negative number or NaN.

    Examples
    --------
    >>> from aggr import geometric_mean
    >>> geometric_mean("growth")
    geometric_mean('growth')
    """

    name = "geometric_mean"
    keeps = "exact Σ log2 x with each logarithm rounded to 53 binary places, count"
    guarantee = "a relative error below 2^-51; the same bits in any order"
    own_state = LogarithmsState()

    def _mean(self, sums: ExactNumbers, counts: Whole, special: NDArray[np.int8]) -> Floats:
        integer_parts = np.clip(np.floor(sums.over_integers(counts)), _LEAST, _GREATEST).astype(np.int64)
        fractions = (sums - ExactNumbers.of(integer_parts) * ExactNumbers.of(counts)).over_integers(counts)
        steps = 1 << (PLACES - 1)
        carry, tops = np.divmod(np.rint(np.clip(fractions, -1, 1) * steps).astype(np.int64), steps)
        exponents = integer_parts + carry
        # The mean of the logarithms of the greatest doubles is rounded up to 1024, but the doubles end below 2^1024.
        means = np.where(
            exponents > _GREATEST,
            np.finfo(np.float64).max,
            np.ldexp(power_of_two(tops, steps), np.minimum(exponents, _GREATEST)),
        )
        zero_or_infinity = special & (POSITIVE | _ZERO)
        return np.select(
            [zero_or_infinity == 0, zero_or_infinity == _ZERO, zero_or_infinity == POSITIVE],
            [means, 0.0, np.inf],
            np.nan,
        )


@dataclass(frozen=True)
class HarmonicMean(_PositiveMean):
    """Compute the harmonic mean of a column of numbers of at least 0: the count divided by the sum of the reciprocals.

    The result is 0 if there is a zero, and NaN if there is a negative number or NaN.

    Examples
    --------
    >>> from aggr import harmonic_mean
    >>> harmonic_mean("km_per_hour")
    harmonic_mean('km_per_hour')
    """

    name = "harmonic_mean"
    keeps = "exact Σ 1/x with each reciprocal rounded to 53 bits, count"
    guarantee = "a relative error below 2^-51; the same bits in any order"
    own_state = ReciprocalsState()

    def _mean(self, sums: ExactNumbers, counts: Whole, special: NDArray[np.int8]) -> Floats:
        means = ExactNumbers.of(counts).over(sums)
        return np.select([special & _ZERO != 0, sums.signs() == 0], [0.0, np.inf], means)
