"""The frame of the demo."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa

import aggr
from tiltframe import FrameStore, TiltFrame, rollup

QUANTILES = [0.5, 0.9, 0.99]
FRAME = TiltFrame(
    levels=["1h", "1d", "1mo", "1y"],
    time="ts",
    keys=["origin", "carrier"],
    timezone="America/New_York",
    measures={
        "flights": aggr.count(),
        "departed": aggr.count("dep_delay"),
        "dep_delay": aggr.exact_quantiles("dep_delay", QUANTILES),
        "arr_delay": aggr.exact_quantiles("arr_delay", QUANTILES),
        "air_time": aggr.hdr("air_time", [0.5]),
        "mean_miles": aggr.avg("distance"),
        "stdev_miles": aggr.stdev("distance"),
    },
)


def run_locally(rows: pa.Table) -> None:
    """Roll up rows into a temporary store, and query it. This compiles, or loads, the loops that the demo needs."""
    with tempfile.TemporaryDirectory() as folder:
        store = FrameStore(Path(folder, "store"), FRAME)
        store.append(rollup(rows, FRAME, jobs=1), "demo", 1)
        store.query("1y", keys=["origin"])
