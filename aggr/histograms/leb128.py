"""Zig-zag LEB128: an encoding of the counts of adjacent keys in a variable number of bytes, as in HdrHistogram V2.

    keys 7, 8, 9, 40, counts 5, 1, 2, 3, from key 7 on:    5  1  2  -30  3    ──▶   0a 02 04 3b 06

A positive number is a count, 0 stands for one key with count 0, and -n stands for n such keys. The sign becomes the
lowest bit: 0, -1, 1, -2 → 0, 1, 2, 3. The number is then written in bytes of seven bits, lowest first. The eighth bit
of a byte is set if more bytes follow. The ninth byte has eight bits of the number, so that nine bytes suffice for
int64.

Source: the LEB128-64b9B variant of HdrHistogram.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from aggr.arrays import Bytes as Bytes
from aggr.arrays import Flags, Whole
from aggr.compiling.jit import Int, compiled

LONGEST = 9  # the maximum number of bytes of a number: eight bytes with 7 bits each, and one with 8

# A limit for keys and gaps. It is larger than the distance between two 32-bit keys, and small enough to be added to a
# key without overflow.
FAR = 1 << 40

_SHIFT = np.uint64(7)
_SEVEN_BITS = np.uint64(0x7F)
_CONTINUES = np.uint64(0x80)
_LAST_SHIFT = np.uint64(56)

# Constants for words of eight bytes. `LONGER`, ``_LOW…`` and ``_LOWER…`` are masks that select the same bits in each
# byte, and ``_PAIRS`` selects every second byte. To add the four 16-bit numbers of a word, the word is multiplied by
# ``_PAIR_SUM``: their sum is the upper 16 bits of the product.
WORD = 8
LONGER = np.uint64(0x8080808080808080)
_LOWEST_BITS = np.uint64(0x0101010101010101)
_LOWER_SEVEN_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
_LOWER_SIX_BITS = np.uint64(0x3F3F3F3F3F3F3F3F)
_PAIRS = np.uint64(0x00FF00FF00FF00FF)
_PAIR_SUM = np.uint64(0x0001000100010001)
_ONE = np.uint64(1)
_BYTE_SHIFT = np.uint64(8)
_ALL_BITS = np.uint64(0xFF)
_LAST_PAIR_SHIFT = np.uint64(48)


def write(first_keys: Whole, sizes: Whole, keys: Whole, counts: Whole) -> pa.BinaryArray:
    """Return the encoded counts of each histogram, from the key ``first_keys[row]`` on.

    The other arguments are the fields of `aggr.histograms.column.Histograms`. Counts must be above 0, and
    ``first_keys[row]`` at most the lowest key of the histogram.

    >>> write(np.array([7]), np.array([4]), np.array([7, 8, 9, 40]), np.array([5, 1, 2, 3]))[0].as_py().hex()
    '0a02043b06'
    """
    return to_arrow(*_write(first_keys, sizes, keys, counts))


def read(first_keys: Whole, rows: pa.BinaryArray) -> tuple[tuple[Whole, Whole, Whole], Whole, Flags]:
    """Decode the output of `write`.

    Return three results: a tuple of the sizes, keys and counts of the histograms, as they were passed to `write`; for
    each row, the key after its last key, but at most `FAR`; and a mask of the damaged rows.

    >>> (sizes, keys, counts), ends, broken = read(np.array([7, 0]), pa.array([bytes.fromhex("0a02043b06"), b"\\xd8"]))
    >>> keys, counts, ends, broken
    (array([ 7,  8,  9, 40]), array([5, 1, 2, 3]), array([41,  0]), array([False,  True]))
    """
    sizes, keys, counts, key_ends, is_damaged = _read(first_keys, *of_arrow(rows))
    return (sizes, keys, counts), key_ends, is_damaged


def to_arrow(data: Bytes, offsets: Whole) -> pa.BinaryArray:
    """Return a binary column whose row ``i`` is ``data[offsets[i]:offsets[i + 1]]``."""
    if offsets[-1] > np.iinfo(np.int32).max:
        raise ValueError(
            f"a column can contain at most {np.iinfo(np.int32).max:,} bytes of sketches, and these states have "
            f"{offsets[-1]:,}; reduce or merge fewer groups at a time"
        )
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def of_arrow(rows: pa.BinaryArray) -> tuple[Bytes, Whole]:
    """Return the bytes of a binary column, and the offsets of its rows, shape (rows + 1,).

    Offsets are always int64, because loops would be compiled again for another type.
    """
    if rows.type != pa.binary():  # other systems write columns of type large_binary or binary_view
        rows = rows.cast(pa.binary())
    _, offsets, data = rows.buffers()
    # the number of offsets is passed, because a buffer may be longer than its content
    places = np.frombuffer(offsets, np.int32, len(rows) + 1, 4 * rows.offset) if offsets else np.zeros(1, np.int32)
    return np.frombuffer(data or b"", np.uint8), places.astype(np.int64)


@compiled
def put_number(data: Bytes, at: Int, number: Int) -> Int:
    """Write a number at the byte offset ``at``; return the offset after the number."""
    word = np.uint64((number << 1) ^ (number >> 63))
    last = at + LONGEST - 1
    while word > _SEVEN_BITS and at < last:
        data[at] = (word & _SEVEN_BITS) | _CONTINUES
        word >>= _SHIFT
        at += 1
    data[at] = word
    return at + 1


@compiled
def get_number(data: Bytes, at: Int, end: Int) -> tuple[Int, Int]:
    """Read the number that begins at the byte offset ``at`` of ``data``.

    ``end`` is the offset after the last byte of the data, and must be greater than ``at``. Return the number and the
    offset after it. If the number is incomplete, this offset is -1.
    """
    word = np.uint64(0)
    shift = np.uint64(0)
    is_incomplete: Any = True
    while is_incomplete and at < end:
        byte = np.uint64(data[at])
        is_incomplete = byte >= _CONTINUES and shift < _LAST_SHIFT
        word |= ((byte & _SEVEN_BITS) if is_incomplete else byte) << shift
        shift += _SHIFT
        at += 1
    number = np.int64(word >> np.uint64(1)) ^ -np.int64(word & np.uint64(1))
    return number, -1 if is_incomplete else at


@compiled
def advance(number: Int) -> Int:
    """Return the number of keys that a decoded number stands for: 1 for a count, and n for a gap of n keys."""
    return max(-number, 1)


@compiled
def word_at(data: Bytes, at: Int) -> Any:
    """Return the eight bytes from the offset ``at`` on as a little-endian word.

    If ``word & LONGER`` is 0, each of the bytes is a complete number.
    """
    # the index is unsigned, because compiled code is slower if an index may be negative
    word = np.uint64(0)
    place = np.uint64(at)
    for i in range(WORD):
        word |= np.uint64(data[place + np.uint64(i)]) << np.uint64(8 * i)
    return word


@compiled
def gaps_of(word: Any, was_gap: Any) -> tuple[Any, Any]:
    """Return two masks of the bytes of a word: the gaps, and the invalid numbers, with one bit per byte.

    Each byte must be a complete number. A gap after a gap is invalid, and so is a gap of one key that is written as -1
    instead of 0. ``was_gap`` is 1 if the number before the word is a gap, otherwise 0.
    """
    zeros = (((word + _LOWER_SEVEN_BITS) & LONGER) ^ LONGER) >> _SHIFT
    gaps = (word & _LOWEST_BITS) | zeros
    return gaps, (gaps & ((gaps << _BYTE_SHIFT) | was_gap)) | (
        (((word ^ _LOWEST_BITS) + _LOWER_SEVEN_BITS) & LONGER) ^ LONGER
    )


@compiled
def sums_of(word: Any) -> tuple[Any, Any]:
    """Return the sum of the counts in a word, and the number of keys that its numbers stand for.

    Each byte must be a complete number.
    """
    magnitudes = (word >> _ONE) & _LOWER_SIX_BITS
    gap_magnitudes = magnitudes & ((word & _LOWEST_BITS) * _ALL_BITS)
    counts = magnitudes ^ gap_magnitudes
    keys = (((gap_magnitudes & _PAIRS) + ((gap_magnitudes >> _BYTE_SHIFT) & _PAIRS)) * _PAIR_SUM) >> _LAST_PAIR_SHIFT
    return (
        ((counts & _PAIRS) + ((counts >> _BYTE_SHIFT) & _PAIRS)) * _PAIR_SUM
    ) >> _LAST_PAIR_SHIFT, keys + _BYTE_SHIFT


@compiled
def _write(first_keys: Whole, sizes: Whole, keys: Whole, counts: Whole) -> tuple[Bytes, Whole]:
    """Encode histograms. Return all bytes, and the offset of each histogram in them, shape (n + 1,).

    The parameters are those of `write`.
    """
    data = np.empty((LONGEST + 6) * len(keys), np.uint8)
    offsets = np.zeros(len(sizes) + 1, np.int64)
    # ``at`` is an int64 variable, because compiled functions would be compiled again for a literal 0.
    at: Int = np.int64(0)
    entry = 0
    for row in range(len(sizes)):
        key = first_keys[row]
        for _ in range(sizes[row]):
            gap = keys[entry] - key
            if gap:
                at = put_number(data, at, -gap if gap > 1 else np.int64(0))
            at = put_number(data, at, counts[entry])
            key = keys[entry] + 1
            entry += 1
        offsets[row + 1] = at
    return data[:at].copy(), offsets


@compiled
def _read(first_keys: Whole, data: Bytes, places: Whole) -> tuple[Whole, Whole, Whole, Whole, Flags]:
    """Decode the rows. Return sizes, keys, counts, the key after the last key of each row, and a mask of damaged rows.

    The numbers of a row are ``data[places[row]:places[row + 1]]``, and the first of them stands for the key
    ``first_keys[row]``. A row with an incomplete number is damaged, and ends before that number.
    """
    n = len(first_keys)
    # Each count takes at least one byte, so there are at most as many counts as bytes.
    max_entries = places[n] - places[0]
    sizes = np.zeros(n, np.int64)
    keys = np.empty(max_entries, np.int64)
    counts = np.empty(max_entries, np.int64)
    key_ends = np.zeros(n, np.int64)
    is_damaged = np.zeros(n, np.bool_)
    entry = 0
    for row in range(n):
        key = first_keys[row]
        at = places[row]
        end = places[row + 1]
        first_entry = entry
        while 0 <= at < end:
            number, at = get_number(data, at, end)
            if at < 0:
                is_damaged[row] = True
                continue
            if number > 0:
                keys[entry] = key
                counts[entry] = number
                entry += 1
            key = min(key + advance(max(number, -FAR)), FAR)
        key_ends[row] = key
        sizes[row] = entry - first_entry
    return sizes, keys[:entry].copy(), counts[:entry].copy(), key_ends, is_damaged
