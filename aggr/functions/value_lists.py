"""Fields of states that contain lists: rows in order, or distinct values. A list has at most ``max`` entries.

The values of all groups are stored in one array, ordered by group, then time, then value. The number of values of each
group is stored separately. For example:

group 0    (10:00, "b")  (10:02, "a")
group 1    (09:59, "c")
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from aggr.arrays import Flags, Floats, Ids, Whole
from aggr.arrow import compute as pc
from aggr.arrow.damaged_state import DamagedState, refuse_nulls
from aggr.arrow.normalize import canonical, normalize, normalize_floats, normalize_records
from aggr.arrow.sort_keys import has_order, is_ordered_record, order_keys
from aggr.fields import Field
from aggr.functions.limits import ERROR, Limit, absorbed_groups
from aggr.groups.groups import Groups
from aggr.values import Values

ALL = "all"
EARLIEST = "earliest"
LATEST = "latest"
KEEP_OPTIONS = (ALL, EARLIEST, LATEST)
DEFAULT_MAX = 10_000  # the default of the parameter ``max``, the maximum number of values per group


@dataclass(frozen=True)
class OrderedRows(Field):
    """The field of a state that lists up to ``max`` rows of a group. The rows are structs of two fields: the field
    that ``by`` names, and ``value``. They are ordered by the first field, and then by ``value``.

    If a group has more rows, ``keep`` selects the earliest or the latest. With ``keep="all"``, ``beyond`` determines
    whether an error is raised or the list becomes null (see `aggr.functions.limits.Limit`).
    """

    max: int
    keep: str
    by: str = "time"
    beyond: str = ERROR

    def reduce(self, values: Values) -> pa.ListArray:
        names = [self.by, "value"]
        columns = [normalize_records(values.array.field(name)) for name in names]
        rows = pa.StructArray.from_arrays(columns, names=names)
        return self.list_rows(rows, values.groups)

    def merge(self, column: pa.ListArray, groups: Groups) -> pa.ListArray:
        return self.list_rows(*entries_of(column, groups), absorbed_groups(column, groups))

    def list_rows(self, rows: pa.StructArray, groups: Groups, absorbed: Flags | None = None) -> pa.ListArray:
        """Return the list of rows of each group.

        ``absorbed`` marks the groups for which one of the merged lists is null, because it already had more than
        ``max`` rows. Such a group is beyond the limit in any case.
        """
        counts = groups.counts()
        beyond = None
        if self.keep == ALL:
            limit = Limit(self.max, self.beyond)
            beyond = limit.groups_beyond(counts, "the list of values", "use keep='earliest' or keep='latest'", absorbed)
        if beyond is not None:
            is_listed = ~beyond[groups.ids]
            rows = rows.filter(pa.array(is_listed))
            groups = groups.filter(is_listed)
            counts = groups.counts()
        keys, values = (order_keys(rows.field(name)) for name in (self.by, "value"))
        order = np.lexsort((values, keys, groups.ids))
        position = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        if self.keep == LATEST:
            position = np.repeat(counts, counts) - 1 - position
        return lists_of(rows.take(pa.array(order[position < self.max])), np.minimum(counts, self.max), beyond)

    def check(self, column: pa.Array) -> None:
        rows, lengths = checked_entries(column, self.max, self.beyond)
        if not pa.types.is_struct(rows.type) or sorted(f.name for f in rows.type) != sorted([self.by, "value"]):
            raise DamagedState(f"has entries of type {rows.type}, not structs of {self.by} and value")
        keys, values = (_checked_keys(rows.field(name)) for name in (self.by, "value"))
        in_order = (keys[1:] > keys[:-1]) | (keys[1:] == keys[:-1]) & (values[1:] >= values[:-1])
        check_neighbours(in_order, lengths)


@dataclass(frozen=True)
class ValueSet(Field):
    """The field of a state that lists up to ``max`` distinct values in ascending order.

    If a group has more values, ``beyond`` determines whether an error is raised or the list becomes null (see
    `aggr.functions.limits.Limit`).
    """

    max: int
    beyond: str = ERROR

    def reduce(self, values: Values) -> pa.ListArray:
        return self.list_values(values.array, values.groups)

    def merge(self, column: pa.ListArray, groups: Groups) -> pa.ListArray:
        return self.list_values(*entries_of(column, groups), absorbed_groups(column, groups))

    def list_values(self, values: pa.Array, groups: Groups, absorbed: Flags | None = None) -> pa.ListArray:
        """Return the list of distinct values of each group. Both zeros count as one value, and all NaN count as one.

        ``absorbed`` marks the groups for which one of the merged lists is null, because it already had more than
        ``max`` values.
        """
        values = normalize_floats(values)
        keys = order_keys(values)
        order = np.lexsort((keys, groups.ids))
        keys = keys[order]
        ids = groups.ids[order]
        is_new = np.ones(len(order), np.bool_)
        is_new[1:] = (keys[1:] != keys[:-1]) | (ids[1:] != ids[:-1])
        counts = np.bincount(ids[is_new], minlength=groups.n)
        instead = "count or collect fewer values, or estimate the count with approx_count_distinct"
        beyond = Limit(self.max, self.beyond).groups_beyond(counts, "the set of distinct values", instead, absorbed)
        if beyond is not None:
            is_new &= ~beyond[ids]
            counts = np.where(beyond, 0, counts)
        return lists_of(values.take(pa.array(order[is_new])), counts, beyond)

    def check(self, column: pa.Array) -> None:
        check_set(*checked_entries(column, self.max, self.beyond))


def values_of(lists: pa.ListArray, field: str) -> pa.ListArray:
    """Return lists of the values of ``field``. ``lists`` are lists of structs with this field."""
    entries = lists.flatten()
    return lists_of(entries.field(field), pc.list_value_length(lists).to_numpy())


def nested_lists(lists: pa.ListArray, times: Whole, lengths: Sequence[int]) -> pa.ListArray:
    """Split each list into nested lists, with one inner list for each period in which the list has values.

    The lists must not contain null, and must be ordered by time. ``times`` contains the time of every value.
    ``lengths`` contains the lengths of the periods in ascending order, each a multiple of the previous length. Each
    length adds one level of nesting: with the lengths of a second and a minute, a list contains one list per minute,
    which contains one list of values per second. ``times`` and ``lengths`` have the same unit, micro- or nanoseconds.
    """
    counts = pc.list_value_length(lists).to_numpy()
    owners = np.repeat(np.arange(len(counts)), counts)

    # Each iteration groups the entries of ``inner`` into lists, which are the entries of ``inner`` in the next
    # iteration. ``sizes`` has the number of values in each entry.
    inner = lists.flatten()
    sizes = np.ones(len(times), np.int64)
    for length in lengths:
        firsts = np.cumsum(sizes) - sizes
        windows = times[firsts] // length
        groups = owners[firsts]
        begins = np.flatnonzero(np.r_[True, (np.diff(windows) != 0) | (np.diff(groups) != 0)][: len(firsts)])
        inner = lists_of(inner, np.diff(np.r_[begins, len(firsts)]))
        sizes = np.add.reduceat(sizes, begins) if len(begins) else sizes
    return lists_of(inner, np.bincount(owners[np.cumsum(sizes) - sizes], minlength=len(counts)))


def check_set(values: pa.Array, lengths: Whole) -> None:
    """Raise `DamagedState` unless each set has distinct values in ascending order.

    ``values`` contains the values of all sets, one set after the other. ``lengths`` contains the sizes of the sets.
    """
    if pa.types.is_floating(values.type):
        refuse_nulls(values)
        check_neighbours(_are_ascending(values.to_numpy()), lengths)
        return
    keys = _checked_keys(values)
    check_neighbours(keys[1:] > keys[:-1], lengths)


def _are_ascending(numbers: Floats) -> Flags:
    """Return whether each number is less than the next, shape (n - 1,). NaN is the greatest number.

    Raise `DamagedState` if a number is -0.0. The numbers themselves are compared, because this takes half the time of
    computing and comparing the integers of `order_keys`.
    """
    is_zero = numbers == 0
    if is_zero.any() and np.signbit(numbers[is_zero]).any():
        raise DamagedState("contains -0.0, which a set stores as 0.0")
    in_order = numbers[1:] > numbers[:-1]
    is_nan = np.isnan(numbers)
    if is_nan.any():
        in_order |= is_nan[1:] & ~is_nan[:-1]
    return in_order


def entries_of(column: pa.ListArray, groups: Groups) -> tuple[pa.Array, Groups]:
    """Return the entries of all lists as one array, and the group of each entry. ``groups`` assigns lists to groups."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    return column.flatten(), Groups(np.repeat(groups.ids, lengths), groups.n)


