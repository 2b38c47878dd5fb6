"""The cost of checking that each shuffle delivers all rows that its tasks sent.

python -m benchmarks.conservation [--quick] [--out FILE]

A task that sends rows adds count messages with the numbers of rows. A task that receives rows compares these numbers
with the rows that arrive. The cost is the seconds in which tasks add and compare these numbers, divided by the core
time of the job. The core time is the elapsed time of the job multiplied by the number of cores. There are three kinds
of files: with rows in the order of time, with rows in random order, and with rows of a million keys.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from pyspark import cloudpickle

import benchmarks.conservation as this_module
from aggr.bench.timing import circumstances
from benchmarks import growth
from benchmarks.data_sets import TEXTS
from benchmarks.jobs import LEVELS, frame, many_keys, run_and_discard, session, write_rows
from benchmarks.musthold import LimitedFigure, show_limits
from spark_udaf.plan import conservation, two_phase
from spark_udaf.plan.scan import scan_parquet

if TYPE_CHECKING:
    import pyarrow as pa

CORES = 2
HIGHEST_SHARE = 0.02


def write_seconds(folder: str, seconds: float) -> None:
    """Create a file in ``folder`` with the seconds that a task has spent on sending or comparing row counts."""
    with (Path(folder) / str(time.monotonic_ns())).open("a") as file:
        file.write(f"{seconds}\n")


def timed_count_messages(folder: str, messages: Iterator[pa.RecordBatch], *arguments: Any) -> Iterator[pa.RecordBatch]:
    """Yield the messages that `conservation.with_count_messages` yields. Measure the seconds that this function takes,
    without the time in which ``messages`` produces its batches. Store these seconds in a file in ``folder``.
    """
    message_seconds = 0.0

    def timed_messages() -> Iterator[pa.RecordBatch]:
        nonlocal message_seconds
        while True:
            start = time.perf_counter()
            batch = next(messages, None)
            message_seconds += time.perf_counter() - start
            if batch is None:
                return
            yield batch

    total_seconds = 0.0
    batches = conservation.with_count_messages(timed_messages(), *arguments)
    while True:
        start = time.perf_counter()
        batch = next(batches, None)
        total_seconds += time.perf_counter() - start
        if batch is None:
            return write_seconds(folder, total_seconds - message_seconds)
        yield batch


class TimedPartitionCheck(conservation.PartitionCheck):
    """A `conservation.PartitionCheck`, which checks that a task has received all rows that were sent to it. The seconds
    that each check takes are written to ``folder``.
    """

    folder = ""

    def check(self, messages: Sequence[conservation.Message]) -> None:
        start = time.perf_counter()
        super().check(messages)
        write_seconds(self.folder, time.perf_counter() - start)


def shares_of_checks(jobs: dict[str, Callable[[], None]], folder: Path, rounds: int) -> dict[str, float]:
    """Run each job ``rounds + 1`` times. Return, by the name of the job, the share of its core time that was spent on
    sending and comparing row counts. This is the largest share of all rounds except the first. ``folder`` is the folder
    to which `write_seconds` writes the seconds.
    """
    share_of_job = dict.fromkeys(jobs, 0.0)
    for number in range(rounds + 1):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            seconds = time.perf_counter() - start
            timing_files = list(folder.iterdir())
            check_seconds = sum(float(line) for file in timing_files for line in file.read_text().split())
            share = check_seconds / (CORES * seconds)
            # If the folder is empty, the tasks have not used the timed functions, which write files with seconds.
            assert timing_files, name
            for file in timing_files:
                file.unlink()
            if number:  # the first round is not measured, because it starts workers and compiles loops
                share_of_job[name] = max(share_of_job[name], share)
    return share_of_job


@click.command()
@click.option("--quick", is_flag=True, help="A tenth of the rows, fewer rounds.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures to this JSON file.")
def main(quick: bool, out: Path | None) -> None:
    """Measure the cost of the checks for each kind of files. Exit with status 1 if the checks take a larger share of a
    job's core time than the limit allows.
    """
    rows, rounds = (2_000_000, 1) if quick else (20_000_000, 3)
    with tempfile.TemporaryDirectory() as folder_name, session() as spark:
        data_folder = Path(folder_name)
        timing_folder = Path(folder_name) / "timings"
        timing_folder.mkdir()
        # The module `two_phase` and this module are sent to the tasks by value, because the code below replaces
        # functions of `two_phase` by timed functions. Otherwise the tasks would import the modules and use the original
        # functions.
        for module in (two_phase, this_module):
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
        check_class = type("TimedPartitionCheck", (TimedPartitionCheck,), {"folder": str(timing_folder)})
        vars(two_phase).update(
            with_count_messages=partial(timed_count_messages, str(timing_folder)), PartitionCheck=check_class
        )
        jobs: dict[str, Callable[[], None]] = {}
        for name, in_order in (("files in the order of time", True), ("files in no order", False)):
            write_rows(data_folder / name, rows, groups=36_000, data_set=TEXTS, in_order=in_order)
            jobs[name] = partial(roll_up, scan_parquet(spark, data_folder / name))
        files = growth.files(data_folder, rows // 2, rows // 20)
        jobs[f"{rows // 20:,} keys"] = many_keys(spark, files)["many keys: files to answers"]
        share_of_job = shares_of_checks(jobs, timing_folder, rounds)
    limited_figures = [
        LimitedFigure(f"count messages and comparisons / all, {name}", HIGHEST_SHARE, share)
        for name, share in share_of_job.items()
    ]
    show_limits(limited_figures)
    if out is not None:
        limits = [asdict(figure) for figure in limited_figures]
        figures = {**circumstances(("pyspark", "pyarrow")), "rows": rows, "must_hold": limits}
        out.write_text(json.dumps(figures, indent=1) + "\n")
    raise SystemExit(any(figure.verdict == "FAIL" for figure in limited_figures))


def roll_up(scan: Any) -> None:
    """Roll up the files of ``scan`` to results at four levels, and discard the results."""
    import spark_udaf as su

    tilt_frame = frame(LEVELS, TEXTS)
    run_and_discard(su.finish(su.rollup(scan, tilt_frame), tilt_frame))


if __name__ == "__main__":
    this_module.main()
