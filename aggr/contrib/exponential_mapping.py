"""Base-2 exponential buckets of OpenTelemetry and Prometheus: convert magnitudes to integer keys, and keys to values.

At scale s, bucket k contains ``(2^(k / 2^s), 2^((k + 1) / 2^s)]``. The buckets 2k and 2k + 1 together are bucket k of
scale s - 1. Shifting keys of the finest scale to the right therefore gives the keys of any other scale.

Keys are exact. A key is computed from the rounded logarithm of the value. If this logarithm is near the edge of a
bucket, the edge is computed to sixty decimal digits and compared with the value. An edge is a power of two. An edge
whose exponent is a whole number is computed without error. An edge whose exponent is a fraction is irrational, and
therefore differs from every value, because values are doubles.

Source: the data model of OpenTelemetry's metrics, "ExponentialHistogram".
"""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np

from aggr.extend.columns import Floats, Whole
from aggr.extend.exact import exp2

# The largest and the smallest scale; a scale has 2^scale buckets per power of two. At FINEST, the keys of doubles are
# within ±1.13e9, so they fit into int32. At COARSEST, a bucket spans 2^11 powers of two, so doubles have only two keys.
FINEST = 20
COARSEST = -11
# the lowest and the highest key of doubles at the finest scale
FINEST_KEY_RANGE = (-1074 << FINEST) - 1, (1024 << FINEST) - 1

_STEPS = 1 << FINEST  # the number of buckets from one power of two to the next

# If a rounded logarithm is at most this distance from the edge of a bucket, in widths of buckets, `finest_keys`
# computes the edge to sixty digits. The distance must be larger than the error of the logarithm. numpy's log2 is
# assumed to have an error of at most 8 units in the last place, which is at most 8 · 2^-53 for a logarithm below 1. A
# bucket is 2^-20 wide, so the error is at most 1e-9 of its width.
_NEAR = 1e-7


def finest_keys(magnitudes: Floats) -> Whole:
    """Return the key of each magnitude at the finest scale, shape (n,). Magnitudes must be positive and finite.

    >>> (finest_keys(np.array([1.0, 1.5, 2.0, 2.1])) >> FINEST).tolist()
    [-1, 0, 0, 1]
    """
    mantissas, exponents = np.frexp(magnitudes)
    mantissas *= 2.0  # mantissas are now from 1 to below 2
    steps = np.log2(mantissas) * _STEPS
    keys: Whole = np.floor(steps).astype(np.int64)
    nearest = np.rint(steps)
    near_edge = np.flatnonzero(np.abs(steps - nearest) <= _NEAR)
    if len(near_edge):
        unique, first_indices, inverse = np.unique(mantissas[near_edge], return_index=True, return_inverse=True)
        edges = nearest[near_edge][first_indices].astype(np.int64).tolist()
        corrected_keys = [
            edge - (not _is_above(mantissa, edge)) for mantissa, edge in zip(unique.tolist(), edges, strict=True)
        ]
        keys[near_edge] = np.array(corrected_keys, np.int64)[inverse]
    keys += (exponents.astype(np.int64) - 1) * _STEPS
    return keys


def _is_above(mantissa: float, step: int) -> bool:
    """Return whether a number from 1 to 2 is above an edge of a bucket of the finest scale.

    The edge is ``2^(step / 2^20)``.
    """
    with localcontext() as context:
        context.prec = 60
        return Decimal(mantissa) > Decimal(2) ** (Decimal(step) / _STEPS)


def shifts_to_fit(lows: list[Whole], highs: list[Whole], shifts: Whole, max_keys: int) -> Whole:
    """Return one shift per state, shape (n,): the smallest shift at which the keys of each sign span at most
    ``max_keys`` buckets.

    A shift is a number of bits by which keys are shifted to the right. ``shifts`` has the minimum shift of each state.
    ``lows`` and ``highs`` consist of one array for each sign, with the lowest and the highest key of each state at the
    finest scale. A state without keys of a sign has ``high < low``.
    """
    new_shifts = shifts.copy()
    for _ in range(FINEST - COARSEST):
        spans = [(high >> new_shifts) - (low >> new_shifts) for low, high in zip(lows, highs, strict=True)]
        is_too_wide = np.maximum(*spans) >= max_keys
        if not is_too_wide.any():
            break
        new_shifts += is_too_wide
    return new_shifts


def values_of(keys: Whole, scales: Whole) -> Floats:
    """Return the value that represents each bucket, shape (n,).

    ``keys`` and ``scales`` have the key and the scale of each bucket. The relative distance of the result from every
    value in the bucket is at most `accuracy_of` the scale.
    """
    width: Floats = np.exp2(-scales.astype(np.float64))  # exact, because widths are powers of two
    low: Floats = keys * width
    # Small values are multiplied by 2^100, and divided by 2^100 at the end. Otherwise a subnormal value would be
    # rounded twice.
    extra_exponents = np.where(low < -900.0, 100.0, 0.0)
    factor = 2.0 / (1.0 + exp2(-np.minimum(width, 1100.0)))
    return np.ldexp(exp2(low + extra_exponents) * factor, -extra_exponents.astype(np.int64))


def edges_of(keys: Whole, scales: Whole) -> Floats:
    """Return the lower edge of each bucket, shape (n,): ``2^(key · 2^-scale)``, but at most the largest double."""
    exponents = keys.astype(np.float64) * np.exp2(-scales.astype(np.float64))
    return np.minimum(exp2(exponents), np.finfo(np.float64).max)


def accuracy_of(scales: Whole) -> Floats:
    """Return the maximum relative error of the value that represents a bucket: ``(b - 1) / (b + 1)`` for ``b =
    2^(2^-scale)``.
    """
    inverse = exp2(-np.minimum(np.exp2(-scales.astype(np.float64)), 1100.0))
    return (1.0 - inverse) / (1.0 + inverse)
