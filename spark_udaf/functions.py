"""Aggregate functions for any Spark job: one for every registered function, also those registered later.

    from spark_udaf import functions as A

    df.groupBy("host").agg(A.hdr("latency_ms", [0.5, 0.99]), A.stdev("bytes"), A.count(where="status >= 500"))

They are UDAFs: all rows of a group go to one Python call. For many rows a group, or states to keep, `su.aggregate`
is faster, for it reduces the rows where they are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

import aggr
from aggr.function import EVENT_TIME, column_keywords
from spark_udaf.udaf import typed_udf
from spark_udaf.udaf.aggregate_function import arrow_udaf, pandas_udaf, reading

_MAKERS = {"arrow": arrow_udaf, "pandas": pandas_udaf}


def __getattr__(name: str) -> Callable[..., Column]:
    """Find the aggregate function of a registered function's name."""
    try:
        caller = aggr.caller(name)
    except aggr.UnknownFunction as error:
        raise AttributeError(str(error)) from None

    def call(
        column: Column | str | None = None,
        *parameters: Any,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        via: str | None = None,
        **named: Any,
    ) -> Column:
        function = aggr.get(name)
        words = column_keywords(function)
        others = {word: named.pop(word) for word in words if word in named}
        given: list[Any] = [None if column is None else "value", *parameters]
        inputs = dict.fromkeys(others, "other")
        try:
            inspect.signature(caller).bind(*given, **inputs, **named)
        except TypeError as error:
            takes = ", ".join(inspect.signature(caller).parameters)
            raise TypeError(f"{name}: {error}; it is {name}({takes})") from None
        measure = caller(*given, **inputs, **named)
        if EVENT_TIME in function.inputs and "by" not in others:
            raise ValueError(f"{name} needs event times: name their column as by='…'")
        values = F.lit(1) if column is None else typed_udf.column(column)
        if where is not None:
            values = F.when(_condition(where), values)
        label = f"{name}({'' if column is None else _text(column)})"
        columns = [typed_udf.column(others[word]) for word in words if word in others]
        return _maker(via)(reading(measure.function, label, type, weighted=measure.weight is not None))(
            values, *columns
        )

    call.__name__ = call.__qualname__ = name
    call.__doc__ = _describe(name)
    return call


def __dir__() -> list[str]:
    """List the functions there are now."""
    return aggr.names()


def _maker(via: str | None) -> Callable[..., Callable[..., Column]]:
    """Choose between Arrow and pandas: Arrow where Spark has it."""
    if via is None:
        via = "arrow" if hasattr(F, "arrow_udf") else "pandas"
    if not isinstance(via, str) or via not in _MAKERS:
        raise ValueError(f"via must be 'arrow' or 'pandas'; got {via!r}")
    return _MAKERS[via]


def _condition(given: Column | str) -> Column:
    if isinstance(given, str):
        return F.expr(given)
    if isinstance(given, Column):
        return given
    raise TypeError(f"where must be a Column or a condition in SQL; got {given!r}")


def _text(given: Column | str) -> str:
    """Write a column as Spark shows it."""
    return given if isinstance(given, str) else str(given).removeprefix("Column<'").removesuffix("'>")


def _describe(name: str) -> str:
    function = aggr.get(name)
    return f"""{(function.__doc__ or name).splitlines()[0]}

    Parameters
    ----------
    column : Column or name
        A name as Spark reads one: in backticks where it has a dot in it. Nulls are skipped. Only count takes none: it
        counts rows.
    parameters
        As `aggr.{name}` takes them.
    by : Column or name
        For first and last, the event times; for arg_min and arg_max, what is least or greatest. Other functions of
        several inputs take these by their names as well.
    weight : Column or name
        For count, sum, avg, dds and hdr, how many rows each row stands for: whole numbers from 0.
    where : Column or SQL condition
        Only rows for which it is true.
    type : Spark type or its name, say 'bigint'
        What the column is read as, where the result's type depends on it; 'double' by default. A value that would
        change is an error in the job, never rounded.
    via : 'arrow' or 'pandas'
        The kind of UDAF; Arrow where Spark has it (4.1 on).

    Returns
    -------
    Column
        {function.returns}. For `agg()` and `over()`; with pandas, floats, timestamps and records only for `agg()`.

    Raises
    ------
    ValueError, TypeError
        For a bad argument, at once. An error in a worker names the function and the column.

    Guarantee
    ---------
    {function.guarantee}
    """
