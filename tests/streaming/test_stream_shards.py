"""Shards of open windows, called as by Spark but without Spark, by PySpark's tester for stateful processors."""

from __future__ import annotations

import itertools
import pickle
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import aggr
from tests.conftest import conformance
from tests.streaming.test_open_windows import SCALE, compare, frame_of, policies_of, rows_of, siddhi_policy
from tests.streaming.test_stream_laws import FRAMES, assert_same, by_window, events, standing
from tests.streaming.test_stream_laws import frame_of as law_frame
from tiltframe import TiltFrame, rollup
from tiltframe.streaming import read_emit, read_late

pytest.importorskip("pyspark.sql.streaming.tws_tester", reason="this PySpark has no TwsTester")
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import TimerValues
from pyspark.sql.streaming.tws_tester import TwsTester

from spark_udaf.plan.conservation import NotConserved
from spark_udaf.plan.shard_messages import Content
from spark_udaf.streaming.shard_job import EMITTED_MESSAGE_COLUMN, WATERMARK, ShardJob, read_metrics
from spark_udaf.streaming.shards import EVENT_TIME, PROCESSING_TIME, ShardWindows

START = 10**12  # milliseconds, of a clock that reads 0


class BothClocks(TwsTester):
    """A tester that tells both clocks, as Spark does."""

    def _getTimerValues(self) -> TimerValues:
        return TimerValues(self._currentProcessingTimeMs, self._currentWatermarkMs)


