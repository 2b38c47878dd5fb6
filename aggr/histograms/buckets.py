"""Buckets: the field of a state with a histogram over integer keys, for HdrHistogram and DDSketch.

Keys are counted by `aggr.histograms.loops`. The histograms of a group are added in an array with one cell per key,
which usually fits into the processor's cache. If the keys of a group are far apart, they are sorted instead. numpy
sorts them: few columns have such keys, and a compiled sort in this module would take a long time to compile.
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
    DAMAGED,
    HISTOGRAM_TYPE,
    MOST,
    Histograms,
    capped,
    check_histograms,
    column_of,
    is_sound,
    within,
)
from aggr.histograms.leb128 import FAR, LONGER, WORD, Bytes, advance, of_arrow, to_arrow, word_at
from aggr.histograms.loops import (
    EMPTY,
    FEW,
    LINE,
    ONE,
    PLACE,
    SPARSE,
    WORD_OF,
    Rows,
    Whole,
    Written,
    counted,
    find_key_ranges,
    room,
    write_cells,
    write_marked,
)
from aggr.histograms.pairs import add_two, lists_of
from aggr.histograms.reading import LAST as _LAST
from aggr.histograms.reading import Packed, next_number

_OFFSET, _KEY = 1 << 31, (1 << 32) - 1  # `_summed` stores the sum of a key and _OFFSET in the lower 32 bits of a number
_UNASKED = np.zeros((0, 0), np.int64)  # the argument ``ranks`` of `is_sound` if no keys are requested
# if a group has more than this number of cells per encoded byte, each used cell is marked by a bit, so that the other
# cells need not be examined
_MARKED = 2
# if two histograms together have more than this number of keys per encoded byte, from the lowest to the highest key,
# they are merged as lists of keys and not in an array of cells
_APART = 4


@dataclass(frozen=True, slots=True)
class Buckets(Field):
    """The field of a state: counts of whole-number keys, which are added by key.

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
        Whether `merge` accepts histograms of more than ``max_keys`` adjacent keys, and counts the values with lower
        keys as described for ``max_keys``. Otherwise, such a histogram raises an error.
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
            none = np.zeros(groups.n, np.int64)
            no_offsets = np.zeros(groups.n + 1, np.int64)
            return _column(none, none, none, data=np.zeros(0, np.uint8), offsets=no_offsets)
        # always int32, so that loops are compiled only once
        keys, until = keys.astype(np.int32, copy=False), groups.offsets
        low, high = key_ranges or find_key_ranges(keys, until)
        low = np.maximum(low, high - (self.max_keys or FAR) + 1)
        self._check_range(low, high)
        spans = np.maximum(high - low + 1, 0)
        rows = np.diff(until)
        sparse = spans > np.maximum(np.minimum(EMPTY * rows, LINE), np.maximum(SPARSE * rows, FEW))
        column = _column(*counted(keys, until, low, np.where(sparse, 0, spans)))
        if not sparse.any():
            return column
        ids = np.repeat(np.flatnonzero(sparse), rows[sparse])
        apart = keys[np.repeat(sparse, rows)]
        apart = apart if self.max_keys is None else np.maximum(apart, low[ids])
        return _put(column, sparse, _listed(ids, apart, None, sparse))

    def _check_range(self, low: Whole, high: Whole) -> None:
        """Raise ``ValueError`` if a group has keys outside the declared range.

        ``low`` and ``high`` are the lowest and the highest key of each group. For a group without keys, ``low`` is
        greater than ``high``.
        """
        has_keys = low <= high
        below, above = low[has_keys & (low < self.lowest_key)], high[has_keys & (high > self.highest_key)]
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
        bounds = self.max_keys or FAR, FAR if self.wider else self.max_keys or FAR, self.lowest_key, self.highest_key
        written, sparse, broken, overflown = _merged(
            groups.rows_by_group, groups.offsets, low, high, totals, data, places, *bounds, checked, _UNASKED
        )
        if broken:
            raise DamagedState(DAMAGED)
        if overflown:
            raise OverflowError(TOO_MANY_VALUES)
        merged = _column(*written)
        if not sparse.any():
            return merged
        rows = sparse[groups.ids]
        histograms = Histograms.from_arrow(column.filter(pa.array(rows)))
        ids = groups.ids[rows][histograms.rows()]
        return _put(
            merged, sparse, _listed(ids, np.maximum(histograms.keys, written[0][ids]), histograms.counts, sparse)
        )

    def subtract(self, column: pa.StructArray, other: pa.StructArray) -> pa.StructArray:
        minuend, subtrahend = Histograms.from_arrow(column), Histograms.from_arrow(other)
        ids, keys, counts = _summed(
            np.concatenate([minuend.rows(), subtrahend.rows()]),
            np.concatenate([minuend.keys, subtrahend.keys]),
            np.concatenate([minuend.counts, -subtrahend.counts]),
        )
        refuse_where(counts < 0, ROWS_NOT_IN_STATE, ids)
        left = counts > 0
        return Histograms(np.bincount(ids[left], minlength=len(column)), keys[left], counts[left]).to_arrow()

    def row_counts(self, column: pa.StructArray) -> Whole:
        counts: Whole = column.field("total").to_numpy()
        return counts

    def packed(self, states: pa.StructArray, name: str) -> Packed:
        """Return the histograms in the field ``name`` of states. The histograms are checked when keys are read."""
        bounds = self.max_keys or FAR, self.lowest_key, self.highest_key
        return Packed.from_arrow(states.field(name), *bounds, name=name)

    def check_first(self, column: pa.StructArray) -> None:
        field_of_type(column, HISTOGRAM_TYPE)

    def check(self, column: pa.StructArray) -> None:
        check_histograms(column, self.max_keys or FAR, self.lowest_key, self.highest_key)


