"""OTLP: convert states of `exponential` to OpenTelemetry's data points of exponential histograms, and back.

The content of a message, and the values that it cannot contain::

    message    count, sum, scale, zero count, min, max       positive, negative: offset and a count for each bucket
    not in it  the numbers of NaN and of infinities; digits of the sum beyond a double

Source: ``opentelemetry/proto/metrics/v1/metrics.proto``, ExponentialHistogramDataPoint.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from aggr.contrib import Exponential
from aggr.contrib.exponential_mapping import COARSEST, values_of
from aggr.extend import Histograms
from aggr.extend.arguments import MissingExtra
from aggr.extend.columns import with_nulls
from aggr.extend.exact import read_scaled
from aggr.extend.tables import checked
from aggr.interchange.exponential_points import MAX_COUNT, SIGNS, Point, SignBuckets, states_of_messages


def _import_library() -> tuple[Any, type[Exception]]:
    """Return the class of a data point, and the class of decoding errors.

    Raise ``MissingExtra`` if they are not installed.
    """
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
        If states have other parameters.
    MissingExtra
        If the extra otlp is not installed.

    Guarantee
    ---------
    Every count is written in its own bucket, at the state's scale. The sum is rounded once. Counts of NaN and of
    infinities are not written. For a state that has counted infinities, min and max are not written either.

    Examples
    --------
    >>> from aggr import Groups
    >>> from opentelemetry.proto.metrics.v1.metrics_pb2 import ExponentialHistogramDataPoint
    >>> states = Exponential(scale=0).reduce(pa.array([1.5, 3.0, 3.5]), Groups.single(3))
    >>> point = ExponentialHistogramDataPoint.FromString(to_otlp(states, Exponential(scale=0))[0].as_py())
    >>> point.scale, point.positive.offset, list(point.positive.bucket_counts)
    (0, 0, [1, 2])
    """
    states = checked(function, states).states
    point, _ = _import_library()
    valid_states = states.drop_null()
    sums = read_scaled(valid_states.field("sum")).over_integers().tolist()
    scales, zeros, mins, maxs = (valid_states.field(name).to_pylist() for name in ("kept_scale", "zero", "min", "max"))
    dense_buckets_by_sign = {sign: Histograms.from_arrow(valid_states.field(sign)).dense() for sign in SIGNS}
    messages = []
    for i in range(len(valid_states)):
        message = point(scale=scales[i], zero_count=zeros[i], sum=sums[i], count=zeros[i])
        for sign, dense_buckets in dense_buckets_by_sign.items():
            first_key, counts = next(dense_buckets)
            buckets = getattr(message, sign)
            buckets.offset = first_key
            buckets.bucket_counts.extend(counts.tolist())
            message.count += int(counts.sum())
        if message.count and np.isfinite([mins[i], maxs[i]]).all():
            message.min = mins[i]
            message.max = maxs[i]
        messages.append(message.SerializeToString())
    return with_nulls(pa.array(messages, pa.binary()), states.is_valid())


def from_otlp(messages: pa.Array, function: Exponential) -> pa.StructArray:
    """Read serialized ExponentialHistogramDataPoints as states.

    Parameters
    ----------
    messages : array of binary, shape (n,)
    function : Exponential
        If a message has a finer scale than the function or more buckets, its buckets are merged to a coarser scale.

    Returns
    -------
    column of states of ``function``, shape (n,); null gives null

    Raises
    ------
    TypeError, ValueError
        If the column has another type; if a message is damaged, contradicts itself, has a scale below -11 or buckets
        outside the range of doubles. The error names its row.
    MissingExtra
        If the extra otlp is not installed.

    Guarantee
    ---------
    Every count is read into its own bucket, or into the coarser bucket that contains it. Values in a message's zero
    bucket, whose magnitudes are at most its zero threshold, become 0. A missing sum, min or max is computed from the
    values that represent the buckets. The value of a bucket and any value in this bucket differ by at most
    the relative accuracy at the state's scale.

    Examples
    --------
    >>> from aggr import Groups
    >>> states = Exponential().reduce(pa.array([1.0, -2.0, 4.0]), Groups.single(3))
    >>> from_otlp(to_otlp(states, Exponential()), Exponential()).equals(states)
    True
    """
    return states_of_messages(messages, "OTLP", _parse_point, function)


