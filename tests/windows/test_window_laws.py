"""The laws of time windows: every kind of window obeys them, and they detect broken windows."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import ClassVar
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from windows import AllTime, Intervals, Session, TimeWindow, hopping, read_window, session, window
from windows.contract import Merged, number_windows
from windows.testing import LAWS, LawBroken, check, times_of

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MICROSECOND = dt.timedelta(microseconds=1)

KINDS = [
    "1s", "7m", "1h", "1d", "1w", "1mo", "1q", "1y", "tumbling(1d, offset=6h)", "tumbling(1h, offset=90s)",
    "tumbling(1w, offset=30h)", "tumbling(1mo, offset=3d)", "tumbling(10s, offset=100ms)", "tumbling(6h, offset=2h)",
    "hopping(1h, 10m)", "hopping(1h, 25m)", "hopping(1w, 1d)", "hopping(1y, 1mo)", "hopping(1h, 10m, offset=150s)",
    "hopping(1d, 6h, offset=1h)", "hopping(1q, 1mo, offset=2d)", "session(30m)", "session(1us)", "session(3d)", "all",
]  # fmt: skip


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Australia/Lord_Howe"])
@pytest.mark.parametrize("name", KINDS)
def test_windows_obey_the_laws(name, zone):
    check(read_window(name, zone), rounds=8)


@pytest.mark.parametrize("name", KINDS)
def test_names_and_reprs_read_back(name):
    kind = read_window(name)
    assert kind.name == name
    assert read_window(kind.name) == kind


# naive evaluators: one time at a time


def micros(moment: dt.datetime) -> int:
    return (moment.astimezone(dt.UTC) - EPOCH) // MICROSECOND


def fixed(size: int, hop: int, offset: int):
    """List the windows of a time in UTC, by stepping back from it as long as they reach it."""

    def windows_at(time: int) -> list[tuple[int, int]]:
        start, windows = (time - offset) // hop * hop + offset, []
        while start + size > time:
            windows.append((start, start + size))
            start -= hop
        return windows

    return windows_at


def days_from(hours: int, zone: str):
    """List the day, from an hour of the clock that no transition skips, by the calendar."""

    def windows_at(time: int) -> list[tuple[int, int]]:
        local = (EPOCH + time * MICROSECOND).astimezone(ZoneInfo(zone))
        for back in (1, 0, -1):
            day = (local - dt.timedelta(days=back)).date()
            day_ends = [dt.datetime(d.year, d.month, d.day, hours, tzinfo=ZoneInfo(zone)) for d in (day, day + ONE_DAY)]
            start, end = (micros(at) for at in day_ends)
            if start <= time < end:
                return [(start, end)]
        raise AssertionError(time)

    return windows_at


ONE_DAY = dt.timedelta(days=1)
SECOND, MINUTE, HOUR, DAY = 10**6, 60 * 10**6, 3600 * 10**6, 86400 * 10**6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "oracle"),
    [
        ("tumbling(10s, offset=100ms)", fixed(10 * SECOND, 10 * SECOND, 100_000)),
        ("tumbling(1h, offset=59m)", fixed(HOUR, HOUR, 59 * MINUTE)),
        ("tumbling(5d, offset=1d)", fixed(5 * DAY, 5 * DAY, DAY)),
        ("tumbling(1w, offset=30h)", fixed(7 * DAY, 7 * DAY, 4 * DAY + 30 * HOUR)),
        ("hopping(5s, 3s)", fixed(5 * SECOND, 3 * SECOND, 0)),
        ("hopping(1h, 25m, offset=7m)", fixed(HOUR, 25 * MINUTE, 7 * MINUTE)),
        ("session(90s)", lambda time: [(time, time + 90 * SECOND)]),
        ("all", lambda time: [(None, None)]),
    ],
)
def test_windows_agree_with_a_naive_evaluator(name, oracle):
    check(read_window(name), oracle)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"])
@pytest.mark.parametrize("hours", [6, 17])
def test_days_with_an_offset_follow_the_clock(zone, hours):
    check(window("1d", zone, offset=f"{hours}h"), days_from(hours, zone))


@pytest.mark.parametrize(
    "zone", ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Antarctica/Troll"]
)
@pytest.mark.parametrize(
    ("fine", "coarse"),
    [
        ("1h", "tumbling(1d, offset=6h)"), ("30m", "tumbling(1d, offset=150m)"), ("1h", "tumbling(6h, offset=1h)"),
        ("tumbling(1h, offset=30m)", "tumbling(1d, offset=150m)"), ("1d", "tumbling(1w, offset=2d)"),
        ("tumbling(1d, offset=6h)", "tumbling(1w, offset=6h)"), ("tumbling(1d, offset=6h)", "tumbling(1mo, offset=6h)"),
        ("1d", "tumbling(1mo, offset=3d)"), ("tumbling(1mo, offset=3d)", "tumbling(1y, offset=3d)"),
        ("10m", "hopping(1h, 10m, offset=0s)"), ("5m", "hopping(1h, 10m, offset=5m)"),
    ],
)  # fmt: skip
def test_windows_with_offsets_are_made_of_finer_ones(fine, coarse, zone):
    small, large = read_window(fine, zone), read_window(coarse, zone)
    assert large.is_made_of(small)
    for seed in range(30):
        _, starts, window_ends = large.assign(times_of(large, 40, seed))
        for edge in (starts, window_ends):
            assert (small.starts(edge) == edge).all()


@pytest.mark.parametrize(
    ("fine", "coarse"),
    [
        ("1h", "tumbling(1d, offset=90m)"), ("tumbling(1h, offset=30m)", "1d"), ("1d", "tumbling(1mo, offset=6h)"),
        ("1mo", "tumbling(1y, offset=3d)"), ("10m", "hopping(1h, 10m, offset=5m)"), ("session(5m)", "1h"),
        ("1h", "session(5m)"), ("session(5m)", "all"), ("all", "1y"), ("1mo", "5w"), ("1mo", "60d"),
    ],
)  # fmt: skip
def test_windows_that_are_not_made_of_others(fine, coarse):
    assert not read_window(coarse).is_made_of(read_window(fine))


# broken windows


@dataclass(frozen=True)
class SinceFirst(TimeWindow):
    """Minutes counted from the first row that happens to come along."""

    name = "since_first"

    def assign(self, times):
        low = times.min() if len(times) else 0
        starts = (times - low) // MINUTE * MINUTE + low
        return Intervals(np.arange(len(times)), starts, starts + MINUTE)


@dataclass(frozen=True)
class Untouched(Session):
    """Sessions that compare an interval with the one before it only, whatever came earlier."""

    def merge(self, keys, starts, ends):
        order = np.lexsort((starts, keys))
        apart = (np.diff(keys[order]) != 0) | (starts[order][1:] > ends[order][:-1])
        return number_windows(order, np.append(True, apart)[: len(order)], starts, ends)


@dataclass(frozen=True)
class Rounded(TimeWindow):
    """Minutes that a time is rounded to, not cut down to."""

    name = "rounded"

    def assign(self, times):
        starts = (times + MINUTE // 2) // MINUTE * MINUTE
        return Intervals(np.arange(len(times)), starts, starts + MINUTE)


@dataclass(frozen=True)
class Keyless(TimeWindow):
    """Windows that forget whose they are."""

    name = "keyless"
    is_merging: ClassVar[bool] = True

    def assign(self, times):
        return Intervals(np.arange(len(times)), times, times + MINUTE)

    def merge(self, keys, starts, ends):
        return session("1m").merge(np.zeros_like(keys), starts, ends)


@dataclass(frozen=True)
class Stretched(TimeWindow):
    """Minutes that end later where the second is late: two begin at the same instant."""

    name = "stretched"

    def assign(self, times):
        starts = times // MINUTE * MINUTE
        return Intervals(np.arange(len(times)), starts, starts + MINUTE + (times - starts) // SECOND)


@dataclass(frozen=True)
class Twice(TimeWindow):
    """A minute and two minutes, which begin at the same instant."""

    name = "twice"

    def assign(self, times):
        rows = np.repeat(np.arange(len(times)), 2)
        starts = times[rows] // MINUTE * MINUTE
        return Intervals(rows, starts, starts + MINUTE * (1 + np.arange(len(rows)) % 2))


@dataclass(frozen=True)
class LastFirst(AllTime):
    """A merge whose numbers depend on the order in which intervals come."""

    def merge(self, keys, starts, ends):
        negative_keys, ids = np.unique(-keys, return_inverse=True)
        return Merged(ids, np.full(len(negative_keys), starts[:1].sum()), np.full(len(negative_keys), ends[:1].sum()))


BROKEN = {
    "by_time_alone": SinceFirst(),
    "contains": Rounded(),
    "any_tree": Untouched(30 * MINUTE),
    "in_order|two keys": Keyless(),
    "panes": Stretched(),
    "known_by_start": Twice(),
    "in_order": LastFirst(),
}


@pytest.mark.parametrize("law", BROKEN)
def test_broken_windows_are_refused(law):
    with pytest.raises(LawBroken, match=law):
        check(BROKEN[law], source=lambda size, seed: np.random.default_rng(seed).integers(0, 3 * HOUR, size))


def test_every_law_has_been_broken_or_says_something():
    assert all(law.__doc__ for law in LAWS)


def test_an_oracle_that_disagrees_is_heard():
    with pytest.raises(LawBroken, match="'agrees'"):
        check(window("1m"), fixed(MINUTE, MINUTE, 1))


# merging far and wide


def test_sessions_far_apart_of_many_keys():
    # too far apart for key and time to be told by one number
    rng = np.random.default_rng(5)
    keys = rng.integers(0, 200, 5000)
    starts = rng.choice([-(10**17), 0, 2 * 10**17], 5000) + rng.integers(0, 10**9, 5000)
    session_ends = starts + rng.integers(1, 10**8, 5000)
    kind = session("1s")
    ids, begins, until = kind.merge(keys, starts, session_ends)
    expected = []
    for key in range(200):
        for start, end in sorted(zip(starts[keys == key].tolist(), session_ends[keys == key].tolist(), strict=True)):
            if expected and expected[-1][0] == key and start <= expected[-1][2]:
                expected[-1][2] = max(expected[-1][2], end)
            else:
                expected.append([key, start, end])
    assert [begins.tolist(), until.tolist()] == [[w[i] for w in expected] for i in (1, 2)]
    assert ((begins[ids] <= starts) & (session_ends <= until[ids])).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("session(0s)", "gap of a session must be at least one microsecond, and at most 1000 years; got 0"),
        ("session(-1m)", "cannot read the gap '-1m'"),
        ("session(1mo)", "'1mo' has no fixed length; write it in weeks or shorter units"),
        ("session(1.5h)", "cannot read the gap '1.5h'"),
        ("session()", "missing a required argument: 'gap'; session takes gap"),
        ("session(1h, 2h)", "too many arguments; session takes gap"),
        ("session(1h) or so", "write a size such as '10s', '1h' or '1mo', or one of tumbling"),
        ("session(2000y)", "no fixed length"),
        ("session(60000w)", "at most 1000 years"),
        ("session", "missing a required argument: 'gap'"),
        ("tumbling(1d, offset=1d)", "offset of windows of 1d must be at least 0 and shorter than the windows; got 1d"),
        ("tumbling(1d, offset=-6h)", "cannot read the offset '-6h'"),
        ("tumbling(1mo, offset=30d)", "less than 28d \\(28 days per month, as in February\\); got 30d"),
        ("tumbling(1d, 6h)", "too many arguments; tumbling takes size, offset="),
        ("hopping(1h, 10m, offset=10m)", "offset of windows of 10m must be at least 0 and shorter"),
        ("hopping(1h, 10m, 5m)", "too many arguments; hopping takes size, hop, offset="),
        ("fortnights(2)", r"cannot read 'fortnights\(2\)' as a window; write"),
        ("\u0663h", "cannot read '\u0663h' as a window"),
        ("session(\u0663m)", "cannot read the gap"),
    ],
)
def test_what_is_no_window_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        read_window(text)


@pytest.mark.parametrize("gap", [0, -1, 1.5, True, None, "30m"])
def test_a_gap_is_a_whole_number_of_microseconds(gap):
    with pytest.raises(ValueError, match="gap of a session must be at least one microsecond"):
        Session(gap)


def test_hops_of_an_offset_belong_to_the_hop():
    assert hopping("1h", "10m", offset="5m") == hopping("1h", window("10m", offset="5m"))
    with pytest.raises(ValueError, match="the hop says where windows begin"):
        hopping(window("1h", offset="5m"), "10m")
