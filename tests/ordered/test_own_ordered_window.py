"""An ordered window of one's own, the example of docs/adding-a-window.md: its text, streams and the registry."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

import pyarrow as pa
import pytest

import aggr
import windows
from tests.docs.pages import ROOT
from tiltframe import OrderedFrame, RunningAggregation, finish_ordered, ordered_rollup, running
from windows.ordered import OrderedWindow, count, read_ordered

PAGE = ROOT / "docs" / "adding-a-window.md"
ROWS = pa.table({"ts": range(9), "kg": [1, 2, 3, 4, 5, 6, 7, 8, 9], "urgent": [False, True] + [False] * 7})


@pytest.fixture
def loads(tmp_path, monkeypatch):
    """Import the class of the page, register it for the test, and return it."""
    (text,) = re.findall(r"```python\n(# loads\.py\n.*?)```", PAGE.read_text(), flags=re.S)
    (tmp_path / "loads.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    from loads import Loads

    yield windows.register(Loads)
    windows.unregister(Loads)
    del sys.modules["loads"]


def test_its_text_is_read_as_the_same_window(loads):
    window = loads(3, "urgent and kg > 1")
    assert read_ordered(str(window)) == window
    assert str(window) == "loads(n=3, departs='urgent and kg > 1')"


def test_batches_and_levels_give_what_one_batch_gives(loads):
    window, measures = "loads(3, urgent)", {"kg": aggr.sum("kg")}
    assert running(ROWS, measures, window=window, time="ts").column("kg").to_pylist() == [3, 12, 21]
    stream = RunningAggregation(measures, window=window, time="ts")
    emitted = [stream.add(ROWS.slice(at, 1)) for at in range(ROWS.num_rows)]
    assert pa.concat_tables(emitted).column("kg").to_pylist() == [3, 12, 21]
    frame = OrderedFrame([window, "count(2)"], time="ts", measures=measures)
    results = finish_ordered(ordered_rollup(ROWS, frame), frame).to_pylist()
    assert [row["level"] for row in results] == ["loads(n=3, departs=urgent)"] * 3 + ["count(2)"]
    assert [row["kg"] for row in results] == [3, 12, 21, 15]


def test_words_belong_to_one_class_per_family(loads):
    @dataclass(frozen=True)
    class Others(OrderedWindow):
        kind = "loads"

        def ranges(self, rows, carry):
            return count(1).ranges(rows, carry)

    with pytest.raises(ValueError, match=r"the kind 'loads' is taken by loads\.Loads; choose another word"):
        windows.register(Others)
    Others.kind = "count"
    with pytest.raises(ValueError, match=r"the kind 'count' is taken by .*count; choose another word"):
        windows.register(Others)
    Others.kind = "hopping"  # a time window has this word, but no ordered window
    windows.register(Others)
    assert read_ordered("hopping()") == Others()
    assert str(windows.read_window("hopping(1h, 10m)")) == str(windows.hopping("1h", "10m"))
    windows.unregister(Others)
    with pytest.raises(KeyError, match="is not registered"):
        windows.unregister(Others)


def test_what_lacks_a_method_is_refused():
    with pytest.raises(TypeError, match="OrderedWindow does not define ranges"):
        windows.register(OrderedWindow)
