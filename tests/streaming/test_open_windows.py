"""Open windows, compared with the results of other engines step by step: `streams.json` and `siddhi.json`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import aggr
from aggr.arrow.bit_equality import same_bits
from tests.conftest import conformance
from tiltframe import TiltFrame, rollup
from tiltframe.level_chain import climb
from tiltframe.merged_windows import merge_panes
from tiltframe.reducing import reduce_rows
from tiltframe.streaming import Buffer, Drop, OpenWindows, TrueWindow, read_emit, window_table

SCALE = 1_000_000  # a unit of a case, whatever it is, is a second: windows are of whole seconds
END_OF_TIME = 2**62 - 1


def frame_of(case: dict) -> TiltFrame:
    window = case["window"]
    offset = f", offset={window['offset']}s" if window.get("offset") else ""
    level = {
        "tumbling": "tumbling({size}s" + offset + ")",
        "hopping": "hopping({size}s, {hop}s" + offset + ")",
        "session": "session({gap}s)",
        "whole": "all",
    }[window["kind"]].format(**window)
    return TiltFrame([level], "time", {"count": aggr.count(), "sum": aggr.sum("value")}, ["key"])


def policies_of(case: dict) -> tuple:
    begun = {"every_n": "after_count(rows={n}, ", "periodic": "periodic(every={period}s, "}
    text = begun.get(case["emit"], case["emit"] + "(").format(**case)
    late = TrueWindow() if case["late"] == "true_window" else Drop(f"{case['lateness']}s")
    return read_emit(f"{text}mode={case['mode']}, delay={case['delay']}s)"), late


def played(case: dict, add) -> Iterator[tuple[str, list, list]]:
    """Feed the steps of a case; yield what is expected and what has come since, for rows emitted and for late ones."""
    windows = OpenWindows(frame_of(case), *policies_of(case))
    watermark, now, emitted, late = None, 0, [], []
    windows.advance(now=0)
    for step in case["steps"]:
        ((kind, value),) = step.items()
        if kind == "input":
            late += add(windows, rows_of(value))
        elif kind == "watermark":
            watermark = value * SCALE
        elif kind == "time":
            now = value * SCALE
        elif kind == "restart":
            windows = OpenWindows.from_ipc(windows.to_ipc())
        elif kind == "expect":
            yield "emitted", value, emitted
            emitted = []
        else:
            yield "late", value, late
            late = []
        if kind in ("input", "watermark", "time"):
            emitted += windows.results(windows.advance(watermark, now)).to_pylist() if windows._levels else []
    yield "emitted", [], emitted


def rows_of(records: list[dict]) -> pa.Table:
    times = pa.array([row["time"] * SCALE for row in records], pa.timestamp("us", "UTC"))
    values = pa.array([row["value"] for row in records], pa.float64())
    return pa.table({"key": pa.array([row["key"] for row in records], pa.string()), "time": times, "value": values})


def actual_row(row: dict) -> tuple:
    start, end = (None if row[n] is None else row[n].timestamp() * 1e6 / SCALE for n in ("window_start", "window_end"))
    change = row.get("change", 1)
    return (
        row["key"],
        start,
        end,
        row["count"],
        pytest.approx(row["sum"], abs=1e-9),
        row["reason"] == "late",
        change < 0,
    )


def expected_row(row: dict) -> tuple:
    return tuple(row[n] for n in ("key", "start", "end", "count", "sum", "late", "retraction"))


def by_rows(windows: OpenWindows, rows: pa.Table) -> list[dict]:
    return windows.add_rows(rows).to_pylist()


def compare(case: dict, what: str, expected: list, got: list) -> None:
    if what == "late":
        got = [{**row, "time": row["time"].timestamp() * 1e6 / SCALE} for row in got]
        assert sorted(map(str_of, got)) == sorted(map(str_of, expected))
        return
    left = [actual_row(row) for row in got]
    assert len(left) == len(expected), (left, expected)
    for row in expected:
        assert expected_row(row) in left
        left.remove(expected_row(row))
    places = [(row["key"], row.get("change", 1)) for row in got]
    for key in {key for key, _ in places}:
        changes = [change for k, change in places if k == key]
        assert changes == sorted(changes) or case["mode"] != "changelog" or len(changes) > 2


def str_of(row: dict) -> str:
    return f"{row['key']} {row['time']:g} {row['value']:g}"


@conformance("streams.json")
def test_streams(case):
    for what, expected, got in played(case, by_rows):
        compare(case, what, expected, got)


SIDDHI = ["second", "minute", "hour", "day", "month", "year"]


def siddhi_policy(case: dict):
    late = case["late"]
    return TrueWindow() if late["policy"] == "true_window" else Buffer(late["windows"], late["older"])


def latest(windows: OpenWindows, emitted: list[pa.Table]) -> pa.Table:
    """Read the last emission of each window."""
    table = windows.results(pa.concat_tables(emitted))
    rows = {(r["level"], r["window_start"], *(r[k] for k in windows.frame.keys)): r for r in table.to_pylist()}
    return list(rows.values())


@pytest.mark.slow
@conformance("siddhi.json")
@pytest.mark.parametrize("batch", [1, 4, 1000])
def test_siddhi(case, batch):
    """Each row expected is there, to the last bit, however rows are cut into batches."""
    measures = {name: aggr.caller(f)(*[column] * bool(column)) for name, (f, column) in case["measures"].items()}
    frame = TiltFrame(SIDDHI, "ts_ms", measures, case["keys"], case["timezone"])
    rows, emitted = pa.Table.from_pylist(case["rows"]), []
    windows = OpenWindows(frame, late=siddhi_policy(case))
    for start in range(0, len(rows), batch):
        windows.add_rows(rows.slice(start, batch))
        windows = OpenWindows.from_ipc(windows.to_ipc())
        newest = int(1000 * max(rows.column("ts_ms").slice(0, start + batch).to_pylist()))
        emitted.append(windows.advance(None if isinstance(windows.late, Buffer) else newest))
    emitted.append(windows.advance(END_OF_TIME))
    got = latest(windows, emitted)
    for row in got:
        row["window_start_ms"] = int(row["window_start"].timestamp() * 1000)
    for name, expected in case["expected"].items():
        level = frame.level(name).name
        of_level = [row for row in got if row["level"] == level]
        for want in expected:
            assert [row for row in of_level if all(row[k] == v for k, v in want.items())], (want, of_level)
        assert len({tuple(want.items()) for want in expected}) <= len(of_level)


SECONDS = {"n": aggr.count()}


def seconds(*times: int) -> pa.Table:
    return pa.table({"ts": pa.array([t * SCALE for t in times], pa.timestamp("us", "UTC"))})


@pytest.mark.parametrize(
    ("older", "counts", "dropped"),
    [("oldest", {50: 1, 51: 3, 52: 1, 53: 2, 54: 1}, []), ("drop", {50: 1, 51: 2, 52: 1, 53: 2, 54: 1}, [50])],
)
@pytest.mark.parametrize("batch", [1, 3, 8])
def test_a_buffer_of_three(older, counts, dropped, batch):
    """Siddhi's documents: the last of these events goes to 51, or is dropped."""
    windows = OpenWindows(TiltFrame(["1s"], "ts", SECONDS), late=Buffer(3, older))
    times, emitted, late = [50, 51, 52, 53, 51, 53, 54, 50], [], []
    for start in range(0, len(times), batch):
        late += windows.add_rows(seconds(*times[start : start + batch])).column("ts").to_pylist()
        emitted.append(windows.advance())
    emitted.append(windows.advance(END_OF_TIME))
    got = windows.results(pa.concat_tables(emitted)).to_pylist()
    assert {int(row["window_start"].timestamp()): row["n"] for row in got} == counts
    assert len(got) == len(counts)
    assert [int(t.timestamp()) for t in late] == dropped
    assert windows.progress.late_rows == len(dropped)
    assert windows.progress.moved_rows == (older == "oldest")


