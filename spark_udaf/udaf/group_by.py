"""group_by: group rows by keys and expressions. Each partition reduces its rows to states before the shuffle.

    su.group_by(df, "host", F.window("ts", "1 minute")).agg(p=aggr.dds("latency_ms / 1000", [0.99]))

Spark evaluates each key and input once, and passes them to Python under their names.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from aggr import Measure, count, sql
from aggr.arguments import is_name, shown
from aggr.groups.groups import type_name
from aggr.sql.inputs import quoted
from spark_udaf.batch.aggregate import finish, merge, plan_results, plan_states
from spark_udaf.batch.running import quoted_column
from spark_udaf.plan.columns import check_collation, check_distinct_names
from spark_udaf.udaf.call import Call, call_of, counts_rows
from spark_udaf.udaf.grouping_sets import cube_sets, repeat_per_set, rollup_sets
from spark_udaf.versions.column_text import UNKNOWN_TEXT, text_of

_SET = "grouping set"
_SESSION = "spark.sessionWindow"  # The key in a column's metadata by which Spark marks a session window.

# The name of a column of the DataFrame, or a Column that Spark evaluates. A name is used if possible, because it is
# faster: a Column needs more than ten calls to the JVM, and Spark must analyze a query to find its type.
Expression = Column | str


@dataclass(frozen=True)
class Grouped:
    """The rows of a DataFrame, grouped by keys. `group_by` creates this object, and its method ``agg`` aggregates each
    group.
    """

    df: DataFrame
    keys: tuple[Expression, ...]
    totals: Literal["rollup", "cube"] | None = None
    excluded: Observation | None = None

    def rollup(self, *keys: Column | str) -> Grouped:
        """Group by all keys, by all keys except the last, by all keys except the last two, and so on, like
        ``df.rollup``.

        Parameters
        ----------
        keys : keys, as in `group_by`

        Returns
        -------
        Grouped
            Its method ``agg`` also returns a row for each coarser group. In such a row, the omitted keys are null.

        Raises
        ------
        ValueError
            If ``group_by`` was called with keys as well, or if a key is passed twice.

        Examples
        --------
        The documentation has a tested example::

            su.group_by(df).rollup("region", "host").agg(aggr.avg("latency_ms"))
        """
        return self._with_totals("rollup", keys)

    def cube(self, *keys: Column | str) -> Grouped:
        """Group by every combination of the keys, like ``df.cube``.

        Parameters
        ----------
        keys : keys, as in `group_by`

        Returns
        -------
        Grouped
            Its method ``agg`` returns the groups of every combination. In the rows of a combination, the keys that it
            omits are null.

        Raises
        ------
        ValueError
            If ``group_by`` was called with keys as well, or if a key is passed twice.

        Examples
        --------
        The documentation has a tested example::

            su.group_by(df).cube("host", "shelf").agg(aggr.count())
        """
        return self._with_totals("cube", keys)

    def pivot(self, column: Column | str, values: Sequence[Any] | None = None) -> Pivoted:
        """Turn the values of a column into columns, like ``df.groupBy(…).pivot(…)``.

        Parameters
        ----------
        column : a key, as in `group_by`
        values : list, optional
            The values that become columns. By default, a job determines them.

        Returns
        -------
        Pivoted
            An object with the method ``agg``.

        Raises
        ------
        ValueError
            If ``pivot`` is called after ``rollup`` or ``cube``, as in Spark.

        Examples
        --------
        The documentation has a tested example::

            su.group_by(df, "host").pivot("status", [200, 500]).agg(aggr.count())
        """
        if self.totals is not None:
            raise ValueError(f"pivot cannot follow {self.totals}; call pivot directly after group_by")
        return Pivoted(
            replace(self, keys=(*self.keys, _expression(self.df, column))), None if values is None else list(values)
        )

    def _with_totals(self, totals: Literal["rollup", "cube"], keys: Sequence[Column | str]) -> Grouped:
        if self.keys or self.totals:
            raise ValueError(
                f"the keys of {totals} cannot be combined with keys of group_by or other totals; pass all keys to "
                f"{totals}(…), such as su.group_by(df).{totals}(…)"
            )
        if self.excluded is not None:
            raise ValueError(
                f"the argument excluded cannot be used with {totals}, which counts each row in several totals; leave "
                "out this argument"
            )
        texts = [text_of(key) for key in keys]
        if repeated := [text for place, text in enumerate(texts) if text in texts[:place] and text != UNKNOWN_TEXT]:
            raise ValueError(f"the key {shown(repeated[0])} is passed to {totals} twice; pass it once")
        return Grouped(self.df, tuple(_expression(self.df, key) for key in keys), totals)

    def agg(
        self, *calls: Column | Measure, having: Column | str | None = None, **measures: Column | Measure
    ) -> DataFrame:
        """Return the results of calls for each group.

        Parameters
        ----------
        calls : calls of `spark_udaf.functions` or `aggr`, or Spark's own aggregates
            ``A.dds(F.col("latency_ms") / 1000, [0.99]).alias("p")``, or ``aggr.dds("latency_ms / 1000", [0.99])``. Text
            is the name of a column, or an expression in Spark's SQL. For Spark's own aggregates, such as
            ``F.max("x")``, Spark reads the DataFrame a second time and joins both results by the keys.
        having : Column or SQL condition, optional
            A condition on keys and results; other groups are removed.
        measures : the same by name
            Calls as keyword arguments, whose keywords are the names of the results, such as
            ``p=aggr.dds("latency_ms / 1000", [0.99])``.

        Returns
        -------
        DataFrame
            The keys, and one column per result, whose type follows from the schema. The default name of a result
            consists of the function and its column, ``dds(latency_ms / 1000)``.

        Raises
        ------
        ValueError, TypeError
            Immediately, for arguments that are not calls or Columns, two results with the same name, a column whose
            type a function does not accept, or a session window as a key.
        AnalysisException
            If Spark's own ``groupBy`` and ``agg`` refuse keys or inputs.

        Guarantee
        ---------
        The results have the same bits as those of `aggregate` and `finish`, for any partitions.

        Examples
        --------
        The documentation has a tested example::

            su.group_by(df, "host").agg(aggr.max("ts"), errors=aggr.count(where="status >= 500"), having="errors > 9")
        """
        calls_by_name = self._calls_by_name(calls, measures)
        library_calls = {name: call for name, call in calls_by_name.items() if isinstance(call, Call | Measure)}
        built_in = {name: column for name, column in calls_by_name.items() if isinstance(column, Column)}
        if not library_calls:
            columns = [column.alias(name) for name, column in built_in.items()]
            results: DataFrame = self._spark_groups().agg(*columns)
        else:
            results = self._library_results(library_calls, has_set_column=bool(built_in) and self.totals is not None)
        if library_calls and built_in:
            results = self._join_spark_results(results, built_in)
            names = results.columns[len(self.keys) :]
            places = [*range(len(self.keys)), *(len(self.keys) + names.index(name) for name in calls_by_name)]
            results = _columns_at(results, places)
        if having is None:
            return results
        return results.where(F.expr(having) if isinstance(having, str) else having)

    def _library_results(self, calls: Mapping[str, Call | Measure], has_set_column: bool = False) -> DataFrame:
        """Return a DataFrame with the keys and the results of calls. If ``has_set_column`` is true, the last column
        contains the number of the grouping set of each row.
        """
        columns_for_python = _EvaluatedColumns(self.df, calls.values())
        keys = columns_for_python.keys(self.keys)
        check_distinct_names([*(key.name for key in keys), *calls], self.df.sparkSession)
        for name in calls:
            if name in {key.name for key in keys}:
                raise ValueError(f"the name {name!r} is used twice among keys and results; rename one of them")
        measures_read = {name: columns_for_python.measure(call) for name, call in calls.items()}
        columns_for_python.check_inputs(self.keys)
        key_parts = [part for key in keys for part in key.parts]
        states = plan_states(columns_for_python.rows(), key_parts, measures_read)
        set_column = _unused_name(_SET, [*states.result_schema.names, *calls])
        if self.excluded is not None:
            results = finish(states.run(), measures_read, excluded=self.excluded)
        elif self.totals is None:
            results_plan = plan_results(states, measures_read)
            results = results_plan.run()
            if results_plan.result_schema.names == [*(key.name for key in keys), *calls]:
                return results
        else:
            parts = [key.parts for key in keys]
            states_of_sets = repeat_per_set(states.run(), parts, self._set_numbers, set_column)
            results = finish(merge(states_of_sets, [*key_parts, set_column]), measures_read)
        columns_by_name = {name: quoted_column(name) for name in results.columns}
        columns = [*(key.read_column(columns_by_name) for key in keys), *(columns_by_name[name] for name in calls)]
        return results.select(*columns, *([columns_by_name[set_column].alias(_SET)] if has_set_column else []))

    @property
    def _set_numbers(self) -> list[int]:
        return rollup_sets(len(self.keys)) if self.totals == "rollup" else cube_sets(len(self.keys))

    def _spark_groups(self) -> Any:
        """Return Spark's own object for the same groups. Its method ``agg`` computes Spark's own aggregates."""
        return getattr(self.df, self.totals or "groupBy")(*map(_in_spark, self.keys))

    def _join_spark_results(self, library_results: DataFrame, built_in: Mapping[str, Column]) -> DataFrame:
        """Return ``library_results``, joined with the results of Spark's own aggregates for the same groups."""
        sets = [F.grouping_id()] if self.totals is not None else []
        # With grouping sets, the last column contains the number of the grouping set.
        names = library_results.columns[: len(library_results.columns) - len(sets)]
        keys = names[: len(self.keys)]
        result_names = names[len(self.keys) :]
        check_distinct_names([*names, *built_in], self.df.sparkSession)
        for name in built_in:
            if name in keys:
                raise ValueError(f"the name {name!r} is used twice among keys and results; rename one of them")
        join_keys = [f"key {index}" for index in range(len(keys) + len(sets))]
        spark_keys = [f"their {name}" for name in join_keys]
        result_columns = {f"result {index}": name for index, name in enumerate(result_names)}
        built_in_columns = {f"built-in {index}": name for index, name in enumerate(built_in)}
        left = library_results.toDF(*join_keys[: len(keys)], *result_columns, *join_keys[len(keys) :])
        right = self._spark_groups().agg(*sets, *built_in.values()).toDF(*spark_keys, *built_in_columns)
        pairs = zip(map(quoted_column, join_keys), map(quoted_column, spark_keys), strict=True)
        key_conditions = [key.eqNullSafe(other) for key, other in pairs]
        joined_results = (
            left.join(right, functools.reduce(operator.and_, key_conditions))
            if key_conditions
            else left.crossJoin(right)
        )
        final_names = {**dict(zip(join_keys, keys, strict=False)), **result_columns, **built_in_columns}
        return joined_results.select(*(quoted_column(column).alias(name) for column, name in final_names.items()))

    def _calls_by_name(self, calls: Sequence[Any], measures: Mapping[str, Any]) -> dict[str, Call | Measure | Column]:
        """Return a dict from the names of results to calls. If an aggregate of Spark was passed without a name, Spark
        chooses its name.
        """
        named_calls = _named_calls(calls, measures)
        built_in = [column for _, column in named_calls if isinstance(column, Column)]
        if built_in:
            spark_names = iter(self._spark_groups().agg(*built_in).columns[len(self.keys) :])
            default_names = [next(spark_names) if isinstance(call, Column) else None for _, call in named_calls]
            named_calls = [
                (name or default, call) for (name, call), default in zip(named_calls, default_names, strict=True)
            ]
        by_name: dict[str, Call | Measure | Column] = {}
        for name, call in named_calls:
            if name in by_name:
                raise ValueError(f"two results are called {name!r}; name one of them, such as p99={name}")
            by_name[str(name)] = call
        return by_name


