"""The overhead of `aggr.bench`: the CPU time that it adds to each run of an operation.

    python -m benchmarks.overhead [--rounds 21] [--out benchmarks/results/overhead.json]

The overhead has two parts. The first is the CPU time per run of an empty operation. The second is the CPU time by which
the timed call of `aggr.bench` exceeds a direct call of the measure's ``reduce``. Timed and direct calls alternate. The
sum of both parts, divided by the CPU time of the direct call, is the relative error of the figures of `aggr.bench`.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from statistics import median

import click
import numpy as np
import pyarrow as pa

import aggr
from aggr.bench import alternate, circumstances, one_core
from aggr.bench.costs import GROUP, MeasureCase
from aggr.bench.distributions import table_for
from aggr.bench.timing import Call
from aggr.groups.groups import Groups
from benchmarks.musthold import LimitedFigure, show_limits

ROWS = 1_000_000
LIMIT = 0.02  # the largest allowed ratio of the overhead to the time of an operation
MEASURES = (aggr.sum("x"), aggr.dds("x", [0.5, 0.99]), aggr.max("x"))
GROUPS = (1, 1000)
RUNS = 1000  # the number of runs of the empty operation per round


def harness_seconds(rounds: int) -> float:
    """Return the CPU seconds that `aggr.bench` takes for one run of an empty operation."""
    begin = time.process_time()
    alternate([lambda: None], rounds=rounds * RUNS)
    return (time.process_time() - begin) / (rounds * RUNS)


def direct_and_timed(measure: aggr.Measure, groups: int) -> tuple[Call, Call]:
    """Return two calls that reduce the same `ROWS` rows into ``groups`` groups: a direct call of the measure, and the
    call that `aggr.bench` times.
    """
    ids = np.random.default_rng(1).integers(0, groups, ROWS)
    rows = table_for([measure], ROWS, "lognormal").append_column(GROUP, pa.array(ids)).combine_chunks()
    return lambda: measure.reduce(rows, Groups(ids, groups)), MeasureCase(measure, rows, groups).reduce_rows


def cpu_seconds(call: Call) -> float:
    """Return the CPU seconds of one call."""
    begin = time.process_time()
    call()
    return time.process_time() - begin


def overhead(measure: aggr.Measure, groups: int, rounds: int, seconds_per_run: float) -> float:
    """Return the overhead of `aggr.bench` for reducing rows, as a fraction of the time of the direct call.

    ``seconds_per_run`` is the time that `harness_seconds` returns. In each round, the time of the direct call is
    subtracted from the time of the call by `aggr.bench`, because the speed of the machine varies from round to round.
    The overhead is the median difference plus ``seconds_per_run``.
    """
    direct_call, bench_call = direct_and_timed(measure, groups)
    direct_call(), bench_call()  # The first calls compile loops. They are not measured.
    pairs = []
    for number in range(rounds):
        if number % 2:
            timed_seconds = cpu_seconds(bench_call)
            direct_seconds = cpu_seconds(direct_call)
        else:
            direct_seconds = cpu_seconds(direct_call)
            timed_seconds = cpu_seconds(bench_call)
        pairs.append((direct_seconds, timed_seconds))
    added_seconds = median(timed_seconds - direct_seconds for direct_seconds, timed_seconds in pairs)
    return max(0.0, added_seconds + seconds_per_run) / median(direct_seconds for direct_seconds, _ in pairs)


@click.command()
@click.option("--rounds", default=101, show_default=True, help="Rounds of each operation.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures to this JSON file.")
def main(rounds: int, out: Path | None) -> None:
    """Measure the overhead. Exit with status 1 if it exceeds the limit."""
    one_core()
    seconds_per_run = harness_seconds(rounds)
    click.echo(f"the harness takes {seconds_per_run * 1e6:.1f} µs per run")
    limited_figures = [
        LimitedFigure(f"{measure}, {groups:,} groups", LIMIT, overhead(measure, groups, rounds, seconds_per_run))
        for measure in MEASURES
        for groups in GROUPS
    ]
    show_limits(limited_figures)
    if out is not None:
        limits = [asdict(figure) for figure in limited_figures]
        figures = {"rows": ROWS, "rounds": rounds, "harness_seconds": seconds_per_run, "must_hold": limits}
        out.write_text(json.dumps({**circumstances(), **figures}, indent=1) + "\n")
    raise SystemExit(any(figure.verdict == "FAIL" for figure in limited_figures))


if __name__ == "__main__":
    main()
