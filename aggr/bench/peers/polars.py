"""Polars: an aggregate expression in SQL over a data frame."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from aggr.bench.costs import GROUP
from aggr.bench.peers.contract import Peer


class Polars(Peer):
    """An SQL expression, such as ``avg(x)``, evaluated by Polars with ``group_by``."""

    name = "polars"
    package = "polars"

    def prepare(self, rows: pa.Table, group_count: int) -> Callable[[], Any]:
        """Convert the rows to a data frame, and return the call that runs the query."""
        polars = importlib.import_module("polars")
        frame = polars.from_arrow(rows)
        try:
            expression = polars.sql_expr(self.expression).alias("answer")
            frame.head(0).group_by(GROUP).agg(expression)
        except polars.exceptions.PolarsError as error:
            raise ValueError(
                f"Polars cannot evaluate {self.expression!r}, which must be an aggregate of the columns, such as "
                f"median(x): {error}"
            ) from None
        return lambda: frame.group_by(GROUP).agg(expression)

    def results(self, answer: Any) -> Sequence[Any]:
        """Return the results, sorted by group."""
        results: list[Any] = answer.sort(GROUP).get_column("answer").to_list()
        return results
