"""Retraction: the store has the bits of a store that never had the rows, or is unchanged."""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import aggr
from aggr.arrow.bit_equality import digest
from tests.crash_processes import FRAME as CRASHED
from tests.crash_processes import CrashProcesses, append, compact, last_number, retract
from tests.crash_processes import rows as crash_rows
from tiltframe import FrameStore, TiltFrame, rollup
from tiltframe.names import LEVEL
from tiltframe.store.log.errors import CommitConflict, MissingStore

pytestmark = pytest.mark.store

SIZE = int(os.environ.get("SIZE", "20000"))  # rows of the key that is erased
TRIALS = int(os.environ.get("TRIALS", "4"))
MEASURES = {"n": aggr.count(), "s": aggr.var("x"), "slow": aggr.count(where="x > 60"), "both": aggr.corr("x", x="y")}
FRAME = TiltFrame(["1m", "1h", "1d"], "ts", {**MEASURES, "p": aggr.dds("x")}, ["host", "user"])
BEGIN = 1_714_500_000_000


def rows_of(rng: np.random.Generator, n: int) -> pa.Table:
    return pa.table(
        {
            "ts": BEGIN + rng.integers(0, 3 * 86_400_000, n),
            "host": pa.array(rng.choice(["a", "b", None], n).tolist(), pa.string()),
            "user": rng.integers(0, 6, n),
            "x": rng.lognormal(3, 2, n),
            "y": rng.normal(size=n),
        }
    )


def assert_holds(store: FrameStore, rows: pa.Table) -> None:
    """Compare a store, as it is and compacted, with the states of rows."""
    expected = rollup(rows, store.frame)
    for _ in range(2):
        for level in store.frame.levels:
            expected_level, states = expected.filter(pc.equal(expected[LEVEL], level.name)), store.states(level)
            assert states.column_names == expected_level.column_names
            for name in expected_level.column_names:
                assert digest(states[name]) == digest(expected_level[name]), (level, name)
        assert store.verify().ok
        store.compact()


