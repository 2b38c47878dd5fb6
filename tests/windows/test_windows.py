"""Windows, compared with a naive evaluator that follows the clock of the zone minute by minute."""

from __future__ import annotations

import datetime as dt
import os
import time
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggr.clocks import clock
from windows import window

UTC = dt.UTC


def micros(moment: dt.datetime) -> int:
    return (moment - dt.datetime(1970, 1, 1, tzinfo=UTC)) // dt.timedelta(microseconds=1)


def at(*parts, zone="UTC", fold=0):
    return micros(dt.datetime(*parts, tzinfo=ZoneInfo(zone), fold=fold))


def bounds(size, zone, time):
    w = window(size, zone)
    start = w.starts(np.array([time]))
    return int(start[0]), int(w.ends(start)[0])


@pytest.mark.parametrize(
    ("size", "zone", "time", "start", "end"),
    [
        ("10s", "UTC", (2024, 5, 1, 12, 0, 19), (2024, 5, 1, 12, 0, 10), (2024, 5, 1, 12, 0, 20)),
        ("1h", "Asia/Kolkata", (2024, 5, 1, 12, 40), (2024, 5, 1, 12, 0), (2024, 5, 1, 13, 0)),
        ("1d", "Asia/Singapore", (2017, 6, 1, 3, 0), (2017, 6, 1), (2017, 6, 2)),
        ("1d", "America/New_York", (2013, 3, 10, 12), (2013, 3, 10), (2013, 3, 11)),
        ("1d", "America/New_York", (2013, 11, 3, 12), (2013, 11, 3), (2013, 11, 4)),
        ("6h", "America/New_York", (2013, 11, 3, 5), (2013, 11, 3, 0), (2013, 11, 3, 6)),
        ("6h", "America/New_York", (2013, 11, 3, 8), (2013, 11, 3, 6), (2013, 11, 3, 12)),
        ("1w", "UTC", (2024, 5, 1), (2024, 4, 29), (2024, 5, 6)),
        ("1mo", "Europe/Paris", (2024, 2, 29, 23), (2024, 2, 1), (2024, 3, 1)),
        ("1q", "UTC", (2024, 6, 30), (2024, 4, 1), (2024, 7, 1)),
        ("1y", "America/New_York", (2013, 12, 31, 23), (2013, 1, 1), (2014, 1, 1)),
        ("1d", "UTC", (1969, 12, 31, 5), (1969, 12, 31), (1970, 1, 1)),
        ("1mo", "UTC", (1900, 2, 28), (1900, 2, 1), (1900, 3, 1)),
        ("1d", "Pacific/Apia", (2011, 12, 29, 12), (2011, 12, 29), (2011, 12, 31)),  # the 30th never was
        ("1d", "America/Sao_Paulo", (2018, 11, 4, 12), (2018, 11, 4, 1), (2018, 11, 5)),  # midnight never was
    ],
)
def test_known_windows(size, zone, time, start, end):
    assert bounds(size, zone, at(*time, zone=zone)) == (at(*start, zone=zone), at(*end, zone=zone))


def test_lengths_across_settings_of_the_clock():
    hour = 3_600_000_000
    for day, hours in (((2013, 3, 10), 23), ((2013, 11, 3), 25), ((2013, 7, 4), 24)):
        start, end = bounds("1d", "America/New_York", at(*day, 12, zone="America/New_York"))
        assert (end - start) / hour == hours
    start, end = bounds("6h", "America/New_York", at(2013, 11, 3, 0, 30, zone="America/New_York"))
    assert (end - start) / hour == 7
    # the repeated hour is a window of its own
    first = bounds("1h", "America/New_York", at(2013, 11, 3, 1, 30, zone="America/New_York"))
    second = bounds("1h", "America/New_York", at(2013, 11, 3, 1, 30, zone="America/New_York", fold=1))
    assert first[1] == second[0]
    assert second[1] - second[0] == hour


