"""Replacements and retractions with states from several processes give the same store as those with one table."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import aggr
from aggr.fields import CannotSubtract
from tiltframe import FrameStore, TiltFrame, rollup
from tiltframe.store import CommitConflict
from tiltframe.store.testing import MemoryBackend

pytestmark = [pytest.mark.store, pytest.mark.filterwarnings("ignore::tiltframe.store.Expired")]

FRAME = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count(), "s": aggr.sum("x")}, ["k"])
MINUTE = 60_000
ROWS = pa.table(
    {
        "ts": [minute * MINUTE for minute in range(180) for _ in "ab"],
        "x": [minute % 7 + 0.1 for minute in range(180) for _ in "ab"],
        "k": [key for _ in range(180) for key in "ab"],
    }
)


@pytest.fixture(params=["folder", "memory", "postgres"])
def store(request, tmp_path) -> FrameStore:
    place = {"folder": str(tmp_path / "s"), "memory": MemoryBackend()}.get(request.param)
    store = FrameStore(request.getfixturevalue("postgres") if place is None else place, FRAME)
    store.append(rollup(ROWS, FRAME), "w", 1)
    return store


def of_key(key: str, rows: pa.Table = ROWS) -> pa.Table:
    return rollup(rows.filter(pc.equal(rows["k"], key)), FRAME)


def answers(store: FrameStore) -> list[pa.Table]:
    return [store.query(per, order_by=["window_start", "k"]) for per in ("1m", "1h")]


def test_a_retraction_by_tasks_is_that_of_one_table(store):
    rows = ROWS.slice(20, 150)
    expected = FrameStore(MemoryBackend(), FRAME)
    expected.append(rollup(ROWS, FRAME), "w", 1)
    expected.retract(rollup(rows, FRAME), "eraser", 1)
    transaction = pickle.loads(pickle.dumps(store.begin_retraction("eraser", 1, rollup(rows, FRAME).schema)))
    receipts = [transaction.write(of_key(key, rows)) for key in "ab"]
    assert transaction.commit(receipts)
    assert answers(store) == answers(expected)
    assert store.verify().problems == ()
    again = store.begin_retraction("eraser", 1, rollup(rows, FRAME).schema)  # by a job that is tried again
    assert not again.commit([again.write(of_key(key, rows)) for key in "ab"])
    assert answers(store) == answers(expected)
    other = store.begin_retraction("eraser", 1, rollup(rows, FRAME).schema)
    with pytest.raises(CommitConflict):
        other.commit([other.write(of_key("a", rows))])


def test_a_retraction_of_rows_that_are_not_there_changes_nothing(store):
    before = answers(store)
    elsewhere = ROWS.set_column(0, "ts", pa.array([at + 10**8 for at in ROWS["ts"].to_pylist()]))
    transaction = store.begin_retraction("eraser", 1, rollup(ROWS, FRAME).schema)
    receipts = [transaction.write(of_key("a")), transaction.write(of_key("b", elsewhere))]
    with pytest.raises(CannotSubtract):
        transaction.commit(receipts)
    assert answers(store) == before
    assert store.last_commit("eraser") is None
    store.vacuum("0s")
    assert store.verify().problems == ()


def test_a_replacement_by_tasks_is_that_of_one_table(store):
    within = ("1970-01-01T00:30Z", "1970-01-01T01:30Z")
    rows = ROWS.filter(pc.and_(pc.greater_equal(ROWS["ts"], 40 * MINUTE), pc.less(ROWS["ts"], 80 * MINUTE)))
    expected = FrameStore(MemoryBackend(), FRAME)
    expected.append(rollup(ROWS, FRAME), "w", 1)
    expected.replace(rollup(rows, FRAME), within)
    transaction = pickle.loads(pickle.dumps(store.begin_replacement(within, rollup(rows, FRAME).schema, {"day": 1})))
    transaction.commit([transaction.write(of_key(key, rows)) for key in "ab"])
    assert answers(store) == answers(expected)
    assert store.recorded(["day"]) == {"day": 1}
    assert store.verify().problems == ()
    outside = store.begin_replacement(within, rollup(rows, FRAME).schema)
    with pytest.raises(ValueError, match="outside the range"):
        outside.write(rollup(ROWS, FRAME))


def test_a_replacement_that_is_refused_leaves_no_parts(tmp_path):
    store = FrameStore(tmp_path / "s", FRAME, retention={"1m": "1h"})
    store.append(rollup(ROWS, FRAME), "w", 1)
    store.expire(now="1970-01-01T03:00Z")
    before = answers(store)
    files = {file for file in (tmp_path / "s").rglob("*.parquet") if "level=1m" in str(file)}
    with pytest.raises(ValueError, match="have expired; replace whole windows"):
        store.replace(rollup(ROWS.slice(0, 2), FRAME), ("1970-01-01T00:00Z", "1970-01-01T00:01Z"))
    assert answers(store) == before
    assert {file for file in (tmp_path / "s").rglob("*.parquet") if "level=1m" in str(file)} == files
