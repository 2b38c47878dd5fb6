"""The calls that people write: each makes a measure of one function."""

from __future__ import annotations

from collections.abc import Sequence

from aggr.functions.arg_min_max import ArgMax, ArgMin
from aggr.functions.collect import Collect
from aggr.functions.collect_set import CollectSet
from aggr.functions.count import Count
from aggr.functions.count_distinct import CountDistinct
from aggr.functions.ddsketch import Dds
from aggr.functions.first_last import First, Last
from aggr.functions.hdrhistogram import Hdr
from aggr.functions.min_max import Max, Min
from aggr.functions.moments import Avg, Stdev, Sum, Var
from aggr.functions.value_lists import ALL, DEFAULT_MAX
from aggr.functions.weighted_avg import WeightedAvg
from aggr.measure import Measure
from aggr.quantile import DEFAULT, check_quantiles


def count(column: str | None = None, *, where: str | None = None, weight: str | None = None) -> Measure:
    """Count rows, or the values of a column that are not null.

    Parameters
    ----------
    column : str, optional
        Of any type. Without one, rows are counted.
    where : str, optional
        Count only the rows for which this SQL condition is true.
    weight : str, optional
        The column that says how many rows each row stands for: whole numbers from 0, of whatever numeric type. Rows in
        which it is 0 or null do not count. The state is to the bit that of the rows repeated.

    Returns
    -------
    Measure
        Its result is an int64, 0 where there is nothing. Exact.

    Examples
    --------
    >>> count(where="status >= 500")
    count(where='status >= 500')
    """
    return Measure(Count(), column, where, weight=weight)


def min(column: str, *, where: str | None = None) -> Measure:
    """Keep the least value of a column.

    Parameters
    ----------
    column : str
        Of numbers, decimals, booleans, dates, timestamps, strings or bytes.
    where : str, optional
        Take only the rows for which this SQL condition is true.

    Returns
    -------
    Measure
        Its result has the column's type; null where there is nothing. Exact; NaN is greater than all numbers,
        as in Spark, and -0.0 is less than 0.0.

    Examples
    --------
    >>> min("latency_ms")
    min('latency_ms')
    """
    return Measure(Min(), column, where)


def max(column: str, *, where: str | None = None) -> Measure:
    """Keep the greatest value of a column.

    Parameters
    ----------
    column : str
        Of numbers, decimals, booleans, dates, timestamps, strings or bytes.
    where : str, optional
        Take only the rows for which this SQL condition is true.

    Returns
    -------
    Measure
        Its result has the column's type; null where there is nothing. Exact; NaN is greater than all numbers,
        as in Spark, and 0.0 is greater than -0.0.

    Examples
    --------
    >>> max("latency_ms")
    max('latency_ms')
    """
    return Measure(Max(), column, where)


def sum(column: str, *, where: str | None = None, dtype: str | None = None, weight: str | None = None) -> Measure:
    """Sum a column without error, and round once when the result is read.

    Parameters
    ----------
    column : str
        Of integers, floats or decimals.
    where : str, optional
        Take only the rows for which this SQL condition is true.
    dtype : str, optional
        Read it as ``"decimal"``, of 38 digits, for integers and decimals, or as ``"float64"``. It only reads: states
        that are there can be read as either, also where their sum is beyond int64.
    weight : str, optional
        The column that says how many rows each row stands for: whole numbers from 0, of whatever numeric type. Rows in
        which it is 0 or null do not count. The state is to the bit that of the rows repeated.

    Returns
    -------
    Measure
        Its result is an int64 for integers (beyond it, an error that names the group), a float64 for floats, a
        decimal for decimals, unless ``dtype`` says otherwise; null where there is nothing. Correctly rounded; NaN makes
        NaN, and so does inf with -inf.

    Raises
    ------
    ValueError
        If ``dtype`` is another word.

    Source: the superaccumulator of Neal (2015).

    Examples
    --------
    >>> sum("bytes")
    sum('bytes')
    """
    return Measure(Sum(dtype), column, where, weight=weight)


