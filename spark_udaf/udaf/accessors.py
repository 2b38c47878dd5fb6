"""Accessors: one number or a few of each state, as Columns; they read states where they are, without a shuffle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType

from aggr.asked_quantiles import check_quantiles
from aggr.distinct.least_hashes import BOUNDS_TYPE
from aggr.functions.moments import Stdev
from aggr.tables import accessors
from spark_udaf.udaf.typed_udf import arrow_udf, column


def quantile(states: Column | str, q: float) -> Column:
    """Read one quantile of each state, without a shuffle.

    Parameters
    ----------
    states : Column or str
        States of dds, hdr or another sketch.
    q : float in [0, 1]

    Returns
    -------
    Column of double
        Null where a state is null or empty.

    Raises
    ------
    ValueError
        If q lies outside [0, 1]. States of a function that has no quantiles fail the job, by name.

    Examples
    --------
    The docs have one that runs::

        states.select(su.quantile("latency_ms", 0.99))
    """
    (asked,) = check_quantiles([q])
    return _read("double", states, accessors.quantile, asked)


def rank(states: Column | str, value: float) -> Column:
    """Read the share of values that are at most a given one: the cumulative distribution.

    Parameters
    ----------
    states : Column or str
        States of dds or hdr.
    value : float
        Not NaN.

    Returns
    -------
    Column of double
        In [0, 1]; null where a state is null or empty. Of dds exact for some value within α of the one given, of hdr to
        its significant digits; NaN is never counted.

    Raises
    ------
    ValueError
        If ``value`` is no number. States of a function that has no ranks fail the job, by name.
    """
    return _read("double", states, accessors.rank, accessors.number(value))


def mean(states: Column | str) -> Column:
    """Read the mean of each state.

    Parameters
    ----------
    states : Column or str
        States of avg, var, stdev, dds or hdr.

    Returns
    -------
    Column of double
        Null where there is nothing. States of a function that has no mean fail the job, by name.
    """
    return _read("double", states, accessors.mean)


def stdev(states: Column | str, ddof: int = 1) -> Column:
    """Read the standard deviation of each state.

    Parameters
    ----------
    states : Column or str
        States of var, stdev or hdr.
    ddof : int
        Taken off the count in the divisor: 1 for a sample, 0 for the population.

    Returns
    -------
    Column of double
        Null where the count is not above ``ddof``.

    Raises
    ------
    ValueError
        If ``ddof`` is no whole number from 0. States of a function that has none fail the job, by name.
    """
    return _read("double", states, accessors.stdev, Stdev(ddof).ddof)


def count(states: Column | str) -> Column:
    """Read how many values each state has seen.

    Parameters
    ----------
    states : Column or str
        States of a function that counts.

    Returns
    -------
    Column of bigint
        Null where a state is null. NaN is among the values only where it makes the result NaN. States of a function
        that does not count fail the job, by name.
    """
    return _read("bigint", states, accessors.count)


def min(states: Column | str) -> Column:
    """Read the least value of each state.

    Parameters
    ----------
    states : Column or str
        States of dds or hdr.

    Returns
    -------
    Column of double
        Null where there is nothing. States of a function that keeps no least value fail the job, by name.
    """
    return _read("double", states, accessors.min)


def max(states: Column | str) -> Column:
    """Read the greatest value of each state.

    Parameters
    ----------
    states : Column or str
        States of dds or hdr.

    Returns
    -------
    Column of double
        Null where there is nothing. States of a function that keeps no greatest value fail the job, by name.
    """
    return _read("double", states, accessors.max)


def bounds(states: Column | str, sigmas: float = 2.0) -> Column:
    """Read the estimate of each state, and what the true number lies between.

    Parameters
    ----------
    states : Column or str
        States of approx_count_distinct.
    sigmas : float above 0
        How many standard errors each way.

    Returns
    -------
    Column of struct
        As `aggr.tables.accessors.bounds` returns it; null where a state is null.

    Raises
    ------
    ValueError
        If ``sigmas`` is no number above 0. States of a function that estimates no number fail the job, by name.
    """
    return _read(from_arrow_type(BOUNDS_TYPE), states, accessors.bounds, accessors.standard_errors(sigmas))


def _read(dtype: DataType | str, states: Column | str, accessor: Callable[..., pa.Array], *arguments: Any) -> Column:
    def read(values: pa.Array) -> pa.Array:
        return accessor(values, *arguments)

    read.__name__ = accessor.__name__  # what Spark names the column after
    results: Column = arrow_udf(read, dtype)(column(states))
    return results
