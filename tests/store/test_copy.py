"""Copies have the same bits and records in another place. They may be killed at any time, and updated later."""

from __future__ import annotations

import os
import random
import time

import pytest

from aggr.arrow.bit_equality import digest
from tests.command_line import call
from tests.crash_processes import (
    FRAME,
    RETENTION,
    SPAN,
    CrashProcesses,
    append,
    compact,
    copy,
    last_number,
    replacement_rows,
    rows,
)
from tiltframe import FrameStore, StoreError, TiltFrame, rollup
from tiltframe.store.backends import Record
from tiltframe.store.changes import copying
from tiltframe.store.testing import MemoryBackend

pytestmark = [pytest.mark.store, pytest.mark.slow, pytest.mark.filterwarnings("ignore::tiltframe.store.Expired")]
KILLS = int(os.environ.get("TRIALS", "12"))  # random moments; test_interleavings.py crashes at each call
NOW = "2030-01-01"


def filled(path, commits=5):
    store = FrameStore(path, FRAME, retention=RETENTION)
    for number in range(commits):
        store.append(rollup(rows("w", number), FRAME), "w", number, recorded={f"file {number}": number})
    return store


def same(first, other):
    """Compare results at every level, and records, to the bit."""
    for level in FRAME.levels:
        tables = [store.query(level.name, now=NOW) for store in (first, other)]
        assert tables[0].schema == tables[1].schema
        assert [digest(column) for column in tables[0].columns] == [digest(column) for column in tables[1].columns]
    records = [store.backend.snapshot(None).texts for store in (first, other)]
    for record in records:
        record.pop(copying.COPY, None)
    assert records[0] == records[1]


def test_a_store_goes_into_a_database_and_back(tmp_path, postgres):
    store = filled(str(tmp_path / "a"))
    states = sum(level.rows for level in store.inspect().levels)
    assert store.copy_to(postgres) == states
    in_database = FrameStore(postgres)
    same(in_database, store)
    assert in_database.retention == store.retention
    assert in_database.copy_to(str(tmp_path / "b"), name="back") == states
    back = FrameStore(str(tmp_path / "b"))
    same(back, store)
    assert (back.name, back.verify().problems, in_database.verify().problems) == ("back", (), ())
    assert not back.append(rollup(rows("w", 4), FRAME), "w", 4)  # tried again: counts once
    assert back.append(rollup(rows("w", 5), FRAME), "w", 5)


@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_a_copy_is_brought_up_to_date(tmp_path, kind):
    store, target = filled(str(tmp_path / "a")), MemoryBackend()
    place = str(tmp_path / "b")

    def copied():
        written = copying.copy_store(store.backend, target, "b") if kind == "memory" else store.copy_to(place, name="b")
        same(FrameStore(target if kind == "memory" else place), store)
        return written

    copied_states = copied()
    assert copied() == 0
    store.append(rollup(rows("w", 5), FRAME), "w", 5)
    store.replace(rollup(replacement_rows(1), FRAME), SPAN)
    assert 0 < copied() < copied_states
    store.compact()
    store.expire(now="2024-05-01")
    store.evolve(TiltFrame([*FRAME.levels, "1h"], FRAME.time, FRAME.measures, FRAME.keys))
    store.append(rollup(rows("w", 6), store.frame), "w", 6)
    copied()
    copied_store = FrameStore(target if kind == "memory" else place)
    assert copied_store.frame == store.frame
    assert copied_store.verify().problems == ()
    copied_store.append(rollup(rows("w", 7), store.frame), "w", 7)
    with pytest.raises(StoreError, match="has been written to, or compacted, since it was copied"):
        copied()


def test_places_that_hold_another_store_are_refused(tmp_path, capfd):
    store, other = filled(str(tmp_path / "a")), filled(str(tmp_path / "b"), 1)
    with pytest.raises(StoreError, match="exists, and is not a copy of"):
        store.copy_to(other.uri)
    with pytest.raises(ValueError, match="onto itself"):
        store.copy_to(store.uri)
    assert store.copy_to(tmp_path / "c") > 0
    with pytest.raises(StoreError, match="exists, and is not a copy of"):
        other.copy_to(tmp_path / "c")
    status, _, err = call(capfd, "copy", store.uri, str(tmp_path / "d"))
    assert (status, "states copied from" in err) == (0, True)
    same(FrameStore(tmp_path / "d"), store)
    assert call(capfd, "copy", str(tmp_path / "nothing"), str(tmp_path / "e"))[0] == 2


class Full(MemoryBackend):
    """Has no place for the third part that is written, once."""

    def write(self, level, states):
        if len(self.tables.rows) == 2 and "full" not in self.tables.records:
            self.tables.records["full"] = Record(0, "true")
            raise StoreError("the disk is full")
        return super().write(level, states)


def test_what_was_written_before_a_failure_is_not_written_again(tmp_path, monkeypatch):
    monkeypatch.setattr(copying, "_PROGRESS_SECONDS", 0.0)
    store, target = filled(str(tmp_path / "a"), 20), Full()
    states = sum(level.rows for level in store.inspect().levels)
    with pytest.raises(StoreError, match="the disk is full"):
        copying.copy_store(store.backend, target, "b")
    assert FrameStore(target).query("10m").num_rows == 0
    assert 0 < copying.copy_store(store.backend, target, "b") < states
    assert FrameStore(target).query("10m").equals(store.query("10m"))


@pytest.mark.long
def test_kills_leave_nothing_or_a_whole_copy(tmp_path):
    path, place = str(tmp_path / "a"), str(tmp_path / "b")
    chance, processes = random.Random(int(os.environ.get("SEED", "7"))), CrashProcesses(tmp_path)
    store, completed = filled(path, 20), 0
    for turn in range(KILLS):
        working = processes.start(chance.choice([append, compact]).__name__, path)
        copies = processes.start(copy.__name__, path, place)
        if turn % 3 == 0:  # it has been through
            processes.wait(copies)
        time.sleep(chance.random() * 0.3)
        processes.kill(copies)
        processes.kill(working)
        try:
            copied_store = FrameStore(place)
        except StoreError:
            continue
        counts = {sum(copied_store.query(level, keys=[], measures=["n"])["n"].to_pylist()) for level in ("10s", "10m")}
        assert len(counts) == 1, counts
        number = last_number(copied_store, "w")
        assert counts == {4 * (number + 1)}, (counts, number)
        completed += number >= 0
    processes.close()
    assert completed, "no copy was ever whole"
    store.copy_to(place)
    same(FrameStore(place), store)
    assert FrameStore(place).verify().problems == ()
