"""Row hashes: 128 bits for each row of one or more columns, computed only from the values of the row.

Rows with equal bits have equal hashes, whether their columns are chunked, sliced or padded. A sum of hashes therefore
identifies a multiset of rows, in any order and in any division into files. Numbers are hashed by their bits. Texts and
lists are hashed by FNV-1a over their bytes or elements. Each of the two 64-bit words of a hash is computed separately,
with its own constants; the computation of one word is called a lane. A finalizer mixes each column into the hash of the
row. The hash is not cryptographic: an attacker can construct rows that collide.

Source: Fowler, Noll, Vo, "The FNV Non-Cryptographic Hash Algorithm"; the finalizers of SplitMix64 (Steele et al.,
2014) and MurmurHash3 (Appleby).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arrays import Whole
from aggr.arrow import compute as pc
from aggr.arrow.normalize import normalize
from aggr.compiling.jit import compiled

Words = NDArray[np.uint64]

# A sample contains the rows whose hash is below its threshold. Every hash of `hash64` is below this value, so a sample
# with this threshold contains all rows.
NO_THRESHOLD = np.iinfo(np.int64).max
_LANES = 2
# The hash of a null is a constant: 2^64 divided by the golden ratio, which SplitMix64 uses as its increment.
_NULL_HASH = np.uint64(0x9E3779B97F4A7C15)
# the initial values of the two words of a hash: FNV's 64-bit basis, and the same number with exchanged halves
_INITIAL_HASHES = (np.uint64(0xCBF29CE484222325), np.uint64(0x84222325CBF29CE4))
# the multipliers of FNV-1a for the two words of a hash: FNV's 64-bit prime, and another odd number
_PRIMES = (np.uint64(0x100000001B3), np.uint64(0x9E3779B97F4A7C55))
# for each of the two words of a hash, the multipliers of `_mix`: those in the finalizers of SplitMix64 and of
# MurmurHash3
_FACTORS = (
    (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)),
    (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)),
)


def row_hashes(columns: Sequence[pa.Array | pa.ChunkedArray]) -> Words:
    """Return a 128-bit hash of each row of one or more columns, as two uint64 words: shape (2, rows). The bits that a
    null has in memory are ignored.

    >>> a, b, again = row_hashes([pa.array(["a", "b", "a"]), pa.array([[1], None, [1]])]).T.tolist()
    >>> a == again, a == b
    (True, False)
    """
    with np.errstate(over="ignore"):
        arrays = [normalize(column) for column in columns]
        return _mix_columns(np.zeros((_LANES, len(arrays[0])), np.uint64), arrays)


def hash64(*columns: pa.Array) -> Whole:
    """Return an int64 hash of each row, shape (rows,). The columns must have no nulls.

    Samples consist of the rows or values with the smallest hashes. Hashes are uniformly distributed in [0,
    `NO_THRESHOLD`).

    >>> a, b, again = hash64(pa.array(["a", "b", "a"])).tolist()
    >>> a == again, a == b
    (True, False)
    """
    hashes: Whole = (row_hashes(columns)[0] >> np.uint64(1)).view(np.int64)
    return np.minimum(hashes, NO_THRESHOLD - 1)


def _mix_columns(initial_hashes: Words, columns: Sequence[pa.Array]) -> Words:
    """Mix the hashes of columns, one after the other, into the hashes of rows, ``initial_hashes``. Return the new
    hashes of rows, shape (2, rows).
    """
    hashes = initial_hashes
    for column in columns:
        if len(column) and not column.null_count and _has_fixed_width(column):
            hashes = _mix_pieces(hashes, _pieces(column), *_FACTORS[0], *_FACTORS[1])
        else:
            hashes = _mix_hashes(hashes, _hash_column(column), *_FACTORS[0], *_FACTORS[1])
    return hashes


@compiled
def _mix(initial_hash: np.uint64, word: np.uint64, factor_a: np.uint64, factor_b: np.uint64) -> np.uint64:
    """Mix a word into a hash, and return the new hash. Each bit of the hash and of the word affects all bits of the
    result. ``factor_a`` and ``factor_b`` are two multipliers.
    """
    mixed = initial_hash * np.uint64(31) + word + np.uint64(1)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * factor_a
    mixed = (mixed ^ (mixed >> np.uint64(27))) * factor_b
    return mixed ^ (mixed >> np.uint64(31))


@compiled
def _mix_hashes(
    initial_hashes: Words,
    column_hashes: Words,
    first_lane_factor_a: np.uint64,
    first_lane_factor_b: np.uint64,
    second_lane_factor_a: np.uint64,
    second_lane_factor_b: np.uint64,
) -> Words:
    """Mix the hashes of a column, ``column_hashes``, into the hashes of rows, and return the new hashes of rows.

    All have the shape (2, rows). The other parameters are two multipliers for each of the two words of a hash.
    """
    mixed = np.empty((2, initial_hashes.shape[1]), np.uint64)
    for row in range(initial_hashes.shape[1]):
        mixed[0, row] = _mix(initial_hashes[0, row], column_hashes[0, row], first_lane_factor_a, first_lane_factor_b)
        mixed[1, row] = _mix(initial_hashes[1, row], column_hashes[1, row], second_lane_factor_a, second_lane_factor_b)
    return mixed


@compiled
def _mix_pieces(
    initial_hashes: Words,
    pieces: Words,
    first_lane_factor_a: np.uint64,
    first_lane_factor_b: np.uint64,
    second_lane_factor_a: np.uint64,
    second_lane_factor_b: np.uint64,
) -> Words:
    """Hash values that consist of 64-bit pieces, shape (rows, pieces), and mix these hashes into the hashes of rows.

    ``initial_hashes`` are the hashes of rows, and the result contains their new hashes. Both have the shape (2, rows).
    The other parameters are two multipliers for each of the two words of a hash.
    """
    mixed = np.empty((2, len(pieces)), np.uint64)
    for row in range(len(pieces)):
        first_hash = np.uint64(0)
        second_hash = np.uint64(0)
        for i in range(pieces.shape[1]):
            first_hash = _mix(first_hash, pieces[row, i], first_lane_factor_a, first_lane_factor_b)
            second_hash = _mix(second_hash, pieces[row, i], second_lane_factor_a, second_lane_factor_b)
        mixed[0, row] = _mix(initial_hashes[0, row], first_hash, first_lane_factor_a, first_lane_factor_b)
        mixed[1, row] = _mix(initial_hashes[1, row], second_hash, second_lane_factor_a, second_lane_factor_b)
    return mixed


@compiled
def _hash_pieces(
    pieces: Words,
    first_lane_factor_a: np.uint64,
    first_lane_factor_b: np.uint64,
    second_lane_factor_a: np.uint64,
    second_lane_factor_b: np.uint64,
) -> Words:
    """Return the hashes, shape (2, rows), of values that consist of 64-bit pieces, shape (rows, pieces).

    The other parameters are two multipliers for each of the two words of a hash.
    """
    hashes = np.empty((2, len(pieces)), np.uint64)
    for row in range(len(pieces)):
        first_hash = np.uint64(0)
        second_hash = np.uint64(0)
        for i in range(pieces.shape[1]):
            first_hash = _mix(first_hash, pieces[row, i], first_lane_factor_a, first_lane_factor_b)
            second_hash = _mix(second_hash, pieces[row, i], second_lane_factor_a, second_lane_factor_b)
        hashes[0, row], hashes[1, row] = first_hash, second_hash
    return hashes


def _hash_column(column: pa.Array) -> Words:
    """Return the hash of each value of a column, shape (2, rows). All nulls have the same hash."""
    if not len(column) or pa.types.is_null(column.type):
        return np.zeros((_LANES, len(column)), np.uint64)
    if not column.null_count:
        return _hash_values(column)
    words = np.full((_LANES, len(column)), _NULL_HASH)
    words[:, column.is_valid().to_numpy(zero_copy_only=False)] = _hash_values(column.drop_null())
    return words


def _hash_values(column: pa.Array) -> Words:
    """Return the hashes of values without nulls, shape (2, rows)."""
    dtype = column.type
    if pa.types.is_struct(dtype):
        children = [normalize(pc.struct_field(column, [i])) for i in range(dtype.num_fields)]
        zeros, ones = (np.full((_LANES, 1), word, np.uint64) for word in (0, 1))
        # The hash of a struct begins with a constant, ``initial``, into which the hashes of its fields are then mixed.
        initial = _mix_hashes(zeros, ones, *_FACTORS[0], *_FACTORS[1])
        return _mix_columns(np.repeat(initial, len(column), axis=1), children)
    if pa.types.is_string(dtype) or pa.types.is_binary(dtype):
        lengths = pc.binary_length(column).to_numpy()
        _, offsets, data = column.cast(pa.binary()).buffers()
        start = int(np.frombuffer(offsets, np.int32, 1, 4 * column.offset)[0])
        values = np.frombuffer(data or b"", np.uint8)[start : start + int(lengths.sum())]
        return _hash_lists([values, values], lengths.astype(np.int64))
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype) or pa.types.is_fixed_size_list(dtype):
        return _hash_lists(
            list(_hash_column(normalize(column.flatten()))), pc.list_value_length(column).to_numpy().astype(np.int64)
        )
    return _hash_pieces(_pieces(column), *_FACTORS[0], *_FACTORS[1])


def _has_fixed_width(column: pa.Array) -> bool:
    """Return whether each value of a column has the same number of bytes or bits, as numbers and times have."""
    dtype = column.type
    return not (
        pa.types.is_null(dtype) or pa.types.is_nested(dtype) or pa.types.is_string(dtype) or pa.types.is_binary(dtype)
    )


def _pieces(column: pa.Array) -> Words:
    """Return the bits of values of a fixed width as pieces of 64 bits, shape (rows, pieces)."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    width = column.type.bit_width // 8
    rows = len(column)
    data = np.frombuffer(column.buffers()[1], np.uint8)[column.offset * width : (column.offset + rows) * width]
    if width in (1, 2, 4):
        return data.view(f"u{width}").astype(np.uint64).reshape(rows, 1)
    if width % 8:
        padded = np.zeros((rows, -(-width // 8) * 8), np.uint8)
        padded[:, :width] = data.reshape(rows, width)
        data = padded
    return np.ascontiguousarray(data).view(np.uint64).reshape(rows, -(-width // 8))


def _hash_lists(elements: Sequence[NDArray[np.unsignedinteger]], lengths: Whole) -> Words:
    """Return the hash of each row's list of elements, shape (2, rows).

    ``elements`` has two arrays, one for each word of a hash, with the elements of all rows end to end. ``lengths`` has
    the number of elements of each row.
    """
    first_elements, second_elements = elements
    return _fnv_hashes(first_elements, second_elements, lengths, *_INITIAL_HASHES, *_PRIMES)


@compiled
def _fnv_hashes(
    first_elements: NDArray[np.unsignedinteger],
    second_elements: NDArray[np.unsignedinteger],
    lengths: Whole,
    first_basis: np.uint64,
    second_basis: np.uint64,
    first_prime: np.uint64,
    second_prime: np.uint64,
) -> Words:
    """Hash the elements of each row by FNV-1a: exclusive or with each element, then multiply by a prime.

    Return the hashes, shape (2, rows). Each of the two words of a hash (lanes) has its own elements, basis and prime.
    ``lengths`` has the number of elements of each row. One loop computes both lanes, because the processor can then
    compute one lane while the other lane waits for the result of its previous multiplication.
    """
    hashes = np.empty((2, len(lengths)), np.uint64)
    position = np.uint64(0)
    for row in range(len(lengths)):
        first_hash = first_basis
        second_hash = second_basis
        for _ in range(lengths[row]):
            first_hash = (first_hash ^ np.uint64(first_elements[position])) * first_prime
            second_hash = (second_hash ^ np.uint64(second_elements[position])) * second_prime
            position += np.uint64(1)
        hashes[0, row], hashes[1, row] = first_hash, second_hash
    return hashes
