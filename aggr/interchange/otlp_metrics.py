"""OTLP metrics as rows: convert a request of OpenTelemetry's exporters to one row per data point or per bucket.

::

    sum (delta), gauge        metric, time, value, weight 1, and attributes of the resource and the point
    exponential histogram     one row for each bucket: the value that represents it, and its count as weight

Some points are rejected, because their values cannot be added to those of other points: points of cumulative sums and
histograms, of histograms with explicit buckets, and of summaries. Points without a valid time are rejected as well, and
points without a value. A point whose flags state that it has no value is skipped without a message. The other points of
the request are read.

Source: ``opentelemetry/proto/collector/metrics/v1/metrics_service.proto``.
"""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from aggr.contrib import Exponential
from aggr.extend.arguments import MissingExtra, shown
from aggr.interchange.otlp import bucket_values, from_otlp

__all__ = ["encode_response", "rows_of_metrics"]

# A function whose limit of buckets is so high that the buckets of a message are never merged to a coarser scale.
_ALL_BUCKETS = Exponential(max_buckets=2**31 - 1)
# the value of AGGREGATION_TEMPORALITY_DELTA
_DELTA = 1
# the flag of a data point without a value
_NO_VALUE = 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rows_of_metrics(
    body: bytes, as_json: bool, time: str = "time", refused: list[str] | None = None
) -> list[dict[str, Any]]:
    """Read an ExportMetricsServiceRequest as rows.

    Parameters
    ----------
    body : bytes
    as_json : bool
        Whether the message is OTLP's JSON rather than protobuf.
    time : str
        The name of the column of times. The times are in ISO 8601, UTC, with microseconds.
    refused : list, optional
        A list to which the reason for each rejected point is appended; the other points are read. Without the list, the
        first rejected point raises an error.

    Returns
    -------
    list of dicts
        Each has the attributes by their names, ``metric``, ``value``, ``weight`` and the time. An attribute with the
        name of one of the other columns gets the prefix ``exported_``.

    Raises
    ------
    ValueError
        If the body is not such a request. Without ``refused``, also for the first rejected point. Points of cumulative
        sums and histograms, of histograms with explicit buckets and of summaries are rejected, and points without a
        time or a value. A point whose flags state that it has no value is skipped.
    MissingExtra
        If the extra otlp is not installed.

    Guarantee
    ---------
    The rows of an exponential histogram, counted with their weights, fall into its buckets and between its min and max.
    Their values are the representative values of the buckets, so their sum may differ from the sum of the histogram.
    Values and attributes have the types that they have in the message.

    Examples
    --------
    >>> import json
    >>> host = {"key": "host", "value": {"stringValue": "a"}}
    >>> point = {"timeUnixNano": "1500000000", "asInt": "7", "attributes": [host]}
    >>> metric = {"name": "requests", "sum": {"aggregationTemporality": 1, "dataPoints": [point]}}
    >>> body = json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}).encode()
    >>> rows_of_metrics(body, as_json=True)
    [{'host': 'a', 'metric': 'requests', 'time': '1970-01-01T00:00:01.500000+00:00', 'value': 7, 'weight': 1}]
    """
    rows: list[dict[str, Any]] = []
    column_names = {"metric", "value", "weight", time}
    for resource in _parse_request(body, as_json).resource_metrics:
        common = _attribute_values(resource.resource.attributes)
        for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
            kind = metric.WhichOneof("data")
            points = getattr(metric, kind).data_points if kind else ()
            for point in points:
                try:
                    _check_point(metric, kind, point)
                    if point.flags & _NO_VALUE:
                        continue
                    values = _weighted_values(metric.name, kind, point)
                except ValueError as error:
                    if refused is None:
                        raise
                    refused.append(str(error))
                    continue
                moment = _EPOCH + timedelta(microseconds=point.time_unix_nano // 1000)
                labels = _rename_attributes({**common, **_attribute_values(point.attributes)}, column_names)
                labels |= {"metric": metric.name, time: moment.isoformat("T", "microseconds")}
                rows += [labels | {"value": value, "weight": weight} for value, weight in values]
    return rows


def encode_response(rejected: int, message: str, as_json: bool) -> bytes:
    """Write an ExportMetricsServiceResponse.

    Parameters
    ----------
    rejected : int
        The number of rejected points.
    message : str
        The reasons for the rejections, or a warning if no points are rejected. If the message is empty and no points
        are rejected, the response is empty.
    as_json : bool
        Whether the message is OTLP's JSON rather than protobuf.

    Returns
    -------
    bytes

    Raises
    ------
    MissingExtra
        If the extra otlp is not installed.

    Examples
    --------
    >>> encode_response(0, "", as_json=True), encode_response(2, "no time", as_json=True)
    (b'{}', b'{"partialSuccess": {"rejectedDataPoints": "2", "errorMessage": "no time"}}')
    """
    if not rejected and not message:
        return b"{}" if as_json else b""
    if as_json:
        count = {"rejectedDataPoints": str(rejected)} if rejected else {}
        partial = {**count, "errorMessage": message}
        return json.dumps({"partialSuccess": partial}, ensure_ascii=False).encode(errors="backslashreplace")
    try:
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
    except ImportError as error:
        raise MissingExtra("an OTLP message", "otlp", error) from None
    response = ExportMetricsServiceResponse()
    response.partial_success.rejected_data_points = rejected
    response.partial_success.error_message = message
    content: bytes = response.SerializeToString()
    return content


def _rename_attributes(attributes: dict[str, Any], column_names: set[str]) -> dict[str, Any]:
    """Return the attributes, with the prefix ``exported_`` added to those names that are also in ``column_names``."""
    if column_names.isdisjoint(attributes):
        return attributes
    result = {name: value for name, value in attributes.items() if name not in column_names}
    for name in column_names & attributes.keys():
        new_name = f"exported_{name}"
        while new_name in result or new_name in column_names:
            new_name = f"exported_{new_name}"
        result[new_name] = attributes[name]
    return result


def _parse_request(body: bytes, as_json: bool) -> Any:
    try:
        from google.protobuf.json_format import Parse, ParseError
        from google.protobuf.message import DecodeError
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    except ImportError as error:
        raise MissingExtra("an OTLP message", "otlp", error) from None
    if as_json and body.lstrip()[:1] != b"{":
        # `Parse` reads some other values, such as an empty list, as an empty message.
        raise ValueError(
            f"cannot read the body as an ExportMetricsServiceRequest: it must be a JSON object; got {shown(body[:80])}"
        )
    try:
        if as_json:
            return Parse(body, ExportMetricsServiceRequest(), ignore_unknown_fields=True)
        return ExportMetricsServiceRequest.FromString(body)
    except (ParseError, DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:150]
        raise ValueError(
            f"cannot read the body as an ExportMetricsServiceRequest: {reason}; send this message as protobuf, or as "
            "JSON with the content type application/json"
        ) from None


def _check_point(metric: Any, kind: str, point: Any) -> None:
    """Raise ``ValueError`` for a point that cannot be added to others, or that has no time or no value.

    ``kind`` is the kind of data of the point's metric, such as ``gauge`` or ``exponential_histogram``.
    """
    name = shown(metric.name)
    if kind in ("histogram", "summary"):
        raise ValueError(
            f"the metric {name} is a {kind}, which does not contain single values; make the exporter send exponential "
            "histograms instead: "
            "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION=base2_exponential_bucket_histogram"
        )
    data = getattr(metric, kind)
    if kind != "gauge" and data.aggregation_temporality != _DELTA:
        if kind == "sum" and not data.is_monotonic:
            remedy = "an UpDownCounter is always cumulative; record it as a gauge"
        else:
            remedy = "make the exporter send deltas: OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=delta"
        raise ValueError(f"the metric {name} is cumulative, so each point would count earlier values again; {remedy}")
    if not 0 < point.time_unix_nano < 2**63:
        raise ValueError(
            f"a point of the metric {name} has no valid time, because timeUnixNano is {point.time_unix_nano}; set it "
            "to the nanoseconds since 1970, in UTC"
        )
    if kind != "exponential_histogram" and not point.flags & _NO_VALUE and point.WhichOneof("value") is None:
        raise ValueError(f"a point of the metric {name} has no value; set asInt or asDouble")


def _attribute_values(attributes: Any) -> dict[str, Any]:
    """Return attributes as name → value, with None for a missing value. Lists, maps and bytes are returned as JSON, as
    OpenTelemetry specifies for formats whose attributes are texts.
    """
    values = {}
    for attribute in attributes:
        value = _plain_value(attribute.value)
        is_plain = value is None or isinstance(value, str | bool | int | float)
        values[attribute.key] = value if is_plain else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return values


def _plain_value(value: Any) -> Any:
    """Return an ``AnyValue`` of OpenTelemetry as a value that JSON can represent; bytes become base64."""
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [_plain_value(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {item.key: _plain_value(item.value) for item in value.kvlist_value.values}
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    return getattr(value, kind)


def _weighted_values(name: str, kind: str, point: Any) -> list[tuple[float, int]]:
    """Return pairs of value and weight: one pair for each bucket of an exponential histogram, and one for other points.

    ``name`` is the name of the point's metric, and ``kind`` the kind of its data. Raise ``ValueError`` for a damaged
    histogram.
    """
    if kind != "exponential_histogram":
        return [(point.as_int if point.WhichOneof("value") == "as_int" else point.as_double, 1)]
    try:
        states = from_otlp(pa.array([point.SerializeToString()], pa.binary()), _ALL_BUCKETS)
    except ValueError as error:
        problem = str(error).removeprefix("message 0 ")
        raise ValueError(f"a point of the metric {shown(name)} cannot be read: it {problem}") from None
    buckets = bucket_values(states, _ALL_BUCKETS)
    return list(zip(buckets["value"].to_pylist(), buckets["weight"].to_pylist(), strict=True))
