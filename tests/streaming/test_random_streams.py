"""Random streams, compared with the batch job: records, windows under a second, ticks, changed results, several
sources.

``TILTFRAME_CASES=2500 pytest tests/streaming/test_random_streams.py`` runs 5,000 streams.
"""

from __future__ import annotations

import os
import random
from collections import Counter

import pyarrow as pa
import pytest

import aggr
from aggr import each
from tiltframe import RunningAggregation, TiltFrame, finish, rollup, running
from tiltframe.ordered.query import TICK
from tiltframe.streaming import OpenWindows, SourceWatermarks
from tiltframe.streaming.ordered_stream import OrderedStream
from windows import ordered

SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))
CASES = int(os.environ.get("TILTFRAME_CASES", "12"))
NAMES = ["idle", "user", "7"]
LEVELS = [
    ["250ms", "1s", "10s"],
    ["100ms"],
    ["hopping(500ms, 200ms)"],
    ["500us", "5ms", "1s"],
    ["session(300ms)"],
    ["50ms", "all"],
]
MEASURES = {
    "n": aggr.count(),
    "total": aggr.sum("fields[class]"),
    "greatest": aggr.max("fields[class]"),
    "stats": aggr.dds("fields[class]", [0.5]),
    "spans": aggr.collect(["i", "fields"]),
    "mean": "total / n",
    "label": "concat(class, ':', greatest)",
    "ms": "date_diff('ms', first, last)",
    "first": aggr.min("ts"),
    "last": aggr.max("ts"),
}
FIELDS = pa.struct([(name, pa.int64()) for name in NAMES])
ROWS = pa.schema([("ts", pa.timestamp("us", "UTC")), ("host", pa.string()), ("fields", FIELDS), ("i", pa.int64())])
KEYS = {"host": "host", "class": each("fields")}
IDENTITY = ("level", "window_start", "window_end", "host", "class")


def random_rows(draws: random.Random) -> list[dict]:
    """Draw rows of up to two seconds; a field of a record may be missing, and so may the record."""
    rows = []
    for i in range(draws.randint(1, 40)):
        record = {name: draws.choice([None, 0, 1, 5, -3]) for name in NAMES}
        fields = draws.choice([None, record, record, record])
        rows.append(
            {"ts": draws.randrange(2_000_000), "host": draws.choice(["a", None, "b"]), "fields": fields, "i": i}
        )
    return rows


def table(rows: list[dict]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=ROWS)


def batches_of_sources(draws: random.Random, rows: list[dict]) -> list[tuple[str, list[dict], int]]:
    """Draw arrivals: the source of each batch, its rows, and the time before which this source has no more rows."""
    sources = [f"s{number}" for number in range(draws.randint(1, 3))]
    remaining: dict[str, list[dict]] = {source: [] for source in sources}
    for row in sorted(rows, key=lambda row: row["ts"] + draws.randrange(200_000)):
        remaining[draws.choice(sources)].append(row)
    arrivals = []
    while any(remaining.values()):
        source = draws.choice([name for name, waiting in remaining.items() if waiting])
        size = draws.randint(1, 8)
        batch, remaining[source] = remaining[source][:size], remaining[source][size:]
        next_time = min((row["ts"] for row in remaining[source]), default=2_000_000)
        arrivals.append((source, batch, next_time))
    return arrivals


def by_window(results: pa.Table) -> dict[tuple, dict]:
    named = {}
    for row in results.to_pylist():
        named[tuple(row[name] for name in IDENTITY)] = {name: repr(row[name]) for name in MEASURES}
    return named


def policy(draws: random.Random, levels: list[str]) -> str:
    modes = ["changelog"] if levels[0].startswith("session") else ["accumulating", "changelog"]
    changed = draws.choice(["rows", "result", "result"])
    choices = [
        f"on_update(mode={draws.choice(modes)}, changed={changed})",
        f"on_update(batch=3s, mode={draws.choice(modes)}, changed={changed})",
        f"periodic(2s, mode={draws.choice(modes)}, changed={changed})",
        "after_close",
    ]
    return draws.choice(choices)


