"""aggr: mergeable aggregate functions, their states as Arrow columns.

A state is one row of an Arrow struct column. Merging states gives the very state that the merged rows would
have given: the same bits, whatever the batches, the partitions, the order or the tree of merges.

>>> import pyarrow as pa
>>> from aggr import Groups, Sum
>>> states = Sum().reduce(pa.array([1e16, 1.0, -1e16]), Groups.of([0, 1, 2], 3))
>>> Sum().finish(Sum().merge(states, Groups.single(3))).to_pylist()
[1.0]
"""

from collections.abc import Callable

from aggr.caller import caller
from aggr.calls import avg, count, dds, first, hdr, last, max, min, stdev, sum, var
from aggr.count import Count
from aggr.dds import Dds
from aggr.events import First, Last
from aggr.extremes import Max, Min
from aggr.function import Function
from aggr.groups import Groups
from aggr.hdr import Hdr
from aggr.measure import Measure, from_description
from aggr.moments import Avg, Stdev, Sum, Var
from aggr.per_group import PerGroup
from aggr.registry import UnknownFunction, get, names, register, unregister
from aggr.ugly import ugly


def __getattr__(name: str) -> Callable[..., Measure]:
    """Find the call of a function that was registered from outside: ``aggr.geomean("x")``."""
    if not name.startswith("_"):
        try:
            return caller(name)
        except UnknownFunction:
            pass
    raise AttributeError(f"module 'aggr' has no attribute {name!r}")


for _function in (Count, Min, Max, Sum, Avg, Var, Stdev, Hdr, Dds, First, Last):
    register(_function)

__all__ = [
    "Avg",
    "Count",
    "Dds",
    "First",
    "Function",
    "Groups",
    "Hdr",
    "Last",
    "Max",
    "Measure",
    "Min",
    "PerGroup",
    "Stdev",
    "Sum",
    "UnknownFunction",
    "Var",
    "avg",
    "caller",
    "count",
    "dds",
    "first",
    "from_description",
    "get",
    "hdr",
    "last",
    "max",
    "min",
    "names",
    "register",
    "stdev",
    "sum",
    "ugly",
    "unregister",
    "var",
]
