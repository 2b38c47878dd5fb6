"""Functions outside the core, one file per state. `aggr` finds them by the entry points of the group
`aggr.functions`.
"""

from aggr.contrib.bits import BitAnd, BitOr, BitXor
from aggr.contrib.booleans import BoolAnd, BoolOr
from aggr.contrib.candlestick import Candlestick
from aggr.contrib.counters import Delta, Increase, Rate, Resets
from aggr.contrib.decayed import DecayedAvg, DecayedCount, DecayedSum
from aggr.contrib.distributions import Entropy, Mode
from aggr.contrib.exponential import Exponential
from aggr.contrib.frequent import Frequent
from aggr.contrib.funnel import Funnel
from aggr.contrib.histogram import Histogram
from aggr.contrib.hll import Hll
from aggr.contrib.m4 import M4
from aggr.contrib.per import Per
from aggr.contrib.points import Lttb, Points
from aggr.contrib.positive_means import GeometricMean, HarmonicMean
from aggr.contrib.range import Range
from aggr.contrib.regression import R2, Corr, Covar, Intercept, Slope
from aggr.contrib.shape import Kurtosis, Skewness
from aggr.contrib.squares import Rms, SumOfSquares
from aggr.contrib.time_weighted import DurationIn, Integral, TimeWeightedAvg
from aggr.contrib.top_k import BottomK, TopK
from aggr.contrib.weighted_avg import WeightedAvg

__all__ = [
    "M4",
    "R2",
    "BitAnd",
    "BitOr",
    "BitXor",
    "BoolAnd",
    "BoolOr",
    "BottomK",
    "Candlestick",
    "Corr",
    "Covar",
    "DecayedAvg",
    "DecayedCount",
    "DecayedSum",
    "Delta",
    "DurationIn",
    "Entropy",
    "Exponential",
    "Frequent",
    "Funnel",
    "GeometricMean",
    "HarmonicMean",
    "Histogram",
    "Hll",
    "Increase",
    "Integral",
    "Intercept",
    "Kurtosis",
    "Lttb",
    "Mode",
    "Per",
    "Points",
    "Range",
    "Rate",
    "Resets",
    "Rms",
    "Skewness",
    "Slope",
    "SumOfSquares",
    "TimeWeightedAvg",
    "TopK",
    "WeightedAvg",
]  # fmt: skip
