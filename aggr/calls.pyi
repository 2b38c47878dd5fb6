"""Written by `python -m tests.contrib.test_function_signatures`, from the registry."""

from collections.abc import Mapping, Sequence
from decimal import Decimal

from aggr.measure import Measure

def any_value(column: str, *, by: str | None = None, where: str | None = None) -> Measure: ...
def approx_count_distinct(column: str, k: int = 4096, *, where: str | None = None) -> Measure: ...
def arg_max(column: str, by: str, *, where: str | None = None) -> Measure: ...
def arg_min(column: str, by: str, *, where: str | None = None) -> Measure: ...
def avg(column: str, *, where: str | None = None, weight: str | None = None, distinct: bool = False) -> Measure: ...
def avg_distinct(column: str, max: int = 10000, beyond: str = "error", *, where: str | None = None) -> Measure: ...
def bit_and(column: str, *, where: str | None = None) -> Measure: ...
def bit_or(column: str, *, where: str | None = None) -> Measure: ...
def bit_xor(column: str, *, where: str | None = None) -> Measure: ...
def bool_and(column: str, *, where: str | None = None) -> Measure: ...
def bool_or(column: str, *, where: str | None = None) -> Measure: ...
def bottom_k(column: str, by: str, k: int = 10, *, where: str | None = None) -> Measure: ...
def candlestick(column: str, volume: str, *, by: str | None = None, where: str | None = None) -> Measure: ...
def collect(
    column: str | Sequence[str],
    max: int = 10000,
    keep: str = "all",
    nested: str | Sequence[str] = (),
    beyond: str = "error",
    *,
    by: str | None = None,
    where: str | None = None,
) -> Measure: ...
def collect_set(column: str, max: int = 10000, beyond: str = "error", *, where: str | None = None) -> Measure: ...
def corr(column: str, x: str, *, where: str | None = None) -> Measure: ...
def count(
    column: str | None = None, *, where: str | None = None, weight: str | None = None, distinct: bool = False
) -> Measure: ...
def count_distinct(column: str, max: int = 10000, beyond: str = "error", *, where: str | None = None) -> Measure: ...
def covar(column: str, x: str, ddof: int = 1, *, where: str | None = None) -> Measure: ...
def dds(
    column: str,
    quantiles: Sequence[float] | float = (0.5, 0.9, 0.99),
    relative_accuracy: float = 0.01,
    max_bins: int | None = None,
    method: str = "lower",
    *,
    where: str | None = None,
    weight: str | None = None,
) -> Measure: ...
def decayed_avg(
    column: str, half_life: str = "1h", as_of: str | None = None, *, by: str | None = None, where: str | None = None
) -> Measure: ...
def decayed_count(
    column: str, half_life: str = "1h", as_of: str | None = None, *, by: str | None = None, where: str | None = None
) -> Measure: ...
def decayed_sum(
    column: str, half_life: str = "1h", as_of: str | None = None, *, by: str | None = None, where: str | None = None
) -> Measure: ...
def delta(
    column: str,
    extrapolate: str | None = None,
    max: int = 10000,
    keep: str = "all",
    beyond: str = "error",
    *,
    by: str | None = None,
    where: str | None = None,
) -> Measure: ...
def duration_in(
    column: str,
    state: bool | int | float | str = True,
    max: int = 10000,
    keep: str = "all",
    beyond: str = "error",
    *,
    by: str | None = None,
    where: str | None = None,
) -> Measure: ...
def entropy(
    column: str, max: int = 10000, beyond: str = "error", *, where: str | None = None, weight: str | None = None
) -> Measure: ...
def exact_quantiles(
    column: str,
    quantiles: Sequence[float] | float = (0.5, 0.9, 0.99),
    max: int = 10000,
    method: str = "lower",
    beyond: str = "error",
    *,
    where: str | None = None,
    weight: str | None = None,
) -> Measure: ...
def exponential(
    column: str,
    quantiles: Sequence[float] | float = (0.5, 0.9, 0.99),
    scale: int = 20,
    max_buckets: int = 160,
    method: str = "lower",
    *,
    where: str | None = None,
    weight: str | None = None,
) -> Measure: ...
def first(column: str, *, by: str | None = None, where: str | None = None) -> Measure: ...
def frequent(
    column: str, share: float = 0.01, *, by: str | None = None, where: str | None = None, weight: str | None = None
) -> Measure: ...
def funnel(
    column: str,
    steps: Sequence[str] = (),
    within: str = "1h",
    max: int = 10000,
    keep: str = "all",
    beyond: str = "error",
    *,
    by: str | None = None,
    where: str | None = None,
) -> Measure: ...
def geometric_mean(column: str, *, where: str | None = None, weight: str | None = None) -> Measure: ...
def harmonic_mean(column: str, *, where: str | None = None, weight: str | None = None) -> Measure: ...
def hdr(
    column: str,
    quantiles: Sequence[float] | float = (0.5, 0.9, 0.99),
    digits: int = 3,
    unit: float | None = None,
    method: str = "hdrhistogram",
    bad_values: str = "error",
    *,
    where: str | None = None,
    weight: str | None = None,
) -> Measure: ...
def histogram(
    column: str,
    edges: Sequence[float | Decimal | str] = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    *,
    where: str | None = None,
    weight: str | None = None,
) -> Measure: ...
def hll(column: str, lg_k: int = 12, *, where: str | None = None) -> Measure: ...
def increase(
    column: str,
    extrapolate: str | None = None,
    max: int = 10000,
    keep: str = "all",
    beyond: str = "error",
    *,
    by: str | None = None,
    where: str | None = None,
) -> Measure: ...
def integral(
    column: str,
    method: str = "step",
    unit: str = "1s",
    max: int = 10000,
    keep: str = "all",
    beyond: str = "error",
    *,
    by: str | None = None,
    where: str | None = None,
) -> Measure: ...
def intercept(column: str, x: str, *, where: str | None = None) -> Measure: ...
def kurtosis(column: str, sample: bool = False, *, where: str | None = None) -> Measure: ...
def last(column: str, *, by: str | None = None, where: str | None = None) -> Measure: ...
def lttb(
    column: str,
    n: int = 100,
    max: int = 10000,
    keep: str = "all",
    beyond: str = "error",
    *,
    by: str | None = None,
    where: str | None = None,
) -> Measure: ...
def m4(column: str, *, by: str | None = None, where: str | None = None) -> Measure: ...
def max(column: str, *, where: str | None = None) -> Measure: ...
def mean(column: str, *, where: str | None = None, weight: str | None = None, distinct: bool = False) -> Measure: ...
def min(column: str, *, where: str | None = None) -> Measure: ...
def mode(
    column: str, max: int = 10000, beyond: str = "error", *, where: str | None = None, weight: str | None = None
) -> Measure: ...
def per(
    column: str,
    of: Mapping[str, Measure] | None = None,
    max: int = 10000,
    beyond: str = "error",
    top: int | None = None,
    by: str | None = None,
    *,
    where: str | None = None,
    weight: str | None = None,
) -> Measure: ...
def points(
    column: str,
    max: int = 10000,
    keep: str = "all",
    beyond: str = "error",
    *,
    by: str | None = None,
    where: str | None = None,
) -> Measure: ...
def r2(column: str, x: str, *, where: str | None = None) -> Measure: ...
def range(column: str, *, where: str | None = None) -> Measure: ...
def rate(
    column: str,
    extrapolate: str | None = None,
    max: int = 10000,
    keep: str = "all",
    beyond: str = "error",
    *,
    by: str | None = None,
    where: str | None = None,
) -> Measure: ...
def resets(
    column: str,
    max: int = 10000,
    keep: str = "all",
    beyond: str = "error",
    *,
    by: str | None = None,
    where: str | None = None,
) -> Measure: ...
def rms(column: str, *, where: str | None = None) -> Measure: ...
def skewness(column: str, sample: bool = False, *, where: str | None = None) -> Measure: ...
def slope(column: str, x: str, *, where: str | None = None) -> Measure: ...
def stddev(column: str, ddof: int = 1, *, where: str | None = None) -> Measure: ...
def stdev(column: str, ddof: int = 1, *, where: str | None = None) -> Measure: ...
def sum(
    column: str,
    dtype: str | None = None,
    *,
    where: str | None = None,
    weight: str | None = None,
    distinct: bool = False,
) -> Measure: ...
def sum_distinct(column: str, max: int = 10000, beyond: str = "error", *, where: str | None = None) -> Measure: ...
def sum_of_squares(column: str, *, where: str | None = None) -> Measure: ...
def time_weighted_avg(
    column: str,
    method: str = "step",
    max: int = 10000,
    keep: str = "all",
    beyond: str = "error",
    *,
    by: str | None = None,
    where: str | None = None,
) -> Measure: ...
def top_k(column: str, by: str, k: int = 10, *, where: str | None = None) -> Measure: ...
def value_counts(
    column: str,
    max: int = 10000,
    top: int | None = None,
    beyond: str = "error",
    *,
    where: str | None = None,
    weight: str | None = None,
) -> Measure: ...
def var(column: str, ddof: int = 1, *, where: str | None = None) -> Measure: ...
def variance(column: str, ddof: int = 1, *, where: str | None = None) -> Measure: ...
def weighted_avg(column: str, weight: str, *, where: str | None = None) -> Measure: ...
