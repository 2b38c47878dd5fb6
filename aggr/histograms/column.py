"""Columns of histograms. A histogram maps integer keys to counts: the number of values that have the key.

A row contains the lowest and the highest key, the number of values (``total``), and a list of the counts of all keys
from the lowest to the highest. In this list, a negative number -n stands for a gap of n adjacent keys without values,
and 0 stands for a gap of one key. The list is encoded in bytes by `aggr.histograms.leb128`.

    keys     7  8  9        40              counts   5  1  2        3
    row      low = 7   high = 40   total = 11   counts = 5  1  2  -30  3  (5 bytes)

Here -30 stands for the keys 10 to 39. A list begins and ends with a count above 0, and contains no two gaps in
succession, so that equal histograms have equal bits. A count below 64 takes one byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arrays import Bytes, Ids, Whole
from aggr.arrow.damaged_state import DamagedState, field_of_type
from aggr.compiling.jit import Int, compiled
from aggr.groups.groups import Groups
from aggr.groups.numbers import TOO_MANY_VALUES, sum_by_group
from aggr.histograms import leb128
from aggr.histograms.leb128 import FAR, LONGER, WORD, advance, gaps_of, get_number, of_arrow, sums_of, word_at

HISTOGRAM_TYPE = pa.struct([("low", pa.int32()), ("high", pa.int32()), ("total", pa.int64()), ("counts", pa.binary())])


BUCKETS_ARE_DAMAGED = (
    "has buckets that are cut off, that end in the wrong place, or whose counts do not add up to its total"
)

MAX_COUNT = np.int64(np.iinfo(np.int64).max)
_MAX_COUNT = np.uint64(MAX_COUNT)
NO_RANK = np.uint64(2**64 - 1)  # the next rank if no requested rank is left; it is larger than every rank
LAST_BYTE_SHIFT = np.uint64(56)


class Histograms(NamedTuple):
    """The keys and counts of ``n`` histograms.

    ``sizes`` contains the number of buckets of each histogram, shape (n,). ``keys`` and ``counts`` contain the buckets
    of all histograms, one histogram after the other, shape (buckets,). Keys ascend within a histogram, and counts are
    above 0.
    """

    sizes: Whole
    keys: Whole
    counts: Whole

    @classmethod
    def from_arrow(cls, column: pa.StructArray) -> Histograms:
        """Decode a column of `HISTOGRAM_TYPE`. Raise `DamagedState`, a ``ValueError``, if the column is damaged."""
        column = check_histograms(column)
        low = column.field("low").to_numpy().astype(np.int64)
        return cls(*leb128.read(low, column.field("counts"))[0])

    def to_arrow(self) -> pa.StructArray:
        """Return the histograms as a column of `HISTOGRAM_TYPE`.

        A total beyond int64 is stored as the largest int64.
        """
        low, high, totals = _summaries(*self)
        return column_of(low, high, totals, leb128.write(low, *self))

    def rows(self) -> Ids:
        """Return the index of each bucket's histogram, shape (buckets,)."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def dense(self, widest: int = FAR) -> Iterator[tuple[int, Whole]]:
        """Yield the lowest key of each histogram, with an array of the counts of all keys from the lowest to the
        highest.

        Raise ``ValueError`` if the array of a histogram would have more than ``widest`` counts.
        """
        end = 0
        for size in self.sizes.tolist():
            keys = self.keys[end : end + size]
            end = end + size
            low, high = (int(keys[0]), int(keys[-1])) if size else (0, -1)
            if high - low >= widest:
                raise ValueError(
                    f"a DDSketch message can contain at most {widest:,} consecutive buckets, and this state has "
                    f"buckets from {low} to {high}; use a coarser relative_accuracy"
                )
            counts = np.zeros(high - low + 1, np.int64)
            counts[keys - low] = self.counts[end - size : end]
            yield low, counts

    def totals(self) -> Whole:
        """Return the sum of the counts of each histogram, shape (n,)."""
        return sum_by_group(self.counts, Groups._trusted(self.rows(), len(self.sizes)))


