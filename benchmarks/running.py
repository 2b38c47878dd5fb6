"""CPU time of running results and sliding windows for a million rows on one core.

python -m benchmarks.running [--rows N]
"""

from __future__ import annotations

import time

import click

from aggr.bench.timing import one_core

KEYS = 1000
# The limits in seconds for running results of a million rows.
LIMITS = {"count … stdev": 5.0, "dds": 60.0}
# The largest allowed ratio of the time of sliding(1000) to the time of sliding(10).
RATIO = 3.0


@click.command()
@click.option("--rows", default=1_000_000, help="The number of rows.")
def main(rows: int) -> None:
    """Measure running results and sliding windows. Exit with status 1 if a limit is exceeded."""
    one_core()
    import numpy as np
    import pyarrow as pa

    import aggr
    from tiltframe import running

    rng = np.random.default_rng(0)
    table = pa.table(
        {
            "key": np.sort(rng.integers(0, KEYS, rows)),
            "ts": pa.array(np.arange(rows) * 1000).cast(pa.timestamp("us", "UTC")),
            "x": rng.normal(100.0, 20.0, rows),
        }
    )
    simple = {name: getattr(aggr, name)("x") for name in ("count", "min", "max", "sum", "avg", "var", "stdev")}
    dds = {"p": aggr.dds("x", [0.5, 0.99])}

    def seconds(rows: pa.Table, measures: dict[str, aggr.Measure], window: str) -> float:
        # The first call compiles loops. It is not measured.
        running(rows.slice(0, 2000), measures, window, time="ts", keys=["key"])
        begin = time.process_time()
        running(rows, measures, window, time="ts", keys=["key"])
        return time.process_time() - begin

    failed = False
    for name, measures in {**{n: {n: m} for n, m in simple.items()}, "count … stdev": simple, "dds": dds}.items():
        total_seconds = seconds(table, measures, "running()")
        exceeds_limit = total_seconds > LIMITS.get(name, float("inf")) * rows / 1_000_000
        failed |= exceeds_limit
        click.echo(f"running {name:14} {total_seconds:7.2f} s{'  FAIL' if exceeds_limit else ''}")
    sliding_rows = table.slice(0, rows // 10)
    sliding_rows = sliding_rows.append_column("w", pa.array(np.ones(sliding_rows.num_rows, np.int64)))
    sliding_rows = sliding_rows.append_column("t", pa.array(np.abs(sliding_rows["x"].to_numpy()).astype(np.int64)))
    # Wide and narrow windows are compared only for functions whose results have a fixed size. A function that returns a
    # list of all values takes longer for a wide window.
    measures_of_job = {name: {name: measure} for name, measure in simple.items()} | {
        "first": {"a": aggr.first("x")},
        "last": {"a": aggr.last("x")},
        "arg_min": {"a": aggr.arg_min("x", by="t")},
        "arg_max": {"a": aggr.arg_max("x", by="t")},
        "weighted_avg": {"a": aggr.weighted_avg("x", weight="w")},
        "hdr": {"h": aggr.hdr("t", [0.5, 0.99])},
        "dds": dds,
    }
    for name, measures in measures_of_job.items():
        narrow, wide = (seconds(sliding_rows, measures, f"sliding({n})") for n in (10, 1000))
        exceeds_limit = wide > RATIO * narrow
        failed |= exceeds_limit
        click.echo(
            f"sliding {name:14} sliding(10) {narrow:7.2f} s, sliding(1000) {wide:.2f} s"
            f"{'  FAIL' if exceeds_limit else ''}"
        )
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
