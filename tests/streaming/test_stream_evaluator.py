"""Open windows, compared with a naive evaluator: each emission and count of random streams with every emit policy."""

from __future__ import annotations

import os
import random

import pyarrow as pa
import pytest

import aggr
from tests.naive_stream import FOREVER, Level, NaiveStream
from tiltframe import TiltFrame
from tiltframe.reducing import reduce_rows
from tiltframe.streaming import OpenWindows

SECOND = 1_000_000
SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))
CASES = int(os.environ.get("TILTFRAME_CASES", "6"))  # of each policy
LEVELS = {
    "1s": Level("1s", SECOND, SECOND),
    "2s": Level("2s", 2 * SECOND, 2 * SECOND),
    "10s": Level("10s", 10 * SECOND, 10 * SECOND),
    "20s": Level("20s", 20 * SECOND, 20 * SECOND),
    "1m": Level("1m", 60 * SECOND, 60 * SECOND),
    "hopping(10s, 3s)": Level("hopping(10s, 3s)", 10 * SECOND, 3 * SECOND),
    "hopping(10s, 4s)": Level("hopping(10s, 4s)", 10 * SECOND, 4 * SECOND),
    "session(3s)": Level("session(3s)", gap=3 * SECOND),
    "all": Level("all"),
}
FRAMES = [
    ["1s", "10s", "1m"],
    ["hopping(10s, 3s)"],
    ["2s", "hopping(10s, 4s)", "20s"],
    ["2s", "hopping(10s, 4s)"],
    ["session(3s)"],
    ["2s", "all"],
]
KINDS = ["after_close", "periodic", "on_update", "after_count", "after_key_expire"]
MEASURES = {
    "n": aggr.count(),
    "total": aggr.sum("i"),
    "first": aggr.first("i"),
    "last": aggr.last("i"),
    "all_of": aggr.collect("i"),
    "top": aggr.max("i", where="i > 20"),
}


def results(rows: list[dict]) -> dict:
    by_time = [row["i"] for row in sorted(rows, key=lambda row: row["ts"])]
    return {
        "n": len(rows),
        "total": sum(by_time) if rows else None,
        "first": by_time[0] if rows else None,
        "last": by_time[-1] if rows else None,
        "all_of": by_time,
        "top": max((i for i in by_time if i > 20), default=None),
    }


def policies(draws: random.Random, kind: str, finest: str) -> tuple[str, str, dict]:
    """Draw an emit policy and a late one, as text, and as plain values for the evaluator."""
    settings: dict = {"kind": kind, "delay": 0 if kind == "after_key_expire" else draws.choice([0, 0, 3])}
    words = [f"delay={settings['delay']}s"] if settings["delay"] else []
    if kind == "after_key_expire":
        settings |= {"timeout": draws.choice([2, 5]), "clock": draws.choice(["arrival", "event"])}
        words = [f"{settings['timeout']}s", f"clock={settings['clock']}", *words]
        if draws.random() < 0.5:
            settings |= {"maxspan": 4, "only": draws.random() < 0.5}
            words += ["maxspan=4s", f"only={str(settings['only']).lower()}"]
    else:
        if kind == "periodic":
            settings |= {"every": draws.choice([1, 4]), "repeat": draws.random() < 0.5}
            words = [f"{settings['every']}s", f"repeat={str(settings['repeat']).lower()}", *words]
        if kind == "on_update" and draws.random() < 0.5:
            settings["batch"] = 3
            words.append("batch=3s")
        if kind in ("periodic", "on_update") and draws.random() < 0.5:
            settings["clock"] = "event"
            words.append("clock=event")
        if kind == "after_count":
            settings["rows"] = draws.choice([1, 3])
            words = [str(settings["rows"]), *words]
        settings["mode"] = draws.choice(["accumulating", "discarding", "changelog"])
        words.append(f"mode={settings['mode']}")
        if draws.random() < 0.3:
            settings["latest"] = True
            words.append("latest")
        if draws.random() < 0.3:
            settings["timeout"] = 4
            words.append("timeout=4s")
    if draws.random() < 0.3:
        settings["having"] = lambda row: row["n"] % 3 != 0
        words.append("having='n % 3 <> 0'")
    seconds = ("delay", "timeout", "every", "batch", "maxspan")
    settings |= {name: settings[name] * SECOND for name in seconds if name in settings}
    lateness = draws.choice([0, 0, 5, None])
    late = "true_window" if lateness is None else f"drop({lateness}s)"
    settings["lateness"] = lateness if lateness is None else lateness * SECOND
    if draws.random() < 0.35 and not finest.startswith(("hopping", "session", "all")):
        settings |= {"buffer": draws.choice([0, 1, 3]), "older": draws.choice(["oldest", "drop"])}
        late = f"buffer({settings['buffer']}, older={settings['older']})"
    return f"{kind}({', '.join(words)})", late, settings


