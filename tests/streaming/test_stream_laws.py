"""A stream has the states of a rollup of its rows, for all events, orders, batches, shards and restarts."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aggr
from aggr.arrow.bit_equality import same_bits
from aggr.tables.by_key import merge_by
from tiltframe import TiltFrame, rollup
from tiltframe.reducing import reduce_rows
from tiltframe.streaming import Drop, OpenWindows, TrueWindow, read_emit, window_table

SECOND, END_OF_TIME = 1_000_000, 2**62 - 1
FRAMES = [["1s", "10s", "1m"], ["hopping(10s, 3s)"], ["2s", "hopping(10s, 4s)", "20s"], ["session(3s)"], ["5s", "all"]]
MEASURES = {
    "rows": aggr.count(),
    "total": aggr.sum("x"),
    "sketch": aggr.dds("x"),
    "last": aggr.last("i"),
    "some": aggr.max("i", where="i > 0"),
}
KEYS = ["a", None, "b"]


def frame_of(levels: list[str]) -> TiltFrame:
    return TiltFrame(levels, "ts", MEASURES, ["k"])


def events(rng: np.random.Generator, n: int) -> pa.Table:
    """Draw events that come roughly in order, over some twenty seconds or several minutes."""
    disorder = rng.choice([0, 1, 8])
    times = np.sort(rng.uniform(0, rng.choice([20, 400]), n)) + rng.normal(0, 1, n) * disorder
    return pa.table(
        {
            "ts": pa.array((times * SECOND).astype(np.int64), pa.timestamp("us", "UTC")),
            "k": pa.array([KEYS[k] for k in rng.integers(0, 3, n)], pa.string()),
            "x": pa.array(rng.lognormal(0, 30, n), mask=rng.random(n) < 0.1),
            "i": rng.integers(-5, 50, n),
        }
    )


class Model:
    """Which rows each window holds, found row by row as the definitions say."""

    def __init__(self, frame: TiltFrame, rows: pa.Table, delay: int, lateness: int | None) -> None:
        self.frame, self.delay, self.kept = frame, delay, lateness
        self.times, self.keys = rows.column("ts").cast(pa.int64()).to_pylist(), rows.column("k").to_pylist()
        self.windows: dict[tuple, list[int]] = defaultdict(list)
        self.sessions: dict[str | None, list[list]] = defaultdict(list)  # of each: start, end, rows
        self.over: list[tuple[str | None, list]] = []

    def gone(self, end: int, watermark: int | None) -> bool:
        return watermark is not None and self.kept is not None and watermark >= end + self.delay + self.kept

    def add(self, batch: range, watermark: int | None, at_once: set[str | None]) -> set[int]:
        """Take rows, those of some keys at once and the others one by one; return those that are late."""
        if self.frame.levels[0].is_merging:
            together = [row for row in batch if self.keys[row] in at_once]
            steps = [together, *([row] for row in batch if self.keys[row] not in at_once)]
            return {row for step in steps for row in self.add_to_sessions(step, watermark)}
        late = set(batch)
        for row in batch:
            for level in self.frame.levels:
                windows = level.assign(np.array([self.times[row]]))
                for start, end in zip(windows.starts.tolist(), windows.ends.tolist(), strict=True):
                    if not self.gone(end, watermark):
                        self.windows[level.name, start, end, self.keys[row]].append(row)
                        late.discard(row)
        return late

    def late_sessions(self, batch: list[int], watermark: int | None) -> set[int]:
        """Rows that would join a session that is over, or are two gaps older than what may matter."""
        gap = self.frame.levels[0].gap
        if watermark is None or self.kept is None or self.kept < gap:
            return set()
        late, until = set(), watermark - self.delay - self.kept
        apart = sorted(batch, key=lambda row: (str(self.keys[row]), self.times[row]))
        while apart:
            session = [apart.pop(0)]  # rows that came at once, and are one session already
            key = self.keys[session[0]]
            while apart and self.keys[apart[0]] == key and self.times[apart[0]] <= self.times[session[-1]] + gap:
                session.append(apart.pop(0))
            start, end = self.times[session[0]], self.times[session[-1]] + gap
            within = any(s <= start <= e for s, e, _ in self.sessions[key])
            touches = any(k == key and s <= end and start <= e for k, (s, e, _) in self.over)
            alone = len(batch) == 1 or end <= watermark - self.delay
            if alone and (touches or (start <= until - 2 * gap and not within)):
                late |= set(session)
        return late

    def add_to_sessions(self, batch: list[int], watermark: int | None) -> set[int]:
        gap = self.frame.levels[0].gap
        touching = self.late_sessions(batch, watermark)
        batch = [row for row in batch if row not in touching]
        for row in batch:
            new, other_sessions = [self.times[row], self.times[row] + gap, [row]], []
            for session in self.sessions[self.keys[row]]:
                if session[0] <= new[1] and new[0] <= session[1]:
                    new = [min(session[0], new[0]), max(session[1], new[1]), session[2] + new[2]]
                else:
                    other_sessions.append(session)
            self.sessions[self.keys[row]] = [*other_sessions, new]
        late = touching
        for key, sessions in self.sessions.items():
            late |= {row for _, end, rows in sessions if self.gone(end, watermark) for row in rows}
            self.sessions[key] = [s for s in sessions if not self.gone(s[1], watermark)]
        return late

    def advance(self, watermark: int | None) -> None:
        """Forget sessions that are over: nothing joins them any more."""
        for key, sessions in self.sessions.items():
            self.over += [(key, s) for s in sessions if self.gone(s[1], watermark)]
            self.sessions[key] = [s for s in sessions if not self.gone(s[1], watermark)]

    def all_windows(self) -> dict[tuple, list[int]]:
        if not self.frame.levels[0].is_merging:
            return self.windows
        name = self.frame.levels[0].name
        open_sessions = [(key, session) for key, sessions in self.sessions.items() for session in sessions]
        return {(name, s, e, key): rows for key, (s, e, rows) in [*self.over, *open_sessions]}


def batch_states(frame: TiltFrame, rows: pa.Table, windows: dict[tuple, list[int]]) -> pa.Table:
    """Roll up the rows of each window by the batch job; all at once where no window lacks rows of its time."""
    states_by_window = by_window(rollup(rows, frame))
    counted = dict(
        zip(
            labels(states_by_window), pc.struct_field(states_by_window.column("rows"), "count").to_pylist(), strict=True
        )
    )
    right = [w for w in windows if counted.get(w) == len(windows[w])]
    parts = [states_by_window.filter(pa.array([w in set(right) for w in labels(states_by_window)], pa.bool_()))]
    for window in windows.keys() - set(right):
        alone = by_window(rollup(rows.take(pa.array(windows[window])), frame))
        parts.append(alone.filter(pa.array([w == window for w in labels(alone)], pa.bool_())))
    return pa.concat_tables(parts)


def by_window(table: pa.Table) -> pa.Table:
    return table.replace_schema_metadata(None).cast(pa.schema([pa.field(f.name, f.type) for f in table.schema]))


def labels(table: pa.Table) -> list[tuple]:
    bounds = [table.column(n).cast(pa.int64()).to_pylist() for n in ("window_start", "window_end")]
    bounds = [[None if at is None else at for at in column] for column in bounds]
    unbound = [(-(2**62) if s is None else s, 2**62 if e is None else e) for s, e in zip(*bounds, strict=True)]
    return [
        (level, s, e, k)
        for level, (s, e), k in zip(
            table.column("level").to_pylist(), unbound, table.column("k").to_pylist(), strict=True
        )
    ]


def standing(frame: TiltFrame, emitted: pa.Table, mode: str) -> pa.Table:
    """Put together what the emissions say of each window in the end."""
    names = labels(emitted)
    if mode == "discarding":
        functions = {c.name: c.measure.function for c in frame.states}
        numbers = {name: at for at, name in enumerate(dict.fromkeys(names))}
        key = {"window": pa.array([numbers[name] for name in names], pa.int64())}
        carried = {name: emitted.column(name).combine_chunks() for name in frame.states_columns[:4]}
        return by_window(merge_by(emitted, key, functions, carried=carried).select(list(frame.states_columns)))
    last: dict[tuple, int] = {}
    changes = emitted.column("change").to_pylist() if mode == "changelog" else [1] * len(names)
    for at, (name, change) in enumerate(zip(names, changes, strict=True)):
        if change < 0:
            assert name in last, "a retraction of what was not emitted"
            assert all(
                same_bits(emitted.column(c.name).slice(at, 1), emitted.column(c.name).slice(last[name], 1))
                for c in frame.states
            )
            del last[name]
        else:
            assert mode != "changelog" or name not in last, "what stands was not retracted"
            last[name] = at
    return by_window(emitted.take(pa.array(list(last.values()), pa.int64())).select(list(frame.states_columns)))


def assert_same(got: pa.Table, expected: pa.Table) -> None:
    expected_labels, actual_labels = labels(expected), labels(got)
    assert sorted(map(repr, actual_labels)) == sorted(map(repr, expected_labels))
    place = {name: at for at, name in enumerate(actual_labels)}
    got = got.take(pa.array([place[name] for name in expected_labels], pa.int64()))
    for name in expected.column_names:
        assert same_bits(got.column(name), expected.column(name)), name


@pytest.fixture(scope="module", autouse=True)
def narrowed():
    """Choose the windows that a batch may reach by columns, as where many are held."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(window_table, "_FEW", 0)
        yield


