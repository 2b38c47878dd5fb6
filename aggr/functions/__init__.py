"""The functions of the core, one file per state. `OWN` lists the functions that this package registers."""

from aggr.functions.approx_count_distinct import ApproxCountDistinct
from aggr.functions.arg_min_max import ArgMax, ArgMin
from aggr.functions.collect import Collect
from aggr.functions.count import Count
from aggr.functions.ddsketch import Dds
from aggr.functions.distinct_values import AvgDistinct, CollectSet, CountDistinct, SumDistinct
from aggr.functions.first_last import AnyValue, First, Last
from aggr.functions.hdrhistogram import Hdr
from aggr.functions.min_max import BoolAnd, BoolOr, Max, Min
from aggr.functions.moments import Avg, Rms, Stdev, Sum, SumOfSquares, Var
from aggr.functions.python_function import PerGroup
from aggr.functions.value_counts import Entropy, ExactQuantiles, Mode, ValueCounts

OWN = (
    Count, Sum, Avg, Var, Stdev, Dds, Hdr, Min, Max, First, Last, ArgMin, ArgMax, Collect, CollectSet,
    CountDistinct, ApproxCountDistinct, ValueCounts, Mode, Entropy, ExactQuantiles, AnyValue, BoolAnd, BoolOr,
    SumOfSquares, Rms, SumDistinct, AvgDistinct,
)  # fmt: skip

__all__ = [
    "AnyValue", "ApproxCountDistinct", "ArgMax", "ArgMin", "Avg", "AvgDistinct", "BoolAnd", "BoolOr", "Collect",
    "CollectSet", "Count", "CountDistinct", "Dds", "Entropy", "ExactQuantiles", "First", "Hdr", "Last", "Max",
    "Min", "Mode", "PerGroup", "Rms", "Stdev", "Sum", "SumDistinct", "SumOfSquares", "ValueCounts", "Var",
]  # fmt: skip
