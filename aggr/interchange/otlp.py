"""OTLP: states of `exponential` as OpenTelemetry's data points of exponential histograms, and back.

A message, and what it has no place for::

    message    count, sum, scale, zero count, min, max       positive, negative: offset and a count for each bucket
    not in it  how many values were NaN or infinite; digits of the sum beyond a double

Source: ``opentelemetry/proto/metrics/v1/metrics.proto``, ExponentialHistogramDataPoint.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from aggr.arrow.normalize import normalize, with_nulls
from aggr.exact.rounding import quotient
from aggr.exact.superaccumulator import Limbs
from aggr.extras import MissingExtra
from aggr.functions.exponential import Exponential
from aggr.groups.groups import Groups
from aggr.histograms.column import Histograms
from aggr.histograms.exponential_mapping import COARSEST, FINEST, REACH, values_of
from aggr.interchange.bucket_summary import check_fit, derived, filled
from aggr.state_checks import checked

_SIGNS = ("positive", "negative")
_MOST = 2**63 - 1


def _library() -> tuple[Any, type[Exception]]:
    """Load the messages, and what they raise; they are installed only where they are used."""
    try:
        from google.protobuf.message import DecodeError
        from opentelemetry.proto.metrics.v1 import metrics_pb2
    except ImportError as error:
        raise MissingExtra("an OTLP message", "otlp", error) from None
    return metrics_pb2.ExponentialHistogramDataPoint, DecodeError


def to_otlp(states: pa.Array, function: Exponential) -> pa.Array:
    """Write each state as a serialized ExponentialHistogramDataPoint, without times and attributes.

    Parameters
    ----------
    states : column of states of ``function``, shape (n,)
    function : Exponential

    Returns
    -------
    array of binary, shape (n,); a null state gives null

    Raises
    ------
    ValueError
        For states of other parameters.
    MissingExtra
        Without the extra otlp.

    Guarantee
    ---------
    Every count arrives in the bucket it had, at the state's scale; the sum is rounded once. Counts of NaN and of
    infinities stay behind, and so do min and max of a state that has counted infinities.

    Examples
    --------
    >>> from opentelemetry.proto.metrics.v1.metrics_pb2 import ExponentialHistogramDataPoint
    >>> states = Exponential(scale=0).reduce(pa.array([1.5, 3.0, 3.5]), Groups.single(3))
    >>> point = ExponentialHistogramDataPoint.FromString(to_otlp(states, Exponential(scale=0))[0].as_py())
    >>> point.scale, point.positive.offset, list(point.positive.bucket_counts)
    (0, 0, [1, 2])
    """
    states = checked(function, states).states
    point, _ = _library()
    kept = states.drop_null()
    sums = quotient(Limbs.of_arrow(kept.field("sum"))).tolist()
    scales, zeros, mins, maxs = (kept.field(name).to_pylist() for name in ("kept_scale", "zero", "min", "max"))
    sides = {sign: Histograms.of(kept.field(sign)).dense() for sign in _SIGNS}
    written = []
    for i in range(len(kept)):
        message = point(scale=scales[i], zero_count=zeros[i], sum=sums[i], count=zeros[i])
        for sign, side in sides.items():
            low, counts = next(side)
            buckets = getattr(message, sign)
            buckets.offset = low
            buckets.bucket_counts.extend(counts.tolist())
            message.count += int(counts.sum())
        if message.count and np.isfinite([mins[i], maxs[i]]).all():
            message.min, message.max = mins[i], maxs[i]
        written.append(message.SerializeToString())
    return with_nulls(pa.array(written, pa.binary()), states.is_valid())


def from_otlp(messages: pa.Array, function: Exponential) -> pa.StructArray:
    """Read serialized ExponentialHistogramDataPoints as states.

    Parameters
    ----------
    messages : array of binary, shape (n,)
    function : Exponential
        Messages of a finer scale than its own, or of more buckets, are read at a coarser one.

    Returns
    -------
    column of states of ``function``, shape (n,); null gives null

    Raises
    ------
    TypeError, ValueError
        For a column of another type; messages that are damaged or contradict themselves, by their row; a scale below
        -11; buckets beyond all doubles.
    MissingExtra
        Without the extra otlp.

    Guarantee
    ---------
    Every count arrives in the bucket it had, or in the one that this is part of. What a message counts as zero, up to
    its threshold, is 0 here. A sum, min or max that it has not is made from the values of the buckets, each within the
    relative accuracy of the scale.

    Examples
    --------
    >>> states = Exponential().reduce(pa.array([1.0, -2.0, 4.0]), Groups.single(3))
    >>> from_otlp(to_otlp(states, Exponential()), Exponential()).equals(states)
    True
    """
    messages = normalize(messages)
    if not pa.types.is_binary(messages.type) and messages.null_count < len(messages):
        raise TypeError(f"OTLP messages are a column of binary; got {messages.type}")
    valid = messages.is_valid().to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(valid)
    points = [_parsed(message, int(row)) for message, row in zip(messages.drop_null().to_pylist(), rows, strict=True)]
    scales = np.array([min(point.scale, FINEST) for point in points], np.int64)
    positive, negative = (_histograms([getattr(point, sign) for point in points], points, rows) for sign in _SIGNS)
    zero = np.array([point.zero_count for point in points], np.int64)
    made = derived(positive, negative, zero, lambda side: values_of(side.keys, scales[side.rows()]))
    given = {name: _optional(points, name, valid) for name in ("sum", "min", "max")}
    none = pa.array(np.zeros(len(rows), np.int64))
    parts = filled(made, given, valid) | {"positive": positive.to_arrow(), "negative": negative.to_arrow()}
    parts |= {"zero": pa.array(zero), "nan": none, "positive_infinity": none, "negative_infinity": none}
    parts["kept_scale"] = pa.array(scales.astype(np.int8))
    states = function.align(function.pack(parts, len(rows)), Groups.each(len(rows)))
    check_fit(function, states, rows)
    return with_nulls(states, messages.is_valid())


def bucket_values(states: pa.Array, function: Exponential) -> pa.Table:
    """Give the values that stand for the buckets of states, and how many values each stands for.

    Parameters
    ----------
    states : column of states of ``function``, shape (n,)
    function : Exponential

    Returns
    -------
    table of row, value and weight
        ``row`` is that of the state. By ``weight="weight"`` they are counted by any function that takes weights.

    Raises
    ------
    ValueError
        For states of other parameters.

    Guarantee
    ---------
    Each value is within the relative accuracy α of the state's scale: a dds of accuracy β of them has quantiles within
    ``α + β + α·β``. Counts of NaN and of infinities stay behind.

    Examples
    --------
    >>> states = Exponential(scale=0).reduce(pa.array([0.0, 3.0, 3.5]), Groups.single(3))
    >>> bucket_values(states, Exponential(scale=0)).to_pylist()[1]
    {'row': 0, 'value': 2.6666666666666665, 'weight': 2}
    """
    states = checked(function, states).states
    rows = np.flatnonzero(states.is_valid().to_numpy(zero_copy_only=False))
    kept = states.drop_null()
    scales, zeros = (kept.field(name).to_numpy().astype(np.int64) for name in ("kept_scale", "zero"))
    some = np.flatnonzero(zeros)
    parts = [(some, np.zeros(len(some)), zeros[some])]
    for sign, factor in zip(_SIGNS, (1.0, -1.0), strict=True):
        side = Histograms.of(kept.field(sign))
        parts.append((side.rows(), factor * values_of(side.keys, scales[side.rows()]), side.counts))
    row, value, weight = (np.concatenate(column) for column in zip(*parts, strict=True))
    return pa.table({"row": rows[row], "value": value, "weight": weight})


def _parsed(message: bytes, row: int) -> Any:
    point, undecodable = _library()
    try:
        read = point.FromString(message)
    except undecodable as error:
        raise ValueError(f"message {row} is no ExponentialHistogramDataPoint: {error}") from None
    if read.scale < COARSEST:
        raise ValueError(f"message {row} has scale {read.scale}; exponential keeps scales from {COARSEST}")
    counted = read.zero_count + sum(read.positive.bucket_counts) + sum(read.negative.bucket_counts)
    if counted != read.count or counted > _MOST:
        raise ValueError(f"message {row} counts {read.count} values, and its buckets {counted}")
    return read


def _histograms(sides: list[Any], points: list[Any], rows: Any) -> Histograms:
    """Read the buckets of one sign; those of a finer scale than the finest here are moved to it."""
    keys, counts = [], []
    for side, point, row in zip(sides, points, rows, strict=True):
        all_counts = np.array(side.bucket_counts, np.uint64).astype(np.int64)
        used = np.flatnonzero(all_counts)
        key, own = side.offset + used, max(point.scale - FINEST, 0)
        least, most = (end >> max(FINEST - point.scale, 0) << own for end in REACH)
        if len(used) and (key[0] < least or key[-1] > most + (1 << own) - 1):
            raise ValueError(f"message {row} has a bucket {key[0] if key[0] < least else key[-1]}, beyond all doubles")
        moved, places = np.unique(key >> own, return_inverse=True)
        summed = np.zeros(len(moved), np.int64)
        np.add.at(summed, places, all_counts[used])
        keys.append(moved)
        counts.append(summed)
    sizes = np.array([len(one) for one in keys], np.int64)
    ends = (np.concatenate([*each, np.zeros(0, np.int64)]) for each in (keys, counts))
    return Histograms(sizes, *ends)


def _optional(points: list[Any], name: str, valid: Any) -> pa.Array:
    """Read a field of the messages, null where one has not got it, at the rows that are valid."""
    read = iter([getattr(point, name) if point.HasField(name) else None for point in points])
    return pa.array([next(read) if here else None for here in valid], pa.float64())