@dataclass(frozen=True)
class Pivoted:
    """Rows that are grouped by keys and by a column whose values become columns. `Grouped.pivot` creates
    this object.
    """

    groups: Grouped
    values: list[Any] | None

    def agg(
        self, *calls: Column | Measure, having: Column | str | None = None, **measures: Column | Measure
    ) -> DataFrame:
        """Return the results of measures for each group and each value of the pivot column.

        Parameters
        ----------
        calls, measures, having : as in `Grouped.agg`

        Returns
        -------
        DataFrame
            The keys, and one column per value, such as ``500``. With several results, one column per value and result,
            such as ``500_errors``. Null if a group has no rows with the value.

        Raises
        ------
        ValueError, TypeError, AnalysisException
            For the same reasons as `Grouped.agg`.
        """
        results = self.groups.agg(*calls, having=None, **measures)
        # Two keys may have the same name, so the columns are numbered.
        columns = dict(zip(_numbered(results), results.columns, strict=True))
        aliased = [quoted_column(number).alias(name) for number, name in columns.items()]
        last = len(self.groups.keys) - 1
        first_results = [F.first(quoted_column(number)).alias(name) for number, name in [*columns.items()][last + 1 :]]
        groups = results.toDF(*columns).groupBy(*aliased[:last])
        pivot_results = groups.pivot(list(columns)[last], self.values).agg(*first_results)
        if having is None:
            return pivot_results
        return pivot_results.where(F.expr(having) if isinstance(having, str) else having)


