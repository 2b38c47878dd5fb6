"""Kinds of metrics, and the functions that merge the states of each kind: over time and over series."""

from __future__ import annotations

from collections.abc import Mapping

SUM = "sum"
MIN = "min"
MAX = "max"
AVG = "avg"
LAST = "last"
GAUGE = "gauge"
HISTOGRAM = "histogram"
BUCKETS = "buckets"

RATE = "rate"
INCREASE = "increase"
QUANTILE_OVER_TIME = "quantile_over_time"

# The name of a function, or of a field of its results → the kind of the metric. A metric of any other function or field
# is of the kind `GAUGE`.
KINDS_OF_RESULTS = {
    "count": SUM,
    "sum": SUM,
    "sum_of_squares": SUM,
    "min": MIN,
    "max": MAX,
    "avg": AVG,
    "mean": AVG,
    "last": LAST,
}
# range function of a histogram → the field of the histogram's results that the function returns
PARTS_OVER_TIME = {
    "count_over_time": "count",
    "sum_over_time": "sum",
    "min_over_time": "min",
    "max_over_time": "max",
    "avg_over_time": "mean",
}
# kind of metric → range function that merges states of this kind over time → the aggregation that merges the same
# states over series, or None if no aggregation does. The first function of a kind, which `merge_of` returns, must keep
# the meaning of the values: ``increase`` of a count is a count, but ``rate`` is not.
MERGES: Mapping[str, Mapping[str, str | None]] = {
    SUM: {INCREASE: SUM, RATE: SUM, "sum_over_time": SUM},
    MIN: {"min_over_time": MIN},
    MAX: {"max_over_time": MAX},
    AVG: {"avg_over_time": AVG},
    LAST: {"last_over_time": None},
    GAUGE: {},
    HISTOGRAM: {
        INCREASE: SUM,
        RATE: SUM,
        **{name: KINDS_OF_RESULTS[field] for name, field in PARTS_OVER_TIME.items()},
        QUANTILE_OVER_TIME: None,
    },
    BUCKETS: {INCREASE: SUM, RATE: SUM, "sum_over_time": SUM},
}


def merge_of(kind: str) -> tuple[str, str] | None:
    """Return the first range function of a kind, and the aggregation that merges the same states over series. Return
    None if no aggregation merges the states.

    >>> merge_of(SUM), merge_of(MAX), merge_of(LAST), merge_of(GAUGE)
    (('increase', 'sum'), ('max_over_time', 'max'), None, None)
    """
    name, aggregation = next(iter(MERGES[kind].items()), ("", None))
    return (name, aggregation) if aggregation else None
