"""A store accepts only states of its own frame, and a commit number only with the rows of its first use."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import aggr
from aggr.arrow.bit_equality import same_bits
from tiltframe import FrameStore, StoreError, TiltFrame, finish, rollup
from tiltframe.names import END, LEVEL, START
from tiltframe.store.changes.commit import FINGERPRINTS_PER_WRITER

pytestmark = pytest.mark.store

BEGIN = 1_714_521_600_000  # 2024-05-01T00:00Z
MEASURES = {
    "n": aggr.count(),
    "s": aggr.sum("x"),
    "p": aggr.dds("x", [0.5], 0.01),
    "late": aggr.last("x"),
    "bad": aggr.count(where="x > 5"),
}


def frame_of(**changed) -> TiltFrame:
    arguments = {"levels": ["1m", "1h", "1d"], "time": "ts", "measures": MEASURES, "keys": ["k"]}
    return TiltFrame(**(arguments | changed))


FRAME = frame_of()


def rows(seed: int, n: int = 300) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "ts": BEGIN + rng.integers(0, 30 * 3_600_000, n),
            "other": BEGIN + rng.integers(0, 30 * 3_600_000, n),
            "x": rng.lognormal(0, 2, n),
            "y": rng.lognormal(0, 2, n),
            "k": pa.array(rng.choice(["a", "b", None], n).tolist(), pa.string()),
            "j": pa.array(rng.choice(["a", "b"], n).tolist(), pa.string()),
        }
    )


def bare(states: pa.Table) -> pa.Table:
    """Leave out all metadata, as tools do that know nothing of it."""
    return states.cast(pa.schema([field.remove_metadata() for field in states.schema]))


def put(states: pa.Table, name: str, values: object) -> pa.Table:
    at = states.column_names.index(name)
    return states.set_column(at, states.schema.field(at), pa.chunked_array([values]))


def moved(states: pa.Table, name: str, micros: int) -> pa.Table:
    return put(states, name, pc.add(states[name].combine_chunks(), pa.scalar(micros, pa.duration("us"))))


OTHER_FRAMES = {
    "levels": (frame_of(levels=["1m", "1h"]), "levels is ['1m', '1h', '1d'] in the frame and ['1m', '1h'] in the st"),
    "levels of other sizes": (frame_of(levels=["2m", "2h", "2d"]), "levels is"),
    "zone": (frame_of(timezone="Europe/Paris"), "timezone is UTC in the frame and Europe/Paris in the states"),
    "zone of the same windows": (frame_of(timezone="Etc/UTC"), "timezone is UTC in the frame and Etc/UTC in the"),
    "time": (frame_of(time="other"), "time is ts in the frame and other in the states"),
    "where": (
        frame_of(measures=MEASURES | {"bad": aggr.count(where="x > 6")}),
        "'bad' is count(where='x > 5') in the frame and count(where='x > 6') in the states",
    ),
    "no where": (frame_of(measures=MEASURES | {"s": aggr.sum("x", where="y > 1")}), "'s' is sum('x') in the frame and"),
    "column": (frame_of(measures=MEASURES | {"s": aggr.sum("y")}), "'s' is sum('x') in the frame and sum('y') in"),
    "by": (frame_of(measures=MEASURES | {"late": aggr.last("x", by="other")}), "'late' is last('x') in the frame"),
    "function": (
        frame_of(measures=MEASURES | {"s": aggr.var("x")}),
        "'s' is sum('x') in the frame and var('x') in the",
    ),
    "parameters": (
        frame_of(measures=MEASURES | {"p": aggr.dds("x", [0.5], 0.02)}),
        "'p' is dds('x', max_bins=None, relative_accuracy=0.01) in the frame and dds('x', max_bins=None, rel",
    ),
    "a measure more": (frame_of(measures=MEASURES | {"q": aggr.max("y")}), "the frame has no states 'q' of max('y')"),
}


@pytest.mark.parametrize("what", OTHER_FRAMES)
def test_states_of_another_frame_are_refused_and_nothing_is_written(what, place):
    other, message = OTHER_FRAMES[what]
    store = FrameStore(place, FRAME)
    for _ in range(2):  # a store that is not there yet, and one that is
        with pytest.raises(ValueError, match=re.escape(f"these are not states of this frame: {message}")):
            store.append(rollup(rows(1), other), "w", 1)
        assert store.last_commit("w") is None
        store.append(rollup(rows(0), FRAME), "v", 1)
    before = store.query("1h")
    with pytest.raises(ValueError, match="these are not states of this frame"):
        store.replace(rollup(rows(1), other), ("2024-05-01", "2024-05-03"))
    assert FrameStore(place).query("1h").equals(before)
    assert store.append(rollup(rows(1), FRAME), "w", 1)


def test_states_with_keys_that_the_frame_has_not_are_refused(place):
    store = FrameStore(place, FRAME)
    for keys in (["j"], ["k", "j"], []):
        with pytest.raises(ValueError, match=r"not states of this frame: (keys is|they have no column 'k')"):
            store.append(rollup(rows(1), frame_of(keys=keys)), "w", 1)


def test_where_the_frame_is_told_it_travels(tmp_path):
    """Filters, slices, unions, other orders, IPC, Parquet, pickle: a later reader still knows."""
    other = frame_of(measures=MEASURES | {"bad": aggr.count(where="x > 6")})
    states = rollup(rows(1), other)
    pq.write_table(states, tmp_path / "states.parquet")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, states.schema) as writer:
        writer.write_table(states)
    store = FrameStore(tmp_path / "s", FRAME)
    for travelled in (
        states.filter(pc.equal(states[LEVEL], "1m")),
        states.slice(0, 0),
        pa.concat_tables([states, states]),
        states.sort_by("k").select(sorted(states.column_names)),
        pq.read_table(tmp_path / "states.parquet"),
        pa.ipc.open_stream(sink.getvalue()).read_all(),
        pickle.loads(pickle.dumps(states)),
        FrameStoreOf(tmp_path / "other", other, states).states("1m"),
    ):
        with pytest.raises(ValueError, match=r"'bad' is count\(where='x > 5'\) in the frame"):
            store.append(travelled, "w", 1)
        with pytest.raises(ValueError, match=r"'bad' is count\(where='x > 5'\) in the frame"):
            finish(travelled, FRAME)


def FrameStoreOf(path, frame: TiltFrame, states: pa.Table) -> FrameStore:
    store = FrameStore(path, frame)
    store.append(states, "w", 1)
    return store


def test_states_can_be_asked_what_they_hold():
    """Other quantiles, a mean of a sum: reading parameters are none of the states' business."""
    states = rollup(rows(1), FRAME)
    asked_frame = frame_of(measures={"s": aggr.avg("x"), "p": aggr.dds("x", [0.1, 0.9], 0.01)})
    assert same_bits(finish(states, asked_frame)["s"], finish(rollup(rows(1), asked_frame), asked_frame)["s"])
    with pytest.raises(ValueError, match=r"'s' is var\('x'\) in the frame and sum\('x'\) in the states"):
        finish(states, frame_of(measures={"s": aggr.var("x")}))


