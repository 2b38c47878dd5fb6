"""Ways to compute a measure on Spark. Each returns a DataFrame of results, and does not start a job."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import spark_udaf as su
from aggr.arguments import shown
from aggr.function_inputs import EVENT_TIME
from aggr.measure import Measure
from aggr.parameters import default_of
from spark_udaf import functions as A
from spark_udaf.plan.scan import ParquetScan
from tiltframe import TiltFrame
from windows import TimeWindow, read_window

RESULT = "result"
# The name of a way to compute a measure ends with this text if the workers read Parquet files themselves.
FILES_SUFFIX = " of files"
VIEW = "tiltframe_bench_rows"
# Matches the names of levels whose windows have a fixed length. Spark's function ``window`` supports only such windows.
_FIXED = re.compile(r"\d+(us|ms|s|m|h|d)")


@dataclass(frozen=True)
class Grouping:
    """The keys and windows by which a benchmark groups rows.

    Parameters
    ----------
    keys : sequence of str
        Names of columns.
    time : str or None
        The column of event times, which `su.rollup` needs.
    levels : sequence of str
        The levels of the tilt frame. The other ways to compute a measure group by keys and by the windows of the finest
        level.
    has_single_window : bool
        Whether all rows are in one window of the finest level. Ways other than `su.rollup` then group by keys alone.
    """

    keys: tuple[str, ...]
    time: str | None = None
    levels: tuple[str, ...] = ("1d",)
    has_single_window: bool = False

    @property
    def finest(self) -> TimeWindow:
        """The window of the finest level."""
        return min((read_window(level) for level in self.levels), key=lambda window: window.sort_key)

    @property
    def window(self) -> str | None:
        """The length of the windows by which rows are grouped, as a duration in Spark's notation. None if rows are
        grouped by keys alone.
        """
        if self.time is None or self.has_single_window:
            return None
        if not _FIXED.fullmatch(self.finest.name):
            raise ValueError(
                f"Spark's own window needs a fixed length; got {self.finest.name}; use a finest level such as 1h"
            )
        return f"{int(self.finest.length)} microseconds"

    def columns(self) -> list[Column | str]:
        """Return the arguments of `groupBy`: the window, if rows are grouped by time, and the names of the keys."""
        return [*([] if self.window is None else [F.window(str(self.time), self.window)]), *self.keys]

    def sql_group_columns(self) -> str:
        """Return the text after GROUP BY in a SQL query: the window, if rows are grouped by time, and the keys."""
        windows = [] if self.window is None else [f"window({_quoted(str(self.time))}, '{self.window}')"]
        return ", ".join([*windows, *map(_quoted, self.keys)])


@dataclass(frozen=True)
class Rows:
    """The rows of a benchmark.

    Parameters
    ----------
    df : DataFrame
    scan : ParquetScan or None
        The files of the DataFrame, if it reads Parquet files.
    """

    df: DataFrame
    scan: ParquetScan | None


BuildDataFrame = Callable[[Rows, Grouping], DataFrame]


def ways_to_compute(measure: Measure, grouping: Grouping) -> Iterator[tuple[str, BuildDataFrame]]:
    """Yield the name of each way to compute a measure with this library, and the function that returns its DataFrame.

    Parameters
    ----------
    measure : Measure
    grouping : Grouping
        Without a time, `su.aggregate` is used instead of `su.rollup`. The first function that is yielded needs Parquet
        files (`Rows.scan`), which the workers read themselves. The other functions read the DataFrame.
    """
    name = "su.aggregate" if grouping.time is None else "su.rollup"
    plan_way = _plan_aggregate if grouping.time is None else _plan_rollup
    yield f"{name}{FILES_SUFFIX}", lambda rows, grouping: plan_way(measure, rows.scan, grouping)
    yield name, lambda rows, grouping: plan_way(measure, rows.df, grouping)
    measure_with_time = with_time(measure, grouping.time)
    yield "su.group_by", partial(_plan_group_by, measure_with_time)
    yield f"A.{measure.function.name}", partial(_plan_function, measure_with_time)
    yield "SQL", partial(_plan_sql, measure_with_time)


def with_time(measure: Measure, time: str | None) -> Measure:
    """Return the measure with ``time`` as its column of event times. A measure is returned unchanged if its function
    does not need event times, or if the measure already names a column of event times.

    In a tilt frame, this is not needed, because measures use the time of the frame by default.
    """
    further_inputs = [
        time if text is None and role == EVENT_TIME else text
        for text, role in zip(measure.others, measure.function.inputs[1:], strict=False)
    ]
    return replace(measure, others=tuple(further_inputs))


def _plan_rollup(measure: Measure, source: Any, grouping: Grouping) -> DataFrame:
    frame = TiltFrame(list(grouping.levels), str(grouping.time), {RESULT: measure}, list(grouping.keys))
    return su.finish(su.rollup(source, frame), frame)


def _plan_aggregate(measure: Measure, source: Any, grouping: Grouping) -> DataFrame:
    measures = {RESULT: measure}
    return su.finish(su.aggregate(source, list(grouping.keys), measures), measures)


def _plan_group_by(measure: Measure, rows: Rows, grouping: Grouping) -> DataFrame:
    measures: dict[str, Any] = {RESULT: measure}
    return su.group_by(rows.df, *grouping.columns()).agg(**measures)


def _plan_function(measure: Measure, rows: Rows, grouping: Grouping) -> DataFrame:
    function = measure.function
    parameters = {
        f.name: getattr(function, f.name)
        for f in fields(function)
        if f.init and getattr(function, f.name) != default_of(f)
    }
    named_arguments = {
        keyword: _column(text, rows.df) for keyword, text in measure.named_inputs().items() if text is not None
    }
    call = getattr(A.of(rows.df), function.name)
    condition = None if measure.where is None else F.expr(measure.where)
    column = [] if measure.column is None else [_column(measure.column, rows.df)]
    result_column = call(*column, **parameters, **named_arguments, where=condition).alias(RESULT)
    results: DataFrame = _spark_groups(rows.df, grouping).agg(result_column)
    return results


def _plan_sql(measure: Measure, rows: Rows, grouping: Grouping) -> DataFrame:
    rows.df.createOrReplaceTempView(VIEW)
    groups = grouping.sql_group_columns()
    query = f"SELECT {groups + ', ' if groups else ''}{sql_call(measure, rows.df.columns)} AS {RESULT} FROM {VIEW}"
    return su.sql(rows.df.sparkSession, f"{query} GROUP BY {groups}" if groups else query)


def sql_call(measure: Measure, columns: Sequence[str]) -> str:
    """Return the call of a measure as text in Spark's SQL.

    Parameters
    ----------
    measure : Measure
    columns : sequence of str
        The names of the columns of the rows. Any other input of the measure is an expression.

    Raises
    ------
    ValueError
        If a parameter has no form in SQL.

    Examples
    --------
    >>> import aggr
    >>> sql_call(aggr.dds("ms", [0.5], where="ms > 1"), ["ms"])
    'aggr_dds(`ms`, array(0.5D)) FILTER (WHERE ms > 1)'
    """
    function = measure.function
    sorted_fields = sorted((f for f in fields(function) if f.init), key=lambda f: bool(f.kw_only))
    values = [(f.name, getattr(function, f.name), default_of(f)) for f in sorted_fields]
    last_index = max((index for index, (_, value, default) in enumerate(values) if value != default), default=-1)
    passed_values = values[: last_index + 1]
    # A null cannot be passed by position in SQL, so parameters are passed by name if any of them is null.
    if any(value is None for _, value, _ in passed_values):
        parameters = [
            f"{name} => {_literal(value, name)}" for name, value, default in passed_values if value != default
        ]
    else:
        parameters = [_literal(value, name) for name, value, _ in passed_values]
    first = "1" if measure.column is None else _sql_column(measure.column, columns)
    named_arguments = [
        f"{keyword} => {_sql_column(text, columns)}"
        for keyword, text in measure.named_inputs().items()
        if text is not None
    ]
    call = f"aggr_{function.name}({', '.join([first, *parameters, *named_arguments])})"
    return call if measure.where is None else f"{call} FILTER (WHERE {measure.where})"


def _literal(value: Any, name: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return f"{value!r}D"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    if isinstance(value, tuple):
        return f"array({', '.join(_literal(part, name) for part in value)})"
    raise ValueError(
        f"the parameter {name} cannot be written as a constant in SQL; got {shown(value)}; use a number, a text or a "
        "list"
    )


def _sql_column(text: str, columns: Sequence[str]) -> str:
    return _quoted(text) if text in columns else text


def _column(text: str, df: DataFrame) -> Column:
    return F.col(_quoted(text)) if text in df.columns else F.expr(text)


def _quoted(name: str) -> str:
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def _spark_groups(df: DataFrame, grouping: Grouping) -> Any:
    return df.groupBy(*[_column(c, df) if isinstance(c, str) else c for c in grouping.columns()])
