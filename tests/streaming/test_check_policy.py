"""Every policy obeys the laws of policies, and the laws detect broken policies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

import aggr
from tiltframe import TiltFrame
from tiltframe.streaming import (
    AfterClose,
    AfterCount,
    AfterKeyExpire,
    Buffer,
    Drop,
    EmitPolicy,
    LatePolicy,
    OnUpdate,
    Periodic,
    TrueWindow,
)
from tiltframe.streaming.policies import Arrival
from tiltframe.streaming.testing import LawBroken, check_policy

SOUND = [
    AfterClose(delay="5s", timeout="10s"), AfterClose(having="n > 1", mode="changelog"), Periodic("5s"),
    Periodic("5s", repeat=True, clock="event"), OnUpdate(), OnUpdate(batch="2s", mode="discarding"), AfterCount(3),
    AfterKeyExpire("10s", maxspan="5s", only=True), AfterKeyExpire("10s", clock="event"), TrueWindow(), Drop("5s"),
    Drop(), Buffer(0), Buffer(3), Buffer(2, "drop"),
]  # fmt: skip


@pytest.mark.parametrize(
    "policy",
    [policy if i % 4 == 0 else pytest.param(policy, marks=pytest.mark.long) for i, policy in enumerate(SOUND)],
    ids=str,
)
def test_the_policies_of_the_package_obey_the_laws(policy):
    check_policy(policy, rounds=5)


@dataclass(frozen=True, repr=False)
class Emitting(EmitPolicy):
    """A policy that emits windows with new rows, which the others spoil."""

    name: ClassVar[str] = "emitting"
    early_reason: ClassVar[str] = "early"
    columns: ClassVar[dict[str, Any]] = {"peak": pa.float64()}

    def measures(self, frame):
        return {"peak": aggr.max("x")}

    def emit_open(self, windows):
        return windows.new_rows > 0

    def values(self, windows):
        return {"peak": windows.result("peak")}


class ShortMask(Emitting):
    """A mask lacks the last window."""

    def emit_open(self, windows):
        return (windows.new_rows > 0)[:-1]


class MaskOfCounts(Emitting):
    """A mask is an array of counts."""

    def emit_open(self, windows):
        return windows.new_rows


class ArrowMask(Emitting):
    """A mask is an Arrow array."""

    def admits(self, windows):
        return pa.array(windows.new_rows > 0)


class OneForAll(Emitting):
    """One answer stands for all windows."""

    def timed_out(self, windows, watermark, now):
        return np.zeros(1, np.bool_)


class EveryOtherCall(Emitting):
    """Windows are emitted at every other call."""

    calls: ClassVar[list[int]] = [0]

    def emit_open(self, windows):
        self.calls[0] += 1
        return np.full(len(windows), self.calls[0] % 2 == 0)


class NeedsAdmits(Emitting):
    """`emit_open` answers by whether `admits` was asked before it."""

    asked: ClassVar[list[str]] = [""]

    def admits(self, windows):
        self.asked[0] = "admits"
        return super().admits(windows)

    def emit_open(self, windows):
        before, self.asked[0] = self.asked[0], "emit_open"
        return np.full(len(windows), before == "admits")


class MostRows(Emitting):
    """The window with the most new rows alone is emitted."""

    def emit_open(self, windows):
        return windows.new_rows == windows.new_rows.max(initial=0)


class Numbers(Emitting):
    """The added column numbers the windows."""

    def values(self, windows):
        return {"peak": pa.array(np.arange(len(windows)), pa.float64())}


class ResetsRows(Emitting):
    """New rows are set to 0 in the array that the policy receives."""

    def emit_open(self, windows):
        due = windows.new_rows > 0
        windows.new_rows[due] = 0
        return due


class NoValues(Emitting):
    """The declared column is not computed."""

    def values(self, windows):
        return {}


class IntegerValues(Emitting):
    """The column has another type than the one that is declared."""

    def values(self, windows):
        return {"peak": pa.array(windows.new_rows)}


class ShortReasons(Emitting):
    """There is one reason for all windows."""

    def reasons(self, windows, reasons):
        return reasons[:1]


class TakesName(Emitting):
    """The added column has the name of a measure of the frame."""

    columns: ClassVar[dict[str, Any]] = {"n": pa.float64()}

    def values(self, windows):
        return {"n": windows.result("peak")}


class NeverSays(Emitting):
    """`is_due` returns None."""

    def is_due(self, before, time):
        return None


class CountsAhead(Emitting):
    """The clock counts from a moment that has not come."""

    def last_checked(self, before, time, emitted):
        return (time or 0) + 1_000_000_000


@dataclass(frozen=True, repr=False)
class CopyLosesRows(Emitting):
    """A copy has the default number of rows."""

    rows: int = 1

    def __reduce__(self):
        return type(self), ()


@dataclass(frozen=True, repr=False)
class Ageing(LatePolicy):
    """Drop events that are older by 30 seconds than the newest before, which the others spoil."""

    age: int = 30_000_000
    name: ClassVar[str] = "ageing"

    def arrive(self, level, times, newest, together=False):
        if not len(times):
            return Arrival(times, np.zeros(0, np.bool_), newest)
        before = int(times.min()) if newest is None else newest
        so_far = np.full(len(times), before) if together else np.maximum.accumulate(np.append(before, times))[1:]
        latest = int(max(times.max(), before))
        return Arrival(times, times < so_far - self.age, latest)


class ForgetsNewest(Ageing):
    """The newest event of earlier batches is forgotten."""

    def arrive(self, level, times, newest, together=False):
        return super().arrive(level, times, None, together)


class OrderedTogether(Ageing):
    """The order of events that arrive together decides."""

    def arrive(self, level, times, newest, together=False):
        return super().arrive(level, times, newest)


class GoesBack(Ageing):
    """The newest event is the last of the batch."""

    def arrive(self, level, times, newest, together=False):
        arrival = super().arrive(level, times, newest, together)
        return arrival._replace(newest=int(times[-1]) if len(times) else newest)


class ShortArrival(Ageing):
    """Dropped events are left out instead of being flagged."""

    def arrive(self, level, times, newest, together=False):
        arrival = super().arrive(level, times, newest, together)
        return arrival._replace(times=arrival.times[~arrival.dropped])


class RoundsTimes(Ageing):
    """Times are rounded in the array that the policy receives."""

    def arrive(self, level, times, newest, together=False):
        times -= times % 1_000_000
        return super().arrive(level, times, newest, together)


class RemembersNewest(Ageing):
    """The newest event is remembered by the policy, across streams."""

    seen: ClassVar[list[int]] = [0]

    def arrive(self, level, times, newest, together=False):
        self.seen[0] = max(self.seen[0], int(times.max(initial=0)))
        return Arrival(times, times < self.seen[0] - self.age, self.seen[0])


class ClosesAhead(Ageing):
    """Events close the newest window itself."""

    closes_by_events: ClassVar[bool] = True

    def closed_until(self, level, newest):
        return newest + 1


LAW_BY_POLICY = {
    ShortMask: "masks",
    MaskOfCounts: "masks",
    ArrowMask: "masks",
    OneForAll: "masks",
    EveryOtherCall: "order_of_calls|isolation",
    NeedsAdmits: "order_of_calls|isolation",
    MostRows: "isolation",
    Numbers: "isolation",
    ResetsRows: "it writes into an array that it receives",
    NoValues: "columns",
    IntegerValues: "columns",
    ShortReasons: "columns",
    TakesName: "declarations",
    NeverSays: "clock",
    CountsAhead: "clock",
    ForgetsNewest: "batches|arrivals",
    OrderedTogether: "together",
    GoesBack: "arrivals|batches|together",
    ShortArrival: "arrivals",
    RoundsTimes: "it writes into an array that it receives",
    RemembersNewest: "order_of_calls|batches",
    ClosesAhead: "closing",
}


@pytest.mark.parametrize("sound", [Emitting(), Ageing()], ids=str)
def test_the_sound_policies_that_they_spoil_pass(sound):
    check_policy(sound, rounds=5)


@pytest.mark.parametrize("broken", LAW_BY_POLICY, ids=lambda broken: broken.__name__)
def test_each_is_caught(broken):
    with pytest.raises(LawBroken, match=LAW_BY_POLICY[broken]):
        check_policy(broken())


def test_a_copy_that_loses_a_field_is_caught():
    with pytest.raises(LawBroken, match="is_a_value"):
        check_policy(CopyLosesRows(5))


def test_what_is_not_a_policy_and_a_frame_that_does_not_fit_are_refused():
    check_policy("drop(5s)", rounds=4)
    for wrong in ("dropp", 5, None):
        with pytest.raises(ValueError, match="cannot read"):
            check_policy(wrong)
    with pytest.raises(ValueError, match="the frame must have keys"):
        check_policy(AfterKeyExpire("1m"), TiltFrame(["1m"], "ts", {"n": aggr.count()}))


def test_a_frame_and_rows_of_ones_own():
    frame = TiltFrame(["1m"], "at", {"n": aggr.count()})

    def rows(size: int, seed: int) -> pa.Table:
        times = np.random.default_rng(seed).integers(0, 600_000_000, size)
        return pa.table({"at": pa.array(times, pa.timestamp("us", "UTC"))})

    check_policy(OnUpdate(), frame, rows, rounds=4)
