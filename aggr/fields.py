"""Fields: how each field of a state is merged, for all groups at once.

The state of a function is a struct of fields. Each field defines one operation, such as add, minimum, maximum, bitwise
or, an exact sum, the buckets of a sketch, or the earliest or latest event. A function that declares its fields
therefore does not implement a merge.
"""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from aggr.arrays import Flags, Ids, Whole
from aggr.arrow.damaged_state import DamagedState, field_of_type, refuse_nulls
from aggr.arrow.normalize import canonical
from aggr.arrow.sort_keys import has_order, order_keys
from aggr.exact.number_columns import kept_type, unit_of
from aggr.exact.scaled_sums import check_scaled, merge_scaled, subtract_scaled
from aggr.exact.superaccumulator import check_exact, merge_exactly, subtract_exactly
from aggr.groups.groups import Groups, check_lengths
from aggr.groups.numbers import Numbers, extreme_by_group, find_extreme_rows, sum_by_group
from aggr.values import Values

ROWS_NOT_IN_STATE = "the state does not contain these rows; subtract only rows that it contains"
_REDUCE_AGAIN = "; reduce the remaining rows instead"


class CannotSubtract(ValueError):
    """Raised if rows cannot be subtracted from a state, because the state does not contain these rows, or because the
    state of the remaining rows cannot be computed.

    Parameters
    ----------
    row : int
        The row number of the first state from which rows cannot be subtracted.
    reason : str
        The last part of the message.
    where : str
        The name of the state. Without it, the message names the row number.
    """

    def __init__(self, row: int, reason: str, where: str = "") -> None:
        """Create the error; its message consists of the state and the reason."""
        super().__init__(f"rows cannot be subtracted from {where or f'the state in row {row}'}: {reason}")
        self.row = row
        self.reason = reason
        self.where = where


