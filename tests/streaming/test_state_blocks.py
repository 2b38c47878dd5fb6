"""State blocks: a batch fetches and encodes only the states of windows with the same starts as its rows, and of windows
that it emits. The results do not depend on the division into blocks.
"""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import aggr
from tiltframe import TiltFrame, rollup
from tiltframe.streaming import OpenWindows
from tiltframe.streaming.saved import Saved, read_head
from tiltframe.streaming.state_blocks import StateBlock, divide_states, filter_blocks, mask_unchanged
from tiltframe.streaming.stored import StoredTable
from tiltframe.streaming.window_table import new_windows

SECOND = 1_000_000
MEASURES = {"n": aggr.count(), "total": aggr.sum("x"), "first": aggr.first("x")}
FRAME = TiltFrame(["10s", "1m", "10m"], "ts", MEASURES, ["key"])
VERSION_5 = Path(__file__).parent / "version_5.json"


class SavedOnce:
    """A saved stream whose blocks are fetched one by one. ``fetched`` has the names of the blocks that were fetched."""

    def __init__(self, state: Saved) -> None:
        self.blocks = {name: bytes(block.data) for name, block in state.blocks.items()}
        self.head = state.head
        self.fetched: list[str] = []

    def read(self) -> Saved:
        def block(name: str, size: int, checksum: int) -> StoredTable:
            def fetch() -> bytes:
                self.fetched.append(name)
                return self.blocks[name]

            return StoredTable(size, checksum, fetch)

        return read_head(self.head, block)


def rows_at(seconds: list[int], keys: str = "ab") -> pa.Table:
    """Return one row per second and key. The value of a row is the number of its second."""
    return pa.table(
        {
            "ts": pa.array(np.repeat(np.array(seconds, np.int64), len(keys)) * SECOND, pa.timestamp("us", "UTC")),
            "key": pa.array(list(keys) * len(seconds), pa.string()),
            "x": np.repeat(np.array(seconds, float), len(keys)),
        }
    )


@pytest.fixture
def block_per_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiltframe.streaming.state_blocks._MIN_BYTES", 1)


def test_only_windows_with_new_rows_are_fetched_and_encoded(block_per_window: None) -> None:
    windows = OpenWindows(FRAME)
    windows.add_rows(rows_at([0, 10, 20, 30]))
    saved = SavedOnce(windows.save())
    states = [name for name in saved.blocks if name.startswith("0.held.states")]
    assert states == [f"0.held.states@{start * SECOND}" for start in (0, 10, 20, 30)]
    state = saved.read()
    windows = OpenWindows.from_ipc(state)
    windows.add_rows(rows_at([22], "a"))
    after = windows.save()
    assert [name for name in saved.fetched if "states" in name] == [f"0.held.states@{20 * SECOND}"]
    changed = {name for name, block in after.blocks.items() if block is not state.blocks.get(name)}
    assert changed == {"0.held.windows", f"0.held.states@{20 * SECOND}"}
    assert {*after.blocks} == {*saved.blocks}


def test_a_window_that_closes_is_fetched_and_removed(block_per_window: None) -> None:
    windows = OpenWindows(FRAME)
    windows.add_rows(rows_at([0, 10, 20]))
    saved = SavedOnce(windows.save())
    windows = OpenWindows.from_ipc(saved.read())
    emitted = windows.advance(10 * SECOND)
    assert sorted(emitted.select(["level", "key"]).to_pylist(), key=str) == [
        {"level": "10s", "key": "a"},
        {"level": "10s", "key": "b"},
    ]
    names = {name for name in windows.save().blocks if "states" in name}
    assert [name for name in saved.fetched if "states" in name] == ["0.held.states@0"]
    assert names == {f"0.held.states@{10 * SECOND}", f"0.held.states@{20 * SECOND}", "1.held.states@0"}


def test_a_stream_without_news_is_not_encoded_again(block_per_window: None) -> None:
    windows = OpenWindows(FRAME)
    windows.add_rows(rows_at([0, 10]))
    state = SavedOnce(windows.save()).read()
    after = OpenWindows.from_ipc(state).save()
    assert {*after.blocks} == {*state.blocks}
    assert all(block is state.blocks[name] for name, block in after.blocks.items())


def test_an_emission_without_new_rows_encodes_no_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers of emissions change, but the states do not, although the blocks are small."""
    monkeypatch.setattr("tiltframe.streaming.state_blocks._MIN_BYTES", 1 << 20)
    windows = OpenWindows(FRAME, "on_update")
    windows.add_rows(rows_at([0, 10]))
    state = SavedOnce(windows.save()).read()
    windows = OpenWindows.from_ipc(state)
    assert windows.advance(SECOND).num_rows
    changed = {name for name, block in windows.save().blocks.items() if block is not state.blocks.get(name)}
    assert changed
    assert not {name for name in changed if ".states@" in name}


def test_small_windows_share_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows that are saved one after the other do not leave one small block each."""
    monkeypatch.setattr("tiltframe.streaming.state_blocks._MIN_BYTES", 1 << 20)
    windows = OpenWindows(FRAME)
    for second in range(0, 200, 10):
        windows.add_rows(rows_at([second]))
        windows = OpenWindows.from_ipc(SavedOnce(windows.save()).read())
    assert [name for name in windows.save().blocks if name.startswith("0.held.states")] == ["0.held.states@0"]


