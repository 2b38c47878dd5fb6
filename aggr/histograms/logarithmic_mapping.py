"""LogarithmicMapping: convert positive numbers to integer keys, and keys to values, as in DDSketch.

The exponent and the first mantissa bits of a double determine one of 2048 equal steps between two powers of two. Most
steps lie within one bucket, so a table contains the key of each step. A logarithm is computed only for values in a step
that contains an edge between two buckets.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from aggr.arrays import Floats, Whole
from aggr.compiling.jit import compiled
from aggr.exact.powers_of_two import exp2

Keys = NDArray[np.int32]

_BATCH_ROWS = 1 << 16  # the number of rows that are converted together: 512 KiB of doubles fit into the cache

_STEP_BITS = 11  # the binary logarithm of the number of steps between two powers of two
_SHIFT = 52 - _STEP_BITS

_MAX_EXPONENTS = 64  # the maximum number of exponents in a table, so that a table has at most 512 KiB

_HAS_EDGE = -(2**31)  # the entry of a table for a step that contains an edge between two buckets


@dataclass(frozen=True)
class LogarithmicMapping:
    """A mapping of positive numbers to integer keys. The key of the interval ``(γ^(k−1), γ^k]`` is ``k``.

    >>> LogarithmicMapping(0.01).keys(np.array([1.0, 100.0]))
    array([  0, 231], dtype=int32)
    """

    relative_accuracy: float

    @property
    def gamma(self) -> float:
        """The ratio of a bucket's upper edge to its lower edge."""
        return 1.0 + self._gamma_minus_one

    @property
    def zero_threshold(self) -> float:
        """The magnitude up to which a value counts as zero."""
        return sys.float_info.min * self.gamma

    @property
    def key_range(self) -> tuple[int, int]:
        """The lowest and the highest key that a positive double may have.

        Other libraries may compute other keys, because they round logarithms differently. Their keys are within this
        range too.
        """
        low, high = (math.log(edge) * self._multiplier / math.log(2.0) for edge in (5e-324, sys.float_info.max))
        return math.floor(low) - 1, math.ceil(high) + 1

    @property
    def _gamma_minus_one(self) -> float:
        return 2.0 * self.relative_accuracy / (1.0 - self.relative_accuracy)

    @property
    def _multiplier(self) -> float:
        return 1.0 / math.log1p(self._gamma_minus_one) * math.log(2.0)

    def keys(self, values: Floats) -> NDArray[np.int32]:
        """Return the key of each value, shape (n,).

        Raise ``ValueError`` for a value that is not positive and finite.
        """
        value_range = float(values.min(initial=np.inf)), float(values.max(initial=-np.inf))
        # The condition is also true if a value is NaN.
        if len(values) and not 0.0 < value_range[0] <= value_range[1] < np.inf:
            raise ValueError(
                f"buckets can contain only numbers above 0 and below infinity; got numbers from {value_range[0]} to "
                f"{value_range[1]}; remove the other numbers"
            )
        return self._keys_within(values, value_range)

    def _keys_within(self, values: Floats, value_range: tuple[float, float]) -> NDArray[np.int32]:
        """Return the key of each value.

        All values must be positive and finite. ``value_range`` is their minimum and maximum.
        """
        table = self._table(values, value_range)
        if table is not None:
            return table.keys(values)
        keys = np.empty(len(values), np.int32)
        for start in range(0, len(values), _BATCH_ROWS):
            part = slice(start, start + _BATCH_ROWS)
            keys[part] = self._keys(values[part])
        return keys

    def _table(self, values: Floats, value_range: tuple[float, float]) -> StepTable | None:
        """Return a table of keys for values within ``value_range``, or None if a table would not save time.

        A table saves time if there are many values, if they have few different exponents, and if the buckets are wide.
        """
        # A bucket is about 2 · relative_accuracy · x wide at a value x, and a step is at most 2^-11 · x wide. If a
        # bucket has fewer than 8 steps, too many steps contain an edge, and need a logarithm.
        if len(values) < _BATCH_ROWS or self.relative_accuracy < 2.0**-_STEP_BITS * 4:
            return None
        low, high = (int(np.float64(edge).view(np.int64)) >> 52 for edge in value_range)
        # The exponents are rounded to multiples of 8, so that batches with similar values share a table.
        low = low - low % 8
        high = high - high % 8 + 8
        return _step_table(self, low, high) if high - low <= _MAX_EXPONENTS else None

    def _keys(self, values: Floats) -> Floats:
        """Return the key of each value as a float, shape (n,), with the same bits on every machine."""
        real_keys = np.log(values)
        real_keys *= 1.0 / math.log(2.0) * self._multiplier
        keys: Floats = np.ceil(real_keys)
        # The last bits of numpy's logarithm depend on the machine. If this could move a value across an edge, the
        # logarithm of the C library is used. numpy's logarithm has an error of up to 4 units in the last place, which
        # are at most 0.9e-15 of the logarithm. With the roundings of the multiplication, ``real_keys`` has a relative
        # error of at most 1.2e-15. The margin around an edge is larger: 4e-15 relative, plus 1e-9. About one value in
        # 10^8 lies within the margin.
        greatest_magnitude = max(float(real_keys.max()), -float(real_keys.min()), 1.0)
        real_keys -= np.rint(real_keys)
        near_edge = np.flatnonzero(np.abs(real_keys) <= 1e-9 + 4e-15 * greatest_magnitude)
        if len(near_edge):
            unique, positions = np.unique(values[near_edge], return_inverse=True)
            exact_keys = [math.ceil(math.log(value, 2) * self._multiplier) for value in unique.tolist()]
            keys[near_edge] = np.array(exact_keys, np.float64)[positions]
        return keys

    def values(self, keys: Whole) -> Floats:
        """Return the value ``2γ^k / (1 + γ)`` that represents the bucket of each key ``k``, in the shape of ``keys``.

        Its distance from every value ``x`` in the bucket is at most ``relative_accuracy · x``.
        """
        low = int(keys.min(initial=0))
        high = int(keys.max(initial=0))
        # If keys repeat often, it is faster to compute the value of each key in the range once, and to look up the
        # value of each row.
        if high - low < keys.size // 2:
            return self._values(np.arange(low, high + 1))[keys - low]
        return self._values(keys)

    def _values(self, keys: Whole) -> Floats:
        power = keys / self._multiplier
        # 2^power overflows for the largest keys, although their values are finite. For these keys, 2^(power - 1) is
        # computed, and multiplied by 2 at the end, after the factor 2 / (1 + gamma), which is below 1.
        doublings = np.where(power > 1023.0, 1.0, 0.0)
        with np.errstate(over="ignore"):
            values: Floats = exp2(power - doublings) * (2.0 / (1.0 + self.gamma)) * (1.0 + doublings)
        return values