class Shards:
    """A stream in shards, with what Spark does for it: the shuffle, the timers, the state, the restart."""

    def __init__(self, schema: pa.Schema, frame: TiltFrame, emit, late, shards: int = 2, **bounds) -> None:
        emit, late = read_emit(emit), read_late(late)
        settings = {"max_keys": None, "beyond": "error", "emits_dropped": False, "returns_states": False, **bounds}
        self.job = ShardJob(schema, frame, emit, late, shards=shards, **settings)
        self.timers = PROCESSING_TIME if emit.emits_without_rows else EVENT_TIME
        self.tester, self.numbers = self._tester(), {}
        self.tester._currentProcessingTimeMs = START

    def _tester(self) -> BothClocks:
        processor = pickle.loads(pickle.dumps(ShardWindows(self.job, self.timers)))
        return BothClocks(processor, timeMode=self.timers, eventTimeExtractor=lambda row: 2**62)

    def restart(self, job: ShardJob | None = None) -> None:
        """Go on in another process: with the state alone."""
        self.job, before = job or self.job, self.tester
        self.tester = self._tester()
        for kind in ("value_states", "map_states"):
            for name, state in getattr(before.handle, kind).items():
                getattr(self.tester.handle, kind)[name].state = pickle.loads(pickle.dumps(state.state))
        self.tester.handle._timers._key_to_timers = before.handle._timers._key_to_timers
        self.tester._currentProcessingTimeMs = before._currentProcessingTimeMs
        self.tester._currentWatermarkMs = before._currentWatermarkMs

    def batch(self, rows: pa.Table | None = None, partitions: int = 1) -> pa.Table:
        """Run a batch: rows first, then the timers that are due."""
        self.tester._currentProcessingTimeMs += 1
        emitted: list[Row] = []
        by_shard: dict[int, list[Row]] = {}
        cuts = [] if rows is None else np.linspace(0, len(rows), partitions + 1).astype(int).tolist()
        for number, (start, end) in enumerate(itertools.pairwise(cuts)):
            part = rows.slice(start, end - start)
            batches = part.select(list(self.job.columns)).to_batches()
            for message in self.job.send_messages(iter(batches), number):
                for row in message.to_pylist():
                    by_shard.setdefault(row["shard"], []).append(Row(**row))
        for shard, messages in by_shard.items():
            emitted += self.tester.test(shard, messages)
        emitted += self.tester._handleExpiredTimers()
        numbers = [row.asDict() for row in emitted if EMITTED_MESSAGE_COLUMN not in row]
        for name in numbers[0] if numbers else ():
            values = [metrics[name] for metrics in numbers if metrics[name] is not None]
            self.numbers[name] = max(values, default=None) if name == WATERMARK else sum(values)
        assert len(numbers) in (0, self.job.shards), "every shard is told the time once in a batch, or none is"
        messages = [row[EMITTED_MESSAGE_COLUMN] for row in emitted if EMITTED_MESSAGE_COLUMN in row]
        return pa.concat_tables([self.job.output_schema.empty_table(), *map(self.job.read_emitted, messages)])

    def tell(self, watermark: int | None = None, now: int | None = None) -> None:
        """Set the watermark and the clock, in microseconds, for the batches from now on."""
        if watermark is not None:
            self.tester._currentWatermarkMs = max(watermark // 1000, 0)
        if now is not None:
            self.tester._currentProcessingTimeMs = max(START + now // 1000, self.tester._currentProcessingTimeMs)


@pytest.mark.slow
@conformance("streams.json")
def test_cases(case):
    """Other engines' cases, by shards that know nothing of each other; restarts go on from the state alone."""
    begin = 10**9 * SCALE if case["window"]["kind"] in ("session", "whole") else begin_of(case["window"])
    schema = rows_of([]).schema
    stream = Shards(schema, frame_of(case), *policies_of(case), shards=3)
    emitted, late = [], 0
    for step in case["steps"]:
        ((kind, value),) = step.items()
        rows = None
        if kind == "input":
            rows = shifted(rows_of(value), begin)
        elif kind == "watermark":
            stream.tell(watermark=value * SCALE + begin)
        elif kind == "time":
            stream.tell(now=value * SCALE)
        elif kind == "restart":
            stream.restart()
        elif kind == "expect":
            compare(case, "emitted", value, emitted)
            emitted = []
        else:
            late += len(value)
            assert stream.numbers["late_rows"] == late
        if kind in ("input", "watermark", "time"):
            emitted += back(stream.batch(rows, partitions=2), begin).to_pylist()
    assert not emitted


def begin_of(window: dict) -> int:
    """Find a time after 1970, which is as far in its window as the origin is."""
    return 10**6 * int(np.lcm(window["size"], window.get("hop", 1))) * SCALE


def shifted(rows: pa.Table, micros: int) -> pa.Table:
    at = rows.column_names.index("time")
    return rows.set_column(at, "time", moved(rows.column("time"), micros))


def back(table: pa.Table, micros: int) -> pa.Table:
    for name in ("window_start", "window_end"):
        table = table.set_column(table.column_names.index(name), name, moved(table.column(name), -micros))
    return table


def moved(column: pa.ChunkedArray, micros: int) -> pa.Array:
    whole_micros = column.cast(pa.int64()).to_pylist()
    return pa.array([None if at is None else at + micros for at in whole_micros], pa.timestamp("us", "UTC"))


@pytest.mark.slow
@pytest.mark.parametrize(("levels", "shards"), [(FRAMES[0], 1), *zip(FRAMES, [5, 2, 2, 3, 2], strict=True)])
def test_stream_is_batch(levels, shards):
    """Bit for bit, whatever the partitions and shards, rows that travel and restarts included."""
    rng, frame = np.random.default_rng(shards), law_frame(levels)
    rows = events(rng, 300)
    rows = rows.set_column(0, "ts", moved(rows.column("ts"), 10**15 - 10**15 % (20 * SCALE)))
    emit = "on_update(mode=changelog)" if levels[0].startswith("session") else "on_update"
    stream = Shards(rows.schema, frame, emit, "true_window", shards=shards, returns_states=True)
    emitted, at = [], 0
    while at < len(rows):
        n = int(rng.integers(1, 80))
        emitted.append(stream.batch(rows.slice(at, n), partitions=int(rng.integers(1, 4))))
        at += n
        stream.tell(watermark=10**15 + at * 1000)
        if rng.random() < 0.5:
            emitted.append(stream.batch())
        if rng.random() < 0.3:
            stream.restart()
    assert_same(standing(frame, pa.concat_tables(emitted), stream.job.emit.mode), by_window(rollup(rows, frame)))
    progress = read_metrics(stream.numbers)
    assert (progress.rows, progress.late_rows) == (len(rows), 0)


@pytest.mark.slow
@conformance("siddhi.json", lambda case: case["late"]["policy"] == "buffer")
def test_buffers(case):
    """Each row is a batch: a buffer follows the events of all shards, so late ones go where one shard puts them."""
    measures = {name: aggr.caller(f)(*[column] * bool(column)) for name, (f, column) in case["measures"].items()}
    frame = TiltFrame([case["finest"]], "ts_ms", measures, case["keys"], case["timezone"])
    rows = pa.Table.from_pylist(case["rows"])
    stream = Shards(rows.schema, frame, "after_close", siddhi_policy(case), shards=3 if frame.keys else 1)
    emitted = [stream.batch(rows.slice(at, 1)) for at in range(len(rows))]
    stream.tell(watermark=2**62)
    emitted.append(stream.batch())
    got = [
        {**r, "window_start_ms": r["window_start"].timestamp() * 1000} for r in pa.concat_tables(emitted).to_pylist()
    ]
    for want in case["expected"].get(case["finest"], []):
        assert [row for row in got if all(row[k] == v for k, v in want.items())], (want, got)


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("late", ["drop(1s)", "buffer(2, older=drop)"])
@pytest.mark.parametrize("mode", ["discarding", "changelog"])
def test_what_is_dropped_is_emitted_where_that_is_asked_for(late, shards, mode):
    """The sums of what is dropped, and of what is kept, are those of all rows, window by window."""
    rng, begin = np.random.default_rng(shards), 10**9
    frame = TiltFrame(["10s"], "time", {"n": aggr.count(), "x": aggr.sum("value")}, ["key"])
    stream = Shards(rows_of_keys().schema, frame, f"on_update(mode={mode})", late, shards=shards, emits_dropped=True)
    emitted, expected, newest = [], {}, 0
    for number in range(30):
        times = [number * 5 - min(number * 5, int(rng.exponential(20))) for _ in range(12)]
        rows = [{"key": str(rng.choice(["a", "b", "c"])), "time": t, "value": float(t % 7)} for t in times]
        for row in rows:
            window = begin + row["time"] // 10 * 10, row["key"]
            n, x = expected.get(window, (0, 0.0))
            expected[window] = n + 1, x + row["value"]
        emitted += stream.batch(shifted(rows_of(rows), begin * SCALE), partitions=2).to_pylist()
        newest = max(newest, *times)
        stream.tell(watermark=(begin + newest) * SCALE)
    emitted += stream.batch().to_pylist()
    dropped = [row for row in emitted if row["reason"] == "dropped"]
    assert stream.numbers["late_rows"] == sum(row["n"] for row in dropped) > 10
    assert {(row["revision"], row["partial"], row.get("change", 1)) for row in dropped} == {(0, False, 1)}
    actual = {}
    for row in emitted:
        window, sign = (int(row["window_start"].timestamp()), row["key"]), row.get("change", 1)
        n, x = actual.get(window, (0, 0.0))
        actual[window] = n + sign * row["n"], x + sign * row["x"]
    assert actual == expected


KEYED = TiltFrame(["10s"], "time", {"count": aggr.count()}, ["key"])


def rows_of_keys(*keys: str, at: int = 1) -> pa.Table:
    rows = rows_of([{"key": key, "time": at, "value": 1.0} for key in keys])
    return shifted(rows, 10**15)


@pytest.mark.slow
def test_a_restart_takes_more_measures_and_refuses_other_streams():
    stream = Shards(rows_of_keys().schema, KEYED, "after_close", "drop")
    stream.batch(rows_of_keys("a", "b", "c"))
    more = TiltFrame(["10s"], "time", {**KEYED.measures, "most": aggr.max("value")}, ["key"])
    stream.restart(replace(stream.job, frame=more))
    stream.batch(rows_of_keys("a", "d", at=2))
    stream.tell(watermark=10**15 + 10 * SCALE)
    rows = stream.batch().select(["key", "count", "most"]).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == [
        ("a", 2, None),
        ("b", 1, None),
        ("c", 1, None),
        ("d", 1, 1.0),
    ]
    other_jobs = {
        "has 2 shards of keys, and this stream has 5; pass shards=2": replace(stream.job, shards=5),
        "measure 'most' is max": replace(
            stream.job, frame=more.with_results({**more.results, "most": aggr.min("value")})
        ),
        "mode accumulating, and the mode is now changelog": replace(
            stream.job, emit=read_emit("on_update(mode=changelog)")
        ),
    }
    for message, job in other_jobs.items():
        stream.restart(job)
        with pytest.raises(ValueError, match=message):
            stream.batch(rows_of_keys("a"))
        stream.restart(replace(stream.job, shards=2, frame=more, emit=read_emit("after_close")))
    stream.restart(replace(stream.job, frame=KEYED))
    stream.batch(rows_of_keys("a", at=12))
    stream.tell(watermark=10**15 + 20 * SCALE)
    rows = stream.batch()
    assert "most" not in rows.column_names
    assert rows.select(["key", "count"]).to_pylist() == [{"key": "a", "count": 1}]


def test_measures_that_change_shared_states_need_a_new_checkpoint():
    sums = KEYED.with_results({"total": aggr.sum("value")})
    stream = Shards(rows_of_keys().schema, sums, "after_close", "drop")
    stream.batch(rows_of_keys("a", "b"))
    stream.restart(replace(stream.job, frame=sums.with_measures({"var": aggr.var("value")})))
    with pytest.raises(ValueError, match=r"the states 'total' of the saved windows are sum.* or give the query a new"):
        stream.batch(rows_of_keys("a"))


@pytest.mark.parametrize("lost", ["nothing", "a message", "a count message", "a message twice", "a task twice"])
def test_what_an_engine_loses_between_tasks_and_shards_ends_a_stream(lost):
    table = pa.table({"ts": pa.array([0, 1, 2, 3]).cast(pa.timestamp("us", "UTC"))})
    frame = TiltFrame(["1m"], "ts", {"n": aggr.count()})
    stream = Shards(table.schema, frame, "after_close", "drop", shards=1)
    batches = table.to_batches()
    sent = [
        Row(**row)
        for number in range(2)
        for b in stream.job.send_messages(iter(batches), number)
        for row in b.to_pylist()
    ]
    messages = [row for row in sent if row.content == Content.STATES]
    count_messages = [row for row in sent if row.content == Content.COUNTS]
    assert (len(messages), len(count_messages)) == (2, 2)
    came = {
        "nothing": sent,
        "a message": [row for row in sent if row is not messages[1]],
        "a count message": [row for row in sent if row is not count_messages[0]],
        "a message twice": [*sent, messages[0]],
        "a task twice": [*sent, messages[0], count_messages[0]],
    }[lost]
    if lost == "nothing":
        assert [row.content for row in stream.job.checked_messages(0, came)].count(Content.STATES) == 2
        return
    with pytest.raises(NotConserved):
        stream.job.checked_messages(0, came)


def test_keys_beyond_the_bound_of_a_shard():
    stream = Shards(rows_of_keys().schema, KEYED, "on_update", "drop", shards=1, max_keys=2, beyond="drop")
    assert stream.batch(rows_of_keys("a", "b", "c")).num_rows == 2
    assert read_metrics(stream.numbers).refused_rows == 1
    stream = Shards(rows_of_keys().schema, KEYED, "on_update", "drop", shards=1, max_keys=2)
    with pytest.raises(ValueError, match="3 keys in open windows, and the limit is max_keys=2"):
        stream.batch(rows_of_keys("a", "b", "c"))


def test_an_added_measure_is_null_where_no_row_has_come_since():
    """Windows that close before the next row: all are handed on, and emitted, without a state of it."""
    chain = TiltFrame(["10s", "1m"], "time", {"count": aggr.count()}, ["key"])
    stream = Shards(rows_of_keys().schema, chain, "after_close", "drop")
    stream.batch(rows_of_keys("a", "b", "c"))
    stream.restart(replace(stream.job, frame=chain.with_measures({"most": aggr.max("value")})))
    stream.tell(watermark=10**15 + 100 * SCALE)
    rows = stream.batch().select(["level", "key", "count", "most"]).to_pylist()
    assert sorted((row["level"], row["key"], row["count"], row["most"]) for row in rows) == [
        (level, key, 1, None) for level in ("10s", "1m") for key in "abc"
    ]


SMALL = "spark_udaf.streaming.shards._SMALL_BYTES"


def test_state_is_kept_in_bounded_pieces(monkeypatch):
    monkeypatch.setattr(SMALL, 0)
    monkeypatch.setattr("spark_udaf.streaming.shards._PIECE_BYTES", 100)
    stream = Shards(rows_of_keys().schema, KEYED, "on_update", "drop", shards=1)
    stream.batch(rows_of_keys(*"abcdef"))
    ((pieces,),) = [state.state.values() for state in stream.tester.handle.map_states.values()]
    piece_count = len(pieces)
    assert piece_count > 1
    assert max(len(piece) for (piece,) in pieces.values()) <= 100
    stream.restart()
    assert stream.batch(rows_of_keys("a"))["count"].to_pylist() == [2]
    stream.tell(watermark=10**15 + 10 * SCALE)
    stream.batch()
    ((pieces,),) = [state.state.values() for state in stream.tester.handle.map_states.values()]
    assert len(pieces) < piece_count, "pieces of windows that are over are not left behind"


def test_of_levels_that_nothing_reaches_no_state_is_fetched_and_nothing_is_put(monkeypatch):
    """A batch changes the finest level; a close reaches the next one, and the last is left as it is."""
    monkeypatch.setattr(SMALL, 0)
    chain = TiltFrame(["10s", "1m", "10m"], "time", {"count": aggr.count(), "sum": aggr.sum("value")}, ["key"])
    stream = Shards(rows_of_keys().schema, chain, "after_close", "drop", shards=1)
    stream.batch(rows_of_keys("a", "b", at=21))  # 10^15 µs are 40 s into a minute, and 6 min 40 s into ten
    stream.tell(watermark=10**15 + 30 * SCALE)
    stream.batch(rows_of_keys("a", at=31))
    fetched, put = [], []

    def watched() -> None:
        pieces = stream.tester.handle.map_states["windows"]
        get, update = pieces.getValue, pieces.updateValue

        def watched_get(place: tuple[str, int]) -> object:
            fetched.append(place[0].partition("@")[0])
            return get(place)

        def watched_update(place: tuple[str, int], piece: tuple[bytes]) -> None:
            put.append(place[0].partition("@")[0])
            update(place, piece)

        monkeypatch.setattr(pieces, "getValue", watched_get)
        monkeypatch.setattr(pieces, "updateValue", watched_update)

    stream.restart()
    watched()
    stream.batch(rows_of_keys("b", at=32))
    every = {f"{level}.held.windows" for level in range(3)}
    assert sorted(set(fetched) - every) == ["0.held.states"]
    assert sorted(put) == ["0.held.states", "0.held.windows"]
    fetched.clear(), put.clear()
    stream.tell(watermark=10**15 + 40 * SCALE)
    rows = stream.batch().select(["level", "key", "count"]).to_pylist()
    assert sorted((row["level"], row["key"], row["count"]) for row in rows) == [("10s", "a", 1), ("10s", "b", 1)]
    assert sorted(set(fetched) - every) == ["0.held.states", "1.held.states"]
    assert {name.split(".")[0] for name in put} == {"0", "1"}
    stream.tell(watermark=10**15 + 3600 * SCALE)
    rows = stream.batch().select(["level", "key", "count", "sum"]).to_pylist()
    assert sorted((r["level"], r["key"], r["count"], r["sum"]) for r in rows) == [
        ("10m", "a", 2, 2.0), ("10m", "b", 2, 2.0), ("1m", "a", 2, 2.0), ("1m", "b", 2, 2.0),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("piece", [100, 1000, 4000, 5000, 6000, 8000, 1 << 22])
def test_small_blocks_are_kept_together_and_others_apart(piece, monkeypatch):
    """A window's states grow and shrink past the bound; whatever is kept where, the answers are the same."""
    monkeypatch.setattr("spark_udaf.streaming.shards._PIECE_BYTES", piece)
    chain = TiltFrame(["10s", "1m"], "time", {"count": aggr.count(), "sum": aggr.sum("value")}, ["key"])
    few, many = "ab", [f"key {n}" for n in range(60)]
    answers = []
    for small in (0, 1200, 1 << 30):
        monkeypatch.setattr(SMALL, small)
        stream = Shards(rows_of_keys().schema, chain, "after_close", "drop", shards=1)
        emitted = []
        for second, keys in enumerate([few, many, few, few, many, few]):
            stream.batch(rows_of_keys(*keys, at=20 * second))
            stream.restart()
            stream.tell(watermark=10**15 + 20 * second * SCALE)
            emitted += stream.batch().to_pylist()
        answers.append(sorted(map(repr, emitted)))
        pieces = {place for stored in stream.tester.handle.map_states["windows"].state.values() for place in stored}
        assert pieces or small, "no block is small"
        assert not pieces or small < 1 << 30 or piece < 1 << 22, "all blocks are small, and one value has room for them"
    assert answers[0]
    assert answers[0] == answers[1] == answers[2]


def test_a_damaged_piece_is_refused_where_it_is_needed(monkeypatch):
    monkeypatch.setattr(SMALL, 0)
    stream = Shards(rows_of_keys().schema, KEYED, "after_close", "drop", shards=1)
    stream.batch(rows_of_keys("a", "b"))
    stream.restart()
    (stored,) = stream.tester.handle.map_states["windows"].state.values()
    (place,) = [place for place in stored if place[0].startswith("0.held.states@")]
    (piece,) = stored[place]
    stored[place] = (piece[:-20] + bytes([piece[-20] ^ 1]) + piece[-19:],)
    with pytest.raises(ValueError, match=r"not a saved state of open windows \(the checksum"):
        stream.batch(rows_of_keys("a", at=2))
