"""Places of stores: invalid folders, forked processes, a disk that becomes full after the commit, and many files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import aggr
from aggr.arrow.versions import has_page_checksums
from tests.command_line import call
from tiltframe import FrameStore, TiltFrame, rollup
from tiltframe.store import StoreError
from tiltframe.store.backends.delta.file_cache import FileCache

pytestmark = pytest.mark.store

FRAME = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()})


def states(count: int = 1) -> pa.Table:
    return rollup(pa.table({"ts": list(range(count))}), FRAME)


@pytest.mark.parametrize("name", ["a\\b", "a\\", "C:\\x", "a\tb", "a\nb", "a\rb", "a\x01b", "a\x7fb", "in\\side/s"])
def test_folders_that_delta_lake_cannot_name_are_refused_before_anything_is_made(name, tmp_path, capfd):
    with pytest.raises(ValueError, match="which Delta Lake does not allow in the name of a folder"):
        FrameStore(f"{tmp_path}/{name}", FRAME)
    assert list(tmp_path.iterdir()) == []
    status, _, err = call(capfd, "inspect", f"{tmp_path}/{name}")
    assert status == 2
    assert "choose another folder" in err


def test_a_relative_folder_is_refused_for_the_folder_that_it_is_in(tmp_path, monkeypatch):
    (tmp_path / "a\\b").mkdir()
    monkeypatch.chdir(tmp_path / "a\\b")
    with pytest.raises(ValueError, match="choose another folder"):
        FrameStore("store", FRAME)


@pytest.mark.parametrize("name", ["a b", "a#b", "a?b", "a*b", "é", "a'b", 'a"b', "a+b", "~", "a,b"])
def test_other_folders_hold_stores(name, tmp_path):
    FrameStore(tmp_path / name, FRAME).append(states(), "w", 1)
    assert FrameStore(tmp_path / name).query("1h")["n"].to_pylist() == [1]
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["a[b", "a]b", "a^b", "a|b"])
def test_export_refuses_folders_in_which_deltalake_cannot_write_tables(name, tmp_path):
    store = FrameStore(tmp_path / name, FRAME)
    store.append(states(), "w", 1)
    with pytest.raises(ValueError, match="rename the folder, or copy the store"):
        store.export("1h")
    assert store.query("1h")["n"].to_pylist() == [1]
    store.copy_to(tmp_path / "copy")
    FrameStore(tmp_path / "copy").export("1h")


FORKED = """
import multiprocessing, sys
import aggr, pyarrow as pa
from tiltframe import FrameStore, StoreError, TiltFrame
store = FrameStore(sys.argv[1], TiltFrame(["1m"], "ts", {"n": aggr.count()}))
store.append_rows(pa.table({"ts": [0]}), "w", 1)
def opened():
    try:
        print(FrameStore(sys.argv[1]).query("1m").num_rows, flush=True)
    except StoreError as error:
        print(error, flush=True)
def appended():
    try:
        store.append_rows(pa.table({"ts": [0]}), "w", 2)
    except StoreError as error:
        print(error, flush=True)
for work in (opened, appended):
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
"""


@pytest.mark.long
def test_a_forked_process_is_told_to_be_spawned(tmp_path):
    command = [sys.executable, "-c", FORKED, str(tmp_path / "s")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all("start processes with multiprocessing.get_context('spawn')" in line for line in lines)
    assert "panicked" not in done.stderr


def test_a_head_that_cannot_be_written_after_a_commit_is_no_failure(tmp_path):
    """A folder stands in the way of the head, as a full disk would: the rows are stored, and that is what is said."""
    store = FrameStore(tmp_path / "s", FRAME)
    store.append(states(), "w", 1)
    table = tmp_path / "s" / "tiltframe"
    head = json.loads((table / "_head").read_text())
    script = (
        "import sys, os, aggr, pyarrow as pa\n"
        "from tiltframe import FrameStore\n"
        "from tiltframe.store.backends.delta import head\n"
        "def full(*_): raise OSError(28, 'No space left on device')\n"
        "store = FrameStore(sys.argv[1])\n"
        "head.os.replace = full\n"
        "print(store.append_rows(pa.table({'ts': [0, 1]}), 'w', 2))\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "s")], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr
    assert json.loads((table / "_head").read_text()) == head
    assert not list(table.glob("_head.*"))
    again = FrameStore(tmp_path / "s")
    assert again.query("1h")["n"].to_pylist() == [3]
    assert again.append(states(4), "w", 3)
    assert json.loads((table / "_head").read_text())["version"] == head["version"] + 2
    assert again.verify().problems == ()


FULL = """
import resource, signal, sys
import pyarrow as pa
from tiltframe import FrameStore
store = FrameStore(sys.argv[1])
while store.version() < 98:
    store.record({"count": store.version()}, store.recorded(["count"]))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
