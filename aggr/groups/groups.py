"""Groups: an array with the group number of each row, and grouping by key columns.

Groups are numbered from 0 without gaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arrays import read_only
from aggr.arrow import compute as pc
from aggr.arrow.flat_columns import flat_columns
from aggr.arrow.normalize import normalize
from aggr.compiling.jit import Int, compiled

# the maximum number of rows, and of groups; Arrow's 32-bit offsets cannot represent larger numbers
_MAX_COUNT = 2**31 - 1
# with at least this number of rows, a compiled loop is used instead of numpy
_MIN_COMPILED_ROWS = 1 << 13
# With at least this number of rows per group, on average, loops process one group after the other. With fewer rows, the
# additional work per group would take more time than such loops save.
_MIN_ROWS_PER_GROUP_LOOP = 16


@dataclass(frozen=True, eq=False)
class Groups:
    """The group of each row: row ``i`` belongs to group ``ids[i]``, and there are ``n`` groups.

    Parameters
    ----------
    ids : array of intp, shape (rows,)
        The group of each row, in ``[0, n)``. A group may have no rows. Compiled loops do not check the ids again. The
        ids are stored as a read-only view, and the caller must not change the array afterwards.
    n : int
        The number of groups, below 2^31.

    Raises
    ------
    TypeError
        If ids are not a one-dimensional array of whole numbers, or the number of groups is not a whole number.
    ValueError
        For an id outside ``[0, n)``, a negative number of groups, or more than 2^31 - 1 rows or groups.

    Examples
    --------
    >>> Groups.of([0, 2, 0], 3).counts()
    array([2, 0, 1])
    """

    ids: NDArray[np.intp]
    n: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", _checked_number("the number of groups", self.n))
        if not isinstance(self.ids, np.ndarray) or self.ids.dtype.kind not in "iu" or self.ids.ndim != 1:
            raise TypeError(f"group ids must be an array of whole numbers in one dimension; got {_shown(self.ids)}")
        if len(self.ids) > _MAX_COUNT:
            raise ValueError(
                f"at most 2^31 - 1 rows can be grouped at once; got {len(self.ids):,}; group fewer rows at a time"
            )
        view = np.ascontiguousarray(self.ids, dtype=np.intp)[:]
        # One comparison checks both bounds: read as an unsigned number, a negative id is greater than ``n``.
        if len(view) and int(view.view(np.uintp).max()) >= self.n:
            raise ValueError(
                f"group ids must be at least 0 and below the number of groups, {self.n}; got ids from {self.ids.min()} "
                f"to {self.ids.max()}"
            )
        view.flags.writeable = False
        object.__setattr__(self, "ids", view)

    @classmethod
    def of(cls, ids: Sequence[int] | NDArray[np.integer], n: int) -> Groups:
        """Make groups from any integers.

        Parameters
        ----------
        ids : sequence or array of integers, shape (rows,)
            The group of each row, in ``[0, n)``.
        n : int
            The number of groups.

        Returns
        -------
        Groups

        Raises
        ------
        TypeError, ValueError
            For the same reasons as `Groups`.
        """
        if isinstance(ids, str | bytes) or not isinstance(ids, Sequence | np.ndarray):
            raise TypeError(f"group ids must be a list or an array of whole numbers; got {_shown(ids)}")
        try:
            array = np.asarray(ids) if len(ids) else np.zeros(0, np.intp)
        except (ValueError, TypeError, OverflowError):
            raise TypeError(f"group ids must be whole numbers in one dimension; got {_shown(ids)}") from None
        return cls(array, n)

    @classmethod
    def single(cls, rows: int) -> Groups:
        """Put all rows into one group.

        Parameters
        ----------
        rows : int
            The number of rows.

        Returns
        -------
        Groups
            Groups with ``n = 1``.

        Raises
        ------
        TypeError, ValueError
            If ``rows`` is not a whole number from 0 to 2^31 - 1.
        """
        return cls._trusted(np.zeros(_checked_number("the number of rows", rows), np.intp), 1)

    @classmethod
    def each(cls, rows: int) -> Groups:
        """Put every row into a separate group.

        Parameters
        ----------
        rows : int
            The number of rows, which is also the number of groups.

        Returns
        -------
        Groups
            Groups with ``ids[i] = i``.

        Raises
        ------
        TypeError, ValueError
            If ``rows`` is not a whole number from 0 to 2^31 - 1.
        """
        rows = _checked_number("the number of rows", rows)
        return cls._trusted(np.arange(rows, dtype=np.intp), rows)

    @classmethod
    def _trusted(cls, ids: NDArray[np.intp], n: int, counts: NDArray[np.int64] | None = None) -> Groups:
        """Return groups without a check. The caller guarantees that ``ids`` lie in ``[0, n)``.

        ``counts`` are the numbers of rows of the groups, if the caller has computed them.
        """
        groups = object.__new__(cls)
        object.__setattr__(groups, "ids", read_only(ids))
        object.__setattr__(groups, "n", n)
        if counts is not None:
            vars(groups)["_counts"] = counts
        return groups

    def __len__(self) -> int:
        return len(self.ids)

    def filter(self, rows: NDArray[np.bool_]) -> Groups:
        """Select the rows for which a mask is true.

        Parameters
        ----------
        rows : array of bool, shape (rows,)

        Returns
        -------
        Groups
            Groups with the same ``n``; some may have no rows.

        Raises
        ------
        ValueError
            If ``rows`` does not contain one boolean per row.
        """
        if rows.dtype != np.bool_ or rows.shape != self.ids.shape:
            raise ValueError(
                f"rows must be selected by an array of {len(self)} booleans; got {_shown(rows)} of shape {rows.shape}"
            )
        return Groups._trusted(self.ids[rows], self.n)

    def slice(self, rows: slice) -> Groups:
        """Select a range of rows.

        Parameters
        ----------
        rows : slice

        Returns
        -------
        Groups
            Groups with the same ``n``; some may have no rows.
        """
        return Groups._trusted(self.ids[rows], self.n)

    def counts(self) -> NDArray[np.int64]:
        """Count the rows of each group.

        Returns
        -------
        array of int64, shape (n,)
        """
        return self._counts

    @cached_property
    def _counts(self) -> NDArray[np.int64]:
        return read_only(_count_rows(self.ids, self.n))

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """The offsets of the groups in an array of rows that are sorted by group, shape (n + 1,).

        The rows of group ``g`` are the slice from ``offsets[g]`` to ``offsets[g + 1]`` of such an array.
        """
        return read_only(np.append(0, np.cumsum(self._counts)))

    @cached_property
    def rows_by_group(self) -> NDArray[np.int32]:
        """The row numbers sorted by group and then by row, shape (rows,).

        The rows of group ``g`` are the slice from ``offsets[g]`` to ``offsets[g + 1]`` of this array.
        """
        return read_only(_rows_by_group(self.ids, self.offsets))

    @property
    def prefers_group_loops(self) -> bool:
        """Whether the groups have so many rows, on average, that loops should process one group after the other."""
        return len(self) >= _MIN_ROWS_PER_GROUP_LOOP * self.n


def type_name(value: Any) -> str:
    """Return the name of the type of a value, for an error message.

    Parameters
    ----------
    value : object

    Returns
    -------
    str
        ``None`` for None, otherwise the name of its class, preceded by its package.
    """
    package = type(value).__module__.split(".")[0]
    return "None" if value is None else f"{package}.{type(value).__name__}".removeprefix("builtins.")


def check_groups(name: str, groups: Any) -> None:
    """Raise ``TypeError`` unless a value is a `Groups`.

    Parameters
    ----------
    name : str
        The name of the calling function, which is used in the message.
    groups : object

    Raises
    ------
    TypeError
    """
    if not isinstance(groups, Groups):
        raise TypeError(f"{name}: groups must be an aggr.Groups; got {type_name(groups)}; create one with Groups.of")


def check_lengths(rows: int, groups: Groups, what: str = "values") -> None:
    """Raise ``ValueError`` unless there is one group id per row.

    Compiled loops read an array and the group ids at the same index, and do not check whether the index is valid.

    Parameters
    ----------
    rows : int
        The length of the array.
    groups : Groups
    what : str
        What the array contains, for the message.

    Raises
    ------
    ValueError
        If the lengths differ.
    """
    if rows != len(groups):
        raise ValueError(f"each row must have one group id; got {rows} {what} and {len(groups)} group ids")


def _checked_number(what: str, value: Any) -> int:
    """Return ``value`` as an int. Raise ``TypeError`` or ``ValueError`` unless it is a whole number in [0, 2^31).

    ``what`` is the subject of the message.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise TypeError(f"{what} must be a whole number; got {_shown(value)}")
    if not 0 <= value <= _MAX_COUNT:
        raise ValueError(f"{what} must be from 0 to 2^31 - 1; got {value}")
    return int(value)


