"""Whether the figures of `aggr.bench` agree with those of the harness that it replaced.

    python -m benchmarks.agreement [--repeats 3] [--out FILE]

The functions and the machine have changed since that harness wrote its results, so the results alone cannot be
compared. This command therefore takes the old harness from the repository, and lets it measure the functions of today.
Both harnesses alternate, and both measure CPU time. Figures are ratios to a reference of the same run: the function sum
for reducing rows, and DuckDB's approx_quantile for quantiles. NumPy's plain sum is not the reference, because the old
harness passed a read-only array to this function, which doubled its time.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import click

from aggr.bench import circumstances, one_core
from aggr.bench.report import OURS
from benchmarks import kernels, peer_reports
from benchmarks.costs import OURS_REDUCE_ONLY, create_table, print_table
from benchmarks.musthold import LimitedFigure, show_limits

ROOT = Path(__file__).parent.parent
REVISION = "26bc741"  # the last revision of the repository whose results the old harness measured
PEER_ROWS = 300_000
NOISE = 1.5  # The largest allowed ratio of the figures of the two harnesses, in either direction.

# The program that runs the old harness, in the code of `REVISION`. It restores two names that the old harness imports
# and that were renamed since then.
OLD_HARNESS = f"""
import json, sys, time
import aggr.state_checks
from pathlib import Path
from aggr.histograms.column import Histograms
aggr.state_checks.made_here = aggr.state_checks.mark_as_checked
Histograms.of = Histograms.from_arrow
time.perf_counter = time.process_time
from benchmarks import kernels, reducing
from benchmarks.timing import one_core
one_core()
out = Path(sys.argv[1])
kernels.main(9, out)
costs = reducing.quantiles(reducing.sample({PEER_ROWS}), 5)
quantiles = [dict(what=cost.what, who=cost.who, case=cost.case, ns=cost.ns) for cost in costs]
out.write_text(json.dumps(json.loads(out.read_text()) | dict(quantiles=quantiles)))
"""
# The package and the sketch in reports of `aggr.bench` -> their names in the old harness. The old harness did not
# compute results of sketches, so the costs of reducing rows are compared.
OLD_NAMES = {
    ("duckdb", "approx_quantile"): ("DuckDB", "approx_quantile"),
    ("clickhouse", "quantilesDD"): ("chdb", "quantilesDD"),
    ("clickhouse", "quantilesTDigest"): ("chdb", "quantilesTDigest"),
    ("datasketches, reduce", "kll"): ("datasketches", "KLL"),
    ("datasketches, reduce", "tdigest"): ("datasketches", "t-digest"),
    ("datasketches, reduce", "req"): ("datasketches", "REQ"),
    ("ddsketch, reduce", "ddsketch"): ("ddsketch", "ddsketch"),
    ("hdrhistogram, reduce", "hdrhistogram"): ("hdrhistogram", "hdrhistogram"),
}


def old_ratios(figures: Mapping[str, Any]) -> dict[str, float]:
    """Return a dict from the name of each operation to a ratio of times: the time of a function divided by that of sum,
    or the time of a library divided by that of DuckDB. ``figures`` is the content of a file of the old harness.
    """
    ratios = reduce_ratios({record["what"]: record["ns"] for record in figures["reduce"]})
    ns = {tuple(record[key] for key in ("who", "what", "case")): record["ns"] for record in figures["quantiles"]}
    for (library, operation, case), cost in ns.items():
        ratios[f"{library}: {operation}, {case}"] = cost / ns["DuckDB", "approx_quantile", case]
    return ratios


def reduce_ratios(ns: Mapping[str, float]) -> dict[str, float]:
    """Return the time of each function divided by the time of the function sum."""
    return {f"reduce: {name}": cost / ns["sum"] for name, cost in ns.items()}


def stored_ratios() -> dict[str, float]:
    """Return the ratios in the stored results of the revision `REVISION`."""
    figures: dict[str, Any] = {}
    for name in ("kernels", "peers"):
        command = ["git", "show", f"{REVISION}:benchmarks/results/{name}.json"]
        process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        figures |= json.loads(process.stdout)
    return old_ratios(figures)


def run_old_harness(folder: Path) -> dict[str, float]:
    """Run the old harness, which was unpacked in ``folder``, and return the ratios that it measures."""
    out = folder / "figures.json"
    subprocess.run([sys.executable, "-c", OLD_HARNESS, str(out)], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return old_ratios(json.loads(out.read_text()))


def run_bench() -> dict[str, float]:
    """Run `aggr.bench`, and return the same ratios as the old harness, under the names that the old harness uses."""
    ratios = reduce_ratios({cost.what: cost.ns for cost in kernels.reduce_costs(9)})
    for report in peer_reports.sketch_reports(PEER_ROWS, 5):
        costs = peer_reports.reduce_and_answers(report, PEER_ROWS)
        duckdb = {cost.case: cost.ns for cost in costs if cost.who == "duckdb"}
        for cost in costs:
            library = cost.who
            operation = cost.what
            if library not in (OURS, OURS_REDUCE_ONLY):
                if (library, operation) not in OLD_NAMES:
                    continue
                library, operation = OLD_NAMES[library, operation]
            ratios[f"{library}: {operation}, {cost.case}"] = cost.ns / duckdb[cost.case]
    return ratios


def medians(repeats: list[dict[str, float]]) -> dict[str, float]:
    """Return the median of each ratio over several repeats."""
    return {name: median(ratios[name] for ratios in repeats) for name in repeats[0]}


@click.command()
@click.option("--repeats", default=3, show_default=True, help="How often each harness runs.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures to this JSON file.")
def main(repeats: int, out: Path | None) -> None:
    """Compare the old harness with `aggr.bench`. Exit with status 1 if a figure differs by more than the factor
    `NOISE`.
    """
    one_core()
    archive = subprocess.run(["git", "archive", REVISION, "benchmarks"], cwd=ROOT, capture_output=True, check=True)
    old = []
    new = []
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(folder, filter="data")
        for _ in range(repeats):
            old.append(run_old_harness(Path(folder)))
            new.append(run_bench())
    stored = stored_ratios()
    by_old = medians(old)
    by_bench = medians(new)
    common = [name for name in by_old if name in by_bench]
    table = create_table(
        "Ratios to a reference of the same run", ["", f"results of {REVISION}", "old harness", "aggr.bench"]
    )
    for name in common:
        table.add_row(name, *(f"{ratios[name]:,.2f}" for ratios in (stored, by_old, by_bench)))
    print_table(table)
    quotients = {name: by_bench[name] / by_old[name] for name in common}
    limited_figures = [
        LimitedFigure(f"aggr.bench / old harness, {name}", NOISE, max(quotient, 1 / quotient))
        for name, quotient in quotients.items()
    ]
    show_limits(limited_figures)
    if out is not None:
        rows = [{"what": name, "stored": stored[name], "old": by_old[name], "bench": by_bench[name]} for name in common]
        figures = {
            "revision": REVISION,
            "repeats": repeats,
            "ratios": rows,
            "must_hold": [asdict(figure) for figure in limited_figures],
        }
        out.write_text(json.dumps({**circumstances(), **figures}, indent=1) + "\n")
    raise SystemExit(any(figure.verdict == "FAIL" for figure in limited_figures))


if __name__ == "__main__":
    main()
