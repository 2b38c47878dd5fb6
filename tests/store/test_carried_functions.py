"""A store that is pickled to another process takes the functions of its frame with it."""

from __future__ import annotations

import subprocess
import sys

import pytest

SENDER = """
import sys
from dataclasses import dataclass
import aggr, pyarrow as pa
from pyspark import cloudpickle
from tiltframe import FrameStore, TiltFrame

@dataclass(frozen=True)
class Least(aggr.Min):
    name = "least_of_mine"

aggr.register(Least)
least = aggr.caller("least_of_mine")("x")
frame = TiltFrame(["1m"], "ts", {MEASURES})
store = FrameStore(sys.argv[1], frame)
store.ensure_created(frame.states_schema(pa.schema([("ts", pa.int64()), ("x", pa.int64()), ("k", pa.string())])))
with open(sys.argv[2], "wb") as file:
    cloudpickle.dump(store, file)
"""
RECEIVER = """
import pickle, sys
import pyarrow as pa
from tiltframe import FrameStore, rollup
with open(sys.argv[2], "rb") as file:
    store = pickle.load(file)
rows = pa.table({"ts": [0, 1], "x": [5, 3], "k": ["a", "a"]})
store.append(rollup(rows, store.frame), "w", 1)
print(FrameStore(sys.argv[1]).query("1m").column("low").to_pylist())
"""


@pytest.mark.long
@pytest.mark.store
@pytest.mark.slow
@pytest.mark.parametrize(
    ("measures", "result"),
    [('{"low": least}', "[3]"), ('{"low": aggr.per("k", {"low": least})}', "{'key': 'a', 'low': 3}")],
    ids=["a measure", "a measure by key"],
)
def test_a_registered_function_is_known_where_the_store_arrives(tmp_path, measures, result):
    paths = [str(tmp_path / "store"), str(tmp_path / "pickle")]
    subprocess.run([sys.executable, "-c", SENDER.replace("{MEASURES}", measures), *paths], check=True)
    received = subprocess.run([sys.executable, "-c", RECEIVER, *paths], capture_output=True, text=True, check=False)
    assert received.returncode == 0, received.stderr[-1000:]
    assert result in received.stdout
