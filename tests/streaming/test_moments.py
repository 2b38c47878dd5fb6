"""Times that are passed to a stream: datetimes with a zone and microseconds are accepted, and others rejected."""

from __future__ import annotations

import datetime as dt
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import aggr
from tiltframe import RunningAggregation, TiltFrame
from tiltframe.streaming import OpenWindows, OrderedStream

AT = dt.datetime(2024, 5, 1, 10, 0, 30, tzinfo=dt.UTC)
ROWS = pa.table({"ts": [AT - dt.timedelta(seconds=20)]})


def streams() -> list[OpenWindows | OrderedStream]:
    all_streams = [
        OpenWindows(TiltFrame(["10s"], "ts", {"n": aggr.count()})),
        OrderedStream(RunningAggregation({"n": aggr.count()}, "count(1)", time="ts")),
    ]
    for stream in all_streams:
        stream.add_rows(ROWS)
    return all_streams


@pytest.mark.parametrize(
    "moment",
    [AT, AT.astimezone(dt.timezone(dt.timedelta(hours=5))), pd.Timestamp(AT), np.datetime64("2024-05-01T10:00:30"),
     1_714_557_630_000_000, np.int64(1_714_557_630_000_000)],
)  # fmt: skip
def test_what_is_one_moment(moment):
    for stream in streams():
        assert stream.advance(moment).num_rows == 1
        assert stream.progress.watermark == AT


@pytest.mark.parametrize(
    ("moment", "message"),
    [
        (1_714_557_630, "is a time in 1970, .* may be in seconds or milliseconds"),
        (1_714_557_630_000, "is a time in 1970, .* may be in seconds or milliseconds"),
        (1_714_557_630_000_000_000, "beyond the year 9999, and may be in nanoseconds"),
        (AT.replace(tzinfo=None), "must be a time with a zone"),
        ("2024-05-01", "must be a datetime with a zone, or whole microseconds"),
        (1.5, "must be a datetime with a zone, or whole microseconds"),
        (True, "must be a datetime with a zone, or whole microseconds"),
    ],
)
def test_what_cannot_be_meant(moment, message):
    for stream in streams():
        with pytest.raises(ValueError, match=re.compile(message)):
            stream.advance(moment)
        assert stream.advance(AT).num_rows == 1  # nothing has changed


def test_events_of_1970_and_the_end_of_time():
    stream = OpenWindows(TiltFrame(["10s"], "ts", {"n": aggr.count()}))
    stream.add_rows(pa.table({"ts": [5, 200_000]}))
    assert stream.advance(150_000_000, now=AT).num_rows == 1
    assert stream.advance(2**62 - 1).num_rows == 1


def test_rows_ahead_of_the_clock():
    frame = TiltFrame(["10s"], "ts", {"n": aggr.count()})
    stream = OpenWindows(frame, ahead="1h")
    now = dt.datetime.now(dt.UTC)
    stream.add_rows(pa.table({"ts": [now + dt.timedelta(minutes=50)]}))
    with pytest.raises(ValueError, match="ahead of the clock by more than ahead='1h'"):
        stream.add_rows(pa.table({"ts": [now, now + dt.timedelta(hours=2)]}))
    assert stream.progress.rows == 1
    again = OpenWindows.from_ipc(stream.to_ipc())
    with pytest.raises(ValueError, match="ahead of the clock"):
        again.add_rows(pa.table({"ts": [now + dt.timedelta(hours=2)]}))
    with pytest.raises(ValueError, match=r"^ahead must be a duration such as 1h, or none"):
        OpenWindows(frame, ahead="soon")
