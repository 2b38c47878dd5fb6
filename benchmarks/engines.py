"""The same aggregation by tiltframe, DuckDB, Polars and chdb, over one Arrow table with the columns ``g`` and ``x``.

A question is the name of an aggregation: ``count``, ``min``, … ``stdev``, ``all seven``, or a function for quantiles,
such as ``dds``. An answer is a table with the column ``g`` and one column per result.
"""

from __future__ import annotations

import importlib
import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

import aggr
from aggr.groups.groups import Groups, group_by
from aggr.tables.state_plan import plan
from benchmarks.samples import QUANTILES
from benchmarks.sketches import ACCURACY, BY_ACCURACY, BY_DIGITS, DIGITS, UNIT, Promise

SEVEN = ("count", "min", "max", "sum", "avg", "var", "stdev")
ALL_SEVEN = "all seven"
# the aggregates whose calls are the same in all SQL dialects
ALIKE = {name: f"{name}(x)" for name in ("count", "min", "max", "sum", "avg")}


def singles(question: str) -> tuple[str, ...]:
    """Return the names of the aggregates in a question: seven for ``all seven``, and otherwise one."""
    return SEVEN if question == ALL_SEVEN else (question,)


class Engine(ABC):
    """A library that computes the answers to questions about a table."""

    name: str
    package: str
    sketches: Mapping[str, Promise]  # the functions for quantiles, with their promised errors

    @abstractmethod
    def __init__(self, table: pa.Table, quantiles: Sequence[float] = QUANTILES) -> None:
        """Store a table with an integer column ``g`` and a column ``x`` of doubles, and the quantiles to compute."""

    @abstractmethod
    def ask(self, question: str, grouped: bool) -> pa.Table:
        """Return the answer to a question. If ``grouped`` is true, it has one row for each ``g``, and otherwise one row
        for all rows, whose ``g`` is 0.
        """


class Ours(Engine):
    """tiltframe. Two measures share one column of states if their states are equal, or if one contains the other."""

    name, package = "tiltframe", "tiltframe"
    sketches: Mapping[str, Promise] = {
        "dds": BY_ACCURACY,
        "hdr": BY_DIGITS,
    }

    def __init__(self, table: pa.Table, quantiles: Sequence[float] = QUANTILES) -> None:
        """Store the table in one chunk, and create the measure of each question."""
        self._table = table.combine_chunks()
        self._calls = {
            **{name: getattr(aggr, name)("x") for name in SEVEN},
            "dds": aggr.dds("x", quantiles, ACCURACY),
            "hdr": aggr.hdr("x", quantiles, DIGITS, UNIT),
        }

    def ask(self, question: str, grouped: bool) -> pa.Table:
        """Group the rows, reduce them to states, and compute the results."""
        rows = len(self._table)
        keys = [self._table.column("g").chunk(0)] if grouped else []
        groups, first = group_by(keys, rows)
        g = keys[0].take(pa.array(first)) if grouped else pa.array([0])
        results: dict[str, pa.Array] = {}
        for states in plan({name: self._calls[name] for name in singles(question)}):
            column = states.measure.reduce(self._table, groups)
            results |= {name: self._calls[name].function.finish(column) for name in states.serves}
        return pa.table({"g": g, **{name: results[name] for name in singles(question)}})

    def reduce(self, question: str, groups: Groups) -> None:
        """Reduce the rows of known groups to states. The groups are copied, so that they contain no cached values of an
        earlier call.
        """
        groups = Groups(groups.ids, groups.n)
        for states in plan({name: self._calls[name] for name in singles(question)}):
            states.measure.reduce(self._table, groups)


class DuckDB(Engine):
    """DuckDB with one thread, scanning the Arrow table."""

    name, package = "DuckDB", "duckdb"
    sketches: Mapping[str, Promise] = {"approx_quantile": Promise(rank=0.02)}

    def __init__(self, table: pa.Table, quantiles: Sequence[float] = QUANTILES) -> None:
        """Open a database in memory that reads the table."""
        self._connection = importlib.import_module("duckdb").connect(config={"threads": 1})
        self._connection.register("t", table)
        self._sql = {**ALIKE, "var": "variance(x)", "stdev": "stddev(x)"}
        self._sql["approx_quantile"] = f"approx_quantile(x, {list(quantiles)})"

    def ask(self, question: str, grouped: bool) -> pa.Table:
        """Run one query."""
        return self._connection.sql(query(self._sql, question, grouped, "t")).to_arrow_table()


