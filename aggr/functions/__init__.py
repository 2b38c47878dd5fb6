"""The built-in functions, one file per state. `OWN` lists the functions that this package registers."""

from aggr.functions.approx_count_distinct import ApproxCountDistinct
from aggr.functions.arg_min_max import ArgMax, ArgMin
from aggr.functions.bits import BitAnd, BitOr, BitXor
from aggr.functions.candlestick import Candlestick
from aggr.functions.collect import Collect
from aggr.functions.count import Count
from aggr.functions.counters import Delta, Increase, Rate, Resets
from aggr.functions.ddsketch import Dds
from aggr.functions.decayed import DecayedAvg, DecayedCount, DecayedSum
from aggr.functions.distinct_values import AvgDistinct, CollectSet, CountDistinct, SumDistinct
from aggr.functions.exponential import Exponential
from aggr.functions.first_last import AnyValue, First, Last
from aggr.functions.frequent import Frequent
from aggr.functions.funnel import Funnel
from aggr.functions.hdrhistogram import Hdr
from aggr.functions.histogram import Histogram
from aggr.functions.hll import Hll
from aggr.functions.m4 import M4
from aggr.functions.min_max import BoolAnd, BoolOr, Max, Min
from aggr.functions.moments import Avg, Rms, Stdev, Sum, SumOfSquares, Var
from aggr.functions.per import Per
from aggr.functions.points import Lttb, Points
from aggr.functions.positive_means import GeometricMean, HarmonicMean
from aggr.functions.python_function import PerGroup
from aggr.functions.range import Range
from aggr.functions.regression import R2, Corr, Covar, Intercept, Slope
from aggr.functions.shape import Kurtosis, Skewness
from aggr.functions.time_weighted import DurationIn, Integral, TimeWeightedAvg
from aggr.functions.top_k import BottomK, TopK
from aggr.functions.value_counts import Entropy, ExactQuantiles, Mode, ValueCounts
from aggr.functions.weighted_avg import WeightedAvg

OWN = (
    *(Count, Sum, Avg, Var, Stdev, WeightedAvg, Skewness, Kurtosis, Covar, Corr, Slope, Intercept, R2, Dds, Hdr),
    *(Min, Max, First, Last, ArgMin, ArgMax, Collect, CollectSet, CountDistinct, ApproxCountDistinct, Hll),
    *(TopK, BottomK, Histogram, Per, ValueCounts, Mode, Entropy, ExactQuantiles, Frequent),
    *(AnyValue, BoolAnd, BoolOr, BitAnd, BitOr, BitXor, Range, SumOfSquares, Rms, GeometricMean, HarmonicMean),
    *(SumDistinct, AvgDistinct, M4, Candlestick, Exponential, DecayedSum, DecayedAvg, DecayedCount),
    *(Points, Rate, Increase, Delta, Resets, TimeWeightedAvg, Integral, DurationIn, Lttb, Funnel),
)

__all__ = [
    "M4", "R2", "AnyValue", "ApproxCountDistinct", "ArgMax", "ArgMin", "Avg", "AvgDistinct", "BitAnd", "BitOr",
    "BitXor", "BoolAnd", "BoolOr", "BottomK", "Candlestick", "Collect", "CollectSet", "Corr", "Count", "CountDistinct",
    "Covar", "Dds", "DecayedAvg", "DecayedCount", "DecayedSum", "Delta", "DurationIn", "Entropy", "ExactQuantiles",
    "Exponential", "First", "Frequent", "Funnel", "GeometricMean", "HarmonicMean", "Hdr", "Histogram", "Hll",
    "Increase", "Integral", "Intercept", "Kurtosis", "Last", "Lttb", "Max", "Min", "Mode", "Per", "PerGroup", "Points",
    "Range", "Rate", "Resets", "Rms", "Skewness", "Slope", "Stdev", "Sum", "SumDistinct", "SumOfSquares",
    "TimeWeightedAvg", "TopK", "ValueCounts", "Var", "WeightedAvg",
]  # fmt: skip
