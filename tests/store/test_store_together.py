"""Eight writers, four readers, a compaction, an expiry and replacements of another range, in concurrent processes."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from aggr.arrow.bit_equality import digest
from tests.crash_processes import FRAME, RETENTION, CrashProcesses, last_number, replacement_rows, rows
from tiltframe import FrameStore, finish, rollup
from tiltframe.names import LEVEL, START
from tiltframe.store.backends.delta.head import Head
from tiltframe.store.log.records import EXPIRED, available_from

pytestmark = [pytest.mark.store, pytest.mark.filterwarnings("ignore::tiltframe.store.Expired")]

PATIENCE = 900  # seconds; a worker that gets no turn in them never does
MAX_ROUNDS = 4  # times the rounds: with so many turns a worker is killed, so that slow ones get the machine


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "expiring", "rounds"), [("folder", False, 2), ("folder", True, 1), ("postgres", True, 1)]
)
@pytest.mark.long
def test_who_works_together_loses_nothing(kind, expiring, rounds, tmp_path, request):
    """Each gets its turns, however slow the machine is, and what is acknowledged is there."""
    path = str(tmp_path / "s") if kind == "folder" else request.getfixturevalue("postgres")
    processes = CrashProcesses(tmp_path)
    writers = [f"w{i}" for i in range(8)]
    FrameStore(path, FRAME, retention=RETENTION).append(rollup(rows("w0", 0), FRAME), "w0", 0)
    children = {writer: processes.start("append", path, writer) for writer in writers}
    works = ["compact", "replace", *(["expire"] if expiring else [])]
    children |= {work: processes.start(work, path) for work in works}
    # when windows expire, totals of the levels that expire shrink
    readers = ["all"] * 4 if not expiring else ["10m"] * 4
    children |= {f"reader{i}": processes.start("read", path, levels) for i, levels in enumerate(readers)}
    numbers_by_child = turns_of(processes, children, rounds)
    processes.close()
    store, parts, commits = FrameStore(path), [], 0
    for writer in writers:
        last = last_number(store, writer)
        assert last - max(numbers_by_child[writer], default=-1) <= 1 + (writer == "w0" and not numbers_by_child[writer])
        parts += [rows(writer, number) for number in range(last + 1)]
        commits += last + 1
    replaced_numbers = {int(key[2:]) for key in store.query("10m").column("k").to_pylist() if key.startswith("r:")}
    assert len(replaced_numbers) <= 1
    assert max(replaced_numbers, default=0) >= max(numbers_by_child["replace"], default=0)
    expected = rollup(pa.concat_tables([*parts, *(replacement_rows(number) for number in replaced_numbers)]), FRAME)
    for state in ("as it is", "compacted"):
        for level in ("10s", "1m", "10m"):
            kept_from = available_from(store.backend.snapshot([EXPIRED]), level)
            expected_level = expected.filter(pc.equal(expected.column(LEVEL), level))
            expected_level = finish(
                expected_level.filter(pc.greater_equal(expected_level.column(START).cast(pa.int64()), kept_from)), FRAME
            )
            got = store.query(level)
            for name in expected_level.column_names:
                assert digest(got.column(name)) == digest(expected_level.column(name)), (state, level, name)
        store.compact()
    counts = {name: len(numbers) for name, numbers in numbers_by_child.items()}
    assert min(counts.values()) >= rounds, counts
    assert commits >= rounds * len(writers)


def turns_of(processes: CrashProcesses, children: dict[str, int], rounds: int) -> dict[str, list[int]]:
    """Wait until each worker had `rounds` turns; kill each that had many, and all at the end."""
    until, running, numbers_by_child = time.monotonic() + PATIENCE, dict(children), {}
    while any(processes.count_acknowledged(child) < rounds for child in running.values()) and time.monotonic() < until:
        for name, child in list(running.items()):
            if processes.failed(child) or processes.count_acknowledged(child) >= MAX_ROUNDS * rounds:
                numbers_by_child[name] = processes.kill(running.pop(name))
        time.sleep(0.05)
    return numbers_by_child | {name: processes.kill(child) for name, child in running.items()}


RACE = """
import sys
sys.path.insert(0, {root!r})
from tests.crash_processes import FRAME, rows
from tiltframe import FrameStore, rollup
store = FrameStore({path!r}, FRAME)
print("ready", flush=True)
sys.stdin.readline()
print(*(int(store.append(rollup(rows("w", number), FRAME), "w", number)) for number in range({most})))
"""


@pytest.mark.slow
@pytest.mark.long
def test_a_commit_that_many_try_at_once_counts_once(tmp_path):
    """The numbers of one writer, by four processes at once: each number may be refused, and counts at most once."""
    path, root, commit_count = str(tmp_path / "s"), str(Path(__file__).parents[2]), 12
    script = RACE.format(root=root, path=path, most=commit_count)
    command = [sys.executable, "-c", script]
    tried = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for process in tried:
        assert process.stdout.readline() == "ready\n"
    for process in tried:
        process.stdin.write("go\n")
        process.stdin.flush()
    accepted = [[int(word) for word in process.communicate()[0].split()] for process in tried]
    assert [process.returncode for process in tried] == [0] * 4
    added = [sum(counts) for counts in zip(*accepted, strict=True)]
    assert max(added) == 1
    committed = [number for number in range(commit_count) if added[number]]
    expected = rollup(pa.concat_tables([rows("w", number) for number in committed]), FRAME)
    for level in ("10s", "1m", "10m"):
        expected_level = finish(expected.filter(pc.equal(expected.column(LEVEL), level)), FRAME)
        got = FrameStore(path).query(level)
        assert all(
            digest(got.column(name)) == digest(expected_level.column(name)) for name in expected_level.column_names
        ), level


def test_a_store_that_is_made_while_another_looks_for_it_is_found(tmp_path, monkeypatch):
    """The other looked for the log before the store was made, and for the head afterwards."""
    schema = rollup(rows("w", 0), FRAME).schema
    late, read = FrameStore(tmp_path / "s", FRAME), Head.read

    def made_meanwhile(path):
        monkeypatch.setattr(Head, "read", read)
        FrameStore(tmp_path / "s", FRAME).ensure_created(schema)
        return read(path)

    monkeypatch.setattr(Head, "read", made_meanwhile)
    assert late.backend.snapshot().version == 0


def test_a_store_that_many_make_at_once_is_made_once(tmp_path):
    schema = rollup(rows("w", 0), FRAME).schema
    with ThreadPoolExecutor(8) as pool:
        for at in range(10):
            path = tmp_path / f"s{at}"
            list(pool.map(lambda _, path=path: FrameStore(path, FRAME).ensure_created(schema), range(8)))
            assert [file.name for file in (path / "tiltframe" / "_delta_log").glob("*.json")] == [f"{0:020d}.json"]
