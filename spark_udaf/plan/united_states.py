"""Checks of unions of states. The columns of a union have the metadata of its first side; Spark drops the metadata of
the other sides. The metadata of all sides are therefore read from the plan of the DataFrame, and compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from spark_udaf.plan.plain_scan import analyzed_plan
from tiltframe.provenance import KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_udaf.plan.scan import ParquetScan


def check_unions(states: DataFrame | ParquetScan) -> None:
    """Raise ``ValueError`` if the sides of a union in the plan of a DataFrame describe different states in the same
    column.

    Sides without a description are not compared. Spark Connect does not provide plans, so unions are not checked there.
    """
    plan = analyzed_plan(states)
    if plan is None or not any(KEY.decode() in (field.metadata or {}) for field in states.schema):
        return
    for union in _unions(plan):
        for name, descriptions in _descriptions_by_column(union):
            if len(descriptions) > 1:
                raise ValueError(
                    f"a union combined these states, and the column {name!r} contains states of different measures: "
                    f"{' and '.join(sorted(descriptions))}; read or merge each side of the union separately"
                )


def _unions(plan: Any) -> Iterator[Any]:
    """Yield the unions of a logical plan of Spark."""
    unvisited = [plan]
    while unvisited:
        node = unvisited.pop()
        if node.nodeName() == "Union":
            yield node
        children = node.children()
        unvisited += [children.apply(index) for index in range(children.size())]


def _descriptions_by_column(union: Any) -> Iterator[tuple[str, set[str]]]:
    """Yield the name of each column of a union, and the different descriptions of states that this column has in the
    sides of the union. A side whose metadata have no description is skipped.
    """
    children = union.children()
    sides = [json.loads(children.apply(index).schema().json())["fields"] for index in range(children.size())]
    for columns in zip(*sides, strict=True):
        metadata = (column.get("metadata", {}).get(KEY.decode()) for column in columns)
        yield columns[0]["name"], {description for description in metadata if description is not None}