def checked_entries(column: pa.Array, max_values: int, beyond: str = ERROR) -> tuple[pa.Array, Whole]:
    """Return the entries of all lists as one array, and the length of each list.

    Raise `DamagedState` if the column does not consist of lists, or if a list contains null or more than ``max_values``
    entries. A null list has length 0 if ``beyond`` is "null", and otherwise raises `DamagedState` too.
    """
    if not pa.types.is_list(column.type):
        raise DamagedState(f"has type {column.type}, not a list")
    if not Limit(max_values, beyond).is_absorbing:
        refuse_nulls(column)
    entries = column.flatten()
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
    refuse_nulls(entries)
    if len(lengths) and lengths.max() > max_values:
        raise DamagedState(f"contains a list of {lengths.max()} values, and at most max={max_values} are allowed")
    return entries, lengths


def _checked_keys(values: pa.Array) -> Whole:
    values = normalize_records(normalize(values))
    if not has_order(values.type) and not is_ordered_record(values.type):
        raise DamagedState(f"has values of type {values.type}, which has no order")
    refuse_nulls(values)
    return order_keys(values)


def check_neighbours(in_order: Flags, lengths: Whole) -> None:
    """Raise `DamagedState` if a list is not in ascending order.

    The values of all lists are numbered consecutively, list after list. ``in_order[i]`` is whether the values ``i`` and
    ``i + 1`` are in order. It is ignored if these two values belong to different lists.
    """
    has_predecessor = np.ones(len(in_order) + 1, np.bool_)
    starts = np.cumsum(lengths) - lengths
    has_predecessor[starts[starts < len(has_predecessor)]] = False
    if (has_predecessor[1:] & ~in_order).any():
        raise DamagedState("contains values that are not in ascending order")


def first_of_each(order: Ids, owners: Groups, max_values: int) -> Ids:
    """Return the row numbers in ``order``, limited to the first ``max_values`` of each group.

    ``order`` contains all row numbers, sorted by group. ``owners`` contains the group of each row.
    """
    return order[np.arange(len(order)) - np.repeat(owners.offsets[:-1], owners.counts()) < max_values]


def lists_of(values: pa.Array, lengths: Whole, is_null: Flags | None = None) -> pa.ListArray:
    """Split values into consecutive lists of the lengths ``lengths``.

    A list that ``is_null`` marks must have length 0.
    """
    offsets = np.append(0, np.cumsum(lengths))
    if offsets[-1] > np.iinfo(np.int32).max:
        raise ValueError(
            f"the lists of a column can contain at most {np.iinfo(np.int32).max:,} values, and these lists have "
            f"{offsets[-1]:,}; reduce or merge fewer groups at a time, or use a smaller max"
        )
    mask = None if is_null is None else pa.array(is_null)
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), canonical(values), mask=mask)