def avg(column: str, *, where: str | None = None, weight: str | None = None) -> Measure:
    """Take the mean of a column, rounded once from the exact sum.

    Parameters
    ----------
    column : str
        Of integers, floats, decimals or timestamps.
    where : str, optional
        Take only the rows for which this SQL condition is true.
    weight : str, optional
        The column that says how many rows each row stands for: whole numbers from 0, of whatever numeric type. Rows in
        which it is 0 or null do not count. The state is to the bit that of the rows repeated.

    Returns
    -------
    Measure
        Its result is a float64, a timestamp for timestamps; null where there is nothing. Correctly rounded.

    Examples
    --------
    >>> avg("bytes")
    avg('bytes')
    """
    return Measure(Avg(), column, where, weight=weight)


def var(column: str, ddof: int = 1, *, where: str | None = None) -> Measure:
    """Take the variance of a column, rounded once from exact Σx and Σx².

    Parameters
    ----------
    column : str
        Of integers, floats or decimals.
    ddof : int
        Taken off the count in the divisor: 1 for a sample, 0 for the population. No state keeps it.
    where : str, optional
        Take only the rows for which this SQL condition is true.

    Returns
    -------
    Measure
        Its result is a float64; null where the count is not above ``ddof``. Correctly rounded.

    Raises
    ------
    ValueError
        If ``ddof`` is no whole number from 0.

    Examples
    --------
    >>> var("bytes", ddof=0)
    var('bytes', ddof=0)
    """
    return Measure(Var(ddof), column, where)


def stdev(column: str, ddof: int = 1, *, where: str | None = None) -> Measure:
    """Take the standard deviation of a column, rounded once from exact Σx and Σx².

    Parameters
    ----------
    column : str
        Of integers, floats or decimals.
    ddof : int
        Taken off the count in the divisor: 1 for a sample, 0 for the population. No state keeps it.
    where : str, optional
        Take only the rows for which this SQL condition is true.

    Returns
    -------
    Measure
        Its result is a float64; null where the count is not above ``ddof``. Correctly rounded.

    Raises
    ------
    ValueError
        If ``ddof`` is no whole number from 0.

    Examples
    --------
    >>> stdev("bytes")
    stdev('bytes')
    """
    return Measure(Stdev(ddof), column, where)


def dds(
    column: str,
    quantiles: Sequence[float] | float = DEFAULT,
    relative_accuracy: float = 0.01,
    max_bins: int | None = None,
    *,
    where: str | None = None,
    weight: str | None = None,
) -> Measure:
    """Keep a DDSketch of a column: quantiles with relative accuracy, and exact count, sum, min, max, mean.

    Parameters
    ----------
    column : str
        Of integers, floats or decimals, of either sign.
    quantiles : floats in [0, 1]
        What to read; others can be read from the same states later.
    relative_accuracy : float in (0, 1)
        α. It shapes the state: states of unequal α are not merged.
    max_bins : int, optional
        Keep at most so many buckets a sign, folding the lowest ones together, whose accuracy is then lost.
    where : str, optional
        Take only the rows for which this SQL condition is true.
    weight : str, optional
        The column that says how many rows each row stands for: whole numbers from 0, of whatever numeric type. Rows in
        which it is 0 or null do not count. The state is to the bit that of the rows repeated.

    Returns
    -------
    Measure
        Its result is a record of count, sum, min, max, mean and quantiles; null where there is nothing.
        ``|quantile − true| ≤ α·|true|``, the true one being the value at rank ``floor(q·(n − 1))``. Magnitudes
        below 2.3e-308 count as 0. NaN is counted apart; infinities stand at the ends.

    Raises
    ------
    ValueError
        If a quantile is outside [0, 1] or given twice, or α or ``max_bins`` is out of its range.

    Source: Masson, Rim, Lee, "DDSketch", VLDB 2019.

    Examples
    --------
    >>> dds("latency_ms", [0.5, 0.99], relative_accuracy=0.005)
    dds('latency_ms', quantiles=[0.5, 0.99], relative_accuracy=0.005)
    """
    return Measure(Dds(check_quantiles(quantiles), relative_accuracy, max_bins), column, where, weight=weight)


