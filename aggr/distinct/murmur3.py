"""MurmurHash3 of numbers and of bytes, with the seed of Apache DataSketches. The result is a hash or, for HyperLogLog,
a coupon.

A hash has 63 bits: the first half of the 128-bit hash for 64-bit machines, without its lowest bit. A coupon is a 32-bit
hash for HyperLogLog. Of its bits, 26 are bits of the first half, and the other 6 contain 1 plus the number of leading
zeros of the second half, or 63 if this number is larger.

Source: Austin Appleby, MurmurHash3_x64_128, in the public domain.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aggr.arrays import Bytes, Whole
from aggr.compiling.jit import Int, compiled
from aggr.histograms.leb128 import WORD, word_at

SEED = np.uint64(9001)  # the seed of Apache DataSketches
_C1, _C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
_M1, _M2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_N1, _N2, _FIVE = np.uint64(0x52DCE729), np.uint64(0x38495AB5), np.uint64(5)
_ALL = np.uint64(2**64 - 1)
_BLOCK = 16  # bytes per block
ZERO_BITS, _MOST_ZEROS = 6, 62
_ADDRESS, _HIGHEST = np.uint64(2**26 - 1), np.uint64(1 << 63)


@compiled
def hash_word(word: Int, coupon: bool) -> Int:
    """Return the hash of an int64, or its coupon if ``coupon`` is true, as a non-negative int64. The eight bytes of the
    number are hashed from the lowest byte on.
    """
    return _finished(SEED ^ _block_for_h1(np.uint64(word)), SEED, WORD, coupon)


@compiled
def hash_bytes(data: Bytes, places: Whole, coupon: bool) -> Whole:
    """Return the hash of each row's bytes, or their coupon if ``coupon`` is true, as non-negative int64, shape (rows,).

    The bytes of a row are ``data[places[row]:places[row + 1]]``.
    """
    hashes = np.empty(len(places) - 1, np.int64)
    for row in range(len(hashes)):
        at, end = places[row], places[row + 1]
        size, h1, h2 = end - at, SEED, SEED
        while at + _BLOCK <= end:
            h1 = (_turned(h1 ^ _block_for_h1(word_at(data, at)), 27) + h2) * _FIVE + _N1
            h2 = (_turned(h2 ^ _block_for_h2(word_at(data, at + WORD)), 31) + h1) * _FIVE + _N2
            at += _BLOCK
        if at + WORD < end:
            h2 ^= _block_for_h2(_last_word(data, at + WORD, end))
        if at < end:
            h1 ^= _block_for_h1(_last_word(data, at, min(at + WORD, end)))
        hashes[row] = _finished(h1, h2, size, coupon)
    return hashes


@compiled
def _last_word(data: Bytes, at: Int, end: Int) -> Any:
    """Return the bytes ``data[at:end]``, at most eight, as a little-endian integer."""
    if at + WORD <= len(data):
        return word_at(data, at) & (_ALL >> np.uint64(8 * (at + WORD - end)))
    word = np.uint64(0)
    for i in range(end - at):
        word |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return word


@compiled
def _block_for_h1(word: Any) -> Any:
    return _turned(word * _C1, 31) * _C2


@compiled
def _block_for_h2(word: Any) -> Any:
    return _turned(word * _C2, 33) * _C1


@compiled
def _turned(word: Any, bits: Int) -> Any:
    """Return a 64-bit integer, rotated to the left by a number of bits."""
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))


@compiled
def _finished(h1: Any, h2: Any, size: Int, coupon: bool) -> Int:
    """Return the hash, or the coupon if ``coupon`` is true, from the two halves ``h1`` and ``h2`` that were computed
    from ``size`` bytes.
    """
    h1, h2 = h1 ^ np.uint64(size), h2 ^ np.uint64(size)
    h1 += h2
    h2 += h1
    second = _mixed(h2)
    first = _mixed(h1) + second
    if not coupon:
        return np.int64(first >> np.uint64(1))
    second += first
    zeros = np.int64(0)
    while zeros < _MOST_ZEROS and not second & _HIGHEST:
        second <<= np.uint64(1)
        zeros += 1
    return (np.int64(first & _ADDRESS) << ZERO_BITS) | (zeros + 1)


@compiled
def _mixed(word: Any) -> Any:
    word = (word ^ (word >> np.uint64(33))) * _M1
    word = (word ^ (word >> np.uint64(33))) * _M2
    return word ^ (word >> np.uint64(33))
