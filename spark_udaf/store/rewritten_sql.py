"""sql: answer a query of a table, with GROUP BY over its time and keys, from a store that contains the rows of the
table. A query is answered only if the result is provably equal to the result that Spark computes from the table.

The rewritten query applies the same SELECT to the result of `su.read`. Each group and each aggregate is replaced by a
column of this result. The rewritten query must return the same types as the original query. If the store could return a
different result than Spark for a part of the query, an error is raised, which names the part.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DoubleType, FloatType, IntegralType, StringType, StructType, TimestampType
from sqlglot import exp

import aggr
from aggr import Measure
from aggr.arguments import is_name, shown
from aggr.tables.state_plan import find_state_column
from spark_udaf.store.select import (
    normalized_text,
    parse_column,
    parse_select,
    quoted,
    refuse,
    text_of,
    time_of_literal,
    window_of_group,
    without_table_names,
)
from spark_udaf.store.source import read
from spark_udaf.store.write import check_store
from tiltframe import FrameStore, Query
from tiltframe.names import END, START
from windows import as_window

_UTC = ("UTC", "Etc/UTC")
_MEASURE_BY_AGGREGATE: dict[type[exp.Expr], Callable[[str], Measure]] = {
    exp.Count: aggr.count,
    exp.Sum: aggr.sum,
    exp.Min: aggr.min,
    exp.Max: aggr.max,
}
# The classes of expressions of sqlglot that are allowed in a condition on keys.
_CONDITION_NODES = (
    *(exp.Column, exp.Identifier, exp.Literal, exp.Paren, exp.Null, exp.And, exp.Or, exp.Not, exp.Is, exp.In),
    *(exp.Between, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE),
)
# The classes of expressions of sqlglot that are allowed in the results, HAVING, ORDER BY and LIMIT of a query.
_SUPPORTED = (
    *(*_CONDITION_NODES, exp.Alias, exp.Boolean, exp.Dot, exp.Ordered, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg),
    *(exp.Order, exp.Having, exp.Limit, exp.Coalesce),
)


def store_sql(query: str, store: FrameStore, spark: SparkSession | None = None, *, exact: bool = True) -> DataFrame:
    """Answer a query of a table from a store of the table's rows, if the result is provably the same.

    Parameters
    ----------
    query : str
        ``SELECT … FROM table [WHERE …] [GROUP BY …] [HAVING …] [ORDER BY …] [LIMIT n]`` in Spark's SQL, of a table or
        view of the session. Groups are ``window(ts, '1 hour')`` or ``date_trunc('hour', ts)``, and keys of the frame.
        A condition uses only keys, or compares the time with the start of a window by ``>=`` or ``<``. Aggregates are
        ``count``, ``min`` and ``max``, and ``sum`` of integers and decimals. They may be combined by arithmetic and
        comparisons.
    store : FrameStore
        A store of the same rows, accessible to the driver and the tasks.
    spark : SparkSession, optional
        The default is the active session.
    exact : bool
        With ``exact=False``, ``avg``, and ``sum`` of doubles, are also answered. For these aggregates, Spark rounds the
        sum after every row, in an order of rows that may change. A store rounds the sum once. The results may therefore
        differ in the last digits.

    Returns
    -------
    DataFrame
        The names and types are those of ``spark.sql(query)``.

    Raises
    ------
    ValueError
        If the store cannot give the same result; the message names the part of the query.
    AnalysisException
        If Spark rejects the query.

    Guarantee
    ---------
    The result equals that of ``spark.sql(query)`` over the rows of the store. With ``exact=True``, the two results are
    equal bit for bit.

    Examples
    --------
    The documentation has a tested example::

        su.sql("SELECT host, count(*) FROM requests GROUP BY host", store)
    """
    check_store(store)
    if not is_name(query):
        raise ValueError(f"a query must be text in SQL; got {shown(query)}")
    session = SparkSession.active() if spark is None else spark
    zone = session.conf.get("spark.sql.session.timeZone")
    if store.frame.timezone not in _UTC or zone not in _UTC:
        raise ValueError(
            f"windows of SQL and of a store agree only in UTC; the frame has the time zone {store.frame.timezone}, and "
            f"spark.sql.session.timeZone is {zone}; set this setting to UTC if the frame is in UTC, or query the store "
            "with su.read"
        )
    schema = session.sql(query).schema  # Here, Spark resolves all names, and raises an error for an invalid query.
    select = parse_select(query)
    table = select.args["from_"].this
    source = exp.table_(table.this, db=table.args.get("db"))
    return _RewrittenQuery(store, session.table(text_of(source)).schema, select, exact).answer(session, schema)


class _RewrittenQuery:
    """A query of a table, rewritten as a query of the results of a store. The results have one column for each
    GROUP BY expression and each aggregate of the query.
    """

    def __init__(self, store: FrameStore, table_schema: StructType, select: exp.Select, exact: bool) -> None:
        """Read the clauses of ``select``. Raise ``ValueError`` for a clause for which the store could return a
        different result than Spark.
        """
        self.store = store
        self.select = select
        self.exact = exact
        self.types = {column.name.lower(): column.dataType for column in table_schema}
        self.names = {column.name.lower(): column.name for column in table_schema}
        frame = store.frame
        self.keys_of_frame = {name.lower(): name for name, text in frame.keyed_by.items() if name == text}
        if not isinstance(self.types.get(frame.time.lower()), TimestampType):
            refuse(frame.time, "is the time of the store, but not a TIMESTAMP column of the table")
        # A key of this dict is the normalized text of a GROUP BY expression or of an aggregate. The value is the name
        # of the column that contains the values of this expression in the store's results.
        self.columns: dict[str, str] = {}
        self.keys: list[str] = []
        self.per = "all"
        self.measures: dict[str, Measure] = {}
        self.aliases: dict[str, exp.Expr] = {
            item.alias.lower(): item.this for item in select.expressions if isinstance(item, exp.Alias)
        }
        for alias, source in self.aliases.items():
            if alias in self.types and not (isinstance(source, exp.Column) and source.name.lower() == alias):
                refuse(f"the alias {alias}", "is also a column of the table; choose another alias")
        self.group_by = select.args.get("group")
        if self.group_by is not None:
            for group in self.group_by.expressions:
                self._add_group(self._resolve_group(group))
        self.within, self.where = self._range_and_condition()
        self.projections = [self._rewrite_clause(item.unalias()) for item in select.expressions]
        clauses = [clause for name in ("having", "order", "limit") if (clause := select.args.get(name))]
        if clauses and not self.group_by:
            refuse(text_of(clauses[0]), "cannot be answered from a store without GROUP BY")
        self.clauses = [self._rewrite_clause(clause) for clause in clauses]

    def _resolve_group(self, group: exp.Expr) -> exp.Expr:
        """Return the expression for which an element of GROUP BY stands. An element that is the position or the alias
        of a result of the SELECT stands for the expression of this result. Any other element is returned unchanged.
        """
        if isinstance(group, exp.Literal) and not group.is_string:
            projection: exp.Expr = self.select.expressions[int(group.name) - 1].unalias()
            return projection
        if isinstance(group, exp.Column) and group.name.lower() not in self.types:
            return self.aliases.get(group.name.lower(), group)
        return group

    def _add_group(self, group: exp.Expr) -> None:
        if isinstance(group, exp.Column) and group.name.lower() in self.keys_of_frame:
            key = self.keys_of_frame[group.name.lower()]
            self.columns[normalized_text(group)] = quoted(key)
            self.keys += [] if key in self.keys else [key]
            return
        window_text, column = window_of_group(group, self.store.frame.time)
        if window_text is None:
            keys = ", ".join(self.keys_of_frame.values())
            refuse(f"the group {text_of(group)}", f"is neither a window of the time nor a key of the store ({keys})")
        if self.per not in ("all", window_text):
            refuse(f"the group {text_of(group)}", "is a second window, and only one is supported")
        self.per = window_text
        self.columns[normalized_text(group)] = column

    def _range_and_condition(self) -> tuple[tuple[dt.datetime | None, dt.datetime | None] | None, str | None]:
        """Return the two parts of the WHERE clause: the range of time, and the condition on keys. A missing part is
        returned as None. Raise ``ValueError`` for conditions that are not supported.
        """
        bounds: list[dt.datetime | None] = [None, None]
        conditions = list[str]()
        clause = self.select.args.get("where")
        parts: list[exp.Expr] = []
        if clause:
            parts = list(clause.this.flatten()) if isinstance(clause.this, exp.And) else [clause.this]
        for condition_part in parts:
            condition = f"the condition {text_of(condition_part)}"
            names = {column.name.lower() for column in condition_part.find_all(exp.Column)}
            if names <= self.keys_of_frame.keys():
                for node in condition_part.walk():
                    if not isinstance(node, _CONDITION_NODES):
                        refuse(condition, f"contains {node.key}, which is not supported")
                    if (
                        isinstance(node, exp.Predicate)
                        and not isinstance(node, exp.Is)
                        and not self._has_equal_types(node)
                    ):
                        refuse(condition, "compares a key with a value of another type")
                conditions.append(f"({text_of(without_table_names(condition_part))})")
                continue
            bound_index = 0 if isinstance(condition_part, exp.GTE) else 1
            moment = (
                time_of_literal(condition_part.expression) if isinstance(condition_part, exp.GTE | exp.LT) else None
            )
            if (
                moment is None
                or names != {self.store.frame.time.lower()}
                or not isinstance(condition_part.this, exp.Column)
            ):
                refuse(
                    condition,
                    "is not supported: conditions must use only keys, or compare the time with a constant by >= or <",
                )
            if bounds[bound_index] is not None:
                refuse(condition, f"is a second {'upper' if bound_index else 'lower'} bound of the time")
            bounds[bound_index] = moment
            window = as_window(self.store.frame.levels[0] if self.per == "all" else self.per, "UTC")
            micros = int(moment.timestamp()) * 1_000_000
            if int(window.starts(np.array([micros]))[0]) != micros:
                refuse(
                    condition,
                    f"does not coincide with the start of a window of {window.name}; use the start of a window",
                )
        return (bounds[0], bounds[1]) if any(bounds) else None, " AND ".join(conditions) or None

    def _has_equal_types(self, comparison: exp.Expr) -> bool:
        """Return whether a comparison has only texts, or only integers, so that Spark does not cast them."""
        types = [self.types[column.name.lower()] for column in comparison.find_all(exp.Column)]
        literals = list(comparison.find_all(exp.Literal))
        if all(isinstance(dtype, StringType) for dtype in types):
            return all(literal.is_string for literal in literals)
        are_integers = all(literal.is_int and int(literal.name) < 1 << 63 for literal in literals)
        return are_integers and all(isinstance(dtype, IntegralType) for dtype in types)

    def _rewrite_clause(self, clause: exp.Expr) -> str:
        """Return the text of a clause in which groups and aggregates are replaced by columns of the store's results."""

        def replace_node(node: exp.Expr) -> exp.Expr:
            if column := self.columns.get(normalized_text(node)):
                return parse_column(column)
            if isinstance(node, exp.AggFunc):
                return parse_column(self._add_aggregate(node))
            if isinstance(node, exp.Column):
                name = node.name.lower()
                owner = node.table.lower()
                if owner == "window" and name in ("start", "end") and "window" in self.columns.values():
                    return parse_column(f"window.{name}")
                if name == "window" and not owner and "window" in self.columns.values():
                    return node
                if name in self.aliases and name not in self.types:
                    return node if isinstance(clause, exp.Order) else self.aliases[name].transform(replace_node)
            if isinstance(node, exp.Column):
                refuse(text_of(node), "is neither in GROUP BY nor the argument of an aggregate")
            if not isinstance(node, _SUPPORTED):
                refuse(text_of(node), "is not supported")
            return node

        return text_of(clause.transform(replace_node))

    def _add_aggregate(self, call: exp.AggFunc) -> str:
        """Find the measure of the store that returns the same values, of the same type, as the aggregate ``call``. Add
        this measure to the rewritten query, and return the name of its column. Raise ``ValueError`` if the store has no
        such measure.
        """
        measure_by_aggregate = _MEASURE_BY_AGGREGATE if self.exact else _MEASURE_BY_AGGREGATE | {exp.Avg: aggr.avg}
        column = call.this
        make_measure = measure_by_aggregate.get(type(call))
        counts_rows = type(call) is exp.Count and isinstance(column, exp.Star | exp.Literal) and not call.expressions
        if make_measure is None or not (counts_rows or isinstance(column, exp.Column)) or call.expressions:
            refuse(
                text_of(call),
                "is not supported: only count, sum, min and max of a column have the same meaning in a store; "
                "exact=False also allows avg",
            )
        name = "" if counts_rows else column.name.lower()
        is_of_doubles = isinstance(self.types.get(name), FloatType | DoubleType)
        is_of_text = isinstance(self.types.get(name), StringType) and type(call) in (exp.Sum, exp.Avg)
        if is_of_text or (type(call) is exp.Sum and is_of_doubles and self.exact):
            remedy = (
                "cast the column to a number"
                if is_of_text
                else "pass exact=False to accept results that differ in the last digits"
            )
            refuse(
                text_of(call),
                f"adds doubles: in Spark, their sum depends on the order of rows, but not in a store; {remedy}",
            )
        measure = make_measure() if counts_rows else make_measure(self.names.get(name, name))  # type: ignore[call-arg]
        if find_state_column(self.store.frame.states, measure) is None:
            refuse(text_of(call), "is not a measure of the store")
        column_name = f"__{len(self.measures)}"
        self.measures[column_name] = measure
        self.columns[normalized_text(call)] = column_name
        return column_name

    def answer(self, session: SparkSession, schema: StructType) -> DataFrame:
        """Return the result of the query, read from the store, with the column names of ``schema``. Raise
        ``ValueError`` if the store lacks a part of the query's time range, or if the types differ from ``schema``.
        """
        # A query without aggregates needs only the groups, but `read` requires a measure.
        measures: Any = self.measures or list(self.store.frame.measures)[:1]
        try:
            # `ask` plans the query without reading results, to find parts of the range that the store lacks. Below,
            # `read` returns a DataFrame whose tasks read the results.
            answer = self.store.ask(
                Query(self.per, within=self.within, where=self.where, measures=measures, keys=self.keys)
            )
        except ValueError as error:
            raise ValueError(f"the store cannot answer the query: {error}") from None
        if missing := (*answer.expired, *answer.unknown):
            refuse("the range", f"is not completely in the store: {missing[0]}")
        store_results = read(
            session,
            self.store.uri,
            per=self.per,
            within=self.within,
            where=self.where,
            measures=measures,
            keys=self.keys,
            name=self.store.name,
            storage_options=self.store.storage_options,
        )
        columns = [
            f"coalesce(max({name}), 0L) AS {name}" if measure.function.name == "count" else f"max({name}) AS {name}"
            for name, measure in self.measures.items()
        ]
        if self.group_by:
            columns = ["*", f"{START} AS __time", f"named_struct('start', {START}, 'end', {END}) AS window"]
        named_projections = [
            f"{projection} AS {quoted(column.name)}"
            for projection, column in zip(self.projections, schema, strict=True)
        ]
        text = f"SELECT {', '.join(named_projections)} FROM (SELECT {', '.join(columns)} FROM {{store_results}})"
        clauses = [re.sub("^HAVING", "WHERE", clause) for clause in self.clauses]
        result = session.sql(" ".join([text, *clauses]), store_results=store_results)
        for result_column, table_column in zip(result.schema, schema, strict=True):
            types = result_column.dataType.simpleString(), table_column.dataType.simpleString()
            if types[0] != types[1]:
                refuse(
                    f"the column {table_column.name}",
                    f"would have the type {types[0]} from the store, but has {types[1]} in the table",
                )
        return result
