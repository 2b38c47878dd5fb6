"""Exact sums of floats: a superaccumulator whose digits are multiples of powers of 2³², for all groups at once.

A number is stored as balanced digits ``d[j] · 2^(32·(low + j))`` with ``-2^31 <= d[j] < 2^31``. Every number has
exactly one such form without leading and trailing zeros. Equal sums therefore have equal bits, whatever the order of
the additions.

    0.75 = 1 − 0.25, in units of 2^-32:   exponent = -1, limbs = [-1073741824, 1]

Source: Neal, "Fast exact summation using small and large superaccumulators" (2015).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arrays import Ids, Whole
from aggr.arrow.damaged_state import DamagedState, field_of_type
from aggr.compiling.jit import compiled
from aggr.groups.groups import Groups, check_lengths

BITS = 32
HALF = np.int64(1 << (BITS - 1))
EXACT_TYPE = pa.struct([("exponent", pa.int16()), ("limbs", pa.list_(pa.int32()))])

# This number stands for the lowest level of a sum without digits. It is larger than every level. A digit of level n
# counts multiples of 2^(32·n).
_NONE = 1 << 40

_MAX_DIGITS = 2**31 - 1  # the maximum number of digits in a column, because Arrow's offsets have 32 bits

_FIELDS = list(EXACT_TYPE)

# A level n stands for 2^(32·n). Doubles range from 2^-1074 to 2^1024, and 2^63 of them add up to 2^1087, so the levels
# of a sum are -34 to 33.
_LEVELS = 34


@dataclass(frozen=True, slots=True)
class Limbs:
    """``n`` exact numbers with their digits end to end: ``value[i] = Σ digits[places[i] + j] · 2^(32·(low[i] + j))``.

    ``digits`` are balanced: from -2^31 to 2^31 - 1. ``places`` has the offsets of the numbers in ``digits``, shape
    (n + 1,): number i has the digits ``digits[places[i]:places[i + 1]]``. ``low`` has the level of the lowest digit of
    each number, shape (n,).
    """

    digits: NDArray[np.int32]
    places: Whole
    low: Whole

    @classmethod
    def of_arrow(cls, sums: pa.StructArray) -> Limbs:
        """Return the digits of a column of exact sums, one number per row."""
        sums = field_of_type(sums, EXACT_TYPE)
        limbs = sums.field("limbs")
        # Offsets are always converted to int64, so that loops are compiled for one type only.
        places = limbs.offsets.to_numpy().astype(np.int64)
        return cls(limbs.values.to_numpy(), places, sums.field("exponent").to_numpy().astype(np.int64))

    @property
    def parts(self) -> tuple[NDArray[np.int32], Whole, Whole]:
        """Return ``digits``, ``places`` and ``low``, in the order in which the compiled loops take them."""
        return self.digits, self.places, self.low

    def signs(self) -> NDArray[np.int32]:
        """Return the sign of each number as -1, 0 or 1, shape (n,). The sign of a number is the sign of its last digit,
        which is not 0.
        """
        signs = np.zeros(len(self.low), np.int32)
        has_digits = self.places[1:] > self.places[:-1]
        signs[has_digits] = np.sign(self.digits[self.places[1:][has_digits] - 1])
        return signs


def merge_exactly(sums: pa.StructArray, groups: Groups) -> pa.StructArray:
    """Return the sum of the exact sums of each group."""
    check_lengths(len(sums), groups)
    exponents, places, limbs = digits_of(sums)
    low, high = _digit_range(exponents, places, groups.ids, groups.n)
    origin = origins(low, high)
    return to_arrow(_add(exponents, places, limbs, groups.ids, origin), origin, low)


def subtract_exactly(sums: pa.StructArray, subtracted: pa.StructArray) -> pa.StructArray:
    """Return ``sums - subtracted``, row by row."""
    rows = np.arange(len(sums))
    digit_parts = [digits_of(column) for column in (sums, subtracted)]
    lows, highs = zip(
        *(_digit_range(exponents, places, rows, len(rows)) for exponents, places, _ in digit_parts), strict=True
    )
    low = np.minimum(*lows)
    origin = origins(low, np.maximum(*highs))
    digits, subtracted_digits = (_add(*sum_parts, rows, origin) for sum_parts in digit_parts)
    return to_arrow(digits - subtracted_digits, origin, low)


def to_arrow(digits: Whole, origin: Whole, low: Whole) -> pa.StructArray:
    """Return sums as a column of `EXACT_TYPE`, with balanced digits and without zeros at the ends.

    ``digits`` has the digits of all sums, below 2^62 in magnitude, at the positions that `origins` assigns. ``low`` is
    the level of the lowest digit of each sum: a digit of level n counts multiples of 2^(32·n).
    """
    exponents, places, limbs = _balance(digits, origin, low)
    if len(limbs) > _MAX_DIGITS:
        raise ValueError(
            f"a column can contain at most {_MAX_DIGITS:,} digits of exact sums, and these states have "
            f"{len(limbs):,}; reduce or merge fewer groups at a time"
        )
    lists = pa.ListArray.from_arrays(pa.array(places.astype(np.int32)), pa.array(limbs))
    return pa.StructArray.from_arrays([pa.array(exponents), lists], fields=_FIELDS)


def limbs_to_arrow(limbs: Limbs) -> pa.StructArray:
    """Return numbers with balanced digits as a column of `EXACT_TYPE`. Zeros at their low ends are removed, as in
    `to_arrow`.
    """
    high = np.where(limbs.places[1:] > limbs.places[:-1], limbs.low + np.diff(limbs.places) - 1, -_NONE)
    low = np.where(high > -_NONE, limbs.low, _NONE)
    origin = origins(low, high)
    rows = np.arange(len(low))
    exponents = limbs.low.astype(np.int16)
    places = limbs.places.astype(np.int32)
    return to_arrow(_add(exponents, places, limbs.digits, rows, origin), origin, low)


def check_exact(sums: pa.StructArray, degree: int = 2) -> None:
    """Raise `DamagedState` unless each row is an exact sum as `to_arrow` writes it: without a digit 0 at its ends, and
    within the range of sums of products of ``degree`` doubles.
    """
    if not _all_canonical(*digits_of(sums), _LEVELS * degree):
        raise DamagedState("is not an exact sum: it begins or ends with a digit 0, or does not represent a double")


def digits_of(sums: pa.StructArray) -> tuple[NDArray[np.int16], NDArray[np.int32], NDArray[np.int32]]:
    """Return the exponents of exact sums, shape (n,), the offsets of their digits, shape (n + 1,), and all digits end
    to end.
    """
    sums = field_of_type(sums, EXACT_TYPE)
    limbs = sums.field("limbs")
    return sums.field("exponent").to_numpy(), limbs.offsets.to_numpy(), limbs.values.to_numpy()


@compiled
def _all_canonical(
    exponents: NDArray[np.int16], places: NDArray[np.int32], digits: NDArray[np.int32], levels: int
) -> bool:
    for i in range(len(exponents)):
        start = places[i]
        end = places[i + 1]
        if start == end:
            if exponents[i] != 0:
                return False
        elif (
            digits[start] == 0 or digits[end - 1] == 0 or exponents[i] < -levels or exponents[i] + end - start > levels
        ):
            return False
    return True


@compiled
def _digit_range(exponents: NDArray[np.int16], places: NDArray[np.int32], ids: Ids, n: int) -> tuple[Whole, Whole]:
    low = np.full(n, _NONE)
    high = np.full(n, -_NONE)
    for i in range(len(exponents)):
        digits = np.int64(places[i + 1] - places[i])
        if digits:
            group = np.uint64(ids[i])
            low[group] = min(low[group], np.int64(exponents[i]))
            high[group] = max(high[group], exponents[i] + digits - 1)
    return low, high


@compiled
def origins(low: Whole, high: Whole) -> Whole:
    """Assign positions in one array to the digits of one sum per group. Each sum has the digits from level ``low`` to
    ``high``, and two digits for carries.

    A digit of level n counts multiples of 2^(32·n). A group with ``high < low`` has no digits. Return the position of
    each group's digit of level 0, followed by the total number of digits, shape (groups + 1,).
    """
    origin = np.empty(len(low) + 1, np.int64)
    size = 0
    for group in range(len(low)):
        origin[group] = size - low[group]
        if high[group] >= low[group]:
            size += high[group] - low[group] + 3
    origin[-1] = size
    return origin


@compiled
def _add(
    exponents: NDArray[np.int16], places: NDArray[np.int32], limbs: NDArray[np.int32], ids: Ids, origin: Whole
) -> Whole:
    digits = np.zeros(origin[-1], np.int64)
    for i in range(len(exponents)):
        first = origin[np.uint64(ids[i])] + exponents[i] - places[i]
        for at in range(places[i], places[i + 1]):
            digits[np.uint64(first + at)] += limbs[at]
    return digits


@compiled
def _balance(digits: Whole, origin: Whole, low: Whole) -> tuple[NDArray[np.int16], Whole, NDArray[np.int32]]:
    """Propagate carries, and return sums with balanced digits, without zeros at their ends.

    The parameters are those of `to_arrow`. Return the exponent of each sum, which is the level of its lowest digit, the
    offsets of the digits of each sum, shape (n + 1,), and the digits of all sums.
    """
    n = len(low)
    half = 1 << 31
    exponents = np.zeros(n, np.int16)
    places = np.zeros(n + 1, np.int64)
    limbs = np.empty(len(digits), np.int32)
    for group in range(n):
        first = last = position = places[group]
        end = origin[group + 1] + low[group + 1] if group + 1 < n else len(digits)
        carry = 0
        for i in range(origin[group] + low[group], end):
            total = digits[i] + carry
            carry = (total + half) >> 32
            digit = total - (carry << 32)
            if digit and position == first:
                exponents[group] = i - origin[group]
            if digit or position > first:
                limbs[position] = digit
                position += 1
            if digit:
                last = position
        places[group + 1] = last
    return exponents, places, limbs[: places[n]].copy()
