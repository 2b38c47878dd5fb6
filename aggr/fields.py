"""Fields: how one field of a state is merged, for all groups at once.

A function's state is a struct of fields, and each field knows one operation: add, least, greatest, or, the
exact sum, the buckets of a sketch, the earliest or latest event. A function that names its fields therefore
has its merge for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from aggr.compiled import compiled
from aggr.exact import merge_exactly
from aggr.groups import Groups
from aggr.order import HIGHEST, LOWEST, order_keys


class Field(Protocol):
    """One field of a state: a commutative, associative operation with an identity."""

    def merge(self, column: pa.Array, groups: Groups) -> pa.Array:
        """Combine the rows of each group into one; a group without rows gets the identity."""


class Add:
    """Whole numbers that add up; the identity is 0."""

    def merge(self, column: pa.Array, groups: Groups) -> pa.Array:
        """Add per group; a sum beyond int64 raises ``OverflowError``."""
        return pa.array(add(column.to_numpy(), groups))


class Or:
    """Flags, one a bit of an int8, that stay up once raised; the identity is 0."""

    def merge(self, column: pa.Array, groups: Groups) -> pa.Array:
        """Combine the bits per group."""
        flags = np.zeros(groups.n, np.int8)
        np.bitwise_or.at(flags, groups.ids, column.to_numpy())
        return pa.array(flags)


@dataclass(frozen=True)
class Extreme:
    """The least or the greatest value of any ordered type; the identity is null."""

    greatest: bool

    def merge(self, column: pa.Array, groups: Groups) -> pa.Array:
        """Pick per group; null is skipped, NaN is greatest."""
        empty, column, groups = _present(column, groups)
        if column.type in (pa.float64(), pa.int64()):
            numbers = column.to_numpy()
            ends = ends_of_numbers(numbers, groups)
            if ends is not None:
                return ends[self.greatest]
        best = pick(order_keys(column), groups, self.greatest)
        return _take(column, best, empty)


@dataclass(frozen=True)
class Event:
    """A value with its event time, kept for the earliest or the latest time; ties go by value."""

    latest: bool

    def merge(self, column: pa.StructArray, groups: Groups) -> pa.StructArray:
        """Pick per group the least (time, value), or the greatest; null is skipped."""
        empty, column, groups = _present(column, groups)
        times = order_keys(column.field("time"))
        edge = _extreme(times, groups, self.latest)
        tied = np.flatnonzero(times == edge[groups.ids])
        values = order_keys(column.field("value").take(pa.array(tied)))
        best = pick(values, Groups(groups.ids[tied], groups.n), self.latest)
        return _take(column, np.append(tied, -1)[best], empty)


class Exact:
    """An exact sum of floats (`aggr.exact`); the identity has no digits."""

    def merge(self, column: pa.StructArray, groups: Groups) -> pa.StructArray:
        """Add per group without error."""
        return merge_exactly(column, groups)


ADD = Add()
OR = Or()
LEAST = Extreme(greatest=False)
GREATEST = Extreme(greatest=True)
EARLIEST = Event(latest=False)
LATEST = Event(latest=True)
EXACT = Exact()


def add(values: NDArray[np.int64], groups: Groups) -> NDArray[np.int64]:
    """Add int64 per group, shape (groups.n,); a sum beyond int64 raises ``OverflowError``."""
    reach = float(np.abs(values.astype(np.float64)).sum())
    if reach < 2.0**53:  # every partial sum is exact in a double
        return np.bincount(groups.ids, values, minlength=groups.n).astype(np.int64)
    total = np.zeros(groups.n, np.int64)
    np.add.at(total, groups.ids, values)
    if reach >= 2.0**62:
        near = np.bincount(groups.ids, values.astype(np.float64), minlength=groups.n)
        if (np.abs(near - total) > 2.0**62).any():
            raise OverflowError("a count grew beyond int64")
    return total


def pick(keys: NDArray[np.int64], groups: Groups, greatest: bool) -> NDArray[np.intp]:
    """Find per group a row with the least key, or the greatest; -1 where a group has no rows."""
    edge = _extreme(keys, groups, greatest)
    best = np.full(groups.n, -1, np.intp)
    rows = np.flatnonzero(keys == edge[groups.ids])
    best[groups.ids[rows]] = rows
    return best


def _extreme(keys: NDArray[np.int64], groups: Groups, greatest: bool) -> NDArray[np.int64]:
    low, high, _ = _ends(keys, groups.ids, groups.n, False)
    return high if greatest else low


@compiled
def _ends(
    numbers: NDArray[np.int64], ids: NDArray[np.intp], n: int, floats: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Find the least and the greatest of each group, and which are empty; doubles, none NaN, come and go as bits."""
    low, high = np.full(n, HIGHEST), np.full(n, LOWEST)
    for i in range(len(numbers)):
        number, group = numbers[i], ids[i]
        if floats:
            number ^= (number >> 63) & HIGHEST  # the order of doubles, and -0.0 before 0.0
        low[group], high[group] = min(low[group], number), max(high[group], number)
    empty = low > high
    if floats:
        for group in range(n):
            low[group] ^= (low[group] >> 63) & HIGHEST
            high[group] ^= (high[group] >> 63) & HIGHEST
    return low, high, empty


def ends_of_numbers(numbers: NDArray[Any], groups: Groups) -> tuple[pa.Array, pa.Array] | None:
    """Find the least and the greatest of each group of int64 or of doubles; None where there is a NaN among them."""
    return groups.once("ends", numbers, lambda: _find_ends(numbers, groups))


def _find_ends(numbers: NDArray[Any], groups: Groups) -> tuple[pa.Array, pa.Array] | None:
    floats = numbers.dtype == np.float64
    if floats and np.isnan(groups.span(numbers)[1]):
        return None
    *ends, empty = _ends(numbers.view(np.int64), groups.ids, groups.n, floats)
    low, high = (pa.array(end.view(numbers.dtype), mask=empty) for end in ends)
    return low, high


def _present(column: pa.Array, groups: Groups) -> tuple[pa.Array, pa.Array, Groups]:
    """Drop null rows; return an empty array of the column's type as well."""
    empty = column.slice(0, 0)
    if column.null_count:
        groups = groups.where(column.is_valid().to_numpy(zero_copy_only=False))
        column = column.drop_null()
    return empty, column, groups


def _take(column: pa.Array, rows: NDArray[np.intp], empty: pa.Array) -> pa.Array:
    """Take rows, null for -1, as the column's own type."""
    if not len(column):
        return pa.nulls(len(rows), empty.type)
    taken = column.take(pa.array(rows, mask=rows < 0))
    return canonical(taken)


def canonical(column: pa.Array) -> pa.Array:
    """Give every NaN the same bits, so that what is equal is equal to the bit."""
    if pa.types.is_floating(column.type):
        return pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)
    if pa.types.is_struct(column.type):
        children = [canonical(column.field(i)) for i in range(column.type.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(column.type), mask=column.is_null())
    return column
