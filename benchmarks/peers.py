"""Comparison with other libraries on one core: speed, accuracy and bytes.

    python -m benchmarks.peers [--quick] [--out FILE]

`aggr.bench` measures functions, and `benchmarks.files` measures files. All libraries alternate in one process on one
core, and medians of CPU time are compared.
Libraries that are not installed (``pip install 'tiltframe[bench]'``) are listed and left out.
"""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from aggr.bench import as_text, circumstances, one_core
from aggr.bench.report import OURS
from benchmarks import files, musthold, peer_limits, peer_reports
from benchmarks.costs import OURS_REDUCE_ONLY, Cost, show_costs, show_grid

PACKAGES = (
    *("numpy", "pyarrow", "duckdb", "polars", "chdb", "chdb-core"),
    *("datasketches", "ddsketch", "hdrhistogram", "protobuf"),
)
OPTIONAL = ("duckdb", "polars", "chdb", "datasketches")


@dataclass(frozen=True)
class RunSize:
    """The numbers of rows and merged states that are measured, and the number of rounds."""

    rows: int
    file_rows: int
    merged: int
    rounds: int


FULL = RunSize(rows=1_000_000, file_rows=5_000_000, merged=1_250, rounds=5)
QUICK = RunSize(rows=200_000, file_rows=1_000_000, merged=250, rounds=3)


def main(run_size: RunSize, out: Path | None) -> list[musthold.LimitedFigure]:
    """Measure and print all figures. Write them as JSON to ``out`` if it is passed."""
    begin = time.perf_counter()
    about = circumstances(PACKAGES)
    for package in OPTIONAL:
        if not importlib.util.find_spec(package):
            Console().print(f"{package} is not installed, so it is not measured: pip install {package}")
    groups = run_size.rows // peer_reports.ROWS_PER_GROUP
    size = f"{run_size.rows:,} rows, ns a row; many groups: {groups:,}"
    simple_costs = peer_reports.simple_costs(run_size.rows, run_size.rounds)
    for case in (peer_reports.ONE_GROUP, peer_reports.MANY):
        title = f"Simple aggregates, {case}; {size}; ×: divided by the time of {OURS} from table to answers"
        show_grid(title, [cost for cost in simple_costs if cost.case == case], OURS)
    dds, hdr = peer_reports.sketch_reports(run_size.rows, run_size.rounds)
    reports = [dds, peer_reports.only_ours(hdr)]
    for report in reports:
        click.echo(as_text(report))
    sketch_costs = [cost for report in reports for cost in peer_reports.reduce_and_answers(report, run_size.rows)]
    show_costs(f"Quantiles; {size}", sketch_costs, Cost("dds", OURS_REDUCE_ONLY, "", 0.0))
    merge_costs = peer_reports.merge_costs(run_size.merged, run_size.rounds)
    show_costs(f"Merge into {run_size.merged:,} states", merge_costs, merge_costs[0])
    accuracies = peer_reports.errors_of(reports)
    state_sizes = peer_reports.bytes_of(reports)
    file_costs = files.files(run_size.file_rows, run_size.rounds)
    if file_costs:
        show_costs(
            f"Parquet, {run_size.file_rows:,} rows, by 10 s and host, ns a row",
            file_costs,
            Cost(files.EIGHT_AGGREGATES_NAME, "DuckDB", "", 0.0),
        )
    limited_figures = peer_limits.limited_figures(sketch_costs, merge_costs, state_sizes, file_costs)
    if run_size == QUICK:
        limited_figures = musthold.without_verdicts(limited_figures)
    musthold.show_limits(limited_figures)
    seconds = time.perf_counter() - begin
    Console().print(f"took {seconds:.0f} s")
    if out is not None:
        parts: dict[str, Sequence[Any]] = {
            "simple": simple_costs,
            "quantiles": sketch_costs,
            "merge": merge_costs,
            "accuracy": accuracies,
            "bytes": state_sizes,
            "parquet": file_costs,
        }
        write(out, {**about, "extent": asdict(run_size), "seconds": round(seconds, 1)}, parts, limited_figures)
    return limited_figures


def write(
    out: Path,
    about: dict[str, object],
    parts: dict[str, Sequence[Any]],
    limited_figures: Sequence[musthold.LimitedFigure],
) -> None:
    """Write all figures, and the limits with their verdicts, to the JSON file ``out``."""
    figures = {name: [asdict(figure) for figure in part] for name, part in parts.items()}
    limits = [{**asdict(figure), "verdict": figure.verdict} for figure in limited_figures]
    out.write_text(json.dumps({**about, **figures, "must_hold": limits}, indent=1) + "\n")


@click.command()
@click.option("--quick", is_flag=True, help="Use less data. This takes half a minute, and the ratios are less precise.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures to this JSON file.")
def command(quick: bool, out: Path | None) -> None:
    """Compare tiltframe with other libraries on one core. Exit with status 1 if a full run exceeds a limit."""
    one_core()
    limited_figures = main(QUICK if quick else FULL, out)
    if any(figure.verdict == "FAIL" for figure in limited_figures):
        raise SystemExit(1)


if __name__ == "__main__":
    command()
