"""Long streams on one core without Spark: check that results have the same bits as in a batch job, and that memory does
not grow.

python -m benchmarks.long_streams [--rows N] [--seed N]     batches of many sizes, out of order, with restarts
python -m benchmarks.long_streams --minutes 10              memory and the size of the saved state over time
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from aggr.bench.timing import one_core

LEVELS = ["10s", "1m", "10m", "1h"]
# The number of keys.
KEYS = 50
# The maximum lateness of rows, and the delay of the watermark, in seconds.
LAG = 120
# The number of rows per second of event time.
ROWS_A_SECOND = 250
# The largest allowed ratio of two peaks of memory: the peak in the last third of the time, divided by the peak in the
# first two thirds.
GROWTH = 1.1


@click.command()
@click.option("--rows", default=5_000_000, help="The number of rows.")
@click.option("--seed", default=0, help="The seed of rows, batches and restarts.")
@click.option("--minutes", type=float, help="Run for this many minutes and report the memory instead.")
def main(rows: int, seed: int, minutes: float | None) -> None:
    """Compare streams with a batch job, or measure their memory. Exit with status 1 if results differ
    or memory grows.
    """
    one_core()
    has_passed = check_bits(rows, seed) if minutes is None else check_memory(minutes, seed)
    if not has_passed:
        raise SystemExit(1)


def check_bits(n: int, seed: int) -> bool:
    """Stream ``n`` random rows into open windows and, separately, into a store. Return whether the states that the
    windows emit and the states in the store have the same bits as a rollup of all rows.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from tiltframe import FrameStore, rollup
    from tiltframe.store.closed_windows import ClosedWindows
    from tiltframe.streaming import OpenWindows

    frame = _frame()
    rng = np.random.default_rng(seed)
    parts = []
    windows = OpenWindows(frame)
    store = FrameStore(Path(tempfile.mkdtemp()) / "store", frame)
    store_windows = ClosedWindows(store, "rows", late="true_window")
    emitted = []
    batches = 0
    restarts = 0
    commits = 0
    start = time.process_time()
    for rows, newest in _batches(rng, n):
        parts.append(rows)
        batches += 1
        if windows.add_rows(rows).num_rows or store_windows.add_rows(rows).num_rows:
            click.echo(f"batch {batches} has late rows, which were dropped; all rows must be counted  FAIL")
            return False
        emitted.append(windows.advance(newest - LAG * 1_000_000))
        # The watermark of ``store_windows`` has a shorter delay, so that some rows are late. With
        # ``late="true_window"``, late rows are added to the windows of their event times.
        store_windows.advance(newest - (LAG // 4) * 1_000_000)
        if rng.random() < 0.1:
            restarts += 1
            windows = OpenWindows.from_ipc(windows.to_ipc())
        if rng.random() < 0.1:
            saved = store_windows.to_ipc()
            commits = commits + 1
            if rng.random() < 0.5:
                store_windows.commit()
            # Continue from the saved state, as if the process had been killed. In half of the cases, the windows were
            # committed before the process was killed.
            store_windows = ClosedWindows.from_ipc(saved, store, late="true_window")
            store_windows.commit()
    emitted.append(windows.advance(2**61))
    store_windows.close()
    store_windows.commit()
    cpu_seconds = time.process_time() - start
    batch_result = rollup(pa.concat_tables(parts), frame)
    all_emitted = pa.concat_tables(emitted)
    click.echo(
        f"{sum(map(len, parts)):,} rows, {batches:,} batches, {restarts} restarts, {commits} commits with a restart: "
        f"{all_emitted.num_rows:,} windows, {cpu_seconds:.0f} s of CPU"
    )
    has_passed = True
    for level in frame.levels:
        expected = batch_result.filter(pc.equal(batch_result.column("level"), level.name))
        emitted_states = all_emitted.filter(pc.equal(all_emitted.column("level"), level.name))
        has_passed &= _check_level(
            f"{level.name:4} emitted ",
            emitted_states.sort_by([("window_start", "ascending"), ("key", "ascending")]),
            expected,
        )
        has_passed &= _check_level(f"{level.name:4} in store", store.states(level), expected)
    return has_passed


def check_memory(minutes: float, seed: int) -> bool:
    """Stream for some minutes, and print resident memory, the number of open windows and the size of the saved state.
    Return False if the memory or the saved state has grown beyond its limit.
    """
    import numpy as np

    from tiltframe import FrameStore
    from tiltframe.store.closed_windows import ClosedWindows
    from tiltframe.streaming import OpenWindows

    frame = _frame()
    rng = np.random.default_rng(seed)
    windows = OpenWindows(frame, late="drop(1m)")
    store_windows = ClosedWindows(FrameStore(Path(tempfile.mkdtemp()) / "store", frame), "rows", compact_every=20)
    start = time.monotonic()
    next_report = 0.0
    samples = []
    rows_so_far = 0
    last_commit = time.monotonic()
    click.echo("minute      rows   RSS MB   open MB   saved state KB   open windows")
    for rows, newest in _batches(rng, None):
        rows_so_far += len(rows)
        for stream in (windows, store_windows):
            stream.add_rows(rows)
            stream.advance(newest - LAG * 1_000_000)
        if time.monotonic() - last_commit > 1:
            store_windows.commit()
            last_commit = time.monotonic()
        if time.monotonic() - start >= next_report:
            progress = windows.progress
            state = max(len(windows.to_ipc()), len(store_windows.to_ipc()))
            memory = _resident_bytes()
            samples.append((memory, state))
            click.echo(
                f"{(time.monotonic() - start) / 60:6.1f} {rows_so_far:9,} {memory / 1e6:8.1f} "
                f"{progress.state_bytes / 1e6:9.2f} {state / 1e3:16.1f}   {sum(progress.open_windows.values()):,}"
            )
            next_report += min(30, minutes * 60 / 12)
        if time.monotonic() - start > minutes * 60:
            break
    third = len(samples) // 3
    first, last = (max(m for m, _ in part) for part in (samples[: 2 * third], samples[-third:]))
    states = [max(s for _, s in part) for part in (samples[1 : 2 * third], samples[-third:])]
    has_passed = last <= GROWTH * first and states[1] <= 2 * states[0]
    sizes = f"{first / 1e6:.1f} MB at most in the first two thirds, {last / 1e6:.1f} in the last"
    click.echo(f"RSS {sizes}{'' if has_passed else '  FAIL'}")
    return has_passed


def _frame() -> Any:
    import aggr
    from tiltframe import TiltFrame

    measures = {"n": aggr.count(), "x": aggr.sum("x"), "p": aggr.dds("x", [0.5, 0.99]), "last": aggr.last("i")}
    return TiltFrame(LEVELS, "ts", measures, ["key"])


def _batches(rng: Any, n: int | None) -> Iterator[tuple[Any, int]]:
    """Yield pairs of a batch and the newest event time so far, in microseconds. A batch has 1 to 100,000 rows, which
    are up to `LAG` seconds late. All batches together have ``n`` rows; if ``n`` is None, batches never end.
    """
    import numpy as np
    import pyarrow as pa

    row_count = 0
    newest = 0
    names = np.array([f"k{k}" for k in range(KEYS)])
    while n is None or row_count < n:
        size = int(np.exp(rng.uniform(0, np.log(100_000))))
        size = size if n is None else min(size, n - row_count)
        at = (row_count + np.arange(size)) * (1_000_000 // ROWS_A_SECOND)
        times = at - (rng.exponential(LAG / 10, size).clip(0, LAG) * 1_000_000).astype(np.int64)
        newest = max(newest, int(times.max()))
        row_count = row_count + size
        columns = {
            "ts": pa.array(times + 10**15).cast(pa.timestamp("us", "UTC")),
            "key": pa.array(names[rng.integers(0, KEYS, size)]),
            "x": rng.lognormal(0, 30, size),
            "i": rng.integers(0, 1000, size),
        }
        yield pa.table(columns), newest + 10**15


def _check_level(label: str, emitted_states: Any, expected: Any) -> bool:
    from aggr.arrow.bit_equality import same_bits

    has_passed = emitted_states.num_rows == expected.num_rows and all(
        same_bits(emitted_states.column(name), expected.column(name)) for name in expected.column_names
    )
    click.echo(f"{label} {expected.num_rows:7,} windows  {'the same bits' if has_passed else 'DIFFERENT  FAIL'}")
    return bool(has_passed)


def _resident_bytes() -> int:
    """Return the resident memory of this process, in bytes."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


if __name__ == "__main__":
    main()
