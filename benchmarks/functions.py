"""Measure all built-in functions with `aggr.bench`: nanoseconds, bytes and errors, which the catalogue shows.

python -m benchmarks.functions [NAME…] [--quick] [--out aggr/bench/measured.json]

With names, only these functions are measured, and the file keeps the figures of all others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa

import aggr
from aggr.bench import bench, one_core
from aggr.bench.report import OURS, Report
from aggr.catalogue import MEASURED, Figures

GROUPS = 1_000
SIZES = (1, 100, 10_000, 1_000_000)
ARGUMENTS = {  # The arguments of each function. A function that is missing here receives the column ``x``.
    **dict.fromkeys(("bool_and", "bool_or", "duration_in"), '"up"'),
    **dict.fromkeys(("bit_and", "bit_or", "bit_xor"), '"whole"'),
    **dict.fromkeys(("arg_min", "arg_max", "top_k", "bottom_k"), '"name", by="x"'),
    **dict.fromkeys(("covar", "corr", "slope", "intercept", "r2"), '"x", x="y"'),
    **dict.fromkeys(("value_counts", "mode", "entropy", "collect_set"), '"name"'),
    **dict.fromkeys(("dds", "exponential", "exact_quantiles"), '"x", quantiles=[0.5, 0.99]'),
    **dict.fromkeys(("avg_distinct", "sum_distinct", "count_distinct"), '"whole"'),
    "hdr": '"x", quantiles=[0.5, 0.99], unit=0.001',
    "weighted_avg": '"x", weight="y"',
    "candlestick": '"x", volume="y"',
    "histogram": '"x", edges=[0, 10, 100]',
    "per": '"name", of={"n": aggr.count()}',
    "funnel": '"name", ["name-1", "name-2"]',
    "lttb": '"x", 100',
}


def call_text(name: str) -> str:
    """Return the measured call of a function as text, such as ``aggr.sum("x")``."""
    arguments = ARGUMENTS.get(name, '"x"')
    return f"aggr.{name}({arguments})"


def random_rows(size: int) -> pa.Table:
    """Return a table of random rows with the columns in `ARGUMENTS`."""
    rng = np.random.default_rng(1)
    x = rng.lognormal(3, 1, size)
    names = pa.DictionaryArray.from_arrays(
        pa.array(rng.integers(0, 9, size), pa.int8()), pa.array([f"name-{i}" for i in range(9)])
    )
    return pa.table({"x": x, "y": rng.lognormal(1, 1, size), "whole": x.astype(np.int64), "up": x > 20, "name": names})


def figures_of(name: str, rows: int, rounds: int) -> tuple[Figures, Report]:
    """Measure a built-in function with `aggr.bench`.

    Parameters
    ----------
    name : str
    rows, rounds : int
        Parameters of `aggr.bench.bench`.

    Returns
    -------
    Figures, and the report that they come from
    """
    measure = eval(call_text(name), {"aggr": aggr})
    report = bench(
        measure, against=(), data=random_rows(rows), groups=(GROUPS,), rounds=rounds, memory=False, cpu_time=True
    )
    ns = {timing.stage: round(timing.ns, 1) for timing in report.timings if timing.by == OURS}
    errors = [error.worst_relative for error in report.errors if error.by == OURS]
    return (
        Figures(
            call=call_text(name),
            reduce_ns_per_row=ns["reduce"],
            merge_ns_per_state=ns["merge"],
            finish_ns_per_state=ns["finish"],
            bytes={str(size.rows): size.bytes for size in report.sizes if size.by == OURS},
            worst_relative_error=max(errors) if errors else None,
        ),
        report,
    )


@click.command()
@click.argument("names", nargs=-1)
@click.option("--quick", is_flag=True, help="100,000 rows and one round.")
@click.option("--rows", type=int, default=1_000_000, show_default=True, help="The number of rows without --quick.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=MEASURED,
    show_default=True,
    help="Write the figures to this file.",
)
def main(names: tuple[str, ...], quick: bool, rows: int, out: Path) -> None:
    """Measure all built-in functions, or only the functions NAMES. Write the figures for the catalogue."""
    one_core()
    figures_of_functions: dict[str, Any] = {}
    about: Mapping[str, Any] = {}
    for name in names or aggr.names():
        if not aggr.get(name).__module__.startswith("aggr."):
            continue
        try:
            figures, report = figures_of(name, 100_000 if quick else rows, rounds=1 if quick else 5)
        except (ValueError, TypeError) as error:
            click.echo(f"{name}: {error}", err=True)
            continue
        figures_of_functions[name], about = asdict(figures), report.about
        click.echo(f"{name}: {figures.reduce_ns_per_row} ns/row")
    if names and out.exists():
        figures_of_functions = json.loads(out.read_text())["functions"] | figures_of_functions
    figures_of_functions = dict(sorted(figures_of_functions.items()))
    out.write_text(json.dumps({"about": about, "functions": figures_of_functions}, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
