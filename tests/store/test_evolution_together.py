"""A store evolves while processes that are killed write, read, compact and expire: all commits are complete, and none
is lost.
"""

from __future__ import annotations

import random
import time

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from aggr.arrow.bit_equality import digest
from tests.crash_processes import FRAME, GENERATIONS, RETENTION, CrashProcesses, evolved_frame, last_number, rows
from tiltframe import FrameStore, TiltFrame, finish, rollup
from tiltframe.names import LEVEL, START
from tiltframe.store.log.records import EXPIRED, available_from

pytestmark = [
    pytest.mark.store,
    *(pytest.mark.filterwarnings(f"ignore::tiltframe.store.{name}") for name in ("Expired", "NotKnown")),
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "postgres"])
@pytest.mark.long
def test_whoever_works_while_a_store_evolves_loses_nothing(kind, tmp_path, request):
    path = str(tmp_path / "s") if kind == "folder" else request.getfixturevalue("postgres")
    chance, processes = random.Random(3), CrashProcesses(tmp_path)
    FrameStore(path, FRAME, retention=RETENTION).append(rollup(rows("w0", 0), FRAME), "w0", 0)
    writers = ["w0"]
    children = {writer: processes.start("append_evolving", path, writer) for writer in writers}
    children |= {"keeps": processes.start("maintain_evolving", path)}
    children |= {"reads": processes.start("read_evolving", path)}
    for role in ("reads", *writers):
        processes.wait(children[role], 60)
    evolved, turns, until = 0, 0, time.monotonic() + 300
    while evolved < GENERATIONS and time.monotonic() < until:
        child = processes.start("evolve", path)
        if turns % 3:  # it has evolved once, and is about to do so again
            processes.wait(child, 60)
        time.sleep(chance.random() * 0.4)
        evolved, turns = max([evolved, *processes.kill(child)]), turns + 1
        for writer in writers[: turns % 2]:  # it goes on from what is there
            children[writer, turns] = processes.kill(children[writer])
            children[writer] = processes.start("append_evolving", path, writer)
            processes.wait(children[writer], 60)
    numbers_by_child = {
        name: child if isinstance(child, list) else processes.kill(child) for name, child in children.items()
    }
    processes.close()
    store = FrameStore(path)
    store.evolve(evolved_frame(GENERATIONS), rows("w", 0).schema)
    by = {}
    for name, numbers in numbers_by_child.items():
        writer = name[0] if isinstance(name, tuple) else name
        by |= {f"{writer}:{number // 100}": number % 100 for number in numbers if writer in writers}
    lasts = {writer: last_number(store, writer) for writer in writers}
    all_rows = pa.concat_tables([rows(writer, number) for writer in writers for number in range(lasts[writer] + 1)])
    assert {f"{w}:{number}" for w in writers for number in range(lasts[w] + 1)} >= by.keys()
    levels = [level.name for level in store.frame.levels]
    assert levels == ["10s", "1m", "10m", "1h", "1d"]
    frame = TiltFrame(levels, "ts", store.frame.measures, ["k"])
    for state in ("as it is", "compacted"):
        states = rollup(all_rows, frame)
        for level in levels:
            kept_from = available_from(store.backend.snapshot([EXPIRED]), level)
            expected = states.filter(pc.equal(states.column(LEVEL), level))
            expected = finish(
                expected.filter(pc.greater_equal(expected.column(START).cast(pa.int64()), kept_from)), frame
            )
            got = store.query(level)
            for name in ("window_start", "k", *FRAME.measures):
                assert digest(got.column(name)) == digest(expected.column(name)), (state, level, name)
            for i in range(1, GENERATIONS + 1):
                _check_added(got, expected, f"m{i}", i, by)
        store.compact("9999-01-01")
        assert store.verify().problems == ()
    numbers_of_readers = [numbers for name, numbers in numbers_by_child.items() if name in ("reads", "keeps")]
    counts = [len(numbers) for numbers in numbers_of_readers]
    print(f"\n{len(all_rows) // 4} commits, {evolved} evolutions, {turns} kills; {counts}")
    assert evolved == GENERATIONS
    assert all(numbers_of_readers)
    assert len(by) > 1


def _check_added(got: pa.Table, expected: pa.Table, name: str, generation: int, by: dict[str, int]) -> None:
    """What was added is right, or null; and null only where the commit may have been by an earlier frame."""
    for key, value, right in zip(*(t.to_pylist() for t in (got["k"], got[name], expected[name])), strict=True):
        assert value in (None, right), (name, key)
        assert (value is None) == (by[key] < generation) if key in by else True, (name, key)
