"""A store with missing data raises an error, and `check` reports all damage."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
from contextlib import contextmanager
from pathlib import Path

import adbc_driver_postgresql.dbapi as dbapi
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import aggr
from aggr.arrow.versions import has_page_checksums
from tests.crash_processes import BEGIN, FRAME, rows
from tests.store.test_store_damage import LEVELS, files, make_store, one_sentence
from tiltframe import FrameStore, StoreError, TiltFrame, rollup
from tiltframe.cli.app import main
from tiltframe.store import DamagedStore, address
from tiltframe.store.backends.delta import files as stored_files
from tiltframe.store.backends.delta.backend import DeltaBackend

pytestmark = pytest.mark.store

COUNT_FRAME = TiltFrame(["1m"], "ts", {"n": aggr.count()}, ["k"])

CHECKSUMS = {"write_page_checksum": True} if has_page_checksums() else {}


@contextmanager
def at_most(seconds: int):
    """Fail what hangs."""

    def ring(*_):
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


LOG = Path("tiltframe/_delta_log")


def last_entry(path: Path) -> Path:
    return files(path / LOG, "json")[-1]


def spoil(file: Path, damage: str) -> None:
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(b"")


@pytest.mark.parametrize("damage", ["missing", "empty"])
@pytest.mark.parametrize("compacted", [False, True])
def test_a_last_entry_that_is_lost_is_noticed(tmp_path, compacted, damage):
    """Of the six commits that were acknowledged none may vanish."""
    store = make_store(tmp_path / "s", 6)
    if compacted:
        store.compact()
    spoil(last_entry(tmp_path / "s"), damage)
    states = rollup(rows("v", 9), FRAME)
    for work in (
        lambda: FrameStore(tmp_path / "s").query("10m"),
        lambda: FrameStore(tmp_path / "s").append(states, "v", 1),
        lambda: FrameStore(tmp_path / "s").compact(),
        lambda: store.query("10s"),
    ):
        with pytest.raises(DamagedStore, match="is damaged") as caught:
            work()
        one_sentence(caught.value)


@pytest.mark.parametrize("count", [1, 2])
def test_a_store_tells_of_lost_entries(tmp_path, count):
    store = FrameStore(tmp_path / "s", COUNT_FRAME)
    for number in range(4):
        store.append(rollup(rows("w", number), COUNT_FRAME), "w", number)
    for _ in range(count):
        last_entry(tmp_path / "s").unlink()
    with pytest.raises(DamagedStore, match=r"its log ends at version \d, and the last commit has version 4"):
        FrameStore(tmp_path / "s")
    assert len(store.verify().problems) == 1


def test_a_store_that_has_lost_its_log_says_so(tmp_path):
    store = make_store(tmp_path / "s", 1)
    shutil.rmtree(tmp_path / "s" / LOG)
    for work in (lambda: FrameStore(tmp_path / "s", FRAME), lambda: store.query("1m")):
        with pytest.raises(StoreError, match=r"lost|missing|no such") as caught:
            work()
        one_sentence(caught.value)


def test_a_manifest_that_has_lost_its_last_entry(tmp_path):
    make_store(tmp_path / "s", 1)
    FrameStore(tmp_path / "s", retention={"10s": "1d"})
    last_entry(tmp_path / "s").unlink()
    with pytest.raises(DamagedStore, match="restore the missing entries"):
        FrameStore(tmp_path / "s")


def test_an_entry_that_is_another_is_noticed(tmp_path):
    make_store(tmp_path / "s", 3)
    log = files(tmp_path / "s" / LOG, "json")
    entry = log[2].read_bytes()
    for wrong in (log[1].read_bytes(), entry.replace(b"level=1m", b"level=1x"), entry.replace(b'"1m"', b'"2m"')):
        assert wrong != entry
        log[2].write_bytes(wrong)
        with pytest.raises(DamagedStore, match=r"2\.json of its log has changed since it was written"):
            FrameStore(tmp_path / "s").query("10m")
        log[2].write_bytes(entry)
    assert FrameStore(tmp_path / "s").verify().ok


def test_a_head_that_is_too_low_does_no_harm(tmp_path):
    """As of a writer that was killed before it had noted how far the log goes; the next one notes it."""
    store, opened = make_store(tmp_path / "s", 2), FrameStore(tmp_path / "s")
    assert sum(opened.query("10m").column("n").to_pylist()) == 8
    head = tmp_path / "s" / "tiltframe" / "_head"
    before = head.read_bytes()
    store.append(rollup(rows("w", 2), FRAME), "w", 2)
    head.write_bytes(before)
    again = FrameStore(tmp_path / "s")
    for open_store in (again, opened):
        assert sum(open_store.query("10m").column("n").to_pylist()) == 12
    again.append(rollup(rows("w", 3), FRAME), "w", 3)
    assert json.loads(head.read_text())["version"] == 4
    assert len(json.loads(head.read_text())["digests"]) == 5


def test_a_whole_store_has_no_problems(place):
    store = FrameStore(place, FRAME, retention={"10s": "2m", "1m": "20m"})
    for number in range(12):
        store.append(rollup(rows("w", number), FRAME), "w", number)
    seen = []
    report = store.verify(lambda done, part_count: seen.append((done, part_count)))
    assert report.ok, report.problems
    assert (report.levels, report.parts) == (LEVELS, 36)
    assert seen[-1][0] == seen[-1][1] == 2 * report.rows
    for work in (
        store.compact,
        lambda: store.replace(rollup(rows("r", 0), FRAME), (BEGIN, BEGIN + 90_000)),
        lambda: store.expire(now=BEGIN + 600_000),
    ):
        work()
        assert store.verify().problems == ()


def one_more(table: pa.Table, name: str, field: str) -> pa.Table:
    """Add one to a field of states."""
    states = table.column(name).combine_chunks()
    fields = {f.name: states.field(f.name) for f in states.type}
    fields[field] = pc.add(fields[field], pa.scalar(1, fields[field].type))
    more = pa.StructArray.from_arrays(list(fields.values()), fields=list(states.type))
    return table.set_column(table.schema.get_field_index(name), name, more)


def test_levels_that_disagree_are_found(tmp_path, monkeypatch):
    """States of one level that decode, and are others than those of the level below: only comparing tells."""
    store = make_store(tmp_path / "s", 2)
    monkeypatch.setattr(stored_files, "_check_file", lambda *_: None)
    file = sorted((tmp_path / "s" / "tiltframe" / "level=1m").rglob("*.parquet"))[0]
    table = pq.read_table(file, partitioning=None)
    pq.write_table(one_more(table, "n", "count"), file, **CHECKSUMS)
    problems = FrameStore(store.uri).verify().problems
    assert [problem.split(" between")[0] for problem in problems] == ["10s and 1m disagree", "1m and 10m disagree"]
    assert all(": in n; restore the store from a backup" in problem for problem in problems)


def test_states_that_are_not_as_merging_gives_them_are_found(tmp_path, monkeypatch):
    store = make_store(tmp_path / "s", 1)
    monkeypatch.setattr(stored_files, "_check_file", lambda *_: None)
    file = sorted((tmp_path / "s" / "tiltframe" / "level=10m").rglob("*.parquet"))[0]
    table = pq.read_table(file, partitioning=None)
    pq.write_table(one_more(table, "n", "version"), file, **CHECKSUMS)
    problems = FrameStore(store.uri).verify().problems
    assert len(problems) >= 1
    assert all("10m" in problem and "n" in problem for problem in problems)


def test_check_finds_every_damaged_file(tmp_path):
    store = make_store(tmp_path / "s", 3)
    data_files = [tmp_path / "s" / "tiltframe" / part.name for part in store.backend.snapshot().parts]
    for file in data_files[::2]:
        content = file.read_bytes()
        file.write_bytes(content[:-20] + bytes([content[-20] ^ 1]) + content[-19:])
    problems = FrameStore(tmp_path / "s").verify().problems
    assert len(problems) == len(data_files[::2])
    for file in data_files[::2]:
        assert any(file.name in problem for problem in problems)


def test_an_object_store_keeps_a_store(tmp_path, monkeypatch):
    """deltalake's own storage, as for objects: no head, no looking at files; here it keeps them in a folder."""
    (tmp_path / "s" / "tiltframe").mkdir(parents=True)
    uri = f"file://{tmp_path / 's'}"
    monkeypatch.setattr(address, "backend_at", lambda *_: DeltaBackend(uri))
    store = FrameStore(uri, FRAME)
    for number in range(3):
        assert store.append(rollup(rows("w", number), FRAME), "w", number, {f"file {number}": number})
    again = FrameStore(uri)
    again.compact()
    assert again.verify().problems == ()
    assert sum(again.query("10m").column("n").to_pylist()) == 12
    assert again.recorded(["file 1"]) == {"file 1": 1}
    assert not (tmp_path / "s" / "tiltframe" / "_head").exists()


