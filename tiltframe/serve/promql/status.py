"""Responses about the server itself, in the format of Prometheus. The web page of Prometheus and Grafana's data source
request them.

The server scrapes no targets and evaluates no rules, so its lists of targets and rules are empty.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tiltframe.serve.cost import Limits
from tiltframe.serve.promql.metrics import Metric
from tiltframe.store import StoreView

_STARTED = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
_LONGEST_LIST = 10  # the maximum number of entries in a list, as in Prometheus

CONSTANT_ANSWERS: Mapping[str, Any] = {
    "rules": {"groups": []},
    "alerts": {"alerts": []},
    "query_exemplars": [],
    "targets": {"activeTargets": [], "droppedTargets": [], "droppedTargetCounts": {}},
    "targets/metadata": [],
    "targets/relabel_steps": {"steps": []},
    "scrape_pools": {"scrapePools": []},
    "alertmanagers": {"activeAlertmanagers": [], "droppedAlertmanagers": []},
    "notifications": [],
    "features": {},
    "status/config": {"yaml": ""},
    "status/walreplay": {"min": 0, "max": 0, "current": 0, "state": "done"},
}


def runtime_information(views: Iterable[StoreView]) -> dict[str, Any]:
    """Return information about the running process. The number of series is left out, because states would have to be
    read to count the series.
    """
    return {
        "startTime": _STARTED,
        "CWD": "",
        "reloadConfigSuccess": True,
        "lastConfigTime": _STARTED,
        "corruptionCount": 0,
        "goroutineCount": 0,
        "GOMAXPROCS": os.cpu_count() or 1,
        "GOMEMLIMIT": sys.maxsize,
        "GOGC": "",
        "GODEBUG": "",
        "storageRetention": "; ".join(_retention(view) for view in views),
    }


def _retention(view: StoreView) -> str:
    retention = view.manifest.retention
    return ", ".join(f"{level.name} {retention.get(level.name, 'for ever')}" for level in view.frame.levels)


def flags_of(limits: Limits) -> dict[str, str]:
    """Return the limits of the server as texts, by the names of their options on the command line."""
    return {f"max-{name}": str(value) for name, value in vars(limits).items()}


def store_statistics(metrics: Mapping[str, Sequence[Metric]]) -> dict[str, Any]:
    """Return, for the stores, the statistics that Prometheus returns for its own database. Statistics for which states
    would have to be read are 0 or empty.
    """
    all_metrics = [metric for metrics_of_name in metrics.values() for metric in metrics_of_name]
    views = list({metric.store_name: metric.view for metric in all_metrics}.values())
    levels = [view.level(level.name) for view in views for level in view.frame.levels]
    starts = [level.first_start for level in levels if level.first_start is not None]
    last_ends = [level.end for level in levels if level.end is not None]
    labels = Counter(label for metric in all_metrics for label in metric.labels)
    return {
        "headStats": {
            "numSeries": 0,
            "numLabelPairs": 0,
            "chunkCount": sum(level.rows for level in levels),
            "minTime": min(starts, default=0) // 1000,
            "maxTime": max(last_ends, default=0) // 1000,
        },
        "seriesCountByMetricName": [],
        "labelValueCountByLabelName": [],
        "memoryInBytesByLabelName": [],
        "seriesCountByLabelValuePair": [
            {"name": f"{label}", "value": count} for label, count in labels.most_common(_LONGEST_LIST)
        ],
    }
