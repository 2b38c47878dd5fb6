"""OTLP metrics as rows: a request of OpenTelemetry's exporters, each data point a row, or a row for each bucket.

::

    sum (delta), gauge        metric, time, value, weight 1, and attributes of the resource and the point
    exponential histogram     the same for each bucket: its value, and as weight how many values it holds

Source: ``opentelemetry/proto/collector/metrics/v1/metrics_service.proto``.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from aggr.arguments import shown
from aggr.extras import MissingExtra
from aggr.functions.exponential import Exponential
from aggr.interchange.otlp import bucket_values, from_otlp

_ALL_BUCKETS = Exponential(max_buckets=2**31 - 1)  # at the scale of each message
_DELTA, _NO_VALUE = 1, 1  # AGGREGATION_TEMPORALITY_DELTA; of DataPointFlags
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rows_of_metrics(body: bytes, as_json: bool, time: str = "time") -> list[dict[str, Any]]:
    """Read an ExportMetricsServiceRequest as rows.

    Parameters
    ----------
    body : bytes
    as_json : bool
        Whether it is OTLP's JSON, and not protobuf.
    time : str
        What the column of times is called; ISO 8601 in UTC, microseconds.

    Returns
    -------
    list of dicts
        Of attributes by their names, ``metric``, ``value``, ``weight`` and the time.

    Raises
    ------
    ValueError
        For what is no such request; for cumulative sums and histograms, which do not add up; for explicit buckets and
        summaries.
    MissingExtra
        Without the extra otlp.

    Guarantee
    ---------
    The rows of an exponential histogram, counted by their weights, are in the buckets that it has; their sum is that of
    the buckets' values.

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
    rows = []
    for resource in _request(body, as_json).resource_metrics:
        common = _attributes(resource.resource.attributes)
        for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
            kind = metric.WhichOneof("data")
            data = getattr(metric, kind) if kind else None
            _check(metric.name, kind, data)
            for point in data.data_points if data else ():
                moment = _EPOCH + timedelta(microseconds=point.time_unix_nano // 1000)
                at = {"metric": metric.name, time: moment.isoformat("T", "microseconds")}
                about = {**common, **_attributes(point.attributes), **at}
                if not point.flags & _NO_VALUE:
                    rows += [about | {"value": value, "weight": weight} for value, weight in _values(kind, point)]
    return rows


def _request(body: bytes, as_json: bool) -> Any:
    try:
        from google.protobuf.json_format import Parse, ParseError
        from google.protobuf.message import DecodeError
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    except ImportError as error:
        raise MissingExtra("an OTLP message", "otlp", error) from None
    try:
        if as_json:
            return Parse(body, ExportMetricsServiceRequest(), ignore_unknown_fields=True)
        return ExportMetricsServiceRequest.FromString(body)
    except (ParseError, DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"this is no ExportMetricsServiceRequest: {' '.join(str(error).split())[:150]}") from None


def _check(name: str, kind: str | None, data: Any) -> None:
    if kind in ("histogram", "summary"):
        raise ValueError(
            f"the metric {shown(name)} is a {kind}, whose values are not known; have the exporter make exponential "
            "histograms of it"
        )
    if kind in ("sum", "exponential_histogram") and data.aggregation_temporality != _DELTA:
        raise ValueError(
            f"the metric {shown(name)} is cumulative, and what it sends would count again each time; have the exporter "
            "send deltas: OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=delta"
        )


def _attributes(attributes: Any) -> dict[str, Any]:
    """Read attributes; a list or a map is its text."""
    read = {}
    for each in attributes:
        kind = each.value.WhichOneof("value")
        value = getattr(each.value, kind) if kind else None
        read[each.key] = value if value is None or isinstance(value, str | bool | int | float) else str(value)
    return read


def _values(kind: str | None, point: Any) -> Iterator[tuple[float, int]]:
    if kind != "exponential_histogram":
        yield (point.as_int if point.WhichOneof("value") == "as_int" else point.as_double), 1
        return
    states = from_otlp(pa.array([point.SerializeToString()], pa.binary()), _ALL_BUCKETS)
    buckets = bucket_values(states, _ALL_BUCKETS)
    yield from zip(buckets["value"].to_pylist(), buckets["weight"].to_pylist(), strict=True)
