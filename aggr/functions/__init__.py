"""The functions of the core, one file per state. `OWN` lists the functions that this package registers."""

from aggr.functions.approx_count_distinct import ApproxCountDistinct
from aggr.functions.arg_min_max import ArgMax, ArgMin
from aggr.functions.collect import Collect
from aggr.functions.count import Count
from aggr.functions.ddsketch import Dds
from aggr.functions.distinct_values import AvgDistinct, CollectSet, CountDistinct, SumDistinct
from aggr.functions.first_last import AnyValue, First, Last
from aggr.functions.hdrhistogram import Hdr
from aggr.functions.min_max import Max, Min
from aggr.functions.moments import Avg, Stdev, Sum, Var
from aggr.functions.python_function import PerGroup
from aggr.functions.value_counts import ExactQuantiles, ValueCounts

OWN = (
    Count, Sum, Avg, Var, Stdev, Dds, Hdr, Min, Max, First, Last, ArgMin, ArgMax, AnyValue, Collect, CollectSet,
    CountDistinct, ApproxCountDistinct, ExactQuantiles,
    # users call these two functions as sum(x, distinct=True) and avg(x, distinct=True)
    SumDistinct, AvgDistinct,

    # value_counts belongs to the core, because the core function exact_quantiles has the same state
    ValueCounts,
)  # fmt: skip

__all__ = [
    "AnyValue", "ApproxCountDistinct", "ArgMax", "ArgMin", "Avg", "AvgDistinct", "Collect",
    "CollectSet", "Count", "CountDistinct", "Dds", "ExactQuantiles", "First", "Hdr", "Last", "Max",
    "Min", "PerGroup", "Stdev", "Sum", "SumDistinct", "ValueCounts", "Var",
]  # fmt: skip
