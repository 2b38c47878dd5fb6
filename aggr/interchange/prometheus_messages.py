"""The messages of Prometheus' protobuf formats, built from tables of fields, because no package on PyPI contains them.

The tables have only the fields that this package uses. Protobuf skips other fields.

Source: ``io/prometheus/client/metrics.proto`` of prometheus/prometheus and prometheus/client_model, and
``prompb/types.proto`` of prometheus/prometheus.
"""

from __future__ import annotations

from functools import cache
from typing import Any

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
        "type": (3, "int32"),  # an enum in the source, with the same bytes as int32; 4 stands for a histogram
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


@cache
def remote_histogram() -> type[Any]:
    """Return the class of the message Histogram of remote read and remote write, of the protobuf package prometheus.

    Raises ``MissingExtra`` if the extra prometheus is not installed.

    >>> remote_histogram()(schema=-1).SerializeToString()
    b' \\x01'
    """
    return message_classes("prometheus", _REMOTE_MESSAGES, "prometheus")["Histogram"]