def hdr(
    column: str,
    quantiles: Sequence[float] | float = DEFAULT,
    digits: int = 3,
    unit: float | None = None,
    rank: str = "nearest",
    *,
    where: str | None = None,
    weight: str | None = None,
) -> Measure:
    """Keep an HdrHistogram of a column: count, min, max, mean, stdev, var and quantiles.

    Parameters
    ----------
    column : str
        Of integers, floats or decimals from 0. Negative numbers and infinities are refused by name.
    quantiles : floats in [0, 1]
        What to read; others can be read from the same states later.
    digits : int, 1 to 5
        Significant decimal digits. It shapes the state, as does ``unit``.
    unit : float, optional
        The size of 1, say 0.001: values are counted as the nearest multiple. Without it, values must be whole.
    rank : "nearest" or "java"
        Which of n values a quantile q is, counted from 1: ``int(q·n + 0.5)``, as HdrHistogram has it in C and Python,
        or the next whole number from ``q·n``, as in Java and JavaScript. It only reads: one state answers either way.
    where : str, optional
        Take only the rows for which this SQL condition is true.
    weight : str, optional
        The column that says how many rows each row stands for: whole numbers from 0, of whatever numeric type. Rows in
        which it is 0 or null do not count. The state is to the bit that of the rows repeated.

    Returns
    -------
    Measure
        Its result is a record; null where there is nothing. A quantile is the highest value that is equivalent,
        to so many digits, to the one at HdrHistogram's rank. Mean, stdev and var are HdrHistogram's too: of the
        population, from the middles of the buckets. Count, min and max are exact.

    Raises
    ------
    ValueError
        If a quantile is outside [0, 1] or given twice, or ``digits`` or ``unit`` is out of its range.

    Source: Gil Tene, HdrHistogram.

    Examples
    --------
    >>> hdr("latency_ms", [0.5, 0.99], digits=2)
    hdr('latency_ms', quantiles=[0.5, 0.99], digits=2)
    """
    return Measure(Hdr(check_quantiles(quantiles), digits, unit, rank), column, where, weight=weight)


def first(column: str, *, by: str | None = None, where: str | None = None) -> Measure:
    """Keep the value of the earliest event; of several at that time, the least value.

    Parameters
    ----------
    column : str
        Of any type that has an order. Nulls are skipped.
    by : str, optional
        The column of event times; by default the frame's own.
    where : str, optional
        Take only the rows for which this SQL condition is true.

    Returns
    -------
    Measure
        Its result has the column's type; null where there is nothing. Exact, and independent of arrival.

    Examples
    --------
    >>> first("price")
    first('price')
    """
    return Measure(First(), column, where, (by,))


def last(column: str, *, by: str | None = None, where: str | None = None) -> Measure:
    """Keep the value of the latest event; of several at that time, the greatest value.

    Parameters
    ----------
    column : str
        Of any type that has an order. Nulls are skipped.
    by : str, optional
        The column of event times; by default the frame's own.
    where : str, optional
        Take only the rows for which this SQL condition is true.

    Returns
    -------
    Measure
        Its result has the column's type; null where there is nothing. Exact, and independent of arrival.

    Examples
    --------
    >>> last("price", by="traded_at")
    last('price', by='traded_at')
    """
    return Measure(Last(), column, where, (by,))


def arg_min(column: str, by: str, *, where: str | None = None) -> Measure:
    """Keep the value of the row in which another column is least; of several, the least value.

    Parameters
    ----------
    column : str
        Of any type that has an order. Rows in which it or ``by`` is null are skipped.
    by : str
        The column that is least, of any type that has an order.
    where : str, optional
        Take only the rows for which this SQL condition is true.

    Returns
    -------
    Measure
        Its result has the column's type; null where there is nothing. Exact, and independent of arrival; NaN is
        greater than all numbers, as in Spark.

    Examples
    --------
    >>> arg_min("host", by="latency_ms")
    arg_min('host', by='latency_ms')
    """
    return Measure(ArgMin(), column, where, (by,))


def arg_max(column: str, by: str, *, where: str | None = None) -> Measure:
    """Keep the value of the row in which another column is greatest; of several, the greatest value.

    Parameters
    ----------
    column : str
        Of any type that has an order. Rows in which it or ``by`` is null are skipped.
    by : str
        The column that is greatest, of any type that has an order.
    where : str, optional
        Take only the rows for which this SQL condition is true.

    Returns
    -------
    Measure
        Its result has the column's type; null where there is nothing. Exact, and independent of arrival; NaN is
        greater than all numbers, as in Spark.

    Examples
    --------
    >>> arg_max("host", by="latency_ms")
    arg_max('host', by='latency_ms')
    """
    return Measure(ArgMax(), column, where, (by,))