print(store.append_rows(pa.table({"ts": [0, 1]}), "w", 2), store.version())
"""


@pytest.mark.long
def test_a_checkpoint_that_does_not_fit_on_the_disk_is_no_failure_of_the_commit(tmp_path):
    """Delta Lake writes a checkpoint after each hundredth commit; here files are limited to less than it needs."""
    store = FrameStore(tmp_path / "s", FRAME)
    store.append(states(), "w", 1)
    done = subprocess.run([sys.executable, "-c", FULL, store.uri], capture_output=True, text=True, check=False)
    assert done.stdout == "True 99\n", done.stderr[-2000:]
    log = tmp_path / "s" / "tiltframe" / "_delta_log"
    assert (log / f"{99:020d}.json").exists()
    assert not (log / f"{99:020d}.checkpoint.parquet").exists()
    assert FrameStore(tmp_path / "s").query("1h")["n"].to_pylist() == [3]


def test_a_cache_of_files_removes_what_was_used_least_recently():
    max_bytes = [1_000]
    cache = FileCache(lambda: max_bytes[0])
    for number in range(300):
        cache.put(number, f"rows of {number}", 10)
    assert [number for number in range(300) if cache.get(number)] == list(range(200, 300))
    cache.put(299, "again", 10)  # nothing is removed
    assert cache.get(200) == "rows of 200"
    cache.put(298, "more", 20)
    assert cache.get(201) is None
    max_bytes[0] = 30
    assert [number for number in range(300) if cache.get(number)] == [200, 298]
    cache.put(1, "more than the limit", 31)  # is not added, so that nothing is removed for it
    assert [number for number in range(300) if cache.get(number)] == [200, 298]
    cache.put(298, "more than the limit", 31)  # the earlier value is outdated
    assert [number for number in range(300) if cache.get(number)] == [200]


def test_a_cache_of_files_forgets_all_values_of_a_file():
    cache = FileCache(lambda: 1_000)
    first, second = (("folder", name, 10, 1) for name in "ab")
    cache.put("of both", 1, 10, [first, second])
    cache.put("of the first", 2, 10, [first])
    cache.put("of the second", 3, 10, [second])
    cache.put("of none", 4, 10)
    cache.put("of the second", 5, 900, [second])
    cache.forget(first)
    assert [cache.get(key) for key in ("of both", "of the first", "of the second", "of none")] == [None, None, 5, 4]
    cache.put("another", 6, 90)  # fits, because the bytes of the forgotten values are free
    assert cache.get("of none") == 4
    cache.forget(second)
    cache.forget(second)
    assert cache.get("of the second") is None


def test_rows_of_small_files_are_cached_until_the_file_changes(tmp_path):
    """Half of the range of a file is read first, and then the other half: both are right."""
    store = FrameStore(tmp_path, FRAME)
    for number in range(3):
        store.append_rows(pa.table({"ts": [60_000 * number, 3_600_000]}), "w", number + 1)
    for within, counts in (("1970-01-01,1970-01-01T00:01", [1]), ("1970-01-01T01:00,1970-01-01T02:00", [3])):
        for _ in range(2):
            assert store.query(per="1m", within=within).column("n").to_pylist() == counts
    for file in tmp_path.rglob("level=1m/**/*.parquet"):
        data = bytearray(file.read_bytes())
        if has_page_checksums():  # then a file of the same size that differs in one byte is found, too
            data[len(data) // 3] ^= 255
        else:
            del data[-9:]
        file.write_bytes(data)
    with pytest.raises(StoreError):
        store.query(per="1m").column("n")


def test_a_folder_of_a_store_is_a_path_too(tmp_path):
    with pytest.raises(ValueError, match="choose another folder"):
        FrameStore(Path(f"{tmp_path}/a\\b"), FRAME)
