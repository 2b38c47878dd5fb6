"""Shards: groups of keys. A shuffle sends all states of a shard to the same task. The shard of a key is computed in
Python, with the same result in every worker.

The hash of a number is its bits, and the hash of a text is a polynomial over its bytes. Decimals are hashed as texts. A
finalizer (SplitMix64) then mixes the bits of the hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from aggr.arrow.flat_columns import flat_columns

Words = NDArray[np.uint64]

# The 64-bit number that is hashed in the place of a null: 2^64 divided by the golden ratio.
_NULL = np.uint64(0x9E3779B97F4A7C15)

# The base of the polynomial: the prime of the hash FNV for 64 bits. It is odd, so that it has an inverse modulo 2^64.
_BASE = 0x100000001B3
_INVERSE = pow(_BASE, -1, 1 << 64)


def shard_of(columns: Sequence[pa.Array], shards: int) -> NDArray[np.int32]:
    """Return a shard in ``[0, shards)`` for each row; rows that are equal in all columns have the same shard.

    >>> shard_of([pa.array(["a", "b", "a", None])], 1 << 30)[[0, 1, 2]].tolist()
    [378112591, 722373711, 378112591]
    """
    words = np.zeros(len(columns[0]), np.uint64)
    for column in flat_columns(columns):
        words = _mix_bits(words * np.uint64(31) + _mix_bits(_hash_words(column)))
    return ((words >> np.uint64(33)) % np.uint64(shards)).astype(np.int32)


def choose_shuffle_keys(shards: int, partitions: int) -> NDArray[np.int32]:
    """Return the shuffle key of each shard: the number that Spark hashes to choose the partition of the shard. The keys
    are chosen so that shard ``s`` is in partition ``s % partitions``.

    Spark puts a row into the partition whose index is the hash of its column modulo the number of partitions. With the
    keys 0, 1, 2 …, the partition of each shard would be random. With 64 shards and four partitions, for example, one
    partition might have three times as many shards as another.

    >>> (_spark_hash(choose_shuffle_keys(8, 4)) % 4).tolist()
    [0, 1, 2, 3, 0, 1, 2, 3]
    """
    partition_of_shard = np.arange(shards) % partitions
    keys_per_partition = -(-shards // partitions)
    candidate_count = 4 * shards
    while True:
        candidate_partitions = _spark_hash(np.arange(candidate_count)) % partitions
        if np.bincount(candidate_partitions, minlength=partitions).min() >= keys_per_partition:
            break
        candidate_count *= 2
    order = np.argsort(candidate_partitions, kind="stable")
    first_positions = np.searchsorted(candidate_partitions[order], np.arange(partitions))
    keys: NDArray[np.int32] = order[first_positions[partition_of_shard] + np.arange(shards) // partitions].astype(
        np.int32
    )
    return keys


def _spark_hash(numbers: NDArray[Any]) -> NDArray[np.int32]:
    """Return the hash that Spark computes of whole numbers of 32 bits: MurmurHash3, x86, 32 bits, seed 42 (Appleby)."""

    def rotate(words: NDArray[np.uint32], by: int) -> NDArray[np.uint32]:
        return (words << np.uint32(by)) | (words >> np.uint32(32 - by))

    words = numbers.astype(np.int32).view(np.uint32)
    words = rotate(words * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    words = rotate(words ^ np.uint32(42), 13) * np.uint32(5) + np.uint32(0xE6546B64)
    words = words ^ np.uint32(4)  # MurmurHash3 includes the length of its input, here 4 bytes
    words = (words ^ (words >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    words = (words ^ (words >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    hashes: NDArray[np.int32] = (words ^ (words >> np.uint32(16))).view(np.int32)
    return hashes


def _mix_bits(words: Words) -> Words:
    """Return a new 64-bit number for each of ``words``. Each bit of an old number affects all bits of the new number
    (the finalizer of SplitMix64).
    """
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _hash_words(column: pa.Array) -> Words:
    dtype = column.type
    if pa.types.is_string(dtype) or pa.types.is_binary(dtype):
        words = _text_words(column)
    elif pa.types.is_floating(dtype):
        words = pc.fill_null(column, 0).cast(pa.float64()).to_numpy().view(np.uint64)
    elif pa.types.is_boolean(dtype) or pa.types.is_integer(dtype) or pa.types.is_temporal(dtype):
        words = _integer_words(column)
    else:
        words = _text_words(column.cast(pa.string()))
    return np.where(column.is_null().to_numpy(zero_copy_only=False), _NULL, words)


def _integer_words(column: pa.Array) -> Words:
    dtype = column.type
    if pa.types.is_temporal(dtype):  # Arrow represents dates, times and timestamps by integers, which are hashed.
        column = column.view(pa.int32() if dtype.bit_width == 32 else pa.int64())
    if column.type == pa.uint64():
        unsigned: Words = pc.fill_null(column, 0).to_numpy()
        return unsigned
    signed: NDArray[Any] = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
    return signed.view(np.uint64)


def _text_words(column: pa.Array) -> Words:
    """Return one hash per text: the value of a polynomial at `_BASE`, modulo 2^64. The coefficients are the bytes of
    the text, each increased by 1.

    No loop over the texts is needed, because one running sum is computed over the bytes of all texts: byte ``i`` adds
    ``(byte + 1) * _BASE**i``. The hash of a text that begins at byte ``b`` is the difference between the sums at the
    end and at the beginning of the text, divided by ``_BASE**b``.
    """
    _, offsets, data = column.buffers()
    if not len(column) or data is None:
        return np.zeros(len(column), np.uint64)
    byte_offsets = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    coefficients = np.frombuffer(data, np.uint8)[byte_offsets[0] : byte_offsets[-1]].astype(np.uint64) + np.uint64(1)
    byte_offsets = byte_offsets - byte_offsets[0]
    running = np.append(np.uint64(0), np.cumsum(coefficients * _powers(_BASE, len(coefficients)), dtype=np.uint64))
    inverse_powers = _powers(_INVERSE, len(coefficients) + 1)
    words: Words = (running[byte_offsets[1:]] - running[byte_offsets[:-1]]) * inverse_powers[byte_offsets[:-1]]
    return words


def _powers(base: int, n: int) -> Words:
    """Return base^0 … base^(n−1) modulo 2^64."""
    powers = np.full(n, base, np.uint64)
    powers[:1] = 1
    return np.multiply.accumulate(powers)
