"""The overhead of `aggr.bench`: the CPU time that it adds to each run of an operation.

    python -m benchmarks.overhead [--rounds 21] [--out benchmarks/results/overhead.json]

The overhead is the CPU time per run of an empty operation. Divided by the CPU time of a real operation, it is an upper
bound for the relative error of the figures of `aggr.bench`.
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
from benchmarks.musthold import MustHold, show_must_hold

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


def bare_seconds(measure: aggr.Measure, groups: int, rounds: int) -> float:
    """Return the median CPU seconds to reduce `ROWS` rows into ``groups`` groups, without `aggr.bench`."""
    ids = np.random.default_rng(1).integers(0, groups, ROWS)
    rows = table_for([measure], ROWS, "lognormal").append_column(GROUP, pa.array(ids)).combine_chunks()
    case = MeasureCase(measure, rows, groups)
    case.reduced()  # The first call compiles loops. It is not measured.
    seconds = []
    for _ in range(rounds):
        begin = time.process_time()
        case.reduced()
        seconds.append(time.process_time() - begin)
    return median(seconds)


@click.command()
@click.option("--rounds", default=21, show_default=True, help="Rounds of each operation.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures to this JSON file.")
def main(rounds: int, out: Path | None) -> None:
    """Measure the overhead. Exit with status 1 if it exceeds the limit."""
    one_core()
    own = harness_seconds(rounds)
    click.echo(f"the harness takes {own * 1e6:.1f} µs per run")
    lines = [
        MustHold(f"{measure}, {groups:,} groups", LIMIT, own / bare_seconds(measure, groups, rounds))
        for measure in MEASURES
        for groups in GROUPS
    ]
    show_must_hold(lines)
    if out is not None:
        limits = [asdict(line) for line in lines]
        figures = {"rows": ROWS, "rounds": rounds, "harness_seconds": own, "must_hold": limits}
        out.write_text(json.dumps({**circumstances(), **figures}, indent=1) + "\n")
    raise SystemExit(any(line.verdict == "FAIL" for line in lines))


if __name__ == "__main__":
    main()
