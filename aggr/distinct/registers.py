"""Registers: the field of a state with the registers of HyperLogLog as bytes, or, for few values, with their coupons
(32-bit hashes).

    value ──▶ coupon    26 bits of the value's hash, and 1 plus the number of leading zeros of the hash's other half
    few coupons         are stored themselves, ascending, 4 bytes each, up to 3/32 of the number of registers
    more coupons        are stored as 2^lg_k registers. Register i has the largest zero count of the coupons whose
                        lowest bits are i.

The state does not depend on the order of the values, because neither a set of coupons nor the maximum in each register
depends on it.

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

_COUPONS = 1 << 32  # the number of different coupons
# Coupons are not equally likely. This number of equally likely coupons would collide with the same frequency: a coupon
# has 26 address bits, and two values with equal address bits also have equal zero counts, and therefore equal coupons,
# in a third of cases.
_APART = 3.0 * 2**26
# Estimates are computed for this number of registers at a time, because each needs 8 bytes of temporary memory.
_CELLS = 1 << 20
_SIZE = 4  # the bytes of a coupon
_MOST = 63  # the largest value of a register


class Parts(NamedTuple):
    """The rows of a column, separated into rows with registers and rows with coupons.

    ``full`` is a mask of the rows with registers, shape (n,), and ``registers`` has their registers, shape (full rows,
    2^lg_k). ``counts`` has the number of coupons of each other row, and ``coupons`` has these coupons, end to end.
    """

    full: Flags
    registers: Bytes
    counts: Whole
    coupons: Whole


@dataclass(frozen=True)
class Registers(Field):
    """The field of a state that holds 2^lg_k registers, or coupons (32-bit hashes)."""

    lg_k: int

    @property
    def most_coupons(self) -> int:
        """The maximum number of coupons of a row; a row with more coupons is stored as registers."""
        return 3 * (1 << self.lg_k) // 32

    def reduce(self, values: Values) -> pa.Array:
        words, kind = words_by_group(values, coupons=True)
        no_registers = np.zeros((0, 1 << self.lg_k), np.uint8)
        return self._to_column(words, kind, values.groups.offsets, registers=no_registers, ids=np.zeros(0, np.intp))

    def merge(self, column: pa.Array, groups: Groups) -> pa.Array:
        check_lengths(len(column), groups, "sketches")
        parts = self.parts(column.take(pa.array(groups.rows_by_group)))
        ids = np.repeat(np.arange(groups.n), groups.counts())
        counts = np.zeros(len(ids), np.int64)
        counts[~parts.full] = parts.counts
        starts = np.append(0, np.cumsum(counts))[groups.offsets]
        return self._to_column(parts.coupons, HASHES, starts, registers=parts.registers, ids=ids[parts.full])

    def parts(self, column: pa.Array) -> Parts:
        """Return the registers and the coupons of a column. Raises `DamagedState` if the size of a row fits neither
        registers nor coupons.
        """
        data, places = of_arrow(field_of_type(column, pa.binary()))
        sizes = np.diff(places)
        full = sizes == 1 << self.lg_k
        if (~full & ((sizes % _SIZE > 0) | (sizes > _SIZE * self.most_coupons))).any():
            raise DamagedState(
                f"contains neither {1 << self.lg_k} registers nor a list of at most {self.most_coupons} coupons"
            )
        of_full, data = np.repeat(full, sizes), data[places[0] : places[-1]]
        coupons = data[~of_full].view("<u4").astype(np.int64)
        return Parts(full, data[of_full].reshape(-1, 1 << self.lg_k), sizes[~full] // _SIZE, coupons)

    def _to_column(self, words: Whole, kind: int, starts: Whole, registers: Bytes, ids: Ids) -> pa.Array:
        """Return a column with one sketch per group.

        ``words[starts[g]:starts[g + 1]]`` are the coupons of group ``g``, or the values to hash. ``registers`` has rows
        of registers to merge, and ``ids`` the group of each such row, in ascending order.
        """
        n = len(starts) - 1
        thetas = np.full(n, _COUPONS)
        left, coupons, offsets = smallest_hashes(words, kind, starts, thetas, k=self.most_coupons)
        full, counts = left < _COUPONS, np.diff(offsets)
        full[ids] = True
        places = np.cumsum(full) - 1
        greatest = _registers(words, kind, starts, full, lg_k=self.lg_k)
        if len(ids):
            first = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
            chosen = places[ids[first]]
            greatest[chosen] = np.maximum(greatest[chosen], np.maximum.reduceat(registers, first, axis=0))
        sizes = np.where(full, 1 << self.lg_k, counts * _SIZE)
        data, of_full = np.empty(int(sizes.sum()), np.uint8), np.repeat(full, sizes)
        data[of_full] = greatest.ravel()
        data[~of_full] = coupons[np.repeat(~full, counts)].astype("<u4").view(np.uint8)
        return to_arrow(data, np.append(0, np.cumsum(sizes)))

    def check(self, column: pa.Array) -> None:
        parts = self.parts(column)
        firsts = np.cumsum(parts.counts) - parts.counts
        within = np.ones(len(parts.coupons), np.bool_)
        within[firsts[parts.counts > 0]] = False
        ascending = np.diff(parts.coupons, prepend=0) > 0
        if (within & ~ascending).any() or (parts.coupons & _MOST == 0).any() or parts.registers.max(initial=0) > _MOST:
            raise DamagedState("contains coupons that are not in ascending order, or that no hash can produce")

    def estimates(self, column: pa.Array) -> Floats:
        """Return an estimate of the number of distinct values of each sketch, shape (n,)."""
        parts = self.parts(column)
        estimates = np.empty(len(parts.full))
        estimates[~parts.full] = -_APART * np.log1p(-parts.counts / _APART)
        rows = max(1, _CELLS >> self.lg_k)
        slices = (parts.registers[at : at + rows] for at in range(0, len(parts.registers), rows))
        estimates[parts.full] = np.concatenate([_estimate_counts(registers) for registers in slices] or [np.zeros(0)])
        return estimates


@compiled
def _registers(words: Whole, kind: Int, starts: Whole, full: Flags, lg_k: Int) -> Bytes:
    """Return the registers of the groups for which ``full`` is true, shape (such groups, 2^lg_k).

    The registers of group ``g`` are computed from its words, ``words[starts[g]:starts[g + 1]]``. The words are coupons,
    or values to hash, depending on ``kind``, which is described in `item_hash`.
    """
    registers = np.zeros((full.sum(), 1 << lg_k), np.uint8)
    row, last = np.int64(0), (1 << lg_k) - 1
    for group in range(len(full)):
        if full[group]:
            for i in range(starts[group], starts[group + 1]):
                coupon = item_hash(words[i], kind)
                place, zeros = (coupon >> ZERO_BITS) & last, coupon & _MOST
                if zeros > registers[row, place]:
                    registers[row, place] = zeros
            row += 1
    return registers


def _estimate_counts(registers: Bytes) -> Floats:
    """Return an estimate of the distinct count of each row of registers: Ertl's improved raw estimate."""
    n, size = registers.shape
    cells = np.arange(n)[:, np.newaxis] * (_MOST + 1) + registers
    counts = np.bincount(cells.ravel(), minlength=n * (_MOST + 1)).reshape(n, _MOST + 1)
    total = size * _tau(1.0 - counts[:, _MOST] / size)
    for zeros in range(_MOST - 1, 0, -1):
        total = (total + counts[:, zeros]) / 2.0
    total += size * _sigma(counts[:, 0] / size)
    with np.errstate(divide="ignore"):
        estimates: Floats = np.minimum(size**2 / (2.0 * np.log(2.0) * total), 2.0**62)
    return estimates


def _sigma(x: Floats) -> Floats:
    """Return Ertl's ``σ(x) = x + x²·1 + x⁴·2 + x⁸·4 + …`` for x below 1."""
    total, weight = x.copy(), 1.0
    for _ in range(64):
        x = x * x
        total += x * weight
        weight *= 2.0
    return total


def _tau(x: Floats) -> Floats:
    """Return Ertl's ``τ(x) = (1 − x − Σ (1 − x^(2^-j))²·2^-j) / 3``, which is 0 for x = 0 and x = 1."""
    total, weight = 1.0 - x, 1.0
    at_ends = (x <= 0.0) | (x >= 1.0)
    for _ in range(64):
        x = np.sqrt(x)
        weight /= 2.0
        total -= (1.0 - x) ** 2 * weight
    return np.where(at_ends, 0.0, total / 3.0)
