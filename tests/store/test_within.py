"""Ranges of time in all accepted forms, compared with datetime and zoneinfo."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.windows.test_windows import at, micros
from tiltframe.time_range import read_time_range
from windows import window

UTC = dt.UTC
MINUTE, HOUR, DAY = 60_000_000, 3_600_000_000, 86_400_000_000
INDIA = dt.timezone(dt.timedelta(hours=5, minutes=30))
PACIFIC = dt.timezone(dt.timedelta(hours=-8))


def instant_of(*parts, zone=UTC):
    return micros(dt.datetime(*parts, tzinfo=zone))


MOMENTS = {
    # what is given, in Europe/Berlin: the instant
    "date": ("2024-05-01", instant_of(2024, 4, 30, 22)),
    "date in winter": ("2024-01-01", instant_of(2023, 12, 31, 23)),
    "time": ("2024-05-01T12:00", instant_of(2024, 5, 1, 10)),
    "time after a blank": ("2024-05-01 12:00:07", instant_of(2024, 5, 1, 10, 0, 7)),
    "fraction": ("2024-05-01T12:00:00.25", instant_of(2024, 5, 1, 10, 0, 0, 250_000)),
    "basic date": ("20240501", instant_of(2024, 4, 30, 22)),
    "week": ("2024-W18-3", instant_of(2024, 4, 30, 22)),
    "UTC": ("2024-05-01T12:00Z", instant_of(2024, 5, 1, 12)),
    "small z": ("2024-05-01T12:00z", instant_of(2024, 5, 1, 12)),
    "offset": ("2024-05-01T12:00+05:30", instant_of(2024, 5, 1, 12, zone=INDIA)),
    "offset west": ("2024-05-01T12:00-08:00", instant_of(2024, 5, 1, 12, zone=PACIFIC)),
    "offset without colon": ("2024-05-01T12:00-0800", instant_of(2024, 5, 1, 12, zone=PACIFIC)),
    "Siddhi's": ("2024-05-01 12:00:00 +05:30", instant_of(2024, 5, 1, 12, zone=INDIA)),
    "blanks around": (" 2024-05-01 12:00:00 Z ", instant_of(2024, 5, 1, 12)),
    "date with an offset": ("2024-05-01+05:30", instant_of(2024, 5, 1, zone=INDIA)),
    "date with an offset west": ("2024-05-01 -08:00", instant_of(2024, 5, 1, zone=PACIFIC)),
    "date in UTC": ("2024-05-01Z", instant_of(2024, 5, 1)),
    "milliseconds": (1_714_557_600_123, instant_of(2024, 5, 1, 10, 0, 0, 123_000)),
    "milliseconds in digits": ("1714557600123", instant_of(2024, 5, 1, 10, 0, 0, 123_000)),
    "milliseconds before 1970": ("-86400000", instant_of(1969, 12, 31)),
    "seven digits and a sign": ("-3600000", instant_of(1969, 12, 31, 23)),
    "numpy integer": (np.int64(86_400_000), instant_of(1970, 1, 2)),
    "naive datetime": (dt.datetime(2024, 5, 1, 12), instant_of(2024, 5, 1, 10)),
    "aware datetime": (dt.datetime(2024, 5, 1, 12, tzinfo=INDIA), instant_of(2024, 5, 1, 12, zone=INDIA)),
    "datetime of a zone": (dt.datetime(2024, 5, 1, 12, tzinfo=ZoneInfo("Asia/Tokyo")), instant_of(2024, 5, 1, 3)),
    "plain date": (dt.date(2024, 5, 1), instant_of(2024, 4, 30, 22)),
    "timestamp": (pd.Timestamp("2024-05-01T12:00:00.000000999"), instant_of(2024, 5, 1, 10)),
    "zoned timestamp": (pd.Timestamp("2024-05-01T12:00", tz="Asia/Tokyo"), instant_of(2024, 5, 1, 3)),
    "numpy time": (np.datetime64("2024-05-01T12:00:00.000000999"), instant_of(2024, 5, 1, 10)),
    "numpy date": (np.datetime64("2024-05-01"), instant_of(2024, 4, 30, 22)),
    "numpy month": (np.datetime64("2024-05"), instant_of(2024, 4, 30, 22)),
    "repeated time": ("2024-10-27T02:30", instant_of(2024, 10, 27, 0, 30)),
    "repeated datetime": (dt.datetime(2024, 10, 27, 2, 30), instant_of(2024, 10, 27, 0, 30)),
    "the later of two": (dt.datetime(2024, 10, 27, 2, 30, fold=1), instant_of(2024, 10, 27, 1, 30)),
    "the later of two, by its offset": ("2024-10-27T02:30+01:00", instant_of(2024, 10, 27, 1, 30)),
    "skipped time": ("2024-03-31T02:30", instant_of(2024, 3, 31, 1)),
    "skipped datetime": (dt.datetime(2024, 3, 31, 2, 30), instant_of(2024, 3, 31, 1)),
    "skipped timestamp": (pd.Timestamp(2024, 3, 31, 2, 30), instant_of(2024, 3, 31, 1)),
}


@pytest.mark.parametrize("name", MOMENTS)
def test_moments(name):
    moment, instant = MOMENTS[name]
    far = dt.datetime(2100, 1, 1, tzinfo=UTC)
    assert read_time_range((moment, far), "Europe/Berlin") == (instant, micros(far))
    assert read_time_range([0 if instant > 0 else -(10**12), moment], "Europe/Berlin")[1] == instant
    if isinstance(moment, str):
        assert read_time_range(f"{moment},2100-01-01Z", "Europe/Berlin") == (instant, micros(far))


def test_a_pair_of_siddhi():
    pair = ("2018-01-02 03:04:05 +05:30", "2018-01-03 03:04:05 -08:00")
    expected = (instant_of(2018, 1, 2, 3, 4, 5, zone=INDIA), instant_of(2018, 1, 3, 3, 4, 5, zone=PACIFIC))
    assert read_time_range(pair, "UTC") == read_time_range(", ".join(pair), "Asia/Tokyo") == expected


PATTERNS = [
    ("2018-**-** **:**:**", (2018, 1, 1), (2019, 1, 1)),
    ("2018-01-** **:**:**", (2018, 1, 1), (2018, 2, 1)),
    ("2018-12-** **:**:**", (2018, 12, 1), (2019, 1, 1)),
    ("2020-02-** **:**:**", (2020, 2, 1), (2020, 3, 1)),
    ("2018-01-31 **:**:**", (2018, 1, 31), (2018, 2, 1)),
    ("2018-01-02 23:**:**", (2018, 1, 2, 23), (2018, 1, 3)),
    ("2018-01-02 03:59:**", (2018, 1, 2, 3, 59), (2018, 1, 2, 4)),
    ("2018-01-02 03:04:59", (2018, 1, 2, 3, 4, 59), (2018, 1, 2, 3, 5)),
    ("1969-12-31 23:**:**", (1969, 12, 31, 23), (1970, 1, 1)),
    ("0004-**-** **:**:**", (4, 1, 1), (5, 1, 1)),
    ("9998-**-** **:**:**", (9998, 1, 1), (9999, 1, 1)),
]


@pytest.mark.parametrize(("text", "start", "end"), PATTERNS)
def test_patterns(text, start, end):
    for zone in ("UTC", "Europe/Berlin", "Asia/Kolkata"):
        assert read_time_range(text, zone) == (at(*start, zone=zone), at(*end, zone=zone))
    for offset, zone in ((" +05:30", INDIA), ("+0530", INDIA), (" -08:00", PACIFIC), (" Z", UTC), ("z", UTC)):
        expected = instant_of(*start, zone=zone), instant_of(*end, zone=zone)
        assert (
            read_time_range(text + offset, "Europe/Berlin") == read_time_range(f" {text}{offset} ", "UTC") == expected
        )


@pytest.mark.parametrize(
    ("zone", "text", "start", "length"),
    [
        ("Europe/Berlin", "2024-03-31 **:**:**", (2024, 3, 30, 23), 23 * HOUR),
        ("Europe/Berlin", "2024-10-27 **:**:**", (2024, 10, 26, 22), 25 * HOUR),
        ("Europe/Berlin", "2024-10-** **:**:**", (2024, 9, 30, 22), 31 * DAY + HOUR),
        ("Europe/Berlin", "2024-**-** **:**:**", (2023, 12, 31, 23), 366 * DAY),
        ("Europe/Berlin", "2024-10-27 02:**:**", (2024, 10, 27, 0), HOUR),  # the first of two
        ("Europe/Berlin", "2024-10-27 02:**:** +01:00", (2024, 10, 27, 1), HOUR),  # the second
        ("Europe/Berlin", "2024-10-27 02:59:**", (2024, 10, 27, 0, 59), MINUTE),
        ("Europe/Berlin", "2024-10-27 01:**:**", (2024, 10, 26, 23), HOUR),
        ("Europe/Berlin", "2024-03-31 01:**:**", (2024, 3, 31, 0), HOUR),
        ("Europe/Berlin", "2024-03-31 03:**:**", (2024, 3, 31, 1), HOUR),
        ("America/New_York", "2013-11-03 **:**:**", (2013, 11, 3, 4), 25 * HOUR),
        ("Australia/Lord_Howe", "2024-04-07 **:**:**", (2024, 4, 6, 13), 24 * HOUR + 30 * MINUTE),
        ("Australia/Lord_Howe", "2024-10-06 02:**:**", (2024, 10, 5, 15, 30), 30 * MINUTE),  # from 02:30
        ("America/Sao_Paulo", "2018-11-04 **:**:**", (2018, 11, 4, 3), 23 * HOUR),  # from 01:00
        ("America/Toronto", "1919-03-31 **:**:**", (1919, 3, 31, 4, 30), 23 * HOUR + 30 * MINUTE),  # from 00:30
    ],
)
def test_patterns_across_settings_of_the_clock(zone, text, start, length):
    assert read_time_range(text, zone) == (instant_of(*start), instant_of(*start) + length)


@pytest.mark.slow
@given(
    st.datetimes(dt.datetime(1905, 1, 1), dt.datetime(2037, 1, 1)).map(lambda moment: moment.replace(microsecond=0)),
    st.integers(1, 6),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo"]),
)
@settings(max_examples=200, deadline=None)
def test_a_pattern_is_a_window(moment, given_parts, zone):
    """Of the instant that the text of the pattern names: the first of two; skipped ones are left out here."""
    instant = moment.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    if instant.astimezone(ZoneInfo(zone)).replace(tzinfo=None) != moment:
        return
    parts = moment.strftime("%Y %m %d %H %M %S").split()
    year, month, day, hour, minute, second = parts[:given_parts] + ["**"] * (6 - given_parts)
    start, end = read_time_range(f"{year}-{month}-{day} {hour}:{minute}:{second}", zone)
    assert start <= micros(instant) < end
    size = window(("y", "mo", "d", "h", "m", "s")[given_parts - 1], zone)
    assert size.starts(np.array([start, end - 1, end])).tolist() == [start, start, end]


@pytest.mark.parametrize(
    ("zone", "text"), [("Europe/Berlin", "2024-03-31 02:**:**"), ("Pacific/Apia", "2011-12-30 **:**:**")]
)
def test_what_the_clock_skips_is_empty(zone, text):
    with pytest.raises(ValueError, match=f"is empty, because the clock of {zone} skips these local times"):
        read_time_range(text, zone)


START_AND_END = "write START,END such as 2024-05-01,2024-05-02"
EMPTY = "is empty: its end must come after its start"
OF_TYPE = "pass a datetime, a date, ISO 8601 text or a whole number of Unix milliseconds"
BEYOND = "must lie in the years 2 to 9998"
ERRORS = {
    "end before start": ("2024-05-02,2024-05-01", rf"the range '2024-05-02,2024-05-01' {EMPTY}"),
    "end at start": ((5, 5), rf"the range \(5, 5\) {EMPTY}"),
    "end at start in another zone": (("2024-05-01T12:00Z", "2024-05-01T17:30+05:30"), EMPTY),
    "half a range": ("2024-05-", f"cannot read the range '2024-05-'; {START_AND_END}"),
    "a day that is none": ("2024-02-30", "cannot read the range '2024-02-30.*: day is out of range"),
    "a month that is none": ("2024-13", r"month must be in 1\.\.12"),
    "ago in no unit": ("-24x", START_AND_END),
    "ago without a number": ("-h", START_AND_END),
    "before all years": ("-9999y", f"as a time: it {BEYOND}"),
    "nothing since now": ("-0h", EMPTY),
    "a third of one": ("2024-05-02,2024-05-03,2024-05-04", START_AND_END),
    "nothing": ("", START_AND_END),
    "one end": (("2024-05-02",), START_AND_END),
    "three ends": ([1, 2, 3], START_AND_END),
    "no range": (None, "cannot read the range None"),
    "a number": (5, "cannot read the range 5"),
    "an array": (np.array([1, 2]), "cannot read the range array"),
    "no time": ("May,June", "cannot read 'May' as a time; write 2024-05-01, 2024-05-01T12:00"),
    "no such day": ("2024-02-30,2024-05-02", "cannot read '2024-02-30' as a time"),
    "no such hour": ("2024-05-01,2024-05-02T25:00", "cannot read '2024-05-02T25:00' as a time"),
    "no such offset": ("2024-05-01,2024-05-02T12:00+05:99", "cannot read '2024-05-02T12:00.05:99' as a time"),
    "far offset": ("2024-05-01,2024-05-02T12:00+25:00", "cannot read '2024-05-02T12:00.25:00' as a time"),
    "an end missing": ("2024-05-01,", "the range '2024-05-01,' has only one end, but both are required here"),
    "a pattern as an end": ("2018-01-** **:**:**,2018-02-01", "cannot read '2018-.*a pattern is a complete range"),
    "two patterns": (("2018-01-** **:**:**", "2018-02-** **:**:**"), "a pattern is a complete range"),
    "bool": ((False, True), f"cannot use False, of type bool, as a time; {OF_TYPE}"),
    "numpy bool": ((np.True_, 5), f"of type bool, as a time; {OF_TYPE}"),
    "float": ((0, 1.5), f"cannot use 1.5, of type float, as a time; {OF_TYPE}"),
    "whole float": ((0.0, 1), "of type float"),
    "NaN": ((0, float("nan")), "cannot use nan, of type float, as a time"),
    "numpy float": ((0, np.float64(5)), "of type float64"),
    "None": ((None, 5), r"the range \(None, 5\) has only one end, but both are required here"),
    "NaT": ((pd.NaT, 5), "cannot use NaT, of type NaTType, as a time"),
    "numpy NaT": ((np.datetime64("NaT"), 5), "of type datetime64, as a time"),
    "a length of time": ((0, dt.timedelta(1)), "of type timedelta, as a time"),
    "numpy length of time": ((0, np.timedelta64(1, "s")), "of type timedelta64, as a time"),
    "bytes": ((b"2024-05-01", 5), "of type bytes, as a time"),
    "early": (("0001-12-31", 0), f"cannot use '0001-12-31' as a time: it {BEYOND}"),
    "late": ((0, "9999-01-02"), f"cannot use '9999-01-02' as a time: it {BEYOND}"),
    "early datetime": ((dt.datetime(1, 5, 1, tzinfo=UTC), 0), BEYOND),
    "late date": ((0, dt.date(9999, 1, 2)), BEYOND),
    "late milliseconds": ((0, 10**18), f"cannot use 1000000000000000000 as a time: it {BEYOND}"),
    "early milliseconds": ("-99999999999999,0", f"cannot use '-99999999999999' as a time: it {BEYOND}"),
    "late numpy time": ((0, np.datetime64("20000-01-01")), BEYOND),
    "early numpy time": ((np.datetime64("0000-01-01"), 0), BEYOND),
    "early pattern": ("0001-**-** **:**:**", rf"cannot use '0001-.*' as a time: it {BEYOND}"),
    "late pattern": ("9999-**-** **:**:**", rf"cannot use '9999-.*' as a time: it {BEYOND}"),
    "a gap in the stars": ("2018-**-02 **:**:**", r"every part after \*\* must be \*\* too, as in '2018-01-\*\*"),
    "another gap": ("2018-01-02 **:**:05", r"cannot read the range .*every part after \*\*"),
    "no year": ("****-**-** **:**:**", r"or a pattern 'YYYY-MM-DD hh:mm:ss' with \*\* for each part"),
    "single stars": ("2018-01-* *:*:*", r"such as '2024-05-\*\* \*\*:\*\*:\*\*'"),
    "too few parts": ("2018-01-**", "cannot read the range '2018-01-.*or a pattern"),
    "no such month": ("2018-13-** **:**:**", r"cannot read the range '2018-13-.*: month must be in 1\.\.12"),
    "no such day of a pattern": ("2018-02-30 **:**:**", "cannot read the range '2018-02-30.*: day is out of range"),
    "no such hour of a pattern": ("2018-02-20 24:**:**", r": hour must be in 0\.\.23"),
    "no such offset of a pattern": ("2018-02-20 **:**:** +99:00", "cannot read the range .*99:00'"),
    "a zone's name": ("2018-02-20 **:**:** UTC", "cannot read the range"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_is_no_range_is_refused(name):
    within, message = ERRORS[name]
    with pytest.raises(ValueError, match=message):
        read_time_range(within, "Europe/Berlin")


def test_an_unknown_zone_is_refused():
    with pytest.raises(ValueError, match="'Europe/Paris'"):
        read_time_range("0,1", "Europe/Pariss")


def test_the_calendar_to_its_ends():
    assert read_time_range(("0002-01-01", "9999-01-01"), "UTC") == (instant_of(2, 1, 1), instant_of(9999, 1, 1))
    for zone in ("Europe/Berlin", "America/New_York"):
        start, end = read_time_range(("0002-01-01", "9999-01-01"), zone)
        assert abs(start - instant_of(2, 1, 1)) < DAY
        assert abs(end - instant_of(9999, 1, 1)) < DAY


@pytest.mark.slow
@given(
    st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2037, 1, 1)), st.sampled_from(["Europe/Berlin", "Asia/Tehran"])
)
@settings(max_examples=200, deadline=None)
def test_all_ways_of_writing_a_moment_agree(moment, zone):
    aware = moment.replace(tzinfo=ZoneInfo(zone))
    back = aware.astimezone(UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    if back != moment:  # skipped
        return
    ways = [moment, aware, str(moment), moment.isoformat(), str(aware.astimezone(UTC)), pd.Timestamp(moment)]
    ways += [np.datetime64(moment), pd.Timestamp(aware.astimezone(UTC))]
    assert {read_time_range((way, "2100-01-01"), zone)[0] for way in ways} == {micros(aware)}


NOW = instant_of(2024, 3, 31, 12, 30)  # half past two in the afternoon in Berlin, which has lost an hour that night


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("2024-03-31", (2024, 3, 30, 23), (2024, 3, 31, 22)),
        ("2024-03-31Z", (2024, 3, 31), (2024, 4, 1)),
        ("2024-03", (2024, 2, 29, 23), (2024, 3, 31, 22)),
        ("2024", (2023, 12, 31, 23), (2024, 12, 31, 23)),
        ("2024-03-31 14", (2024, 3, 31, 12), (2024, 3, 31, 13)),
        ("2024-03-31T14:05", (2024, 3, 31, 12, 5), (2024, 3, 31, 12, 6)),
        ("2024-03-31 14:05:06 +02:00", (2024, 3, 31, 12, 5, 6), (2024, 3, 31, 12, 5, 7)),
        (dt.date(2024, 3, 31), (2024, 3, 30, 23), (2024, 3, 31, 22)),
        ("-24h", (2024, 3, 30, 12, 30), (2024, 3, 31, 12, 30)),
        (" -1d ", (2024, 3, 30, 12, 30), (2024, 3, 31, 12, 30)),
        ("-90s", (2024, 3, 31, 12, 28, 30), (2024, 3, 31, 12, 30)),
        ("-1mo", (2024, 2, 29, 13, 30), (2024, 3, 31, 12, 30)),  # February has no 31st; in winter's hour
        ("-2q", (2023, 9, 30, 12, 30), (2024, 3, 31, 12, 30)),
        ("-1y", (2023, 3, 31, 12, 30), (2024, 3, 31, 12, 30)),
        ("-2h,-1h", (2024, 3, 31, 10, 30), (2024, 3, 31, 11, 30)),
        (("2024-03-31", "now"), (2024, 3, 30, 23), (2024, 3, 31, 12, 30)),
    ],
)
def test_days_and_times_ago(text, start, end):
    assert read_time_range(text, "Europe/Berlin", NOW) == (instant_of(*start), instant_of(*end))


@pytest.mark.parametrize(
    ("text", "now", "start"),
    [
        ("-2mo", (2024, 5, 31, 0, 30), (2024, 3, 31, 1)),  # the clock does not show 02:30 on that day
        ("-5y", (2028, 10, 29, 1, 30), (2023, 10, 29, 0, 30)),  # the clock shows 02:30 twice on both days
        ("-5y", (2028, 10, 29, 0, 30), (2023, 10, 29, 0, 30)),
    ],
)
def test_times_ago_that_the_clock_skips_or_repeats(text, now, start):
    """As for times that are written as text: the first instant at which the clock shows the time or a later one."""
    assert read_time_range(text, "Europe/Berlin", instant_of(*now))[0] == instant_of(*start)


@given(st.datetimes(dt.datetime(1971, 1, 1), dt.datetime(2037, 1, 1)), st.integers(1, 400))
@settings(max_examples=100, deadline=None)
def test_months_ago_as_pandas_counts_them(now, months):
    back = pd.Timestamp(now) - pd.DateOffset(months=months)
    assert read_time_range(f"-{months}mo", "UTC", instant_of(*now.timetuple()[:6]))[0] == instant_of(
        *back.timetuple()[:6]
    )
