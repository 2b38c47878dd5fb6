"""Least hashes: a field of states, with the k smallest hashes of the distinct values of a group. It is a Theta sketch.

    hashes of a group     3  9  5  3  14  7        k = 3
    state                 hashes = 3  5  7         theta = 9, the smallest hash that is not in the state, or 2^63 - 1 if
                                                   all hashes are in the state

The state depends only on the set of values, and not on how the rows are split into parts, for two reasons. A hash that
is among the k smallest of all rows is also among the k smallest of every part that contains it. The next larger hash of
all rows, which is their theta, is also among the k smallest of a part, or is the theta of a part. Hashes are uniformly
distributed from 0 to 2^63, so ``retained / (theta / 2^63)`` estimates the number of distinct values, where ``retained``
is the number of hashes in the state.

Source: Bar-Yossef et al., "Counting distinct elements in a data stream", 2002; Dasgupta, Lang, Rhodes, Thaler,
"A framework for estimating stream expression cardinalities", ICDT 2016.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arrays import Flags, Floats, Whole
from aggr.arrow.damaged_state import DamagedState, field_of_type
from aggr.arrow.row_hash import NO_THRESHOLD
from aggr.compiling.jit import Int, compiled
from aggr.distinct.item_hashes import HASHES, INTEGERS, item_hash, words_by_group
from aggr.fields import Field
from aggr.groups.groups import Groups, check_lengths
from aggr.histograms.leb128 import of_arrow, to_arrow
from aggr.values import Values

SKETCH_TYPE = pa.struct([("theta", pa.int64()), ("hashes", pa.binary())])  # the hashes as bytes, 8 per hash, ascending
BOUNDS_TYPE = pa.struct(
    [*((name, pa.float64()) for name in ("estimate", "lower", "upper", "theta")), ("retained", pa.int64())]
)
_HASH_BYTES = 8  # the number of bytes of a hash

# Hashes are computed in blocks of this size. The hashes of a block are then inserted into a table.
_BLOCK = 256

# A table has this number of slots for each hash that it can contain.
_SLOTS_PER_HASH = 2


@dataclass(frozen=True, slots=True)
class Sketches:
    """``n`` sketches. Sketch i has the hashes ``hashes[places[i]:places[i + 1]]``, in ascending order.

    ``thetas[i]`` is its theta: the sketch contains all hashes of the group's values that are below theta.
    """

    thetas: Whole
    hashes: Whole
    places: Whole

    @classmethod
    def from_arrow(cls, column: pa.StructArray) -> Sketches:
        """Read a column of `SKETCH_TYPE`. Raise `DamagedState` if the column has another type, or if a hash has fewer
        than 8 bytes.
        """
        column = field_of_type(column, SKETCH_TYPE)
        data, places = of_arrow(column.field("hashes"))
        if (np.diff(places) % _HASH_BYTES).any():
            raise DamagedState("contains hashes that are shorter than 8 bytes")
        hashes = np.require(data[places[0] : places[-1]].view(np.int64), requirements="A")
        return cls(column.field("theta").to_numpy(), hashes, (places - places[0]) // _HASH_BYTES)

    def to_arrow(self) -> pa.StructArray:
        """Return the sketches as a column of `SKETCH_TYPE`."""
        hashes = to_arrow(self.hashes.view(np.uint8), self.places * _HASH_BYTES)
        return pa.StructArray.from_arrays([pa.array(self.thetas), hashes], fields=list(SKETCH_TYPE))

    @property
    def retained(self) -> Whole:
        """The number of hashes of each sketch, shape (n,)."""
        return np.diff(self.places)

    @property
    def are_empty(self) -> Flags:
        """A mask of the sketches of groups without values, shape (n,).

        Such a sketch has no hashes and the largest theta.
        """
        is_empty: Flags = (self.retained == 0) & (self.thetas == NO_THRESHOLD)
        return is_empty

    @property
    def shares(self) -> Floats:
        """The share of all possible hashes that is below theta, shape (n,); 1 if the sketch contains all hashes."""
        return self.thetas / 2.0**63

    def bounds(self, sigmas: float) -> pa.StructArray:
        """Return estimates and their bounds, like `aggr.tables.accessors.bounds`, shape (n,).

        ``sigmas`` is the distance of a bound from the estimate in standard deviations. The number of hashes below theta
        has a binomial distribution. The bounds are those of its normal approximation, which DataSketches also uses for
        more than 120 hashes.
        """
        retained = self.retained
        share = self.shares
        spread = sigmas * np.sqrt((1.0 - share) / share)
        lower = _bound(retained - 0.5, share, -spread) - 0.5
        upper = _bound(retained + 0.5, share, spread) + 0.5
        is_exact = self.thetas == NO_THRESHOLD
        columns = {
            "estimate": retained / share,
            "lower": np.where(is_exact, retained, np.maximum(lower, retained)),
            "upper": np.where(is_exact, retained, upper),
            "theta": share,
            "retained": retained,
        }
        return pa.StructArray.from_arrays([pa.array(columns[f.name]) for f in BOUNDS_TYPE], fields=list(BOUNDS_TYPE))


def _bound(retained: NDArray[np.floating], share: Floats, spread: Floats) -> Floats:
    """Return the upper or the lower bound of the number of distinct values of each sketch, shape (n,).

    ``retained`` is the number of the sketch's hashes, and ``share`` the share of all possible hashes below its theta.
    The upper bound is the number of values for which ``retained`` is σ standard deviations below its expected value.
    For the lower bound, σ is negative. ``spread`` is ``σ · sqrt((1 - share) / share)``.
    """
    scaled: Floats = np.maximum(retained, 0.0) / share
    return scaled + spread * (spread + np.sqrt(spread**2 + 4.0 * scaled)) / 2.0


@dataclass(frozen=True)
class LeastHashes(Field):
    """The field of a state that contains the k smallest hashes."""

    k: int

    def reduce(self, values: Values) -> pa.StructArray:
        words, kind = words_by_group(values)
        thetas = np.full(values.groups.n, NO_THRESHOLD)
        return Sketches(*smallest_hashes(words, kind, values.groups.offsets, thetas, k=self.k)).to_arrow()

    def merge(self, column: pa.StructArray, groups: Groups) -> pa.StructArray:
        check_lengths(len(column), groups, "sketches")
        sketches = Sketches.from_arrow(column.take(pa.array(groups.rows_by_group)))
        thetas = np.full(groups.n, NO_THRESHOLD)
        np.minimum.at(thetas, groups.ids, column.field("theta").to_numpy())
        starts = sketches.places[groups.offsets]
        return Sketches(*smallest_hashes(sketches.hashes, HASHES, starts, thetas, k=self.k)).to_arrow()

    def check(self, column: pa.StructArray) -> None:
        sketches = Sketches.from_arrow(column)
        if not _are_valid(sketches.thetas, sketches.hashes, sketches.places, self.k):
            raise DamagedState(
                "contains hashes that are not in ascending order, that are not below theta, or that outnumber "
                f"k={self.k}"
            )


@compiled
def smallest_hashes(words: Whole, kind: Int, starts: Whole, thetas: Whole, k: Int) -> tuple[Whole, Whole, Whole]:
    """Return the k smallest distinct hashes of each group that are below the group's theta in ``thetas``.

    The words of group ``g`` are ``words[starts[g]:starts[g + 1]]``, and ``kind`` is their kind, as returned by
    `words_by_group`. The results are three arrays: the new theta of each group; the hashes of all groups, group after
    group; and the offsets of the groups in the array of hashes.

    The hashes of a group are inserted into a table, which is in ascending order. Hashes are uniformly distributed, so
    the value of a hash determines its approximate slot. When the table contains 2k hashes, all but the k smallest are
    removed. The smallest removed hash becomes theta, and later hashes that are not below theta are skipped.
    """
    n = len(thetas)
    capacity = np.int64(0)
    largest = np.int64(0)
    for group in range(n):
        size = starts[group + 1] - starts[group]
        capacity = capacity + min(size, k)
        largest = max(largest, size)
    table = np.zeros((_SLOTS_PER_HASH + 1) * min(largest, 2 * k) + 4, np.int64)
    block = np.empty(_BLOCK, np.int64)
    smallest = np.empty(capacity, np.int64)
    offsets = np.zeros(n + 1, np.int64)
    new_thetas = np.empty(n, np.int64)
    for group in range(n):
        first_position = offsets[group]
        theta = thetas[group]
        limit = min(starts[group + 1] - starts[group], 2 * k)
        scale = _SLOTS_PER_HASH * limit / theta
        count = np.int64(0)
        used_slots = np.int64(0)
        for begin in range(starts[group], starts[group + 1], _BLOCK):
            size = min(starts[group + 1] - begin, _BLOCK)
            _hash_block(words, kind, begin, size=size, block=block)
            for i in range(size):
                hash_ = block[np.uint64(i)]
                if 0 < hash_ < theta:
                    slot = _insert(table, hash_, scale)
                    count = count + (slot > 0)
                    used_slots = max(used_slots, slot)
                    if count == limit and limit > k:
                        theta = _drain(table, used_slots, smallest, first_position=first_position, k=k, theta=theta)[1]
                        scale = _SLOTS_PER_HASH * limit / theta
                        count = np.int64(k)
                        used_slots = np.int64(0)
                        for j in range(k):
                            used_slots = max(used_slots, _insert(table, smallest[first_position + j], scale))
        count, new_thetas[group] = _drain(table, used_slots, smallest, first_position=first_position, k=k, theta=theta)
        offsets[group + 1] = first_position + count
    return new_thetas, smallest[: offsets[n]].copy(), offsets


@compiled
def _hash_block(words: Whole, kind: Int, begin: Int, size: Int, block: Whole) -> None:
    """Write the hashes of ``size`` words, from ``begin`` on, into ``block``. The loops are simple, so that the compiler
    can vectorize them.
    """
    if kind == INTEGERS:
        for i in range(size):
            block[i] = item_hash(words[np.uint64(begin + i)], INTEGERS)
    else:
        for i in range(size):
            block[i] = item_hash(words[np.uint64(begin + i)], kind)


@compiled
def _insert(table: Whole, hash_: Int, scale: float) -> Int:
    """Insert a hash into an ordered table, at or after the slot ``hash_ * scale``. Greater hashes are moved to later
    slots if necessary. Return the slot after the last written slot, or 0 if the table already contains the hash.
    """
    slot: Int = np.uint64(np.int64(hash_ * scale))
    while 0 < table[slot] < hash_:
        slot += np.uint64(1)
    if table[slot] == hash_:
        return np.int64(0)
    while hash_:
        table[slot], hash_ = hash_, table[slot]
        slot += np.uint64(1)
    return np.int64(slot)


@compiled
def _drain(table: Whole, used_slots: Int, smallest: Whole, first_position: Int, k: Int, theta: Int) -> tuple[Int, Int]:
    """Empty the first ``used_slots`` slots of a table, and write its k smallest hashes into ``smallest`` from position
    ``first_position`` on.

    Return the number of written hashes, and the smallest hash of the table that was not written. If all hashes were
    written, the second result is ``theta``.
    """
    count = np.int64(0)
    for slot in range(used_slots):
        hash_ = table[slot]
        if hash_:
            table[slot] = 0
            if count < k:
                smallest[first_position + count] = hash_
            elif count == k:
                theta = hash_
            count += 1
    return min(count, np.int64(k)), theta


@compiled
def _are_valid(thetas: Whole, hashes: Whole, offsets: Whole, k: Int) -> bool:
    """Return whether all sketches are valid: a sketch has at most ``k`` hashes, which are positive, ascend and are
    below its theta.

    The hashes of a sketch are ``hashes[offsets[row]:offsets[row + 1]]``.
    """
    for row in range(len(thetas)):
        previous = np.int64(0)
        if offsets[row + 1] - offsets[row] > k:
            return False
        for i in range(offsets[row], offsets[row + 1]):
            if hashes[i] <= previous:
                return False
            previous = hashes[i]
        if previous >= thetas[row]:
            return False
    return True
