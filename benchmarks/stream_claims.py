"""Measurements of streams on one core without Spark.

    python -m benchmarks.stream_claims [--quick] [--out FILE]

- a chain of four levels, compared with four streams of one level: CPU seconds and bytes of open windows
- ten minutes with one million events per second: CPU seconds per second of event time
- one million keys that expire: seconds to add them and to expire them, and bytes of memory per key
- windows that close: milliseconds from the watermark to emitted results, and to a commit
- hopping windows, compared with tumbling windows whose length is the hop: CPU seconds
- queries of a store while its old windows expire, compared with queries at other times: milliseconds
- streams that are killed between two commits: seconds from a restart to the next commit, and rows that are lost or
  counted twice
- records with twenty fields, compared with a table that has one row per field: CPU seconds; the states have the same
  bits
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np
import pyarrow as pa

import aggr
from aggr import each
from aggr.bench.timing import circumstances, one_core
from benchmarks.musthold import LimitedFigure, show_limits
from benchmarks.stream_crashes import crashes
from tiltframe import FrameStore, TiltFrame, rollup
from tiltframe.store.closed_windows import ClosedWindows
from tiltframe.streaming import OpenWindows

MICROS = 1_000_000
LEVELS = ["10s", "1m", "10m", "1h"]
MEASURES = {"n": aggr.count(), "total": aggr.sum("x"), "p": aggr.dds("x", [0.5, 0.99])}
KEYS = 1_000
FIELDS = 20
ROUNDS = 3
START = 1_714_521_600 * MICROS  # 2024-05-01 in microseconds since 1970


def events(second: int, per_second: int, keys: int = KEYS) -> pa.Table:
    """Return a table of ``per_second`` events with random keys, in the second that begins ``second`` seconds after
    `START`.
    """
    rng = np.random.default_rng(second)
    times = START + second * MICROS + np.sort(rng.integers(0, MICROS, per_second))
    ts = pa.array(times).cast(pa.timestamp("us", "UTC"))
    return pa.table({"ts": ts, "k": rng.integers(0, keys, per_second), "x": rng.random(per_second)})


def resident_bytes() -> int:
    """Return the resident memory of this process, in bytes."""
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4096


def cpu_seconds(call: Callable[[], object]) -> float:
    """Return the CPU seconds of a call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def run_streams(streams: list[OpenWindows], batches: list[pa.Table], seconds: int) -> int:
    """Add each batch to every stream, and then advance the watermark of the streams by ``seconds`` seconds. Return the
    largest number of bytes of the open windows of all streams together.
    """
    max_bytes = 0
    for number, batch in enumerate(batches):
        for windows in streams:
            windows.add_rows(batch)
            windows.advance(START + (number + 1) * seconds * MICROS)
        max_bytes = max(max_bytes, sum(windows.progress.state_bytes for windows in streams))
    return max_bytes


