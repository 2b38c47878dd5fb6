"""Item hashes: 63 bits for each value, equal to the hashes in the Theta sketches of Apache DataSketches.

Integers are hashed by their value in 64 bits. Floats are hashed by their bits as doubles, but both zeros have the same
hash, and all NaN have the same hash. Text is hashed by its bytes in UTF-8, and binary values by their bytes.
DataSketches does not define hashes for other types. There is one difference: DataSketches skips empty texts and empty
binary values, but this module hashes them.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from aggr.arrays import Whole
from aggr.compiling.jit import Int, compiled
from aggr.distinct.murmur3 import hash_bytes, hash_word
from aggr.groups.numbers import Numbers
from aggr.histograms.leb128 import of_arrow
from aggr.input_types import InputTypes
from aggr.values import Values

# The kinds of 64-bit words. A word is a hash, an integer that is still to be hashed, or the bits of a double that is
# still to be hashed.
HASHES = 0
INTEGERS = 1
DOUBLES = 2
# This number is added to the kinds `INTEGERS` and `DOUBLES` if the words are hashed to coupons, which are the 32-bit
# hashes of HyperLogLog.
_COUPONS = 4
_MAGNITUDE = np.int64(np.iinfo(np.int64).max)  # all bits of a double except its sign
_INFINITY = np.int64(0x7FF << 52)
_NAN = np.int64(0xFFF << 51)


def _is_hashable(dtype: pa.DataType) -> bool:
    is_a = pa.types
    tests = (is_a.is_integer, is_a.is_floating, is_a.is_string, is_a.is_binary, is_a.is_fixed_size_binary)
    return any(test(dtype) for test in tests)


HASHABLE = InputTypes(
    "integers, floats, strings and bytes; cast others to strings",
    "A column of integers, floats, strings or bytes.",
    _is_hashable,
)


def words_by_group(values: Values, as_coupons: bool = False) -> tuple[Whole, int]:
    """Return one 64-bit word per value, and the kind of the words. `item_hash` computes the hash of a value from its
    word.

    The values have a type that `HASHABLE` allows. The words are sorted by group, shape (rows,). Their kind is `HASHES`,
    `INTEGERS` or `DOUBLES`.

    Texts and bytes are hashed by this function, so that their words are hashes. Integers and doubles are hashed later
    by `item_hash`. With ``as_coupons``, hashes have 32 bits, as HyperLogLog requires. For integers and doubles, 4 is
    then added to the kind, so that `item_hash` returns hashes of 32 bits.

    >>> from aggr.groups.groups import Groups
    >>> words, kind = words_by_group(Values(pa.array([3, 1, 2], pa.int8()), Groups.of([1, 0, 1], 2)))
    >>> words, kind == INTEGERS
    (array([1, 3, 2]), True)
    """
    coupon_flag = _COUPONS * as_coupons
    if pa.types.is_floating(values.array.type):
        return values.floats.sorted_by_group.view(np.int64), DOUBLES + coupon_flag
    if not pa.types.is_integer(values.array.type):
        return Numbers(hash_bytes(*of_arrow(values.array), as_coupons), values.groups).sorted_by_group, HASHES
    if values.array.type == pa.int64():
        return values.numbers.sorted_by_group, INTEGERS + coupon_flag
    integers = values.array.to_numpy().astype(np.int64)  # values from 2^63 on become negative, as in DataSketches
    return Numbers(integers, values.groups).sorted_by_group, INTEGERS + coupon_flag


@compiled
def item_hash(word: Int, kind: Int) -> Int:
    """Return the hash of a word from `words_by_group`, or its 32-bit hash if 4 was added to ``kind``. A word of the
    kind `HASHES` is a hash already and is returned unchanged. 0.0 and -0.0 have the same hash, and so do all NaN.
    """
    if kind == HASHES:
        return word
    if kind & DOUBLES:
        magnitude = word & _MAGNITUDE
        if magnitude == 0 or magnitude > _INFINITY:
            word = np.int64(0) if magnitude == 0 else _NAN
    return hash_word(word, kind >= _COUPONS)