def _shown(value: Any) -> str:
    """Return text for an error message: dtype and dimensions of an array, or the type and the repr of another value."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}, {value.ndim}-D"
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


def _count_rows(ids: NDArray[np.intp], n: int) -> NDArray[np.int64]:
    """Return the number of rows of each group, shape (n,)."""
    return np.array([len(ids)]) if n == 1 else _counts_and_rows(ids, n)[0]


def _counts_and_rows(ids: NDArray[np.intp], n: int) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """Return the number of rows and the last row of each group, each of shape (n,).

    The last row of a group without rows is undefined.
    """
    if len(ids) >= _MIN_COMPILED_ROWS:
        return _counts_and_rows_of_many(ids, n)
    row_of_group = np.zeros(n, np.intp)
    row_of_group[ids] = np.arange(len(ids))
    return np.bincount(ids, minlength=n), row_of_group


@compiled
def _counts_and_rows_of_many(ids: NDArray[np.intp], n: int) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    counts = np.zeros(n, np.int64)
    row_of_group = np.empty(n, np.intp)
    for i in range(len(ids)):
        # the index is unsigned, because compiled code is slower if an index may be negative
        group: Int = np.uint64(ids[i])
        counts[group] += 1
        row_of_group[group] = i
    return counts, row_of_group


@compiled
def _rows_by_group(ids: NDArray[np.intp], offsets: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the row numbers sorted by group and then by row, shape (rows,).

    ``offsets`` is `Groups.offsets`: ``offsets[g]`` is the number of rows in the groups before ``g``.
    """
    rows = np.empty(len(ids), np.int32)
    next_position = offsets.copy()
    for i in range(len(ids)):
        group: Int = np.uint64(ids[i])
        rows[np.uint64(next_position[group])] = i
        next_position[group] += 1
    return rows


