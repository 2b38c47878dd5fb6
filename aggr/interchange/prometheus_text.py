"""The text of a scrape: convert Prometheus' classic histograms to values and weights, for any function that takes
weights::

    latency_bucket{le="0.1"} 4        0    to 0.1   value 0.05, error 0.05, weight 4
    latency_bucket{le="0.5"} 9        0.1  to 0.5   value 0.3,  error 0.2,  weight 5
    latency_bucket{le="+Inf"} 10      0.5  to inf   value 0.5,  error inf,  weight 1

Source: "Exposition formats" of Prometheus' documentation, and its function ``histogram_quantile``.
"""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa

from aggr.extend.arguments import MissingExtra, shown

Labels = tuple[tuple[str, str], ...]

_NUMBERS = [(name, pa.float64()) for name in ("low", "high", "value", "error")]
_TABLE = pa.schema([("labels", pa.map_(pa.string(), pa.string())), *_NUMBERS, ("weight", pa.int64())])


def classic_buckets(text: str, name: str, since: str | None = None) -> pa.Table:
    """Read the buckets of a classic histogram from the text of a scrape.

    Parameters
    ----------
    text : str
        The text, in Prometheus' text format.
    name : str
        The name of the histogram, without ``_bucket``.
    since : str, optional
        An earlier scrape. Only values that were counted after it are returned. If the buckets of a series have changed
        or its counts have decreased, the series was reset in between, for example by a restart. Without ``since``, and
        after a reset, all values of a series are returned.

    Returns
    -------
    table with labels, low, high, value, error and weight
        There is one row for each bucket with a count above 0, of each series. The bucket contains ``weight`` values
        above ``low`` and at most ``high``.

    Raises
    ------
    ValueError
        If the text is not a scrape or has no such histogram, or if a series has counts that decrease or are not whole,
        or has no bucket up to infinity. The error names the labels of the series.
    MissingExtra
        If the extra prometheus is not installed.

    Guarantee
    ---------
    Each of the counted values is within ``error`` of ``value``, the middle of its bucket. If the first bucket ends
    above 0, it is assumed to contain no values below 0, as in Prometheus. An exact quantile of the weighted values
    therefore differs from the true quantile by at most the error of its bucket. A quantile of `dds` with the accuracy β
    differs by at most ``error + β·|value|``. For a bucket with only one finite edge, ``value`` is that edge, and
    ``error`` is infinite.

    Examples
    --------
    >>> text = '''# TYPE latency histogram
    ... latency_bucket{le="0.5"} 4
    ... latency_bucket{le="1.5"} 9
    ... latency_bucket{le="+Inf"} 9
    ... '''
    >>> classic_buckets(text, "latency").select(["value", "error", "weight"]).to_pylist()
    [{'value': 0.25, 'error': 0.25, 'weight': 4}, {'value': 1.0, 'error': 0.5, 'weight': 5}]
    """
    earlier_series = {} if since is None else _buckets_by_series(since, name)
    rows = []
    for labels, weights in _buckets_by_series(text, name).items():
        earlier_weights = earlier_series.get(labels, {})
        low = -math.inf
        if earlier_weights.keys() != weights.keys() or any(
            weights[high] < weight for high, weight in earlier_weights.items()
        ):
            earlier_weights = dict.fromkeys(weights, 0)
        for high, weight in weights.items():
            if low == -math.inf and high > 0.0:
                low = 0.0
            if weight > earlier_weights[high]:
                rows.append((labels, low, high, *_middle_and_error(low, high), weight - earlier_weights[high]))
            low = high
    columns = zip(*rows, strict=True) if rows else [()] * len(_TABLE)
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, _TABLE, strict=True)], _TABLE)


def _buckets_by_series(text: str, name: str) -> dict[Labels, dict[float, int]]:
    """Return the buckets of each series, as labels → upper edge → number of values in the bucket.

    The edges of a series ascend. The labels, without ``le``, identify the series.
    """
    counts_by_labels: dict[Labels, dict[float, float]] = {}
    for sample in _bucket_samples(text, name):
        labels = tuple(sorted((label, value) for label, value in sample.labels.items() if label != "le"))
        edge_text = sample.labels.get("le", "nothing")
        counts = counts_by_labels.setdefault(labels, {})
        try:
            high = float(edge_text)
        except ValueError:
            high = math.nan
        if math.isnan(high) or high in counts:
            raise ValueError(
                f"{_shown(name, labels)} has a bucket with le={shown(edge_text)}, which is not a number or occurs "
                "twice; pass the text of one scrape, unchanged"
            )
        counts[high] = sample.value
    return {labels: _bucket_weights(_shown(name, labels), counts) for labels, counts in counts_by_labels.items()}


def _bucket_weights(series: str, counts: dict[float, float]) -> dict[float, int]:
    if math.inf not in counts:
        raise ValueError(f'{series} has no bucket of le="+Inf", probably because the text is cut off; scrape it again')
    previous_count = 0.0
    weights = {}
    for high, count in sorted(counts.items()):
        if not previous_count <= count <= 2**53 or count != int(count):
            raise ValueError(
                f"{series} has the count {count:g} at le={high}, after the count {previous_count:g}; counts must be "
                "whole numbers up to 2^53 that never decrease; scrape it again"
            )
        weights[high], previous_count = int(count - previous_count), count
    return weights


def _bucket_samples(text: str, name: str) -> list[Any]:
    """Return the samples of the buckets of the histogram ``name`` in the text of a scrape.

    Raise ``ValueError`` if the text cannot be parsed, or has no such histogram.
    """
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError as error:
        raise MissingExtra("the text of a scrape", "prometheus", error) from None
    try:
        families = list(text_string_to_metric_families(text))
    except (ValueError, IndexError, KeyError) as error:
        raise ValueError(
            f"the text is not in Prometheus' text format: {shown(str(error))}; pass the body that the target's "
            "/metrics returns"
        ) from None
    histograms = {family.name: family.samples for family in families if family.type == "histogram"}
    if name not in histograms:
        names = ", ".join(sorted(histograms)) or "none"
        raise ValueError(f"the text has no histogram called {shown(name)}; histograms in the text: {names[:150]}")
    return [sample for sample in histograms[name] if sample.name == f"{name}_bucket"]


def _middle_and_error(low: float, high: float) -> tuple[float, float]:
    """Return the middle of a bucket from ``low`` to ``high``, and the maximum distance of its values from the middle.

    If one edge is infinite, the other edge is returned as the middle, and infinity as the distance.
    """
    if math.isinf(low) or math.isinf(high):
        return (high if math.isinf(low) else low), math.inf
    value = low / 2 + high / 2
    return value, max(high - value, value - low)


def _shown(name: str, labels: Labels) -> str:
    return f"{name}{{{', '.join(f'{label}={value!r}' for label, value in labels)[:150]}}}"
