"""Accessors: one number a state, as Columns; they read states where they are, without a shuffle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import Column

from aggr.functions.moments import Stdev
from aggr.quantile import check_quantiles
from aggr.states import accessors
from spark_udaf.udaf.typed_udf import arrow_udf, column


def quantile(states: Column | str, q: float) -> Column:
    """Read one quantile of each state of dds, hdr or another sketch, as double; q in [0, 1]."""
    (asked,) = check_quantiles([q])
    return _read("double", states, accessors.quantile, asked)


def rank(states: Column | str, value: float) -> Column:
    """Read the share of values that are at most ``value``, in [0, 1]: the cumulative distribution."""
    return _read("double", states, accessors.rank, accessors.number(value))


def mean(states: Column | str) -> Column:
    """Read the mean of each state, as double."""
    return _read("double", states, accessors.mean)


def stdev(states: Column | str, ddof: int = 1) -> Column:
    """Read the standard deviation of each state: of a sample (ddof=1) or a population (ddof=0)."""
    return _read("double", states, accessors.stdev, Stdev(ddof).ddof)


def count(states: Column | str) -> Column:
    """Read how many values each state has seen, as bigint."""
    return _read("bigint", states, accessors.count)


def _read(dtype: str, states: Column | str, accessor: Callable[..., pa.Array], *given: Any) -> Column:
    def read(values: pa.Array) -> pa.Array:
        return accessor(values, *given)

    read.__name__ = accessor.__name__  # what Spark names the column after
    made: Column = arrow_udf(read, dtype)(column(states))
    return made
