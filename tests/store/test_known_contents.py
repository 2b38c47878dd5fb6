"""The contents of a store after commits of the same object, which are known without reading the log again."""

from __future__ import annotations

import errno
import os
import threading

import pyarrow as pa
import pytest

import aggr
from tiltframe import FrameStore, TiltFrame, rollup
from tiltframe.store import DamagedStore, UnreachableStore
from tiltframe.store.backends.delta import backend

FRAME = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}, ["host"])
TIMEOUT_SECONDS = 30


def rows(minute: int) -> pa.Table:
    return pa.table({"ts": [minute * 60_000], "host": ["a"]})


def test_contents_after_commits_are_those_of_the_log(tmp_path):
    store = FrameStore(tmp_path / "s", FRAME)
    works = [
        *(
            lambda number=number: store.append_rows(rows(number), f"writer {number % 3}", number)
            for number in range(40)
        ),
        store.compact,
        lambda: store.append_rows(rows(3), "last", 1),
        lambda: store.replace(rollup(rows(7), FRAME), ("1970-01-01", "1970-01-02")),
    ]
    for work in works:
        work()
        own, read = (opened.backend.snapshot(None) for opened in (store, FrameStore(tmp_path / "s")))
        assert own.version == read.version
        assert own.manifest == read.manifest
        assert own.records == read.records
        assert sorted(own.parts, key=lambda part: part.name) == sorted(read.parts, key=lambda part: part.name)


def test_a_lost_file_of_records_is_an_error_of_the_store(tmp_path):
    FrameStore(tmp_path / "s", FRAME).append_rows(rows(0), "w", 0)
    late = FrameStore(tmp_path / "s")
    assert late.backend.snapshot(()) is not None  # reads the contents, but no records
    (file,) = (tmp_path / "s" / "tiltframe").glob("level=*/bucket=_/*")
    file.unlink()
    with pytest.raises(DamagedStore, match="restore"):
        late.backend.snapshot(None)


def test_queries_do_not_wait_until_a_commit_is_on_the_disk(tmp_path, monkeypatch):
    store = FrameStore(tmp_path / "s", FRAME, durable=True)
    store.append_rows(rows(0), "w", 0)
    is_waiting, may_end, sync = threading.Event(), threading.Event(), os.fsync

    def sync_slowly(opened: int) -> None:
        if "_delta_log" in os.readlink(f"/proc/self/fd/{opened}"):
            is_waiting.set()
            may_end.wait(TIMEOUT_SECONDS)
        sync(opened)

    monkeypatch.setattr(os, "fsync", sync_slowly)
    counts: list[int] = []
    writer = threading.Thread(target=store.append_rows, args=(rows(1), "w", 1))
    reader = threading.Thread(target=lambda: counts.extend(store.query("1h", keys=[]).column("n").to_pylist()))
    writer.start()
    assert is_waiting.wait(TIMEOUT_SECONDS)
    reader.start()
    reader.join(TIMEOUT_SECONDS / 3)
    is_read = bool(counts)
    may_end.set()
    writer.join()
    reader.join()
    assert is_read
    assert counts == [2]


@pytest.mark.parametrize("change", ["append", "replace", "retract"])
def test_a_change_that_fails_after_its_commit_leaves_all_files_of_the_store(change, tmp_path, monkeypatch):
    store = FrameStore(tmp_path / "s", FRAME, durable=True)
    store.append_rows(rows(0), "w", 0)
    changes = {
        "append": lambda: store.append_rows(rows(1), "w", 1),
        "replace": lambda: store.replace(rollup(rows(2), FRAME), ("1970-01-01", "1970-01-02")),
        "retract": lambda: store.retract(rollup(rows(0), FRAME), "w", 1),
    }

    def fail(table: str, version: int) -> None:
        raise OSError(errno.EIO, "the disk does not respond")

    with monkeypatch.context() as patched:
        patched.setattr(backend, "sync_commit", fail)
        with pytest.raises(UnreachableStore, match="does not respond"):
            changes[change]()
    assert FrameStore(tmp_path / "s").verify().ok
    expected = {"append": [2], "replace": [1], "retract": []}
    assert FrameStore(tmp_path / "s").query("1h", keys=[])["n"].to_pylist() == expected[change]
