"""Registers: a field of states, with the registers of HyperLogLog as bytes, or, for few values, with their coupons
(32-bit hashes).

    value ──▶ coupon    26 address bits from one half of the value's hash, and a zero count: 1 plus the number of
                        leading zeros of the other half
    few coupons         are stored in ascending order, 4 bytes each; at most 3/32 of the number of registers
    more coupons        are stored as 2^lg_k registers. Register i has the largest zero count of the coupons whose
                        lowest address bits are i.

The state does not depend on the order of the values, because neither a set of coupons nor the maximum in each register
depends on this order.

Source: Flajolet, Fusy, Gandouet, Meunier, "HyperLogLog", 2007; the coupons of Apache DataSketches; the estimate of
Ertl, "New cardinality estimation algorithms for HyperLogLog sketches", 2017, which needs only the registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from aggr.arrays import Bytes, Flags, Floats, Ids, Whole
from aggr.arrow.damaged_state import DamagedState, field_of_type
from aggr.compiling.jit import Int, compiled
from aggr.distinct.item_hashes import HASHES, item_hash, words_by_group
from aggr.distinct.least_hashes import smallest_hashes
from aggr.distinct.murmur3 import ZERO_BITS
from aggr.fields import Field
from aggr.groups.groups import Groups, check_lengths
from aggr.histograms.leb128 import of_arrow, to_arrow
from aggr.values import Values

_COUPONS = 1 << 32  # the number of possible coupons (32-bit hashes)

# Coupons (32-bit hashes) do not all have the same probability. Two values have the same coupon as often as if there
# were this number of coupons with equal probabilities. A coupon consists of 26 address bits and a number of leading
# zeros. If two values have equal address bits, their numbers of leading zeros are equal in a third of cases, and then
# their coupons are equal.
_EQUIVALENT_COUPONS = 3.0 * 2**26
# Estimates are computed for about this number of registers at a time, because a register needs 8 bytes of temporary
# memory.
_REGISTERS_PER_BLOCK = 1 << 20
_COUPON_BYTES = 4  # the number of bytes of a coupon

_MAX_ZEROS = 63  # the largest value of a register


class ColumnParts(NamedTuple):
    """The rows of a column, separated into rows with registers and rows with coupons (32-bit hashes).

    ``has_registers`` is a mask of the rows with registers, shape (n,), and ``registers`` has their registers, shape
    (rows with registers, 2^lg_k). ``counts`` has the number of coupons of each other row, and ``coupons`` has these
    coupons, end to end.
    """

    has_registers: Flags
    registers: Bytes
    counts: Whole
    coupons: Whole


@dataclass(frozen=True)
class Registers(Field):
    """The field of a state that contains 2^lg_k registers, or 32-bit hashes of single values (coupons)."""

    lg_k: int

    @property
    def most_coupons(self) -> int:
        """The maximum number of coupons (32-bit hashes) of a row; a row with more is stored as registers."""
        return 3 * (1 << self.lg_k) // 32

    def reduce(self, values: Values) -> pa.Array:
        words, kind = words_by_group(values, as_coupons=True)
        no_registers = np.zeros((0, 1 << self.lg_k), np.uint8)
        return self._to_column(words, kind, values.groups.offsets, registers=no_registers, ids=np.zeros(0, np.intp))

    def merge(self, column: pa.Array, groups: Groups) -> pa.Array:
        check_lengths(len(column), groups, "sketches")
        parts = self.parts(column.take(pa.array(groups.rows_by_group)))
        ids = np.repeat(np.arange(groups.n), groups.counts())
        counts = np.zeros(len(ids), np.int64)
        counts[~parts.has_registers] = parts.counts
        starts = np.append(0, np.cumsum(counts))[groups.offsets]
        return self._to_column(parts.coupons, HASHES, starts, registers=parts.registers, ids=ids[parts.has_registers])

    def parts(self, column: pa.Array) -> ColumnParts:
        """Return the registers and the coupons (32-bit hashes) of a column.

        Raise `DamagedState` if the number of bytes of a row is possible neither for registers nor for coupons.
        """
        data, offsets = of_arrow(field_of_type(column, pa.binary()))
        sizes = np.diff(offsets)
        has_registers = sizes == 1 << self.lg_k
        if (~has_registers & ((sizes % _COUPON_BYTES > 0) | (sizes > _COUPON_BYTES * self.most_coupons))).any():
            raise DamagedState(
                f"contains neither {1 << self.lg_k} registers nor a list of at most {self.most_coupons} hashes"
            )
        is_register_byte = np.repeat(has_registers, sizes)
        data = data[offsets[0] : offsets[-1]]
        coupons = data[~is_register_byte].view("<u4").astype(np.int64)
        return ColumnParts(
            has_registers,
            data[is_register_byte].reshape(-1, 1 << self.lg_k),
            sizes[~has_registers] // _COUPON_BYTES,
            coupons,
        )

    def _to_column(self, words: Whole, kind: int, starts: Whole, registers: Bytes, ids: Ids) -> pa.Array:
        """Return a column with one sketch per group.

        ``words[starts[g]:starts[g + 1]]`` are the 32-bit hashes of group ``g``, or its values if they are not hashed.
        ``registers`` has rows of registers that are merged by group. ``ids`` has the group of each row of registers, in
        ascending order.
        """
        n = len(starts) - 1
        thetas = np.full(n, _COUPONS)
        new_thetas, coupons, offsets = smallest_hashes(words, kind, starts, thetas, k=self.most_coupons)
        has_registers = new_thetas < _COUPONS
        counts = np.diff(offsets)
        has_registers[ids] = True
        register_rows = np.cumsum(has_registers) - 1
        greatest = _registers(words, kind, starts, has_registers, lg_k=self.lg_k)
        if len(ids):
            first_rows = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
            rows = register_rows[ids[first_rows]]
            greatest[rows] = np.maximum(greatest[rows], np.maximum.reduceat(registers, first_rows, axis=0))
        sizes = np.where(has_registers, 1 << self.lg_k, counts * _COUPON_BYTES)
        data = np.empty(int(sizes.sum()), np.uint8)
        is_register_byte = np.repeat(has_registers, sizes)
        data[is_register_byte] = greatest.ravel()
        data[~is_register_byte] = coupons[np.repeat(~has_registers, counts)].astype("<u4").view(np.uint8)
        return to_arrow(data, np.append(0, np.cumsum(sizes)))

    def check(self, column: pa.Array) -> None:
        parts = self.parts(column)
        first_coupons = np.cumsum(parts.counts) - parts.counts
        has_predecessor = np.ones(len(parts.coupons), np.bool_)
        has_predecessor[first_coupons[parts.counts > 0]] = False
        is_ascending = np.diff(parts.coupons, prepend=0) > 0
        if (
            (has_predecessor & ~is_ascending).any()
            or (parts.coupons & _MAX_ZEROS == 0).any()
            or parts.registers.max(initial=0) > _MAX_ZEROS
        ):
            raise DamagedState(
                "contains 32-bit hashes that are not in ascending order, or impossible hashes or registers"
            )

    def estimates(self, column: pa.Array) -> Floats:
        """Return an estimate of the number of distinct values of each sketch, shape (n,)."""
        parts = self.parts(column)
        estimates = np.empty(len(parts.has_registers))
        estimates[~parts.has_registers] = -_EQUIVALENT_COUPONS * np.log1p(-parts.counts / _EQUIVALENT_COUPONS)
        block_rows = max(1, _REGISTERS_PER_BLOCK >> self.lg_k)
        blocks = (parts.registers[start : start + block_rows] for start in range(0, len(parts.registers), block_rows))
        estimates[parts.has_registers] = np.concatenate(
            [_estimate_counts(registers) for registers in blocks] or [np.zeros(0)]
        )
        return estimates


@compiled
def _registers(words: Whole, kind: Int, starts: Whole, has_registers: Flags, lg_k: Int) -> Bytes:
    """Return the registers of the groups for which ``has_registers`` is true, one row of 2^lg_k registers per group.

    The registers of group ``g`` are computed from its words, ``words[starts[g]:starts[g + 1]]``. ``kind``, which is
    described in `item_hash`, determines whether the words are 32-bit hashes or values that are still to be hashed.
    """
    rows = np.int64(0)
    for group in range(len(has_registers)):  # ``has_registers.sum()`` would need numba's registries.
        rows += has_registers[group]
    registers = np.zeros((rows, 1 << lg_k), np.uint8)
    row = np.int64(0)
    index_mask = (1 << lg_k) - 1
    for group in range(len(has_registers)):
        if has_registers[group]:
            for i in range(starts[group], starts[group + 1]):
                coupon = item_hash(words[i], kind)
                index = (coupon >> ZERO_BITS) & index_mask
                zeros = coupon & _MAX_ZEROS
                if zeros > registers[row, index]:
                    registers[row, index] = zeros
            row += 1
    return registers


def _estimate_counts(registers: Bytes) -> Floats:
    """Return an estimate of the distinct count of each row of registers: Ertl's improved raw estimate."""
    n, size = registers.shape
    cells = np.arange(n)[:, np.newaxis] * (_MAX_ZEROS + 1) + registers
    counts = np.bincount(cells.ravel(), minlength=n * (_MAX_ZEROS + 1)).reshape(n, _MAX_ZEROS + 1)
    total = size * _tau(1.0 - counts[:, _MAX_ZEROS] / size)
    for zeros in range(_MAX_ZEROS - 1, 0, -1):
        total = (total + counts[:, zeros]) / 2.0
    total += size * _sigma(counts[:, 0] / size)
    with np.errstate(divide="ignore"):
        estimates: Floats = np.minimum(size**2 / (2.0 * np.log(2.0) * total), 2.0**62)
    return estimates


def _sigma(x: Floats) -> Floats:
    """Return Ertl's ``σ(x) = x + x²·1 + x⁴·2 + x⁸·4 + …`` for x below 1."""
    total = x.copy()
    weight = 1.0
    for _ in range(64):
        x = x * x
        total += x * weight
        weight *= 2.0
    return total


def _tau(x: Floats) -> Floats:
    """Return Ertl's ``τ(x) = (1 − x − Σ (1 − x^(2^-j))²·2^-j) / 3``, which is 0 for x = 0 and x = 1."""
    total = 1.0 - x
    weight = 1.0
    at_ends = (x <= 0.0) | (x >= 1.0)
    for _ in range(64):
        x = np.sqrt(x)
        weight /= 2.0
        total -= (1.0 - x) ** 2 * weight
    return np.where(at_ends, 0.0, total / 3.0)
