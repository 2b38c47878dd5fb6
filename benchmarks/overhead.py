"""The overhead of `aggr.bench`: its figures next to bare calls of the same operations in the same process.

    python -m benchmarks.overhead [--rounds 41] [--out benchmarks/results/overhead.json]

In each round, the harness times an operation once, and the operation is called once without it, in random order. CPU
time is compared, because other processes of the machine do not add to it.
"""

from __future__ import annotations

import json
import random
import time
from dataclasses import asdict
from pathlib import Path
from statistics import median

import click

import aggr
from aggr.bench import alternate, circumstances, one_core
from aggr.bench.costs import GROUP, MeasureCase
from aggr.bench.distributions import table_for
from benchmarks.musthold import MustHold, show_must_hold

ROWS = 1_000_000
LIMIT = 0.02  # the largest share of the harness in the time of an operation
MEASURES = (aggr.sum("x"), aggr.dds("x", [0.5, 0.99]), aggr.max("x"))
GROUPS = (1, 1000)


def overhead(measure: aggr.Measure, groups: int, rounds: int) -> float:
    """Return the share by which the CPU time of an operation within the harness exceeds that of a bare call.

    The operation reduces `ROWS` rows. The result may be negative, within the noise of the machine.
    """
    import numpy as np
    import pyarrow as pa

    ids = np.random.default_rng(1).integers(0, groups, ROWS)
    rows = table_for([measure], ROWS, "lognormal").append_column(GROUP, pa.array(ids)).combine_chunks()
    call = MeasureCase(measure, rows, groups).reduced
    call()
    draws = random.Random(1)
    seconds: dict[str, list[float]] = {"harness": [], "bare": []}
    for _ in range(rounds):
        for side in draws.sample(["harness", "bare"], 2):
            begin = time.process_time()
            if side == "harness":
                alternate([call], rounds=1)
            else:
                call()
            seconds[side].append(time.process_time() - begin)
    return median(seconds["harness"]) / median(seconds["bare"]) - 1


@click.command()
@click.option("--rounds", default=41, show_default=True, help="Rounds of each operation.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures to this JSON file.")
def main(rounds: int, out: Path | None) -> None:
    """Measure the overhead; exit status 1 if it is too large."""
    one_core()
    lines = [
        MustHold(f"overhead of aggr.bench, {measure}, {groups:,} groups", LIMIT, overhead(measure, groups, rounds))
        for measure in MEASURES
        for groups in GROUPS
    ]
    show_must_hold(lines)
    if out is not None:
        figures = {"rows": ROWS, "rounds": rounds, "must_hold": [asdict(line) for line in lines]}
        out.write_text(json.dumps({**circumstances(), **figures}, indent=1) + "\n")
    raise SystemExit(any(line.verdict == "FAIL" for line in lines))


if __name__ == "__main__":
    main()