def _column(low: Whole, high: Whole, totals: Whole, data: Bytes, offsets: Whole) -> pa.StructArray:
    return column_of(low, high, totals, to_arrow(data, offsets))


def _listed(
    ids: NDArray[np.intp], keys: NDArray[np.integer], counts: Whole | None, chosen: NDArray[np.bool_]
) -> pa.StructArray:
    """Return the histograms of the groups that the mask ``chosen`` selects.

    ``ids`` contains the group of each key. The keys may be in any order. Without ``counts``, each key counts once.
    """
    ids, keys, counts = _summed(ids, keys, counts)
    return Histograms(np.bincount(ids, minlength=len(chosen))[chosen], keys, counts).to_arrow()


def _summed(
    ids: NDArray[np.intp], keys: NDArray[np.integer], counts: Whole | None
) -> tuple[NDArray[np.intp], Whole, Whole]:
    """Sum counts by group and key. Return three arrays: group, key and sum, sorted by group and then by key.

    ``ids``, ``keys`` and ``counts`` have one entry per row. Without ``counts``, each key counts once. A group and a key
    are combined into one integer, because numpy sorts an array of integers faster than pairs.
    """
    both = (ids.astype(np.int64) << 32) | (keys.astype(np.int64) + _OFFSET)
    if counts is None:
        both.sort()
    else:
        order = np.argsort(both)
        both, counts = both[order], counts[order]
    first = np.flatnonzero(np.append(len(both) > 0, both[1:] != both[:-1]))
    summed = np.diff(first, append=len(both)) if counts is None else np.add.reduceat(counts, first)
    return both[first] >> 32, (both[first] & _KEY) - _OFFSET, summed


def _put(column: pa.StructArray, chosen: NDArray[np.bool_], replacements: pa.StructArray) -> pa.StructArray:
    """Return a column in which ``replacements``, in their order, replace the rows that the mask ``chosen`` selects."""
    rows = np.arange(len(column))
    rows[chosen] = len(column) + np.arange(len(replacements))
    return pa.concat_arrays([column, replacements]).take(pa.array(rows))


