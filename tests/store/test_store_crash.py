"""Kill -9 of any writer at any time: the store can be opened, and has every acknowledged commit completely and once."""

from __future__ import annotations

import os
import random
import time

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from aggr.arrow.bit_equality import digest
from tests.crash_processes import (
    FRAME,
    RETENTION,
    CrashProcesses,
    append,
    compact,
    expire,
    last_number,
    replace,
    replacement_rows,
    rows,
)
from tiltframe import FrameStore, finish, rollup
from tiltframe.names import LEVEL, START
from tiltframe.store.log.records import EXPIRED, available_from

pytestmark = [pytest.mark.store, pytest.mark.filterwarnings("ignore::tiltframe.store.Expired")]

TURNS = int(os.environ.get("TRIALS", "30"))
ROLES = [append, compact, expire, replace]


def check(path: str, acknowledged: int, generation: int) -> tuple[int, int]:
    """Compare the store with what must be in it, bit for bit; return its last commit and replacement."""
    store = FrameStore(path)
    last = last_number(store, "w")
    assert last in (acknowledged, acknowledged + 1)
    results = store.query("10m")
    replaced_numbers = {int(key[2:]) for key in results.column("k").to_pylist() if key.startswith("r:")}
    assert len(replaced_numbers) <= 1, f"replacements {replaced_numbers} at once"
    now = max(replaced_numbers, default=-1)
    assert now >= generation, f"replacement {generation} was acknowledged, and {now} is there"
    parts = [rows("w", number) for number in range(last + 1)] + [
        replacement_rows(number) for number in replaced_numbers
    ]
    expected = rollup(pa.concat_tables(parts or [rows("w", 0).slice(0, 0)]), FRAME)
    for level in ("10s", "1m", "10m"):
        kept_from = available_from(store.backend.snapshot([EXPIRED]), level)
        expected_level = expected.filter(pc.equal(expected.column(LEVEL), level))
        expected_level = finish(
            expected_level.filter(pc.greater_equal(expected_level.column(START).cast(pa.int64()), kept_from)), FRAME
        )
        got = store.query(level)
        assert got.column("k").to_pylist() == expected_level.column("k").to_pylist(), level
        for name in expected_level.column_names:
            assert digest(got.column(name)) == digest(expected_level.column(name)), (level, name)
    return last, now


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "turns"), [("folder", TURNS), ("postgres", 20)])
@pytest.mark.long
def test_kills_lose_nothing_and_count_nothing_twice(kind, turns, tmp_path, request):
    path = str(tmp_path / "s") if kind == "folder" else request.getfixturevalue("postgres")
    chance, processes = random.Random(5), CrashProcesses(tmp_path)
    FrameStore(path, FRAME, retention=RETENTION).append(rollup(rows("w", 0), FRAME), "w", 0)
    last, generation, progress = 0, -1, 0
    begun = time.monotonic()
    for turn in range(turns):
        roles = [ROLES[turn % 4], ROLES[(turn + 1 + turn // 4 % 3) % 4]]
        children = {role: processes.start(role.__name__, path) for role in roles}
        if turn % 3:  # it is at work
            processes.wait(children[roles[0]])
        time.sleep(chance.random() * 0.1)
        for role in chance.sample(roles, 2):
            acknowledged = processes.kill(children[role])
            progress += len(acknowledged)
            if role is append:
                last = max([last, *acknowledged])
            if role is replace:
                generation = max([generation, *acknowledged])
            time.sleep(chance.random() * 0.02)
        last, generation = check(path, last, generation)
    processes.close()
    store = FrameStore(path)
    store.compact()
    check(path, last, generation)
    print(f"\n{2 * turns} kills in {time.monotonic() - begun:.0f} s; {last} commits, {progress} acknowledgements")
    assert progress > turns
