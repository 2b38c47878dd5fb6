"""Nanoseconds to reduce a row, to merge a state and to compute the result of a state, on one core, for each function.

    make bench

Each function is checked before it is timed. Its runs alternate in one process with the plain sum, NumPy's ``bincount``
with weights. The report has the ratio of the function's median time to that of the plain sum, because the speed of a
machine varies.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import click
import numpy as np
import pyarrow as pa
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import track
from rich.table import Table

import aggr
from aggr.arrow.bit_equality import same_bits
from aggr.bench.timing import alternate, circumstances
from aggr.function import Function
from aggr.groups.groups import Groups
from aggr.histograms.column import Histograms
from benchmarks.finishing import finishing

ROWS, GROUPS = 1_000_000, 1_800
STATES, MERGED = 100_000, 10_000

# The limit of each function in nanoseconds per row. It is for a machine on which NumPy's plain sum takes about 1.5
# nanoseconds per row.
MAY_COST = {"count": 3, "min": 6, "max": 6, "sum": 20, "avg": 20, "var": 60, "stdev": 60, "dds": 60, "hdr": 60}
MERGE_MAY_COST = 3_000
FINISH_MAY_COST = {"dds": 2_000, "hdr": 4_000}
SEVEN_MAY_COST = 1_000  # the limit for the results of the seven exact functions together, in nanoseconds per state


def main(rounds: int, out: Path | None) -> None:
    """Measure and print the figures, and write them as JSON if ``out`` is passed."""
    rng = np.random.default_rng(1)
    groups = Groups(rng.integers(0, GROUPS, ROWS), GROUPS)
    floats = pa.array(rng.lognormal(3, 1, ROWS))
    integers = pa.array(rng.integers(0, 100_000, ROWS))
    times = pa.array(rng.integers(0, 10**12, ROWS)).cast(pa.timestamp("us", "UTC"))
    events = pa.StructArray.from_arrays([floats, times], names=["value", "time"])
    cases: list[tuple[str, Function, pa.Array]] = [
        ("count", aggr.Count(), floats),
        ("min", aggr.Min(), floats),
        ("max", aggr.Max(), floats),
        ("sum", aggr.Sum(), floats),
        ("sum of integers", aggr.Sum(), integers),
        ("avg", aggr.Avg(), floats),
        ("var", aggr.Var(), floats),
        ("stdev", aggr.Stdev(), floats),
        ("dds", aggr.Dds(), floats),
        ("hdr", aggr.Hdr(), integers),
        ("hdr with a unit", aggr.Hdr(unit=0.01), floats),
        ("first", aggr.First(), events),
        ("last", aggr.Last(), events),
    ]
    figures = []
    for name, function, values in track(cases, "reduce", console=Console(stderr=True), transient=True):
        check(function, values, groups)
        ours, numpys = alternate(
            [
                partial(afresh, function.reduce, values, groups),
                lambda: np.bincount(groups.ids, floats.to_numpy(), minlength=GROUPS),
            ],
            rounds,
        )
        limit = MAY_COST.get(function.name)
        figures.append({"what": name, "ns": ours / ROWS * 1e9, "numpy_ns": numpys / ROWS * 1e9, "may_cost": limit})
    show("Reduce: 1,000,000 rows into 1,800 groups", "ns a row", figures)
    merges = merging(rounds)
    show("Merge: 100,000 dds states into 10,000", "ns a state", merges)
    plain = median(float(str(f["numpy_ns"])) for f in figures)
    finishes = finishing_figures(rounds, plain)
    show(
        "Finish: 20,000 states of 500 rows, four quantiles, hdr of 3 digits; numpy's sum: ns a row",
        "ns a state",
        finishes,
    )
    if out is not None:
        figures_of_function = {"reduce": figures, "merge": merges, "finish": finishes}
        out.write_text(json.dumps({**circumstances(), **figures_of_function}, indent=1) + "\n")


def finishing_figures(rounds: int, plain: float) -> list[dict[str, object]]:
    """Return the nanoseconds per state to compute results, for each function and for the seven exact functions
    together. ``plain`` is the time of NumPy's plain sum, in nanoseconds per row.
    """
    own, outside = ({cost.what: cost.ns for cost in costs} for costs in finishing(20_000, max(3, rounds // 2)))
    figures: list[dict[str, object]] = [
        {"what": name, "ns": ns, "numpy_ns": plain, "may_cost": FINISH_MAY_COST.get(name)} for name, ns in own.items()
    ]
    for costs, title, limit in ((own, "", SEVEN_MAY_COST), (outside, ", from outside", None)):
        seven = sum(ns for name, ns in costs.items() if name not in FINISH_MAY_COST)
        figures.append({"what": f"the seven together{title}", "ns": seven, "numpy_ns": plain, "may_cost": limit})
    return figures


def merging(rounds: int) -> list[dict[str, object]]:
    """Return a list with one figure: the nanoseconds to merge a dds state of about 200 buckets. Raise
    ``AssertionError`` if merging in two steps gives other bits than merging all states in one step. The two steps merge
    the states of each half, and then the results of both halves.
    """
    rng = np.random.default_rng(2)
    function = aggr.Dds()
    rows = 20_000 * 400
    origins = Groups(np.repeat(np.arange(20_000), 400), 20_000)
    states = function.reduce(pa.array(rng.lognormal(3, 1.2, rows)), origins)
    buckets = len(Histograms.from_arrow(states.field("positive")).keys) / len(states)
    many = pa.concat_arrays([states] * (STATES // len(states)))
    groups = Groups(rng.integers(0, MERGED, STATES), MERGED)
    halves = [slice(0, STATES // 2), slice(STATES // 2, None)]
    parts = [function.merge(many[h], Groups(groups.ids[h], MERGED)) for h in halves]
    twice = function.merge(pa.concat_arrays(parts), Groups(np.tile(np.arange(MERGED), 2), MERGED))
    if not same_bits(twice, function.merge(many, groups)):
        raise AssertionError("dds: merging states in two steps gives other bits than merging them in one step")
    counts = pa.array(rng.integers(0, 100, STATES))
    ours, numpys = alternate(
        [
            lambda: afresh(function.merge, many, groups),
            lambda: np.bincount(groups.ids, counts.to_numpy(), minlength=MERGED),
        ],
        max(3, rounds // 2),
    )
    per = {"ns": ours / STATES * 1e9, "numpy_ns": numpys / STATES * 1e9, "may_cost": MERGE_MAY_COST}
    return [{"what": f"dds, {buckets:.0f} buckets, {states.nbytes / len(states):.0f} bytes", **per}]


def afresh(call: Callable[[pa.Array, Groups], object], column: pa.Array, groups: Groups) -> None:
    """Call a function with a column and a new copy of the groups, because groups cache intermediate results."""
    call(column, Groups(groups.ids, groups.n))


def check(function: Function, values: pa.Array, groups: Groups) -> None:
    """Raise ``AssertionError`` unless two conditions are met: the merged states of two halves of the rows have the same
    bits as the states of all rows, and the rows of one group alone give the state of this group.
    """
    half = len(values) // 2
    parts = [function.reduce(values[s], Groups(groups.ids[s], GROUPS)) for s in (slice(0, half), slice(half, None))]
    unsplit = function.reduce(values, groups)
    merged = function.merge(pa.concat_arrays(parts), Groups(np.tile(np.arange(GROUPS), 2), GROUPS))
    alone = values.filter(pa.array(groups.ids == 7))
    if not same_bits(merged, unsplit) or not same_bits(function.reduce(alone, Groups.single(len(alone))), unsplit[7:8]):
        raise AssertionError(f"{function.name}: states of parts of the rows have other bits than states of all rows")


def show(title: str, unit: str, figures: list[dict[str, object]]) -> None:
    """Print figures as a table."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, header_style="bold")
    for name in ("function", unit, "numpy's sum", "ratio", "may cost"):
        table.add_column(name, justify="left" if name == "function" else "right")
    for f in figures:
        ns, plain = float(str(f["ns"])), float(str(f["numpy_ns"]))
        limit_text = "" if f["may_cost"] is None else str(f["may_cost"])
        cells = [str(f["what"]), f"{ns:,.1f}", f"{plain:,.1f}", f"{ns / plain:,.1f} ×", limit_text]
        table.add_row(*cells)
    Console().print(table)


@click.command()
@click.option("--rounds", default=9, show_default=True, help="The number of runs of each function and of NumPy's sum.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures to this JSON file.")
def command(rounds: int, out: Path | None) -> None:
    """Measure on one core how long each function takes to reduce rows, merge states and compute results."""
    main(rounds, out)


if __name__ == "__main__":
    command()