def one_stream(draws: random.Random, case: str) -> None:
    levels, rows = draws.choice(LEVELS), random_rows(draws)
    emit = policy(draws, levels)
    case = f"{case}: {levels} {emit}"
    frame = TiltFrame(levels, "ts", MEASURES, keys=KEYS)
    late = "drop(300ms)" if levels[0].startswith("session") else "drop"
    windows, now = OpenWindows(frame, emit, late), 0
    arrivals = batches_of_sources(draws, rows)
    sources = SourceWatermarks({source for source, _, _ in arrivals})
    emitted: list[dict] = []
    for source, batch, next_time in arrivals:
        dropped = windows.add_rows(table(batch))
        assert not dropped.num_rows, case
        sources.advance(source, next_time, now=now)
        now += draws.randrange(2_000_000)
        emitted += windows.results(windows.advance(sources.combined(now=now), now)).to_pylist()
        if draws.random() < 0.2:
            windows = OpenWindows.from_ipc(windows.to_ipc())
    emitted += windows.results(windows.close()).to_pylist()
    batch_results = by_window(finish(rollup(table(rows), frame), frame))
    check_emissions(emitted, batch_results, emit=emit, case=case)


def check_emissions(emitted: list[dict], batch: dict[tuple, dict], *, emit: str, case: str) -> None:
    """Check that the last results of all windows are those of the batch job, and that no result is repeated."""
    last: dict[tuple, dict] = {}
    standing: Counter = Counter()
    for row in emitted:
        name = tuple(row[column] for column in IDENTITY)
        result = {column: repr(row[column]) for column in MEASURES}
        change = row.get("change", 1)
        standing[name, tuple(result.values())] += change
        if change > 0 and "changed=result" in emit and "changelog" not in emit:
            assert last.get(name) != result, f"{case}: {name} was repeated"
        if change > 0:
            last[name] = result
    if "changelog" in emit:
        assert min(standing.values(), default=0) >= 0, case
        last = {name: dict(zip(MEASURES, result, strict=True)) for (name, result), count in standing.items() if count}
    assert last == batch, case


def one_ordered_stream(draws: random.Random, case: str) -> None:
    """A stream of rows in any order within the watermark, with ticks, against `running` of all rows."""
    tick = draws.choice([ordered.minutely(), ordered.hourly(), ordered.daily("UTC")])
    options = {
        "window": ordered.since(tick),
        "time": "ts",
        "keys": ["host"],
        "emit": draws.choice(["ticks", "rows"]),
        "order": ["i"],
    }
    if draws.random() < 0.7:
        options |= {"until": "next", "fill": draws.choice([None, "zero"])}
    measures = {"n": aggr.count(), "total": aggr.sum("x"), "mean": "total / n"}
    length = draws.choice([600, 7200, 100_000])
    rows = [
        {
            "ts": draws.randrange(length) * 1_000_000,
            "host": draws.choice(["a", None, "b"]),
            "x": draws.randrange(9),
            "i": i,
        }
        for i in range(draws.randint(1, 25))
    ]
    schema = pa.schema([("ts", pa.timestamp("us", "UTC")), ("host", pa.string()), ("x", pa.int64()), ("i", pa.int64())])
    expected = running(pa.Table.from_pylist(rows, schema=schema), measures, **options)
    stream, results = OrderedStream(RunningAggregation(measures, **options)), []
    arrivals = sorted(rows, key=lambda row: row["ts"] + draws.randrange(length // 5 + 1) * 1_000_000)
    while arrivals:
        size = draws.randint(1, 6)
        batch, arrivals = arrivals[:size], arrivals[size:]
        stream.add_rows(pa.Table.from_pylist(batch, schema=schema))
        results.append(stream.results(stream.advance(min((row["ts"] for row in arrivals), default=None))))
    results.append(stream.results(stream.close()))
    columns = [name for name in (TICK, "ts", "host", "i", *measures) if name in expected.column_names]
    got = [
        tuple(map(repr, row.values()))
        for part in results
        if part.num_columns
        for row in part.select(columns).to_pylist()
    ]
    assert sorted(got) == sorted(tuple(map(repr, row.values())) for row in expected.select(columns).to_pylist()), case


@pytest.mark.long
@pytest.mark.slow
def test_streams_of_records_have_the_results_of_the_batch_job():
    for number in range(CASES):
        one_stream(random.Random(f"{SEED} windows {number}"), f"TILTFRAME_SEED={SEED} windows {number}")


@pytest.mark.slow
def test_streams_with_ticks_have_the_results_of_the_batch_job():
    for number in range(CASES):
        one_ordered_stream(random.Random(f"{SEED} ticks {number}"), f"TILTFRAME_SEED={SEED} ticks {number}")
