"""Event times as text and in nanoseconds: accepted forms, compared with Python's parser, and rejected ones."""

from __future__ import annotations

import datetime as dt
import random

import numpy as np
import pyarrow as pa
import pytest

from tests.command_line import call
from tiltframe.event_time import event_times

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

READ = [
    "2024-05-01",
    "20240501",
    "2024-05-01T10",
    "2024-05-01 10:30",
    "2024-05-01t10:30:15",
    "20240501T100000Z",
    "20240501T1000",
    "20240501T10Z",
    "2024-05-01T100000.5",
    "2024-05-01T10:00:00z",
    "2024-05-01T10:00:00+01",
    "2024-05-01T10:00:00-0130",
    "2024-05-01T10:00:00+05:30",
    "2024-05-01T10:00:00,25Z",
    "2024-05-01T10:00:00.123456789Z",
    "1969-12-31T23:59:59.9999999Z",
    "1969-12-31T23:59:59.9999999+00:00",
    "0101-01-01T00:00:00-23:59",
    "9000-12-31T23:59:59.999999+23:59",
]
SPACED = {
    " 2024-05-01T10:00:00Z ": "2024-05-01T10:00:00Z",
    "2024-05-01T10:00:00 +01:00": "2024-05-01T10:00:00+01:00",
    "2024-05-01 10:00:00 +0100": "2024-05-01T10:00:00+01:00",
    "2024-05-01 10:00:00  Z": "2024-05-01T10:00:00Z",
    "2024-05-01+05:30": "2024-05-01T00:00:00+05:30",
    "2024-05-01Z": "2024-05-01T00:00:00Z",
}
REFUSED = [
    "2024-05-01T24:00",
    "2024-05-01T10:00:60Z",
    "2024-05-01T10:60",
    "2024-02-30",
    "2024-13-01",
    "2024-122",
    "2024-W18-3",
    "2024-05",
    "2024",
    "+2024-05-01",
    "-2024-05-01",
    "24-05-01",
    "1/5/2024",
    "2024/05/01",
    "01 May 2024",
    "2024-05-01T10:00:00+1",
    "2024-05-01T10:00:00+24:00",
    "2024-05-01T10:00:00+01:60",
    "2024-05-01T10:00:00+01:00:00",
    "2024-05-01T10:00:00 CET",
    "2024-05-01T10:00:00[Europe/Berlin]",
    "2024-05-01T10:00:00.",
    "2024-05-01T1:00",
    "2024-05-01TT10:00",
    "2024-05-01-05",
    "2024-0501",
    "1714557600000",
    "1714557600",
    "1714557600.5",
    "２０２４-05-01",
    "now",
    "",
    " ",
    "2024-05-01T10:00:00Z2024-05-01",
]


def micros(text: str) -> int:
    """Read a text as Python does, UTC unless it says otherwise."""
    moment = dt.datetime.fromisoformat(text.upper())
    moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    return (moment - EPOCH) // dt.timedelta(microseconds=1)


@pytest.mark.parametrize("text", READ)
def test_a_time_is_read_as_python_reads_it(text):
    assert event_times(pa.array([text]), "ts").tolist() == [micros(text)]
    assert event_times(pa.array([text, "2024-05-01T10:00:00 Z"]), "ts")[0] == micros(text)  # among others


@pytest.mark.parametrize("text", SPACED)
def test_blanks_and_offsets_of_dates(text):
    assert event_times(pa.array([text]), "ts").tolist() == [micros(SPACED[text])]


@pytest.mark.parametrize("text", REFUSED)
@pytest.mark.parametrize("before", [0, 1, 5000])
def test_what_is_no_time_is_named_with_the_forms_that_are(text, before):
    column = pa.array(["2024-05-01T10:00:00Z"] * before + [text, "2024-05-01"])
    with pytest.raises(ValueError, match=" as a time; use ISO 8601, such as ") as refused:
        event_times(column, "ts")
    assert f"cannot parse {text!r} as a time" in str(refused.value)
    assert "'ts'" in str(refused.value)


