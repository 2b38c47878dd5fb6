"""The messages of Prometheus' protobuf formats, built from tables of fields, because no package on PyPI contains them.

The tables have only the fields that this package uses. Protobuf skips other fields.

Source: ``io/prometheus/client/metrics.proto`` of prometheus/prometheus and prometheus/client_model;
``prompb/types.proto`` and ``prompb/remote.proto`` of prometheus/prometheus. Enums are written as int32, which has the
same bytes.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from aggr.extend.arguments import shown
from aggr.interchange.protobuf_messages import message_classes

_MESSAGES = {
    "LabelPair": {"name": (1, "string"), "value": (2, "string")},
    "BucketSpan": {"offset": (1, "sint32"), "length": (2, "uint32")},
    "Histogram": {
        **{"sample_count": (1, "uint64"), "sample_sum": (2, "double"), "sample_count_float": (4, "double")},
        **{"schema": (5, "sint32"), "zero_threshold": (6, "double")},
        **{"zero_count": (7, "uint64"), "zero_count_float": (8, "double")},
        **{"negative_span": (9, "repeated BucketSpan"), "positive_span": (12, "repeated BucketSpan")},
        **{"negative_delta": (10, "repeated sint64"), "negative_count": (11, "repeated double")},
        **{"positive_delta": (13, "repeated sint64"), "positive_count": (14, "repeated double")},
    },
    "Metric": {"label": (1, "repeated LabelPair"), "timestamp_ms": (6, "int64"), "histogram": (7, "Histogram")},
    "MetricFamily": {
        **{"name": (1, "string"), "help": (2, "string"), "metric": (4, "repeated Metric")},
        "type": (3, "int32"),  # a value of the enum MetricType; 4 stands for histograms
    },
}

_REMOTE_MESSAGES = {
    "BucketSpan": {"offset": (1, "sint32"), "length": (2, "uint32")},
    "Histogram": {
        **{"count_int": (1, "uint64"), "sum": (3, "double"), "schema": (4, "sint32"), "zero_threshold": (5, "double")},
        **{"zero_count_int": (6, "uint64"), "timestamp": (15, "int64")},
        **{"negative_spans": (8, "repeated BucketSpan"), "positive_spans": (11, "repeated BucketSpan")},
        **{"negative_deltas": (9, "repeated sint64"), "positive_deltas": (12, "repeated sint64")},
    },
    "LabelMatcher": {"type": (1, "int32"), "name": (2, "string"), "value": (3, "string")},
    "ReadHints": {
        **{"step_ms": (1, "int64"), "func": (2, "string"), "start_ms": (3, "int64"), "end_ms": (4, "int64")},
        "range_ms": (7, "int64"),
    },
    "Query": {
        **{"start_timestamp_ms": (1, "int64"), "end_timestamp_ms": (2, "int64")},
        **{"matchers": (3, "repeated LabelMatcher"), "hints": (4, "ReadHints")},
    },
    "ReadRequest": {"queries": (1, "repeated Query"), "accepted_response_types": (2, "repeated int32")},
    "Label": {"name": (1, "string"), "value": (2, "string")},
    # Samples, histograms and series are encoded separately, many at once. They are declared as bytes, which are encoded
    # in the same way as messages.
    "TimeSeries": {
        **{"labels": (1, "repeated Label"), "samples": (2, "repeated bytes"), "histograms": (4, "repeated bytes")},
    },
    "QueryResult": {"timeseries": (1, "repeated bytes")},
    "ReadResponse": {"results": (1, "repeated QueryResult")},
    "Chunk": {
        **{"min_time_ms": (1, "int64"), "max_time_ms": (2, "int64"), "type": (3, "int32"), "data": (4, "bytes")},
    },
    "ChunkedSeries": {"labels": (1, "repeated Label"), "chunks": (2, "repeated Chunk")},
    "ChunkedReadResponse": {"chunked_series": (1, "repeated ChunkedSeries"), "query_index": (2, "int64")},
}


def prometheus_message(name: str) -> type[Any]:
    """Return the class of the message ``name`` of the protobuf package io.prometheus.client.

    Raises ``MissingExtra`` if the extra prometheus is not installed.

    >>> prometheus_message("BucketSpan")(offset=-1, length=2).SerializeToString()
    b'\\x08\\x01\\x10\\x02'
    """
    return _classes()[name]


@cache
def _classes() -> dict[str, type[Any]]:
    return message_classes("io.prometheus.client", _MESSAGES, "prometheus")


def remote_message(name: str) -> type[Any]:
    """Return the class of a message of Prometheus' remote read and remote write (the protobuf package prometheus).

    Parameters
    ----------
    name : str
        The name of the message in the source, such as ``ReadRequest``. The classes have only the fields that this
        package uses; other fields are skipped when a message is parsed. Samples and histograms of a ``TimeSeries``, and
        series of a ``QueryResult``, are bytes: messages that are already encoded.

    Returns
    -------
    class of a protobuf message

    Raises
    ------
    ValueError
        If the table has no message of this name.
    MissingExtra
        If protobuf, which the extra prometheus installs, is missing.

    Examples
    --------
    >>> remote_message("Label")(name="host", value="a").SerializeToString()
    b'\\n\\x04host\\x12\\x01a'
    """
    classes = _remote_classes()
    if name not in classes:
        raise ValueError(f"{shown(name)} is not the name of a message of remote read; use one of {', '.join(classes)}")
    return classes[name]


@cache
def _remote_classes() -> dict[str, type[Any]]:
    return message_classes("prometheus", _REMOTE_MESSAGES, "prometheus")