class Field(ABC):
    """One field of a state: a commutative and associative operation with an identity."""

    @property
    def description(self) -> str:
        """A few words about the values of the field and how they are merged, for the catalogue of functions.

        By default, this is the beginning of the docstring of the class, without the words "The field of a state".
        """
        beginning = re.split(r"[;.](?=\s|$)| \(|, a column|, ``", inspect.getdoc(self) or type(self).__name__)[0]
        words = re.sub("^The field of a state(:| that (lists|holds|keeps)) ", "", beginning).replace("``", "`")
        return words[0].lower() + words[1:]

    @abstractmethod
    def merge(self, column: pa.Array, groups: Groups) -> pa.Array:
        """Combine the values that this field has in the states of each group into one value.

        Parameters
        ----------
        column : array, shape (rows,)
            The values of the field in undamaged states, in the field's own type.
        groups : Groups
            The groups, with as many rows as ``column``.

        Returns
        -------
        array, shape (groups.n,)
            A group without rows gets the identity.

        Raises
        ------
        ValueError
            If the lengths differ.
        OverflowError
            If a number grows beyond int64.
        """

    def reduce(self, values: Values) -> pa.Array:
        """Combine the values of each group into one. The values have the field's own type.

        Parameters
        ----------
        values : Values
            Values without nulls.

        Returns
        -------
        array, shape (groups.n,)
        """
        return self.merge(values.array, values.groups)

    def check(self, column: pa.Array) -> None:
        """Raise an error for values that an undamaged state cannot have in this field. By default, all values are
        accepted.

        Parameters
        ----------
        column : array, shape (rows,)
            The field in states that are not null.

        Raises
        ------
        DamagedState
            If a value is impossible. The message describes only the value: the function that reads the states puts its
            own name and the name of the field before the message.
        """
        return

    def check_before_merge(self, column: pa.Array) -> None:
        """Raise an error for invalid values that neither `merge_checked` nor the computation of results would detect.
        By default, call `check`.

        Parameters
        ----------
        column : array, shape (rows,)
            The field in states that are not null.

        Raises
        ------
        DamagedState
            For the same reasons as `check`.
        """
        self.check(column)

    def merge_checked(self, column: pa.Array, groups: Groups) -> pa.Array:
        """Combine values like `merge`, and in the same pass make the checks that `check_before_merge` did not make.
        `check_before_merge` must have accepted the values.

        Parameters
        ----------
        column : array, shape (rows,)
            The field in states that are not null.
        groups : Groups
            The groups, with as many rows as ``column``.

        Returns
        -------
        array, shape (groups.n,)

        Raises
        ------
        DamagedState
            For the same reasons as `check`.
        """
        return self.merge(column, groups)

    def subtract(self, column: pa.Array, subtracted: pa.Array) -> pa.Array:
        """Undo a merge: for each pair of states, return the field of the first state after the rows of the second state
        were removed.

        The method is called only if the `State` declares ``counted_by``, and only for states in which some rows remain.

        Parameters
        ----------
        column : array, shape (rows,)
            The field in undamaged states.
        subtracted : array, shape (rows,)
            The same field in the states to subtract.

        Returns
        -------
        array, shape (rows,)

        Raises
        ------
        CannotSubtract
            If the states to subtract were not merged into ``column``, or the remainder cannot be computed from the
            field.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement subtraction; define its method subtract")

    def row_counts(self, column: pa.Array) -> Whole:
        """Return the number of rows of each state, if the `State` names this field in ``counted_by``.

        Parameters
        ----------
        column : array, shape (rows,)
            The field in undamaged states.

        Returns
        -------
        array of int64, shape (rows,)
        """
        counts: Whole = column.to_numpy()
        return counts


class Add(Field):
    """Whole numbers that add up; the identity is 0."""

    def merge(self, column: pa.Array, groups: Groups) -> pa.Array:
        return pa.array(sum_by_group(field_of_type(column, pa.int64()).to_numpy(), groups))

    def check(self, column: pa.Array) -> None:
        field_of_type(column, pa.int64())

    def subtract(self, column: pa.Array, subtracted: pa.Array) -> pa.Array:
        return pa.array(column.to_numpy() - subtracted.to_numpy())


class Counts(Add):
    """Counts, which add up and are never negative; the identity is 0. `reduce` counts the rows of each group."""

    def reduce(self, values: Values) -> pa.Array:
        return pa.array(values.counts)

    def check(self, column: pa.Array) -> None:
        numbers = field_of_type(column, pa.int64()).to_numpy()
        if len(numbers) and numbers.min() < 0:
            raise DamagedState(f"contains the negative count {numbers.min()}")

    def subtract(self, column: pa.Array, subtracted: pa.Array) -> pa.Array:
        remaining = column.to_numpy() - subtracted.to_numpy()
        refuse_where(remaining < 0, ROWS_NOT_IN_STATE)
        return pa.array(remaining)


class BitOr(Field):
    """Flags, one for each bit of an int8, which are never reset. The identity is 0."""

    def merge(self, column: pa.Array, groups: Groups) -> pa.Array:
        check_lengths(len(column), groups)
        flags = np.zeros(groups.n, np.int8)
        column_flags = column.to_numpy()
        # Few states have flags. The other states do not change the result, so they are left out.
        rows_with_flags = np.flatnonzero(column_flags)
        np.bitwise_or.at(flags, groups.ids[rows_with_flags], column_flags[rows_with_flags])
        return pa.array(flags)

    def check(self, column: pa.Array) -> None:
        field_of_type(column, pa.int8())

    def subtract(self, column: pa.Array, subtracted: pa.Array) -> pa.Array:
        flags = subtracted.to_numpy()
        refuse_where((flags & ~column.to_numpy()) != 0, ROWS_NOT_IN_STATE)
        refuse_where(
            flags != 0,
            "the rows to subtract contain special values (NaN, infinities, or zeros for means of logarithms), and the "
            f"state does not record whether other rows contain them too{_REDUCE_AGAIN}",
        )
        return column


@dataclass(frozen=True)
class MinOrMax(Field):
    """The smallest or the greatest value of any ordered type. The identity is null.

    Parameters
    ----------
    greatest : bool
        True for the greatest value, False for the smallest.
    """

    greatest: bool

    @property
    def description(self) -> str:
        return f"the {'greatest' if self.greatest else 'smallest'} value"

    def merge(self, column: pa.Array, groups: Groups) -> pa.Array:
        empty, column, groups = _drop_nulls(column, groups)
        if column.type in (pa.float64(), pa.int64()):
            return self.of_numbers(Numbers(column.to_numpy(), groups))
        return self._pick(column, groups, empty)

    def reduce(self, values: Values) -> pa.Array:
        if values.array.type in (pa.float64(), pa.int64()):
            return self.of_numbers(values.numbers)
        return self._pick(values.array, values.groups, values.array.slice(0, 0))

    def of_numbers(self, numbers: Numbers) -> pa.Array:
        """Return the smallest or greatest 64-bit number of each group, like `reduce`.

        Parameters
        ----------
        numbers : Numbers

        Returns
        -------
        array of float64 or int64, shape (groups.n,)
        """
        extremes = numbers.extremes
        if extremes is None:
            column = pa.array(numbers.array)
            return self._pick(column, numbers.groups, column.slice(0, 0))
        return pa.array(extremes.high if self.greatest else extremes.low, mask=extremes.empty)

    def _pick(self, column: pa.Array, groups: Groups, empty: pa.Array) -> pa.Array:
        rows = find_extreme_rows(order_keys(column), groups, self.greatest)
        return _take(column, rows, empty)

    def check(self, column: pa.Array) -> None:
        if not has_order(column.type):
            raise DamagedState(f"has type {column.type}, which has no order")

    def subtract(self, column: pa.Array, subtracted: pa.Array) -> pa.Array:
        is_subtracted = subtracted.is_valid()
        refuse_where(
            is_subtracted.to_numpy(zero_copy_only=False) & column.is_null().to_numpy(zero_copy_only=False),
            ROWS_NOT_IN_STATE,
        )
        keys = order_keys(pa.concat_arrays([column.filter(is_subtracted), subtracted.filter(is_subtracted)]))
        own_keys, subtracted_keys = np.split(keys if self.greatest else ~keys, 2)
        rows = np.flatnonzero(is_subtracted)
        adjective = "greatest" if self.greatest else "least"
        refuse_where(subtracted_keys > own_keys, ROWS_NOT_IN_STATE, rows)
        reason = (
            f"the rows to subtract contain the {adjective} value, and the state does not record the next one"
            f"{_REDUCE_AGAIN}"
        )
        refuse_where(subtracted_keys == own_keys, reason, rows)
        return column


@dataclass(frozen=True)
class ValueBy(Field):
    """A struct of an ordering value and another value, both from the row in which the ordering value is smallest or
    greatest. The identity is null.

    Parameters
    ----------
    by : str
        The name, inside this struct, of the ordering value.
    greatest : bool
        True for the greatest ordering value, False for the smallest.
    other : str
        The name, inside this struct, of the value that is selected. Among rows with the same ordering value, the
        greatest value is kept if ``greatest`` is True, otherwise the smallest. If this name is ``"time"``, the earliest
        time is always kept.
    """

    by: str
    greatest: bool
    other: str = "value"

    @property
    def description(self) -> str:
        if self.by == "time":
            return f"the {self.other} of the row with the {'latest' if self.greatest else 'earliest'} time"
        ordering_value = "ordering value" if self.by == "by" else self.by
        return f"the {self.other} of the row with the {'greatest' if self.greatest else 'smallest'} {ordering_value}"

    def reduce(self, values: Values) -> pa.Array:
        names = (self.by, self.other)
        # If one of the two fields is the time, it is the first field in stored states.
        names = ("time", "value") if "time" in names else names
        rows = pa.StructArray.from_arrays([values.array.field(name) for name in names], names=list(names))
        return self.merge(rows, values.groups)

    @property
    def greatest_of_ties(self) -> bool:
        """Whether the greatest value is kept if several rows have the same ordering value."""
        return self.greatest and self.other != "time"

    def merge(self, column: pa.StructArray, groups: Groups) -> pa.StructArray:
        empty, column, groups = _drop_nulls(column, groups)
        keys = order_keys(column.field(self.by))
        extremes = extreme_by_group(keys, groups, self.greatest)
        tied_rows = np.flatnonzero(keys == extremes[groups.ids])
        tie_keys = order_keys(column.field(self.other).take(pa.array(tied_rows)))
        rows_of_extremes = find_extreme_rows(
            tie_keys, Groups._trusted(groups.ids[tied_rows], groups.n), self.greatest_of_ties
        )
        return _take(column, np.append(tied_rows, -1)[rows_of_extremes], empty)

    def check(self, column: pa.Array) -> None:
        dtype = column.type
        if not pa.types.is_struct(dtype) or sorted(f.name for f in dtype) != sorted([self.by, self.other]):
            raise DamagedState(f"has type {dtype}, not a struct of {self.by} and {self.other}")
        events = column.drop_null() if column.null_count else column
        for name in (self.by, self.other):
            if not has_order(dtype.field(name).type):
                raise DamagedState(f"has a {name} of type {dtype.field(name).type}, which has no order")
            refuse_nulls(events.field(name))


@dataclass(frozen=True)
class Exact(Field):
    """An exact sum of floats (`aggr.exact.superaccumulator`); the identity is the sum 0, which has no digits.

    Parameters
    ----------
    degree : int
        The maximum number of factors in the products that are summed. The default, 2, is for sums of floats and sums of
        their squares.
    """

    degree: int = 2

    def reduce(self, values: Values) -> pa.Array:
        return values.exact_sum

    def merge(self, column: pa.StructArray, groups: Groups) -> pa.StructArray:
        return merge_exactly(column, groups)

    def check(self, column: pa.StructArray) -> None:
        check_exact(column, self.degree)

    def subtract(self, column: pa.StructArray, subtracted: pa.StructArray) -> pa.StructArray:
        return subtract_exactly(column, subtracted)


class ScaledExact(Field):
    """An exact sum of floats, whole numbers or decimals (`aggr.exact.scaled_sums`); the identity is the sum 0, which
    has no digits.
    """

    def merge(self, column: pa.StructArray, groups: Groups) -> pa.StructArray:
        return merge_scaled(column, groups)

    def check(self, column: pa.StructArray) -> None:
        check_scaled(column)

    def subtract(self, column: pa.StructArray, subtracted: pa.StructArray) -> pa.StructArray:
        return subtract_scaled(column, subtracted)


class Unit(Field):
    """The unit of the numbers, such as 0.01 for decimals with two places. All states of a column have the same unit."""

    def merge(self, column: pa.Array, groups: Groups) -> pa.Array:
        return unit_of(column.type, groups.n)

    def check(self, column: pa.Array) -> None:
        if kept_type(column.type) != column.type:
            raise DamagedState(f"has type {column.type}, which is not the type of an exact sum's unit")
        refuse_nulls(column)

    def subtract(self, column: pa.Array, subtracted: pa.Array) -> pa.Array:
        return column


ADD = Add()
COUNT = Counts()
OR = BitOr()
LEAST = MinOrMax(greatest=False)
GREATEST = MinOrMax(greatest=True)
EARLIEST = ValueBy("time", greatest=False)
LATEST = ValueBy("time", greatest=True)
LOWEST = ValueBy("value", greatest=False, other="time")
HIGHEST = ValueBy("value", greatest=True, other="time")
EXACT = Exact()
SCALED = ScaledExact()
UNIT = Unit()


def refuse_where(is_invalid: Flags, reason: str, rows: Ids | None = None) -> None:
    """Raise `CannotSubtract` if rows cannot be subtracted from one of several states.

    Parameters
    ----------
    is_invalid : array of bool, shape (n,)
        A mask of the states from which rows cannot be subtracted.
    reason : str
        The last part of the message.
    rows : array, shape (n,), optional
        The row number of each state, which the error names; by default 0, 1, ….

    Raises
    ------
    CannotSubtract
        For the first state in the mask.
    """
    if is_invalid.any():
        first = int(np.argmax(is_invalid))
        raise CannotSubtract(first if rows is None else int(rows[first]), reason)


def _drop_nulls(column: pa.Array, groups: Groups) -> tuple[pa.Array, pa.Array, Groups]:
    """Return an empty array of the column's type, the column without nulls, and the groups of the remaining rows."""
    check_lengths(len(column), groups)
    empty = column.slice(0, 0)
    if column.null_count:
        groups = groups.filter(column.is_valid().to_numpy(zero_copy_only=False))
        column = column.drop_null()
    return empty, column, groups


def _take(column: pa.Array, rows: Ids, empty: pa.Array) -> pa.Array:
    """Return the values of a column at the indices ``rows``; the index -1 gives null. All NaN get the same bits.

    If the column is empty, all results are null, and have the type of ``empty``.
    """
    if not len(column):
        return pa.nulls(len(rows), empty.type)
    values = column.take(pa.array(rows, mask=rows < 0))
    return canonical(values)