def test_a_watermark_moves_a_buffer_like_an_event():
    """Siddhi's @BufferSize(3) with the newest time as the watermark: rows of the buffer's windows still count."""
    windows = OpenWindows(TiltFrame(["1s", "1m"], "ts", SECONDS), late=Buffer(3))
    emitted = []
    for time in (50, 51, 52, 53, 51, 53, 50):
        assert windows.add_rows(seconds(time)).num_rows == 0
        emitted.append(windows.advance(max(time, 53) * SCALE))
    assert [table.num_rows for table in emitted] == [0] * 7
    emitted.append(windows.advance(57 * SCALE))  # without an event: 50 to 53 leave the buffer
    assert windows.add_rows(seconds(52)).num_rows == 0  # counts in 54, the oldest window of the buffer
    emitted.append(windows.advance(END_OF_TIME))
    got = windows.results(pa.concat_tables(emitted)).to_pylist()
    by_second = {int(row["window_start"].timestamp()): row["n"] for row in got if row["level"] == "1s"}
    assert by_second == {50: 2, 51: 2, 52: 1, 53: 2, 54: 1}
    assert [row["n"] for row in got if row["level"] == "1m"] == [8]
    assert (windows.progress.late_rows, windows.progress.moved_rows) == (0, 1)


@pytest.mark.parametrize("batch", [1, 6])
def test_windows_that_close_one_another(batch):
    """Siddhi's documents: a window closes when one of the level below closes that lies behind it."""
    six = 6 * 3600
    times = [six - 2, six - 2, six - 1, six, six + 1, six + 2]
    windows = OpenWindows(TiltFrame(["1s", "1m", "1h"], "ts", SECONDS), late=Buffer(0))
    emitted = []
    for start in range(0, len(times), batch):
        windows.add_rows(seconds(*times[start : start + batch]))
        emitted += windows.results(windows.advance()).to_pylist()
    counts = [(r["level"], int(r["window_start"].timestamp()) - six, r["n"]) for r in emitted]
    assert sorted(counts) == [("1m", -60, 3), ("1s", -2, 2), ("1s", -1, 1), ("1s", 0, 1), ("1s", 1, 1)]
    assert windows.progress.open_windows == {"1s": 1, "1m": 1, "1h": 1}  # nothing has come to the sixth hour yet
    again = OpenWindows.from_ipc(windows.to_ipc())
    again.add_rows(seconds(six + 60, six + 61))
    counts = again.results(again.advance()).to_pylist()
    assert [(r["level"], r["n"]) for r in counts] == [("1s", 1), ("1s", 1), ("1m", 3), ("1h", 3)]
    assert again.progress.open_windows == {"1s": 1, "1m": 1, "1h": 1}


