"""tiltframe: frames of windows of increasing length. The states of each level are merged from the states of the next
finer level, which adds no error.

>>> import aggr, pyarrow as pa
>>> frame = TiltFrame(["1s", "1m"], time="ts", measures={"requests": aggr.count()})
>>> finish(rollup(pa.table({"ts": [0, 500, 61_000]}), frame), frame).column("requests").to_pylist()
[2, 1, 2, 1]
"""

from typing import Any

from aggr.entry_points import NO_OBJECT, load_name
from tiltframe.files.read_options import ReadOptions
from tiltframe.frame import TiltFrame
from tiltframe.notebook import load_ipython_extension, show, to_pandas
from tiltframe.ordered.aggregation import RunningAggregation, running
from tiltframe.ordered.chain import OrderedFrame, OrderedRollup, finish_ordered, ordered_rollup
from tiltframe.results import finish
from tiltframe.rolling_up import rollup, rollup_states
from tiltframe.store import FrameStore, Query, StoreError


def __getattr__(name: str) -> Any:
    """Return the version for ``__version__``, or an object that an entry point of ``tiltframe.names`` adds under this
    name.
    """
    if name == "__version__":
        # importlib.metadata is imported only here, because it imports email and zipfile, which takes long.
        from importlib.metadata import version

        return version("tiltframe")
    if not name.startswith("_"):
        added = load_name("tiltframe.names", name)
        if added is not NO_OBJECT:
            return added
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
    "finish",
    "finish_ordered",
    "load_ipython_extension",
    "ordered_rollup",
    "rollup",
    "rollup_states",
    "running",
    "show",
    "to_pandas",
]
