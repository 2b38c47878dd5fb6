"""Buckets: the field of a state with a histogram over integer keys, for HdrHistogram and DDSketch.

Keys are counted by `aggr.histograms.loops`. The histograms of a group are added in an array with one cell per key,
which usually fits into the processor's cache. If the keys of a group are far apart, they are sorted instead, by
numpy. A compiled sort in this module would take a long time to compile, and few columns have such keys.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arrow.damaged_state import DamagedState, field_of_type
from aggr.compiling.jit import Int, compiled
from aggr.fields import ROWS_NOT_IN_STATE, Field, refuse_where
from aggr.groups.groups import Groups, check_lengths
from aggr.groups.numbers import TOO_MANY_VALUES
from aggr.histograms.column import (
    BUCKETS_ARE_DAMAGED,
    HISTOGRAM_TYPE,
    MAX_COUNT,
    Histograms,
    are_possible_bounds,
    capped_sum,
    check_histograms,
    column_of,
    is_sound,
)
from aggr.histograms.leb128 import FAR, LONGER, WORD, Bytes, advance, of_arrow, to_arrow, word_at
from aggr.histograms.loops import (
    LARGE_GROUP_CELLS,
    MARK_BIT_MASK,
    MARK_WORD_SHIFT,
    MAX_CELLS_PER_KEY,
    MAX_CELLS_PER_KEY_OF_LARGE,
    MIN_CELLS,
    ONE,
    HistogramColumns,
    Rows,
    Whole,
    allocate_lists,
    count_keys,
    find_key_ranges,
    write_cells,
    write_marked,
)
from aggr.histograms.pairs import add_two, allocate_pair_lists
from aggr.histograms.reading import BYTE_MASK, PackedHistograms, next_number

# `_sum_by_key` adds this number to a key, which may be negative, and stores the sum in the lower 32 bits of an integer.
_OFFSET = 1 << 31
_KEY = (1 << 32) - 1
_NO_RANKS = np.zeros((0, 0), np.int64)  # the argument ``ranks`` of `is_sound` if no keys are requested

# A group's array has a cell for each possible bucket. If the array has more than this number of cells per byte of the
# group's encoded histograms, most cells are unused. Each used cell is then marked by a bit, so that unused cells need
# not be examined.
_MAX_CELLS_PER_BYTE = 2

# Two histograms are merged as lists of keys, and not in an array of cells, if the range from the lowest to the highest
# key has more than this number of keys per encoded byte of both histograms.
_MAX_KEYS_PER_BYTE = 4


@dataclass(frozen=True, slots=True)
class Buckets(Field):
    """The field of a state: a count of each whole-number key. A merge adds the counts of equal keys.

    The values of the field are histograms of the type `aggr.histograms.column.HISTOGRAM_TYPE`.

    Histograms are checked while they are merged, and while keys are read from the result of `packed`. A separate check
    before each merge would take an additional quarter of the merge's time.

    Parameters
    ----------
    max_keys : int or None
        The maximum number of adjacent keys of a histogram. Its keys are those from ``highest - max_keys + 1`` to
        ``highest``, where ``highest`` is the highest key. Values with lower keys are counted at the key
        ``highest - max_keys + 1``. Only the highest key determines the range, so the order of merges does not matter.
    lowest_key, highest_key : int
        The range of keys. States with other keys raise an error.
    wider : bool
        If True, `merge` accepts a histogram of more than ``max_keys`` adjacent keys, and counts its values with lower
        keys as described for ``max_keys``. If False, a histogram of more than ``max_keys`` adjacent keys raises an
        error.
    """

    max_keys: int | None = None
    lowest_key: int = -(2**31)
    highest_key: int = 2**31 - 1
    wider: bool = False

    def count(
        self, keys: NDArray[np.integer], groups: Groups, key_ranges: tuple[Whole, Whole] | None = None
    ) -> pa.StructArray:
        """Return the histogram of the keys of each group. Keys must fit int32 and be sorted by group.

        ``key_ranges`` contains the lowest and the highest key of each group. For a group without keys, it contains 1
        and 0. If ``key_ranges`` is not passed, the lowest and the highest keys are computed.
        """
        check_lengths(len(keys), groups, "keys")
        if not len(keys):
            zeros = np.zeros(groups.n, np.int64)
            no_offsets = np.zeros(groups.n + 1, np.int64)
            return _column(zeros, zeros, zeros, data=np.zeros(0, np.uint8), offsets=no_offsets)
        # Keys are always converted to int32, so that loops are compiled for one type only.
        keys = keys.astype(np.int32, copy=False)
        offsets = groups.offsets
        low, high = key_ranges or find_key_ranges(keys, offsets)
        low = np.maximum(low, high - (self.max_keys or FAR) + 1)
        self._check_range(low, high)
        spans = np.maximum(high - low + 1, 0)
        rows = np.diff(offsets)
        is_sparse = spans > np.maximum(
            np.minimum(MAX_CELLS_PER_KEY * rows, LARGE_GROUP_CELLS),
            np.maximum(MAX_CELLS_PER_KEY_OF_LARGE * rows, MIN_CELLS),
        )
        column = _column(*count_keys(keys, offsets, low, np.where(is_sparse, 0, spans)))
        if not is_sparse.any():
            return column
        ids = np.repeat(np.flatnonzero(is_sparse), rows[is_sparse])
        sparse_keys = keys[np.repeat(is_sparse, rows)]
        sparse_keys = sparse_keys if self.max_keys is None else np.maximum(sparse_keys, low[ids])
        return _replace_rows(column, is_sparse, _histograms_of_keys(ids, sparse_keys, None, is_sparse))

    def _check_range(self, low: Whole, high: Whole) -> None:
        """Raise ``ValueError`` if a group has keys outside the declared range.

        ``low`` and ``high`` are the lowest and the highest key of each group. For a group without keys, ``low`` is
        greater than ``high``.
        """
        has_keys = low <= high
        below = low[has_keys & (low < self.lowest_key)]
        above = high[has_keys & (high > self.highest_key)]
        for key in [*below[:1], *above[:1]]:
            raise ValueError(
                f"the bucket key {key} is outside the range of the field, {self.lowest_key} to {self.highest_key}; "
                "filter the rows, or declare a wider range in Buckets(lowest_key=…, highest_key=…)"
            )

    def count_weighted(self, keys: NDArray[np.integer], weights: Whole, groups: Groups) -> pa.StructArray:
        """Return the histogram of the keys of each group. The count of a key is the sum of its weights.

        ``keys``, ``weights`` and ``groups`` have one entry per row. Weights must be at least 1. The keys may be in any
        order.
        """
        ones = Histograms(np.ones(len(keys), np.int64), keys.astype(np.int64), weights)
        return self.merge(ones.to_arrow(), groups)

    def merge(self, column: pa.StructArray, groups: Groups) -> pa.StructArray:
        return self._merge(column, groups, False)

    def merge_checked(self, column: pa.StructArray, groups: Groups) -> pa.StructArray:
        return self._merge(column, groups, True)

    def _merge(self, column: pa.StructArray, groups: Groups, checked: bool) -> pa.StructArray:
        check_lengths(len(column), groups, "histograms")
        column = field_of_type(column, HISTOGRAM_TYPE)
        low, high, totals = (column.field(name).to_numpy() for name in ("low", "high", "total"))
        data, places = of_arrow(column.field("counts"))
        limits = self.max_keys or FAR, FAR if self.wider else self.max_keys or FAR, self.lowest_key, self.highest_key
        merged_columns, is_sparse, is_damaged, has_overflowed = _merge_groups(
            groups.rows_by_group, groups.offsets, low, high, totals, data, places, *limits, checked, _NO_RANKS
        )
        if is_damaged:
            raise DamagedState(BUCKETS_ARE_DAMAGED)
        if has_overflowed:
            raise OverflowError(TOO_MANY_VALUES)
        merged = _column(*merged_columns)
        if not is_sparse.any():
            return merged
        rows = is_sparse[groups.ids]
        histograms = Histograms.from_arrow(column.filter(pa.array(rows)))
        ids = groups.ids[rows][histograms.rows()]
        return _replace_rows(
            merged,
            is_sparse,
            _histograms_of_keys(ids, np.maximum(histograms.keys, merged_columns[0][ids]), histograms.counts, is_sparse),
        )

    def subtract(self, column: pa.StructArray, other: pa.StructArray) -> pa.StructArray:
        minuend = Histograms.from_arrow(column)
        subtrahend = Histograms.from_arrow(other)
        ids, keys, counts = _sum_by_key(
            np.concatenate([minuend.rows(), subtrahend.rows()]),
            np.concatenate([minuend.keys, subtrahend.keys]),
            np.concatenate([minuend.counts, -subtrahend.counts]),
        )
        refuse_where(counts < 0, ROWS_NOT_IN_STATE, ids)
        is_left = counts > 0
        return Histograms(np.bincount(ids[is_left], minlength=len(column)), keys[is_left], counts[is_left]).to_arrow()

    def row_counts(self, column: pa.StructArray) -> Whole:
        counts: Whole = column.field("total").to_numpy()
        return counts

    def packed(self, states: pa.StructArray, name: str) -> PackedHistograms:
        """Return the histograms in the field ``name`` of states. The histograms are checked when keys are read."""
        bounds = self.max_keys or FAR, self.lowest_key, self.highest_key
        return PackedHistograms.from_arrow(states.field(name), *bounds, name=name)

    def check_before_merge(self, column: pa.StructArray) -> None:
        field_of_type(column, HISTOGRAM_TYPE)

    def check(self, column: pa.StructArray) -> None:
        check_histograms(column, self.max_keys or FAR, self.lowest_key, self.highest_key)


def _column(low: Whole, high: Whole, totals: Whole, data: Bytes, offsets: Whole) -> pa.StructArray:
    return column_of(low, high, totals, to_arrow(data, offsets))


def _histograms_of_keys(
    ids: NDArray[np.intp], keys: NDArray[np.integer], counts: Whole | None, is_selected: NDArray[np.bool_]
) -> pa.StructArray:
    """Return the histograms of the groups that the mask ``is_selected`` selects.

    ``ids`` contains the group of each key. The keys may be in any order. Without ``counts``, each key counts once.
    """
    ids, keys, counts = _sum_by_key(ids, keys, counts)
    return Histograms(np.bincount(ids, minlength=len(is_selected))[is_selected], keys, counts).to_arrow()


def _sum_by_key(
    ids: NDArray[np.intp], keys: NDArray[np.integer], counts: Whole | None
) -> tuple[NDArray[np.intp], Whole, Whole]:
    """Sum counts by group and key. Return three arrays: group, key and sum, sorted by group and then by key.

    ``ids``, ``keys`` and ``counts`` have one entry per row. Without ``counts``, each key counts once. A group and a key
    are combined into one integer, because numpy sorts an array of integers faster than pairs.
    """
    combined = (ids.astype(np.int64) << 32) | (keys.astype(np.int64) + _OFFSET)
    if counts is None:
        combined.sort()
    else:
        order = np.argsort(combined)
        combined = combined[order]
        counts = counts[order]
    first_rows = np.flatnonzero(np.append(len(combined) > 0, combined[1:] != combined[:-1]))
    sums = np.diff(first_rows, append=len(combined)) if counts is None else np.add.reduceat(counts, first_rows)
    return combined[first_rows] >> 32, (combined[first_rows] & _KEY) - _OFFSET, sums


def _replace_rows(
    column: pa.StructArray, is_replaced: NDArray[np.bool_], replacements: pa.StructArray
) -> pa.StructArray:
    """Return a column in which ``replacements``, in their order, replace the rows that the mask ``is_replaced``
    selects.
    """
    rows = np.arange(len(column))
    rows[is_replaced] = len(column) + np.arange(len(replacements))
    return pa.concat_arrays([column, replacements]).take(pa.array(rows))


@compiled
def _merge_groups(
    rows: Rows,
    offsets_of_groups: Whole,
    low: NDArray[np.int32],
    high: NDArray[np.int32],
    total: Whole,
    counts: Bytes,
    places: Whole,
    max_keys: int,
    widest: int,
    lowest: int,
    highest: int,
    checked: bool,
    no_ranks: Whole,
) -> tuple[HistogramColumns, NDArray[np.bool_], bool, bool]:
    """Merge the histograms of each group.

    The rows of group ``g`` are ``rows[offsets_of_groups[g]:offsets_of_groups[g + 1]]``.
    The histogram of a row has the keys from ``low`` to ``high``, ``total`` values and the encoded counts
    ``counts[places[row]:places[row + 1]]``. A histogram is damaged if it has keys below ``lowest`` or above
    ``highest``, or more than ``widest`` adjacent keys. If ``checked`` is true, all encoded counts are checked as well.

    Return the merged histograms, a mask of the groups that were left out because their keys are far apart, whether a
    histogram is damaged, and whether a count exceeds int64. The result for a group that was left out has a lowest and a
    highest key, but no encoded counts. The caller must merge the histograms of such a group itself. If the group has
    keys below the lowest key of the result, the caller must count their values at the lowest key, as ``max_keys``
    requires.
    """
    n = len(offsets_of_groups) - 1
    is_damaged = False
    has_overflowed = False
    is_sparse = np.zeros(n, np.bool_)
    lows = np.zeros(n, np.int64)
    highs = np.zeros(n, np.int64)
    totals = np.zeros(n, np.int64)
    # The array has room for all merged histograms: a merged count takes no more bytes than the counts that are added,
    # and a gap no more bytes than the gaps that it replaces. In addition, a gap of at most 6 bytes can be necessary
    # before the first count of each histogram.
    data = np.empty(len(counts) + 6 * len(low) + 2, np.uint8)
    offsets = np.zeros(n + 1, np.int64)
    cells = np.zeros(MIN_CELLS, np.int64)
    marks = np.zeros(MIN_CELLS // 64 + 1, np.uint64)
    # ``min_cells`` is an int64 variable, because compiled functions would be compiled again for a literal.
    min_cells = np.int64(MIN_CELLS)
    key_lists = allocate_lists(min_cells)
    lists = allocate_pair_lists(min_cells)
    no_keys = np.zeros((0, 0), np.int64)
    at: Int = np.int64(0)
    for group in range(n):
        lowest_key: Int
        highest_key: Int
        lowest_key = FAR
        highest_key = -FAR
        size = 0
        # the number of rows in this group with a nonempty histogram, and the first and the last such row
        nonempty_count = 0
        first = np.int64(-1)
        last = np.int64(-1)
        for i in range(offsets_of_groups[group], offsets_of_groups[group + 1]):
            row = np.int64(rows[i])
            byte_count = places[row + 1] - places[row]
            is_damaged |= not are_possible_bounds(
                low[row],
                high[row],
                total[row],
                size=byte_count,
                max_keys=widest,
                lowest_key=lowest,
                highest_key=highest,
            )
            if total[row]:
                if nonempty_count == 0:
                    first = row
                last = row
                nonempty_count += 1
                lowest_key = min(lowest_key, np.int64(low[row]))
                highest_key = max(highest_key, np.int64(high[row]))
                size += places[row + 1] - places[row]
                totals[group] = capped_sum(totals[group], total[row])
        first_key = max(lowest_key, highest_key - max_keys + 1)
        span = highest_key - first_key + 1
        has_overflowed |= nonempty_count != 1 and totals[group] == MAX_COUNT
        if is_damaged:
            break
        if nonempty_count == 1 and first_key == lowest_key:  # a single histogram need not be merged: it is copied
            begin = places[first]
            end = places[first + 1]
            if checked:
                is_damaged |= not is_sound(
                    low[first],
                    high[first],
                    total[first],
                    counts,
                    at=begin,
                    end=end,
                    ranks=no_ranks,
                    row=first,
                    keys=no_keys,
                )
            target = np.uint64(at)
            source = np.uint64(begin)
            for byte in range(end - begin):  # with unsigned indices, the loop takes a tenth of the time
                data[target + np.uint64(byte)] = counts[source + np.uint64(byte)]
            at += end - begin
        elif nonempty_count == 2 and first_key == lowest_key and span > _MAX_KEYS_PER_BYTE * size:
            if size >= len(lists[0]):
                lists = allocate_pair_lists(2 * size)
            at = add_two(
                low, high, total, counts, places=places, first=first, second=last, lists=lists, data=data, at=at
            )
            if at < 0:
                is_damaged = True
                break
        elif size and span > max(
            min(MAX_CELLS_PER_KEY * size, LARGE_GROUP_CELLS), max(MAX_CELLS_PER_KEY_OF_LARGE * size, MIN_CELLS)
        ):
            is_sparse[group] = True
        elif size:
            if span > len(cells):
                cells = np.zeros(2 * span, np.int64)
                marks = np.zeros(2 * span // 64 + 1, np.uint64)
                key_lists = allocate_lists(2 * span)
            uses_marks = span > _MAX_CELLS_PER_BYTE * size
            for i in range(offsets_of_groups[group], offsets_of_groups[group + 1]):
                row = np.int64(rows[i])
                if total[row]:
                    begin = places[row]
                    end = places[row + 1]
                    if checked and not is_sound(
                        low[row],
                        high[row],
                        total[row],
                        counts,
                        at=begin,
                        end=end,
                        ranks=no_ranks,
                        row=row,
                        keys=no_keys,
                    ):
                        is_damaged = True
                        break  # a damaged histogram is not added, because its keys may lie outside the array of cells
                    cell = np.int64(low[row]) - first_key
                    _add_to_cells(cells, marks, uses_marks, cell, counts=counts, at=begin, end=end)
            if uses_marks:
                at = write_marked(cells, marks, span, data=data, at=at)
            else:
                at = write_cells(cells[:span], key_lists, data, at)
        if size:
            lows[group], highs[group] = first_key, highest_key
        offsets[group + 1] = at
    # The copy frees unused memory. It takes as long as the merge, and is therefore made only if at least a quarter of
    # the memory is unused.
    written = data[:at] if 4 * at > 3 * len(data) else data[:at].copy()
    return (lows, highs, totals, written, offsets), is_sparse, is_damaged, has_overflowed


@compiled
def _add_to_cells(
    cells: Whole, marks: NDArray[np.uint64], uses_marks: bool, cell: Int, counts: Bytes, at: Int, end: Int
) -> None:
    """Add the histogram in ``counts[at:end]``, which must be undamaged, to the cells ``cells``.

    ``cell`` is the index of the cell of the histogram's lowest key. If this index is negative, the counts of all keys
    with negative indices are added to cell 0. With ``uses_marks``, a bit in ``marks`` is set for each cell that is
    used.
    """
    used_cell: Int
    while at < end:
        word = word_at(counts, at) if at + WORD <= end else LONGER
        if not word & LONGER:
            for i in range(WORD):
                byte: Int = np.int64((word >> np.uint64(8 * i)) & BYTE_MASK)
                gap = -(byte & 1)
                used_cell = np.uint64(max(cell, 0))
                count = (byte >> 1) & ~gap
                cells[used_cell] += count
                if uses_marks:
                    marks[used_cell >> MARK_WORD_SHIFT] |= np.uint64(count != 0) << (used_cell & MARK_BIT_MASK)
                cell += 1 + ((byte >> 1) & gap)
            at += WORD
            continue
        for _ in range(WORD):
            if at < end:
                number, at = next_number(counts, at, end)
                used_cell = np.uint64(max(cell, 0))
                cells[used_cell] += max(number, 0)
                if uses_marks and number > 0:
                    marks[used_cell >> MARK_WORD_SHIFT] |= ONE << (used_cell & MARK_BIT_MASK)
                cell += advance(number)
