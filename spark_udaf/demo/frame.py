"""The frame of the demo."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa

import aggr
from aggr.compiling.jit import compile_at_first_call
from tiltframe import FrameStore, TiltFrame
from tiltframe.level_chain import climb, join_levels
from tiltframe.rolling_up import finest_states

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

# The frame with which the demo reduces the rows directly to states of the year, to check the states that were merged
# from hours.
YEARS = TiltFrame(levels=["1y"], time=FRAME.time, keys=FRAME.keys, timezone=FRAME.timezone, measures=FRAME.measures)
_SAMPLE_ROWS = 300  # the number of rows in a small sample, for which no loops are compiled


def run_locally(rows: pa.Table) -> None:
    """Roll up rows into a temporary store, and query the store. These steps compile or load the Numba loops of the
    demo.
    """
    hours = finest_states(rows.to_batches(), FRAME)
    _write(join_levels(climb(hours, FRAME), FRAME))


def compile_reducing(rows: pa.Table) -> None:
    """Compile or load the Numba loops that reduce the rows of the demo, and then the loops that write, query and check
    states.

    The loops that merge states are interpreted here, because another process compiles them in `compile_merging`.
    """
    finest_states(rows.to_batches(), FRAME)
    states = join_levels(climb(_few_hours(rows), FRAME), FRAME)
    with compile_at_first_call():
        _write(states)
    finest_states(rows.to_batches(), YEARS)


def compile_merging(rows: pa.Table) -> None:
    """Compile or load the Numba loops that merge the states of the demo, and then the loops that write and query
    states.
    """
    hours = _few_hours(rows)
    with compile_at_first_call():
        _write(join_levels(climb(hours, FRAME), FRAME))


def _few_hours(rows: pa.Table) -> pa.Table:
    """Reduce the first 300 rows to states of hours. The loops are interpreted, because there are so few rows."""
    return finest_states(rows.slice(0, _SAMPLE_ROWS).to_batches(), FRAME)


def _write(states: pa.Table) -> None:
    """Write the states of all levels into a temporary store, as the tasks of Spark do, and query the store."""
    with tempfile.TemporaryDirectory() as folder:
        store = FrameStore(Path(folder, "store"), FRAME)
        change = store.begin("demo", 1, states.schema)
        change.commit([change.write_rolled_up(states)])
        store.query("1y", keys=["origin"])
