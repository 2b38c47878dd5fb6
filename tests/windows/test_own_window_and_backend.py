"""The two how-tos for extensions: a custom window in every place for windows, and a store with a custom backend."""

from __future__ import annotations

import contextlib
import datetime as dt
import doctest
import json
import pickle
import random
import sqlite3
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import aggr
import windows
from tiltframe import FrameStore, TiltFrame, finish, rollup
from tiltframe.store.testing import check_backend
from tiltframe.streaming import OpenWindows
from windows import Intervals, TimeWindow
from windows.testing import check

DOCS = Path(__file__).parents[2] / "docs"
DAY = 86_400_000_000
FIRST = 19_755 * DAY  # 2 February 2024, a Friday
LENGTHS = np.array([28, 28, 35] * 4) * DAY  # twelve months of a year of 364 days
STARTS = np.concatenate([[0], np.cumsum(LENGTHS)])


@dataclass(frozen=True)
class RetailMonth(TimeWindow):
    """Months of 4, 4 and 5 weeks, as shops count them."""

    kind = "retail_month"
    contiguous = True
    length = float(28 * DAY)

    def assign(self, times):
        years, within = np.divmod(times - FIRST, STARTS[-1])
        month = np.searchsorted(STARTS, within, "right") - 1
        starts = FIRST + years * STARTS[-1] + STARTS[month]
        return Intervals(np.arange(len(times)), starts, starts + LENGTHS[month])


def month_of(time: int) -> tuple[int, int]:
    """Walk from month to month, as one would on paper."""
    start, at = FIRST, 0
    while start > time:
        at -= 1
        start -= int(LENGTHS[at % 12])
    while start + int(LENGTHS[at % 12]) <= time:
        start, at = start + int(LENGTHS[at % 12]), at + 1
    return start, start + int(LENGTHS[at % 12])


FRAME = TiltFrame([RetailMonth(), "all"], "ts", {"n": aggr.count(), "sold": aggr.sum("price")}, ["shop"])


def sales(seed: int, days: int = 400) -> pa.Table:
    draw = random.Random(seed)
    times = [FIRST + draw.randrange(days * DAY) for _ in range(200)]
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "shop": [draw.choice("ab") for _ in times],
            "price": [draw.randrange(100) for _ in times],
        }
    )


def by_hand(rows: pa.Table) -> dict[tuple, tuple[int, int]]:
    counts: dict[tuple, tuple[int, int]] = {}
    columns = rows["ts"].cast(pa.int64()), rows["shop"], rows["price"]
    for time, shop, price in zip(*(column.to_pylist() for column in columns), strict=True):
        n, sold = counts.get((month_of(time)[0], shop), (0, 0))
        counts[month_of(time)[0], shop] = (n + 1, sold + price)
    return counts


