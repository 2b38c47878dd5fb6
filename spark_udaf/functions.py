"""Aggregate functions for any Spark job: one for every function of `aggr`, including functions registered later.

In a job::

    from spark_udaf import functions as A

    df.groupBy("host").agg(A.hdr("latency_ms", [0.5, 0.99]), A.stdev("bytes"), A.count(where="status >= 500"))
    df.groupBy("host").agg(A.of(df).min("route"))  # the schema gives the type of the result

Spark collects the values of each group, and Python aggregates thousands of groups per call; all values are shuffled.
`su.group_by(df, …).agg(…)` accepts the same calls and reduces rows before the shuffle, which is faster.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame

import aggr
from spark_udaf.udaf.call import caller


class Functions:
    """The functions of this module for the columns of one DataFrame. The types of results follow from its schema."""

    def __init__(self, df: DataFrame) -> None:
        """Store the DataFrame to be aggregated, whose schema determines the types of results."""
        if not hasattr(df, "groupBy") or isinstance(df, type):
            raise TypeError(f"A.of needs a Spark DataFrame; got {df!r}")
        self._df = df

    def __getattr__(self, name: str) -> Callable[..., Column]:
        return _function_named(name, self._df)

    def __dir__(self) -> list[str]:
        return aggr.names()


def of(df: DataFrame) -> Functions:
    """Return the functions of this module with result types from the schema of a DataFrame.

    For example, ``A.of(df).min("route")`` returns text if ``route`` is text.
    """
    return Functions(df)


def __getattr__(name: str) -> Callable[..., Column]:
    """Return an aggregate function for Spark that computes the registered function with the name ``name``."""
    return _function_named(name, None)


def __dir__() -> list[str]:
    """Return the names of all registered functions, including those that were registered after the import."""
    return [*aggr.names(), "of"]


def _function_named(name: str, df: DataFrame | None) -> Callable[..., Column]:
    try:
        return caller(name, df)
    except aggr.UnknownFunction as unknown_function:
        raise AttributeError(str(unknown_function)) from None