def chain_and_separate(rows: int) -> tuple[dict[str, Any], list[LimitedFigure]]:
    """Compare one stream of four levels with four streams of one level. Each stream reads 40 batches of 30 seconds."""
    batches = [events(30 * number, rows // 40) for number in range(40)]
    figures: dict[str, Any] = {"chain": [], "separate": []}
    for _ in range(ROUNDS):
        for name, frames in (("chain", [LEVELS]), ("separate", [[level] for level in LEVELS])):
            streams = [OpenWindows(TiltFrame(levels, "ts", MEASURES, ["k"])) for levels in frames]
            start = time.process_time()
            max_bytes = run_streams(streams, batches, 30)
            figures[name].append({"cpu_seconds": time.process_time() - start, "most_state_bytes": max_bytes})
    ratio = _ratio(figures, "cpu_seconds", "chain", "separate")
    return figures, [LimitedFigure(f"{rows:,} rows: CPU of a chain / four streams", 0.6, ratio)]


def a_million_per_second(seconds: int, per_second: int) -> tuple[dict[str, Any], list[LimitedFigure]]:
    """Stream ``seconds`` seconds with ``per_second`` events each. Return the CPU seconds per second of event time and
    the growth of memory, and their limits.
    """
    windows = OpenWindows(TiltFrame(LEVELS, "ts", MEASURES, ["k"]))
    costs = []
    memory = []
    batches = [events(second, per_second) for second in range(4)]
    for second in range(seconds):
        batch = batches[second % 4]
        shifted_times = pa.array(
            batch["ts"].to_numpy().astype("datetime64[us]").astype(np.int64) + second // 4 * 4 * MICROS
        )
        batch = batch.set_column(0, "ts", shifted_times.cast(pa.timestamp("us", "UTC")))

        def step(batch: pa.Table = batch, second: int = second) -> None:
            windows.add_rows(batch)
            windows.results(windows.advance(START + (second + 1) * MICROS))

        costs.append(cpu_seconds(step))
        memory.append(resident_bytes())
    third = max(len(memory) // 3, 1)
    figures = {
        "seconds_of_events": seconds,
        "events_per_second": per_second,
        "cpu_seconds_per_second": median(costs),
        "growth_of_memory": median(memory[-third:]) / median(memory[:third]),
    }
    return figures, [
        LimitedFigure(f"CPU seconds per second of {per_second:,} events", 1, figures["cpu_seconds_per_second"]),
        LimitedFigure("memory of the last third / of the first", 1.2, figures["growth_of_memory"]),
    ]


def expiring_keys(keys: int) -> tuple[dict[str, Any], list[LimitedFigure]]:
    """Measure the memory and the time of a stream in which ``keys`` keys have one row each and then expire, and return
    the figures with their limits.
    """
    windows = OpenWindows(
        TiltFrame(["all"], "ts", {"n": aggr.count(), "x": aggr.sum("x")}, ["k"]), "after_key_expire(1m)"
    )
    bytes_before = resident_bytes()
    start = time.process_time()
    size = 100_000
    for number in range(keys // size):
        ids = np.arange(number * size, (number + 1) * size)
        ts = pa.array(START + ids).cast(pa.timestamp("us", "UTC"))
        windows.add_rows(pa.table({"ts": ts, "k": ids, "x": ids.astype(float)}))
        windows.advance(now=START + number)
    seconds_to_add = time.process_time() - start
    bytes_after = resident_bytes()
    start = time.process_time()
    emitted = windows.advance(now=START + 120 * MICROS).num_rows
    figures = {
        "keys": keys,
        "seconds_to_add": seconds_to_add,
        "seconds_to_expire": time.process_time() - start,
        "bytes_per_key": (bytes_after - bytes_before) / keys,
        "keys_left": windows.progress.keys,
    }
    assert emitted == keys, f"{emitted:,} of {keys:,} keys expired, and all of them must"
    return figures, [LimitedFigure(f"bytes of memory for each of {keys:,} keys", 1_000, figures["bytes_per_key"])]


def closing_windows(windows_at_once: int) -> tuple[dict[str, Any], list[LimitedFigure]]:
    """Measure two times in milliseconds: from a watermark that closes windows until the windows' results are Python
    objects, and until the windows are committed to a store.
    """
    frame = TiltFrame(["10s", "1m"], "ts", MEASURES, ["k"])
    emitted_times = []
    committed_times = []
    with tempfile.TemporaryDirectory() as folder:
        windows = OpenWindows(frame)
        closed = ClosedWindows(FrameStore(Path(folder) / "store", frame), "s")
        for number in range(12):
            batch = events(number * 10, 50_000, keys=windows_at_once)
            watermark = START + (number + 1) * 10 * MICROS
            windows.add_rows(batch)
            start = time.perf_counter()
            windows.results(windows.advance(watermark)).to_pylist()
            emitted_times.append(time.perf_counter() - start)
            closed.add_rows(batch)
            start = time.perf_counter()
            closed.advance(watermark)
            closed.commit()
            committed_times.append(time.perf_counter() - start)
    figures = {
        "windows": windows_at_once,
        "emitted_ms": median(emitted_times) * 1000,
        "committed_ms": median(committed_times) * 1000,
    }
    return figures, [
        LimitedFigure(f"ms from the close of {windows_at_once:,} windows to a commit", 1_000, figures["committed_ms"])
    ]


def hopping(rows: int) -> tuple[dict[str, Any], list[LimitedFigure]]:
    """Compare tumbling windows of ten seconds with hopping windows of one minute and a hop of ten seconds. Each row is
    in six hopping windows.
    """
    batches = [events(10 * number, rows // 40) for number in range(40)]
    figures: dict[str, Any] = {"tumbling": [], "hopping": []}
    for _ in range(ROUNDS):
        for name, level in (("tumbling", "10s"), ("hopping", "hopping(1m, 10s)")):
            windows = OpenWindows(TiltFrame([level], "ts", MEASURES, ["k"]))
            seconds = cpu_seconds(partial(run_streams, [windows], batches, 10))
            figures[name].append({"cpu_seconds": seconds, "rows_per_second": rows / seconds})
    ratio = _ratio(figures, "cpu_seconds", "hopping", "tumbling")
    return figures, [LimitedFigure("CPU of hopping windows, six for each row / tumbling", 6, ratio)]


def retention_while_querying(days: int) -> tuple[dict[str, Any], list[LimitedFigure]]:
    """Measure queries of the last day, first alone, and then while another thread removes the windows of older days."""
    frame = TiltFrame(["1m", "1d"], "ts", {"n": aggr.count()}, ["k"])
    day = 86_400 * MICROS
    with tempfile.TemporaryDirectory() as folder:
        store = FrameStore(Path(folder) / "store", frame, retention={"1m": "1d"})
        for number in range(days):
            minutes = np.repeat(np.arange(1440), 20) * 60 * MICROS + START + number * day
            keys = np.tile(np.arange(20), 1440)
            rows = pa.table({"ts": pa.array(minutes).cast(pa.timestamp("us", "UTC")), "k": keys})
            store.append_rows(rows, writer="w", commit=number)
        last_day = tuple(_text(START + (days - 1 + end) * day) for end in (0, 1))
        reader = FrameStore(Path(folder) / "store")

        def query_seconds(until: Callable[[], bool]) -> Iterator[float]:
            while not until():
                start = time.perf_counter()
                results = reader.query("1m", last_day)
                yield time.perf_counter() - start
                assert results.num_rows == 1440 * 20

        seconds_alone = list(query_seconds(iter([False] * 10 + [True]).__next__))
        thread = threading.Thread(
            target=lambda: [store.expire(now=_text(START + number * day)) for number in range(2, days)]
        )
        thread.start()
        seconds_while_expiring = list(query_seconds(lambda: not thread.is_alive())) or seconds_alone
    figures = {
        "alone_ms": median(seconds_alone) * 1000,
        "while_expiring_ms": median(seconds_while_expiring) * 1000,
        "queries": len(seconds_while_expiring),
    }
    return figures, [
        LimitedFigure("a query while windows expire / alone", 5, figures["while_expiring_ms"] / figures["alone_ms"])
    ]


def records(rows: int) -> tuple[dict[str, Any], list[LimitedFigure]]:
    """Compare two rollups that give the same states. The first rollup reads records, and aggregates each field in the
    group with the name of the field (`each`). The second rollup reads a table with one row per field. Raise
    ``AssertionError`` if the states differ.
    """
    rng = np.random.default_rng(0)
    ts = pa.array(START + np.sort(rng.integers(0, 60 * MICROS, rows))).cast(pa.timestamp("us", "UTC"))
    names = [f"field{number:02}" for number in range(FIELDS)]
    fields = pa.StructArray.from_arrays([pa.array(rng.random(rows)) for _ in names], names=names)
    data = pa.table({"ts": ts, "fields": fields})
    records_frame = TiltFrame(["1s"], "ts", _measures_of("fields[class]"), {"class": each("fields")})
    exploded_frame = TiltFrame(["1s"], "ts", _measures_of("value"), ["class"])

    def roll_up_exploded() -> pa.Table:
        field_numbers = pa.array(np.tile(np.arange(FIELDS, dtype=np.int32), rows))
        classes = pa.DictionaryArray.from_arrays(field_numbers, names).dictionary_decode()
        values = np.column_stack([fields.field(name).to_numpy() for name in names]).ravel()
        times = ts.take(pa.array(np.repeat(np.arange(rows), FIELDS)))
        return rollup(pa.table({"ts": times, "class": classes, "value": values}), exploded_frame)

    seconds: dict[str, list[float]] = {"records": [], "exploded": []}
    results: dict[str, pa.Table] = {}
    for _ in range(ROUNDS):
        for name, call in (("records", partial(rollup, data, records_frame)), ("exploded", roll_up_exploded)):
            start = time.process_time()
            results[name] = call()
            seconds[name].append(time.process_time() - start)
    states = [table.sort_by([("window_start", "ascending"), ("class", "ascending")]) for table in results.values()]
    assert all(
        column.equals(other_column) for column, other_column in zip(states[0].columns, states[1].columns, strict=True)
    )
    ratio = median(seconds["records"]) / median(seconds["exploded"])
    return {"rows": rows, "cpu_seconds": seconds}, [
        LimitedFigure(f"{rows:,} records of {FIELDS} fields / exploded rows", 1, ratio)
    ]


def _measures_of(column: str) -> dict[str, aggr.Measure]:
    return {"n": aggr.count(), "mean": aggr.avg(column), "most": aggr.max(column)}


def _ratio(figures: dict[str, list[dict[str, float]]], figure: str, name: str, base_name: str) -> float:
    return median(f[figure] for f in figures[name]) / median(f[figure] for f in figures[base_name])


def _text(micros: int) -> str:
    return str(np.datetime64(micros, "us")) + "Z"


def main(quick: bool, out: Path | None) -> list[LimitedFigure]:
    """Measure and print all figures, and write them to ``out`` if it is passed."""
    rows = 100_000 if quick else 4_000_000
    calls: dict[str, Callable[[], tuple[dict[str, Any], list[LimitedFigure]]]] = {
        "chain": partial(chain_and_separate, rows),
        "a million per second": partial(a_million_per_second, 3 if quick else 600, 10_000 if quick else 1_000_000),
        "hot keys": partial(expiring_keys, 100_000 if quick else 1_000_000),
        "close to sink": partial(closing_windows, 100 if quick else 1_000),
        "hopping": partial(hopping, rows),
        "retention while querying": partial(retention_while_querying, 4 if quick else 12),
        "crashes": partial(crashes, (events(n, 10_000) for n in range(200 if quick else 3_000)), 2 if quick else 20),
        "records": partial(records, 10_000 if quick else 5_000_000),
    }
    figures = {}
    limited_figures = list[LimitedFigure]()
    for name, call in calls.items():
        figures[name], limits = call()
        click.echo(f"{name}: {json.dumps(figures[name])}")
        limited_figures += limits
    show_limits(limited_figures)
    if out is not None:
        about = circumstances(("pyarrow", "numpy", "deltalake"))
        limits_as_data = [{**asdict(figure), "verdict": figure.verdict} for figure in limited_figures]
        out.write_text(json.dumps({**about, "figures": figures, "must_hold": limits_as_data}, indent=1) + "\n")
    return limited_figures


@click.command()
@click.option("--quick", is_flag=True, help="A few thousand rows.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures to this JSON file.")
def command(quick: bool, out: Path | None) -> None:
    """Measure streams on one core. Exit with status 1 if a limit is exceeded."""
    one_core()
    limited_figures = main(quick, out)
    if not quick and any(figure.verdict == "FAIL" for figure in limited_figures):
        raise SystemExit(1)


if __name__ == "__main__":
    command()