def of_results(results: pa.Table) -> dict[tuple, tuple[int, int]]:
    months = results.filter(pa.array([level == "retail_month" for level in results["level"].to_pylist()]))
    epoch, us = dt.datetime(1970, 1, 1, tzinfo=dt.UTC), dt.timedelta(microseconds=1)
    return {((r["window_start"] - epoch) // us, r["shop"]): (r["n"], r["sold"]) for r in months.to_pylist()}


def test_a_window_of_ones_own_obeys_the_laws():
    check(RetailMonth(), lambda time: [month_of(time)])


def test_a_window_of_ones_own_is_a_level_of_a_rollup_and_pickles():
    rows = sales(1)
    assert of_results(finish(rollup(rows, pickle.loads(pickle.dumps(FRAME))), FRAME)) == by_hand(rows)


def test_a_window_of_ones_own_in_a_stream():
    rows, stream, emitted = sales(2).sort_by("ts"), OpenWindows(FRAME), []
    for begin in range(0, 200, 20):
        batch = rows.slice(begin, 20)
        assert stream.add_rows(batch).num_rows == 0  # none is late
        emitted.append(stream.results(stream.advance(batch["ts"].cast(pa.int64()).to_pylist()[-1], now=0)))
    emitted.append(stream.results(stream.close()))
    assert of_results(pa.concat_tables(emitted)) == by_hand(rows)


@pytest.fixture
def registered():
    windows.register(RetailMonth)
    yield
    windows.unregister(RetailMonth)


@pytest.mark.store
def test_a_window_of_ones_own_is_a_level_of_a_store(tmp_path, registered):
    frame = TiltFrame(["1d", "retail_month", "all"], "ts", FRAME.measures, ["shop"])
    assert TiltFrame.from_dict(json.loads(json.dumps(frame.describe()))) == frame
    kept_frame = TiltFrame(frame.levels[:2], "ts", FRAME.measures, ["shop"])
    store, rows = FrameStore(str(tmp_path / "s"), kept_frame), sales(3)
    for number in range(4):
        store.append(rollup(rows.slice(number * 50, 50), kept_frame), "w", number)
    for _ in range(2):
        again = FrameStore(str(tmp_path / "s"))
        assert again.frame == kept_frame
        assert of_results(again.query("retail_month")) == by_hand(rows)
        assert again.verify().problems == ()
        store.compact()
    end = month_of(FIRST + 100 * DAY)[0]
    results = again.query("retail_month", within=(FIRST // 1000, end // 1000), fill=True)
    assert sorted(set(results["window_start"].cast(pa.int64()).to_pylist())) == starts_by_hand(FIRST, end)


def starts_by_hand(low: int, high: int) -> list[int]:
    starts = [low]
    while month_of(starts[-1])[1] < high:
        starts.append(month_of(starts[-1])[1])
    return starts


@pytest.mark.parametrize("span", [1, 28 * DAY, 5 * 365 * DAY])
def test_windows_of_ones_own_are_listed(span):
    first = starts_by_hand(FIRST, FIRST + 6 * 365 * DAY)
    for low in (FIRST, FIRST + 1, FIRST + 40 * DAY):
        assert RetailMonth().starts_between(low, low + span).tolist() == [s for s in first if low <= s < low + span]
        assert RetailMonth().first_start_from(low) == min(s for s in first if s >= low)


@pytest.mark.store
def test_what_is_not_registered_is_refused_where_text_is_needed(tmp_path):
    for needs_text in (FRAME.describe, lambda: FrameStore(str(tmp_path / "s"), FRAME).append(rollup(sales(3), FRAME))):
        with pytest.raises(ValueError, match=r"windows of 'retail_month' cannot be read .* register it") as refused:
            needs_text()
        assert len(str(refused.value)) <= 300
    assert not list(tmp_path.iterdir())


def test_a_window_of_ones_own_nests_by_its_starts():
    assert TiltFrame(["1h", "1d", RetailMonth(), "all"], "ts", FRAME.measures).disjoint
    for levels, message in (
        (["10d", RetailMonth()], "inside the window of 10d"),
        ([RetailMonth(), "1y"], "1y have an edge"),
    ):
        with pytest.raises(ValueError, match=message):
            TiltFrame(levels, "ts", FRAME.measures)


def one_file() -> type:
    """Take the class of the how-to, as it stands there."""
    names: dict[str, object] = {"__name__": __name__}
    examples = doctest.DocTestParser().get_examples((DOCS / "adding-a-backend.md").read_text())
    for example in examples[
        : next(at for at, example_of_page in enumerate(examples) if "class OneFile" in example_of_page.source) + 1
    ]:
        exec(example.source, names)
    return names["OneFile"]


@dataclass(frozen=True)
class SQLite(one_file()):
    """The backend of the how-to in a table of SQLite: what is held is one row of it."""

    def load(self):
        with contextlib.closing(self._open()) as db:
            return self._held(db)

    @contextlib.contextmanager
    def locked_store(self):
        with contextlib.closing(self._open()) as db:
            db.execute("BEGIN IMMEDIATE")
            state = self._held(db)
            yield state
            db.execute("INSERT OR REPLACE INTO store VALUES (0, ?)", [pickle.dumps(state)])
            db.execute("COMMIT")

    def _open(self):
        db = sqlite3.connect(self.path, timeout=60, isolation_level=None)
        db.execute("CREATE TABLE IF NOT EXISTS store (id INTEGER PRIMARY KEY, held BLOB)")
        return db

    def _held(self, db):
        row = db.execute("SELECT held FROM store").fetchone()
        empty = {"version": 0, "manifest": None, "schema": None, "parts": {}, "records": {}, "rows": {}}
        return pickle.loads(row[0]) if row else empty


@pytest.mark.long
@pytest.mark.store
def test_a_backend_of_ones_own_keeps_the_protocol(tmp_path):
    numbers = iter(range(10**6))
    check_backend(lambda: SQLite(f"sqlite://{tmp_path}/{next(numbers)}.db"))


@pytest.mark.store
def test_a_store_on_a_backend_of_ones_own_answers_as_one_in_a_folder(tmp_path, monkeypatch):
    """Opened by its address, appended, merged, grown by a measure and a level, and asked: the same bits in both."""
    folder = tmp_path / "installed" / "own_backend-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: own_backend\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(f"[tiltframe.backends]\nsqlite = {__name__}:SQLite\n")
    frame = TiltFrame(["1h", "1d"], "ts", {"n": aggr.count(), "sold": aggr.sum("price")}, ["shop"])
    with pytest.raises(ValueError, match="sqlite"):  # before it is installed
        FrameStore(f"sqlite://{tmp_path}/own.db", frame)
    monkeypatch.syspath_prepend(folder.parent)
    more = TiltFrame(["1h", "1d", "1mo"], "ts", {**frame.measures, "mean": aggr.avg("price")}, ["shop"])
    answers = []
    for place in (f"sqlite://{tmp_path}/own.db", str(tmp_path / "folder")):
        store = FrameStore(place, frame)
        for number in range(3):
            assert store.append(rollup(sales(number, 40), frame), "w", number)
            assert not store.append(rollup(sales(number, 40), frame), "w", number)  # each commit once
        store.compact()
        store.evolve(more, sales(0).schema)
        assert store.append(rollup(sales(9, 40), more), "w", 9)
        assert store.verify().problems == ()
        again = FrameStore(place)
        answers.append([again.query(per, order_by=["window_start", "shop"]) for per in ("1h", "1d", "1mo")])
    assert all(own.equals(folder) for own, folder in zip(*answers, strict=True))
    rows = pa.concat_tables([sales(number, 40) for number in (0, 1, 2, 9)])
    assert sum(answers[0][2]["sold"].to_pylist()) == sum(rows["price"].to_pylist())
