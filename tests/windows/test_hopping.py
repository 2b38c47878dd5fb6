"""Hopping windows, compared with a naive evaluator that follows the clock of the zone and counts panes."""

from __future__ import annotations

import datetime as dt
import re
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggr.clocks import clock
from tests.windows.test_windows import ZONES, at, micros
from windows import Hopping, Tumbling, hopping, read_window, window

UTC = dt.UTC
MINUTE, HOUR, DAY = 60_000_000, 3_600_000_000, 86_400_000_000

# zone, by how many minutes its UTC offset changes, a day on which it does
SETTINGS = [
    ("UTC", 0, (2024, 3, 31)), ("Asia/Kolkata", 0, (2024, 3, 31)),
    ("Europe/Berlin", 60, (2024, 3, 31)), ("Europe/Berlin", 60, (2024, 10, 27)),
    ("America/New_York", 60, (2013, 3, 10)), ("America/New_York", 60, (2013, 11, 3)),
    ("Australia/Lord_Howe", 30, (2024, 4, 7)), ("Australia/Lord_Howe", 30, (2024, 10, 6)),
]  # fmt: skip
SHORT = [
    ("1h", "10m"), ("1h", "25m"), ("50m", "40m"), ("50m", "25m"), ("3h", "2h"), ("5h", "2h"), ("6h", "6h"),
    ("1d", "6h"), ("12h", "1h"), ("45m", "30m"), ("90m", "40m"), ("1h", "1h"), ("7h", "3h"), ("70m", "49m"),
]  # fmt: skip
LONG = [
    ("1w", "1d"), ("2w", "1w"), ("1w", "2d"), ("1w", "1w"), ("3d", "2d"), ("4w", "2w"), ("10d", "1w"), ("30d", "1d"),
    ("1y", "1mo"), ("1q", "1mo"), ("6mo", "4mo"), ("2y", "1q"), ("1y", "1y"), ("1q", "2mo"),
]  # fmt: skip


def minutes(size: str) -> int:
    return int(size[:-1]) * {"m": 1, "h": 60, "d": 1440}[size[-1]]


@lru_cache(maxsize=64)
def local_minutes(zone: str, begin: int) -> list[int]:
    """What the clock shows in each minute of eight days, counted from 1970."""
    info, shown = ZoneInfo(zone), []
    for step in range(8 * 1440):
        moment = dt.datetime.fromtimestamp(begin / 1e6, UTC) + dt.timedelta(minutes=step)
        local = moment.astimezone(info).replace(tzinfo=None)
        shown.append((local - dt.datetime(1970, 1, 1)) // dt.timedelta(minutes=1))
    return shown


def walk(size: int, zone: str, moved: int, begin: int) -> list[int]:
    """Walk the clock for the starts of windows of some minutes.

    A size that the offset changes by a multiple of begins whenever the clock shows one, be it again; any other when
    it shows a later one than ever before.
    """
    starts, top = [], None
    for step, local in enumerate(local_minutes(zone, begin)):
        if moved % size == 0 and local % size == 0:
            starts.append(begin + step * MINUTE)
        elif moved % size and (top is None or local // size > top):
            top = local // size
            starts.append(begin + step * MINUTE)
    return starts[1:]  # the walk cannot know when its first window began


def days(size: str, zone: str) -> list[int]:
    """List the starts of windows of days, weeks or months by the calendar, 2010 … 2016."""
    count, unit = int(size.rstrip("dwmoqy")), size.lstrip("0123456789")
    starts, day = [], dt.date(2010, 1, 1)
    while day < dt.date(2016, 1, 1):
        months = {"mo": 1, "q": 3, "y": 12}.get(unit)
        if months:
            begins = day.day == 1 and ((day.year - 1970) * 12 + day.month - 1) % (months * count) == 0
        elif unit == "w":
            begins = (day - dt.date(1970, 1, 5)).days % (7 * count) == 0
        else:
            begins = (day - dt.date(1970, 1, 1)).days % count == 0
        if begins:
            starts.append(micros(dt.datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone))))
        day += dt.timedelta(days=1)
    return starts


