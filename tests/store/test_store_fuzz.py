"""Every kind of damage to every file of a small store is reported in one message or has no effect. No result
is wrong.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

import aggr
from aggr.arrow.bit_equality import digest
from tests.crash_processes import rows
from tests.fuzzing import TIMES, inputs
from tests.store.test_store_check import at_most
from tests.store.test_store_damage import one_sentence
from tiltframe import FrameStore, StoreError, TiltFrame, rollup

pytestmark = pytest.mark.store

MEASURES = {"n": aggr.count(), "s": aggr.sum("x")}
CASES = 600

KINDS = ["flip"] * 8 + ["byte", "cut", "empty", "gone", "other", "line", "twice", "noise", "pipe", "folder", "loop"]


def seen(path: Path) -> list[str]:
    """What every level answers, as bits."""
    store, results = FrameStore(path), []
    for level in store.frame.levels:
        result = store.query(level)
        results += [digest(result.column(name)) for name in result.column_names if name != "partial"]
    return results


def damage(kind: str, file: Path, other_files: list[Path], chance: random.Random) -> None:
    content = file.read_bytes()
    at = chance.randrange(len(content)) if content else 0
    if kind == "flip" and content:
        file.write_bytes(content[:at] + bytes([content[at] ^ (1 << chance.randrange(8))]) + content[at + 1 :])
    elif kind == "byte" and content:
        file.write_bytes(content[:at] + bytes([chance.randrange(256)]) + content[at + 1 :])
    elif kind == "cut":
        file.write_bytes(content[:at])
    elif kind == "other":
        file.write_bytes(chance.choice(other_files).read_bytes())
    elif kind == "line":
        lines = content.splitlines(keepends=True)
        file.write_bytes(b"".join(lines[:-1]))
    elif kind == "twice":
        file.write_bytes(content + content)
    elif kind == "noise":
        file.write_bytes(chance.randbytes(chance.randrange(1000)))
    elif kind == "empty":
        file.write_bytes(b"")
    else:
        file.unlink()
        if kind == "pipe":
            os.mkfifo(file)
        elif kind == "folder":
            file.mkdir()
        elif kind == "loop":
            file.symlink_to(file)


def undo(file: Path, content: bytes) -> None:
    if file.is_dir() and not file.is_symlink():
        file.rmdir()
    elif file.is_symlink() or file.exists():
        file.unlink()
    file.write_bytes(content)


@pytest.mark.slow
@pytest.mark.parametrize("state", ["plain", "compacted", "one level"])
@pytest.mark.long
def test_damage_is_told_or_without_effect(tmp_path, state):
    levels = ["1m"] if state == "one level" else ["10s", "1m"]
    frame = TiltFrame(levels, "ts", MEASURES, ["k"])
    path, chance = tmp_path / "s", random.Random(f"{state} {os.environ.get('TILTFRAME_SEED', '1')}")
    store = FrameStore(path, frame)
    for number in range(3):
        store.append(rollup(rows("w", number), frame), "w", number)
    if state == "compacted":
        store.compact()
        FrameStore(path, retention={"10s": "90d"})
    before = seen(path)
    stored_files = sorted(file for file in path.rglob("*") if file.is_file())
    refusals = 0
    for _ in inputs("files of stores", CASES):
        file, kind = chance.choice(stored_files), chance.choice(KINDS)
        content = file.read_bytes()
        damage(kind, file, stored_files, chance)
        try:
            with at_most(20):
                assert seen(path) == before, (kind, file)
        except StoreError as error:
            one_sentence(error)
            refusals += 1
        undo(file, content)
    assert refusals > CASES * TIMES / 3
    assert seen(path) == before
    assert FrameStore(path).verify().ok
