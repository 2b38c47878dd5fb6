"""Aggregate functions for any Spark job: one for every registered function, also those registered later.

In a job::

    from spark_udaf import functions as A

    df.groupBy("host").agg(A.hdr("latency_ms", [0.5, 0.99]), A.stdev("bytes"), A.count(where="status >= 500"))
    df.groupBy("host").agg(A.of(df).min("route"))  # the result has the type of its column, which the schema tells

Spark collects each group's values, and Python aggregates thousands of groups a call: all values cross the shuffle.
`su.group_by(df, …).agg(…)` takes the same calls and reduces rows where they are, which is faster.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame

import aggr
from spark_udaf.udaf.call import caller


class Functions:
    """The aggregate functions for rows of one DataFrame, which know the types of its columns."""

    def __init__(self, df: DataFrame) -> None:
        """Take the DataFrame whose rows are going to be aggregated."""
        if not hasattr(df, "groupBy") or isinstance(df, type):
            raise TypeError(f"A.of takes a Spark DataFrame; got {df!r}")
        self._df = df

    def __getattr__(self, name: str) -> Callable[..., Column]:
        return _found(name, self._df)

    def __dir__(self) -> list[str]:
        return aggr.names()


def of(df: DataFrame) -> Functions:
    """Take the types of columns from the schema of the DataFrame whose rows are going to be aggregated.

    The same functions as this module has: ``A.of(df).min("route")`` knows that it gives text.
    """
    return Functions(df)


def __getattr__(name: str) -> Callable[..., Column]:
    """Find the aggregate function of a registered function's name."""
    return _found(name, None)


def __dir__() -> list[str]:
    """List the functions there are now."""
    return [*aggr.names(), "of"]


def _found(name: str, df: DataFrame | None) -> Callable[..., Column]:
    try:
        return caller(name, df)
    except aggr.UnknownFunction as error:
        raise AttributeError(str(error)) from None
