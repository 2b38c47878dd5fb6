"""Nanoseconds to reduce a row, to merge a state and to compute the result of a state, on one core, for each function.

    make bench

`aggr.bench` measures each function alternately with the plain sum, NumPy's ``bincount`` with weights. The report has
the ratio of the function's median CPU time to that of the plain sum, because the speed of a machine varies. If merged
states differ from the states of all rows, an error is raised.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import click
import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.progress import track

import aggr
from aggr.bench import Report, bench, circumstances, one_core
from aggr.bench.costs import PARTS
from aggr.bench.report import OURS
from benchmarks.costs import create_table, print_table
from benchmarks.quantiles import QUANTILES

ROWS = 1_000_000
GROUPS = 1_800
PLAIN_SUM = "numpy:sum(x)"
# `PARTS` states, each of ROWS_PER_PART rows, are merged into each of MERGED_STATE_COUNT states. The results of
# FINISHED_STATE_COUNT states, each of ROWS_PER_STATE rows, are computed.
MERGED_STATE_COUNT = 2_500
ROWS_PER_PART = 400
FINISHED_STATE_COUNT = 10_000
ROWS_PER_STATE = 500
SEVEN = ("count", "min", "max", "sum", "avg", "var", "stdev")

# The limit of each function in nanoseconds per row. It is for a machine on which NumPy's plain sum takes about 1.5
# nanoseconds per row.
REDUCE_LIMITS = {"count": 3, "min": 6, "max": 6, "sum": 20, "avg": 20, "var": 60, "stdev": 60, "dds": 60, "hdr": 60}
MERGE_LIMIT = 3_000
FINISH_LIMITS = {"dds": 2_000, "hdr": 4_000}
SEVEN_LIMIT = 1_000  # the limit for the results of the seven exact functions together, in nanoseconds per state


@dataclass(frozen=True)
class OperationCost:
    """The time of an operation in nanoseconds, the time of NumPy's plain sum in nanoseconds per row, and ``may_cost``,
    the limit of the operation. The JSON file of figures contains the field names.
    """

    what: str
    ns: float
    numpy_ns: float
    may_cost: float | None = None


def sample(rows: int, sigma: float = 1.0) -> pa.Table:
    """Return a table of random rows: lognormal numbers ``x``, whole numbers ``n`` and event times ``t``."""
    rng = np.random.default_rng(1)
    return pa.table(
        {
            "x": rng.lognormal(3, sigma, rows),
            "n": rng.integers(0, 100_000, rows),
            "t": pa.array(rng.integers(0, 10**12, rows)).cast(pa.timestamp("us", "UTC")),
        }
    )


def nanoseconds_of_stages(
    measure: aggr.Measure, rows: pa.Table, groups: int, rounds: int, are_states_trusted: bool = False
) -> dict[str, float]:
    """Return the nanoseconds of each stage of a measure, and those of the plain sum as `PLAIN_SUM`. If
    ``are_states_trusted`` is true, merge and finish do not check their states, as in a job that has computed the states
    itself. Raise ``AssertionError`` if merged states differ from the states of all rows.
    """
    report: Report = bench(
        measure,
        against=PLAIN_SUM,
        data=rows,
        groups=(groups,),
        rounds=rounds,
        memory=False,
        checked_states=are_states_trusted,
        cpu_time=True,
    )
    if not all(report.keeps_bits.values()):
        raise AssertionError(f"{measure}: merged states have other bits than the states of all rows")
    return {timing.stage if timing.by == OURS else timing.by: timing.ns for timing in report.timings}


def reduce_costs(rounds: int) -> list[OperationCost]:
    """Return the nanoseconds per row to reduce `ROWS` rows to `GROUPS` states, for each function."""
    rows = sample(ROWS)
    cases = {
        **{name: getattr(aggr, name)("x") for name in SEVEN},
        "sum of integers": aggr.sum("n"),
        "dds": aggr.dds("x"),
        "hdr": aggr.hdr("n"),
        "hdr with a unit": aggr.hdr("x", unit=0.01),
        "first": aggr.first("x", by="t"),
        "last": aggr.last("x", by="t"),
    }
    costs = []
    for name, measure in track(cases.items(), "reduce", console=Console(stderr=True), transient=True):
        ns = nanoseconds_of_stages(measure, rows, GROUPS, rounds)
        costs.append(OperationCost(name, ns["reduce"], ns[PLAIN_SUM], REDUCE_LIMITS.get(measure.function.name)))
    return costs


def merge_costs(rounds: int) -> list[OperationCost]:
    """Return the nanoseconds per state to merge dds states of `ROWS_PER_PART` rows."""
    ns = nanoseconds_of_stages(
        aggr.dds("x"), sample(MERGED_STATE_COUNT * PARTS * ROWS_PER_PART, sigma=1.2), MERGED_STATE_COUNT, rounds
    )
    return [OperationCost("dds", ns["merge"], ns[PLAIN_SUM], MERGE_LIMIT)]


def finish_costs(rounds: int) -> list[OperationCost]:
    """Return the nanoseconds per state to compute results, for each function and for the seven exact functions
    together. These costs are for states that a job has computed itself, which are not checked. For the seven functions,
    a second cost includes the check of states from outside the job.
    """
    rows = sample(FINISHED_STATE_COUNT * ROWS_PER_STATE)
    measures = {name: getattr(aggr, name)("x") for name in SEVEN}
    measures |= {"dds": aggr.dds("x", QUANTILES), "hdr": aggr.hdr("x", QUANTILES, digits=3, unit=0.001)}
    costs: list[OperationCost] = []
    costs_of_seven: list[OperationCost] = []
    for title, are_states_trusted in (("", True), (", from outside", False)):
        ns = {
            name: nanoseconds_of_stages(
                measure, rows, groups=FINISHED_STATE_COUNT, rounds=rounds, are_states_trusted=are_states_trusted
            )
            for name, measure in measures.items()
        }
        plain_sum_ns = median(figures[PLAIN_SUM] for figures in ns.values())
        if are_states_trusted:
            costs += [
                OperationCost(name, figures["finish"], plain_sum_ns, FINISH_LIMITS.get(name))
                for name, figures in ns.items()
            ]
        seven = sum(ns[name]["finish"] for name in SEVEN)
        limit = SEVEN_LIMIT if are_states_trusted else None
        costs_of_seven.append(OperationCost(f"the seven together{title}", seven, plain_sum_ns, limit))
    return costs + costs_of_seven


def show_operation_costs(title: str, unit: str, costs: Sequence[OperationCost]) -> None:
    """Print the costs of operations as a table."""
    table = create_table(title, ["", unit, "numpy's sum", "ratio", "at most"])
    for cost in costs:
        limit = "" if cost.may_cost is None else f"{cost.may_cost:,}"
        ratio = f"{cost.ns / cost.numpy_ns:,.1f} ×"
        cells = [cost.what, f"{cost.ns:,.1f}", f"{cost.numpy_ns:,.1f}", ratio, limit]
        table.add_row(*cells)
    print_table(table)


@click.command()
@click.option("--rounds", default=9, show_default=True, help="The number of runs of each function and of NumPy's sum.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures to this JSON file.")
def command(rounds: int, out: Path | None) -> None:
    """Measure on one core how long each function takes to reduce rows, merge states and compute results."""
    one_core()
    costs_of_reduce = reduce_costs(rounds)
    show_operation_costs(f"Reduce: {ROWS:,} rows into {GROUPS:,} groups", "ns a row", costs_of_reduce)
    costs_of_merge = merge_costs(max(3, rounds // 2))
    show_operation_costs(
        f"Merge: {PARTS * MERGED_STATE_COUNT:,} states of {ROWS_PER_PART} rows into {MERGED_STATE_COUNT:,}",
        "ns a state",
        costs_of_merge,
    )
    costs_of_finish = finish_costs(max(3, rounds // 2))
    title = f"Finish: {FINISHED_STATE_COUNT:,} states of {ROWS_PER_STATE} rows, four quantiles, hdr of 3 digits"
    show_operation_costs(title, "ns a state", costs_of_finish)
    if out is not None:
        parts = {"reduce": costs_of_reduce, "merge": costs_of_merge, "finish": costs_of_finish}
        figures = {name: [asdict(cost) for cost in costs] for name, costs in parts.items()}
        out.write_text(json.dumps({**circumstances(), **figures}, indent=1) + "\n")


if __name__ == "__main__":
    command()
