"""sql: a GROUP BY over time and keys of a raw table, answered from a store of its rows if that is provably the same.

What `su.read` of the store gives is selected by the same SELECT, of columns in place of groups and aggregates. Spark is
asked for the types that the query has over the table, and the rewritten one has them too. Whatever is not known here to
be the same is refused, with a sentence that names it.
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
from aggr.tables.state_plan import holder
from spark_udaf.store.select import (
    column_of,
    moment_of,
    parsed,
    quoted,
    refuse,
    same_text,
    text_of,
    time_group,
    unqualified,
)
from spark_udaf.store.source import read
from spark_udaf.store.write import check_store
from tiltframe import FrameStore, Query
from tiltframe.names import END, START
from windows import as_window

_UTC = ("UTC", "Etc/UTC")
_CALLS: dict[type[exp.Expr], Callable[[str], Measure]] = {
    exp.Count: aggr.count,
    exp.Sum: aggr.sum,
    exp.Min: aggr.min,
    exp.Max: aggr.max,
}
_COMPARING = (  # what a condition on keys is made of
    *(exp.Column, exp.Identifier, exp.Literal, exp.Paren, exp.Null, exp.And, exp.Or, exp.Not, exp.Is, exp.In),
    *(exp.Between, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE),
)
_KNOWN = (  # what may stand around groups and aggregates
    *(*_COMPARING, exp.Alias, exp.Boolean, exp.Dot, exp.Ordered, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg),
    *(exp.Order, exp.Having, exp.Limit, exp.Coalesce),
)


def store_sql(query: str, store: FrameStore, spark: SparkSession | None = None) -> DataFrame:
    """Answer a query of a table from a store that has the table's rows, if the answer is provably the same.

    Parameters
    ----------
    query : str
        ``SELECT … FROM table [WHERE …] [GROUP BY …] [HAVING …] [ORDER BY …] [LIMIT n]`` in Spark's SQL, of a table or
        view of the session. Groups are ``window(ts, '1 hour')`` or ``date_trunc('hour', ts)``, and keys of the frame;
        conditions compare keys, or the time with moments at which a window begins, by ``>=`` and ``<``; aggregates are
        ``count``, ``min`` and ``max``, and ``sum`` of whole numbers and decimals. Arithmetic and comparisons of these.
    store : FrameStore
        Of the same rows; driver and tasks must reach it.
    spark : SparkSession, optional
        The active one unless given.

    Returns
    -------
    DataFrame
        With the names and types that ``spark.sql(query)`` has.

    Raises
    ------
    ValueError
        If the store cannot give the very same answer: a sentence says which part of the query is why.
    AnalysisException
        For what is no query of the table.

    Guarantee
    ---------
    Equal to ``spark.sql(query)`` over the rows that the store has.

    Examples
    --------
    The docs have one that runs::

        su.sql("SELECT host, count(*) FROM requests GROUP BY host", store)
    """
    check_store(store)
    if not is_name(query):
        raise ValueError(f"a query is text in SQL; got {shown(query)}")
    session = SparkSession.active() if spark is None else spark
    zone = session.conf.get("spark.sql.session.timeZone")
    if store.frame.timezone not in _UTC or zone not in _UTC:
        raise ValueError(
            f"windows of SQL and of a store are the same in UTC alone; the frame is of {store.frame.timezone}, and "
            f"spark.sql.session.timeZone is {zone}"
        )
    wanted = session.sql(query).schema  # Spark knows all names, and refuses what is no query
    select = parsed(query)
    table = select.args["from_"].this
    source = exp.table_(table.this, db=table.args.get("db"))
    return _Rewritten(store, session.table(text_of(source)).schema, select).answer(session, wanted)


class _Rewritten:
    """What a query reads of a store; each group and aggregate is a column there."""

    def __init__(self, store: FrameStore, table: StructType, select: exp.Select) -> None:
        """Read the clauses; raises ``ValueError`` for a part that the store may answer otherwise."""
        self.store, self.select = store, select
        self.types = {column.name.lower(): column.dataType for column in table}
        self.names = {column.name.lower(): column.name for column in table}
        frame = store.frame
        self.keys_of_frame = {name.lower(): name for name, text in frame.keyed_by.items() if name == text}
        if not isinstance(self.types.get(frame.time.lower()), TimestampType):
            refuse(frame.time, "is the time of the store, and no TIMESTAMP of the table")
        self.columns: dict[str, str] = {}  # the text of a group or aggregate -> the column that it becomes
        self.keys: list[str] = []
        self.per = "all"
        self.measures: dict[str, Measure] = {}
        self.aliases: dict[str, exp.Expr] = {
            each.alias.lower(): each.this for each in select.expressions if isinstance(each, exp.Alias)
        }
        for alias, of in self.aliases.items():
            if alias in self.types and not (isinstance(of, exp.Column) and of.name.lower() == alias):
                refuse(f"the alias {alias}", "is a column of the table too; give another")
        self.grouped = select.args.get("group")
        for group in self.grouped.expressions if self.grouped else []:
            self._group(self._meant(group))
        self.within, self.where = self._chosen()
        self.projections = [self._outer(each.unalias()) for each in select.expressions]
        self.clauses = [
            self._outer(clause) for name in ("having", "order", "limit") if (clause := select.args.get(name))
        ]
        if self.clauses and not self.grouped:
            refuse(self.clauses[0], "without GROUP BY is not rewritten")

    def _meant(self, group: exp.Expr) -> exp.Expr:
        """Find what a group stands for: the place of a projection, its alias, or itself."""
        meant = group
        if isinstance(group, exp.Literal) and not group.is_string:
            meant = self.select.expressions[int(group.name) - 1].unalias()
        elif isinstance(group, exp.Column) and group.name.lower() not in self.types:
            meant = self.aliases.get(group.name.lower(), group)
        return meant

    def _group(self, group: exp.Expr) -> None:
        if isinstance(group, exp.Column) and group.name.lower() in self.keys_of_frame:
            key = self.keys_of_frame[group.name.lower()]
            self.columns[same_text(group)] = quoted(key)
            self.keys += [] if key in self.keys else [key]
            return
        size, column = time_group(group, self.store.frame.time)
        if size is None:
            keys = ", ".join(self.keys_of_frame.values())
            refuse(f"the group {text_of(group)}", f"is no window of the time and no key of the store ({keys})")
        if self.per not in ("all", size):
            refuse(f"the group {text_of(group)}", "is a second window")
        self.per = size
        self.columns[same_text(group)] = column

    def _chosen(self) -> tuple[tuple[dt.datetime | None, dt.datetime | None] | None, str | None]:
        """Part WHERE into a range of time and a condition on keys."""
        bounds: list[dt.datetime | None] = [None, None]
        conditions, clause = list[str](), self.select.args.get("where")
        whole = clause.this if clause else None
        parts = whole.flatten() if isinstance(whole, exp.And) else [] if whole is None else [whole]
        for part in parts:
            said = f"the condition {text_of(part)}"
            names = {column.name.lower() for column in part.find_all(exp.Column)}
            if names <= self.keys_of_frame.keys():
                for node in part.walk():
                    if not isinstance(node, _COMPARING):
                        refuse(said, f"has {node.key}, and is not rewritten")
                    if isinstance(node, exp.Predicate) and not isinstance(node, exp.Is) and not self._same_type(node):
                        refuse(said, "compares a key with a value of another type")
                conditions.append(f"({text_of(unqualified(part))})")
                continue
            at = 0 if isinstance(part, exp.GTE) else 1
            moment = moment_of(part.expression) if isinstance(part, exp.GTE | exp.LT) else None
            if moment is None or names != {self.store.frame.time.lower()} or not isinstance(part.this, exp.Column):
                refuse(said, "compares neither keys alone nor the time by >= and < with a moment")
            if bounds[at] is not None:
                refuse(said, "is a second bound of the time")
            bounds[at] = moment
            window = as_window(self.store.frame.levels[0] if self.per == "all" else self.per, "UTC")
            micros = int(moment.timestamp()) * 1_000_000
            if int(window.starts(np.array([micros]))[0]) != micros:
                refuse(said, f"cuts a window of {window.name}; ask from the start of one")
        return (bounds[0], bounds[1]) if any(bounds) else None, " AND ".join(conditions) or None

    def _same_type(self, comparison: exp.Expr) -> bool:
        """Say whether texts are compared with texts alone, and whole numbers with whole numbers: nothing is cast."""
        kinds = [self.types[column.name.lower()] for column in comparison.find_all(exp.Column)]
        literals = list(comparison.find_all(exp.Literal))
        if all(isinstance(kind, StringType) for kind in kinds):
            return all(literal.is_string for literal in literals)
        whole = all(literal.is_int and int(literal.name) < 1 << 63 for literal in literals)
        return whole and all(isinstance(kind, IntegralType) for kind in kinds)

    def _outer(self, clause: exp.Expr) -> str:
        """Write a clause over the columns that groups and aggregates become."""

        def replaced(node: exp.Expr) -> exp.Expr:
            if known := self.columns.get(same_text(node)):
                return column_of(known)
            if isinstance(node, exp.AggFunc):
                return column_of(self._aggregate(node))
            if isinstance(node, exp.Column):
                name, owner = node.name.lower(), node.table.lower()
                if owner == "window" and name in ("start", "end") and "window" in self.columns.values():
                    return column_of(f"window.{name}")
                if name == "window" and not owner and "window" in self.columns.values():
                    return node
                if name in self.aliases and name not in self.types:
                    return node if isinstance(clause, exp.Order) else self.aliases[name].transform(replaced)
            if not isinstance(node, _KNOWN) or isinstance(node, exp.Column):
                refuse(text_of(node), "is not rewritten")
            return node

        return text_of(clause.transform(replaced))

    def _aggregate(self, call: exp.AggFunc) -> str:
        """Find the measure of an aggregate, whose meaning and type are Spark's."""
        column, make = call.this, _CALLS.get(type(call))
        whole = type(call) is exp.Count and isinstance(column, exp.Star | exp.Literal) and not call.expressions
        if make is None or not (whole or isinstance(column, exp.Column)) or call.expressions:
            refuse(text_of(call), "is none of count, sum, min and max of a column, or means another thing in a store")
        name = "" if whole else column.name.lower()
        if type(call) is exp.Sum and isinstance(self.types.get(name), FloatType | DoubleType | StringType):
            refuse(text_of(call), "adds doubles, whose sum in Spark depends on the order of rows; a store's does not")
        measure = make() if whole else make(self.names.get(name, name))  # type: ignore[call-arg]
        if holder(self.store.frame.states, measure) is None:
            refuse(text_of(call), "is no measure of the store")
        into = f"__{len(self.measures)}"
        self.measures[into] = measure
        self.columns[same_text(call)] = into
        return into

    def answer(self, session: SparkSession, wanted: StructType) -> DataFrame:
        """Read the store, and select what is wanted under its names."""
        measures: Any = self.measures or list(self.store.frame.measures)[:1]
        try:
            known = self.store.ask(Query(self.per, self.within, self.where, measures, self.keys))
        except ValueError as error:
            raise ValueError(f"the store cannot answer the query: {error}") from None
        if missing := (*known.expired, *known.unknown):
            refuse("the range", f"is not all in the store: {missing[0]}")
        asked = self.per, self.within, self.where, measures, self.keys
        states = read(session, self.store.uri, *asked, name=self.store.name, storage_options=self.store.storage_options)
        columns = [
            f"coalesce(max({name}), 0L) AS {name}" if of.function.name == "count" else f"max({name}) AS {name}"
            for name, of in self.measures.items()
        ]
        if self.grouped:
            columns = ["*", f"{START} AS __time", f"named_struct('start', {START}, 'end', {END}) AS window"]
        named = [f"{each} AS {quoted(of.name)}" for each, of in zip(self.projections, wanted, strict=True)]
        text = f"SELECT {', '.join(named)} FROM (SELECT {', '.join(columns)} FROM {{states}})"
        clauses = [re.sub("^HAVING", "WHERE", clause) for clause in self.clauses]
        result = session.sql(" ".join([text, *clauses]), states=states)
        for own, other in zip(result.schema, wanted, strict=True):
            kinds = own.dataType.simpleString(), other.dataType.simpleString()
            if kinds[0] != kinds[1]:
                refuse(f"the column {other.name}", f"would be {kinds[0]} of the store, and is {kinds[1]} of the table")
        return result
