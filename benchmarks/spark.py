"""Roll up nine functions at four levels to states and to results, compared with Spark's own functions at the finest
level.

    python -m benchmarks.spark [--quick] [--answers] [--out FILE]

Results are checked before anything is timed. All jobs alternate in one session, and ratios of medians are compared.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import track

from aggr.bench.timing import circumstances, one_round
from benchmarks import growth
from benchmarks.jobs import FINEST, check, jobs, many_keys, session, write_rows
from benchmarks.musthold import LimitedFigure, show_limits, without_verdicts
from benchmarks.shapes import INTEGER_KEYS, TEXTS, Shape

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ANSWERS = (  # the jobs whose output is results, and not states
    "percentile_approx",
    "count … variance",
    "rollup of files, to answers",
    "rollup of a DataFrame, to answers",
    "Arrow UDAF that counts",
    "A.dds",
    "su.group_by of dds",
)
# The jobs that also run on files that are not in the order of time: each file has rows of all times.
IN_NO_ORDER = ("count … variance", "rollup of files, to answers")
PACKAGES = ("pyspark", "numpy", "pyarrow", "pandas")


@dataclass(frozen=True)
class Extent:
    """The numbers of rows, groups and keys, and the number of rounds."""

    rows: int
    groups: int  # the number of pairs of a key and a window of the finest level
    rounds: int
    keys: tuple[int, int]  # the numbers of rows and of keys of the jobs with many keys
    growth: growth.Extent
    shapes: tuple[Shape, ...]


FULL = Extent(
    rows=20_000_000,
    groups=36_000,
    rounds=3,
    keys=(10_000_000, 1_000_000),
    growth=growth.FULL,
    shapes=(TEXTS, INTEGER_KEYS),
)
QUICK = Extent(rows=500_000, groups=3_600, rounds=1, keys=(500_000, 50_000), growth=growth.QUICK, shapes=(TEXTS,))


def main(extent: Extent, out: Path | None, answers: bool) -> list[LimitedFigure]:
    """Measure and print the figures, and write them to ``out`` if it is passed.

    If ``answers`` is true, measure only the jobs that return results.
    """
    about = circumstances(PACKAGES)
    with tempfile.TemporaryDirectory() as folder, session() as spark:
        times: dict[str, dict[str, list[float]]] = {}
        for shape in extent.shapes:
            rows_folder = Path(folder) / str(shape.digits)
            write_rows(rows_folder, extent.rows, extent.groups, shape)
            if shape is TEXTS:
                check(spark, str(rows_folder))
            all_jobs = jobs(spark, str(rows_folder), shape)
            selected_jobs = {name: job for name, job in all_jobs.items() if name in ANSWERS} if answers else all_jobs
            times[shape.name] = time_jobs(selected_jobs, extent.rounds)
            show_seconds(medians_of(times)[shape.name], extent.rows, shape.name)
            unordered_files = Path(folder) / "in no order" / str(shape.digits)
            write_rows(unordered_files, extent.rows, extent.groups, shape, in_order=False)
            all_jobs = jobs(spark, f"{folder}/in no order/{shape.digits}", shape)
            times[unordered_name(shape)] = time_jobs({name: all_jobs[name] for name in IN_NO_ORDER}, extent.rounds)
            show_seconds(medians_of(times)[unordered_name(shape)], extent.rows, unordered_name(shape))
        jobs_of_many_keys = many_keys(spark, growth.files(Path(folder), *extent.keys))
        times["many keys"] = time_jobs(jobs_of_many_keys, extent.rounds)
        medians = medians_of(times)
        show_seconds(medians["many keys"], extent.keys[0], f"{extent.keys[1]:,} keys")
        size_costs = [] if answers else growth.measure_sizes(spark, Path(folder), extent.growth)
    lines = limited_figures(medians, size_costs)
    if extent == QUICK:
        lines = without_verdicts(lines)
    if size_costs:
        growth.show_sizes(size_costs)
    show_limits(lines)
    if out is not None:
        limits = [{**asdict(line), "verdict": line.verdict} for line in lines]
        size = {"rows": extent.rows, "finest windows": extent.groups, "rounds": extent.rounds}
        figures = {
            "seconds": medians,
            "all": times,
            "growth": [asdict(cost) for cost in size_costs],
            "must_hold": limits,
        }
        out.write_text(json.dumps({**about, **size, **figures}, indent=1) + "\n")
    return lines


def unordered_name(shape: Shape) -> str:
    """Return the name of the figures for files of the shape ``shape`` whose rows are not in the order of time."""
    return f"{shape.name}, in no order"


def medians_of(times_of_jobs: Mapping[str, Mapping[str, list[float]]]) -> dict[str, dict[str, float]]:
    """Return the median time of each job, by shape and job."""
    return {name: {job: median(times) for job, times in jobs.items()} for name, jobs in times_of_jobs.items()}


def time_jobs(jobs_by_name: Mapping[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    """Run all jobs once per round, and return the seconds of each run, by job. One more round comes first, and is not
    counted.
    """
    times: dict[str, list[float]] = {name: [] for name in jobs_by_name}
    for number in track(range(rounds + 1), "Spark", console=Console(stderr=True), transient=True):
        for name, seconds in one_round(jobs_by_name, number).items():
            if number:
                times[name].append(seconds)
    return times


def limited_figures(
    medians: Mapping[str, Mapping[str, float]], size_costs: Sequence[growth.SizeCost]
) -> list[LimitedFigure]:
    """Return the measured ratios with their limits."""
    shapes = [shape for shape in (TEXTS, INTEGER_KEYS) if shape.name in medians]
    limits = [line for shape in shapes for line in _answers(shape, medians[shape.name])]
    for shape in shapes:
        spark_seconds, own_seconds = (medians[unordered_name(shape)][name] for name in IN_NO_ORDER)
        limits.append(
            LimitedFigure(
                f"files in no order, to answers / count … variance, {shape.name}", 0.6, own_seconds / spark_seconds
            )
        )
    keys = medians["many keys"]
    ratio_of_many_keys = keys["many keys: files to answers"] / keys["many keys: percentile_approx"]
    return [
        *(_states(medians[TEXTS.name], size_costs) if size_costs else []),
        *limits,
        LimitedFigure("many keys, files to answers / percentile_approx", 0.5, ratio_of_many_keys),
    ]


def _answers(shape: Shape, seconds: Mapping[str, float]) -> list[LimitedFigure]:
    def line(own_job: str, spark_job: str, limit: float) -> LimitedFigure:
        return LimitedFigure(f"{own_job} / {spark_job}, {shape.name}", limit, seconds[own_job] / seconds[spark_job])

    return [
        line("rollup of files, to answers", "percentile_approx", 0.12),
        line("rollup of files, to answers", "count … variance", 0.5),
        line("rollup of a DataFrame, to answers", "percentile_approx", 0.35),
        line("A.dds", "Arrow UDAF that counts", 1.5),
        line("su.group_by of dds", "percentile_approx", 0.5),
    ]


def _states(seconds: Mapping[str, float], size_costs: Sequence[growth.SizeCost]) -> list[LimitedFigure]:
    def ratio(own_job: str, spark_job: str) -> float:
        return seconds[own_job] / seconds[spark_job]

    dataframe_job = "rollup of a DataFrame"
    files_job = "rollup of files"
    by_rows = sorted((cost for cost in size_costs if cost.groups == growth.GROUPS), key=lambda cost: cost.rows)
    small = by_rows[-2]
    large = by_rows[-1]
    return [
        LimitedFigure("files / percentile_approx", 0.20, ratio(files_job, "percentile_approx")),
        LimitedFigure("files / Spark's count … variance", 1.0, ratio(files_job, "count … variance")),
        LimitedFigure("DataFrame / percentile_approx", 0.5, ratio(dataframe_job, "percentile_approx")),
        LimitedFigure("DataFrame / mapInArrow that counts", 1.4, ratio(dataframe_job, "mapInArrow that counts")),
        LimitedFigure(
            "DataFrame / mapInArrow that counts, Spark's own settings",
            1.4,
            ratio(dataframe_job, "mapInArrow that counts, Spark's own settings"),
        ),
        LimitedFigure("four levels / the finest alone, files", 1.25, ratio(files_job, f"{files_job}, {FINEST} alone")),
        LimitedFigure("the tilt frame / four queries, files", 0.5, ratio(files_job, f"{files_job}, four queries")),
        LimitedFigure(
            "the tilt frame / four queries, DataFrame", 0.5, ratio(dataframe_job, f"{dataframe_job}, four queries")
        ),
        LimitedFigure(
            f"seconds per row: {large.rows:,} rows / {small.rows:,} rows",
            1.25,
            large.seconds / large.rows / (small.seconds / small.rows),
        ),
        LimitedFigure("memory of a worker, GiB", 2.0, max(cost.worker_bytes for cost in size_costs) / 2**30),
    ]


def show_seconds(medians: Mapping[str, float], rows: int, description: str) -> None:
    """Print the seconds of each job, its nanoseconds per row and core, and its ratio to one of Spark's own jobs."""
    from benchmarks.costs import create_table, print_table

    base = next(name for name in medians if name.endswith(("percentile_approx", "count … variance")))
    heads = ["job", "s", "ns a row and core", f"× of {base}"]
    table = create_table(f"Spark, {rows:,} rows, {description}, two cores", heads)
    for name, seconds in sorted(medians.items(), key=lambda pair: pair[1]):
        table.add_row(name, f"{seconds:.2f}", f"{seconds * 2 / rows * 1e9:,.0f}", f"{seconds / medians[base]:.2f}")
    print_table(table)


@click.command()
@click.option(
    "--quick", is_flag=True, help="Fewer rows and keys, and one round; the figures are not compared with their limits."
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures to this JSON file.")
@click.option("--answers", is_flag=True, help="Measure only the jobs that return results; no states, no growth.")
def command(quick: bool, out: Path | None, answers: bool) -> None:
    """Compare with Spark's own aggregates. Exit with status 1 if a full run exceeds a limit."""
    lines = main(QUICK if quick else FULL, out, answers)
    if any(line.verdict == "FAIL" for line in lines):
        raise SystemExit(1)


if __name__ == "__main__":
    command()
