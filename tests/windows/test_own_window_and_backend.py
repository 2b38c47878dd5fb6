"""Trials of the two how-tos: a window of one's own wherever windows go, and a backend of one's own under a whole store.

What a window of one's own cannot be yet, a level of a store, is refused by its name.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import doctest
import pickle
import random
import sqlite3
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import aggr
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

    name = "retail_month"
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
    found: dict[tuple, tuple[int, int]] = {}
    columns = rows["ts"].cast(pa.int64()), rows["shop"], rows["price"]
    for time, shop, price in zip(*(column.to_pylist() for column in columns), strict=True):
        n, sold = found.get((month_of(time)[0], shop), (0, 0))
        found[month_of(time)[0], shop] = (n + 1, sold + price)
    return found


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
    rows, windows, emitted = sales(2).sort_by("ts"), OpenWindows(FRAME), []
    for begin in range(0, 200, 20):
        batch = rows.slice(begin, 20)
        assert windows.add_rows(batch).num_rows == 0  # none is late
        emitted.append(windows.results(windows.advance(batch["ts"].cast(pa.int64()).to_pylist()[-1], now=0)))
    emitted.append(windows.results(windows.close()))
    assert of_results(pa.concat_tables(emitted)) == by_hand(rows)


@pytest.mark.store
def test_a_window_of_ones_own_is_no_level_of_a_store_yet(tmp_path):
    with pytest.raises(ValueError, match=r"a store keeps levels .*retail_month is none"):
        FrameStore(str(tmp_path / "s"), FRAME).append(rollup(sales(3), FRAME), "w", 0)
    assert not list(tmp_path.iterdir())


def one_file() -> type:
    """Take the class of the how-to, as it stands there."""
    names: dict[str, object] = {"__name__": __name__}
    examples = doctest.DocTestParser().get_examples((DOCS / "adding-a-backend.md").read_text())
    for example in examples[: next(at for at, one in enumerate(examples) if "class OneFile" in one.source) + 1]:
        exec(example.source, names)
    return names["OneFile"]


@dataclass(frozen=True)
class SQLite(one_file()):
    """The backend of the how-to in a table of SQLite: what is held is one row of it."""

    def load(self):
        with contextlib.closing(self._open()) as db:
            return self._held(db)

    @contextlib.contextmanager
    def changed(self):
        with contextlib.closing(self._open()) as db:
            db.execute("BEGIN IMMEDIATE")
            held = self._held(db)
            yield held
            db.execute("INSERT OR REPLACE INTO store VALUES (0, ?)", [pickle.dumps(held)])
            db.execute("COMMIT")

    def _open(self):
        db = sqlite3.connect(self.uri, timeout=60, isolation_level=None)
        db.execute("CREATE TABLE IF NOT EXISTS store (id INTEGER PRIMARY KEY, held BLOB)")
        return db

    def _held(self, db):
        row = db.execute("SELECT held FROM store").fetchone()
        return (
            pickle.loads(row[0]) if row else {"manifest": None, "schema": None, "parts": {}, "numbers": {}, "rows": {}}
        )


@pytest.mark.store
def test_a_backend_of_ones_own_keeps_the_protocol(tmp_path):
    numbers = iter(range(10**6))
    check_backend(lambda: SQLite(str(tmp_path / f"{next(numbers)}.db")))


@pytest.mark.store
def test_a_store_on_a_backend_of_ones_own_answers_as_one_in_a_folder(tmp_path):
    """Appended, merged, grown by a measure and a level, and asked: the same bits in both."""
    frame = TiltFrame(["1h", "1d"], "ts", {"n": aggr.count(), "sold": aggr.sum("price")}, ["shop"])
    more = TiltFrame(["1h", "1d", "1mo"], "ts", {**frame.measures, "mean": aggr.avg("price")}, ["shop"])
    answers = []
    for place in (SQLite(str(tmp_path / "own.db")), str(tmp_path / "folder")):
        store = FrameStore(place, frame)
        for number in range(3):
            assert store.append(rollup(sales(number, 40), frame), "w", number)
            assert not store.append(rollup(sales(number, 40), frame), "w", number)  # each commit once
        store.compact()
        store.evolve(more, sales(0).schema)
        assert store.append(rollup(sales(9, 40), more), "w", 9)
        assert store.check().problems == ()
        again = FrameStore(place)
        answers.append([again.query(per, order_by=["window_start", "shop"]) for per in ("1h", "1d", "1mo")])
    assert all(own.equals(folder) for own, folder in zip(*answers, strict=True))
    rows = pa.concat_tables([sales(number, 40) for number in (0, 1, 2, 9)])
    assert sum(answers[0][2]["sold"].to_pylist()) == sum(rows["price"].to_pylist())