@pytest.mark.long
def test_a_database_that_has_lost_rows_is_found(postgres):
    store = FrameStore(postgres, FRAME)
    for number in range(3):
        store.append(rollup(rows("w", number), FRAME), "w", number)
    assert store.verify().ok
    with dbapi.connect(postgres, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("DELETE FROM frame_states WHERE _part = (SELECT min(part) FROM frame_parts WHERE level = '1m')")
    problems = FrameStore(postgres).verify().problems
    assert len(problems) == 1
    assert "has 0 rows of the part" in problems[0]
    with dbapi.connect(postgres, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("DELETE FROM frame_parts WHERE part = (SELECT min(part) FROM frame_parts WHERE level = '1m')")
    problems = FrameStore(postgres).verify().problems
    assert [problem.split(" between")[0] for problem in problems] == ["10s and 1m disagree", "1m and 10m disagree"]


def test_the_command_line_checks(tmp_path, capfd):
    make_store(tmp_path / "s", 2)
    main(["check", str(tmp_path / "s")])
    assert capfd.readouterr().out == f"{tmp_path / 's'}: 3 levels, 6 parts, 12 states: no problem found\n"
    main(["check", str(tmp_path / "s"), "--format", "json"])
    assert json.loads(capfd.readouterr().out)["ok"] is True
    last_entry(tmp_path / "s").unlink()
    for form in ("table", "json"):
        with pytest.raises(SystemExit) as ended:
            main(["check", str(tmp_path / "s"), "--format", form])
        assert ended.value.code == 1
        captured = capfd.readouterr()
        assert captured.err == ""
        assert captured.out.count("\n") == 1
        assert "restore the missing entries" in captured.out


KINDS = ["pipe", "folder", "socket", "loop", "device", "nothing"]


def put(kind: str, file: Path, tmp_path: Path) -> None:
    file.unlink()
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    elif kind == "loop":
        file.symlink_to(file)
    elif kind == "device":
        file.symlink_to("/dev/zero")
    elif kind == "nothing":
        file.symlink_to(tmp_path / "none")
    else:
        bound = socket.socket(socket.AF_UNIX)
        bound.bind(short := f"/tmp/tf{os.getpid()}")
        os.rename(short, file)
        bound.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("which", ["data", "entry", "last entry", "first entry", "head"])
def test_what_is_no_file_is_told_and_never_waited_for(tmp_path, kind, which):
    store = make_store(tmp_path / "s", 2)
    file = {
        "data": tmp_path / "s" / "tiltframe" / store.backend.snapshot().of("1m")[0].name,
        "entry": files(tmp_path / "s" / LOG, "json")[1],
        "last entry": last_entry(tmp_path / "s"),
        "first entry": files(tmp_path / "s" / LOG, "json")[0],
        "head": tmp_path / "s" / "tiltframe" / "_head",
    }[which]
    put(kind, file, tmp_path)
    with at_most(20), pytest.raises(StoreError, match=r"not a regular file|missing") as caught:
        FrameStore(tmp_path / "s").query("1m")
    one_sentence(caught.value)


@pytest.mark.parametrize("kind", ["pipe", "folder", "loop"])
def test_an_entry_that_comes_while_a_store_is_open_is_a_file(tmp_path, kind):
    store = make_store(tmp_path / "s", 2)
    store.query("1m")
    entry = last_entry(tmp_path / "s")
    new = entry.with_name(f"{int(entry.stem) + 1:020d}.json")
    new.write_bytes(b"")
    put(kind, new, tmp_path)
    with at_most(20), pytest.raises(StoreError, match="not a regular file") as caught:
        store.query("1m")
    one_sentence(caught.value)


@pytest.mark.parametrize("where", ["", "tiltframe", "tiltframe/_delta_log"])
@pytest.mark.parametrize("kind", ["pipe", "loop", "device"])
def test_what_is_no_folder_is_told_and_never_waited_for(tmp_path, kind, where):
    make_store(tmp_path / "s", 2)
    folder = tmp_path / "s" / where
    shutil.rmtree(folder)
    folder.write_text("")
    put(kind, folder, tmp_path)
    with at_most(20), pytest.raises(StoreError) as caught:
        FrameStore(tmp_path / "s").query("1m")
    one_sentence(caught.value)


@pytest.mark.parametrize("kind", ["pipe", "socket", "loop", "device"])
@pytest.mark.parametrize("inside", [False, True])
def test_an_input_that_is_no_file_is_told_and_never_waited_for(tmp_path, kind, inside, capfd):
    (tmp_path / "in").mkdir()
    file = tmp_path / "in" / "rows.csv"
    file.write_text("")
    put(kind, file, tmp_path)
    argument = tmp_path / "in" if inside else file
    with at_most(20), pytest.raises(SystemExit) as ended:
        main(
            [
                "rollup",
                str(argument),
                "--time",
                "ts",
                "--measure",
                "n=count()",
                "--levels",
                "1m",
                "--store",
                str(tmp_path / "s"),
            ]
        )
    assert ended.value.code == 2
    assert capfd.readouterr().err.count("\n") == 1
    assert not (tmp_path / "s").exists()


def adds_in(line: str) -> dict | None:
    return json.loads(line).get("add")


def test_commits_that_are_durable_are_synced_before_they_are_acknowledged(tmp_path, monkeypatch):
    synced = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(os.readlink(f"/proc/self/fd/{file}")), real(file)))
    FrameStore(tmp_path / "n", FRAME).append(rollup(rows("w", 0), FRAME), "w", 0)
    assert not synced
    store = FrameStore(tmp_path / "s", FRAME, durable=True)
    for number in range(2):
        synced.clear()
        store.append(rollup(rows("w", number), FRAME), "w", number)
        table, entry = tmp_path / "s" / "tiltframe", last_entry(tmp_path / "s")
        written = [table / add["path"] for add in map(adds_in, entry.read_text().splitlines()) if add]
        assert len(written) == 4  # a level each, and the number of the writer
        for file in written:
            order = [synced[::-1].index(str(path)) for path in (entry.parent, entry, file)]
            assert order == sorted(order)
            folders = [folder for folder in file.parents if folder.is_relative_to(table)]
            assert len(folders) >= 2
            assert {str(folder) for folder in folders} <= set(synced)  # a new folder has an entry in its parent
    assert store.verify().ok


@pytest.mark.parametrize("name", ["a%20b", "%C3%BC"])
def test_a_folder_that_delta_lake_would_read_as_another_is_refused(tmp_path, name):
    frame = TiltFrame(["1m"], "ts", {"n": aggr.count()})
    with pytest.raises(ValueError, match="which Delta Lake decodes to another character; choose another folder"):
        FrameStore(tmp_path / name, frame)
    assert not list(tmp_path.iterdir())
    assert FrameStore(tmp_path / "5% of ü", frame).last_commit("w") is None