def random_text(rng: random.Random) -> str:
    moment = EPOCH.replace(tzinfo=None) + dt.timedelta(microseconds=rng.randrange(-5 * 10**16, 2 * 10**17))
    basic = rng.random() < 0.3
    day = moment.strftime("%Y%m%d" if basic else "%Y-%m-%d").zfill(8 if basic else 10)
    depth = rng.randrange(5)
    if not depth:
        return day
    clock = moment.strftime((":", "")[basic].join(["%H", "%M", "%S"][: min(depth, 3)]))
    if depth == 4:
        clock += rng.choice(".,") + str(rng.randrange(10 ** (digits := rng.randrange(1, 10)))).zfill(digits)
    sign, hours, minutes = rng.choice("+-"), rng.randrange(24), rng.randrange(60)
    offset = rng.choice(
        ["", "Z", "z", f"{sign}{hours:02}", f"{sign}{hours:02}{minutes:02}", f"{sign}{hours:02}:{minutes:02}"]
    )
    return day + rng.choice("T t") + clock + offset


@pytest.mark.long
@pytest.mark.slow
def test_ten_thousand_random_texts_are_read_as_python_reads_them():
    rng = random.Random(7)
    texts = [random_text(rng) for _ in range(10_000)]
    expected = [micros(text) for text in texts]
    assert event_times(pa.array(texts), "ts").tolist() == expected
    for size in (1, 3, 100):  # small batches take other ways
        for at in range(0, 1000, size):
            assert event_times(pa.array(texts[at : at + size]), "ts").tolist() == expected[at : at + size]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_are_rounded_down_also_before_1970(unit):
    rng = np.random.default_rng(1)
    per = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    numbers = [-1, 0, 1, -1001, -999, *rng.integers(-(2**33) * per // 4, 2**33 * per // 4, 1000).tolist()]
    times = pa.array(numbers, pa.timestamp(unit))
    assert event_times(times, "ts").tolist() == [n * 10**6 // per for n in numbers]


def test_nanoseconds_without_a_zone_are_rounded_down():
    nanoseconds = [1_714_557_600_123_456_789, 1, -1]
    expected = [at // 1000 for at in nanoseconds]
    for kind in (pa.timestamp("ns"), pa.timestamp("ns", "UTC")):
        assert event_times(pa.array(nanoseconds, kind), "ts", "UTC").tolist() == expected
    with pytest.raises(ValueError, match=r"2024-05-01 10:00:00\.123456789"):
        event_times(pa.array(nanoseconds, pa.timestamp("ns")), "ts", "Europe/Berlin")


@pytest.mark.parametrize("kind", [pa.timestamp("s"), pa.timestamp("ms"), pa.date32(), pa.int64(), pa.uint64()])
def test_times_beyond_what_microseconds_hold_are_refused(kind):
    largest = 2**31 - 1 if kind == pa.date32() else 2**63 - 1
    column = pa.array([largest], pa.int32() if kind == pa.date32() else pa.int64()).cast(kind)
    with pytest.raises(ValueError, match="cannot read the time column 'ts'"):
        event_times(column, "ts")


@pytest.mark.parametrize(
    ("times", "options", "line", "text"),
    [
        (["1714521600000", "1714521600001", "x"], [], 4, "x"),
        (["1714521600000", str(2**63 - 1), "x"], ["--type", "ts=milliseconds"], 3, None),
        (["2024-05-01", "2024-05-32", "oops"], [], 3, "2024-05-32"),
    ],
)
def test_the_error_names_the_line_and_its_text(times, options, line, text, tmp_path, capfd):
    file = tmp_path / "rows.csv"
    file.write_text("ts,v\n" + "".join(f"{time},1\n" for time in times))
    arguments = ["--time", "ts", "--measure", "n=count()", "--levels", "1d", "--store", str(tmp_path / "store")]
    status, _, err = call(capfd, "rollup", str(file), *arguments, *options)
    assert status == 2
    assert f"line {line}" in err
    if text is not None:
        assert repr(text) in err
    assert not any(repr(other) in err for other in times if other not in (times[line - 2], text))
