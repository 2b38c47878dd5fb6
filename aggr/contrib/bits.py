"""bit_and, bit_or, bit_xor: combine the bits of whole numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from aggr.extend import INTEGERS, DamagedState, Field, Function, Groups, PlainState, State, Values


@dataclass(frozen=True)
class Bits(Field):
    """The field of a state that combines the bits of a group's whole numbers by a bitwise operation. The field is null
    for a group without values.

    ``operation`` is a ufunc of NumPy with an identity, such as ``numpy.bitwise_and``.
    """

    operation: np.ufunc

    def reduce(self, values: Values) -> pa.Array:
        integers = values.array if values.array.type == pa.uint64() else values.array.cast(pa.int64())
        return self.merge(integers, values.groups)

    def merge(self, column: pa.Array, groups: Groups) -> pa.Array:
        groups = groups.filter(column.is_valid().to_numpy(zero_copy_only=False))
        numbers = column.drop_null().to_numpy()
        bits = np.full(groups.n, self.operation.identity).astype(numbers.dtype)
        self.operation.at(bits, groups.ids, numbers)
        return pa.array(bits, column.type, mask=groups.counts() == 0)

    def check(self, column: pa.Array) -> None:
        if column.type not in (pa.int64(), pa.uint64()):
            raise DamagedState(f"has type {column.type}, which is neither int64 nor uint64")


@dataclass(frozen=True)
class BitAnd(Function):
    """Return the bits that are set in all values.

    Examples
    --------
    >>> from aggr import bit_and
    >>> bit_and("flags")
    bit_and('flags')
    """

    name = "bit_and"
    takes = INTEGERS
    keeps = "the bits"
    returns = "uint64 for a column of uint64, otherwise int64; null if there are no values"
    guarantee = "exact"
    own_state: ClassVar[State] = PlainState("bit_and", {"bits": Bits(np.bitwise_and)})

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        return states.field("bits")


@dataclass(frozen=True)
class BitOr(BitAnd):
    """Return the bits that are set in at least one value.

    Examples
    --------
    >>> from aggr import bit_or
    >>> bit_or("flags")
    bit_or('flags')
    """

    name = "bit_or"
    own_state = PlainState("bit_or", {"bits": Bits(np.bitwise_or)})


@dataclass(frozen=True)
class BitXor(BitAnd):
    """Return the bits that are set in an odd number of values.

    Examples
    --------
    >>> from aggr import bit_xor
    >>> bit_xor("checksum")
    bit_xor('checksum')
    """

    name = "bit_xor"
    own_state = PlainState("bit_xor", {"bits": Bits(np.bitwise_xor)})