def _numbered(df: DataFrame) -> list[str]:
    """Return names for the columns of a DataFrame that differ from each other."""
    return [f"c{place}" for place in range(len(df.columns))]


def _columns_at(df: DataFrame, places: Sequence[int]) -> DataFrame:
    """Return the columns at some places of a DataFrame; two columns may have the same name."""
    numbers = _numbered(df)
    names = df.columns
    return df.toDF(*numbers).select(*(F.col(numbers[place]).alias(names[place]) for place in places))


def group_by(df: DataFrame, *keys: Column | str, excluded: Observation | None = None) -> Grouped:
    """Group rows by keys. Each partition reduces its rows before the shuffle, which is fast for many rows or many
    groups.

    Parameters
    ----------
    df : DataFrame
    keys : Columns, names of columns, or expressions in Spark's SQL
        ``"host"``, ``F.window("ts", "1 minute")``, ``"date_trunc('hour', ts) AS hour"``. Without keys, all rows
        are one group.
    excluded : `pyspark.sql.Observation`, optional
        Counts the groups that have more values than a limit, and the values that were refused, as in `finish`.

    Returns
    -------
    Grouped
        An object whose method ``agg`` returns the results of each group.

    Raises
    ------
    TypeError
        If ``df`` is not a DataFrame, or an argument is not a key.

    Examples
    --------
    The documentation has a tested example::

        su.group_by(df, "host", F.window("ts", "1 minute")).agg(aggr.dds("latency_ms / 1000", [0.5, 0.99]))
    """
    if not hasattr(df, "mapInArrow") or isinstance(df, type):
        raise TypeError(f"expected a Spark DataFrame; got {type_name(df)}")
    return Grouped(df, tuple(_expression(df, key) for key in keys), excluded=excluded)


