"""Exact sums of rows, and of their squares: floats to the grid of `aggr.exact`, without error.

What is to be added is cut into slices, from the top: each a multiple of some 2^g, and so few bits wide that all partial
sums of a group stay below 2^53 of them, where doubles are exact.

    0.5   1e300   -1e300   0.25      one group
    slice of 1e300's size: 1e300 − 1e300 = 0      next slice: 0.75 · 2^…      nothing left

Sources: Rump, Ogita, Oishi, "Accurate floating-point summation" (2008) for the extraction by adding and subtracting a
large constant; Dekker (1971) for the product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.exact import BITS, Levels, Limbs
from aggr.groups import Groups, Runs

_CACHED_ROWS = 1 << 16  # temporaries of this many doubles stay in the second-level cache
_BIG = 2.0**480  # above, squares and Dekker's splitting overflow
_SMALL = 2.0**-450  # below, the low half of a square underflows
_WIDEST = 51  # bits that adding and subtracting a large constant can cut off
_LEAST = -1074  # the exponent of the least double

Floats = NDArray[np.float64]


def sum_exactly(parts: Sequence[Floats], groups: Groups) -> pa.StructArray:
    """Sum finite floats per group without error.

    Parameters
    ----------
    parts : arrays of float64, each of shape (rows,)
        A row's number is the sum of its parts; one part for plain floats, two for the halves of an int64.
    groups : Groups
        Of at most 2^24 rows, which `aggr.function.Function.reduce` sees to.

    Returns
    -------
    column of `aggr.exact.EXACT_TYPE`, shape (groups.n,)

    Examples
    --------
    >>> sum_exactly([np.array([1e16, 1.0, -1e16])], Groups.single(3)).to_pylist()
    [{'exponent': 0, 'limbs': [1]}]
    """
    if len(parts) == 1:
        return groups.once("sum", parts[0], lambda: _sum(parts, groups))
    return _sum(parts, groups)


def _sum(parts: Sequence[Floats], groups: Groups) -> pa.StructArray:
    levels: Levels = {}
    runs = groups.runs()
    for part in parts:
        for chunk, rows in _chunks(groups, runs, [part]):
            rows.add(levels, chunk[0].copy(), 0)
    return Limbs.of_levels(levels, groups.n).to_arrow()


def sum_squares(parts: Sequence[Floats], groups: Groups) -> pa.StructArray:
    """Sum the squares of finite numbers per group without error; a number is the sum of its parts.

    A square is the exact pair (p, x² − p), and ``(a + b)² = a² + 2ab + b²``. Only single floats may be as large
    or as small as floats get; parts of whole numbers are far from both ends.
    """
    levels: Levels = {}
    for chunks, rows in _chunks(groups, groups.runs(sort=True), parts):
        for i, chunk in enumerate(chunks):
            _add_squares(levels, chunk, rows)
            for other in chunks[i + 1 :]:
                for part in product(2.0 * chunk, other):
                    rows.add(levels, part, 0)
    return Limbs.of_levels(levels, groups.n).to_arrow()


def _add_squares(levels: Levels, x: Floats, rows: Rows) -> None:
    """Add squares; extreme magnitudes are scaled by a power of 2³², and their levels shifted back twice as far."""
    size = np.abs(x)
    if size.max() > _BIG or size.min() < _SMALL:
        big, small = size > _BIG, (size < _SMALL) & (size != 0)
        for extreme, scale in ((big, -17), (small, 19)):
            some, scaled = rows.where(extreme), x[extreme] * 2.0 ** (BITS * scale)
            for part in product(scaled, scaled):
                some.add(levels, part, -2 * scale)
        rest = ~(big | small)
        x, rows = x[rest], rows.where(rest)
    for part in product(x, x):
        rows.add(levels, part, 0)


def product(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Multiply exactly: the rounded product and its error (Dekker); nothing may over- or underflow."""
    p = a * b
    a_high, a_low = _split(a)
    b_high, b_low = (a_high, a_low) if b is a else _split(b)
    error = a_high * b_high
    error -= p
    error += a_high * b_low
    error += a_low * b_high
    error += a_low * b_low
    return p, error