def group_by(columns: Sequence[pa.Array], rows: int) -> tuple[Groups, NDArray[np.intp]]:
    """Group the rows that are equal in all columns. Null equals null.

    Parameters
    ----------
    columns : sequence of arrays, each of length ``rows``
        The key columns. Their types must have an order, or be structs of such types. Structs are compared field by
        field; a null struct is a value of its own, after all others. Dictionary-encoded arrays are allowed, unless
        their values are structs. Floats are equal if their bits are equal. Without columns, all rows form one group.
    rows : int
        The number of rows.

    Returns
    -------
    groups : Groups
        The groups. Each has at least one row. Groups are numbered in ascending order of their keys, with null last.
    row_of_group : array of intp, shape (groups.n,)
        For each group, the index of one of its rows, from which the keys can be taken.

    Raises
    ------
    ValueError
        If the length of a column is not ``rows``.

    Examples
    --------
    >>> groups, row_of_group = group_by([pa.array(["b", "a", "b", None])], 4)
    >>> groups.ids, row_of_group
    (array([1, 0, 1, 2]), array([1, 2, 3]))
    """
    _checked_number("the number of rows", rows)
    for column in columns:
        if len(column) != rows:
            raise ValueError(f"each row must have one value in a key column; got {len(column)} values and {rows} rows")
    codes = np.zeros(0 if columns else rows, np.int64)
    bound = 1
    for position, column in enumerate(flat_columns(columns)):
        column_codes, column_bound = _column_codes(column)
        # The codes of a column are combined with the codes of the earlier columns. If the combined codes might not fit
        # int64, the codes of the earlier columns are first numbered without gaps.
        if bound * column_bound >= 2**62:
            codes, counts, _ = _number_codes(codes, bound)
            bound = len(counts)
        if position:
            codes *= column_bound
            column_codes += codes
        codes = column_codes
        bound = bound * column_bound
    ids, counts, row_of_group = _number_codes(codes, bound)
    return Groups._trusted(ids, len(counts), counts), row_of_group


