"""tiltframe: a frame of windows of increasing length. Each level is merged from the states of the level below, without
added error.

>>> import aggr, pyarrow as pa
>>> frame = TiltFrame(["1s", "1m"], time="ts", measures={"requests": aggr.count()})
>>> finish(rollup(pa.table({"ts": [0, 500, 61_000]}), frame), frame).column("requests").to_pylist()
[2, 1, 2, 1]
"""

from tiltframe.capacity import explain
from tiltframe.files.read_options import ReadOptions
from tiltframe.frame import TiltFrame
from tiltframe.notebook import load_ipython_extension, show, to_pandas
from tiltframe.ordered.aggregation import RunningAggregation, running
from tiltframe.ordered.chain import OrderedFrame, OrderedRollup, finish_ordered, ordered_rollup
from tiltframe.results import finish
from tiltframe.rolling_up import rollup, rollup_states
from tiltframe.store import FrameStore, Query, StoreError, lookup


def __getattr__(name: str) -> str:
    """Read the version, ``tiltframe.__version__``, from the installed package."""
    if name == "__version__":
        from importlib.metadata import version  # imported here, because it imports email and zipfile

        return version("tiltframe")
    raise AttributeError(f"module 'tiltframe' has no attribute {name!r}")


__all__ = [
    "FrameStore",
    "OrderedFrame",
    "OrderedRollup",
    "Query",
    "ReadOptions",
    "RunningAggregation",
    "StoreError",
    "TiltFrame",
    "explain",
    "finish",
    "finish_ordered",
    "load_ipython_extension",
    "lookup",
    "ordered_rollup",
    "rollup",
    "rollup_states",
    "running",
    "show",
    "to_pandas",
]
