"""Fields: how one field of a state is merged, for all groups at once.

A function's state is a struct of fields, and each field knows one operation: add, least, greatest, or, the
exact sum, the buckets of a sketch, the earliest or latest event. A function that names its fields therefore
gets its merge for free.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.kernels.damage import DamagedState, checked_type, refuse_nulls
from aggr.kernels.grouped import add, ends_of_numbers, extreme_of, pick
from aggr.kernels.groups import Groups, check_lengths
from aggr.kernels.normalize import canonical
from aggr.kernels.sort_keys import has_order, order_keys
from aggr.kernels.superaccumulator import check_exact, merge_exactly


class Field(Protocol):
    """One field of a state: a commutative, associative operation with an identity."""

    def merge(self, column: pa.Array, groups: Groups) -> pa.Array:
        """Combine the rows of each group into one.

        Parameters
        ----------
        column : array, shape (rows,)
            The field of the states, of the field's own type.
        groups : Groups
            As many rows as ``column``.

        Returns
        -------
        array, shape (groups.n,)
            A group without rows gets the identity.

        Raises
        ------
        ValueError
            If the lengths differ.
        """


class CheckedField(Field, Protocol):
    """A field that can tell which states are damaged.

    A field whose ``merge`` makes the same check says so by ``checks_in_merge = True``, and is then checked once. Where
    that takes long, its ``unchecked`` is a field that leaves it out, for states that this very job has made.
    """

    def check(self, column: pa.Array) -> None:
        """Refuse what no state of this field holds.

        Parameters
        ----------
        column : array, shape (rows,)
            The field of states that are not null.

        Raises
        ------
        DamagedState
            Says what the field holds instead; the function puts its own name and the field's before that.
        """


class Add:
    """Whole numbers that add up; the identity is 0."""

    def merge(self, column: pa.Array, groups: Groups) -> pa.Array:
        """Add per group; a sum beyond int64 raises ``OverflowError``."""
        return pa.array(add(column.to_numpy(), groups))

    def check(self, column: pa.Array) -> None:
        """Refuse what are no whole numbers."""
        checked_type(column, pa.int64())


class Counts:
    """Counts, which add up and are never negative; the identity is 0."""

    checks_in_merge = True

    def merge(self, column: pa.Array, groups: Groups) -> pa.Array:
        """Add per group; a sum beyond int64 raises ``OverflowError``."""
        return pa.array(add(checked_type(column, pa.int64()).to_numpy(), groups, counts=True))

    def check(self, column: pa.Array) -> None:
        """Refuse what are no whole numbers, and negative ones."""
        numbers = checked_type(column, pa.int64()).to_numpy()
        if len(numbers) and numbers.min() < 0:
            raise DamagedState(f"counts {numbers.min()}")


class Or:
    """Flags, one a bit of an int8, that stay up once raised; the identity is 0."""

    def merge(self, column: pa.Array, groups: Groups) -> pa.Array:
        """Combine the bits per group."""
        check_lengths(len(column), groups)
        flags, given = np.zeros(groups.n, np.int8), column.to_numpy()
        raised = np.flatnonzero(given)  # few
        np.bitwise_or.at(flags, groups.ids[raised], given[raised])
        return pa.array(flags)

    def check(self, column: pa.Array) -> None:
        """Refuse what are no flags."""
        checked_type(column, pa.int8())


@dataclass(frozen=True)
class Extreme:
    """The least or the greatest value of any ordered type; the identity is null.

    Parameters
    ----------
    greatest : bool
        The greatest, otherwise the least.
    """

    greatest: bool

    def merge(self, column: pa.Array, groups: Groups) -> pa.Array:
        """Pick per group; null is skipped, NaN is greatest."""
        empty, column, groups = _present(column, groups)
        if column.type in (pa.float64(), pa.int64()):
            numbers = column.to_numpy()
            ends = ends_of_numbers(numbers, groups)
            if ends is not None:
                return pa.array(ends.high if self.greatest else ends.low, mask=ends.empty)
        best = pick(order_keys(column), groups, self.greatest)
        return _take(column, best, empty)

    def check(self, column: pa.Array) -> None:
        """Refuse values that have no order."""
        if not has_order(column.type):
            raise DamagedState(f"has type {column.type}, which has no order")


@dataclass(frozen=True)
class Ordered:
    """A value with what orders it, where that is least or greatest; ties go by value. The identity is null.

    Parameters
    ----------
    by : str
        The field of the column that orders; the other one is ``value``.
    greatest : bool
        The greatest, otherwise the least.
    """

    by: str
    greatest: bool

    def merge(self, column: pa.StructArray, groups: Groups) -> pa.StructArray:
        """Pick per group the least (by, value), or the greatest; null is skipped."""
        empty, column, groups = _present(column, groups)
        keys = order_keys(column.field(self.by))
        edge = extreme_of(keys, groups, self.greatest)
        tied = np.flatnonzero(keys == edge[groups.ids])
        values = order_keys(column.field("value").take(pa.array(tied)))
        best = pick(values, Groups._trusted(groups.ids[tied], groups.n), self.greatest)
        return _take(column, np.append(tied, -1)[best], empty)

    def check(self, column: pa.Array) -> None:
        """Refuse what is not a value and what orders it, both of types with an order, both there or neither."""
        dtype = column.type
        if not pa.types.is_struct(dtype) or sorted(f.name for f in dtype) != sorted([self.by, "value"]):
            raise DamagedState(f"has type {dtype}, not a struct of {self.by} and value")
        events = column.drop_null() if column.null_count else column
        for name in (self.by, "value"):
            if not has_order(dtype.field(name).type):
                raise DamagedState(f"has a {name} of type {dtype.field(name).type}, which has no order")
            refuse_nulls(events.field(name))


@dataclass(frozen=True)
class Exact:
    """An exact sum of floats (`aggr.kernels.superaccumulator`); the identity has no digits.

    Parameters
    ----------
    degree : int
        The most factors of a product that is summed: 2 for sums of floats and of their squares.
    """

    degree: int = 2

    def merge(self, column: pa.StructArray, groups: Groups) -> pa.StructArray:
        """Add per group without error."""
        return merge_exactly(column, groups)

    def check(self, column: pa.StructArray) -> None:
        """Refuse what no sum is written as."""
        check_exact(column, self.degree)


ADD = Add()
COUNT = Counts()
OR = Or()
LEAST = Extreme(greatest=False)
GREATEST = Extreme(greatest=True)
EARLIEST = Ordered("time", greatest=False)
LATEST = Ordered("time", greatest=True)
EXACT = Exact()


def _present(column: pa.Array, groups: Groups) -> tuple[pa.Array, pa.Array, Groups]:
    """Drop null rows; return an empty array of the column's type as well."""
    check_lengths(len(column), groups)
    empty = column.slice(0, 0)
    if column.null_count:
        groups = groups.filter(column.is_valid().to_numpy(zero_copy_only=False))
        column = column.drop_null()
    return empty, column, groups


def _take(column: pa.Array, rows: NDArray[np.intp], empty: pa.Array) -> pa.Array:
    """Take rows, null for -1, as the column's own type."""
    if not len(column):
        return pa.nulls(len(rows), empty.type)
    taken = column.take(pa.array(rows, mask=rows < 0))
    return canonical(taken)