def events(draws: random.Random) -> list[dict]:
    length, disorder = draws.choice([15, 90]), draws.choice([0, 1, 8])
    times = sorted(draws.uniform(0, length) for _ in range(draws.randint(1, 50)))
    times = [round((at + draws.gauss(0, 1) * disorder) * SECOND) for at in times]
    return [{"ts": at, "k": draws.choice(["a", None, "b"]), "i": i} for i, at in enumerate(dict.fromkeys(times))]


def table(rows: list[dict]) -> pa.Table:
    schema = pa.schema([("ts", pa.timestamp("us", "UTC")), ("k", pa.string()), ("i", pa.int64())])
    return pa.Table.from_pylist(rows, schema=schema)


def plain_rows(windows: OpenWindows, emitted: pa.Table) -> list[dict]:
    rows_of_windows = []
    for row in windows.results(emitted).to_pylist():
        bounds = [row.pop(name) for name in ("window_start", "window_end")]
        row["start"], row["end"] = (
            forever if at is None else round(at.timestamp() * SECOND)
            for at, forever in zip(bounds, (-FOREVER, FOREVER), strict=True)
        )
        if "span" in row:
            row["span"] = round(row["span"].total_seconds() * SECOND)
        rows_of_windows.append(row)
    return rows_of_windows


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_emission_and_count_is_that_of_the_evaluator(kind):
    for number in range(CASES):
        one_stream(random.Random(f"{SEED} {kind} {number}"), kind, f"TILTFRAME_SEED={SEED} {kind} {number}")


def one_stream(draws: random.Random, kind: str, case: str) -> None:
    names = ["all"] if kind == "after_key_expire" else draws.choice(FRAMES)
    emit, late, settings = policies(draws, kind, names[0])
    case = f"{case}: {names} {emit} {late}"
    windows = OpenWindows(TiltFrame(names, "ts", MEASURES, ["k"]), emit, late)
    naive = NaiveStream([LEVELS[name] for name in names], results, **settings)
    rows, at, now, lag = events(draws), 0, 0, draws.randrange(5) * SECOND
    watermarks = draws.random() < (0.3 if "buffer" in settings else 1)
    watermark = draws.choice([None, 5 * SECOND]) if watermarks else None
    if draws.random() < 0.5:  # the time may be told before the first rows
        compare(case, windows, naive, watermark, draws.choice([None, 0]))
    while at < len(rows):
        batch = rows[at : at + draws.randint(1, 12)]
        at += len(batch)
        if draws.random() < 0.5:
            cut = draws.randint(0, len(batch))
            dropped = [row for part in (batch[:cut], batch[cut:]) for row in windows.add_rows(table(part)).to_pylist()]
            assert [row["i"] for row in dropped] == [row["i"] for row in naive.add(batch)], case
        else:
            parts = [reduce_rows(table(part), windows.partial_frame) for part in (batch[:4], batch[4:])]
            windows.add(pa.concat_tables(parts))
            naive.add_at_once(batch)
        now += draws.randint(0, 3 * SECOND)
        if watermarks:
            watermark = max(row["ts"] for row in rows[:at]) - lag
        compare(case, windows, naive, watermark, draws.choice([None, now, now]))
        if draws.random() < 0.2:
            windows = OpenWindows.from_ipc(windows.to_ipc())
    assert plain_rows(windows, windows.close()) == naive.close(), case


