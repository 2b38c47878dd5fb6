"""Times as text: the parser of single texts, that of columns and Python's parser agree."""

from __future__ import annotations

import datetime as dt
import os
import random

import pyarrow as pa
import pytest

from aggr.iso8601 import read_time, read_times

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
TRIALS = int(os.environ.get("TRIALS", "3000"))


def drawn(draws: random.Random) -> str:
    """Draw a time in any form, now and then one that is none: a thirteenth month, 24:00, an offset of 60 minutes."""
    basic = draws.random() < 0.5
    year, month, day = draws.choice((1, 1900, 1969, 2000, 2024, 9999)), draws.randint(0, 13), draws.randint(0, 32)
    text = f"{year:04}{month:02}{day:02}" if basic else f"{year:04}-{month:02}-{day:02}"
    if draws.random() < 0.8:
        clock = [f"{draws.choice((0, 9, 23, 24)):02}", *(f"{draws.choice((0, 7, 59, 60)):02}" for _ in range(2))]
        text += draws.choice("T ") + ("" if basic else ":").join(clock[: draws.randint(1, 3)])
        text += draws.choice((".5", ",123456", ".1234567891")) * (draws.random() < 0.5 and text.count(":") == 2)
    return text + draws.choice(("", "", "Z", "+01", "-0530", "+05:30", "+23:59", "+24:00", "+01:60"))


def by_python(text: str) -> int | None:
    date, offset = (text[:8], text[8:]) if text[4] != "-" else (text[:10], text[10:])
    if offset[:1] in ("Z", "+", "-"):  # Python takes any letter between date and clock
        if len(offset) == 3:
            return None  # an hour or an offset: nobody can tell
        text = f"{date}T00{offset}"
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    return None if text.endswith(":60") else (moment - EPOCH) // dt.timedelta(microseconds=1)


def by_one(text: str) -> int | None:
    try:
        moment, _ = read_time(text)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    return (moment - EPOCH) // dt.timedelta(microseconds=1)


def test_one_and_a_column_are_read_as_python_reads_them():
    seed = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))
    print(f"seed {seed}")
    draws = random.Random(seed)
    texts = [drawn(draws) for _ in range(TRIALS)]
    column = read_times(pa.array(texts)).cast(pa.int64()).to_pylist()
    assert 0.1 < column.count(None) / TRIALS < 0.9
    for text, value in zip(texts, column, strict=True):
        assert value == by_one(text) == by_python(text), (seed, text)


@pytest.mark.parametrize(
    ("text", "moment", "beside"),
    [
        ("2024-5-1 9:30", dt.datetime(2024, 5, 1, 9, 30), 0),
        ("2024-W18-3", dt.datetime(2024, 5, 1), 0),
        (" 2024-05-01T10:00:00.123456789 +01 ", dt.datetime(2024, 5, 1, 9, 0, 0, 123456, dt.UTC), 789),
    ],
)
def test_one_digit_weeks_and_nanoseconds(text, moment, beside):
    assert read_time(text) == (moment, beside)