class ChDB(Engine):
    """ClickHouse inside this process (chdb), with one thread, scanning the Arrow table."""

    name, package = "chdb", "chdb"
    sketches: Mapping[str, Promise] = {
        "quantilesDD": Promise(relative=ACCURACY, neighbours=1),
        "quantilesTDigest": Promise(rank=0.02),
    }

    def __init__(self, table: pa.Table, quantiles: Sequence[float] = QUANTILES) -> None:
        """Store the table, and prepare the SQL of each aggregate."""
        self._connection, self._table = importlib.import_module("chdb").connect(":memory:"), table
        quantile_list = ", ".join(map(str, quantiles))
        self._sql = {**ALIKE, "var": "varSamp(x)", "stdev": "stddevSamp(x)"}
        self._sql |= {
            "quantilesDD": f"quantilesDD({ACCURACY}, {quantile_list})(x)",
            "quantilesTDigest": f"quantilesTDigest({quantile_list})(x)",
        }

    def ask(self, question: str, grouped: bool) -> pa.Table:
        """Run one query. chdb finds the table by the name of the local variable."""
        arrow_rows = self._table  # noqa: F841
        sql = query(self._sql, question, grouped, "Python(arrow_rows)")
        return self._connection.query(f"{sql} SETTINGS max_threads = 1", "ArrowTable")


class Polars(Engine):
    """Polars with one thread. Its quantiles are exact, and it has no states of quantiles that can be
    stored or merged.
    """

    name, package = "Polars", "polars"
    sketches: Mapping[str, Promise] = {"quantile (exact)": Promise(relative=0.0)}

    def __init__(self, table: pa.Table, quantiles: Sequence[float] = QUANTILES) -> None:
        """Convert the table to a data frame."""
        self._polars = importlib.import_module("polars")
        self._frame, self._quantiles = self._polars.from_arrow(table), quantiles

    def ask(self, question: str, grouped: bool) -> pa.Table:
        """Run one aggregation."""
        polars, x = self._polars, self._polars.col("x")
        words = {"avg": "mean", "stdev": "std"}
        if question in self.sketches:
            results = [x.quantile(q, "lower").alias(str(q)) for q in self._quantiles]
        else:
            results = [getattr(x, words.get(name, name))().alias(name) for name in singles(question)]
        if not grouped:
            return self._frame.select(polars.lit(0).alias("g"), *results).to_arrow()
        return self._frame.group_by("g").agg(results).to_arrow()


def query(sql: Mapping[str, str], question: str, grouped: bool, source: str) -> str:
    """Return the SQL query for a question. If ``grouped`` is true, the answer has one row for each ``g``, and otherwise
    one row for all rows. ``sql`` maps the name of each aggregate to its call, and ``source`` is the table in SQL.
    """
    results = ", ".join(f"{sql[name]} AS r_{i}" for i, name in enumerate(singles(question)))
    return f"SELECT g, {results} FROM {source} GROUP BY g" if grouped else f"SELECT 0 AS g, {results} FROM {source}"


KINDS: tuple[type[Engine], ...] = (DuckDB, Polars, ChDB)


def engines(table: pa.Table, quantiles: Sequence[float] = QUANTILES) -> list[Engine]:
    """Return the installed engines other than tiltframe, each with the table."""
    return [kind(table, quantiles) for kind in KINDS if importlib.util.find_spec(kind.package)]


def answers(table: pa.Table) -> dict[int, list[float]]:
    """Return a dict from each value of ``g`` in an answer to the numbers in its row. The numbers of results that are
    lists or structs are listed one by one.
    """
    names = [name for name in table.column_names if name != "g"]
    groups = table.column("g").to_pylist()
    columns = [table.column(name).to_pylist() for name in names]
    return {g: [n for c in columns for n in _numbers(c[i])] for i, g in enumerate(groups)}


def _numbers(result: Any) -> Sequence[float]:
    """Return the numbers of one result: a number alone, the elements of a list, or the quantiles in the struct of a
    sketch.
    """
    if isinstance(result, dict):
        return [float(value) for value in result["quantiles"].values()]
    return [float(value) for value in result] if isinstance(result, list) else [float(result)]