@pytest.mark.slow
@given(st.data())
@settings(max_examples=30, deadline=None)
def test_stream_is_batch(data):
    draw = data.draw
    levels = draw(st.sampled_from(FRAMES), "levels")
    frame, session = frame_of(levels), levels[0].startswith("session")
    mode = draw(st.sampled_from(["changelog"] if session else ["accumulating", "discarding", "changelog"]), "mode")
    early = ["on_update"] if "all" in levels else ["after_close", "on_update", "periodic(1s)", "after_count(3)"]
    delay = draw(st.sampled_from([0, 4]), "delay")
    policies = [
        read_emit(f"{text.removesuffix(')')}{', ' if '(' in text else '('}mode={mode}, delay={delay}s)")
        for text in early
    ]
    emit = draw(st.sampled_from(policies), "emit")
    lateness = draw(st.sampled_from([None, 0, 5]), "lateness")
    late = TrueWindow() if lateness is None else Drop(f"{lateness}s")
    rng = np.random.default_rng(draw(st.integers(0, 2**32), "seed"))
    rows = events(rng, draw(st.integers(1, 60), "rows"))
    shards = [OpenWindows(frame, emit, late) for _ in range(draw(st.sampled_from([1, 2]), "shards"))]
    model = Model(frame, rows, delay * SECOND, None if lateness is None else lateness * SECOND)
    shard_of = np.array([KEYS.index(k) % len(shards) for k in rows.column("k").to_pylist()])
    lag, watermark, emitted, late_rows, at, now = rng.integers(0, 5) * SECOND, None, [], 0, 0, 0
    while at < len(rows):
        batch = range(at, min(len(rows), at + int(rng.integers(1, 20))))
        as_states = [bool(rng.random() < 0.5) for _ in shards]
        at_once = {key for at, key in enumerate(KEYS) if as_states[at % len(shards)]}
        late_rows += len(model.add(batch, watermark, at_once))
        for number, shard in enumerate(shards):
            part = rows.take(pa.array([row for row in batch if shard_of[row] == number], pa.int64()))
            if not as_states[number]:
                cut = int(rng.integers(0, len(part) + 1))  # batches between two calls of advance make no difference
                shard.add_rows(part[:cut])
                shard.add_rows(part[cut:])
            else:
                shard.add(pa.concat_tables([reduce_rows(p, shard.partial_frame) for p in (part[:5], part[5:])]))
        at, now = batch.stop, now + int(rng.integers(0, 2 * SECOND))
        watermark = max(model.times[: batch.stop]) - int(lag)
        model.advance(watermark)
        for number, shard in enumerate(shards):
            emitted.append(shard.advance(watermark, now))
            if rng.random() < 0.3:
                other = policies[rng.integers(len(policies))] if rng.random() < 0.5 else None
                shards[number] = OpenWindows.from_ipc(shard.to_ipc(), emit=other)
        if not session:
            level_ends = [(level, end) for level, _, end, _ in model.windows]
            still = {
                level.name: sum(n == level.name and e > watermark - model.delay for n, e in level_ends)
                for level in frame.levels
            }
            assert still == {n: sum(shard.progress.open_windows.get(n, 0) for shard in shards) for n in still}
    emitted += [shard.advance(END_OF_TIME, now) for shard in shards]
    assert sum(shard.progress.late_rows for shard in shards) == late_rows
    got = standing(frame, pa.concat_tables(emitted), mode)
    assert_same(got, batch_states(frame, rows, model.all_windows()))