def weighted_avg(column: str, weight: str, *, where: str | None = None) -> Measure:
    """Take the mean of a column in which each row counts by its weight, rounded once from exact Σwx and Σw.

    Parameters
    ----------
    column : str
        Of integers, floats or decimals. Rows in which it or ``weight`` is null are skipped.
    weight : str
        The column of weights: integers, floats or decimals of either sign.
    where : str, optional
        Take only the rows for which this SQL condition is true.

    Returns
    -------
    Measure
        Its result is a float64; null where there is nothing or the weights add up to 0. Correctly rounded; a weight
        that is NaN or infinite makes NaN.

    Examples
    --------
    >>> weighted_avg("price", weight="quantity")
    weighted_avg('price', weight='quantity')
    """
    return Measure(WeightedAvg(), column, where, (weight,))


def collect(
    column: str,
    max: int = DEFAULT_MAX,
    keep: str = ALL,
    nested: str | Sequence[str] = (),
    *,
    by: str | None = None,
    where: str | None = None,
) -> Measure:
    """List the values of a column in the order of event times; of several at that time, in the order of values.

    Parameters
    ----------
    column : str
        Of any type that has an order. Nulls are skipped.
    max : int
        How many values a group may have, at every level. It shapes the state, as does ``keep``.
    keep : "all", "earliest" or "latest"
        What to keep of more than ``max``: "all" is an error then, otherwise the earliest or the latest ``max`` stay.
    nested : str or sequence of str
        Lengths of time from the finest, such as ``["10s", "1m"]``: the result has a list for each of them that has
        values, aligned to UTC, and in the coarser ones the lists of the finer. It only reads: states are the same.
    by : str, optional
        The column of event times; by default the frame's own.
    where : str, optional
        Take only the rows for which this SQL condition is true.

    Returns
    -------
    Measure
        Its result is a list of the column's type; empty where there is nothing. Exact, and independent of arrival.
        A level lists the values of all rows of its windows, in one list unless ``nested`` says otherwise.

    Raises
    ------
    ValueError
        If ``max`` is no whole number from 1, ``keep`` another word, or a length in ``nested`` no multiple of the last.
    TypeError
        When data comes, if ``nested`` is given and the values are ordered by something else than timestamps.

    Examples
    --------
    >>> collect("price", max=3, keep="latest")
    collect('price', max=3, keep='latest')
    >>> collect("price", nested="1m")
    collect('price', nested=['1m'])
    """
    return Measure(Collect(max, keep, nested), column, where, (by,))  # type: ignore[arg-type]  # it makes a tuple of them


def collect_set(column: str, max: int = DEFAULT_MAX, *, where: str | None = None) -> Measure:
    """List the distinct values of a column in their order.

    Parameters
    ----------
    column : str
        Of any type that has an order. Nulls are skipped; both zeros are one value, and all NaN are one, the greatest.
    max : int
        How many distinct values a group may have, at every level; more are an error. It shapes the state.
    where : str, optional
        Take only the rows for which this SQL condition is true.

    Returns
    -------
    Measure
        Its result is a list of the column's type; empty where there is nothing. Exact.

    Raises
    ------
    ValueError
        If ``max`` is no whole number from 1.

    Examples
    --------
    >>> collect_set("host")
    collect_set('host')
    """
    return Measure(CollectSet(max), column, where)


def count_distinct(column: str, max: int = DEFAULT_MAX, *, where: str | None = None) -> Measure:
    """Count the distinct values of a column. Its state lists them, and is that of `collect_set`.

    Parameters
    ----------
    column : str
        Of any type that has an order. Nulls are skipped; both zeros are one value, and all NaN are one.
    max : int
        How many distinct values a group may have, at every level; more are an error. It shapes the state.
    where : str, optional
        Take only the rows for which this SQL condition is true.

    Returns
    -------
    Measure
        Its result is an int64, 0 where there is nothing. Exact.

    Raises
    ------
    ValueError
        If ``max`` is no whole number from 1.

    Examples
    --------
    >>> count_distinct("host", max=100_000)
    count_distinct('host', max=100000)
    """
    return Measure(CountDistinct(max), column, where)


mean, variance, stddev = avg, var, stdev  # as others call them
