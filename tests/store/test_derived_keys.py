"""Derived keys of a kind that another distribution adds: in Python, as JSON and on the command line. The results have
the bits of rows with this key.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import aggr
from tests.command_line import call
from tiltframe import FrameStore, Query, TiltFrame
from tiltframe.extend import DerivedKey, register_kind
from tiltframe.store import Unmapped
from tiltframe.store.query import derived_keys


def prefix(key, length=1):
    return Prefix(key, length)


@dataclass(frozen=True)
class Prefix(DerivedKey):
    """The first letters of a key; null for shorter keys."""

    key: str
    length: int

    kind: ClassVar[str] = "prefix"
    call: ClassVar[str] = "prefix(KEY, length)"
    text: ClassVar[str] = "prefix(device, 2)"
    form: ClassVar[str] = '{"prefix": KEY, "length": NUMBER}'
    make = staticmethod(prefix)

    def check(self, name):
        if name != "start":
            raise ValueError(f"a prefix is called start; got {name!r}")

    def keys_of(self, rows, name, now):
        keys = pc.utf8_slice_codeunits(rows.column(self.key), 0, self.length)
        return pc.if_else(pc.equal(pc.utf8_length(keys), self.length), keys, None)

    def describe(self):
        return {"prefix": self.key, "length": self.length}

    @classmethod
    def from_description(cls, described):
        return cls(described["prefix"], described["length"])

    def reason(self, name):
        return f"{self.key} has fewer letters"


@pytest.fixture
def kind(monkeypatch):
    derived_keys.key_kinds()
    monkeypatch.setattr(derived_keys, "_KINDS", dict(derived_keys._KINDS))
    register_kind(Prefix)


MEASURES = {"n": aggr.count(), "s": aggr.sum("x"), "p": aggr.dds("x", [0.5])}
ROWS = pa.table({"ts": [0, 0, 90_000], "device": ["ab1", "ab2", "cd1"], "x": [0.1, 0.2, 0.3]})


def filled(folder, rows, key):
    store = FrameStore(str(folder), TiltFrame(["1m", "1h"], "ts", MEASURES, [key]))
    store.append_rows(rows, "w", 1)
    return store


def test_results_are_those_of_rows_that_had_the_key(kind, tmp_path):
    store = filled(tmp_path / "a", ROWS, "device")
    starts = ROWS.append_column("start", pc.utf8_slice_codeunits(ROWS["device"], 0, 2)).drop_columns(["device"])
    other = filled(tmp_path / "b", starts, "start")
    for per in ("1m", "1h", "all"):
        assert store.query(per, keys={"start": prefix("device", 2)}, now=0).equals(other.query(per, now=0))


def test_a_key_without_a_value_is_null_with_the_reason(kind, tmp_path):
    store = filled(tmp_path, ROWS, "device")
    with pytest.warns(Unmapped, match="start is null in 1 of 1 results: device has fewer letters"):
        assert store.query("1h", keys={"start": prefix("device", 4)})["start"].to_pylist() == [None]


def test_it_travels_as_json_and_as_text(kind, tmp_path, capfd):
    query = Query("1h", keys={"start": prefix("device", 2)})
    assert Query.from_json(query.to_json()) == query
    filled(tmp_path / "s", ROWS, "device")
    words = ("query", tmp_path / "s", "--per", "all", "--key", "start=prefix(device, 2)", "--format", "json")
    status, out, _ = call(capfd, *words)
    assert status == 0
    assert [(row["start"], row["n"]) for row in map(json.loads, out.splitlines())] == [("ab", 2), ("cd", 1)]


def test_messages_name_the_kinds(kind):
    with pytest.raises(ValueError, match=r"a key of the frame under its own name.*, or NAME: prefix\(KEY, length\)"):
        Query("1h", keys={"start": 7})
    with pytest.raises(ValueError, match=r'cannot read .* as a key; write .*\{"prefix": KEY, "length": NUMBER\}'):
        Query.from_json('{"keys": {"start": {"suffix": "device"}}}')
    with pytest.raises(ValueError, match="a prefix is called start; got 'other'"):
        Query("1h", keys={"other": prefix("device")})
