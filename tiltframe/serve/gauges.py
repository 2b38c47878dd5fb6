"""A gauge of the age of each store's newest window. The ages are computed when Prometheus scrapes the metrics."""

from __future__ import annotations

import time
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tiltframe.serve.stores import Stores
from tiltframe.store import StoreError


class WindowAges(Collector):
    """A gauge of the age of the newest window of each store. The gauge leaves out stores that cannot be read or have no
    windows.
    """

    def __init__(self, stores: Stores) -> None:
        """Create the gauge without reading the stores."""
        self._stores = stores

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauge with its current values."""
        ages = GaugeMetricFamily(
            "tiltframe_newest_window_age_seconds",
            "Seconds since the end of the newest window, by store.",
            labels=["store"],
        )
        for name in self._stores:
            try:
                view = self._stores.current_view(name)
                end = view.level(view.frame.levels[0].name).end
            except StoreError:
                continue
            if end is not None:
                ages.add_metric([name], time.time() - end / 1e6)
        yield ages