@pytest.mark.parametrize("min_bytes", [1, 700, 1 << 20])
@pytest.mark.parametrize("levels", [["10s", "1m"], ["hopping(30s, 10s)"]])
def test_any_division_gives_the_results_of_a_batch(
    min_bytes: int, levels: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiltframe.streaming.state_blocks._MIN_BYTES", min_bytes)
    frame = TiltFrame(levels, "ts", MEASURES, ["key"])
    rng = np.random.default_rng(min_bytes)
    parts = []
    windows = OpenWindows(frame, "after_close", "true_window")
    emitted = []
    for step in range(25):
        seconds = (step * 20 + rng.integers(-60, 60, int(rng.integers(0, 12)))).tolist()
        parts.append(rows_at(seconds, "abc"[: rng.integers(1, 4)]))
        windows.add_rows(parts[-1])
        emitted.append(windows.advance(step * 20 * SECOND))
        saved = SavedOnce(windows.save())
        assert len(saved.blocks) == len(set(saved.blocks))
        starts = [int(name.partition("@")[2]) for name in saved.blocks if name.startswith("0.held.states@")]
        assert starts == sorted(set(starts), key=starts.index)
        windows = OpenWindows.from_ipc(saved.read())
    emitted.append(windows.advance(10**6 * SECOND))
    # The last emission of each window and key has all its rows.
    columns = ["level", "window_start", "key"]
    last = {tuple(row[name] for name in columns): row for row in pa.concat_tables(emitted).to_pylist()}
    expected = rollup(pa.concat_tables(parts), frame)
    results = {
        tuple(row[name] for name in columns): [row[state.name] for state in frame.states]
        for row in expected.to_pylist()
    }
    assert {key: [row[state.name] for state in frame.states] for key, row in last.items()} == results


def test_a_stream_of_version_5_continues() -> None:
    """The file was written by the last release with version 5: rows at 3, 13 and 65 s, and the watermark 20 s."""
    content = json.loads(VERSION_5.read_text())
    data = base64.b64decode(content["saved"])
    assert b'"version": 5' in data
    windows = OpenWindows.from_ipc(data)
    windows.add_rows(rows_at([66], "a"))
    windows = OpenWindows.from_ipc(windows.to_ipc())
    rows = windows.results(windows.advance(10**4 * SECOND)).select(["level", "window_start", "key", "n", "total"])
    received = rows_at([3, 13, 65]).to_pylist() + rows_at([66], "a").to_pylist()
    expected = []
    for level, seconds in (("10s", 10), ("1m", 60), ("10m", 600)):
        groups: dict[tuple[int, str], list[float]] = {}
        for row in received:
            groups.setdefault((int(row["x"]) // seconds * seconds, row["key"]), []).append(row["x"])
        # Windows that end at or before 20 s were emitted before the stream was saved.
        expected += [
            (level, start, key, len(values), sum(values))
            for (start, key), values in groups.items()
            if start + seconds > 20
        ]
    returned = [
        (row["level"], int(row["window_start"].timestamp()), row["key"], row["n"], row["total"])
        for row in rows.to_pylist()
    ]
    assert sorted(returned) == sorted(expected)


def test_blocks_without_selected_rows_are_not_decoded() -> None:
    def fail() -> bytes:
        raise AssertionError("this block has no selected rows, or only selected rows")

    schema = pa.schema([("n", pa.int64())])
    untouched = [StateBlock(StoredTable(1, 0, fail), schema, 2, 16) for _ in range(2)]
    own = StateBlock.in_memory(pa.table({"n": [1, 2]}))
    mask = np.array([False, False, True, False, True, True])
    filtered = list(filter_blocks([untouched[0], own, untouched[1]], mask))
    assert [block.rows for block in filtered] == [1, 2]
    assert filtered[0].states.to_pydict() == {"n": [1]}
    assert filtered[1] is untouched[1]


def test_states_of_a_window_stay_together(block_per_window: None) -> None:
    starts = np.array([1, 1, 2, 5, 5, 5])
    blocks = divide_states(pa.table({"n": [1, 2, 3, 4, 5, 6]}), starts)
    assert [block.states.column("n").to_pylist() for block in blocks] == [[1, 2], [3], [4, 5, 6]]
    stored = [
        StateBlock(block.to_stored(), block.schema, block.rows, block.nbytes) if block.rows != 1 else block
        for block in blocks
    ]
    assert mask_unchanged(stored, starts).tolist() == [True, True, False, True, True, True]
    # A window of the last block has the same start as the changed state.
    assert mask_unchanged(stored, np.array([1, 1, 5, 5, 5, 5])).tolist() == [True, True, *[False] * 4]


def test_blocks_with_the_same_start_are_not_saved_over_each_other() -> None:
    columns = ["window_start", "window_end"]
    index = pa.table({name: pa.array([0], pa.timestamp("us", "UTC")) for name in columns})
    stored = new_windows(index.append_column("n", pa.array([1]))).to_stored(columns)[1][0]
    block = StateBlock(stored, pa.schema([("n", pa.int64())]), 1, 8)
    twice = replace(new_windows(pa.concat_tables([index, index])), blocks=(block, block))
    with pytest.raises(AssertionError, match="same start"):
        twice.to_stored(columns)