def filled(place: str, rows: pa.Table, frame: TiltFrame = FRAME, commits: int = 3, **options) -> FrameStore:
    store = FrameStore(place, frame, **options)
    size = -(-rows.num_rows // commits)
    for number in range(commits):
        assert store.append_rows(rows.slice(number * size, size), "w", number)
        if number == 1:
            store.compact()
    return store


@pytest.mark.long
def test_a_user_is_erased_at_every_level(place):
    rng = np.random.default_rng(3)
    rows = rows_of(rng, 3000)
    store = filled(place, rows)
    levels = store.export()
    for number, user in enumerate((2, 5)):
        goes = pc.equal(rows["user"], user)
        removed, rows = rows.filter(goes), rows.filter(pc.invert(goes))
        assert store.retract(rollup(removed, FRAME), "eraser", number, recorded={f"user {user}": "erased"})
        assert not store.retract(rollup(removed, FRAME), "eraser", number)
        assert store.query("1d", keys=["user"], where=f"user = {user}").num_rows == 0
    store.export()
    assert levels.keys() == {"1m", "1h", "1d"}
    assert store.recorded(["user 5"]) == {"user 5": "erased"}
    assert_holds(store, rows)


@pytest.mark.parametrize("seed", range(TRIALS))
def test_some_rows_of_many_windows_are_taken_out(seed, place):
    """Of states of groups alone, whatever rows go: what stays are states of the rows that stay."""
    rng = np.random.default_rng(seed)
    frame = TiltFrame(["10m", "1h", "1d"], "ts", MEASURES, ["host"])
    rows = rows_of(rng, int(rng.integers(1, 2000)))
    store = filled(place, rows, frame)
    goes = pa.array(rng.random(rows.num_rows) < rng.random())
    assert store.retract(rollup(rows.filter(goes), frame), "fix", 1) or not pc.any(goes).as_py()
    assert_holds(store, rows.filter(pc.invert(goes)))


@pytest.mark.long
def test_a_million_rows_of_one_key(tmp_path):
    rng = np.random.default_rng(11)
    rows_of_one_key = rows_of(rng, SIZE).set_column(2, "user", pa.array(np.full(SIZE, 77)))
    other_rows = rows_of(rng, SIZE // 2)
    store = filled(str(tmp_path / "s"), pa.concat_tables([other_rows, rows_of_one_key]))
    assert store.retract(rollup(rows_of_one_key, FRAME), "eraser", 1)
    assert_holds(store, other_rows)


@pytest.mark.long
def test_it_counts_once_and_is_no_append(place):
    rows = rows_of(np.random.default_rng(1), 100)
    store = filled(place, rows)
    states = rollup(rows.slice(0, 10), FRAME)
    goes = rollup(rows.filter(pc.equal(rows["user"], 3)), FRAME)
    assert store.retract(goes, "fix", 1)
    for again in (lambda: store.append(goes, "fix", 1), lambda: store.retract(states, "fix", 1)):
        with pytest.raises(CommitConflict):
            again()
    assert not store.retract(goes, "fix", 1)
    assert store.append(goes, "fix", 2)
    assert_holds(store, rows)


@pytest.mark.parametrize("place", ["folder"], indirect=True)
def test_what_is_refused_changes_nothing(place):
    rows = rows_of(np.random.default_rng(2), 200)
    measures = {"n": aggr.count(), "low": aggr.min("x"), "names": aggr.count_distinct("user"), "late": aggr.last("x")}
    store = filled(place, rows, TiltFrame(["1h"], "ts", measures, ["host"]))
    before, files = store.version(), sorted(Path(place).rglob("*"))
    with pytest.raises(TypeError, match=r"low \(min\), names \(count_distinct\), late \(last\)") as refused:
        store.retract(rollup(rows.slice(0, 1), store.frame), "fix", 1)
    assert len(str(refused.value)) <= 300
    assert (store.version(), sorted(Path(place).rglob("*"))) == (before, files)


def test_doubt_changes_nothing(place):
    rows = rows_of(np.random.default_rng(2), 400)
    frame = TiltFrame(["1h", "1d"], "ts", {"n": aggr.count(), "p": aggr.dds("x")}, ["host"])
    store = filled(place, rows, frame)
    before, files = store.version(), sorted(Path(place).rglob("*.parquet"))
    greatest = rows.sort_by([("host", "ascending"), ("x", "descending")]).slice(0, 1)
    elsewhere = greatest.set_column(0, "ts", pa.array([1_717_400_000_000]))
    wrong = {
        "1h, p, dds at .*host='a': the rows to subtract contain the greatest value": greatest,
        "the window of 1h at 2024-06.*: the state does not contain these rows": elsewhere,
        "1h, the state at .*host='z'": greatest.set_column(1, "host", pa.array(["z"])),
        "does not contain these rows": greatest.set_column(3, "x", pa.array([1e300])),
    }
    for sentence, removed in wrong.items():
        with pytest.raises(aggr.CannotSubtract, match=sentence) as refused:
            store.retract(rollup(removed, frame), "fix", 1)
        assert len(str(refused.value)) <= 300
    assert (store.version(), sorted(Path(place).rglob("*.parquet"))) == (before, files)
    assert_holds(store, rows)


def test_nothing_is_taken_out_of_a_store_that_is_not_there(place):
    with pytest.raises(MissingStore):
        FrameStore(place, FRAME).retract(rollup(rows_of(np.random.default_rng(2), 1), FRAME), "fix", 1)


@pytest.mark.filterwarnings("ignore::tiltframe.store.Expired")
def test_windows_that_have_expired_stay_so(place):
    rows = rows_of(np.random.default_rng(4), 1000)
    store = filled(place, rows, retention={"1m": "1d"})
    store.expire(now=BEGIN + 3 * 86_400_000)
    goes = pc.equal(rows["user"], 1)
    assert store.retract(rollup(rows.filter(goes), FRAME), "eraser", 1)
    expected = rollup(rows.filter(pc.invert(goes)), FRAME)
    for level in ("1h", "1d"):
        expected_level = expected.filter(pc.equal(expected[LEVEL], level))
        assert all(
            digest(store.states(level)[name]) == digest(expected_level[name]) for name in expected_level.column_names
        )
    assert store.query("1m", where="user = 1").num_rows == 0


@pytest.mark.long
def test_others_append_and_compact_meanwhile(tmp_path):
    rng, path = np.random.default_rng(6), str(tmp_path / "s")
    first, *other_batches = (rows_of(rng, 200) for _ in range(8))
    batches = [first, *(batch.set_column(2, "user", pa.array([9] * 200)) for batch in other_batches)]
    FrameStore(path, FRAME).append_rows(batches[0], "w", 0)
    done = threading.Event()

    def work(step) -> threading.Thread:
        thread = threading.Thread(target=step)
        thread.start()
        return thread

    def compacting():
        while not done.is_set():
            FrameStore(path).compact()

    def appending():
        for number, batch in enumerate(batches[1:], 1):
            FrameStore(path).append_rows(batch, "w", number)

    compactor, appender = work(compacting), work(appending)
    removed = batches[0].filter(pc.less(batches[0]["user"], 5))
    for user in range(5):
        rows_of_user = removed.filter(pc.equal(removed["user"], user))
        FrameStore(path).retract(rollup(rows_of_user, FRAME), "eraser", user)
    appender.join()
    done.set()
    compactor.join()
    remaining = batches[0].filter(pc.equal(batches[0]["user"], 5))
    assert_holds(FrameStore(path), pa.concat_tables([remaining, *batches[1:]]))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "turns"), [("folder", 2 * TRIALS), ("postgres", TRIALS // 2)])
@pytest.mark.long
def test_kills_take_out_nothing_twice(kind, turns, tmp_path, request):
    path = str(tmp_path / "s") if kind == "folder" else request.getfixturevalue("postgres")
    chance, processes = random.Random(5), CrashProcesses(tmp_path)
    FrameStore(path, CRASHED).append(rollup(crash_rows("w", 0), CRASHED), "w", 0)
    newest_retraction = -1
    for turn in range(turns):
        works = [append, retract, *([compact] if turn % 3 == 0 else [])]
        children = {work: processes.start(work.__name__, path) for work in works}
        if turn % 2:  # it is at work
            processes.wait(children[retract])
        time.sleep(chance.random() * 0.1)
        for work in chance.sample(works, len(works)):
            numbers = processes.kill(children[work])
            newest_retraction = max([newest_retraction, *numbers]) if work is retract else newest_retraction
        store = FrameStore(path)
        erased, last = last_number(store, "eraser"), last_number(store, "w")
        assert erased in (newest_retraction, newest_retraction + 1)
        newest_retraction = erased
        stays = [crash_rows("w", number) for number in range(erased + 1, last + 1)]
        expected = rollup(pa.concat_tables(stays), CRASHED)
        for level in ("10s", "1m", "10m"):
            expected_level = expected.filter(pc.equal(expected[LEVEL], level))
            assert all(
                digest(store.states(level)[name]) == digest(expected_level[name])
                for name in expected_level.column_names
            )
    processes.close()
    assert newest_retraction >= 0


@pytest.mark.parametrize("place", ["folder"], indirect=True)
@pytest.mark.parametrize("measure", [aggr.sum("x"), aggr.count("x"), aggr.count(where="x > 0"), aggr.dds("x")], ids=str)
def test_rows_without_values_remain_if_rows_are_counted(place, measure):
    """One row has a null. With count() its window and key remain; without it, nothing shows that the row remains."""
    rows = pa.table({"ts": [0, 1], "k": ["a", "a"], "x": pa.array([1, None])})
    frame = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count(), "m": measure}, ["k"])
    store = FrameStore(place, frame, row_schema=rows.schema)
    store.append_rows(rows, "w", 1)
    store.retract(rollup(rows.slice(0, 1), frame), "e", 1)
    assert_holds(store, rows.slice(1))
    store.retract(rollup(rows.slice(1), frame), "e", 2)
    assert store.query("1m").num_rows == 0


@pytest.mark.filterwarnings("ignore::tiltframe.store.NotKnown")
@pytest.mark.parametrize("measures", [{"n": aggr.count()}, {"s": aggr.sum("y")}], ids=str)
def test_erased_keys_disappear_after_a_measure_was_added(place, measures):
    """The states of the added measure are unknown in the old rows."""
    rows = pa.table({"ts": [0], "k": ["a"], "y": [1]})
    store = FrameStore(place, TiltFrame(["1m", "1h"], "ts", measures, ["k"]), row_schema=rows.schema)
    store.append_rows(rows, "w", 1)
    added = {**measures, "large": aggr.count(where="y > 3")}
    store.evolve(TiltFrame(["1m", "1h"], "ts", added, ["k"]), row_schema=rows.schema)
    store.retract(rollup(rows, store.frame), "eraser", 1)
    assert store.key_values("k").to_pylist() == []
    assert all(store.query(level).num_rows == 0 for level in ("1m", "1h"))
