"""The messages of Prometheus' protobuf format, built from a table: no package on PyPI ships them.

Source: ``io/prometheus/client/metrics.proto`` of prometheus/prometheus and prometheus/client_model; fields that
nothing here reads are not listed, and protobuf passes over them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from aggr.extras import MissingExtra

_MESSAGES = {
    "LabelPair": {"name": (1, "string"), "value": (2, "string")},
    "BucketSpan": {"offset": (1, "sint32"), "length": (2, "uint32")},
    "Histogram": {
        "sample_count": (1, "uint64"),
        "sample_sum": (2, "double"),
        "sample_count_float": (4, "double"),
        "schema": (5, "sint32"),
        "zero_threshold": (6, "double"),
        "zero_count": (7, "uint64"),
        "zero_count_float": (8, "double"),
        "negative_span": (9, "repeated BucketSpan"),
        "negative_delta": (10, "repeated sint64"),
        "negative_count": (11, "repeated double"),
        "positive_span": (12, "repeated BucketSpan"),
        "positive_delta": (13, "repeated sint64"),
        "positive_count": (14, "repeated double"),
    },
    "Metric": {"label": (1, "repeated LabelPair"), "timestamp_ms": (6, "int64"), "histogram": (7, "Histogram")},
    "MetricFamily": {
        "name": (1, "string"),
        "help": (2, "string"),
        "type": (3, "int32"),  # an enum, of the same bytes: 4 is a histogram
        "metric": (4, "repeated Metric"),
    },
}


def prometheus_message(name: str) -> type[Any]:
    """Return the class of a message of the package io.prometheus.client.

    Raises ``MissingExtra`` without the extra prometheus.

    >>> prometheus_message("BucketSpan")(offset=-1, length=2).SerializeToString()
    b'\\x08\\x01\\x10\\x02'
    """
    return _classes()[name]


@cache
def _classes() -> dict[str, type[Any]]:
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError as error:
        raise MissingExtra("a message of Prometheus", "prometheus", error) from None
    field_type = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="metrics.proto", package="io.prometheus.client")
    for message, fields in _MESSAGES.items():
        described = file.message_type.add(name=message)
        for field, (number, text) in fields.items():
            label, kind = ("repeated", text[9:]) if text.startswith("repeated ") else ("optional", text)
            one = described.field.add(name=field, number=number, label=f"LABEL_{label.upper()}")
            if kind in _MESSAGES:
                one.type, one.type_name = field_type.TYPE_MESSAGE, f".{file.package}.{kind}"
            else:
                one.type = field_type.Type.Value(f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()  # its own: an application may have these messages in the common one
    pool.Add(file)
    descriptors = {name: pool.FindMessageTypeByName(f"{file.package}.{name}") for name in _MESSAGES}
    return {name: message_factory.GetMessageClass(descriptor) for name, descriptor in descriptors.items()}