@dataclass(frozen=True, eq=False)
class StepTable:
    """A table of keys: ``step_keys[i]`` is the key of the step ``first_step + i``, or `_HAS_EDGE` if the step contains
    an edge between two buckets.
    """

    mapping: LogarithmicMapping
    first_step: int
    step_keys: NDArray[np.int32]

    def keys(self, values: Floats) -> NDArray[np.int32]:
        """Return the key of each value, shape (n,).

        Logarithms are computed only for values in steps that contain an edge between buckets.
        """
        keys, edge_rows = _look_up_keys(values.view(np.int64), self.first_step, self.step_keys)
        if len(edge_rows):
            keys[edge_rows] = self.mapping._keys(values[edge_rows])
        return keys


@compiled
def _look_up_keys(bits: Whole, first_step: int, table: NDArray[np.int32]) -> tuple[Keys, Keys]:
    """Return the entry of ``table`` for each double, and the indices of the doubles whose entry is `_HAS_EDGE`.

    ``bits`` contains the bits of the doubles, and ``first_step`` is the step of the first entry.
    """
    keys = np.empty(len(bits), np.int32)
    edge_rows = np.empty(len(bits) + 1, np.int32)
    edge_count = 0
    for i in range(len(bits)):
        key = table[(bits[i] >> _SHIFT) - first_step]
        keys[i] = key
        edge_rows[edge_count] = i
        edge_count += key == _HAS_EDGE
    return keys, edge_rows[:edge_count].copy()


@lru_cache(maxsize=32)
def _step_table(mapping: LogarithmicMapping, low: int, high: int) -> StepTable:
    """Return the table of keys for the doubles with biased exponents from ``low`` to ``high - 1``."""
    first_step = low << _STEP_BITS
    bits = np.arange(first_step, high << _STEP_BITS, dtype=np.int64) << _SHIFT
    has_key = (bits >= np.float64(mapping.zero_threshold).view(np.int64)) & (bits < np.float64(np.inf).view(np.int64))
    step_keys = np.full(len(bits), _HAS_EDGE, np.int32)
    first_values = bits[has_key].view(np.float64)
    last_values = (bits[has_key] + ((1 << _SHIFT) - 1)).view(np.float64)
    # The keys are computed for the ends of an interval that is slightly wider than the step. Because logarithms are
    # rounded, a value inside the step could otherwise have another key than both ends.
    margin = 1.0 + 1e-9
    lowest = mapping._keys(first_values / margin)
    highest = mapping._keys(np.minimum(last_values, sys.float_info.max / margin) * margin)
    step_keys[has_key] = np.where(lowest == highest, lowest, _HAS_EDGE).astype(np.int32)
    return StepTable(mapping, first_step, step_keys)
