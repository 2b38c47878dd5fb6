"""Benchmarks of any mergeable function and of other packages: speed, bytes of states, errors and memory.

>>> import aggr.bench
>>> report = aggr.bench.bench(aggr.max("x"), against=(), rows=1000, groups=(1, 10), rounds=1, memory=False)
>>> sorted({timing.groups for timing in report.timings})
[1, 10]
"""

from aggr.bench.distributions import DISTRIBUTIONS, draw
from aggr.bench.peers import Peer, SketchPeer, read_peer
from aggr.bench.report import Error, Memory, Report, Size, Timing, Traffic
from aggr.bench.run import bench
from aggr.bench.text_tables import as_text
from aggr.bench.timing import alternate, circumstances, one_core

__all__ = [
    "DISTRIBUTIONS", "Error", "Memory", "Peer", "Report", "Size", "SketchPeer", "Timing", "Traffic", "alternate",
    "as_text", "bench", "circumstances", "draw", "one_core", "read_peer",
]  # fmt: skip