def compare(case: str, windows: OpenWindows, naive: NaiveStream, watermark: int | None, now: int | None) -> None:
    actual, expected = plain_rows(windows, windows.advance(watermark, now)), naive.advance(watermark, now)
    assert actual == expected, case
    progress = windows.progress
    counts = (progress.late_rows, progress.partly_late_rows, progress.moved_rows)
    assert counts == (naive.late, naive.partly_late, naive.moved), case
    if windows._levels:
        counts = [(name, progress.open_windows[name], progress.kept_windows[name]) for name in progress.open_windows]
        assert counts == list(naive.count_windows()), case


def stream(levels: list[str], *policies: str) -> OpenWindows:
    return OpenWindows(TiltFrame(levels, "ts", MEASURES, ["k"]), *policies)


def rows(*times_and_keys: tuple[int, str]) -> pa.Table:
    return table([{"ts": second * SECOND, "k": key, "i": i} for i, (second, key) in enumerate(times_and_keys)])


@pytest.mark.long
@pytest.mark.parametrize("level", ["10s", "session(3s)"])
def test_rows_behind_a_watermark_that_was_told_before_the_first_are_late(level):
    windows = stream([level])
    windows.advance(watermark=20 * SECOND)
    assert windows.add_rows(rows((3, "a"), (19, "a"), (21, "a"))).column("i").to_pylist() == (
        [0, 1] if level == "10s" else [0]
    )
    assert [row["n"] for row in plain_rows(windows, windows.close())] == [1 if level == "10s" else 2]


def test_rows_that_a_buffer_moves_keep_their_times():
    moved_rows = rows((50, "a"), (53, "a"), (51, "a"))  # the last goes to the second 53, and comes before
    windows, reduced = stream(["1s"], "after_close", "buffer(0)"), stream(["1s"], "after_close", "buffer(0)")
    windows.add_rows(moved_rows)
    for at in range(3):
        reduced.add(reduce_rows(moved_rows.slice(at, 1), reduced.partial_frame))
    for open_windows in (windows, reduced):
        assert [row["all_of"] for row in plain_rows(open_windows, open_windows.close())] == [[0], [2, 1]]


def test_a_window_that_is_repeated_has_no_rows_since():
    windows = stream(["1m"], "periodic(1s, repeat, mode=discarding)")
    windows.advance(now=0)
    windows.add_rows(rows((1, "a")))
    plain_rows(windows, windows.advance(now=SECOND))
    (row,) = plain_rows(windows, windows.advance(now=2 * SECOND))
    assert (row["n"], row["total"], row["all_of"], row["revision"]) == (0, None, [], 1)


def test_a_hopping_window_of_a_buffer_is_open_once_a_finer_one_has_closed_in_it():
    windows = stream(["2s", "hopping(10s, 4s)"], "after_close", "buffer(0)")
    counts = []
    for second in (20, 21, 22):
        windows.add_rows(rows((second, "a")))
        windows.advance()
        counts.append(windows.progress.open_windows["hopping(10s, 4s)"])
    assert counts == [0, 0, 3]  # [12, 22) has closed, behind a second that nothing has closed in


def test_retractions_come_in_the_order_of_windows():
    windows = stream(["session(3s)"], "on_update(mode=changelog)", "drop(1h)")
    for second in (40, 10, 25):
        windows.add_rows(rows((second, "b"), (second, "a")))
        windows.advance()
    windows.add_rows(rows(*((second, key) for second in (41, 26, 11) for key in "ba")))
    changes = [(row["change"], row["start"] // SECOND, row["k"]) for row in plain_rows(windows, windows.advance())]
    assert changes == [(change, start, key) for change in (-1, 1) for start in (10, 25, 40) for key in "ab"]