@dataclass(frozen=True)
class _Key:
    """A key by which rows are grouped. ``parts`` are the names of the columns in which Spark sends the key to Python. A
    struct is sent as a boolean column, which is true if the struct is null, and one column per field.
    """

    name: str
    parts: tuple[str, ...]
    fields: tuple[str, ...] = ()

    def read_column(self, columns_by_name: Mapping[str, Column]) -> Column:
        if not self.fields:
            return columns_by_name[self.parts[0]].alias(self.name)
        missing, *parts = (columns_by_name[part] for part in self.parts)
        struct = F.struct(*(part.alias(name) for part, name in zip(parts, self.fields, strict=True)))
        return F.when(~missing, struct).alias(self.name)


class _EvaluatedColumns:
    """The columns that Spark evaluates before it sends rows to Python: keys, inputs and conditions of calls, and the
    columns that are named in the SQL conditions of `aggr` calls.
    """

    def __init__(self, df: DataFrame, calls: Iterable[Call | Measure]) -> None:
        self._original_df = df  # the DataFrame of the user; unlike ``_df``, it never has additional columns for keys
        self._df = df
        self._columns_by_name: dict[str, Expression] = {}
        self._inputs: list[str] = []
        self._texts: dict[str, str] = {}  # maps the SQL text of an input to the quoted name of its column
        # The names in SQL conditions of `aggr` calls: columns, and paths such as ``window.start``. Python evaluates the
        # conditions with these names, so no other column may have one of them.
        self._names_in_conditions = {
            ".".join(parts[: end + 1])
            for call in calls
            if isinstance(call, Measure)
            for parts in [name.split(".") for name in sql.columns_of(call.where)]
            for end in range(len(parts))
        }

    def keys(self, keys: Sequence[Expression]) -> list[_Key]:
        """Return the keys, and add their columns to the columns that Spark evaluates.

        If a key is a struct, all keys are first added to the DataFrame as columns, so that the fields of the struct can
        be read as columns. If the struct is a sliding window, Spark then repeats each row for every window that
        contains the row.
        """
        if not keys:
            return []
        fields = self._key_fields(keys)
        for field in fields:
            _check_key(field)
        if any(isinstance(field.dataType, StructType) for field in fields):
            keys = self._evaluate_first(keys)
        return [self._key(field, key) for field, key in zip(fields, keys, strict=True)]

    def _key_fields(self, keys: Sequence[Expression]) -> list[StructField]:
        if all(isinstance(key, str) for key in keys):
            schema = self._df.schema
            return [schema[key] for key in keys if isinstance(key, str)]
        return _spark_group_by(self._df, keys).schema.fields[: len(keys)]

    def _evaluate_first(self, keys: Sequence[Expression]) -> list[Expression]:
        """Add each key that is a Column to the DataFrame as a column, and return the names of all keys."""
        names = [key if isinstance(key, str) else self._unused_name(f"key {index}") for index, key in enumerate(keys)]
        key_columns = [key.alias(name) for key, name in zip(keys, names, strict=True) if isinstance(key, Column)]
        self._df = self._df.select("*", *key_columns)
        return list(names)

    def _key(self, field: StructField, key: Expression) -> _Key:
        if not isinstance(field.dataType, StructType):
            # If a key is passed twice, its column is added twice, under two names.
            if isinstance(key, str) and key in self._columns_by_name:
                key = quoted_column(key)
            return _Key(field.name, (self._add(field.name, key),))
        column = quoted_column(key) if isinstance(key, str) else key
        field_names = field.dataType.names
        parts = [(f"{field.name} is null", column.isNull())]
        parts += [(f"{field.name}.{part}", column.getField(part)) for part in field_names]
        return _Key(field.name, tuple(self._add(*part) for part in parts), tuple(field_names))

    def measure(self, call: Call | Measure) -> Measure:
        """Return a call as a measure, and add its inputs to the columns that Spark evaluates. The inputs of the measure
        are the names of the added columns.
        """
        if isinstance(call, Measure):
            column, weight, *further_columns = (
                None if text is None else self._text(text) for text in (call.column, call.weight, *call.others)
            )
            if call.where is not None:
                for name in count(where=call.where).columns(self._original_df.columns):
                    self._columns_by_name[name] = name
            return replace(call, column=column, others=tuple(further_columns), weight=weight)
        columns = [self._input(column) for column in call.columns]
        condition, weight = (None if part is None else self._input(part) for part in (call.where, call.weight))
        return Measure(
            call.function,
            column=columns[0] if columns else None,
            where=condition,
            others=tuple(columns[1:]),
            weight=weight,
        )

    def check_inputs(self, keys: Sequence[Expression]) -> None:
        """Raise Spark's error for inputs that aggregate functions must not have: generators, windows and random
        numbers. The error is raised when Spark analyzes a query with these inputs. The query does not run.
        """
        inputs = [self._columns_by_name[name] for name in self._inputs]
        counts = [F.count(column) for column in inputs if isinstance(column, Column)]
        if counts:
            _ = _spark_group_by(self._original_df, keys, *counts).schema

    def rows(self) -> DataFrame:
        columns = [
            quoted(name) if isinstance(column, str) else column.alias(name)
            for name, column in self._columns_by_name.items()
        ]
        return self._df.select(*columns or [F.lit(1).alias("nothing")])

    def _text(self, text: str) -> str:
        """Return the quoted name of a column whose values are those of ``text``, an expression in SQL. The column is
        evaluated only once if several calls contain the same text.
        """
        if text not in self._texts:
            self._texts[text] = self._input(_expression(self._df, text), text)
        return self._texts[text]

    def _input(self, column: Expression, name: str = "") -> str:
        self._inputs.append(self._add(name or (column if isinstance(column, str) else text_of(column)), column))
        return quoted(self._inputs[-1])

    def _add(self, name: str, column: Expression) -> str:
        """Add a column to the columns that Spark evaluates, and return the name of the added column: ``name``, or a
        similar name if ``name`` is already used. A column of the DataFrame is added only once.
        """
        if isinstance(column, str):
            if (
                isinstance(self._columns_by_name.get(column), str)
                or _unused_name(column, self._columns_by_name) == column
            ):
                self._columns_by_name[column] = column
                return column
            column = quoted_column(column)
        name = _unused_name(name, (*self._columns_by_name, *self._names_in_conditions))
        self._columns_by_name[name] = column
        return name

    def _unused_name(self, name: str) -> str:
        """Return ``name``, or a similar name if the DataFrame already has a column with the name ``name``."""
        return _unused_name(name, self._original_df.columns)


