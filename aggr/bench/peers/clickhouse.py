"""ClickHouse inside this process (the package chdb): an aggregate expression in SQL, with one thread."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pyarrow as pa

from aggr.bench.costs import GROUP
from aggr.bench.peers.contract import Peer


class ClickHouse(Peer):
    """An SQL expression, such as ``quantilesDD(0.01, 0.5, 0.99)(x)``, evaluated by ClickHouse with GROUP BY."""

    name = "clickhouse"
    package = "chdb"

    def prepare(self, rows: pa.Table, group_count: int) -> Callable[[], Any]:
        """Return the call that runs the query, which scans the Arrow rows without copying them."""
        query = f"SELECT {GROUP}, {self.expression} AS answer FROM Python(bench_rows) GROUP BY {GROUP}"
        self._run(f"DESCRIBE ({query})", rows)
        return lambda: self._run(query, rows)

    def _run(self, query: str, bench_rows: pa.Table) -> pa.Table:
        """Run a query over the table ``bench_rows``. The package finds the table because the parameter of this method
        has the same name.
        """
        try:
            return _connection().query(f"{query} SETTINGS max_threads = 1", "ArrowTable")
        except RuntimeError as error:
            raise ValueError(
                f"ClickHouse cannot evaluate {self.expression!r}, which must be an aggregate of the columns, such as "
                f"quantile(0.5)(x): {error}"
            ) from None

    def results(self, answer: Any) -> Sequence[Any]:
        """Return the results, sorted by group."""
        results: list[Any] = answer.sort_by(GROUP).column("answer").to_pylist()
        return results


@cache
def _connection() -> Any:
    """Return the connection of this process to ClickHouse. A process can have only one database in memory."""
    return importlib.import_module("chdb").connect(":memory:")