def _split(x: Floats) -> tuple[Floats, Floats]:
    """Split into halves of 26 bits."""
    c = x * 134217729.0
    high = c - (c - x)
    return high, x - high


def _chunks(groups: Groups, runs: Runs | None, parts: Sequence[Floats]) -> Iterator[tuple[list[Floats], Rows]]:
    """Cut parts into chunks that stay in the cache, each with its rows; no chunk without rows."""
    most = int(groups.counts().max(initial=0))
    if runs is None:
        step = max(_CACHED_ROWS, 4 * groups.n)  # not many fewer rows than there are groups
    else:
        step, parts = _CACHED_ROWS, [groups.in_runs(part, runs) for part in parts]
    for start in range(0, len(groups), step):
        stop = min(start + step, len(groups))
        width = min(_WIDEST, 53 - (min(most, stop - start) - 1).bit_length())
        yield [part[start:stop] for part in parts], Rows.of(groups, runs, start, stop, width)


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a chunk: their group ids, how to add them up, and how many bits of each may be added exactly."""

    ids: NDArray[np.intp]
    n: int
    width: int
    total: Callable[[Floats], Floats]  # one sum for each of ``present``
    present: NDArray[np.intp] | slice

    @classmethod
    def of(cls, groups: Groups, runs: Runs | None, start: int, stop: int, width: int) -> Rows:
        """Take some rows, in runs if they come in runs."""
        if runs is None:
            return cls.scattered(groups.ids[start:stop], groups.n, width)
        first, end = np.searchsorted(runs.starts, [start, stop])
        inside = runs.starts[first:end] - start
        if not len(inside) or inside[0]:  # the first run began before
            first, inside = first - 1, np.append(0, inside)
        present = runs.present[first:end]

        def total(x: Floats) -> Floats:
            return cast(Floats, np.add.reduceat(x, inside))

        return cls(runs.ids[start:stop], groups.n, width, total, present)

    @classmethod
    def scattered(cls, ids: NDArray[np.intp], n: int, width: int) -> Rows:
        """Take rows in any order."""

        def total(x: Floats) -> Floats:
            return cast(Floats, np.bincount(ids, x, minlength=n))

        return cls(ids, n, width, total, slice(None))

    def where(self, rows: NDArray[np.bool_]) -> Rows:
        """Keep the rows that are true."""
        return Rows.scattered(self.ids[rows], self.n, self.width)

    def add(self, levels: Levels, rest: Floats, shift: int) -> None:
        """Add numbers to the levels, from the highest slice down; ``rest`` is used up."""
        first = True
        while len(rest):
            top = max(float(rest.max()), -float(rest.min()))
            if top == 0.0:
                return
            exponent = math.frexp(top)[1]
            if exponent > 990:  # the rounding constant would overflow
                big = np.abs(rest) >= 2.0**900
                self.where(big).add(levels, rest[big] * 2.0**-512, shift + 512 // BITS)
                self.where(~big).add(levels, rest[~big], shift)
                return
            grid = max(exponent - self.width, _LEAST)
            large = math.ldexp(1.5, 52 + grid)
            multiples = rest + large
            multiples -= large
            self._put(levels, np.ldexp(self.total(multiples), -grid).astype(np.int64), grid, shift)
            rest -= multiples
            if not first and np.count_nonzero(rest != 0.0) * 8 < len(rest):  # a few rows alone go deeper
                deeper = rest != 0.0
                self.where(deeper).add(levels, rest[deeper], shift)
                return
            first = False

    def _put(self, levels: Levels, sums: NDArray[np.int64], grid: int, shift: int) -> None:
        """Add multiples of 2^grid, each below 2^53, to the two levels they span."""
        k, above = divmod(grid, BITS)
        high = sums >> (BITS - above)
        low = (sums - (high << (BITS - above))) << above
        for level, part in ((k + shift, low), (k + shift + 1, high)):
            if level not in levels:
                levels[level] = np.zeros(self.n, np.int64)
            levels[level][self.present] += part