def _unused_name(name: str, existing_names: Iterable[str]) -> str:
    """Return a name that differs from all existing names, also if case is ignored: ``name``, with as many primes (') at
    its end as are needed.
    """
    lower = {other.lower() for other in existing_names}
    while name.lower() in lower:
        name += "'"
    return name


def _check_key(field: StructField) -> None:
    """Raise an error for a session window or a nested type as a key."""
    if _SESSION in field.metadata:
        raise ValueError(
            f"group_by cannot group by the session window {field.name!r}, whose end depends on other "
            "rows; use su.aggregate for sessions with a fixed gap: window='session(60m)', time='ts'"
        )
    check_collation(field)
    if isinstance(field.dataType, ArrayType | MapType):
        raise TypeError(
            f"the key {field.name!r} has type {field.dataType.simpleString()}; keys must not be nested, except for "
            "structs; to group by the elements of a list, use df.select('*', F.explode(…))"
        )


def _spark_group_by(df: DataFrame, keys: Sequence[Expression], *aggregates: Column) -> DataFrame:
    """Return a DataFrame that Spark's own ``groupBy`` creates for the keys. The DataFrame is never computed. It is used
    for its schema, and to raise Spark's errors for invalid keys.
    """
    return df.groupBy(*map(_in_spark, keys)).agg(F.count(F.lit(1)), *aggregates)


