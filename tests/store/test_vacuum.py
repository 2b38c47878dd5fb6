"""Vacuum: files of replaced or retracted rows are deleted, at once for an age of zero, and remaining files are
reported.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import aggr
from tests.command_line import call
from tiltframe import FrameStore, TiltFrame, rollup
from tiltframe.store.backends import Vacuumed
from tiltframe.store.backends.delta.head import Head

pytestmark = pytest.mark.store

FRAME = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}, ["who"])
ROWS = pa.table({"ts": [0, 1, 60_000], "who": ["alice", "bob", "alice"]})


def erased(place) -> FrameStore:
    """Return a store from which all rows of one key were taken out."""
    store = FrameStore(place, FRAME)
    store.append(rollup(ROWS, FRAME), "w", 1)
    store.retract(rollup(ROWS.take([0, 2]), FRAME), "eraser", 1)
    return store


def files_about(folder: Path, who: str) -> list[Path]:
    """Return the Parquet files that have a key."""
    files = [file for file in folder.rglob("*.parquet") if "who" in pq.read_schema(file).names]
    return [file for file in files if who in pq.read_table(file, columns=["who"])["who"].to_pylist()]


def test_a_retracted_key_leaves_the_disk_when_its_files_are_old_enough(tmp_path):
    store = erased(tmp_path / "s")
    assert len(files_about(tmp_path / "s", "alice")) == 2
    recent = store.vacuum("1h")
    assert (recent, recent.kept) == (0, 2)
    assert abs(recent.kept_until - time.time() - 3600) < 60
    assert len(files_about(tmp_path / "s", "alice")) == 2
    time.sleep(1.1)
    assert store.vacuum("1s") == 2
    assert files_about(tmp_path / "s", "alice") == []
    assert FrameStore(tmp_path / "s").query("1h")["who"].to_pylist() == ["bob"]
    assert store.verify().problems == ()


def test_an_age_of_zero_removes_everything_that_cannot_be_read(tmp_path):
    store = erased(tmp_path / "s")
    written = store.backend.write(FRAME.levels[0], rollup(ROWS, FRAME))  # and never committed
    (tmp_path / "s" / "tiltframe" / "_head.0123").write_text("{}")  # by a writer that was killed
    done = store.vacuum("0s")
    assert (done, done.kept, done.kept_until) == (2 + len(written), 0, None)
    assert files_about(tmp_path / "s", "alice") == []
    assert not list((tmp_path / "s" / "tiltframe").glob("_head.*"))
    assert store.query("1h")["who"].to_pylist() == ["bob"]


def test_a_file_that_waits_for_its_commit_is_kept_as_long_as_it_is_young(tmp_path):
    store = erased(tmp_path / "s")
    parts = store.backend.write(FRAME.levels[0], rollup(ROWS, FRAME))
    assert store.vacuum("1m").kept == 2 + len(parts)


def test_plain_tables_are_cleaned_too(tmp_path):
    store = FrameStore(tmp_path / "s", FRAME)
    store.append(rollup(ROWS, FRAME), "w", 1)
    store.export("1h")
    store.retract(rollup(ROWS.take([0, 2]), FRAME), "eraser", 1)
    store.export("1h")
    assert len(files_about(tmp_path / "s", "alice")) == 3
    store.vacuum("0s")
    assert files_about(tmp_path / "s", "alice") == []


def test_a_database_says_what_it_keeps(postgres):
    store = erased(postgres)
    recent = store.vacuum("1h")
    assert (recent, recent.kept) == (0, 2)
    assert abs(recent.kept_until - time.time() - 3600) < 60
    done = store.vacuum("0s")
    assert done > 0
    assert (done.kept, done.kept_until) == (0, None)


def test_the_command_says_what_is_kept_until_when(tmp_path, capfd):
    store = erased(tmp_path / "s")
    status, _, err = call(capfd, "compact", store.uri, "--clean", "1h")
    assert status == 0
    assert "0 old files or rows removed, 2 kept until 20" in err
    status, _, err = call(capfd, "compact", store.uri, "--clean", "0s")
    assert status == 0
    assert "2 old files or rows removed\n" in err


@pytest.mark.parametrize("age", ["0x", "-1s", "1 parsec", 0])
def test_ages_that_cannot_be_read_are_refused(age, tmp_path):
    with pytest.raises(ValueError, match=r"duration|window|length"):
        erased(tmp_path / "s").vacuum(age)


def test_what_two_vacuums_did_is_added_up():
    both = Vacuumed(3) + Vacuumed(2, kept=1, kept_until=60.0)
    assert (both, both.kept, both.kept_until) == (5, 1, 60.0)


def age_files(folder: Path, seconds: float) -> None:
    """Set the times of all files in a folder to ``seconds`` ago."""
    at = time.time() - seconds
    for file in folder.rglob("*"):
        os.utime(file, (at, at))


def test_the_log_of_a_store_that_is_vacuumed_stays_short(tmp_path):
    store = FrameStore(tmp_path / "s", FRAME)
    log = tmp_path / "s" / "tiltframe" / "_delta_log"
    early = FrameStore(tmp_path / "s", FRAME)
    for number in range(100):
        store.append_rows(ROWS, "w", number)
        if number == 0:
            assert early.query("1h", keys=[])["n"].to_pylist() == [3]
        if number % 10 == 0:
            store.compact()
            store.vacuum("10m")
        age_files(log, 120)
    assert len(list(log.iterdir())) < 60
    assert early.query("1h", keys=[])["n"].to_pylist() == [300]
    assert FrameStore(tmp_path / "s").query("1h", keys=[])["n"].to_pylist() == [300]
    assert store.verify().ok


def test_a_process_that_commits_for_long_keeps_only_entries_of_current_files(tmp_path):
    store = FrameStore(tmp_path / "s", FRAME)
    reader = FrameStore(tmp_path / "s", FRAME)
    for number in range(200):
        store.append_rows(ROWS, f"w{number % 3}", number)
        if number % 20 == 19:
            assert reader.query("1h", keys=[])["n"].to_pylist() == [3 * (number + 1)]
            store.compact()
            store.vacuum("0s")
    for opened in (store, reader):
        assert opened.backend.snapshot(None) is not None
        table = opened.backend._open_table
        head = Head.read(str(tmp_path / "s" / "tiltframe"))
        assert table.verified_digests.keys() <= head.digests.keys()
        assert len(table.verified_digests) <= 21  # a checkpoint is written every 20 commits
        assert table.records_by_file.keys() <= {file.name for file in table.contents.records}


def test_the_age_of_a_replaced_file_is_known_after_its_entry_of_the_log_was_deleted(tmp_path):
    store = FrameStore(tmp_path / "s", FRAME)
    log = tmp_path / "s" / "tiltframe" / "_delta_log"
    store.append_rows(ROWS, "w", 0)
    store.append_rows(ROWS, "w", 1)
    store.vacuum("10m")
    age_files(tmp_path / "s", 7200)
    replaced = [part.name for part in store.at().snapshot.parts]
    store.compact()
    for number in range(2, 50):
        store.append_rows(ROWS, "w", number)
        age_files(log, 120)
    assert not (log / f"{4:020d}.json").exists()
    store.vacuum("10m")
    assert all((tmp_path / "s" / "tiltframe" / name).exists() for name in replaced)
    store.vacuum("0s")
    assert not any((tmp_path / "s" / "tiltframe" / name).exists() for name in replaced)


def test_a_file_that_was_never_committed_is_kept_for_a_day(tmp_path):
    store = erased(tmp_path / "s")
    (part,) = store.backend.write(FRAME.levels[0], rollup(ROWS, FRAME).slice(0, 1))
    file = tmp_path / "s" / "tiltframe" / part.name
    age_files(file.parent, 80_000)
    store.vacuum("1h")
    assert file.exists()
    age_files(file.parent, 90_000)
    store.vacuum("1h")
    assert not file.exists()
