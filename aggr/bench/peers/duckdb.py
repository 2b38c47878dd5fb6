"""DuckDB: an aggregate expression in SQL over a table in memory, with one thread."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from aggr.bench.costs import GROUP
from aggr.bench.peers.contract import Peer


class DuckDB(Peer):
    """An SQL expression, such as ``quantile_cont(x, [0.5, 0.99])``, evaluated by DuckDB with GROUP BY."""

    name = "duckdb"
    package = "duckdb"

    def prepare(self, rows: pa.Table, group_count: int) -> Callable[[], Any]:
        """Copy the rows into DuckDB's own format, which DuckDB reads faster than Arrow. Return the call that runs the
        query.
        """
        duckdb = importlib.import_module("duckdb")
        connection = duckdb.connect(config={"threads": 1})
        connection.register("arrow_rows", rows)
        connection.execute("CREATE TABLE rows AS SELECT * FROM arrow_rows")
        query = f"SELECT {GROUP}, {self.expression} AS answer FROM rows GROUP BY {GROUP}"
        try:
            connection.execute(f"EXPLAIN {query}")
        except duckdb.Error as error:
            raise ValueError(
                f"DuckDB cannot evaluate {self.expression!r}, which must be an aggregate of the columns, such as "
                f"quantile_cont(x, 0.5): {error}"
            ) from None
        return lambda: connection.sql(query).to_arrow_table()

    def results(self, answer: Any) -> Sequence[Any]:
        """Return the results, sorted by group."""
        results: list[Any] = answer.sort_by(GROUP).column("answer").to_pylist()
        return results