def _named_calls(calls: Sequence[Any], measures: Mapping[str, Any]) -> list[tuple[str | None, Call | Measure | Column]]:
    """Return a pair of a name and a call for each argument of ``agg``. If an aggregate of Spark was passed without a
    name, the pair contains None in place of the name.
    """
    named_calls: list[tuple[str | None, Call | Measure | Column]] = []
    for name, call in [*((None, call) for call in calls), *measures.items()]:
        attached_call = call_of(call)
        if attached_call is not None:
            named_calls.append((name or attached_call[1], attached_call[0]))
        elif isinstance(call, Measure):
            named_calls.append((name or _default_name(call), _counting_rows(call)))
        elif isinstance(call, Column):
            named_calls.append((name, call))
        else:
            raise TypeError(
                "agg accepts calls of aggr, of spark_udaf.functions and Spark's own aggregates, such as "
                f"aggr.dds('x', [0.99]); got {shown(call)}"
            )
    if not named_calls:
        raise ValueError("agg needs at least one call, such as p=aggr.dds('latency_ms', [0.99])")
    return named_calls


def _default_name(measure: Measure) -> str:
    return f"{measure.function.name}({measure.column or ''})"


def _counting_rows(measure: Measure) -> Measure:
    """Replace the measure ``count("*")`` by a measure that counts rows, as in SQL. Return other measures unchanged."""
    return replace(measure, column=None) if counts_rows(measure.function.name, measure.column) else measure


def _expression(df: DataFrame, column_or_text: Column | str) -> Expression:
    """Return a Column, or the name of a column of ``df``, unchanged. Any other text is an expression in Spark's SQL.
    For such an expression, return a Column.
    """
    if isinstance(column_or_text, Column):
        return column_or_text
    if not is_name(column_or_text):
        raise TypeError(f"expected Columns, names of columns or expressions in SQL; got {shown(column_or_text)}")
    return column_or_text if column_or_text in df.columns else F.expr(column_or_text)


def _in_spark(expression: Expression) -> Expression:
    """Put a name in backticks if Spark would not parse it as a single name. Other names and Columns are unchanged."""
    return quoted(expression) if isinstance(expression, str) else expression