def test_an_alert_before_its_window_closes():
    windows = OpenWindows(TiltFrame(["1h"], "ts", {"n": aggr.count()}), "periodic(1s, having='n > 300')")
    windows.advance(now=0)
    alerts = []
    for now in range(1, 9):
        windows.add_rows(seconds(*[now] * 100))
        alerts += [
            (now, r["n"], r["partial"], r["reason"])
            for r in windows.results(windows.advance(now * SCALE, now * SCALE)).to_pylist()
        ]
    assert alerts == [(now, 100 * now, True, "period") for now in range(4, 9)]
    assert windows.results(windows.advance(3600 * SCALE)).num_rows == 0  # nothing has changed since


@pytest.mark.parametrize("late", [Buffer(0), "drop"])
@pytest.mark.parametrize("batch", [1, 6])
def test_windows_go_on_from_what_is_committed(late, batch):
    """Siddhi's documents: of events that come again only the last is processed, and minute and hour are whole."""
    six = 6 * 3600
    times = [six - 2, six - 2, six - 1, six, six + 1, six + 2]
    frame = TiltFrame(["1s", "1m", "1h"], "ts", SECONDS)
    committed = rollup(seconds(*times[:-1]), frame)
    committed = committed.filter(pc.equal(committed.column("level"), "1s"))
    windows = OpenWindows.from_committed(committed, (six + 2) * SCALE, frame, late=late)
    for start in range(0, 6, batch):
        windows.add_rows(seconds(*times[start : start + batch]))
    assert (windows.progress.rows, windows.progress.committed_rows, windows.progress.late_rows) == (6, 5, 0)
    by_buffer = isinstance(windows.late, Buffer)
    assert windows.progress.open_windows == {"1s": 1, "1m": 1, "1h": 1}
    windows.add(reduce_rows(seconds(six + 1, six + 61), windows.partial_frame))
    assert windows.progress.committed_rows == 6
    emitted = [windows.advance(None if by_buffer else (six + 61) * SCALE), windows.advance(END_OF_TIME)]
    got = {(r["level"], int(r["window_start"].timestamp()) - six): r["n"] for r in latest(windows, emitted)}
    hours = {("1h", -3600): 3} if by_buffer else {}  # by a watermark that hour was over, and emitted
    assert got == {("1s", 2): 1, ("1s", 61): 1, ("1m", 0): 3, ("1m", 60): 1, ("1h", 0): 4, **hours}