def _column_codes(column: pa.Array) -> tuple[NDArray[np.int64], int]:
    """Return a nonnegative integer code for each value of a column, and a number that is greater than all codes.

    Codes have the order of the values, and equal values have equal codes. Null has the greatest code.
    """
    if not pa.types.is_dictionary(column.type):
        column = normalize(column)
        is_integral = pa.types.is_integer(column.type) or pa.types.is_timestamp(column.type)
        if is_integral and not column.null_count and column.type != pa.uint64() and len(column):
            values = column.to_numpy(zero_copy_only=False)
            return _whole_codes(
                values.view(np.int64) if values.dtype.kind == "M" else values.astype(np.int64, copy=False)
            )
        column = column.dictionary_encode(null_encoding="encode")
    return _dictionary_ranks(column)


def _dictionary_ranks(column: pa.DictionaryArray) -> tuple[NDArray[np.int64], int]:
    """Return the rank of each value of a dictionary column in its sorted dictionary, and a number above all ranks.

    Null has the greatest rank.
    """
    # The dictionary is encoded again, because it may contain a value several times.
    values = normalize(column.dictionary).dictionary_encode(null_encoding="encode")
    order = pc.sort_indices(values.dictionary).to_numpy()
    rank_of_code = np.empty(len(order) + 1, np.int64)
    rank_of_code[order] = np.arange(len(order))
    rank_of_code[-1] = len(order)
    # A null can be a value of the dictionary, or a null index. Both get the same rank.
    if values.dictionary.null_count:
        rank_of_code[-1] = rank_of_code[pc.index(values.dictionary.is_null(), True).as_py()]
    ranks = np.append(rank_of_code[values.indices.to_numpy()], rank_of_code[-1])
    indices = column.indices
    if indices.null_count:
        indices = pc.fill_null(indices.cast(pa.int64()), len(ranks) - 1)
    nulls = column.null_count or values.dictionary.null_count
    return _look_up(ranks, indices.to_numpy()), len(rank_of_code) if nulls else len(order)


