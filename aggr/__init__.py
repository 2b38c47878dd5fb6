"""aggr: mergeable aggregate functions, whose states are Arrow columns.

A state is one row of an Arrow struct column. Merging states gives the state of all their rows. Its bits do not depend
on batches, partitions, the order of rows, or the tree of merges.

>>> import pyarrow as pa
>>> from aggr import Groups, Sum
>>> states = Sum().reduce(pa.array([1e16, 1.0, -1e16]), Groups.of([0, 1, 2], 3))
>>> Sum().finish(Sum().merge(states, Groups.single(3))).to_pylist()
[1.0]
"""

from collections.abc import Callable

from aggr.call_by_name import caller, each_column
from aggr.calls import *
from aggr.fields import CannotSubtract
from aggr.function import Function
from aggr.functions import *
from aggr.groups.groups import Groups
from aggr.measure import Measure, from_description
from aggr.registry import UnknownFunction, get, names, register, unregister
from aggr.tables.by_key import subtract
from aggr.tables.keys import each
from aggr.tables.retention import retention
from aggr.testing.edge_cases import edge_cases


def __getattr__(name: str) -> Callable[..., Measure]:
    """Return the call of a function that another package has registered: ``aggr.geomean("x")``."""
    if not name.startswith("_"):
        try:
            return caller(name)
        except UnknownFunction as error:
            raise AttributeError(f"module 'aggr' has no attribute {name!r}: {error}") from None
    raise AttributeError(f"module 'aggr' has no attribute {name!r}")


__all__ = [
    "M4", "R2", "AnyValue", "ApproxCountDistinct", "ArgMax", "ArgMin", "Avg", "AvgDistinct", "BitAnd", "BitOr",
    "BitXor", "BoolAnd", "BoolOr", "BottomK", "Candlestick", "CannotSubtract", "Collect", "CollectSet", "Corr",
    "Count", "CountDistinct", "Covar", "Dds", "DecayedAvg", "DecayedCount", "DecayedSum", "Delta", "DurationIn",
    "Entropy", "ExactQuantiles", "Exponential", "First", "Frequent", "Function", "Funnel", "GeometricMean", "Groups",
    "HarmonicMean", "Hdr", "Histogram", "Hll", "Increase", "Integral", "Intercept", "Kurtosis", "Last", "Lttb", "Max",
    "Measure", "Min", "Mode", "Per", "PerGroup", "Points", "Range", "Rate", "Resets", "Rms", "Skewness", "Slope",
    "Stdev", "Sum", "SumDistinct", "SumOfSquares", "TimeWeightedAvg", "TopK", "UnknownFunction", "ValueCounts", "Var",
    "WeightedAvg", "any_value", "approx_count_distinct", "arg_max", "arg_min", "avg", "avg_distinct", "bit_and",
    "bit_or", "bit_xor", "bool_and", "bool_or", "bottom_k", "caller", "candlestick", "collect", "collect_set", "corr",
    "count", "count_distinct", "covar", "dds", "decayed_avg", "decayed_count", "decayed_sum", "delta", "duration_in",
    "each", "each_column", "edge_cases", "entropy", "exact_quantiles", "exponential", "first", "frequent",
    "from_description", "funnel", "geometric_mean", "get", "harmonic_mean", "hdr", "histogram", "hll", "increase",
    "integral", "intercept", "kurtosis", "last", "lttb", "m4", "max", "mean", "min", "mode", "names", "per", "points",
    "r2", "range", "rate", "register", "resets", "retention", "rms", "skewness", "slope", "stddev", "stdev",
    "subtract", "sum", "sum_distinct", "sum_of_squares", "time_weighted_avg", "top_k", "unregister", "value_counts",
    "var", "variance", "weighted_avg",
]  # fmt: skip