def states_of(rows: int, seed: int) -> tuple[TiltFrame, pa.Table]:
    """Make states of three keys in 10-second windows, to be merged on two levels."""
    rng = np.random.default_rng(seed)
    measures = {
        "n": aggr.count(),
        "total": aggr.sum("x"),
        "d": aggr.dds("x", [0.5]),
        "h": aggr.hdr("x", [0.5], unit=0.1),
    }
    frame = TiltFrame(["10s", "1m"], "ts", measures, ["k"])
    times = pa.array(rng.integers(0, 120_000, rows))
    table = pa.table({"ts": times, "k": rng.integers(0, 3, rows), "x": rng.lognormal(3, 2, rows)})
    return frame, reduce_rows(table, OpenWindows(frame).partial_frame)


@pytest.mark.parametrize("together", [0, 1 << 13])
def test_levels_are_merged_together_or_one_by_one(together, monkeypatch):
    monkeypatch.setattr(window_table, "_FEW_ON_ALL_LEVELS", together)
    parts = [states_of(400, seed) for seed in range(3)]
    frame, windows = parts[0][0], OpenWindows(parts[0][0])
    for _, states in parts:
        windows.add(states)
    emitted = windows.advance(200_000_000)
    naive = merge_panes(pa.concat_tables([states for _, states in parts]), windows.partial_frame)
    for at, level in enumerate(frame.levels):
        rows_of_level = emitted.filter(pc.equal(emitted.column("level"), level.name))
        (_, expected) = list(climb(naive, windows.partial_frame))[at]
        assert rows_of_level.num_rows == expected.num_rows > 3
        for name in ("n", "total", "d", "h"):
            column = next(c.name for c in frame.states if c.name.startswith(name))
            assert same_bits(rows_of_level.column(column), expected.column(column))


def test_damaged_states_are_refused_before_anything_changes():
    frame, states = states_of(50, 1)
    windows = OpenWindows(frame)
    windows.add(states)
    before = windows.to_ipc()
    for column in frame.states:
        bad = states.column(column.name).combine_chunks()
        version = bad.type.get_field_index("version")
        fields = bad.flatten()
        fields[version] = pa.array([0] * len(bad), bad.type.field(version).type)
        bad = pa.StructArray.from_arrays(fields, fields=list(bad.type))
        damaged = states.set_column(states.column_names.index(column.name), column.name, bad)
        with pytest.raises(ValueError, match="damaged state"):
            windows.add(damaged)
        assert windows.to_ipc() == before
        finest = damaged.append_column("level", pa.array(["10s"] * len(damaged)))
        for levels in (["10s"], ["10s", "1m"]):
            same = TiltFrame(levels, "ts", frame.measures, frame.keys)
            with pytest.raises(ValueError, match="damaged state"):
                OpenWindows.from_committed(finest, 60_000_000, same)


def test_a_saved_stream_of_what_is_not_installed_says_so():
    @dataclass(frozen=True)
    class Smallest(aggr.Min):
        name = "least_of_mine"

    aggr.register(Smallest)
    windows = OpenWindows(TiltFrame(["1m"], "ts", {"low": aggr.caller("least_of_mine")("x")}))
    windows.add_rows(pa.table({"ts": [0], "x": [1]}))
    data, saved = windows.to_ipc(), windows.save()
    elsewhere = {name: replace(saved, description={**saved.description, name: "mine(5)"}) for name in ("emit", "late")}
    for name, state in elsewhere.items():
        with pytest.raises(ValueError, match=rf"saved windows are intact, but their {name} policy .* here: .*mine"):
            OpenWindows.from_ipc(state)
    aggr.unregister("least_of_mine")
    message = (
        "saved windows are intact, but their frame .* here: the measure 'low': there is no function 'least_of_mine'"
    )
    with pytest.raises(ValueError, match=message):
        OpenWindows.from_ipc(data)
    aggr.register(Smallest)
    try:
        goes_on = OpenWindows.from_ipc(data)
    finally:
        aggr.unregister("least_of_mine")
    assert goes_on.results(goes_on.close())["low"].to_pylist() == [1]