def _whole_codes(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """Return a code of at least 0 for each whole number, in the order of the numbers, and a number above all codes.

    A code is the distance of the number from the minimum, divided by a common divisor of all distances, if such codes
    are small. Otherwise, it is the rank among the distinct numbers.
    """
    low, high = _value_range(values)
    # `_number_codes` numbers codes below this bound by a table, which takes less time than sorting.
    table_size = 4 * len(values)
    if high - low < table_size:
        return values - low, high - low + 1
    change_rows = np.flatnonzero(values[1:] != values[:-1]) + 1
    if 8 * len(change_rows) < len(values):
        # Few numbers differ from the number in the previous row, for example because rows are ordered by time. Only
        # these numbers and the first number are sorted.
        unique, ranks = np.unique(values[np.append(0, change_rows)], return_inverse=True)
        return np.repeat(ranks, np.diff(change_rows, prepend=0, append=len(values))), len(unique)
    distances_fit_int64 = high - low < 2**63
    # The step is computed from the first numbers only. `_divide_distances` checks that this step divides all distances.
    step = int(np.gcd.reduce(values[:256] - low)) if distances_fit_int64 else 1
    if step > 1 and (high - low) // step < table_size:
        quotients, is_exact = _divide_distances(values, low, step)
        if is_exact:
            return quotients, (high - low) // step + 1
    unique, ranks = np.unique(values, return_inverse=True)
    return ranks, len(unique)


def _value_range(values: NDArray[np.int64]) -> tuple[int, int]:
    """Return the smallest and the greatest number. For many numbers, a compiled loop computes both in one pass."""
    if len(values) < _MIN_COMPILED_ROWS:
        return int(values.min()), int(values.max())
    low, high = _value_range_of_many(values)
    return int(low), int(high)


@compiled
def _value_range_of_many(values: NDArray[np.int64]) -> tuple[Int, Int]:
    low = high = values[0]
    for i in range(len(values)):
        low = min(low, values[i])
        high = max(high, values[i])
    return low, high


def _divide_distances(values: NDArray[np.int64], low: int, step: int) -> tuple[NDArray[np.int64], bool]:
    """Return the distance of each number from ``low``, divided by ``step``, shape (n,).

    Also return whether all distances are multiples of ``step``. If not, the quotients are rounded and must not be used.
    """
    if len(values) < _MIN_COMPILED_ROWS:
        quotients, remainders = np.divmod(values - low, step)
        return quotients, not remainders.any()
    return _divide_many_distances(values, low, step)


@compiled
def _divide_many_distances(values: NDArray[np.int64], low: int, step: int) -> tuple[NDArray[np.int64], bool]:
    quotients = np.empty(len(values), np.int64)
    remainders = np.int64(0)
    for i in range(len(values)):
        distance = values[i] - low
        # The distances are divided as doubles, because the division of integers takes ten times as long. The remainders
        # show whether a quotient is exact.
        quotients[i] = np.int64(np.float64(distance) / step)
        remainders |= distance - quotients[i] * step
    return quotients, remainders == 0


def _number_codes(codes: NDArray[np.int64], bound: int) -> tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.intp]]:
    """Number the distinct codes from 0 without gaps, in ascending order. Codes must lie in ``[0, bound)``.

    Return three arrays: the number of each row's code, shape (rows,); the count of rows with each number, shape
    (distinct codes,); and for each number the index of one row that has it, shape (distinct codes,).
    """
    if bound <= max(4 * len(codes), 1024):  # counting in a table of this size takes less time than sorting
        counts, row_of_number = _counts_and_rows(codes, bound)
        is_used = counts > 0
        if is_used.all():
            return codes, counts, row_of_number
        return _look_up(np.cumsum(is_used) - 1, codes), counts[is_used], row_of_number[is_used]
    _, ids = np.unique(codes, return_inverse=True)
    return ids, *_counts_and_rows(ids, int(ids.max(initial=-1)) + 1)


def _look_up(table: NDArray[np.int64], indices: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the entries of a table at ``indices``.

    For many indices, a compiled loop is used, because numpy would first convert all indices to 64 bits.
    """
    if len(indices) < _MIN_COMPILED_ROWS:
        entries: NDArray[np.int64] = table[indices]
        return entries
    fits_int32 = indices.dtype.itemsize < 8 and indices.dtype != np.uint32
    return _look_up_many(table, indices.astype(np.int32 if fits_int32 else np.int64, copy=False))


@compiled
def _look_up_many(table: NDArray[np.int64], indices: NDArray[np.integer]) -> NDArray[np.int64]:
    entries = np.empty(len(indices), np.int64)
    for i in range(len(indices)):
        entries[i] = table[np.uint64(indices[i])]
    return entries
