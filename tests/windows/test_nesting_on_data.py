"""Windows that cross an edge of a coarser level, in years that a frame does not check, are rejected when rows have
them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest

import aggr
import windows
from tiltframe import FrameStore, TiltFrame, rollup
from tiltframe.streaming import OpenWindows
from windows import Intervals, TimeWindow, read_window
from windows.testing import LawBroken, check

DAY = 86_400_000_000
SUNDAY = int(np.datetime64("2127-07-06", "D").astype(int))  # days since 1970; Monday belongs to it


@dataclass(frozen=True)
class BusinessDays(TimeWindow):
    """Days, of which some belong to the day before."""

    holidays: list[int] = field(default=())  # days since 1970

    kind = "test_business_days"
    contiguous = True
    length = float(DAY)

    def assign(self, times):
        days = times // DAY
        joined = np.isin(days, np.array(self.holidays, np.int64))
        starts = np.where(joined, days - 1, days)
        day_ends = np.where(joined | np.isin(days + 1, np.array(self.holidays, np.int64)), starts + 2, days + 1)
        return Intervals(np.arange(len(times)), starts * DAY, day_ends * DAY)


CROSSING = BusinessDays((SUNDAY + 1,))
ACROSS = pa.table({"ts": pa.array([SUNDAY * DAY, (SUNDAY + 1) * DAY], pa.timestamp("us", "UTC"))})
REFUSED = "the window from 2127-07-06 to 2127-07-08 UTC crosses an edge of the windows of 1w"


@pytest.fixture(autouse=True)
def registered():
    windows.register(BusinessDays)
    yield
    windows.unregister(BusinessDays)


def frame(*levels) -> TiltFrame:
    return TiltFrame(list(levels), "ts", {"n": aggr.count()})


def test_a_rollup_refuses_windows_across_an_edge():
    with pytest.raises(ValueError, match=REFUSED):
        rollup(ACROSS, frame(CROSSING, "1w"))
    assert rollup(ACROSS.slice(0, 0), frame(CROSSING, "1w")).num_rows == 0
    assert rollup(ACROSS, frame(BusinessDays((SUNDAY,)), "1w")).num_rows == 4


@pytest.mark.parametrize("emit", ["after_close", "on_update"])
def test_a_stream_refuses_windows_across_an_edge(emit):
    stream = OpenWindows(frame(CROSSING, "1w"), emit, "true_window")

    def run():
        stream.add_rows(ACROSS)
        stream.advance((SUNDAY + 30) * DAY)

    with pytest.raises(ValueError, match=REFUSED):
        run()


def test_a_query_refuses_windows_across_an_edge(tmp_path):
    store = FrameStore(tmp_path / "store", frame(CROSSING))
    store.append(rollup(ACROSS, store.frame), "w", 0)
    assert store.query("1mo").column("n").to_pylist() == [2]
    with pytest.raises(ValueError, match=REFUSED):
        store.query("1w")


def test_rows_that_only_part_of_a_window_holds_are_refused():
    @dataclass(frozen=True)
    class Mornings(TimeWindow):
        kind = "test_mornings"
        length = float(DAY)

        def assign(self, times):
            starts = times // DAY * DAY + DAY // 4
            rows = np.flatnonzero((times >= starts) & (times < starts + DAY // 4))
            return Intervals(rows, starts[rows], starts[rows] + DAY // 4)

        def nesting_problem(self, finer):
            return None

    times = pa.table({"ts": pa.array([DAY // 6, DAY // 4 + 1], pa.timestamp("us", "UTC"))})
    with pytest.raises(ValueError, match="crosses an edge of the windows of test_mornings"):
        rollup(times, frame("4h", Mornings()))
    assert rollup(times, frame("2h", Mornings())).num_rows == 3


def test_the_laws_look_at_other_years():
    with pytest.raises(LawBroken, match=r"breaks the law 'nests'.*1d is accepted as a multiple of.*2127-07-07"):
        check(CROSSING)
    check(BusinessDays())


def test_a_field_that_is_a_list_is_read_back():
    holidays_window = BusinessDays((SUNDAY, SUNDAY + 9))
    assert read_window(holidays_window.name) == holidays_window
    levels = TiltFrame.from_dict(frame(holidays_window).describe()).levels
    assert levels == (holidays_window,)
    with pytest.raises(ValueError, match=r"is read as .*which differs from .*tuples"):
        windows.read.text_of(BusinessDays([SUNDAY]))
