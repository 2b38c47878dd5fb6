"""exponential: OpenTelemetry's base-2 exponential histogram. It gives quantiles, in bounded space, and is merged
without error.

The scale of a state is the finest scale at which the range from the lowest to the highest bucket of each sign has at
most ``max_buckets`` buckets. This scale depends only on the rows, and not on the order of merges, because each bucket
is a union of buckets of every finer scale.

Source: the data model of OpenTelemetry's metrics, "ExponentialHistogram".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from aggr.contrib.exponential_mapping import (
    COARSEST,
    FINEST,
    FINEST_KEY_RANGE,
    accuracy_of,
    edges_of,
    finest_keys,
    shifts_to_fit,
    values_of,
)
from aggr.extend import Buckets, DamagedState, Field, Groups, Values
from aggr.extend.arguments import checked_whole
from aggr.extend.columns import Floats, Whole, field_of_type
from aggr.extend.columns import compute as pc
from aggr.extend.histograms import FAR, SignedSketch, SketchState, find_key_ranges, shifted, whole_numbers

_SIGNS = ("positive", "negative")


@dataclass(frozen=True)
class Scale(Field):
    """The scale of the buckets of a state.

    A merge returns the coarsest of the merged scales. For a group without states, it returns the finest scale.
    """

    finest: int

    def merge(self, column: pa.Array, groups: Groups) -> pa.Array:
        scales = np.full(groups.n, self.finest, np.int8)
        np.minimum.at(scales, groups.ids, column.to_numpy())
        return pa.array(scales)

    def check(self, column: pa.Array) -> None:
        scales = field_of_type(column, pa.int8()).to_numpy()
        if len(scales) and not COARSEST <= scales.min() <= scales.max() <= self.finest:
            invalid_scale = scales[(scales < COARSEST) | (scales > self.finest)][0]
            raise DamagedState(f"is the scale {invalid_scale}, and scales must be from {COARSEST} to {self.finest}")


@dataclass(frozen=True)
class ExponentialState(SketchState):
    """An exponential histogram, at the finest scale at which it has at most ``max_buckets`` buckets of each sign."""

    scale: int
    max_buckets: int

    name = "exponential"
    # In version 1 of the state, the field ``sum`` of a column of decimals was the sum of the nearest doubles. In
    # version 2, it is the exact sum.
    versions = (1, 2)
    merges_by_field = False
    parameters: ClassVar[Mapping[str, pa.DataType]] = {"scale": pa.int8(), "max_buckets": pa.int32()}

    @property
    def fields(self) -> Mapping[str, Field]:
        return {"kept_scale": Scale(self.scale), **super().fields}

    @property
    def zero_threshold(self) -> float:
        return 0.0

    @property
    def side(self) -> Buckets:
        return Buckets(None, *FINEST_KEY_RANGE)

    def count_finite(self, values: Values) -> dict[str, pa.Array]:
        x = values.floats.array
        groups = values.groups
        columns = {"zero": pa.array(values.filter(x == 0.0).counts)}
        key_ranges = []
        keys_of_sign = {}
        for sign, rows in (("positive", x > 0.0), ("negative", x < 0.0)):
            sign_groups = groups.filter(rows)
            order = sign_groups.rows_by_group
            keys = finest_keys(np.abs(x[rows]))[order]
            ids = sign_groups.ids[order]
            weights = None if values.weights is None else values.weights[rows][order]
            keys_of_sign[sign] = keys, Groups(ids, groups.n), weights
            key_ranges.append(find_key_ranges(keys.astype(np.int32), sign_groups.offsets))
        lows, highs = ([pair[i] for pair in key_ranges] for i in (0, 1))
        shifts = shifts_to_fit(lows, highs, np.full(groups.n, FINEST - self.scale), self.max_buckets)
        columns["kept_scale"] = _scales(shifts)
        for sign, (keys, sorted_groups, weights) in keys_of_sign.items():
            keys = keys >> shifts[sorted_groups.ids]
            if weights is None:
                columns[sign] = Buckets().count(keys, sorted_groups)
            else:
                columns[sign] = Buckets().count_weighted(keys, weights, sorted_groups)
        return columns

    def align(self, states: pa.StructArray, groups: Groups) -> pa.StructArray:
        own_shifts = FINEST - _scales_of(states)
        shifts = np.full(groups.n, FINEST - self.scale)
        np.maximum.at(shifts, groups.ids, own_shifts)
        key_ranges = [_key_ranges(states.field(sign), own_shifts, groups) for sign in _SIGNS]
        lows, highs = ([pair[i] for pair in key_ranges] for i in (0, 1))
        shifts = shifts_to_fit(lows, highs, shifts, self.max_buckets)[groups.ids]
        if (shifts == own_shifts).all():
            return states
        parts = {name: states.field(name) for name in self.fields}
        parts |= {sign: shifted(states.field(sign), shifts - own_shifts) for sign in _SIGNS}
        return self.pack({**parts, "kept_scale": _scales(shifts)}, len(states))

    def check_consistency(self, states: pa.StructArray) -> None:
        shifts = FINEST - _scales_of(states)
        for sign in _SIGNS:
            low, high = (states.field(sign).field(end).to_numpy().astype(np.int64) for end in ("low", "high"))
            lowest, highest = (end >> shifts for end in FINEST_KEY_RANGE)
            if (high - low >= self.max_buckets).any() or (low < lowest).any() or (high > highest).any():
                raise DamagedState(
                    "its buckets span more than max_buckets keys, or have a key that is impossible at its scale"
                )
        if not _are_consistent(states, shifts):
            raise DamagedState("its minimum, its maximum, its sum and its buckets contradict each other")

    def keys_of(self, size: float, states: pa.StructArray) -> Whole:
        if size == np.inf:
            return np.full(len(states), FAR, np.int64)
        return finest_keys(np.array([size])) >> (FINEST - _scales_of(states))

    def values_at(self, keys: Whole, states: pa.StructArray) -> Floats:
        return values_of(keys, np.broadcast_to(_scales_of(states), keys.shape))

    def edges(self, keys: Whole, rows: Whole, states: pa.StructArray) -> tuple[Floats, Floats]:
        scales = _scales_of(states)[rows]
        return edges_of(keys, scales), edges_of(keys + 1, scales)


@dataclass(frozen=True)
class Exponential(SignedSketch):
    """Compute OpenTelemetry's exponential histogram: quantiles in bounded space, and exact count, sum, min, max, mean.

    A state has the finest scale at which the range from the lowest to the highest bucket of each sign has at most
    ``max_buckets`` buckets. At scale s, a quantile satisfies ``|quantile − true| ≤ α·|true|``, where α is
    ``(b − 1) / (b + 1)`` for ``b = 2^(2^-s)``. This bound holds for magnitudes of at least 2.3e-308; smaller doubles
    have fewer bits. The result contains s and α. The true quantile is the value at rank ``floor(q·(n − 1))``, which
    numpy calls "lower". The parameter ``method`` can select another rule. NaN is counted separately. Infinities are the
    smallest and the greatest values.

    Parameters
    ----------
    quantiles : floats in [0, 1]
        The quantiles to compute; others can be computed from the same states later.
    scale : int, -11 to 20
        The finest scale. A state has a coarser scale if its values need more than ``max_buckets`` buckets at this
        scale. The state depends on this parameter and on ``max_buckets``.
    max_buckets : int, from 2
        The maximum number of buckets of each sign.
    method : str
        The rule that locates a quantile among n sorted values, by numpy's names: "lower", "higher", "nearest",
        "linear", "midpoint", "inverted_cdf" and numpy's others, or "hdrhistogram". This parameter affects only results,
        not states.

    Raises
    ------
    ValueError
        If a quantile is outside [0, 1] or occurs twice, ``scale`` or ``max_buckets`` is outside its range, or
        ``method`` is unknown.

    References
    ----------
    OpenTelemetry, "Metrics Data Model", ExponentialHistogram.

    Examples
    --------
    >>> from aggr import exponential
    >>> exponential("latency_ms", [0.5, 0.99], max_buckets=320)
    exponential('latency_ms', quantiles=[0.5, 0.99], max_buckets=320)
    """

    scale: int = FINEST
    max_buckets: int = 160

    name = "exponential"
    keeps = "exponential buckets, their scale, exact Σx, count, min, max"
    returns = "record: count, sum, min, max, mean, scale, relative_accuracy, quantiles; null if there are no values"
    guarantee = "quantiles have at most the relative error of the reported scale; the other fields are exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_whole(self.scale, "scale", COARSEST, FINEST)
        checked_whole(self.max_buckets, "max_buckets", 2, 2**31 - 1)

    @property
    def own_state(self) -> ExponentialState:
        return ExponentialState(self.scale, self.max_buckets)

    def _further_fields(self, states: pa.StructArray) -> dict[str, pa.Array]:
        accuracy = pa.array(accuracy_of(_scales_of(states)))
        return {"scale": states.field("kept_scale"), "relative_accuracy": accuracy}


def _scales(shifts: Whole) -> pa.Array:
    return pa.array((FINEST - shifts).astype(np.int8))


def _scales_of(states: pa.StructArray) -> Whole:
    scales: Whole = states.field("kept_scale").to_numpy().astype(np.int64)
    return scales


def _key_ranges(column: pa.StructArray, shifts: Whole, groups: Groups) -> tuple[Whole, Whole]:
    """Return the lowest and the highest key of the buckets of each group at the finest scale, each of shape
    (groups.n,).

    ``column`` contains one histogram per state, and ``groups`` the group of each state. A bucket of the state in the
    row ``row`` consists of ``2^shifts[row]`` buckets of the finest scale. Shifting the key of the bucket to the left by
    ``shifts[row]`` bits gives the lowest key of the finer buckets. For a group without buckets, the returned lowest
    key is greater than the returned highest key.
    """
    low = np.full(groups.n, FAR << 1)
    high = np.full(groups.n, -FAR << 1)
    has_buckets = column.field("total").to_numpy() > 0
    low_keys, high_keys = (column.field(end).to_numpy().astype(np.int64) << shifts for end in ("low", "high"))
    np.minimum.at(low, groups.ids[has_buckets], low_keys[has_buckets])
    np.maximum.at(high, groups.ids[has_buckets], high_keys[has_buckets])
    return low, high


def _are_consistent(states: pa.StructArray, shifts: Whole) -> bool:
    """Return whether the minimum and the maximum of each state lie in its outermost buckets, and whether its sum is 0
    if it has no finite values.

    ``shifts`` has one number of bits per state. Shifting a key of the finest scale to the right by this number gives
    the key at the scale of the state.
    """
    positive, negative = (states.field(sign) for sign in _SIGNS)
    counts = [whole_numbers(states, "zero"), *(side.field("total").to_numpy() for side in (positive, negative))]
    has_finite_values = np.logical_or.reduce([count > 0 for count in counts])
    if pc.list_value_length(states.field("sum").field("limbs")).to_numpy()[~has_finite_values].any():
        return False
    for name, own_side, opposite_side, infinite, sign in (
        ("min", negative, positive, "negative_infinity", -1.0),
        ("max", positive, negative, "positive_infinity", 1.0),
    ):
        extremes = states.field(name)
        has_infinity = whole_numbers(states, infinite) > 0
        has_opposite_infinity = whole_numbers(states, "positive_infinity" if sign < 0 else "negative_infinity") > 0
        if not np.array_equal(
            extremes.is_valid().to_numpy(zero_copy_only=False), has_finite_values | has_infinity | has_opposite_infinity
        ):
            return False
        sizes = field_of_type(pc.fill_null(extremes, 0.0), pa.float64()).to_numpy() * sign
        # When the minimum is checked, ``has_only_opposite_infinity`` marks the states that contain only +inf. When the
        # maximum is checked, it marks the states that contain only -inf.
        has_only_opposite_infinity = has_opposite_infinity & ~has_finite_values & ~has_infinity
        if (sizes[has_infinity] != np.inf).any() or (sizes[has_only_opposite_infinity] != -np.inf).any():
            return False
        is_finite_extreme = has_finite_values & ~has_infinity
        if not np.isfinite(sizes[is_finite_extreme]).all():
            return False
        has_own_side = own_side.field("total").to_numpy() > 0
        is_zero = is_finite_extreme & ~has_own_side & (counts[0] > 0)
        if (sizes[is_zero] != 0.0).any():
            return False
        # If a state has neither negative values nor zeros, its minimum lies in the lowest positive bucket. If a state
        # has neither positive values nor zeros, its maximum is the negative value with the smallest magnitude, and lies
        # in the negative bucket with the lowest key.
        is_opposite_side = is_finite_extreme & ~has_own_side & ~is_zero
        for rows, side, key, direction in (
            (is_finite_extreme & has_own_side, own_side, "high", 1.0),
            (is_opposite_side, opposite_side, "low", -1.0),
        ):
            magnitudes = sizes[rows] * direction
            if (magnitudes <= 0.0).any():
                return False
            if (finest_keys(magnitudes) >> shifts[rows] != side.field(key).to_numpy()[rows]).any():
                return False
    return True
