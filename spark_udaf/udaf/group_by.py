"""group_by: answers by any keys and expressions, in the two-phase plan: rows are reduced where they are.

    su.group_by(df, "host", F.window("ts", "1 minute")).agg(p=aggr.dds("latency_ms / 1000", [0.99]))

Keys and inputs are evaluated by Spark, each once, and cross to Python under the names that they were given by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from aggr import Measure, sql
from aggr.arguments import is_name, shown
from aggr.groups.groups import type_name
from aggr.sql.inputs import quoted
from spark_udaf.batch.aggregate import aggregate, finish
from spark_udaf.batch.running import quoted_column
from spark_udaf.plan.columns import check_distinct
from spark_udaf.udaf.call import Call, call_of, text_of

_SESSION = "spark.sessionWindow"  # how Spark marks the column of a session window


@dataclass(frozen=True)
class Grouped:
    """Rows of a DataFrame by keys; `group_by` makes it, and `agg` gives its answers."""

    df: DataFrame
    keys: tuple[Column, ...]

    def agg(
        self, *calls: Column | Measure, having: Column | str | None = None, **measures: Column | Measure
    ) -> DataFrame:
        """Answer for each group.

        Parameters
        ----------
        calls : what `spark_udaf.functions` or `aggr` gives
            ``A.dds(F.col("latency_ms") / 1000, [0.99]).alias("p")``, or ``aggr.dds("latency_ms / 1000", [0.99])``. Text
            is the name of a column, or an expression in Spark's SQL.
        having : Column or SQL condition, optional
            Only groups whose keys and results make it true.
        measures : the same by name
            ``p=aggr.dds("latency_ms / 1000", [0.99])``; the name of the result.

        Returns
        -------
        DataFrame
            The keys, and one column a result, whose type follows from the schema. A call that was given no name has
            that of the function and its column, ``dds(latency_ms / 1000)``.

        Raises
        ------
        ValueError, TypeError
            For what is no call, two results of one name, a column of a type that a function does not take, or a
            session window as a key; at once.
        AnalysisException
            For keys and inputs that Spark's own ``groupBy`` and ``agg`` refuse.

        Guarantee
        ---------
        The same bits as `aggregate` and `finish` give, whatever the partitions.

        Examples
        --------
        The docs have one that runs::

            su.group_by(df, "host").agg(aggr.max("ts"), errors=aggr.count(where="status >= 500"), having="errors > 9")
        """
        calls_by_name = _named(calls, measures)
        evaluated = _Columns(self.df, calls_by_name.values())
        keys = evaluated.keys(self.keys)
        check_distinct([*(key.name for key in keys), *calls_by_name], self.df.sparkSession)
        for name in calls_by_name:
            if name in {key.name for key in keys}:
                raise ValueError(f"the name {name!r} is taken twice among keys and results; give one another")
        measures_read = {name: evaluated.measure(call) for name, call in calls_by_name.items()}
        evaluated.check_inputs(self.keys)
        rows, by = evaluated.rows(), [part for key in keys for part in key.parts]
        answers = finish(aggregate(rows, by, measures_read), measures_read)
        places = {name: quoted_column(name) for name in answers.columns}
        named = answers.select(*(key.read(places) for key in keys), *(places[name] for name in calls_by_name))
        if having is None:
            return named
        return named.where(F.expr(having) if isinstance(having, str) else having)


def group_by(df: DataFrame, *keys: Column | str) -> Grouped:
    """Group rows by keys, to be aggregated where they are: for many rows or many groups the fast way to answers.

    Parameters
    ----------
    df : DataFrame
    keys : Columns, names of columns, or expressions in Spark's SQL
        ``"host"``, ``F.window("ts", "1 minute")``, ``"date_trunc('hour', ts) AS hour"``; none gives one row.

    Returns
    -------
    Grouped
        Whose ``agg`` takes functions.

    Raises
    ------
    TypeError
        For what is no DataFrame, or no key.

    Examples
    --------
    The docs have one that runs::

        su.group_by(df, "host", F.window("ts", "1 minute")).agg(aggr.dds("latency_ms / 1000", [0.5, 0.99]))
    """
    if not hasattr(df, "mapInArrow") or isinstance(df, type):
        raise TypeError(f"give a Spark DataFrame; got {type_name(df)}")
    return Grouped(df, tuple(_expression(df, key) for key in keys))


@dataclass(frozen=True)
class _Key:
    """A key by its name, and the columns it is grouped by: of a struct, its fields and whether it is null."""

    name: str
    parts: tuple[str, ...]
    fields: tuple[str, ...] = ()

    def read(self, places: Mapping[str, Column]) -> Column:
        if not self.fields:
            return places[self.parts[0]].alias(self.name)
        missing, *parts = (places[part] for part in self.parts)
        whole = F.struct(*(part.alias(name) for part, name in zip(parts, self.fields, strict=True)))
        return F.when(~missing, whole).alias(self.name)


class _Columns:
    """What Spark evaluates of each row: keys, inputs, conditions, and the columns that conditions of `aggr` read."""

    def __init__(self, df: DataFrame, calls: Iterable[Call | Measure]) -> None:
        self._df = self._rows_in = df
        self._evaluated: dict[str, Column] = {}
        self._inputs: list[str] = []
        self._texts: dict[str, str] = {}  # an input that is given as text -> its column
        read = {name for call in calls if isinstance(call, Measure) for name in _names_in_condition(call)}
        self._read = read.intersection(df.columns)  # which keep their names

    def keys(self, columns: Sequence[Column]) -> list[_Key]:
        """Evaluate keys first: a window among them may give several rows for one."""
        if not columns:
            return []
        fields = _grouped_by(self._df, columns).schema.fields[: len(columns)]
        for field in fields:
            _check_key(field)
        names = [f"key {place}" for place in range(len(columns))]
        evaluated = [column.alias(name) for column, name in zip(columns, names, strict=True)]
        self._df = self._df.select("*", *evaluated)
        keys = []
        for field, name in zip(fields, names, strict=True):
            column = F.col(f"`{name}`")
            if not isinstance(field.dataType, StructType):
                keys.append(_Key(field.name, (self._add(field.name, column),)))
                continue
            inside = field.dataType.names
            parts = [(f"{field.name} is null", column.isNull())]
            parts += [(f"{field.name}.{part}", column.getField(part)) for part in inside]
            keys.append(_Key(field.name, tuple(self._add(*part) for part in parts), tuple(inside)))
        return keys

    def measure(self, call: Call | Measure) -> Measure:
        """Evaluate what a call reads, and name it so in a measure."""
        if isinstance(call, Measure):
            column, weight, *others = (
                None if text is None else self._text(text) for text in (call.column, call.weight, *call.others)
            )
            for name in self._read.intersection(_names_in_condition(call)):
                self._evaluated[name] = quoted_column(name)
            return replace(call, column=column, others=tuple(others), weight=weight)
        columns = [self._input(column) for column in call.columns]
        condition, weight = (None if part is None else self._input(part) for part in (call.where, call.weight))
        return Measure(call.function, columns[0] if columns else None, condition, tuple(columns[1:]), weight)

    def check_inputs(self, keys: Sequence[Column]) -> None:
        """Have Spark refuse inputs that aggregate functions may not read: generators, windows, random numbers."""
        inputs = [F.count(self._evaluated[name]) for name in self._inputs]
        if inputs:
            _ = _grouped_by(self._rows_in, keys, *inputs).schema

    def rows(self) -> DataFrame:
        columns = self._evaluated or {"nothing": F.lit(1)}
        return self._df.select(*(column.alias(name) for name, column in columns.items()))

    def _text(self, text: str) -> str:
        """Evaluate an input that is given as text, once; return what reads it."""
        if text not in self._texts:
            self._texts[text] = self._input(_expression(self._df, text), text)
        return self._texts[text]

    def _input(self, column: Column, name: str = "") -> str:
        self._inputs.append(self._add(name or text_of(column), column))
        return quoted(self._inputs[-1])

    def _add(self, name: str, column: Column) -> str:
        """Add a column under its name, or one like it where that is taken."""
        taken = {other.lower() for other in (*self._evaluated, *self._read)}
        while name.lower() in taken:
            name += "'"
        self._evaluated[name] = column
        return name


def _names_in_condition(call: Measure) -> tuple[str, ...]:
    return () if call.where is None else sql.columns_of(call.where)


def _check_key(field: StructField) -> None:
    """Refuse a key that rows cannot be grouped by one at a time, or that is nested."""
    if _SESSION in field.metadata:
        raise ValueError(
            f"group_by cannot group by the session window {field.name!r}, whose ends depend on other rows; "
            "su.aggregate has sessions of one gap: window='session(60m)', time='ts'"
        )
    if isinstance(field.dataType, ArrayType | MapType):
        raise TypeError(
            f"the key {field.name!r} has type {field.dataType.simpleString()}; keys must be of plain types, or structs "
            "of them; group by the elements of df.select('*', F.explode(…))"
        )


def _grouped_by(df: DataFrame, keys: Sequence[Column], *aggregates: Column) -> DataFrame:
    """Group by Spark's own means, which are only analyzed: what those refuse is refused here, in Spark's words."""
    return df.groupBy(*keys).agg(F.count(F.lit(1)), *aggregates)


def _named(calls: Sequence[Any], measures: Mapping[str, Any]) -> dict[str, Call | Measure]:
    """Name each call, and refuse what is none."""
    calls_by_name: dict[str, Call | Measure] = {}
    for name, call in [*((None, call) for call in calls), *measures.items()]:
        attached_call = call_of(call)
        if attached_call is None and not isinstance(call, Measure):
            raise TypeError(
                f"agg takes calls of aggr or of spark_udaf.functions, say aggr.dds('x', [0.99]); got {shown(call)}"
            )
        call, own = attached_call if attached_call is not None else (call, f"{call.function.name}({call.column or ''})")
        name = name or own
        if name in calls_by_name:
            raise ValueError(f"two results are called {name!r}; name one, say p99={name}")
        calls_by_name[name] = call
    if not calls_by_name:
        raise ValueError("agg needs at least one call, say p=aggr.dds('latency_ms', [0.99])")
    return calls_by_name


def _expression(df: DataFrame, column_or_text: Column | str) -> Column:
    """Take a Column, the name of one, or an expression in Spark's SQL."""
    if isinstance(column_or_text, Column):
        return column_or_text
    if not is_name(column_or_text):
        raise TypeError(f"give Columns, names of columns or expressions in SQL; got {shown(column_or_text)}")
    return quoted_column(column_or_text) if column_or_text in df.columns else F.expr(column_or_text)