@compiled
def _merged(
    rows: Rows,
    until: Whole,
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
    unasked: Whole,
) -> tuple[Written, NDArray[np.bool_], bool, bool]:
    """Merge the histograms of each group. Group ``g`` has the rows ``rows[until[g]:until[g + 1]]``.

    The histogram of a row has the keys from ``low`` to ``high``, ``total`` values and the encoded counts
    ``counts[places[row]:places[row + 1]]``. It is damaged if it has keys below ``lowest`` or above ``highest``, or more
    than ``widest`` adjacent keys. If ``checked`` is true, all encoded counts are checked as well.

    Return the merged histograms, a mask of the groups that were left out because their keys are far apart, whether a
    histogram is damaged, and whether a count exceeds int64. A group that was left out has no encoded counts, but a
    lowest and a highest key. This lowest key takes ``max_keys`` into account: the caller must count all lower keys of
    the group at this key.
    """
    n, broken, overflown = len(until) - 1, False, False
    sparse = np.zeros(n, np.bool_)
    lows, highs, totals = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
    # The number of bytes that the merged histograms can take: a merged count takes no more bytes than the counts that
    # are added, and a gap takes no more bytes than the gaps that it replaces. In addition, a gap can be necessary
    # before the first count of each histogram; 6 bytes suffice for it.
    data, offsets = np.empty(len(counts) + 6 * len(low) + 2, np.uint8), np.zeros(n + 1, np.int64)
    cells, marks = np.zeros(FEW, np.int64), np.zeros(FEW // 64 + 1, np.uint64)
    few = np.int64(FEW)  # an int64 variable, because loops would be compiled again for a literal
    line, lists, no_keys = room(few), lists_of(few), np.zeros((0, 0), np.int64)
    at: Int = np.int64(0)
    for group in range(n):
        lowest_key: Int
        highest_key: Int
        lowest_key, highest_key, size = FAR, -FAR, 0
        # for the group: the number of rows with a nonempty histogram, and the first and the last such row
        several, first, last = 0, np.int64(-1), np.int64(-1)
        for i in range(until[group], until[group + 1]):
            row = np.int64(rows[i])
            bytes_of = places[row + 1] - places[row]
            broken |= not within(
                low[row], high[row], total[row], size=bytes_of, max_keys=widest, lowest_key=lowest, highest_key=highest
            )
            if total[row]:
                several, first, last = several + 1, row if several == 0 else first, row
                lowest_key, highest_key = min(lowest_key, np.int64(low[row])), max(highest_key, np.int64(high[row]))
                size += places[row + 1] - places[row]
                totals[group] = capped(totals[group], total[row])
        folded = max(lowest_key, highest_key - max_keys + 1)
        span = highest_key - folded + 1
        overflown |= several != 1 and totals[group] == MOST
        if broken:
            break
        if several == 1 and folded == lowest_key:  # a single histogram is copied
            begin, end = places[first], places[first + 1]
            if checked:
                broken |= not is_sound(
                    low[first], high[first], total[first], counts, begin, end, unasked, first, no_keys
                )
            to, source = np.uint64(at), np.uint64(begin)
            for byte in range(end - begin):  # with unsigned indices, the loop takes a tenth of the time
                data[to + np.uint64(byte)] = counts[source + np.uint64(byte)]
            at += end - begin
        elif several == 2 and folded == lowest_key and span > _APART * size:
            if size >= len(lists[0]):
                lists = lists_of(2 * size)
            at = add_two(
                low, high, total, counts, places=places, first=first, second=last, lists=lists, data=data, at=at
            )
            if at < 0:
                broken = True
                break
        elif size and span > max(min(EMPTY * size, LINE), max(SPARSE * size, FEW)):
            sparse[group] = True
        elif size:
            if span > len(cells):
                cells, marks = np.zeros(2 * span, np.int64), np.zeros(2 * span // 64 + 1, np.uint64)
                line = room(2 * span)
            apart = span > _MARKED * size
            for i in range(until[group], until[group + 1]):
                row = np.int64(rows[i])
                if total[row]:
                    here, end = places[row], places[row + 1]
                    if checked and not is_sound(
                        low[row], high[row], total[row], counts, here, end, unasked, row, no_keys
                    ):
                        broken = True
                        break  # a damaged histogram is not added, because its keys may lie outside the array of cells
                    cell = np.int64(low[row]) - folded
                    _add(cells, marks, apart, cell, counts=counts, at=here, end=end)
            at = write_marked(cells, marks, span, data, at) if apart else write_cells(cells[:span], line, data, at)
        if size:
            lows[group], highs[group] = folded, highest_key
        offsets[group + 1] = at
    # The bytes are copied, to free unused memory, only if at least a quarter of it is unused. The copy takes as long as
    # the merge.
    written = data[:at] if 4 * at > 3 * len(data) else data[:at].copy()
    return (lows, highs, totals, written, offsets), sparse, broken, overflown


@compiled
def _add(line: Whole, marks: NDArray[np.uint64], apart: bool, cell: Int, counts: Bytes, at: Int, end: Int) -> None:
    """Add the histogram in ``counts[at:end]``, which must be undamaged, to the cells ``line``.

    ``cell`` is the index of the cell of the histogram's lowest key. If this index is negative, the counts of all keys
    with negative indices are added to cell 0. With ``apart``, a bit in ``marks`` is set for each cell that is used.
    """
    use: Int
    while at < end:
        word = word_at(counts, at) if at + WORD <= end else LONGER
        if not word & LONGER:
            for i in range(WORD):
                byte: Int = np.int64((word >> np.uint64(8 * i)) & _LAST)
                gap = -(byte & 1)
                use = np.uint64(max(cell, 0))
                count = (byte >> 1) & ~gap
                line[use] += count
                if apart:
                    marks[use >> WORD_OF] |= np.uint64(count != 0) << (use & PLACE)
                cell += 1 + ((byte >> 1) & gap)
            at += WORD
            continue
        for _ in range(WORD):
            if at < end:
                number, at = next_number(counts, at, end)
                use = np.uint64(max(cell, 0))
                line[use] += max(number, 0)
                if apart and number > 0:
                    marks[use >> WORD_OF] |= ONE << (use & PLACE)
                cell += advance(number)
