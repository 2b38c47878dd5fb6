"""What it costs to open a store and to ask it: which tables are opened, and which entries of their logs are read."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import aggr
from tiltframe import FrameStore, TiltFrame, rollup
from tiltframe.store.delta.table import Live

pytestmark = pytest.mark.store

FRAME = TiltFrame(["1m", "1h", "1d"], "ts", {"n": aggr.count()}, ["host"])


def states(commit: int) -> pa.Table:
    return rollup(pa.table({"ts": np.arange(10) * 60_000 + commit * 600_000, "host": ["a"] * 10}), FRAME)


@pytest.fixture
def counted(monkeypatch):
    """Count what is opened and what is read of logs."""
    done: Counter[str] = Counter()
    opening, reading = Live.open.__func__, Live._read

    def opened(cls, store, name, *given, **named):
        done[f"open {name}"] += 1
        return opening(cls, store, name, *given, **named)

    def read(live, name):
        done[f"read {live.name}"] += 1
        return reading(live, name)

    monkeypatch.setattr(Live, "open", classmethod(opened))
    monkeypatch.setattr(Live, "_read", read)
    return done


def test_each_table_is_opened_once_and_each_entry_read_once(counted, tmp_path):
    store = FrameStore(tmp_path / "store", FRAME)
    for commit in range(3):
        store.append(states(commit), "w", commit)
    counted.clear()
    again = FrameStore(tmp_path / "store")
    assert counted == {"open tiltframe": 1, "read tiltframe": 1}  # one entry describes the store
    assert again.query(per="1d")["n"].to_pylist() == [30]
    once = {"open tiltframe": 1, "read tiltframe": 1}
    for level in ("1m", "1h", "1d"):
        once |= {f"open frame_{level}": 1, f"read frame_{level}": 4}  # the table was made, and three commits
    assert counted == once
    assert again.query(per="1m", where="host = 'a'").num_rows == 30
    assert counted == once  # further queries share what is known
    store.append(states(3), "w", 3)
    counted.clear()
    assert again.query(per="1h")["n"].to_pylist() == [40]
    assert not any(what.startswith("open") for what in counted)
    assert max(counted.values()) == 1  # only what is new
