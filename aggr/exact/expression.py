"""Exact expressions for all groups: +, − and · are exact, and a quotient or its root is rounded once.

    n·Σxy − Σx·Σy        one compiled loop computes n·p ± a·b, where n is an integer, and p, a and b are exact numbers

An exact number consists of `Limbs`, which are divided by a power of ten. `aggr.exact.rounding` computes correctly
rounded quotients of exact numbers, and square roots of quotients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aggr.arrays import Floats, Whole
from aggr.compiling.jit import Int, compiled
from aggr.exact.rounding import quotient, ratios
from aggr.exact.superaccumulator import BITS, HALF, Limbs

_MAX_POWER = 18  # the exponent of the largest power of ten that fits int64


@dataclass(frozen=True, slots=True, eq=False)
class ExactNumbers:
    """``n`` exact numbers, one per group.

    Parameters
    ----------
    limbs : Limbs
        The digits of ``n`` numbers.
    scale : int
        The number of decimal places: each number in ``limbs`` is divided by ``10^scale``. Only numbers with equal
        scales can be added.

    Examples
    --------
    >>> two, three = (ExactNumbers.of(np.array([value])) for value in (2, 3))
    >>> (two * two - three * three).over(three), (three * three * two).over(two, root=True)
    (array([-1.66666667]), array([3.]))
    """

    limbs: Limbs
    scale: int = 0

    @classmethod
    def of(cls, integers: Whole) -> ExactNumbers:
        """Return integers, shape (n,), as exact numbers."""
        n = len(integers)
        return cls(_combine(factors=integers, number=_ones(n), sign=1, left=_zeros(n), right=_zeros(n)))

    def __mul__(self, other: ExactNumbers | int) -> ExactNumbers:
        """Multiply each number by the number of the same group in ``other``, or by one integer, which must fit into
        int64.
        """
        n = len(self.limbs.low)
        if isinstance(other, int):
            factors = np.full(n, other)
            multiples = _combine(factors=factors, number=self.limbs, sign=1, left=_zeros(n), right=_zeros(n))
            return ExactNumbers(multiples, self.scale)
        zeros = np.zeros(n, np.int64)
        product = _combine(factors=zeros, number=_zeros(n), sign=1, left=self.limbs, right=other.limbs)
        return ExactNumbers(product, self.scale + other.scale)

    def __add__(self, other: ExactNumbers | int) -> ExactNumbers:
        """Add to each number the number of the same group in ``other``, or one integer. Both operands must have the
        same scale; the scale of an integer is 0.
        """
        return self._plus(other, 1)

    def __sub__(self, other: ExactNumbers | int) -> ExactNumbers:
        """Subtract from each number the number of the same group in ``other``, or one integer. Both operands must have
        the same scale; the scale of an integer is 0.
        """
        return self._plus(other, -1)

    def _plus(self, other: ExactNumbers | int, sign: int) -> ExactNumbers:
        if isinstance(other, int):
            other = ExactNumbers.of(np.full(len(self.limbs.low), other))
        if self.scale != other.scale:
            raise ValueError(
                "exact numbers can be added only if they have the same number of decimal places; got "
                f"{self.scale} and {other.scale}; multiply the number with fewer places by an exact 1 that has the "
                "missing places"
            )
        n = len(self.limbs.low)
        ones = np.ones(n, np.int64)
        total = _combine(factors=ones, number=self.limbs, sign=sign, left=other.limbs, right=_ones(n))
        return ExactNumbers(total, self.scale)

    def signs(self) -> NDArray[np.int32]:
        """Return the sign of each number as -1, 0 or 1, shape (n,)."""
        return self.limbs.signs()

    def over(self, other: ExactNumbers, *, root: bool = False) -> Floats:
        """Return the correctly rounded quotients, or their square roots. A quotient is NaN if its divisor is 0.

        Parameters
        ----------
        other : ExactNumbers
            The divisors. For the root, no number may be negative.
        root : bool
            Whether to return the square root of the quotient.

        Returns
        -------
        array of float64, shape (n,)
        """
        dividend = self
        scale = self.scale - other.scale
        while scale < 0:
            step = min(_MAX_POWER, -scale)
            dividend = dividend * 10**step
            scale = scale + step
        return ratios(dividend.limbs, other.limbs, scale, root)

    def over_integers(self, *divisors: Whole, root: bool = False) -> Floats:
        """Divide the number of each group by the product of the group's integers in ``divisors``. Return the correctly
        rounded quotients, or their square roots. Each array of divisors has the shape (n,), and contains positive
        integers.
        """
        return quotient(self.limbs, *divisors, scale=self.scale, root=root)


def cross(counts: Whole, product: ExactNumbers, left: ExactNumbers, right: ExactNumbers) -> ExactNumbers:
    """Return ``n·Σab − Σa·Σb`` for each group: n² times the covariance of a and b, or n² times the variance if a and b
    are the same numbers.

    ``counts`` has n for each group, and ``product``, ``left`` and ``right`` are Σab, Σa and Σb.
    """
    limbs = _combine(factors=counts, number=product.limbs, sign=-1, left=left.limbs, right=right.limbs)
    return ExactNumbers(limbs, product.scale)


def scale_up(limbs: Limbs, places: Whole) -> Limbs:
    """Return each number multiplied by ``10^places``. ``places`` has the shape (n,) and is at least 0."""
    n = len(limbs.low)
    remaining = places
    while remaining.any():
        steps = np.minimum(remaining, _MAX_POWER)
        limbs = _combine(factors=10**steps, number=limbs, sign=1, left=_zeros(n), right=_zeros(n))
        remaining = remaining - steps
    return limbs


def _zeros(n: int) -> Limbs:
    return Limbs(np.zeros(0, np.int32), np.zeros(n + 1, np.int64), np.zeros(n, np.int64))


def _ones(n: int) -> Limbs:
    return Limbs(np.ones(n, np.int32), np.arange(n + 1), np.zeros(n, np.int64))


def _combine(factors: Whole, number: Limbs, sign: int, left: Limbs, right: Limbs) -> Limbs:
    """Return ``factors · number + sign · left · right`` for each group. ``factors`` are integers, and ``sign`` is 1 or
    -1.
    """
    return Limbs(*_combine_digits(factors, *number.parts, sign, *left.parts, *right.parts))


@compiled
def _combine_digits(
    factors: Whole,
    digits: NDArray[np.int32],
    offsets: Whole,
    levels: Whole,
    sign: Int,
    left_digits: NDArray[np.int32],
    left_offsets: Whole,
    left_levels: Whole,
    right_digits: NDArray[np.int32],
    right_offsets: Whole,
    right_levels: Whole,
) -> tuple[NDArray[np.int32], Whole, Whole]:
    """Return ``factors · number + sign · left · right`` as three arrays.

    The numbers are passed and returned as `Limbs.parts`: the digits, the offsets of each number's digits, and the level
    of each number's lowest digit. A digit of level n counts multiples of 2^(32·n).
    """
    n = len(factors)
    lowest_levels = np.zeros(n, np.int64)
    cell_offsets = np.zeros(n + 1, np.int64)
    for i in range(n):
        size = offsets[i + 1] - offsets[i]
        left_size = left_offsets[i + 1] - left_offsets[i]
        right_size = right_offsets[i + 1] - right_offsets[i]
        lowest = levels[i]
        end = levels[i] + size
        if left_size and right_size:
            product_lowest = left_levels[i] + right_levels[i]
            product_end = product_lowest + left_size + right_size
            lowest, end = (
                (min(lowest, product_lowest), max(end, product_end)) if size else (product_lowest, product_end)
            )
        lowest_levels[i] = lowest
        cell_offsets[i + 1] = cell_offsets[i] + end - lowest + 3
    cells = np.zeros(cell_offsets[n], np.int64)
    for i in range(n):
        # A factor is split into two digits. The product of either digit and a digit of the number fits int64.
        high = ((factors[i] >> (BITS - 1)) + 1) >> 1
        factor = factors[i] - (high << BITS)
        position = cell_offsets[i] + levels[i] - lowest_levels[i]
        for j in range(offsets[i], offsets[i + 1]):
            _add_product(cells, position, np.int64(digits[j]) * factor)
            _add_product(cells, position + 1, np.int64(digits[j]) * high)
            position += 1
        position = cell_offsets[i] + left_levels[i] + right_levels[i] - lowest_levels[i]
        for j in range(left_offsets[i], left_offsets[i + 1]):
            for k in range(right_offsets[i], right_offsets[i + 1]):
                product = sign * np.int64(left_digits[j]) * np.int64(right_digits[k])
                _add_product(cells, position + j + k - left_offsets[i] - right_offsets[i], product)
    balanced = np.empty(len(cells), np.int32)
    new_offsets = np.zeros(n + 1, np.int64)
    used_digits = np.int64(0)
    for i in range(n):
        carry = np.int64(0)
        end = used_digits
        for j in range(cell_offsets[i], cell_offsets[i + 1]):
            total = cells[j] + carry
            carry = (total + HALF) >> BITS
            balanced[used_digits] = total - (carry << BITS)
            used_digits += 1
            if balanced[used_digits - 1]:
                end = used_digits
        used_digits = end  # zeros above the highest digit that is not 0 are dropped
        new_offsets[i + 1] = used_digits
    return balanced[:used_digits].copy(), new_offsets, lowest_levels


@compiled
def _add_product(cells: Whole, at: Int, product: Int) -> None:
    """Add a product of two balanced digits to ``cells``: its lower digit at position ``at``, and its upper digit at
    position ``at + 1``.
    """
    carry = (product + HALF) >> BITS
    cells[at] += product - (carry << BITS)
    cells[at + 1] += carry
