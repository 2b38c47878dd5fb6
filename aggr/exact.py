"""Exact sums of floats: a superaccumulator on a grid of powers of 2³², for all groups at once.

A number is kept as balanced digits ``d[j] · 2^(32·(low + j))`` with ``-2^31 <= d[j] < 2^31``. Every real number
on the grid has exactly one such form without leading and trailing zeros, so equal sums have equal bits,
whatever the order in which they were added up.

    rows      0.5   1e300   -1e300   0.25          one group
    levels    k = 30: 0     k = -1: 0.75 · 2^32    int64 per group and level, while rows come in
    state     exponent = -1, limbs = [-1073741824, 1]   (1 − 0.25, on the grid of 2^-32)

Sources: Neal, "Fast exact summation using small and large superaccumulators" (2015); Rump, Ogita, Oishi,
"Accurate floating-point summation" (2008) for the extraction by adding and subtracting a large constant;
Dekker (1971) for the product.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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

_MOST_ROWS = 1 << 20  # a sum of this many grid multiples below 2^33 stays below 2^53
_CACHED_ROWS = 1 << 16  # temporaries of this many doubles stay in the second-level cache
_NO_LEVEL = 1 << 20
_BIG = 2.0**480  # above, squares and Dekker's splitting overflow
_SMALL = 2.0**-450  # below, the low half of a square underflows

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


def sum_exactly(parts: Sequence[NDArray[np.float64]], groups: Groups) -> pa.StructArray:
    """Sum finite floats per group without error.

    Parameters
    ----------
    parts : arrays of float64, each of shape (rows,)
        A row's number is the sum of its parts; one part for plain floats, two for the halves of an int64.
    groups : Groups

    Returns
    -------
    column of `EXACT_TYPE`, shape (groups.n,)

    Examples
    --------
    >>> sum_exactly([np.array([1e16, 1.0, -1e16])], Groups.single(3)).to_pylist()
    [{'exponent': 0, 'limbs': [1]}]
    """
    if len(parts) == 1:
        return groups.once("sum", parts[0], lambda: _sum(parts, groups))
    return _sum(parts, groups)


def _sum(parts: Sequence[NDArray[np.float64]], groups: Groups) -> pa.StructArray:
    levels: Levels = {}
    step = _step(groups.n)
    for part in parts:
        for start in range(0, len(part), step):
            chunk, ids = part[start : start + step].copy(), groups.ids[start : start + step]
            _add_chunk(levels, chunk, ids, groups.n, 0)
    return Limbs.of_levels(levels, groups.n).to_arrow()


def merge_exactly(sums: pa.StructArray, groups: Groups) -> pa.StructArray:
    """Add exact sums per group."""
    return _gather(sums, groups).to_arrow()


def sum_squares(parts: Sequence[NDArray[np.float64]], groups: Groups) -> pa.StructArray:
    """Sum the squares of finite numbers per group without error; a number is the sum of its parts.

    A square is the exact pair (p, x² − p), and ``(a + b)² = a² + 2ab + b²``. Only single floats may be as large
    or as small as floats get; parts of whole numbers are far from both ends.
    """
    levels: Levels = {}
    step = _step(groups.n)
    for start in range(0, len(groups), step):
        ids = groups.ids[start : start + step]
        chunks = [part[start : start + step] for part in parts]
        for i, chunk in enumerate(chunks):
            _add_squares(levels, chunk, ids, groups.n)
            for other in chunks[i + 1 :]:
                for part in product(2.0 * chunk, other):
                    _add_chunk(levels, part, ids, groups.n, 0)
    return Limbs.of_levels(levels, groups.n).to_arrow()


def _add_squares(levels: Levels, x: NDArray[np.float64], ids: NDArray[np.intp], n: int) -> None:
    """Add squares; extreme magnitudes are scaled by a power of 2³², and their levels shifted back twice as far."""
    size = np.abs(x)
    extreme = (size > _BIG) | ((size < _SMALL) & (size != 0))
    if extreme.any():
        for rows, scale in ((size > _BIG, -17), (extreme & (size < _SMALL), 19)):
            scaled = x[rows] * 2.0 ** (BITS * scale)
            for part in product(scaled, scaled):
                _add_chunk(levels, part, ids[rows], n, -2 * scale)
        x, ids = x[~extreme], ids[~extreme]
    for part in product(x, x):
        _add_chunk(levels, part, ids, n, 0)


def _step(n: int) -> int:
    """Choose how many rows to add at once: cached, but not many fewer than there are groups."""
    return min(_MOST_ROWS, max(_CACHED_ROWS, 4 * n))


def product(a: NDArray[np.float64], b: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Multiply exactly: the rounded product and its error (Dekker); nothing may over- or underflow."""
    p = a * b
    a_high, a_low = _split(a)
    b_high, b_low = (a_high, a_low) if b is a else _split(b)
    error = ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low
    return p, error


def _split(x: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Split into halves of 26 bits."""
    c = x * 134217729.0
    high = c - (c - x)
    return high, x - high


def _add_chunk(levels: Levels, rest: NDArray[np.float64], ids: NDArray[np.intp], n: int, shift: int) -> None:
    """Add one chunk of at most `_MOST_ROWS` rows, from the highest level down; ``rest`` is used up."""
    while len(rest):
        top = max(float(rest.max()), -float(rest.min()))
        if top == 0.0:
            return
        exponent = math.frexp(top)[1]
        if exponent > 990:  # the rounding constant would overflow
            big = np.abs(rest) >= 2.0**900
            _add_chunk(levels, rest[big] * 2.0**-512, ids[big], n, shift + 16)
            rest, ids = rest[~big], ids[~big]
            continue
        k = -((33 - exponent) // BITS)
        large = math.ldexp(1.5, 52 + BITS * k)
        multiples = rest + large
        multiples -= large
        sums = np.ldexp(np.bincount(ids, multiples, minlength=n), -BITS * k).astype(np.int64)
        level = levels.get(k + shift)
        if level is None:
            levels[k + shift] = sums
        else:
            level += sums
        rest -= multiples
        if k < -1 and np.count_nonzero(rest) * 8 < len(rest):  # a few rows alone go deeper
            deeper = np.flatnonzero(rest)
            rest, ids = rest[deeper], ids[deeper]


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
    for start in range(0, len(digits), _MOST_ROWS):  # 2^20 digits of 31 bits are exact in a double
        part = slice(start, start + _MOST_ROWS)
        total += np.bincount(cell[part], digits[part], minlength=len(total)).astype(np.int64)
    return Limbs(total.reshape(height, groups.n), low).normalized()