def shifted(column: pa.StructArray, shifts: Whole) -> pa.StructArray:
    """Return histograms whose keys are shifted to the right by ``shifts[row]`` bits. Counts of equal keys are added.

    Raise ``OverflowError`` if a count exceeds int64.

    >>> column = Histograms(np.array([3]), np.array([-1, 0, 1]), np.array([1, 2, 3])).to_arrow()
    >>> Histograms.from_arrow(shifted(column, np.array([1])))
    Histograms(sizes=array([2]), keys=array([-1,  0]), counts=array([1, 5]))
    """
    histograms = Histograms.from_arrow(column)
    rows = histograms.rows()
    keys = histograms.keys >> shifts[rows]
    first_buckets = np.flatnonzero(np.append(len(keys) > 0, (keys[1:] != keys[:-1]) | (rows[1:] != rows[:-1])))
    counts = np.add.reduceat(histograms.counts, first_buckets) if len(first_buckets) else histograms.counts
    if (counts < 0).any():
        raise OverflowError(TOO_MANY_VALUES)
    return Histograms(np.bincount(rows[first_buckets], minlength=len(column)), keys[first_buckets], counts).to_arrow()


def first_last(lengths: Whole, values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the first and the last value of each row, each of shape (n,), and 0 for an empty row.

    ``values`` contains the values of all rows, one row after the other. ``lengths`` contains the number of values of
    each row.
    """
    is_nonempty = lengths > 0
    row_ends = np.cumsum(lengths)
    first, last = np.zeros((2, len(row_ends)), values.dtype)
    first[is_nonempty], last[is_nonempty] = values[(row_ends - lengths)[is_nonempty]], values[row_ends[is_nonempty] - 1]
    return first, last


def column_of(low: Whole, high: Whole, totals: Whole, counts: pa.BinaryArray) -> pa.StructArray:
    """Return a column of `HISTOGRAM_TYPE`: lowest keys, highest keys, sums of counts, and encoded counts."""
    columns = [pa.array(low.astype(np.int32)), pa.array(high.astype(np.int32)), pa.array(totals), counts]
    return pa.StructArray.from_arrays(columns, fields=list(HISTOGRAM_TYPE))


def check_histograms(
    column: pa.StructArray, max_keys: int = FAR, lowest_key: int = -FAR, highest_key: int = FAR
) -> pa.StructArray:
    """Return a column as `HISTOGRAM_TYPE`. Raise `DamagedState` if a histogram in it is damaged.

    A histogram is damaged unless it has the encoding that `Histograms.to_arrow` writes, its keys are from
    ``lowest_key`` to ``highest_key``, and there are at most ``max_keys`` keys from its lowest to its highest.
    """
    column = field_of_type(column, HISTOGRAM_TYPE)
    low, high, totals = (column.field(name).to_numpy() for name in ("low", "high", "total"))
    data, places = of_arrow(column.field("counts"))
    no_ranks = np.zeros((0, len(low)), np.int64)
    limits = max_keys, lowest_key, highest_key
    _, is_undamaged = find_keys(low, high, totals, data, places, no_ranks, *limits)
    if not is_undamaged:
        raise DamagedState(BUCKETS_ARE_DAMAGED)
    return column


@compiled
def find_keys(
    low: NDArray[np.int32],
    high: NDArray[np.int32],
    totals: Whole,
    data: Bytes,
    places: Whole,
    ranks: Whole,
    max_keys: Int,
    lowest_key: Int,
    highest_key: Int,
) -> tuple[Whole, bool]:
    """Return the keys at ``ranks`` in each histogram, shape (rank_count, n), and whether all histograms are undamaged.

    ``low``, ``high`` and ``totals`` are fields of `HISTOGRAM_TYPE`, and ``data[places[row]:places[row + 1]]`` are the
    encoded counts of a row. ``ranks`` has the shape (rank_count, n). The values of a histogram have the ranks 0, 1, 2,
    … in ascending order of their keys. Ranks must not decrease along the first axis. The key at a rank outside ``[0,
    total)`` is undefined. ``max_keys``, ``lowest_key`` and ``highest_key`` are the limits of `check_histograms`.
    """
    rank_count, n = ranks.shape
    keys = np.zeros((rank_count, n), np.int64)
    for row in range(n):
        at = places[row]
        end = places[row + 1]
        total = totals[row]
        if not are_possible_bounds(
            low[row], high[row], total, size=end - at, max_keys=max_keys, lowest_key=lowest_key, highest_key=highest_key
        ):
            return keys, False
        if total and not is_sound(low[row], high[row], total, data, at, end, ranks, row, keys):
            return keys, False
    return keys, True


@compiled
def are_possible_bounds(
    low: Int, high: Int, total: Int, size: Int, max_keys: Int, lowest_key: Int, highest_key: Int
) -> bool:
    """Return whether the lowest key, the highest key and the total of a histogram are possible.

    ``size`` is the number of bytes of its encoded counts. In an empty histogram, ``low``, ``high``, ``total`` and
    ``size`` must be 0. The keys of other histograms must be from ``lowest_key`` to ``highest_key``, and there must be
    at most ``max_keys`` keys from ``low`` to ``high``.
    """
    if total == 0:
        return bool(size == 0 and low == 0 and high == 0)
    return bool(total > 0 and size > 0 and lowest_key <= low <= high <= highest_key and np.int64(high) - low < max_keys)


@compiled
def is_sound(
    low: Int, high: Int, total: Int, data: Bytes, at: Int, end: Int, ranks: Whole, row: Int, keys: Whole
) -> bool:
    """Return whether ``data[at:end]`` encodes counts of the keys from ``low`` to ``high`` that add up to ``total``.

    The keys at the ranks ``ranks[:, row]`` are written to ``keys[:, row]``. Eight bytes are decoded together if each
    byte is a complete number, and if the next requested rank is above the ranks of the values that these bytes count.
    """
    key = np.int64(low)
    value_count = np.uint64(0)
    rank_index = 0
    words_from = at
    # ``was_gap`` is 1 if the previous number is a gap, because a gap after a gap is invalid. It begins with 1, because
    # a gap is also invalid at the start.
    is_wrong = np.uint64(0)
    was_gap = np.uint64(1)
    rank = np.uint64(max(ranks[0, row], 0)) if len(ranks) else NO_RANK
    while at < end:
        if at >= words_from and at + WORD <= end:
            word = word_at(data, at)
            if not word & LONGER:
                counts, key_count = sums_of(word)
                if value_count + counts <= rank:
                    gaps, invalid = gaps_of(word, was_gap)
                    is_wrong |= invalid
                    was_gap = gaps >> LAST_BYTE_SHIFT
                    value_count += counts
                    key += np.int64(key_count)
                    at += WORD
                    continue
            words_from = at + WORD  # these eight bytes cannot be decoded together, so they are read number by number
        number: Int = np.int64(data[at])
        if number < 128:  # the usual case: the number has one byte
            number = (number >> 1) ^ -(number & 1)
            at += 1
            value_count += np.uint64(max(number, 0))
        else:
            number, at = get_number(data, at, end)
            if not is_valid_long_number(number, data[max(at, 1) - 1], at):
                return False
            value_count = saturated_sum(value_count, max(number, 0))
        while value_count > rank:
            keys[rank_index, row] = key
            rank_index += 1
            rank = np.uint64(max(ranks[rank_index, row], 0)) if rank_index < len(ranks) else NO_RANK
        gap = np.uint64(number <= 0)
        is_wrong |= (gap & was_gap) | np.uint64(number == -1)
        was_gap = gap
        key += advance(number)
    sound = not (is_wrong or was_gap) and key == np.int64(high) + 1
    return sound and saturated_sum(value_count, np.int64(0)) == np.uint64(total)


@compiled
def is_valid_long_number(number: Int, last_byte: Int, after: Int) -> bool:
    """Return whether a number of several bytes is valid.

    The number must be complete. Its last byte must not be 0, because the number would then have a shorter encoding. A
    gap must be at most `FAR` keys. ``after`` is the offset after the number, or -1 if the number is incomplete.
    """
    return bool(after >= 0 and last_byte != 0 and number >= -FAR)


@compiled
def saturated_sum(value_count: Int, count: Int) -> Int:
    """Return ``value_count + count`` as uint64, or the largest int64 if the sum is greater."""
    return min(value_count + np.uint64(count), _MAX_COUNT)


@compiled
def capped_sum(total: Int, count: Int) -> Int:
    """Return ``total + count`` as int64, or the largest int64 if the sum is greater."""
    return total + count if total <= MAX_COUNT - count else MAX_COUNT


@compiled
def _summaries(sizes: Whole, keys: Whole, counts: Whole) -> tuple[Whole, Whole, Whole]:
    """Return the lowest key, the highest key and the total of each histogram, each of shape (n,).

    All are 0 for an empty histogram. The parameters are the fields of `Histograms`.
    """
    low = np.zeros(len(sizes), np.int64)
    high = np.zeros(len(sizes), np.int64)
    totals = np.zeros(len(sizes), np.int64)
    at: Int = np.int64(0)
    for row in range(len(sizes)):
        if sizes[row]:
            low[row], high[row] = keys[at], keys[at + sizes[row] - 1]
        for _ in range(sizes[row]):
            totals[row] = capped_sum(totals[row], counts[at])
            at += 1
    return low, high, totals
