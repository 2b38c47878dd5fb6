"""Whole numbers in the time column are milliseconds, unless they look like seconds or dates, in every interface."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import aggr
from tiltframe import ReadOptions, TiltFrame, finish, rollup
from tiltframe.cli.stream_sources import InputLines
from tiltframe.streaming import OpenWindows
from tiltframe.units_of_numbers import refuse_other_units

TRIALS = int(os.environ.get("TRIALS", "200"))
SEED = int(os.environ.get("SEED", random.randrange(2**32)))
LAYOUTS = {8: "%Y%m%d", 10: "%Y%m%d%H", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
FRAME = TiltFrame(["1s"], "ts", {"n": aggr.count()})


def is_date(number):
    """Say by the standard library whether the digits of a number are a date, with or without a clock time."""
    text = str(number)
    if len(text) not in LAYOUTS or not "1900" <= text[:4] <= "2099":
        return False
    parts = [int(text[:4]), *(int(text[at : at + 2]) for at in range(4, len(text), 2))]
    try:
        dt.datetime(*parts)
    except ValueError:
        return False
    return True


def starts(data, reading=None):
    rows = rollup(data, FRAME) if reading is None else rollup(data, FRAME, reading)
    return sorted(start.replace(tzinfo=None) for start in finish(rows, FRAME)["window_start"].to_pylist())


def lines(text, reading):
    """Read JSON lines as `tiltframe stream` reads them from standard input."""
    standard_input = sys.stdin
    read_end, write_end = os.pipe()
    os.write(write_end, text.encode())
    os.close(write_end)
    with open(read_end) as sys.stdin:
        try:
            return [
                arrived.rows for arrived in InputLines(FRAME, lambda rows: None, reading).batches([]) if arrived.rows
            ]
        finally:
            sys.stdin = standard_input


def doors(numbers, folder, reading):
    """Yield the name of each door, and a call that returns the starts of the windows of the numbers."""
    table = pa.table({"ts": pa.array(numbers, pa.int64())})
    (folder / "a.csv").write_text("ts\n" + "".join(f"{number}\n" for number in numbers))
    text = "".join(json.dumps({"ts": number}) + "\n" for number in numbers)
    (folder / "a.jsonl").write_text(text)
    pq.write_table(table, folder / "a.parquet")
    for name in ("a.csv", "a.jsonl", "a.parquet"):
        yield name, lambda name=name: starts(folder / name, reading)
    yield "Arrow", lambda: starts(table, reading)
    yield "a stream of batches", lambda: starts(table.to_reader(), reading)
    yield "standard input", lambda: starts(pa.concat_tables(lines(text, reading)))


def test_numbers_look_like_dates_if_all_have_a_day():
    draws = random.Random(SEED)
    print("seed", SEED)
    for _ in range(TRIALS):
        digits = draws.choice(list(LAYOUTS))
        if draws.random() < 0.5:
            number = draws.randrange(1899 * 10 ** (digits - 4), 2101 * 10 ** (digits - 4))
        else:
            fields = [draws.randrange(bound) for bound in (15, 34, 26, 62, 62)[: (digits - 4) // 2]]
            number = int(
                f"{draws.choice([1899, 1900, 1999, 2000, 2023, 2024, 2099, 2100])}"
                + "".join(f"{field:02}" for field in fields)
            )
        looks_like_seconds = 1_000_000_000 <= number < 4_102_444_800
        if is_date(number) or looks_like_seconds:
            with pytest.raises(ValueError, match="dates without" if is_date(number) else "look like Unix seconds"):
                refuse_other_units(pa.array([number]), "ts")
        else:
            refuse_other_units(pa.array([number]), "ts")


def test_one_number_that_is_not_a_date_makes_all_milliseconds():
    refuse_other_units(pa.array([20240501, None, 20240532]), "ts")
    refuse_other_units(pa.array([20240501, 20230229]), "ts")
    with pytest.raises(ValueError, match="such as 20240229, would be milliseconds of 1970, but look like dates"):
        refuse_other_units(pa.array([20240501, None, 20240229]), "ts")


@pytest.mark.parametrize("digits", LAYOUTS)
def test_dates_without_dashes_are_refused_at_every_door_and_read_in_their_format(digits, tmp_path):
    moments = [dt.datetime(2024, 5, 1, 10, 20, 30), dt.datetime(2024, 2, 29, 23, 59, 58)]
    layout = LAYOUTS[digits]
    numbers = [int(moment.strftime(layout)) for moment in moments]
    for door, read in doors(numbers, tmp_path, ReadOptions()):
        with pytest.raises(ValueError, match="look like dates without dashes") as refused:
            read()
        is_declared_as_text = digits == 8 and door not in ("a.jsonl", "standard input")
        assert ("'ts': 'text'" if is_declared_as_text else f"time_format='{layout}'") in str(refused.value), door
    expected = sorted(dt.datetime.strptime(str(number), layout) for number in numbers)
    for door, read in doors(numbers, tmp_path, ReadOptions(time_format=layout)):
        assert read() == expected, door
    if digits == 8:
        for door, read in doors(numbers, tmp_path, ReadOptions(types={"ts": "text"})):
            if door not in ("a.jsonl", "standard input"):  # numbers of JSON are what the format says
                assert read() == expected, door


def test_what_is_not_a_date_is_milliseconds_at_every_door(tmp_path):
    numbers = [20240532, 20241301]
    expected = sorted(dt.datetime(1970, 1, 1) + dt.timedelta(seconds=number // 1000) for number in numbers)
    for door, read in doors(numbers, tmp_path, ReadOptions()):
        assert read() == expected, door
    windows = OpenWindows(FRAME)
    windows.add_rows(pa.table({"ts": numbers}))
    assert windows.progress.rows == 2
    with pytest.raises(ValueError, match="look like dates"):
        windows.add_rows(pa.table({"ts": [20240531]}))


def test_a_format_keeps_the_zeros_of_digits(tmp_path):
    (tmp_path / "a.csv").write_text("ts\n01052024\n12052024\n")
    result = starts(tmp_path / "a.csv", ReadOptions(time_format="%d%m%Y"))
    assert result == [dt.datetime(2024, 5, 1), dt.datetime(2024, 5, 12)]
