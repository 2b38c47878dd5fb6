"""Exponents: from which power of two to which the doubles of each group reach."""

from __future__ import annotations

import numpy as np

from aggr.arrays import Ids, Whole
from aggr.compiling.jit import Int, compiled

LEAST = -1074  # the exponent of the least double
_EXPONENT = 0x7FF
_NONE = 1 << 20  # beyond every exponent


@compiled
def exponent_range(bits: Whole, ids: Ids, n: int) -> tuple[Whole, Whole]:
    """Find the lowest and the highest exponent of each group's numbers other than 0; the lowest is higher if none.

    ``bits`` are those of the numbers, shape (parts, rows).
    """
    low, high = np.full(n, _NONE), np.full(n, -_NONE)
    for part in range(bits.shape[0]):
        for i in range(bits.shape[1]):
            if bits[part, i] << 1:
                group = np.uint64(ids[i])
                exponent = max((bits[part, i] >> 52) & _EXPONENT, 1) - 1 + LEAST
                low[group] = min(low[group], exponent)
                high[group] = max(high[group], exponent)
    return low, high


@compiled
def sorted_exponents(bits: Whole, offsets: Whole) -> tuple[Whole, Whole]:
    """Do so for numbers that are sorted by group; exponents count from 1, as a double holds them."""
    n = len(offsets) - 1
    low, high = np.empty(n, np.int64), np.empty(n, np.int64)
    for group in range(n):
        mine = bits[offsets[group] : offsets[group + 1]]
        least: Int = np.int64(_EXPONENT)
        most: Int = np.int64(1)
        for i in range(len(mine)):
            biased = max((mine[i] >> 52) & _EXPONENT, 1)
            least = min(least, biased if mine[i] << 1 else np.int64(_EXPONENT))
            most = max(most, biased if mine[i] << 1 else np.int64(1))
        low[group], high[group] = min(least, most), most
    return low, high
