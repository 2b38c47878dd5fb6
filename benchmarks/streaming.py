"""The CPU time to process rows with `OpenWindows`, on one core without Spark.

python -m benchmarks.streaming [--rows N]
"""

from __future__ import annotations

import time

import click

from aggr.bench.timing import one_core

KEYS = 100
OPEN_WINDOWS = 100_000
# The minimum number of rows per second, for count, sum and dds over 100 keys.
MIN_ROWS_PER_SECOND = 1_000_000
# The largest allowed ratio of two times: the time of a batch of 1,000 rows while 10⁵ windows are open, divided by the
# time of the batch of 10⁵ rows that opened these windows.
MAX_BATCH_TIME_RATIO = 1.5
BATCH_ROWS = 100_000


@click.command()
@click.option("--rows", default=5_000_000, help="The number of rows.")
def main(rows: int) -> None:
    """Measure large batches, and small batches with many open windows. Exit with status 1 if a limit is exceeded."""
    one_core()
    import numpy as np
    import pyarrow as pa

    import aggr
    from tiltframe import TiltFrame
    from tiltframe.streaming import OpenWindows

    rng = np.random.default_rng(0)
    measures = {"n": aggr.count(), "total": aggr.sum("x"), "p": aggr.dds("x", [0.5, 0.99])}

    def batch(start: int, n: int, keys: int | np.ndarray) -> pa.Table:
        times = start + np.sort(rng.integers(0, 1_000_000, n))
        names = rng.integers(0, keys, n) if isinstance(keys, int) else keys
        return pa.table(
            {
                "ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
                "key": pa.array([f"k{k}" for k in names.tolist()]),
                "x": rng.lognormal(3.0, 1.0, n),
            }
        )

    def seconds(windows: OpenWindows, batches: list[pa.Table], watermark: int | None) -> float:
        begin = time.process_time()
        for number, rows_of_batch in enumerate(batches):
            windows.add_rows(rows_of_batch)
            windows.advance(None if watermark is None else watermark + number * 1_000_000, number * 1_000_000)
        return time.process_time() - begin

    failed = False
    for levels in (["10s"], ["1s", "10s", "1m", "1h"]):
        frame = TiltFrame(levels, "ts", measures, ["key"])
        # The first call compiles loops. Its time is not used.
        seconds(OpenWindows(frame), [batch(0, 1000, KEYS), batch(20_000_000, 1000, KEYS)], 0)
        row_batches = [batch(number * 1_000_000, BATCH_ROWS, KEYS) for number in range(rows // BATCH_ROWS)]
        cpu_seconds = seconds(OpenWindows(frame), row_batches, 0)
        rate = len(row_batches) * BATCH_ROWS / cpu_seconds
        exceeds_limit = rate < MIN_ROWS_PER_SECOND and len(levels) == 1
        failed |= exceeds_limit
        click.echo(f"{'→'.join(levels):16} {rate / 1e6:6.2f} million rows/s{'  FAIL' if exceeds_limit else ''}")
    for emit in ("after_close", "on_update", "after_close(mode=changelog)"):
        windows = OpenWindows(TiltFrame(["1h"], "ts", measures, ["key"]), emit)
        batch_of_all_keys = batch(0, OPEN_WINDOWS, np.arange(OPEN_WINDOWS))
        first_batch_seconds = seconds(windows, [batch_of_all_keys], None)
        full_batch_seconds = seconds(windows, [batch_of_all_keys, batch_of_all_keys, batch_of_all_keys], None) / 3
        small_batch_seconds = seconds(windows, [batch(0, 1000, OPEN_WINDOWS) for _ in range(10)], None) / 10
        exceeds_limit = small_batch_seconds > MAX_BATCH_TIME_RATIO * first_batch_seconds
        failed |= exceeds_limit
        click.echo(
            f"{emit:28} {OPEN_WINDOWS:,} open windows; a batch with one row per window: "
            f"{full_batch_seconds * 1e6 / OPEN_WINDOWS:.2f} µs per key; "
            f"a batch of 1,000 rows: {small_batch_seconds * 1e3:.1f} ms; "
            f"the batch of 10⁵ rows that opened the windows: {first_batch_seconds * 1e3:.1f} ms"
            f"{'  FAIL' if exceeds_limit else ''}"
        )
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