def naive_starts(size_minutes: int | str, zone: str, begin: int, minutes: int) -> list[int]:
    """Walk the clock: a window starts where the running maximum of the floored local time steps up."""
    info, starts, top = ZoneInfo(zone), [], None
    current = begin
    for step in range(minutes):
        time = begin + step * 60_000_000
        local = dt.datetime.fromtimestamp(time / 1e6, UTC).astimezone(info).replace(tzinfo=None)
        if size_minutes == "week":
            floor = (local - dt.timedelta(days=local.weekday())).replace(hour=0, minute=0)
        else:
            passed = (local - dt.datetime(1970, 1, 1)) // dt.timedelta(minutes=1)
            floor = dt.datetime(1970, 1, 1) + dt.timedelta(minutes=passed // size_minutes * size_minutes)
        if top is None or floor > top:
            top, current = floor, time
        starts.append(current)
    return starts


WALKS = [
    ("America/New_York", (2013, 3, 9)), ("America/New_York", (2013, 11, 2)), ("Europe/London", (2024, 10, 26)),
    ("Australia/Lord_Howe", (2024, 4, 6)), ("Australia/Lord_Howe", (2024, 10, 5)), ("America/St_Johns", (2006, 10, 28)),
    ("America/Sao_Paulo", (2018, 11, 3)), ("America/Sao_Paulo", (2018, 2, 17)), ("Africa/Casablanca", (2024, 3, 9)),
    ("Pacific/Apia", (2011, 12, 29)), ("Asia/Tehran", (2021, 9, 21)), ("Antarctica/Troll", (2024, 10, 26)),
    ("America/Havana", (2024, 11, 2)), ("Asia/Kathmandu", (1985, 12, 31)), ("America/Caracas", (2016, 4, 30)),
]  # fmt: skip

# Those whose clocks were set in odd ways; TILTFRAME_ALL_ZONES=1 takes every zone there is (some minutes).
ODD = [
    "America/Toronto",
    "Asia/Kolkata",
    "Asia/Singapore",
    "Europe/Dublin",
    "Africa/Monrovia",
    "Asia/Pyongyang",
]
ZONES = (
    sorted(available_timezones()) if os.environ.get("TILTFRAME_ALL_ZONES") else sorted({z for z, _ in WALKS} | {*ODD})
)


@pytest.mark.parametrize(("zone", "day"), WALKS, ids=[f"{z}-{d[0]}-{d[1]}" for z, d in WALKS])
@pytest.mark.parametrize("size", ["3h", "4h", "6h", "1d", "1w"])
def test_windows_follow_the_clock(zone, day, size):
    # longer than the offset changes by: the plain rule holds without exception
    begin = at(*day) - (8 * 86_400_000_000 if size == "1w" else 0)
    minutes = (at(*day) + 3 * 86_400_000_000 - begin) // 60_000_000
    step = "week" if size == "1w" else int(size[:-1]) * {"h": 60, "d": 1440}[size[-1]]
    naive = np.array(naive_starts(step, zone, begin, minutes))
    times = begin + np.arange(minutes) * 60_000_000
    fair = naive > naive[0]  # the walk cannot know when its first window began
    assert fair.any() or size == "1w"
    got = window(size, zone).starts(times)
    assert (got[fair] == naive[fair]).all()
    assert (got <= times).all()
    assert (window(size, zone).ends(got) > times).all()


@pytest.mark.slow
@pytest.mark.parametrize("size", ["10s", "1m", "10m", "15m", "30m", "1h", "2h", "6h", "1d", "1w", "1mo", "1q", "1y"])
def test_windows_tile_the_line_in_every_zone(size):
    """No gap and no overlap, at every UTC-offset transition of every zone in 60 years."""
    for zone in ZONES:
        zone_clock = clock(zone, at(1975, 1, 1), at(2035, 1, 1))
        offsets = np.array([-86_400, -7200, -3601, -1800, -60, -1, 0, 1, 60, 1799, 3600, 7201, 86_400]) * 1_000_000
        times = np.unique(np.add.outer(zone_clock.since[1:], offsets).ravel())
        if not len(times):
            continue
        w = window(size, zone)
        starts = w.starts(times)
        window_ends = w.ends(starts)
        assert (starts <= times).all(), zone
        assert (times < window_ends).all(), zone
        assert (w.starts(starts) == starts).all(), zone
        assert (w.starts(window_ends - 1) == starts).all(), zone
        assert (w.starts(window_ends) == window_ends).all(), zone


CHAIN = ["10s", "1m", "10m", "30m", "1h", "2h", "6h", "12h", "1d", "1mo", "1q", "1y"]


@pytest.mark.slow
def test_coarse_windows_are_whole_finer_ones_in_every_zone():
    for zone in ZONES:
        zone_clock = clock(zone, at(1900, 1, 1), at(2035, 1, 1))
        times = np.unique(np.add.outer(zone_clock.since[1:], np.array([-1, 0, 1800_000_000])).ravel())
        if not len(times):
            continue
        for fine, coarse in [
            *pairwise(CHAIN),
            ("1d", "1w"),
            ("1h", "1w"),
            ("1h", "1d"),
            ("10m", "6h"),
        ]:
            f, c = window(fine, zone), window(coarse, zone)
            assert c.is_made_of(f)
            starts = c.starts(times)
            for edge in (starts, c.ends(starts)):
                assert (f.starts(edge) == edge).all(), (zone, fine, coarse)


@pytest.mark.slow
@given(st.integers(-(10**16), 4 * 10**16), st.sampled_from(CHAIN), st.sampled_from(sorted(available_timezones())))
@settings(max_examples=150, deadline=None)
def test_any_time_lies_in_its_window(time, size, zone):
    start, end = bounds(size, zone, time)
    assert start <= time < end


@pytest.mark.parametrize(
    ("fine", "coarse", "nests"),
    [
        ("10s", "1m", True), ("10s", "45s", False), ("45s", "1h", True), ("7m", "1h", False), ("1h", "1d", True),
        ("5h", "1d", False), ("1d", "1mo", True), ("2d", "1mo", False), ("1d", "1w", True), ("1w", "1mo", False),
        ("1w", "1y", False), ("1mo", "1q", True), ("1q", "1y", True), ("5mo", "1y", False), ("1mo", "1d", False),
        ("1w", "2w", True), ("7d", "1w", False), ("1h", "1w", True), ("10s", "1y", True), ("1d", "7d", True),
    ],
)  # fmt: skip
def test_nesting(fine, coarse, nests):
    assert window(coarse).is_made_of(window(fine)) is nests


def test_other_zones_do_not_nest():
    assert not window("1d", "Asia/Kolkata").is_made_of(window("1h", "UTC"))


@pytest.mark.parametrize("bad", ["", "10", "s10", "0s", "-1h", "1.5h", "1 fortnight", "10S", None, 60])
def test_a_bad_size_is_refused(bad):
    with pytest.raises(ValueError, match="such as '10s'"):
        window(bad)


def test_an_unknown_zone_is_refused_with_a_hint():
    with pytest.raises(ValueError, match="'Europe/Paris'"):
        window("1h", "Europe/Pariss")
    with pytest.raises(ValueError, match="IANA"):
        window("1h", "!!")


def test_times_beyond_the_calendar_are_refused():
    with pytest.raises(ValueError, match="year"):
        window("1h").starts(np.array([4 * 10**18]))


@pytest.mark.parametrize("words", ["1m", "1 minute", "minute", "1min", " 1 minutes "])
def test_words_for_a_minute(words):
    assert window(words).name == "1m"


RULES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Tehran"]


@pytest.mark.parametrize("zone", RULES)
def test_far_years_follow_the_rule_of_the_zone(zone):
    info = ZoneInfo(zone)
    moments = [
        dt.datetime(year, month, day, hour, tzinfo=dt.UTC)
        for year in (2099, 2100, 2150, 2400, 5000, 9990)
        for month in (1, 3, 4, 7, 10, 11)
        for day in (1, 8, 28)
        for hour in (0, 23)
    ]
    starts = window("1d", zone).starts(np.array([micros(moment) for moment in moments]))
    for moment, start in zip(moments, starts.tolist(), strict=True):
        midnight = dt.datetime.combine(moment.astimezone(info).date(), dt.time(), info)
        assert start == micros(midnight)


def test_a_far_time_is_found_at_once():
    times = np.array([0, micros(dt.datetime(9990, 1, 1, tzinfo=dt.UTC))])
    begun = time.process_time()
    window("1d", "Europe/Lisbon").starts(times)  # of a zone that no other test has looked at in these years
    assert time.process_time() - begun < 3  # seconds; a look at every day of 8,000 years took 15
