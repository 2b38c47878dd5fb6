"""Row hashes: 128 bits for each row of some columns, computed from its values alone.

Rows with equal bits have equal hashes, whether their columns are chunked, sliced or padded. A sum of hashes therefore
identifies a multiset of rows, in any order and in any division into files. Numbers are hashed by their bits. Texts and
lists are hashed by FNV-1a over their bytes or elements, in two lanes (computations with different constants). A
finalizer mixes each column into the hash of the row. The hash is not cryptographic: an attacker can construct rows that
collide.

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

ALL = np.iinfo(np.int64).max  # larger than every hash of `hash64`
_LANES = 2
_NULL = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio, the increment of SplitMix64
_BASIS = (np.uint64(0xCBF29CE484222325), np.uint64(0x84222325CBF29CE4))  # FNV's 64-bit basis, and its halves swapped
_PRIMES = (np.uint64(0x100000001B3), np.uint64(0x9E3779B97F4A7C55))  # FNV's 64-bit prime, and another odd number
# the multipliers in the finalizers of SplitMix64 and MurmurHash3
_FACTORS = (
    (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)),
    (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)),
)


def row_hashes(columns: Sequence[pa.Array | pa.ChunkedArray]) -> Words:
    """Hash each row of one or more columns, shape (2, rows). The bits of nulls are ignored.

    >>> a, b, again = row_hashes([pa.array(["a", "b", "a"]), pa.array([[1], None, [1]])]).T.tolist()
    >>> a == again, a == b
    (True, False)
    """
    with np.errstate(over="ignore"):
        return _combined([_hashes(normalize(column)) for column in columns])


def hash64(*columns: pa.Array) -> Whole:
    """Hash the rows of columns without nulls to uniformly distributed numbers from 0 to below `ALL`, for sampling.

    >>> a, b, again = hash64(pa.array(["a", "b", "a"])).tolist()
    >>> a == again, a == b
    (True, False)
    """
    hashes: Whole = (row_hashes(columns)[0] >> np.uint64(1)).view(np.int64)
    return np.minimum(hashes, ALL - 1)


def _combined(columns: Sequence[Words]) -> Words:
    total = np.zeros_like(columns[0])
    for column in columns:
        total = np.stack([_mixed(total[lane], column[lane], *_FACTORS[lane]) for lane in range(_LANES)])
    return total


@compiled
def _mixed(total: Words, column: Words, first: np.uint64, second: np.uint64) -> Words:
    """Combine row hashes with those of another column; each bit of both affects all bits of the result."""
    mixed = np.empty(len(total), np.uint64)
    for row in range(len(total)):
        word = total[row] * np.uint64(31) + column[row] + np.uint64(1)
        word = (word ^ (word >> np.uint64(30))) * first
        word = (word ^ (word >> np.uint64(27))) * second
        mixed[row] = word ^ (word >> np.uint64(31))
    return mixed


def _hashes(column: pa.Array) -> Words:
    if not len(column) or pa.types.is_null(column.type):
        return np.zeros((_LANES, len(column)), np.uint64)
    if not column.null_count:
        return _present(column)
    words = np.full((_LANES, len(column)), _NULL)
    words[:, column.is_valid().to_numpy(zero_copy_only=False)] = _present(column.drop_null())
    return words


def _present(column: pa.Array) -> Words:
    """Hash values without nulls."""
    kind = column.type
    if pa.types.is_struct(kind):
        children = [_hashes(normalize(pc.struct_field(column, [i]))) for i in range(kind.num_fields)]
        return _combined([np.ones((_LANES, len(column)), np.uint64), *children])
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        lengths = pc.binary_length(column).to_numpy()
        _, offsets, data = column.cast(pa.binary()).buffers()
        first = int(np.frombuffer(offsets, np.int32, 1, 4 * column.offset)[0])
        values = np.frombuffer(data or b"", np.uint8)[first : first + int(lengths.sum())]
        return _joined([values, values], lengths.astype(np.int64))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _joined(
            list(_hashes(normalize(column.flatten()))), pc.list_value_length(column).to_numpy().astype(np.int64)
        )
    return _fixed(column)


def _fixed(column: pa.Array) -> Words:
    """Hash values of a fixed width by their bits."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    width = column.type.bit_width // 8
    data = np.frombuffer(column.buffers()[1], np.uint8)[column.offset * width : (column.offset + len(column)) * width]
    if width % 8:
        padded = np.zeros((len(column), -(-width // 8) * 8), np.uint8)
        padded[:, :width] = data.reshape(len(column), width)
        data = padded
    pieces = np.ascontiguousarray(data).view(np.uint64).reshape(len(column), -(-width // 8)).T
    return _combined([np.broadcast_to(piece, (_LANES, len(column))) for piece in pieces])


def _joined(elements: Sequence[NDArray[np.unsignedinteger]], lengths: Whole) -> Words:
    """Hash rows of elements, stored end to end, in both lanes."""
    return np.stack([_chained(elements[i], lengths, _BASIS[i], _PRIMES[i]) for i in range(_LANES)])


@compiled
def _chained(elements: NDArray[np.unsignedinteger], lengths: Whole, basis: np.uint64, prime: np.uint64) -> Words:
    """Hash the elements of each row by FNV-1a: exclusive or with each element, then multiply by ``prime``."""
    hashes = np.empty(len(lengths), np.uint64)
    at = 0
    for row in range(len(lengths)):
        total = basis
        for _ in range(lengths[row]):
            total = (total ^ np.uint64(elements[at])) * prime
            at += 1
        hashes[row] = total
    return hashes
