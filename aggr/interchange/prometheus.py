"""Prometheus: convert states of `exponential` to native histograms, and back.

Classic histograms are read by `aggr.interchange.prometheus_text`.

The content of a message, and the values that it cannot contain::

    message    count, sum, schema, zero count        positive, negative: spans of buckets, and the change of the counts
    not in it  min and max; digits of the sum beyond a double; scales beyond -4 to 8

A schema is the same as a scale. In a message, bucket ``i`` ends at ``2^(i / 2^schema)``. In a state, the bucket with
the key ``k`` begins at ``2^(k / 2^scale)``. Bucket ``i`` therefore has the key ``i - 1``. In messages and in states, a
bucket contains its upper bound, and not its lower bound. The bucket that follows the bucket of the largest double
counts infinities. NaN is counted only in the total count, and makes the sum NaN.

Source: ``io/prometheus/client/metrics.proto`` of prometheus/client_model; ``histogram.go`` of prometheus/client_golang.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from aggr.contrib import Exponential
from aggr.extend import Histograms
from aggr.extend.columns import with_nulls
from aggr.extend.exact import NEGATIVE, POSITIVE, read_scaled, with_special
from aggr.extend.histograms import COUNTS, shifted
from aggr.extend.tables import checked
from aggr.interchange.exponential_points import MAX_COUNT, SIGNS, Point, SignBuckets, states_of_messages
from aggr.interchange.prometheus_messages import prometheus_message, remote_message

__all__ = ["from_prometheus", "remote_message", "to_prometheus", "to_remote_histograms"]

_MIN_SCHEMA = -4
_MAX_SCHEMA = 8


@dataclass(frozen=True)
class _HistogramFormat:
    """A message for native histograms, and the names of its fields.

    The names of the fields for spans and deltas are stored without the prefix ``positive_`` or ``negative_``.
    """

    message_class: Callable[[], type[Any]]
    count: str
    sum: str
    zero_count: str
    spans: str
    deltas: str


_CLIENT_FORMAT = _HistogramFormat(
    lambda: prometheus_message("Histogram"),
    count="sample_count",
    sum="sample_sum",
    zero_count="zero_count",
    spans="span",
    deltas="delta",
)
_REMOTE_FORMAT = _HistogramFormat(
    lambda: remote_message("Histogram"),
    count="count_int",
    sum="sum",
    zero_count="zero_count_int",
    spans="spans",
    deltas="deltas",
)


def to_prometheus(states: pa.Array, function: Exponential) -> pa.Array:
    """Write each state as a serialized io.prometheus.client.Histogram with sparse buckets.

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
        If states have other parameters, or a state has a scale below -4. The error names its row.
    MissingExtra
        If the extra prometheus is not installed.

    Guarantee
    ---------
    Every count is written in its own bucket, at the state's scale, or at scale 8 if the state's scale is finer. Counts
    of infinities and of NaN are also written. They make the sum infinite or NaN. The sum is rounded once. Min and max
    are not written.

    Examples
    --------
    >>> from aggr import Groups
    >>> states = Exponential(scale=0).reduce(pa.array([1.5, 3.0, 3.5]), Groups.single(3))
    >>> histogram = prometheus_message("Histogram").FromString(to_prometheus(states, Exponential(scale=0))[0].as_py())
    >>> histogram.schema, histogram.positive_span[0].offset, list(histogram.positive_delta)
    (0, 1, [1, 1])
    """
    return _write_histograms(states, function, _CLIENT_FORMAT)


def _write_histograms(
    states: pa.Array, function: Exponential, message_format: _HistogramFormat, first_row: int = 0
) -> pa.Array:
    """Return each state as a serialized message of the format ``message_format``. A null state gives null.

    ``first_row`` is the row of the first state. Raise ``ValueError``, which names the row, if a state has other
    parameters or a scale below `_MIN_SCHEMA`.
    """
    states = checked(function, states).states
    histogram = message_format.message_class()
    valid_states = states.drop_null()
    scales = valid_states.field("kept_scale").to_numpy().astype(np.int64)
    if (scales < _MIN_SCHEMA).any():
        place = np.flatnonzero(states.is_valid().to_numpy(zero_copy_only=False))[np.argmax(scales < _MIN_SCHEMA)]
        row = first_row + place
        raise ValueError(
            f"state {row} has scale {scales[scales < _MIN_SCHEMA][0]}; native histograms accept only schemas of at "
            f"least {_MIN_SCHEMA}; use a greater max_buckets for a finer scale"
        )
    schemas = np.minimum(scales, _MAX_SCHEMA)
    counts = {name: valid_states.field(name).to_numpy() for name in COUNTS}
    high, low, nan = (counts[name] for name in ("positive_infinity", "negative_infinity", "nan"))
    special = ((high > 0) * POSITIVE + (low > 0) * NEGATIVE).astype(np.int8)
    sums = np.where(
        nan > 0, np.nan, with_special(read_scaled(valid_states.field("sum")).over_integers(), special)
    ).tolist()
    buckets_by_sign = [_split_by_histogram(shifted(valid_states.field(sign), scales - schemas)) for sign in SIGNS]
    messages = []
    for i, schema in enumerate(schemas.tolist()):
        zero = int(counts["zero"][i])
        count = int(counts["zero"][i]) + int(nan[i])
        message = histogram(
            schema=schema, zero_threshold=0.0, **{message_format.zero_count: zero, message_format.sum: sums[i]}
        )
        has_spans = False
        for sign, sign_buckets, infinity_counts in zip(SIGNS, buckets_by_sign, (high, low), strict=True):
            spans = getattr(message, f"{sign}_{message_format.spans}")
            deltas = getattr(message, f"{sign}_{message_format.deltas}")
            count += _add_buckets(spans, deltas, *sign_buckets[i], schema, int(infinity_counts[i]))
            has_spans = has_spans or len(spans) > 0
        setattr(message, message_format.count, count)
        if not (has_spans or zero):
            # an empty span marks the message as a native histogram, not a classic one
            getattr(message, f"positive_{message_format.spans}").add(offset=0, length=0)
        messages.append(message.SerializeToString())
    return with_nulls(pa.array(messages, pa.binary()), states.is_valid())


def to_remote_histograms(states: pa.Array, function: Exponential, first_row: int = 0) -> pa.Array:
    """Write each state as a serialized Histogram of Prometheus' remote read and remote write, without a time.

    Parameters
    ----------
    states : column of states of ``function``, shape (n,)
    function : Exponential
    first_row : int
        The row of the first state, for errors, if the states are a slice of a longer column.

    Returns
    -------
    array of binary, shape (n,); a null state gives null

    Raises
    ------
    ValueError, MissingExtra
        As `to_prometheus`.

    Guarantee
    ---------
    The messages have the same counts and sums as the messages of `to_prometheus`.

    Examples
    --------
    >>> from aggr import Groups
    >>> states = Exponential(scale=0).reduce(pa.array([1.5, 3.0, 3.5]), Groups.single(3))
    >>> messages = to_remote_histograms(states, Exponential(scale=0))
    >>> histogram = remote_message("Histogram").FromString(messages[0].as_py())
    >>> histogram.count_int, histogram.sum, list(histogram.positive_deltas)
    (3, 8.0, [1, 1])
    """
    return _write_histograms(states, function, _REMOTE_FORMAT, first_row)


def from_prometheus(messages: pa.Array, function: Exponential) -> pa.StructArray:
    """Read the sparse buckets of serialized io.prometheus.client.Histograms as states.

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
        If the column has another type; if a message is damaged, contradicts itself, or has counts that are not whole, a
        schema outside -4 to 8, or buckets outside the range of doubles. The error names its row.
    MissingExtra
        If the extra prometheus is not installed.

    Guarantee
    ---------
    Every count is read into its own bucket, or into the coarser bucket that contains it. Whole counts of float type,
    which Prometheus may forward, are read in the same way. Values in a message's zero bucket, whose magnitudes are at
    most its zero threshold, become 0. Min and max, and a sum that is missing or not finite, are computed from the
    values that represent the buckets. The value of a bucket and any value in this bucket differ by at most
    the relative accuracy at the state's scale.

    Examples
    --------
    >>> from aggr import Groups
    >>> function = Exponential(scale=8)
    >>> states = function.reduce(pa.array([1.0, -2.0, 4.0, 0.0]), Groups.single(4))
    >>> back = from_prometheus(to_prometheus(states, function), function)
    >>> all(back.field(i).equals(states.field(i)) for i in ("kept_scale", "positive", "negative", "zero", "sum"))
    True
    """
    return states_of_messages(messages, "Prometheus", _parse_histogram, function)


def _split_by_histogram(column: pa.StructArray) -> list[SignBuckets]:
    histograms = Histograms.from_arrow(column)
    split_places = np.cumsum(histograms.sizes)[:-1]
    return list(zip(np.split(histograms.keys, split_places), np.split(histograms.counts, split_places), strict=True))


def _infinity_key(schema: int) -> int:
    """Return the key of the bucket that counts infinities. It follows the bucket of the largest double."""
    return 1024 << schema if schema >= 0 else 1024 >> -schema


def _add_buckets(spans: Any, deltas: Any, keys: Any, counts: Any, schema: int, infinity_count: int) -> int:
    """Add the buckets of one sign to ``spans`` and ``deltas``, two fields of a message. Return the sum of the counts of
    these buckets.

    ``keys`` are the keys of the buckets, ascending, at the scale ``schema``, and ``counts`` their counts. Adjacent
    buckets are written as one span. ``infinity_count`` is the number of infinities of this sign. If it is above 0, a
    bucket for infinities is added.
    """
    if infinity_count:
        keys = np.append(keys, _infinity_key(schema))
        counts = np.append(counts, infinity_count)
    runs = np.split(keys, np.flatnonzero(np.diff(keys) != 1) + 1) if len(keys) else []
    expected_key = -1  # the offset of the first span is relative to the bucket with index 0, whose key is -1
    for run in runs:
        spans.add(offset=int(run[0]) - expected_key, length=len(run))
        expected_key = int(run[-1]) + 1
    deltas.extend(np.diff(counts, prepend=0).tolist())
    return sum(counts.tolist())


def _parse_histogram(message: bytes, row: int) -> Point:
    """Return the histogram in a message. Raise ``ValueError``, which names ``row``, if the message is wrong."""
    histogram = prometheus_message("Histogram")
    from google.protobuf.message import DecodeError

    try:
        parsed = histogram.FromString(message)
    except DecodeError as error:
        raise ValueError(
            f"message {row} cannot be parsed as an io.prometheus.client.Histogram: {error}; pass messages of this "
            "type, or null for this row"
        ) from None
    schema = parsed.schema
    if not _MIN_SCHEMA <= schema <= _MAX_SCHEMA:
        raise ValueError(
            f"message {row} has schema {schema}; only exponential histograms, with a schema from {_MIN_SCHEMA} to "
            f"{_MAX_SCHEMA}, can be read; pass null for this row"
        )
    count = _read_count(parsed.sample_count_float or parsed.sample_count, row)
    zero = _read_count(parsed.zero_count_float or parsed.zero_count, row)
    (positive, high), (negative, low) = (_read_buckets(parsed, sign, row) for sign in SIGNS)
    bucket_total = zero + sum(sum(counts.tolist()) for _, counts in (positive, negative)) + high + low
    nan = count - bucket_total if np.isnan(parsed.sample_sum) else 0
    if nan < 0 or bucket_total + nan != count:
        raise ValueError(
            f"message {row} has the count {count}, and its sparse buckets contain {bucket_total} values; the two "
            "numbers must be equal, except that a histogram with NaN has a sum of NaN and a greater count; correct "
            "the message, or pass null for this row"
        )
    total = parsed.sample_sum if parsed.HasField("sample_sum") and np.isfinite(parsed.sample_sum) else None
    infinities = {"positive_infinity": high, "negative_infinity": low}
    return Point(schema, positive, negative, zero, nan=nan, **infinities, sum=total, index=1)


def _read_buckets(message: Any, sign: str, row: int) -> tuple[SignBuckets, int]:
    """Return the finite buckets of one sign of a message, and the number of infinities of this sign.

    ``row`` is the row of the message, for errors.
    """
    counts = getattr(message, f"{sign}_count") or accumulate(getattr(message, f"{sign}_delta"))
    bucket_counts = np.array([_read_count(count, row) for count in counts], np.int64)
    spans = getattr(message, f"{sign}_span")
    if len(bucket_counts) != sum(span.length for span in spans) or any(span.offset < 0 for span in spans[1:]):
        raise ValueError(
            f"message {row} has spans that overlap, or whose lengths do not add up to its {len(bucket_counts)} counts; "
            "correct the message, or pass null for this row"
        )
    offset_sums = accumulate(span.offset for span in spans)
    # For each span, ``before`` contains the total length of the earlier spans, minus 1. The 1 is subtracted because the
    # offset of the first span is relative to the bucket with index 0, whose key is -1.
    before = accumulate((span.length for span in spans), initial=-1)
    summed_spans = zip(spans, offset_sums, before, strict=False)
    runs = [np.arange(span.length) + offsets + lengths for span, offsets, lengths in summed_spans]
    keys = np.concatenate([*runs, np.zeros(0, np.int64)])
    is_infinity = keys == _infinity_key(message.schema)
    is_used = (bucket_counts > 0) & ~is_infinity
    return (keys[is_used], bucket_counts[is_used]), int(bucket_counts[is_infinity].sum())


def _read_count(count: float, row: int) -> int:
    if not 0 <= count <= MAX_COUNT or count != int(count):
        raise ValueError(f"message {row} has the count {count}; counts must be whole numbers from 0 to {MAX_COUNT}")
    return int(count)
