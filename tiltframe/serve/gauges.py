"""Gauges for the metrics of the server: its release, the queue of queries, and the age of the newest windows."""

from __future__ import annotations

import time
from importlib.metadata import version

from tiltframe.serve.observed import Gauge
from tiltframe.serve.stores import Stores
from tiltframe.serve.workers import WorkerPool
from tiltframe.store import StoreError


def gauges_of(stores: Stores, pool: WorkerPool) -> list[Gauge]:
    """Return the gauges of the server: its release, the number of unfinished queries, and the age of the newest window
    of each store. The ages leave out stores that cannot be read or have no windows.
    """
    return [
        Gauge("build_info", "The release of the server.", {f'{{version="{version("tiltframe")}"}}': 1}),
        Gauge("queries_unfinished", "Number of queries and look-ups that run or wait.", {"": pool.unfinished}),
        Gauge("newest_window_age_seconds", "Seconds since the end of the newest window, by store.", _ages(stores)),
    ]


def _ages(stores: Stores) -> dict[str, float]:
    """Return the number of seconds since the end of the newest window of each store, by the labels of the gauge."""
    ages = {}
    for name in stores:
        try:
            view = stores.now(name)
            end = view.level(view.frame.levels[0].name).end
        except StoreError:
            continue
        if end is not None:
            ages[f'{{store="{name}"}}'] = time.time() - end / 1e6
    return ages
