"""aggr: mergeable aggregate functions, whose states are Arrow columns.

A state is one row of an Arrow struct column, which summarizes the rows of a group. Merging the states of several groups
returns the state of all their rows together. Its bits do not depend on batches, partitions, the order of rows, or the
tree of merges.

>>> import pyarrow as pa
>>> from aggr import Groups, Sum
>>> states = Sum().reduce(pa.array([1e16, 1.0, -1e16]), Groups.of([0, 1, 2], 3))
>>> Sum().finish(Sum().merge(states, Groups.single(3))).to_pylist()
[1.0]
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from aggr.call_by_name import caller, each_column
from aggr.calls import *
from aggr.fields import CannotSubtract
from aggr.function import Function
from aggr.functions import *
from aggr.groups.groups import Groups
from aggr.measure import Measure, from_description
from aggr.registry import UnknownFunction, class_named, class_names, get, names, register, unregister
from aggr.tables.by_key import subtract
from aggr.tables.keys import each
from aggr.tables.retention import retention
from aggr.testing.edge_cases import edge_cases

if TYPE_CHECKING:
    # This import is for type checkers, which do not read the entry points by which `__getattr__` finds these functions.
    from aggr.contrib import *


def __getattr__(name: str) -> Any:
    """Return the measure constructor, such as ``aggr.rate``, or the class, such as ``aggr.Rate``, of a function that an
    entry point registers.
    """
    if not name.startswith("_"):
        function = class_named(name)
        if function is not None:
            return function
        try:
            return caller(name)
        except UnknownFunction as error:
            if name.isidentifier() and find_spec(f"aggr.{name}") is not None:
                raise AttributeError(
                    f"the module aggr.{name} is not imported; add 'import aggr.{name}', or import its names: "
                    f"'from aggr.{name} import …'"
                ) from None
            raise AttributeError(f"module 'aggr' has no attribute {name!r}: {error}") from None
    raise AttributeError(f"module 'aggr' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *names(), *class_names()})


__all__ = [
    "AnyValue", "ApproxCountDistinct", "ArgMax", "ArgMin", "Avg", "AvgDistinct",
    "CannotSubtract", "Collect", "CollectSet", "Count", "CountDistinct", "Dds", "ExactQuantiles",
    "First", "Function", "Groups", "Hdr", "Last", "Max", "Measure", "Min", "PerGroup", "Stdev",
    "Sum", "SumDistinct", "UnknownFunction", "ValueCounts", "Var", "any_value",
    "approx_count_distinct", "arg_max", "arg_min", "avg", "avg_distinct", "caller",
    "collect", "collect_set", "count", "count_distinct", "dds", "each", "each_column", "edge_cases",
    "exact_quantiles", "first", "from_description", "get", "hdr", "last", "max", "mean", "min", "names",
    "register", "retention", "stddev", "stdev", "subtract", "sum", "sum_distinct",
    "unregister", "value_counts", "var", "variance",
]  # fmt: skip
