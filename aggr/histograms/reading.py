"""Reading histograms: keys at ranks, counts up to a key, means and variances, computed from the bytes of a column."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arrays import Bytes, Floats, Whole
from aggr.arrow.damaged_state import DamagedState, field_of_type
from aggr.compiling.jit import Int, compiled
from aggr.histograms.column import (
    BUCKETS_ARE_DAMAGED,
    HISTOGRAM_TYPE,
    LAST_BYTE_SHIFT,
    MAX_COUNT,
    NO_RANK,
    Histograms,
    are_possible_bounds,
    find_keys,
    is_valid_long_number,
    saturated_sum,
)
from aggr.histograms.leb128 import FAR, LONGER, WORD, advance, gaps_of, get_number, of_arrow, word_at

_LOWEST_BIT = np.uint64(1)
BYTE_MASK = np.uint64(0xFF)
_MIN_LONG_BYTE = 128


class PackedHistograms(NamedTuple):
    """``n`` histograms whose counts are still encoded. They are checked when keys are read.

    ``low`` and ``high`` contain the lowest and the highest keys, and ``totals`` the sums of the counts, shape (n,). The
    encoded counts of row ``i`` are ``data[places[i]:places[i + 1]]``. ``bounds`` are ``max_keys``, ``lowest_key`` and
    ``highest_key`` of `check_histograms`. ``name`` is the name of the field in error messages.
    """

    low: NDArray[np.int32]
    high: NDArray[np.int32]
    totals: Whole
    data: Bytes
    places: Whole
    bounds: tuple[int, int, int]
    name: str

    @classmethod
    def from_arrow(
        cls,
        column: pa.StructArray,
        max_keys: int = FAR,
        lowest_key: int = -FAR,
        highest_key: int = FAR,
        name: str = "buckets",
    ) -> PackedHistograms:
        """Return the histograms of a column of `HISTOGRAM_TYPE`.

        ``max_keys``, ``lowest_key`` and ``highest_key`` are the limits of `check_histograms`. They are stored here, and
        `keys_at` and `check` compare the histograms with them later. ``name`` is the name of the field in messages.

        Raise ``OverflowError`` if the counts of a histogram add up to more than the largest int64, and `DamagedState`
        for a column of another type.
        """
        column = field_of_type(column, HISTOGRAM_TYPE)
        low, high, totals = (column.field(name).to_numpy() for name in ("low", "high", "total"))
        if len(totals) and totals.max() == MAX_COUNT:  # a total beyond int64 is stored as MAX_COUNT
            totals = Histograms.from_arrow(column).totals()
        return cls(low, high, totals, *of_arrow(column.field("counts")), (max_keys, lowest_key, highest_key), name)

    def keys_at(self, ranks: Whole) -> Whole:
        """Return the keys at ``ranks`` in each histogram, shape (ranks, n), and check the histograms.

        ``ranks`` has the shape (ranks, n). The values of a histogram have the ranks 0, 1, 2, … in ascending order of
        their keys. Ranks must not decrease along the first axis. The key at a rank outside ``[0, total)`` is undefined,
        and must be masked by the caller. Raise `DamagedState` for the same reasons as `check_histograms`.
        """
        keys, is_undamaged = find_keys(self.low, self.high, self.totals, self.data, self.places, ranks, *self.bounds)
        self._raise_unless_undamaged(is_undamaged)
        return keys

    def check(self) -> None:
        """Raise `DamagedState` for the same reasons as `check_histograms`."""
        self.keys_at(np.zeros((0, len(self.low)), np.int64))

    def up_to(self, keys: Whole) -> Whole:
        """Return the number of values whose key is at most ``keys[row]`` in each histogram, shape (n,).

        The histograms must be undamaged.
        """
        return _up_to(self.low, self.data, self.places, keys)

    def keys_and_moments(self, ranks: Whole, half: int) -> tuple[Whole, Floats, Floats]:
        """Return the keys at ``ranks``, as `keys_at` does, and the mean and the variance of each histogram, shape (n,).

        The keys must be indices of HdrHistogram's counts array. As in HdrHistogram, the mean and the variance are
        computed from the middles of the buckets. ``half`` is the binary logarithm of half the number of sub-buckets.
        """
        max_bytes = int(np.diff(self.places).max(initial=0))
        keys, means, variances, is_undamaged = _keys_and_moments(
            self.low, self.high, self.totals, self.data, self.places, ranks, *self.bounds, half, max_bytes
        )
        self._raise_unless_undamaged(is_undamaged)
        return keys, means, variances

    def _raise_unless_undamaged(self, is_undamaged: bool) -> None:
        if not is_undamaged:
            raise DamagedState(f"its field {self.name!r} {BUCKETS_ARE_DAMAGED}")


@compiled
def _keys_and_moments(
    low: NDArray[np.int32],
    high: NDArray[np.int32],
    totals: Whole,
    data: Bytes,
    places: Whole,
    ranks: Whole,
    max_keys: Int,
    lowest_key: Int,
    highest_key: Int,
    half: Int,
    max_bytes: Int,
) -> tuple[Whole, Floats, Floats, bool]:
    """Return the results of `PackedHistograms.keys_and_moments`, and whether all histograms are undamaged.

    ``max_bytes`` is the maximum number of bytes of the encoded counts of a histogram. ``max_keys``, ``lowest_key`` and
    ``highest_key`` are `PackedHistograms.bounds`. The other parameters are fields of `PackedHistograms`, and parameters
    of `PackedHistograms.keys_and_moments`.
    """
    rank_count, n = ranks.shape
    keys = np.zeros((rank_count, n), np.int64)
    means = np.zeros(n)
    variances = np.zeros(n)
    bucket_keys = np.empty(max_bytes + 1, np.int64)
    bucket_counts = np.empty(max_bytes + 1, np.int64)
    bucket_middles = np.empty(max_bytes + 1)
    for row in range(n):
        at = places[row]
        end = places[row + 1]
        total = totals[row]
        if not are_possible_bounds(
            low[row], high[row], total, size=end - at, max_keys=max_keys, lowest_key=lowest_key, highest_key=highest_key
        ):
            return keys, means, variances, False
        if total == 0:
            continue
        size = decode_histogram(low[row], high[row], data, at=at, end=end, keys=bucket_keys, counts=bucket_counts)
        if size < 0:
            return keys, means, variances, False
        for i in range(size):  # this loop is separate, so that the compiler vectorizes it
            bucket: Int = max((bucket_keys[i] >> half) - 1, 0)
            bucket_middles[i] = np.float64(
                ((bucket_keys[i] - (bucket << half)) << bucket) + ((np.int64(1) << bucket) >> 1)
            )
        value_count = np.uint64(0)
        rank_index = 0
        sum_of_middles = 0.0
        rank = np.uint64(max(ranks[0, row], 0)) if rank_count else NO_RANK
        for i in range(size):
            key = bucket_keys[i]
            count = bucket_counts[i]
            value_count = saturated_sum(value_count, count)
            while value_count > rank:
                keys[rank_index, row] = key
                rank_index += 1
                rank = np.uint64(max(ranks[rank_index, row], 0)) if rank_index < rank_count else NO_RANK
            sum_of_middles += bucket_middles[i] * np.float64(count)
        if value_count != np.uint64(total):
            return keys, means, variances, False
        mean = sum_of_middles / np.float64(total)
        squared_deviations = 0.0
        for i in range(size):
            deviation = bucket_middles[i] - mean
            squared_deviations += deviation * deviation * np.float64(bucket_counts[i])
        means[row], variances[row] = mean, squared_deviations / np.float64(total)
    return keys, means, variances, True


@compiled
def decode_histogram(low: Int, high: Int, data: Bytes, at: Int, end: Int, keys: Whole, counts: Whole) -> Int:
    """Decode the histogram in ``data[at:end]`` into ``keys`` and ``counts``, and return the number of its buckets.

    Return -1 if the histogram is damaged. The sum of the counts is not checked. The arrays must have one more entry
    than the histogram has bytes.
    """
    key: Int = np.int64(low)
    size: Int = 0
    is_wrong = np.uint64(0)
    was_gap = np.uint64(1)
    while at < end:
        word = word_at(data, at) if at + WORD <= end else LONGER
        if not word & LONGER:
            gaps, is_invalid = gaps_of(word, was_gap)
            is_wrong |= is_invalid
            was_gap = gaps >> LAST_BYTE_SHIFT
            for i in range(WORD):  # without branches, because the processor cannot predict gaps
                number: Int = np.int64((word >> np.uint64(8 * i)) & BYTE_MASK)
                place = np.uint64(size)
                keys[place], counts[place] = key, number >> 1  # the entry of a gap is overwritten by the next entry
                size += 1 - np.int64((gaps >> np.uint64(8 * i)) & _LOWEST_BIT)
                key += 1 + ((number >> 1) & -(number & 1))
            at += WORD
            continue
        for _ in range(WORD):
            if at < end:
                first_byte = data[at]
                number, at = next_number(data, at, end)
                if first_byte >= _MIN_LONG_BYTE and not is_valid_long_number(number, data[max(at, 1) - 1], at):
                    return -1
                keys[size], counts[size] = key, number
                gap = np.uint64(number <= 0)
                is_wrong |= (gap & was_gap) | np.uint64(number == -1)
                was_gap = gap
                size += number > 0
                key += advance(number)
    return -1 if is_wrong or was_gap or key != np.int64(high) + 1 else size


@compiled
def _up_to(low: NDArray[np.int32], data: Bytes, places: Whole, last: Whole) -> Whole:
    counts = np.zeros(len(low), np.int64)
    for row in range(len(low)):
        key = np.int64(low[row])
        at = places[row]
        end = places[row + 1]
        while at < end and key <= last[row]:
            number, at = next_number(data, at, end)
            counts[row] += max(number, 0)
            key += advance(number)
    return counts


@compiled
def next_number(data: Bytes, at: Int, end: Int) -> tuple[Int, Int]:
    """Decode the signed LEB128 number at the byte offset ``at`` of checked data.

    Return the number and the offset of the next number.
    """
    number: Int = np.int64(data[at])
    if number < 128:  # the usual case: the number has one byte
        return (number >> 1) ^ -(number & 1), at + 1
    return get_number(data, at, end)