def bucket_values(states: pa.Array, function: Exponential) -> pa.Table:
    """Return the representative values of the buckets of states, and the count of each bucket.

    Parameters
    ----------
    states : column of states of ``function``, shape (n,)
    function : Exponential

    Returns
    -------
    table with row, value and weight
        There is one row per bucket. ``row`` is the row number of the state, ``value`` the value that represents the
        bucket, and ``weight`` the count of the bucket. A function that takes weights reads the table with
        ``weight="weight"``.

    Raises
    ------
    ValueError
        If states have other parameters.

    Guarantee
    ---------
    The returned value of a bucket and any value in this bucket differ by a relative error of at most α, the relative
    accuracy at the state's scale. The returned value lies between the state's min and max. The quantiles of a dds with
    accuracy β over these values have a relative error of at most ``α + β + α·β``. Counts of NaN and of infinities are
    left out.

    Examples
    --------
    >>> from aggr import Groups
    >>> states = Exponential(scale=0).reduce(pa.array([0.0, 3.0, 3.5]), Groups.single(3))
    >>> bucket_values(states, Exponential(scale=0)).to_pylist()[1]
    {'row': 0, 'value': 2.6666666666666665, 'weight': 2}
    """
    states = checked(function, states).states
    rows = np.flatnonzero(states.is_valid().to_numpy(zero_copy_only=False))
    valid_states = states.drop_null()
    scales, zeros = (valid_states.field(name).to_numpy().astype(np.int64) for name in ("kept_scale", "zero"))
    zero_rows = np.flatnonzero(zeros)
    parts = [(zero_rows, np.zeros(len(zero_rows)), zeros[zero_rows])]
    for sign, factor in zip(SIGNS, (1.0, -1.0), strict=True):
        histograms = Histograms.from_arrow(valid_states.field(sign))
        bucket_rows = histograms.rows()
        signed_values = factor * values_of(histograms.keys, scales[bucket_rows])
        parts.append((bucket_rows, signed_values, histograms.counts))
    row, value, weight = (np.concatenate(column) for column in zip(*parts, strict=True))
    # Min and max are null only for states without values. Such states have no buckets, so the 0.0 that replaces the
    # null is not used.
    low, high = (valid_states.field(name).fill_null(0.0).to_numpy() for name in ("min", "max"))
    value = np.clip(value, low[row], high[row])
    return pa.table({"row": rows[row], "value": value, "weight": weight})


def _parse_point(message: bytes, row: int) -> Point:
    """Return the histogram in a message. Raise ``ValueError``, which names ``row``, if the message is wrong."""
    point, decode_error = _import_library()
    try:
        parsed = point.FromString(message)
    except decode_error as error:
        raise ValueError(
            f"message {row} cannot be parsed as an ExponentialHistogramDataPoint: {error}; pass points of this type, "
            "or null for this row"
        ) from None
    if parsed.scale < COARSEST:
        raise ValueError(
            f"message {row} has scale {parsed.scale}; exponential accepts only scales of at least {COARSEST}; export "
            "it with more buckets, which gives a finer scale"
        )
    counted = parsed.zero_count + sum(parsed.positive.bucket_counts) + sum(parsed.negative.bucket_counts)
    if counted != parsed.count or counted > MAX_COUNT:
        raise ValueError(
            f"message {row} has the count {parsed.count}, and its buckets contain {counted} values; the two numbers "
            f"must be equal and at most {MAX_COUNT}; correct the message, or leave it out"
        )
    summary = {name: getattr(parsed, name) for name in ("sum", "min", "max") if parsed.HasField(name)}
    return Point(
        parsed.scale, _read_buckets(parsed.positive), _read_buckets(parsed.negative), parsed.zero_count, **summary
    )


def _read_buckets(buckets: Any) -> SignBuckets:
    counts = np.array(buckets.bucket_counts, np.uint64).astype(np.int64)
    used = np.flatnonzero(counts)
    return buckets.offset + used, counts[used]
