"""Points: exponential histograms that were parsed from messages of OTLP or Prometheus.

`states_of_messages` converts them to a column of states of `exponential`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from aggr.contrib import Exponential
from aggr.contrib.exponential_mapping import FINEST, FINEST_KEY_RANGE, values_of
from aggr.extend import Groups, Histograms
from aggr.extend.columns import Whole, normalize, with_nulls
from aggr.extend.histograms import COUNTS
from aggr.interchange.bucket_summary import check_fit, derive_summaries, fill_summaries

SIGNS = ("positive", "negative")
MAX_COUNT = 2**63 - 1

# the buckets of one sign: their keys, ascending, as defined by `aggr.contrib.exponential_mapping`, and their counts
SignBuckets = tuple[Whole, Whole]


@dataclass(frozen=True)
class Point:
    """One exponential histogram that was parsed from a message. ``sum``, ``min`` and ``max`` are None if missing."""

    scale: int
    positive: SignBuckets
    negative: SignBuckets
    zero: int
    nan: int = 0
    positive_infinity: int = 0
    negative_infinity: int = 0
    sum: float | None = None
    min: float | None = None
    max: float | None = None
    index: int = 0  # the index that the message's format gives to the bucket with the key 0


def states_of_messages(
    messages: pa.Array, name: str, parse: Callable[[bytes, int], Point], function: Exponential
) -> pa.Array:
    """Return the states of a column of messages, shape (n,). A null message gives a null state.

    ``name`` is the name of the format in errors. ``parse`` parses one message; it also receives the row of the message,
    for the text of a ``ValueError``. If a message has a finer scale or more buckets than ``function`` allows, its
    buckets are merged to a coarser scale. A missing sum, min or max is computed from the values of the buckets.

    Raise ``TypeError`` if the messages are not bytes, and ``ValueError``, which names the row, for a wrong message.
    """
    messages = normalize(messages)
    if not pa.types.is_binary(messages.type) and messages.null_count < len(messages):
        raise TypeError(f"{name} messages must be an Arrow column of type binary; got {messages.type}")
    valid = messages.is_valid().to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(valid)
    points = [parse(message, int(row)) for message, row in zip(messages.drop_null().to_pylist(), rows, strict=True)]
    scales = np.array([min(point.scale, FINEST) for point in points], np.int64)
    positive, negative = (
        _histograms_of_points([getattr(point, sign) for point in points], points, rows) for sign in SIGNS
    )
    counts = {field: np.array([getattr(point, field) for point in points], np.int64) for field in COUNTS}
    derived_parts = derive_summaries(
        positive, negative, counts["zero"], lambda histograms: values_of(histograms.keys, scales[histograms.rows()])
    )
    supplied = {field: _optional_column(points, field, valid) for field in ("sum", "min", "max")}
    parts = fill_summaries(derived_parts, supplied, valid) | {
        "positive": positive.to_arrow(),
        "negative": negative.to_arrow(),
    }
    parts["min"] = _with_infinities(parts["min"], -np.inf, counts["negative_infinity"], counts["positive_infinity"])
    parts["max"] = _with_infinities(parts["max"], np.inf, counts["positive_infinity"], counts["negative_infinity"])
    parts |= {field: pa.array(column) for field, column in counts.items()}
    parts["kept_scale"] = pa.array(scales.astype(np.int8))
    states = function.own_state.align(function.own_state.pack(parts, len(rows)), Groups.each(len(rows)))
    check_fit(function, states, rows)
    return with_nulls(states, messages.is_valid())


def _histograms_of_points(sign_buckets: list[SignBuckets], points: list[Point], rows: Any) -> Histograms:
    """Return the buckets of one sign of all points. Buckets of a scale finer than `FINEST` are merged to `FINEST`.

    ``rows`` contains the row of each point's message, for errors.
    """
    keys = []
    counts = []
    for (point_keys, all_counts), point, row in zip(sign_buckets, points, rows, strict=True):
        excess_scale = max(point.scale - FINEST, 0)
        # the lowest and the highest key of finite doubles at the scale of the point
        lowest, highest = (end >> max(FINEST - point.scale, 0) << excess_scale for end in FINEST_KEY_RANGE)
        if len(point_keys) and (point_keys[0] < lowest or point_keys[-1] > highest + (1 << excess_scale) - 1):
            end = (point_keys[0] if point_keys[0] < lowest else point_keys[-1]) + point.index
            raise ValueError(
                f"message {row} has a bucket {end}, which lies outside the range of doubles; correct the message, or "
                "leave it out"
            )
        merged_keys, places = np.unique(point_keys >> excess_scale, return_inverse=True)
        summed = np.zeros(len(merged_keys), np.int64)
        np.add.at(summed, places, all_counts)
        keys.append(merged_keys)
        counts.append(summed)
    sizes = np.array([len(point_keys) for point_keys in keys], np.int64)
    columns = (np.concatenate([*arrays, np.zeros(0, np.int64)]) for arrays in (keys, counts))
    return Histograms(sizes, *columns)


def _optional_column(points: list[Point], name: str, valid: Any) -> pa.Array:
    """Return the field ``name`` as a column with one row per message, null if the message is null or lacks the field.

    ``points`` contains one point for each row that the mask ``valid`` selects.
    """
    remaining_points = iter(points)
    return pa.array(
        [getattr(next(remaining_points), name) if is_present else None for is_present in valid], pa.float64()
    )


def _with_infinities(extremes: pa.Array, infinity: float, equal_counts: Whole, opposite_counts: Whole) -> pa.Array:
    """Return the minima, or the maxima, of all values, including infinities.

    ``extremes`` are the minima or maxima of the finite values. ``infinity`` is -inf for minima and inf for maxima.
    ``equal_counts`` are the numbers of values that equal ``infinity``, and ``opposite_counts`` are the numbers of
    values that equal ``-infinity``.
    """
    finite = extremes.is_valid().to_numpy(zero_copy_only=False)
    floats = np.where(equal_counts > 0, infinity, np.where(finite, extremes.fill_null(0.0).to_numpy(), -infinity))
    return pa.array(floats, mask=~finite & (equal_counts == 0) & (opposite_counts == 0))
