"""Written by `python -m tests.contrib.test_function_signatures`, from the registry."""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import DataType

from aggr.measure import Measure

class Functions:
    def __init__(self, df: DataFrame) -> None: ...
    @staticmethod
    def any_value(
        column: Column | str,
        *,
        by: Column | str | None = None,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def approx_count_distinct(
        column: Column | str,
        k: int = 4096,
        *,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def arg_max(
        column: Column | str,
        by: Column | str,
        *,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def arg_min(
        column: Column | str,
        by: Column | str,
        *,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def avg(
        column: Column | str,
        *,
        where: Column | str | None = None,
        weight: Column | str | None = None,
        distinct: bool = False,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def avg_distinct(
        column: Column | str,
        max: int = 10000,
        beyond: str = "error",
        *,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def bit_and(
        column: Column | str,
        *,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def bit_or(
        column: Column | str,
        *,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def bit_xor(
        column: Column | str,
        *,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def bool_and(
        column: Column | str,
        *,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def bool_or(
        column: Column | str,
        *,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def bottom_k(
        column: Column | str,
        by: Column | str,
        k: int = 10,
        *,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def candlestick(
        column: Column | str,
        volume: Column | str,
        *,
        by: Column | str | None = None,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def collect(
        column: Column | str | Sequence[Column | str],
        max: int = 10000,
        keep: str = "all",
        nested: str | Sequence[str] = (),
        beyond: str = "error",
        *,
        by: Column | str | None = None,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def collect_set(
        column: Column | str,
        max: int = 10000,
        beyond: str = "error",
        *,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def corr(
        column: Column | str,
        x: Column | str,
        *,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def count(
        column: Column | str | None = None,
        *,
        where: Column | str | None = None,
        weight: Column | str | None = None,
        distinct: bool = False,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def count_distinct(
        column: Column | str,
        max: int = 10000,
        beyond: str = "error",
        *,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def covar(
        column: Column | str,
        x: Column | str,
        ddof: int = 1,
        *,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def dds(
        column: Column | str,
        quantiles: Sequence[float] | float = (0.5, 0.9, 0.99),
        relative_accuracy: float = 0.01,
        max_bins: int | None = None,
        method: str = "lower",
        *,
        where: Column | str | None = None,
        weight: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def decayed_avg(
        column: Column | str,
        half_life: str = "1h",
        as_of: str | None = None,
        *,
        by: Column | str | None = None,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def decayed_count(
        column: Column | str,
        half_life: str = "1h",
        as_of: str | None = None,
        *,
        by: Column | str | None = None,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def decayed_sum(
        column: Column | str,
        half_life: str = "1h",
        as_of: str | None = None,
        *,
        by: Column | str | None = None,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def delta(
        column: Column | str,
        extrapolate: str | None = None,
        max: int = 10000,
        keep: str = "all",
        beyond: str = "error",
        *,
        by: Column | str | None = None,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def duration_in(
        column: Column | str,
        state: bool | int | float | str = True,
        max: int = 10000,
        keep: str = "all",
        beyond: str = "error",
        *,
        by: Column | str | None = None,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def entropy(
        column: Column | str,
        max: int = 10000,
        beyond: str = "error",
        *,
        where: Column | str | None = None,
        weight: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def exact_quantiles(
        column: Column | str,
        quantiles: Sequence[float] | float = (0.5, 0.9, 0.99),
        max: int = 10000,
        method: str = "lower",
        beyond: str = "error",
        *,
        where: Column | str | None = None,
        weight: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def exponential(
        column: Column | str,
        quantiles: Sequence[float] | float = (0.5, 0.9, 0.99),
        scale: int = 20,
        max_buckets: int = 160,
        method: str = "lower",
        *,
        where: Column | str | None = None,
        weight: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def first(
        column: Column | str,
        *,
        by: Column | str | None = None,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def frequent(
        column: Column | str,
        share: float = 0.01,
        *,
        by: Column | str | None = None,
        where: Column | str | None = None,
        weight: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def funnel(
        column: Column | str,
        steps: Sequence[str] = (),
        within: str = "1h",
        max: int = 10000,
        keep: str = "all",
        beyond: str = "error",
        *,
        by: Column | str | None = None,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def geometric_mean(
        column: Column | str,
        *,
        where: Column | str | None = None,
        weight: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def harmonic_mean(
        column: Column | str,
        *,
        where: Column | str | None = None,
        weight: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def hdr(
        column: Column | str,
        quantiles: Sequence[float] | float = (0.5, 0.9, 0.99),
        digits: int = 3,
        unit: float | None = None,
        method: str = "hdrhistogram",
        bad_values: str = "error",
        *,
        where: Column | str | None = None,
        weight: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def histogram(
        column: Column | str,
        edges: Sequence[float | Decimal | str] = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
        *,
        where: Column | str | None = None,
        weight: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def hll(
        column: Column | str,
        lg_k: int = 12,
        *,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def increase(
        column: Column | str,
        extrapolate: str | None = None,
        max: int = 10000,
        keep: str = "all",
        beyond: str = "error",
        *,
        by: Column | str | None = None,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def integral(
        column: Column | str,
        method: str = "step",
        unit: str = "1s",
        max: int = 10000,
        keep: str = "all",
        beyond: str = "error",
        *,
        by: Column | str | None = None,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def intercept(
        column: Column | str,
        x: Column | str,
        *,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def kurtosis(
        column: Column | str,
        sample: bool = False,
        *,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def last(
        column: Column | str,
        *,
        by: Column | str | None = None,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def lttb(
        column: Column | str,
        n: int = 100,
        max: int = 10000,
        keep: str = "all",
        beyond: str = "error",
        *,
        by: Column | str | None = None,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def m4(
        column: Column | str,
        *,
        by: Column | str | None = None,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def max(
        column: Column | str,
        *,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def min(
        column: Column | str,
        *,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def mode(
        column: Column | str,
        max: int = 10000,
        beyond: str = "error",
        *,
        where: Column | str | None = None,
        weight: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def per(
        column: Column | str,
        of: Mapping[str, Measure] | None = None,
        max: int = 10000,
        beyond: str = "error",
        top: int | None = None,
        by: str | None = None,
        *,
        where: Column | str | None = None,
        weight: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def points(
        column: Column | str,
        max: int = 10000,
        keep: str = "all",
        beyond: str = "error",
        *,
        by: Column | str | None = None,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def r2(
        column: Column | str,
        x: Column | str,
        *,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def range(
        column: Column | str,
        *,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def rate(
        column: Column | str,
        extrapolate: str | None = None,
        max: int = 10000,
        keep: str = "all",
        beyond: str = "error",
        *,
        by: Column | str | None = None,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def resets(
        column: Column | str,
        max: int = 10000,
        keep: str = "all",
        beyond: str = "error",
        *,
        by: Column | str | None = None,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def rms(
        column: Column | str,
        *,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def skewness(
        column: Column | str,
        sample: bool = False,
        *,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def slope(
        column: Column | str,
        x: Column | str,
        *,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def stdev(
        column: Column | str,
        ddof: int = 1,
        *,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def sum(
        column: Column | str,
        dtype: str | None = None,
        *,
        where: Column | str | None = None,
        weight: Column | str | None = None,
        distinct: bool = False,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def sum_distinct(
        column: Column | str,
        max: int = 10000,
        beyond: str = "error",
        *,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def sum_of_squares(
        column: Column | str,
        *,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def time_weighted_avg(
        column: Column | str,
        method: str = "step",
        max: int = 10000,
        keep: str = "all",
        beyond: str = "error",
        *,
        by: Column | str | None = None,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def top_k(
        column: Column | str,
        by: Column | str,
        k: int = 10,
        *,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def value_counts(
        column: Column | str,
        max: int = 10000,
        top: int | None = None,
        beyond: str = "error",
        *,
        where: Column | str | None = None,
        weight: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def var(
        column: Column | str,
        ddof: int = 1,
        *,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    @staticmethod
    def weighted_avg(
        column: Column | str,
        weight: Column | str,
        *,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: str | None = None,
    ) -> Column: ...
    def __getattr__(self, name: str) -> Callable[..., Column]: ...

def of(df: DataFrame) -> Functions: ...
def any_value(
    column: Column | str,
    *,
    by: Column | str | None = None,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def approx_count_distinct(
    column: Column | str,
    k: int = 4096,
    *,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def arg_max(
    column: Column | str,
    by: Column | str,
    *,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def arg_min(
    column: Column | str,
    by: Column | str,
    *,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def avg(
    column: Column | str,
    *,
    where: Column | str | None = None,
    weight: Column | str | None = None,
    distinct: bool = False,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def avg_distinct(
    column: Column | str,
    max: int = 10000,
    beyond: str = "error",
    *,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def bit_and(
    column: Column | str,
    *,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def bit_or(
    column: Column | str,
    *,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def bit_xor(
    column: Column | str,
    *,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def bool_and(
    column: Column | str,
    *,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def bool_or(
    column: Column | str,
    *,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def bottom_k(
    column: Column | str,
    by: Column | str,
    k: int = 10,
    *,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def candlestick(
    column: Column | str,
    volume: Column | str,
    *,
    by: Column | str | None = None,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def collect(
    column: Column | str | Sequence[Column | str],
    max: int = 10000,
    keep: str = "all",
    nested: str | Sequence[str] = (),
    beyond: str = "error",
    *,
    by: Column | str | None = None,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def collect_set(
    column: Column | str,
    max: int = 10000,
    beyond: str = "error",
    *,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def corr(
    column: Column | str,
    x: Column | str,
    *,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def count(
    column: Column | str | None = None,
    *,
    where: Column | str | None = None,
    weight: Column | str | None = None,
    distinct: bool = False,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def count_distinct(
    column: Column | str,
    max: int = 10000,
    beyond: str = "error",
    *,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def covar(
    column: Column | str,
    x: Column | str,
    ddof: int = 1,
    *,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def dds(
    column: Column | str,
    quantiles: Sequence[float] | float = (0.5, 0.9, 0.99),
    relative_accuracy: float = 0.01,
    max_bins: int | None = None,
    method: str = "lower",
    *,
    where: Column | str | None = None,
    weight: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def decayed_avg(
    column: Column | str,
    half_life: str = "1h",
    as_of: str | None = None,
    *,
    by: Column | str | None = None,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def decayed_count(
    column: Column | str,
    half_life: str = "1h",
    as_of: str | None = None,
    *,
    by: Column | str | None = None,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def decayed_sum(
    column: Column | str,
    half_life: str = "1h",
    as_of: str | None = None,
    *,
    by: Column | str | None = None,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def delta(
    column: Column | str,
    extrapolate: str | None = None,
    max: int = 10000,
    keep: str = "all",
    beyond: str = "error",
    *,
    by: Column | str | None = None,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def duration_in(
    column: Column | str,
    state: bool | int | float | str = True,
    max: int = 10000,
    keep: str = "all",
    beyond: str = "error",
    *,
    by: Column | str | None = None,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def entropy(
    column: Column | str,
    max: int = 10000,
    beyond: str = "error",
    *,
    where: Column | str | None = None,
    weight: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def exact_quantiles(
    column: Column | str,
    quantiles: Sequence[float] | float = (0.5, 0.9, 0.99),
    max: int = 10000,
    method: str = "lower",
    beyond: str = "error",
    *,
    where: Column | str | None = None,
    weight: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def exponential(
    column: Column | str,
    quantiles: Sequence[float] | float = (0.5, 0.9, 0.99),
    scale: int = 20,
    max_buckets: int = 160,
    method: str = "lower",
    *,
    where: Column | str | None = None,
    weight: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def first(
    column: Column | str,
    *,
    by: Column | str | None = None,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def frequent(
    column: Column | str,
    share: float = 0.01,
    *,
    by: Column | str | None = None,
    where: Column | str | None = None,
    weight: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def funnel(
    column: Column | str,
    steps: Sequence[str] = (),
    within: str = "1h",
    max: int = 10000,
    keep: str = "all",
    beyond: str = "error",
    *,
    by: Column | str | None = None,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def geometric_mean(
    column: Column | str,
    *,
    where: Column | str | None = None,
    weight: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def harmonic_mean(
    column: Column | str,
    *,
    where: Column | str | None = None,
    weight: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def hdr(
    column: Column | str,
    quantiles: Sequence[float] | float = (0.5, 0.9, 0.99),
    digits: int = 3,
    unit: float | None = None,
    method: str = "hdrhistogram",
    bad_values: str = "error",
    *,
    where: Column | str | None = None,
    weight: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def histogram(
    column: Column | str,
    edges: Sequence[float | Decimal | str] = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    *,
    where: Column | str | None = None,
    weight: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def hll(
    column: Column | str,
    lg_k: int = 12,
    *,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def increase(
    column: Column | str,
    extrapolate: str | None = None,
    max: int = 10000,
    keep: str = "all",
    beyond: str = "error",
    *,
    by: Column | str | None = None,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def integral(
    column: Column | str,
    method: str = "step",
    unit: str = "1s",
    max: int = 10000,
    keep: str = "all",
    beyond: str = "error",
    *,
    by: Column | str | None = None,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def intercept(
    column: Column | str,
    x: Column | str,
    *,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def kurtosis(
    column: Column | str,
    sample: bool = False,
    *,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def last(
    column: Column | str,
    *,
    by: Column | str | None = None,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def lttb(
    column: Column | str,
    n: int = 100,
    max: int = 10000,
    keep: str = "all",
    beyond: str = "error",
    *,
    by: Column | str | None = None,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def m4(
    column: Column | str,
    *,
    by: Column | str | None = None,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def max(
    column: Column | str,
    *,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def min(
    column: Column | str,
    *,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def mode(
    column: Column | str,
    max: int = 10000,
    beyond: str = "error",
    *,
    where: Column | str | None = None,
    weight: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def per(
    column: Column | str,
    of: Mapping[str, Measure] | None = None,
    max: int = 10000,
    beyond: str = "error",
    top: int | None = None,
    by: str | None = None,
    *,
    where: Column | str | None = None,
    weight: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def points(
    column: Column | str,
    max: int = 10000,
    keep: str = "all",
    beyond: str = "error",
    *,
    by: Column | str | None = None,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def r2(
    column: Column | str,
    x: Column | str,
    *,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def range(
    column: Column | str,
    *,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def rate(
    column: Column | str,
    extrapolate: str | None = None,
    max: int = 10000,
    keep: str = "all",
    beyond: str = "error",
    *,
    by: Column | str | None = None,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def resets(
    column: Column | str,
    max: int = 10000,
    keep: str = "all",
    beyond: str = "error",
    *,
    by: Column | str | None = None,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def rms(
    column: Column | str,
    *,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def skewness(
    column: Column | str,
    sample: bool = False,
    *,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def slope(
    column: Column | str,
    x: Column | str,
    *,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def stdev(
    column: Column | str,
    ddof: int = 1,
    *,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def sum(
    column: Column | str,
    dtype: str | None = None,
    *,
    where: Column | str | None = None,
    weight: Column | str | None = None,
    distinct: bool = False,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def sum_distinct(
    column: Column | str,
    max: int = 10000,
    beyond: str = "error",
    *,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def sum_of_squares(
    column: Column | str,
    *,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def time_weighted_avg(
    column: Column | str,
    method: str = "step",
    max: int = 10000,
    keep: str = "all",
    beyond: str = "error",
    *,
    by: Column | str | None = None,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def top_k(
    column: Column | str,
    by: Column | str,
    k: int = 10,
    *,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def value_counts(
    column: Column | str,
    max: int = 10000,
    top: int | None = None,
    beyond: str = "error",
    *,
    where: Column | str | None = None,
    weight: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def var(
    column: Column | str,
    ddof: int = 1,
    *,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def weighted_avg(
    column: Column | str,
    weight: Column | str,
    *,
    where: Column | str | None = None,
    type: DataType | str | None = None,
    groups: str | None = None,
) -> Column: ...
def __getattr__(name: str) -> Callable[..., Column]: ...
