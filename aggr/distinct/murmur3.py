"""MurmurHash3 of numbers and of bytes, with the seed of Apache DataSketches. The result is a hash or, for HyperLogLog,
a coupon.

A hash has 63 bits: the first half of MurmurHash3's 128-bit hash, without its lowest bit. A coupon is a 32-bit hash for
HyperLogLog. Its upper 26 bits are taken from the first half of the 128-bit hash. Its lower 6 bits contain a number: 1
plus the number of leading zeros of the second half, but at most 63.

Source: Austin Appleby, MurmurHash3_x64_128, in the public domain.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aggr.arrays import Bytes, Whole
from aggr.compiling.jit import Int, compiled
from aggr.histograms.leb128 import WORD, word_at

SEED = np.uint64(9001)  # the seed of Apache DataSketches
_C1 = np.uint64(0x87C37B91114253D5)
_C2 = np.uint64(0x4CF5AD432745937F)
_M1 = np.uint64(0xFF51AFD7ED558CCD)
_M2 = np.uint64(0xC4CEB9FE1A85EC53)
_N1 = np.uint64(0x52DCE729)
_N2 = np.uint64(0x38495AB5)
_FIVE = np.uint64(5)
_ALL_BITS = np.uint64(2**64 - 1)
_BLOCK = 16  # MurmurHash3 processes blocks of 16 bytes
ZERO_BITS = 6
_MAX_ZEROS = 62
_ADDRESS_MASK = np.uint64(2**26 - 1)
_HIGHEST_BIT = np.uint64(1 << 63)


@compiled
def hash_word(word: Int, as_coupon: bool) -> Int:
    """Return the hash of an int64, as a non-negative int64.

    The hash has 63 bits, or 32 bits if ``as_coupon`` is true. The eight bytes of the number are hashed from the lowest
    byte on.
    """
    return _finalize(SEED ^ _block_for_h1(np.uint64(word)), SEED, WORD, as_coupon)


@compiled
def hash_bytes(data: Bytes, offsets: Whole, as_coupon: bool) -> Whole:
    """Return the hash of each row's bytes as non-negative int64, shape (rows,).

    A hash has 63 bits, or 32 bits if ``as_coupon`` is true. The bytes of a row are
    ``data[offsets[row]:offsets[row + 1]]``.
    """
    hashes = np.empty(len(offsets) - 1, np.int64)
    for row in range(len(hashes)):
        position = offsets[row]
        end = offsets[row + 1]
        size = end - position
        h1 = SEED
        h2 = SEED
        while position + _BLOCK <= end:
            h1 = (_rotate_left(h1 ^ _block_for_h1(word_at(data, position)), 27) + h2) * _FIVE + _N1
            h2 = (_rotate_left(h2 ^ _block_for_h2(word_at(data, position + WORD)), 31) + h1) * _FIVE + _N2
            position += _BLOCK
        if position + WORD < end:
            h2 ^= _block_for_h2(_last_word(data, position + WORD, end))
        if position < end:
            h1 ^= _block_for_h1(_last_word(data, position, min(position + WORD, end)))
        hashes[row] = _finalize(h1, h2, size, as_coupon)
    return hashes


@compiled
def _last_word(data: Bytes, start: Int, end: Int) -> Any:
    """Return the bytes ``data[start:end]``, at most eight, as a little-endian integer."""
    if start + WORD <= len(data):
        return word_at(data, start) & (_ALL_BITS >> np.uint64(8 * (start + WORD - end)))
    word = np.uint64(0)
    for i in range(end - start):
        word |= np.uint64(data[start + i]) << np.uint64(8 * i)
    return word


@compiled
def _block_for_h1(word: Any) -> Any:
    return _rotate_left(word * _C1, 31) * _C2


@compiled
def _block_for_h2(word: Any) -> Any:
    return _rotate_left(word * _C2, 33) * _C1


@compiled
def _rotate_left(word: Any, bits: Int) -> Any:
    """Rotate a 64-bit integer to the left by a number of bits."""
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))


@compiled
def _finalize(h1: Any, h2: Any, size: Int, as_coupon: bool) -> Int:
    """Return the hash with 63 bits, or with 32 bits if ``as_coupon`` is true.

    ``h1`` and ``h2`` are the two halves of MurmurHash3's 128-bit state after all ``size`` bytes were processed.
    """
    h1 = h1 ^ np.uint64(size)
    h2 = h2 ^ np.uint64(size)
    h1 += h2
    h2 += h1
    second = _mix(h2)
    first = _mix(h1) + second
    if not as_coupon:
        return np.int64(first >> np.uint64(1))
    second += first
    zeros = np.int64(0)
    while zeros < _MAX_ZEROS and not second & _HIGHEST_BIT:
        second <<= np.uint64(1)
        zeros += 1
    return (np.int64(first & _ADDRESS_MASK) << ZERO_BITS) | (zeros + 1)


@compiled
def _mix(word: Any) -> Any:
    word = (word ^ (word >> np.uint64(33))) * _M1
    word = (word ^ (word >> np.uint64(33))) * _M2
    return word ^ (word >> np.uint64(33))
