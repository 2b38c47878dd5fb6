"""The costs of opening and querying a store: the files of the log and the records that are read."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import aggr
from tiltframe import FrameStore, TiltFrame, rollup
from tiltframe.store.address import StoreAddress
from tiltframe.store.backends.delta import backend, head, record_files

pytestmark = pytest.mark.store

FRAME = TiltFrame(["1m", "1h", "1d"], "ts", {"n": aggr.count()}, ["host"])


def states(commit: int) -> pa.Table:
    times = 20_000 * 86_400_000 + np.arange(10) * 60_000 + commit * 600_000  # early in 1970, they look like dates
    return rollup(pa.table({"ts": times, "host": ["a"] * 10}), FRAME)


@pytest.fixture
def counted(monkeypatch):
    """Count how often the table is opened, and what is read next to it."""
    done: Counter[str] = Counter()

    def counting(module, name, what):
        real = getattr(module, name)

        def call(*arguments, **named):
            done[what] += 1
            return real(*arguments, **named)

        monkeypatch.setattr(module, name, call)

    class Table(backend.DeltaTable):
        def __init__(self, *arguments, **named):
            done["open"] += 1
            super().__init__(*arguments, **named)

    monkeypatch.setattr(backend, "DeltaTable", Table)
    counting(record_files, "read_file", "records")
    counting(head, "_digest", "entry")
    return done


def test_the_table_is_opened_once_and_each_entry_verified_once(counted, tmp_path):
    store = FrameStore(tmp_path / "store", FRAME)
    for commit in range(3):
        store.append(states(commit), "w", commit)
    counted.clear()
    again = FrameStore(tmp_path / "store")
    once = {"open": 1, "entry": 4}  # the table was made, and three commits
    assert counted == once
    assert again.query(per="1d")["n"].to_pylist() == [30]
    assert again.query(per="1m", where="host = 'a'").num_rows == 30
    assert counted == once  # queries share what is known, and need no records of writers
    store.append(states(3), "w", 3)
    counted.clear()
    assert again.query(per="1h")["n"].to_pylist() == [40]
    assert counted == {"entry": 1}  # only what is new


@pytest.mark.long
def test_ten_thousand_names_are_looked_up_at_once(counted, tmp_path):
    store = FrameStore(tmp_path / "store", FRAME)
    names = {f"content {i:05}": {"held": True, "range": [i, i + 1]} for i in range(10_000)}
    store.append(states(0), "w", 0, names)
    for commit in range(1, 40):
        store.append(states(commit), f"w{commit % 3}", commit, {f"content of {commit}": commit})
    counted.clear()
    again = FrameStore(tmp_path / "store")
    assert again.recorded([*names, "content of 7", "nothing"]) == names | {"content of 7": 7}
    assert counted["records"] <= 33  # files, which are merged now and then
    assert again.recorded(list(names)) == names
    assert counted["records"] <= 33


def test_the_repr_of_an_address_has_no_passwords():
    options = {"AWS_SECRET_ACCESS_KEY": "secret"}
    assert "secret" not in repr(StoreAddress("s3://bucket/path", storage_options=options, durable=False))
    assert "secret" not in repr(StoreAddress("postgresql://user:secret@host/db", storage_options={}, durable=False))