MISTAKES: dict[str, tuple[Callable[[pa.Table], pa.Table], str]] = {
    "a level that is none": (
        lambda s: put(s, LEVEL, pa.array(["2h"] * s.num_rows)),
        "the frame has no level '2h'; it has 1m, 1h, 1d",
    ),
    "a null level": (lambda s: put(s, LEVEL, pa.nulls(s.num_rows, pa.string())), "the frame has no level None; it has"),
    "starts that no window has": (
        lambda s: moved(moved(s, START, 1), END, 1),
        "no window of 1m in UTC starts at 2024-05",
    ),
    "ends of longer windows": (
        lambda s: moved(s, END, 60_000_000),
        "the window of 1m in UTC that starts at .* does not",
    ),
    "null starts": (
        lambda s: put(s, START, pa.nulls(s.num_rows, s[START].type)),
        "the column 'window_start' of states must not contain null",
    ),
    "times without a zone": (
        lambda s: s.set_column(1, START, s[START].cast(pa.timestamp("us"))),
        "'window_start' must have the type timestamp with a time zone; got timestamp",
    ),
    "nanoseconds": (
        lambda s: s.set_column(
            1,
            START,
            pa.array(s[START].cast(pa.timestamp("ns", "UTC")).cast(pa.int64()).to_numpy() + 1).cast(
                pa.timestamp("ns", "UTC")
            ),
        ),
        "'window_start' of states cannot be converted to times in microseconds",
    ),
    "another zone": (
        lambda s: bare(rollup(rows(1), frame_of(timezone="Asia/Kolkata"))),
        "no window of 1h in UTC starts at .*.*; the states were computed with other windows or another time zone",
    ),
    "other parameters": (
        lambda s: bare(rollup(rows(1), frame_of(measures=MEASURES | {"p": aggr.dds("x", [0.5], 0.02)}))),
        "relative_accuracy=0.02 cannot be merged or read as relative_accuracy=0.01",
    ),
    "another function": (
        lambda s: s.set_column(s.column_names.index("p"), "p", s["n"]),
        "these are not states of dds: they have no field",
    ),
    "no finest level": (
        lambda s: s.filter(pc.not_equal(s[LEVEL], "1m")),
        "states of the finest level, 1m, are missing",
    ),
    "a part of the finest level": (
        lambda s: s.filter(pc.or_(pc.not_equal(s[LEVEL], "1m"), pc.equal(s["k"], "a"))),
        "the states of 1h at 2024-05-01T.* differ from the merged states of 1m",
    ),
    "a part of a coarser level": (
        lambda s: s.filter(pc.or_(pc.not_equal(s[LEVEL], "1d"), pc.equal(s["k"], "a"))),
        "the states of 1d at 2024-05-0.* differ from the merged states of 1m",
    ),
    "windows cut in two": (
        lambda s: s.filter(pc.greater(s[START], pa.scalar(BEGIN + 90 * 60_000, pa.timestamp("ms", "UTC")))),
        "the states of 1h at 2024-05-01T01:00:00Z differ from the merged states of 1m",
    ),
    "coarser levels of other rows": (
        lambda s: pa.concat_tables(
            [s.filter(pc.equal(s[LEVEL], "1m")), (o := rollup(rows(2), FRAME)).filter(pc.equal(o[LEVEL], "1h"))]
        ),
        "the states of 1h at 2024-05-0.* differ from the merged states of 1m",
    ),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_what_states_do_not_say_is_told_from_their_rows(what, tmp_path):
    """Metadata may be lost on the way: levels, windows, parameters and types are checked all the same."""
    damage, message = MISTAKES[what]
    store = FrameStore(tmp_path / "s", FRAME)
    for at in range(2):
        with pytest.raises((ValueError, OverflowError), match=message) as caught:
            store.append(damage(bare(rollup(rows(1), FRAME))), "w", 1)
        assert len(str(caught.value).splitlines()) == 1
        assert store.last_commit("w") is None
        assert at or not (tmp_path / "s").exists()
        store.append(rollup(rows(0), FRAME), "v", 1)


def test_states_without_a_description_are_taken_for_what_they_hold(place):
    store = FrameStore(place, FRAME)
    states = bare(rollup(rows(1), FRAME))
    coded = put(states, LEVEL, states[LEVEL].combine_chunks()).set_column(0, LEVEL, states[LEVEL].dictionary_encode())
    assert store.append(coded.set_column(1, START, states[START].cast(pa.timestamp("ns", "Asia/Tokyo"))), "w", 1)
    assert not store.append(rollup(rows(1), FRAME), "w", 1)
    assert (
        store.query("1d", now=BEGIN)["n"].to_pylist()
        == finish(rollup(rows(1), FRAME), FRAME).filter(pc.equal(states[LEVEL], "1d"))["n"].to_pylist()
    )


def test_a_window_that_comes_twice_counts_twice(place):
    """The union of two rollups is the rollup of both: one row a window and key, wherever the store is."""
    store = FrameStore(place, FRAME)
    both = pa.concat_tables([rollup(rows(1), FRAME), rollup(rows(2), FRAME)])
    assert store.append(both, "w", 1)
    want = rollup(pa.concat_tables([rows(1), rows(2)]), FRAME)
    assert not store.append(want, "w", 1)
    for level in ("1m", "1h", "1d"):
        stored = store.states(level)
        expected = want.filter(pc.equal(want[LEVEL], level))
        assert all(same_bits(stored[name], expected[name]) for name in expected.column_names)
    assert sum(part.rows for part in store.backend.snapshot().of("1m")) == len(want.filter(pc.equal(want[LEVEL], "1m")))


def test_a_number_that_comes_again_with_other_rows_is_an_error(place):
    store = FrameStore(place, FRAME)
    assert store.append(rollup(rows(0), FRAME), "w", 0)
    before = store.query("1m")
    for other in (rows(1), rows(0).slice(1), rows(0).slice(0, 0), pa.concat_tables([rows(0), rows(0)])):
        for again in (store, FrameStore(place)):
            with pytest.raises(
                StoreError,
                match="for the writer 'w' and the number 0; a new batch needs a number",
            ):
                again.append(rollup(other, FRAME), "w", 0)
    shuffled = rows(0).take(np.random.default_rng(1).permutation(300))
    states = rollup(shuffled, FRAME)
    finest = states.filter(pc.equal(states[LEVEL], "1m"))
    for same in (states, states.take(np.random.default_rng(2).permutation(states.num_rows)), finest, bare(states)):
        assert FrameStore(place).append(same, "w", 0) is False
    assert store.query("1m").equals(before)
    store.compact()
    assert store.append(states, "w", 0) is False
    with pytest.raises(StoreError, match="already contains other states for the writer 'w' and the number 0"):
        store.append(rollup(rows(1), FRAME), "w", 0)
    assert store.append(rollup(rows(1), FRAME), "w", 1)


def test_an_empty_commit_is_one_of_no_rows(place):
    store, nothing = FrameStore(place, FRAME), rollup(rows(0).slice(0, 0), FRAME)
    assert store.append(nothing, "w", 0)
    assert not store.append(nothing, "w", 0)
    with pytest.raises(StoreError, match="already contains other states for the writer 'w' and the number 0"):
        store.append(rollup(rows(0), FRAME), "w", 0)
    assert store.append(rollup(rows(0), FRAME), "w", 1)
    assert not store.append(nothing, "w", 0)


@pytest.mark.long
def test_numbers_below_the_last_are_known_for_a_while(place):
    """What is not known to be the same batch is refused: never dropped, never counted twice."""
    frame = TiltFrame(["1m"], "ts", {"n": aggr.count()})
    store = FrameStore(place, frame)
    batches = [rollup(pa.table({"ts": [BEGIN + 60_000 * i]}), frame) for i in range(FINGERPRINTS_PER_WRITER + 3)]
    numbers = [60_000 * i for i in range(FINGERPRINTS_PER_WRITER + 2)]  # far apart, as moments are
    for number, states in zip(numbers, batches, strict=False):
        assert store.append(states, "w", number)
    assert [store.append(batches[i], "w", numbers[i]) for i in range(2, FINGERPRINTS_PER_WRITER + 2)] == [
        False
    ] * FINGERPRINTS_PER_WRITER
    assert FrameStore(place).append(batches[2], "w", numbers[2]) is False
    last = numbers[-1]
    for states, number in ((batches[0], 0), (batches[5], numbers[6]), (batches[-1], 7)):
        with pytest.raises(
            StoreError,
            match=f"contains the number {last} of .*'w', but the number {number} .* not among its last "
            f"{FINGERPRINTS_PER_WRITER}",
        ):
            store.append(states, "w", number)
    assert store.append(batches[0], "v", 0)  # of another writer
    assert sum(store.query("1m")["n"].to_pylist()) == FINGERPRINTS_PER_WRITER + 3