def naive_windows(panes: list[int], hops: list[int], count: int) -> dict[int, list[int]]:
    """Say which panes each window has: so many in a row, or all until the next window begins."""
    place = {start: index for index, start in enumerate(panes)}
    windows = {}
    for start, following in pairwise(h for h in hops if h >= panes[0]):
        stop = max(place[start] + count, place.get(following, 0))
        if stop < len(panes):
            windows[start] = panes[place[start] : stop + 1]  # the last one is where the window ends
    return windows


def check(hours: Hopping, panes: list[int], hops: list[int]) -> None:
    windows = naive_windows(panes, hops, hours.panes)
    starts = np.array(list(windows))
    assert len(starts) > 2
    assert hours.ends(starts).tolist() == [members[-1] for members in windows.values()]
    assert hours.starts_between(int(starts[0]), int(starts[-1]) + 1).tolist() == starts.tolist()
    # of every pane, all windows: fair for those after the first window has ended
    fair = [pane for pane in panes if windows[int(starts[0])][-1] <= pane <= starts[-1]]
    indices, window_starts, window_ends = hours.assign(np.array(fair))
    assert (window_ends == hours.ends(window_starts)).all()
    got = [[] for _ in fair]
    for index, start in zip(indices.tolist(), window_starts.tolist(), strict=True):
        got[index].append(start)
    assert got == [[start for start, members in windows.items() if start <= pane < members[-1]] for pane in fair]
    assert all(got)  # no pane is lost
    for pane in fair[:: max(1, len(fair) // 50)]:
        for moment in (pane, pane + 1):
            assert hours.first_start_from(moment) == min(h for h in hops if h >= moment)


@pytest.mark.slow
@pytest.mark.parametrize(("zone", "moved", "day"), SETTINGS, ids=[f"{z}-{d[1]}" for z, _, d in SETTINGS])
@pytest.mark.parametrize(("size", "hop"), SHORT)
def test_windows_are_panes_in_a_row(zone, moved, day, size, hop):
    begin = at(*day) - 4 * DAY
    hours = hopping(size, hop, zone)
    panes = walk(minutes(hours.pane.name), zone, moved, begin)
    hops = walk(minutes(hop), zone, moved, begin)
    assert set(hops) <= {*panes, hops[0]}
    check(hours, panes, hops)


@pytest.mark.slow
@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
@pytest.mark.parametrize(("size", "hop"), LONG)
def test_windows_of_days_and_months(zone, size, hop):
    hours = hopping(size, hop, zone)
    check(hours, days(hours.pane.name, zone), days(hop, zone))


@pytest.mark.parametrize(
    ("size", "hop", "pane", "panes"),
    [
        ("1h", "10m", "10m", 6), ("1h", "25m", "5m", 12), ("1h", "1h", "1h", 1), ("90s", "1m", "30s", 3),
        ("1y", "1mo", "1mo", 12), ("6mo", "3mo", "1q", 2), ("2y", "1y", "1y", 2), ("1y", "5mo", "1mo", 12),
        ("2w", "1w", "1w", 2), ("1w", "1d", "1d", 7), ("1w", "2d", "1d", 7), ("1w", "5h", "1h", 168),
        ("10d", "1w", "1d", 10), ("16d", "2w", "1d", 16), ("4w", "2w", "2w", 2), ("1w", "7d", "7d", 1),
        ("7d", "1w", "1w", 1), ("24h", "8h", "8h", 3), ("1d", "60m", "1h", 24), ("1w", "16h", "8h", 21),
    ],
)  # fmt: skip
def test_panes(size, hop, pane, panes):
    hours = hopping(size, hop, "Europe/Berlin")
    assert (hours.pane, hours.panes) == (window(pane, "Europe/Berlin"), panes)
    assert hours.hop.is_made_of(hours.pane)


def test_a_window_over_a_setting_of_the_clock():
    start = at(2024, 10, 27, zone="Europe/Berlin")
    by_hours, by_days = (hopping("1d", hop, "Europe/Berlin") for hop in ("1h", "1d"))
    assert by_hours.ends(np.array([start])) - start == 24 * HOUR
    assert by_days.ends(np.array([start])) - start == 25 * HOUR
    week = hopping("1w", "1d", "Europe/Berlin")
    assert week.ends(np.array([start - 3 * DAY])) - start == 4 * DAY + HOUR


def test_no_row_is_lost_where_the_clock_goes_back():
    # the 40 minutes from 02:20 last 100: as many panes belong to the window, and not only five
    hours = hopping("50m", "40m", "Europe/Berlin")
    times = at(2024, 10, 26, 22) + np.arange(0, 8 * HOUR, MINUTE)
    indices, starts, _ = hours.assign(times)
    assert set(indices) == set(range(len(times)))
    assert (starts <= times[indices]).all()
    assert (times[indices] < hours.ends(starts)).all()
    assert max(hours.ends(starts) - starts) == 100 * MINUTE


@pytest.mark.slow
@given(
    st.integers(-(2 * 10**15), 4 * 10**15),
    st.sampled_from([*SHORT, *LONG]),
    st.sampled_from([*sorted({zone for zone, _, _ in SETTINGS}), "America/Sao_Paulo", "Pacific/Apia"]),
)
@settings(max_examples=200, deadline=None)
def test_any_time_lies_in_its_windows_and_no_other(time, sizes, zone):
    hours = hopping(*sizes, zone)
    reach_micros = int(2 * hours.size.length + 3 * DAY)
    starts = hours.starts_between(time - reach_micros, time + reach_micros)
    assert (np.diff(starts) > 0).all()
    assert (hours.hop.starts(starts) == starts).all()
    assert (hours.pane.starts(starts) == starts).all()
    window_ends = hours.ends(starts)
    assert (hours.pane.starts(window_ends) == window_ends).all()
    indices, window_starts, _ = hours.assign(np.array([time, time]))
    expected = starts[(starts <= time) & (time < window_ends)].tolist()
    assert len(expected) > 0
    assert window_starts[indices == 0].tolist() == window_starts[indices == 1].tolist() == expected
    assert hours.first_start_from(time) == starts[starts >= time][0]


@pytest.mark.long
@pytest.mark.slow
@given(
    st.integers(-(10**15), 4 * 10**15),
    st.floats(0.5, 400),
    st.sampled_from(["10s", "7m", "25m", "1h", "2h", "6h", "1d", "5d", "1w", "2w", "1mo", "1q", "1y"]),
    st.sampled_from(ZONES),
)
@settings(max_examples=200, deadline=None)
def test_between_lists_every_window_once(start, count, size, zone):
    w = window(size, zone)
    end = start + int(count * w.length)
    starts = w.starts_between(start, end)
    # step from window to window
    expected, current = [], int(w.starts(np.array([start]))[0])
    current = current if current >= start else int(w.ends(np.array([current]))[0])
    while current < end:
        expected.append(current)
        current = int(w.ends(np.array([current]))[0])
    assert starts.tolist() == expected


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("size", ["10m", "25m", "1h", "7h", "1d", "36h", "1w", "1mo"])
def test_between_lists_what_rows_fall_into_in_every_zone(size):
    for zone in ZONES:
        w = window(size, zone)
        zone_clock = clock(zone, at(1900, 1, 1), at(2035, 1, 1))
        for transition in zone_clock.since[1:].tolist():
            start, end = transition - 2 * HOUR, transition + 3 * HOUR
            times = np.append(np.arange(start, end, MINUTE), transition)
            starts = np.unique(w.starts(times))
            got = w.starts_between(start, end)
            assert {*starts[starts >= start].tolist()} <= {*got.tolist()}, zone
            assert (w.starts(got) == got).all(), zone
            # the ends of windows are the starts of others, the one before the range included
            window_ends = w.ends(np.append(w.starts(np.array([start - 1])), got))
            assert (window_ends[:-1] == got).all(), zone
            assert window_ends[-1] >= end, zone


@pytest.mark.long
@pytest.mark.slow
def test_hops_begin_with_panes_in_every_zone():
    for zone in ZONES:
        zone_clock = clock(zone, at(1900, 1, 1), at(2035, 1, 1))
        times = np.unique(np.add.outer(zone_clock.since, np.array([-HOUR, -1, 0, 1800_000_000])).ravel())
        for size, hop in [*SHORT, *LONG]:
            hours = hopping(size, hop, zone)
            starts = hours.hop.starts(times)
            window_ends = hours.ends(starts)
            assert (hours.pane.starts(starts) == starts).all(), (zone, size, hop)
            assert (hours.pane.starts(window_ends) == window_ends).all(), (zone, size, hop)
            indices, window_starts, _ = hours.assign(times)
            assert set(indices) == set(range(len(times)))
            assert (window_starts <= times[indices]).all(), (zone, size, hop)
            assert (times[indices] < hours.ends(window_starts)).all(), (zone, size, hop)


def test_a_hop_of_the_size_tumbles():
    times = at(2024, 3, 30) + np.arange(0, 3 * DAY, 7 * MINUTE)
    for size in ("25m", "1h", "6h", "1d", "1w", "1mo"):
        tumbling = window(size, "Europe/Berlin")
        indices, starts, _ = hopping(size, size, "Europe/Berlin").assign(times)
        assert (indices == np.arange(len(times))).all()
        assert (starts == tumbling.starts(times)).all()
        assert (hopping(size, size, "Europe/Berlin").ends(starts) == tumbling.ends(starts)).all()


def test_of_nothing():
    nothing = np.array([], np.int64)
    assert [len(part) for part in hopping("1h", "10m").assign(nothing)] == [0, 0, 0]
    assert len(hopping("1h", "10m").ends(nothing)) == 0
    assert len(window("1h").starts_between(5, 5)) == len(hopping("1h", "10m").starts_between(5, 4)) == 0
    assert len(window("1h").starts_between(1, 2)) == 0


def test_levels_that_windows_are_made_of():
    hours = hopping("1h", "25m", "Europe/Berlin")
    assert hours.is_made_of(window("5m", "Europe/Berlin"))
    assert hours.is_made_of(window("10s", "Europe/Berlin"))
    assert not hours.is_made_of(window("10m", "Europe/Berlin"))
    assert not hours.is_made_of(window("5m", "UTC"))
    assert hopping("1w", "1d").is_made_of(window("1h"))
    assert not hopping("1y", "1mo").is_made_of(window("1w"))


def test_names_read_back():
    hours = hopping("60 min", "10 min", "Europe/Berlin")
    assert hours.name == "hopping(60m, 10m)"
    assert read_window(hours.name, "Europe/Berlin") == hours
    assert read_window(" hopping ( 1h,10 minutes )").name == "hopping(1h, 10m)"
    assert repr(hours) == "Hopping('60m', '10m', 'Europe/Berlin')"
    assert repr(hopping("1h", "10m")) == "Hopping('1h', '10m')"
    assert len({hours, read_window(hours.name, "Europe/Berlin")}) == 1


def test_order_is_by_size_then_hop():
    sizes = [("1y", "1mo"), ("1h", "30m"), ("1h", "10m"), ("1d", "1h")]
    ordered = sorted((hopping(*size) for size in sizes), key=lambda hours: hours.sort_key)
    assert [hours.name for hours in ordered] == [f"hopping({s}, {h})" for s, h in [sizes[i] for i in (2, 1, 3, 0)]]


def test_a_window_keeps_its_zone():
    berlin = [Tumbling(1, "h", "Europe/Berlin"), Tumbling(10, "m", "Europe/Berlin")]
    assert hopping(*berlin) == hopping("1h", "10m", "Europe/Berlin")
    with pytest.raises(ValueError, match="of one time zone; got 'Europe/Berlin' and 'UTC'"):
        hopping(berlin[0], "10m")


@pytest.mark.parametrize(
    ("size", "hop", "message"),
    [
        ("10m", "1h", "rows between two windows would be lost; the hop must be no longer than the size"),
        ("1mo", "1q", "windows of 1mo cannot hop by 1q: rows between"),
        ("1mo", "1d", r"have a fixed number of days; .*hopping\(1y, 1mo\).*hopping\(30d, 1d\)"),
        ("1y", "1w", "windows of 1y cannot hop by 1w: a month"),
        ("5w", "1mo", "windows of 5w cannot hop by 1mo: a month"),
        ("2w", "7s", "made of 172,800 panes of 7s each, and at most 100,000 are allowed"),
        ("1h", "soon", "cannot read 'soon' as a window"),
        ("0h", "1m", "cannot read '0h' as a window"),
        ("1h", None, "cannot read None as a window"),
    ],
)
def test_what_does_not_hop_is_refused(size, hop, message):
    with pytest.raises(ValueError, match=message):
        hopping(size, hop)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hopping(1h)", "missing a required argument: 'hop'; hopping takes size, hop, offset="),
        ("hopping(1h, 10m, UTC)", "too many arguments; hopping takes size, hop, offset="),
        ("hop(1h, 10m)", "did you mean 'hopping'"),
        ("hopping", "missing a required argument: 'size'"),
        ("hopping()", "missing a required argument: 'size'"),
        ("hopping(1h, 10m", "write a size such as .* or one of tumbling, hopping, session, all"),
    ],
)
def test_what_cannot_be_read_is_refused(text, message):
    with pytest.raises(ValueError, match=f"cannot read {re.escape(repr(text))}.*{message}"):
        read_window(text)


