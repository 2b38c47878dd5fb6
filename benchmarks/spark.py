"""Rollups of nine functions at four levels, to states and to results, compared with Spark's own functions at the finest
level.

    python -m benchmarks.spark [--quick] [--answers] [--out FILE]

Results are checked before anything is timed. All jobs alternate in one session. The median time of one job, divided by
the median time of another job, is compared with a limit.
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
from benchmarks.data_sets import INTEGER_KEYS, TEXTS, DataSet
from benchmarks.jobs import FINEST, check, jobs, many_keys, session, write_rows
from benchmarks.musthold import LimitedFigure, show_limits, without_verdicts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# The jobs that return results, and not states.
ANSWERS = (
    "percentile_approx",
    "count … variance",
    "rollup of files, to answers",
    "rollup of a DataFrame, to answers",
    "Arrow UDAF that counts",
    "A.dds",
    "su.group_by of dds",
)
# The jobs that also run on files whose rows are not in the order of time. Each of the files has rows from the complete
# range of time.
IN_NO_ORDER = ("count … variance", "rollup of files, to answers")
PACKAGES = ("pyspark", "numpy", "pyarrow", "pandas")


@dataclass(frozen=True)
class RunSize:
    """The numbers of rows, groups and keys, and the number of rounds."""

    rows: int
    # The number of pairs of a key and a window of the finest level.
    groups: int
    rounds: int
    # The number of rows and the number of keys of the jobs with many keys.
    keys: tuple[int, int]
    growth: growth.RunSize
    data_sets: tuple[DataSet, ...]


FULL = RunSize(
    rows=20_000_000,
    groups=36_000,
    rounds=3,
    keys=(10_000_000, 1_000_000),
    growth=growth.FULL,
    data_sets=(TEXTS, INTEGER_KEYS),
)
QUICK = RunSize(rows=500_000, groups=3_600, rounds=1, keys=(500_000, 50_000), growth=growth.QUICK, data_sets=(TEXTS,))


def main(run_size: RunSize, out: Path | None, answers: bool) -> list[LimitedFigure]:
    """Measure and print the figures, and write them to ``out`` if it is passed.

    If ``answers`` is true, measure only the jobs that return results.
    """
    about = circumstances(PACKAGES)
    with tempfile.TemporaryDirectory() as folder, session() as spark:
        times: dict[str, dict[str, list[float]]] = {}
        for number, data_set in enumerate(run_size.data_sets):
            rows_folder = Path(folder) / f"data-set-{number}"
            write_rows(rows_folder, run_size.rows, run_size.groups, data_set)
            if data_set is TEXTS:
                check(spark, str(rows_folder))
            all_jobs = jobs(spark, str(rows_folder), data_set)
            selected_jobs = {name: job for name, job in all_jobs.items() if name in ANSWERS} if answers else all_jobs
            times[data_set.name] = time_jobs(selected_jobs, run_size.rounds)
            show_seconds(medians_of(times)[data_set.name], run_size.rows, data_set.name)
            unordered_folder = Path(folder) / f"data-set-{number}-in-no-order"
            write_rows(unordered_folder, run_size.rows, run_size.groups, data_set, in_order=False)
            all_jobs = jobs(spark, str(unordered_folder), data_set)
            times[unordered_name(data_set)] = time_jobs({name: all_jobs[name] for name in IN_NO_ORDER}, run_size.rounds)
            show_seconds(medians_of(times)[unordered_name(data_set)], run_size.rows, unordered_name(data_set))
        jobs_of_many_keys = many_keys(spark, growth.files(Path(folder), *run_size.keys))
        times["many keys"] = time_jobs(jobs_of_many_keys, run_size.rounds)
        medians = medians_of(times)
        show_seconds(medians["many keys"], run_size.keys[0], f"{run_size.keys[1]:,} keys")
        size_costs = [] if answers else growth.measure_sizes(spark, Path(folder), run_size.growth)
    figures_with_limits = limited_figures(medians, size_costs)
    if run_size == QUICK:
        figures_with_limits = without_verdicts(figures_with_limits)
    if size_costs:
        growth.show_sizes(size_costs)
    show_limits(figures_with_limits)
    if out is not None:
        limits = [{**asdict(figure), "verdict": figure.verdict} for figure in figures_with_limits]
        size = {"rows": run_size.rows, "finest windows": run_size.groups, "rounds": run_size.rounds}
        figures = {
            "seconds": medians,
            "all": times,
            "growth": [asdict(cost) for cost in size_costs],
            "must_hold": limits,
        }
        out.write_text(json.dumps({**about, **size, **figures}, indent=1) + "\n")
    return figures_with_limits


def unordered_name(data_set: DataSet) -> str:
    """Return the name of the figures for files of a data set whose rows are not in the order of time."""
    return f"{data_set.name}, in no order"


def medians_of(times_of_jobs: Mapping[str, Mapping[str, list[float]]]) -> dict[str, dict[str, float]]:
    """Return the median time of each job, by data set and job."""
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
    """Return the figures that have limits, such as the median time of one job divided by that of another one."""
    data_sets = [data_set for data_set in (TEXTS, INTEGER_KEYS) if data_set.name in medians]
    limits = [figure for data_set in data_sets for figure in _answers(data_set, medians[data_set.name])]
    for data_set in data_sets:
        spark_seconds, own_seconds = (medians[unordered_name(data_set)][name] for name in IN_NO_ORDER)
        limits.append(
            LimitedFigure(
                f"files in no order, to answers / count … variance, {data_set.name}", 0.6, own_seconds / spark_seconds
            )
        )
    keys = medians["many keys"]
    ratio_of_many_keys = keys["many keys: files to answers"] / keys["many keys: percentile_approx"]
    return [
        *(_states(medians[TEXTS.name], size_costs) if size_costs else []),
        *limits,
        LimitedFigure("many keys, files to answers / percentile_approx", 0.45, ratio_of_many_keys),
    ]


def _answers(data_set: DataSet, seconds: Mapping[str, float]) -> list[LimitedFigure]:
    def limited_figure(own_job: str, spark_job: str, limit: float) -> LimitedFigure:
        return LimitedFigure(f"{own_job} / {spark_job}, {data_set.name}", limit, seconds[own_job] / seconds[spark_job])

    return [
        limited_figure("rollup of files, to answers", "percentile_approx", 0.1),
        limited_figure("rollup of files, to answers", "count … variance", 0.4),
        limited_figure("rollup of a DataFrame, to answers", "percentile_approx", 0.28),
        limited_figure("A.dds", "Arrow UDAF that counts", 1.5),
        limited_figure("su.group_by of dds", "percentile_approx", 0.5),
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
    """Print the seconds of each job, its nanoseconds per row and core, and its seconds divided by those of one of
    Spark's own jobs.
    """
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
    """Compare tiltframe's jobs with Spark's own aggregates. Exit with status 1 if a full run exceeds a limit."""
    figures_with_limits = main(QUICK if quick else FULL, out, answers)
    if any(figure.verdict == "FAIL" for figure in figures_with_limits):
        raise SystemExit(1)


if __name__ == "__main__":
    command()
