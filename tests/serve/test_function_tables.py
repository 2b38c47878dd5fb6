"""The tables of docs/prometheus.md name exactly the functions and aggregations that the server computes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tiltframe.serve.promql import kinds
from tiltframe.serve.promql.function_table import AGGREGATIONS, FUNCTIONS, HISTOGRAM_READING, REFUSED
from tiltframe.serve.promql.functions import SUBQUERY_FUNCTIONS

PAGE = (Path(__file__).parents[2] / "docs/prometheus.md").read_text(encoding="utf-8")
NAME = re.compile(r"`(\w+)`")


def cells_of(start):
    """Return the cells of the row of a table that begins with a text."""
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| {start}")]
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


@pytest.mark.parametrize(
    ("row", "kinds_of_row"),
    [
        ("`requests=count()`", [kinds.SUM]),
        ("`bytes=sum(bytes)`", [kinds.SUM]),
        ("`min`, `max`, `last`", [kinds.MIN, kinds.MAX, kinds.LAST]),
        ("`avg`", [kinds.AVG]),
        ("`latency=dds(…)`", [kinds.HISTOGRAM]),
        ("| `latency_bucket", [kinds.BUCKETS]),
        ("`size=histogram(", [kinds.BUCKETS]),
    ],
)
def test_range_functions_of_each_kind(row, kinds_of_row):
    *_, functions = cells_of(row)
    named = {name for name in NAME.findall(functions) if name in FUNCTIONS}
    assert named == {name for kind in kinds_of_row for name in kinds.MERGES[kind]}


def test_supported_functions_and_aggregations():
    aggregations = set(NAME.findall(cells_of("aggregations")[1])) - {"by", "without"}
    assert aggregations == {name for name, how in AGGREGATIONS.items() if how != REFUSED}
    of_histograms = set(NAME.findall(cells_of("histograms")[1]))
    assert of_histograms == {name for name, how in FUNCTIONS.items() if how == HISTOGRAM_READING}
    names = NAME.findall(cells_of("subqueries")[1])
    assert {f"{name.removesuffix('_over_time')}_over_time" for name in names} == set(SUBQUERY_FUNCTIONS)


def test_each_merge_is_of_a_function_and_an_aggregation():
    for merges in kinds.MERGES.values():
        for name, aggregation in merges.items():
            assert FUNCTIONS[name] != REFUSED
            assert aggregation is None or AGGREGATIONS[aggregation] != REFUSED
