"""A store refuses windows whose definition has changed since their states were written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest

import aggr
import windows
from tiltframe import FrameStore, TiltFrame, rollup
from tiltframe.store import StoreError
from tiltframe.streaming import OpenWindows
from windows import Intervals, TimeWindow, window

HOUR = 3_600_000_000
ROWS = pa.table({"ts": pa.array([0, HOUR, 5 * HOUR], pa.timestamp("us", "UTC"))})


@dataclass(frozen=True)
class Shift(TimeWindow):
    """Working shifts of eight hours; one begins at `FIRST` o'clock."""

    kind = "shift"
    contiguous = True
    length = 8.0 * HOUR
    FIRST: ClassVar[int] = 6

    def assign(self, times):
        starts = (times - self.FIRST * HOUR) // (8 * HOUR) * 8 * HOUR + self.FIRST * HOUR
        return Intervals(np.arange(len(times)), starts, starts + 8 * HOUR)


@pytest.fixture
def shift():
    windows.register(Shift)
    yield Shift
    windows.unregister(Shift)


def frame_of():
    return TiltFrame([window("1h"), Shift()], time="ts", measures={"n": aggr.count()})


def test_a_changed_definition_is_refused(shift, tmp_path, monkeypatch):
    frame = frame_of()
    states = rollup(ROWS, frame)
    store = FrameStore(tmp_path / "store", frame)
    store.append(states, "test", 0)
    saved = OpenWindows(frame).to_ipc()

    monkeypatch.setattr(shift, "version", 2)
    with pytest.raises(ValueError, match=r"definitions are \{'shift': 2\} in the frame and 1 in the states"):
        FrameStore(tmp_path / "new", frame_of()).append(states, "test", 0)
    monkeypatch.setattr(shift, "FIRST", 7)
    refused = r"shift .*version 1 .*installed version is 2"
    with pytest.raises(StoreError, match=refused):
        FrameStore(tmp_path / "store")
    with pytest.raises(StoreError, match=refused):
        FrameStore(tmp_path / "store", frame_of())
    with pytest.raises(ValueError, match="version"):
        OpenWindows.from_ipc(saved, frame_of())


def test_a_new_store_keeps_the_version(shift, tmp_path, monkeypatch):
    monkeypatch.setattr(shift, "version", 2)
    store = FrameStore(tmp_path / "store", frame_of())
    store.append(rollup(ROWS, frame_of()), "test", 0)
    assert FrameStore(tmp_path / "store").query(per="shift").column("n").to_pylist() == [3]
    assert TiltFrame.from_dict(frame_of().describe()) == frame_of()
    monkeypatch.setattr(shift, "version", 1)
    with pytest.raises(StoreError, match=r"version 2 .*installed version is 1"):
        FrameStore(tmp_path / "store")


def test_first_versions_leave_descriptions_as_they_were():
    assert "versions" not in TiltFrame(["1h", "1d"], time="ts", measures={"n": aggr.count()}).describe()