def test_an_unknown_zone_is_refused():
    with pytest.raises(ValueError, match="'Europe/Paris'"):
        hopping("1h", "10m", "Europe/Pariss")


@pytest.mark.slow
def test_too_many_windows_are_refused():
    year = 366 * DAY
    message = r"31,622,400 windows of 1s begin in the range, and at most 10,000,000 can be listed"
    with pytest.raises(ValueError, match=message):
        window("1s").starts_between(0, year)
    with pytest.raises(ValueError, match=message):
        hopping("1m", "1s", "Europe/Berlin").starts_between(0, year)
    assert len(window("1s").starts_between(0, 10_000_000_000_000)) == 10_000_000


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
@pytest.mark.parametrize("size", ["1h", "1d", "1y"])
@pytest.mark.parametrize("day", [(2, 1, 3), (2, 6, 1), (9998, 12, 29)])
def test_windows_at_either_end_of_the_calendar(zone, size, day):
    time = at(*day)
    tumbling, hours = window(size, zone), hopping(size, size, zone)
    start = tumbling.starts(np.array([time]))
    assert start <= time
    indices, starts, _ = hours.assign(np.array([time]))
    assert (indices.tolist(), starts.tolist()) == ([0], start.tolist())
    if at(2, 1, 1) <= start:  # the year 2 in Berlin begins before
        assert time < tumbling.ends(start)
        assert tumbling.ends(start) == hours.ends(start)
        assert tumbling.starts_between(int(start[0]), time + 1).tolist() == start.tolist()
    with pytest.raises(ValueError, match="years 2 to 9998; got the year 9999"):
        window(size, zone).starts(np.array([at(9999, 1, 1)]))