@pytest.mark.slow
@given(st.integers(0, 2**32), st.sampled_from([2, 10, 40]), st.sampled_from([1, 3]), st.sampled_from([0, None]))
@settings(max_examples=40, deadline=None)
@pytest.mark.long
def test_sessions_do_not_depend_on_how_rows_are_cut(seed, seconds, gap, lateness):
    """Rows in any order after a watermark: some join what is held, some each other, and some save themselves so."""
    rng = np.random.default_rng(seed)
    frame = TiltFrame([f"session({gap}s)"], "ts", {"n": aggr.count(), "last": aggr.last("i")}, ["k"])
    n, watermark = int(rng.integers(1, 40)), int(rng.integers(0, seconds) * SECOND)
    first, rows = (
        pa.table(
            {
                "ts": pa.array(rng.integers(0, seconds * 2, m) * SECOND // 2, pa.timestamp("us", "UTC")),
                "k": pa.array([KEYS[k] for k in rng.integers(0, 2, m)], pa.string()),
                "i": np.arange(m),
            }
        )
        for m in (int(rng.integers(1, 8)), n)
    )
    both = pa.concat_tables([first, rows])
    lateness_of_model, late_policy = (gap * SECOND, "drop") if lateness is None else (0, "drop(0s)")
    model = Model(frame, both, 0, lateness_of_model)
    model.add(range(len(first)), None, set())
    model.advance(watermark)
    late = sorted(row - len(first) for row in model.add(range(len(first), len(both)), watermark, set()))
    for cuts in ([], sorted(rng.integers(0, n, 3).tolist()), list(range(1, n))):
        windows = OpenWindows(frame, "after_close(mode=changelog)", late_policy)
        windows.add_rows(first)
        emitted, dropped = [windows.advance(watermark)], []
        for begin, end in zip([0, *cuts], [*cuts, n], strict=True):
            dropped += windows.add_rows(rows.slice(begin, end - begin)).column("i").to_pylist()
        emitted.append(windows.advance(END_OF_TIME))
        assert dropped == late
        counted = {w: len(rows_of_window) for w, rows_of_window in model.all_windows().items()}
        got = windows.results(pa.concat_tables(emitted))
        stands = {}
        for window, count, change in zip(labels(got), got["n"].to_pylist(), got["change"].to_pylist(), strict=True):
            stands[window] = count if change > 0 else None
        assert {window: count for window, count in stands.items() if count is not None} == counted
