"""Exact sums of floats: a superaccumulator on a grid of powers of 2³², for all groups at once.

A number is kept as balanced digits ``d[j] · 2^(32·(low + j))`` with ``-2^31 <= d[j] < 2^31``. Every real number
on the grid has exactly one such form without leading and trailing zeros, so equal sums have equal bits,
whatever the order in which they were added up.

    0.75 = 1 − 0.25, on the grid of 2^-32:   exponent = -1, limbs = [-1073741824, 1]

Source: Neal, "Fast exact summation using small and large superaccumulators" (2015).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.groups import Groups
from aggr.ragged import Ragged

BITS = 32
HALF = np.int64(1 << (BITS - 1))
EXACT_TYPE = pa.struct([("exponent", pa.int16()), ("limbs", pa.list_(pa.int32()))])

_MOST_DIGITS = 1 << 20  # a sum of this many digits is exact in a double
_NO_LEVEL = 1 << 20

Levels = dict[int, NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class Limbs:
    """``n`` exact numbers as a matrix of digits, ``value[i] = Σ digits[j, i] · 2^(32·(low[i] + j))``.

    ``digits`` has shape (levels, n), ``low`` shape (n,): numbers of very different size stand side by side without
    making the matrix high.
    """

    digits: NDArray[np.int64]
    low: NDArray[np.int64]

    @classmethod
    def of_levels(cls, levels: Levels, n: int) -> Limbs:
        """Gather the levels and normalize them."""
        low = min(levels, default=0)
        digits = np.zeros((max(levels, default=0) - low + 1, n), np.int64)
        for k, sums in levels.items():
            digits[k - low] += sums
        return cls(digits, np.full(n, low)).normalized()

    @classmethod
    def of_arrow(cls, sums: pa.StructArray) -> Limbs:
        """Read a column of exact sums, one number a row."""
        return _gather(sums, Groups.each(len(sums)))

    def of(self, rows: NDArray[Any]) -> Limbs:
        """Take some of the numbers, and no more levels than they need."""
        digits = self.digits[:, rows]
        used = np.flatnonzero(digits.any(axis=1))
        return Limbs(digits[: used[-1] + 1 if len(used) else 1], self.low[rows])

    def lengths(self) -> NDArray[np.int64]:
        """Count the levels that each number reaches up to, shape (n,)."""
        lengths: NDArray[np.int64] = len(self.digits) - np.argmax((self.digits != 0)[::-1], axis=0)
        return lengths

    def normalized(self) -> Limbs:
        """Carry until every digit is balanced; digits must be below 2^62 in magnitude."""
        rows: list[NDArray[np.int64]] = []
        carry = np.zeros(self.digits.shape[1], np.int64)
        for digit in self.digits:
            total = digit + carry
            carry = (total + HALF) >> BITS
            rows.append(total - (carry << BITS))
        while carry.any():
            total, carry = carry, (carry + HALF) >> BITS
            rows.append(total - (carry << BITS))
        return Limbs(np.array(rows, np.int64).reshape(len(rows), self.digits.shape[1]), self.low)

    def to_arrow(self) -> pa.StructArray:
        """Write normalized numbers without leading and trailing zero digits; zero has none at all."""
        used = self.digits.T != 0
        first = np.argmax(used, axis=1)
        lengths = np.where(used.any(axis=1), self.lengths() - first, 0)
        place = np.arange(len(self.digits))
        inside = (place >= first[:, None]) & (place < (first + lengths)[:, None])
        limbs = Ragged(lengths, self.digits.T[inside].astype(np.int32)).to_arrow()
        exponent = np.where(lengths > 0, first + self.low, 0).astype(np.int16)
        return pa.StructArray.from_arrays([pa.array(exponent), limbs], fields=list(EXACT_TYPE))


def merge_exactly(sums: pa.StructArray, groups: Groups) -> pa.StructArray:
    """Add exact sums per group."""
    return _gather(sums, groups).to_arrow()


def _gather(sums: pa.StructArray, groups: Groups) -> Limbs:
    """Add the digits of exact sums per group, each group from its own lowest level up."""
    lengths, digits = Ragged.of(sums.field("limbs"))
    if not len(digits):
        return Limbs(np.zeros((1, groups.n), np.int64), np.zeros(groups.n, np.int64))
    holds = lengths > 0
    exponents, ids = sums.field("exponent").to_numpy()[holds].astype(np.int64), groups.ids[holds]
    low = np.full(groups.n, _NO_LEVEL)
    np.minimum.at(low, ids, exponents)
    low[low == _NO_LEVEL] = 0
    above = exponents - low[ids]
    level = np.repeat(above, lengths[holds]) + Ragged(lengths, digits).positions()
    height = int((above + lengths[holds]).max())
    cell = level * groups.n + np.repeat(ids, lengths[holds])
    total = np.zeros(height * groups.n, np.int64)
    for start in range(0, len(digits), _MOST_DIGITS):
        part = slice(start, start + _MOST_DIGITS)
        total += np.bincount(cell[part], digits[part], minlength=len(total)).astype(np.int64)
    return Limbs(total.reshape(height, groups.n), low).normalized()
