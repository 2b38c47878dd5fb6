"""Options for reading files with other conventions, compared with pandas, datetime and fractions."""

from __future__ import annotations

import calendar
import datetime as dt
import io
import json
import random
from dataclasses import fields
from fractions import Fraction

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import aggr
from tests.command_line import call
from tiltframe import (
    FrameStore,
    OrderedFrame,
    ReadOptions,
    TiltFrame,
    finish,
    finish_ordered,
    ordered_rollup,
    rollup,
    running,
)
from tiltframe.cli.app import cli
from tiltframe.files.json_arrays import ArrayLines
from tiltframe.files.time_format import read_format, timestamps_with_fractions

NONE = ["-", "n/a"]


def frame(time="ts", key="host", column="ms"):
    return TiltFrame(["1m", "1h"], time, {"n": aggr.count(), "t": aggr.sum(column), "most": aggr.max(column)}, [key])


ARGUMENTS = ["--time", "ts", "--key", "host", "--levels", "1m,1h"]
ARGUMENTS += ["--measure", "n=count()", "--measure", "t=sum(ms)", "--measure", "most=max(ms)"]


def german(path, rows=400, seed=5):
    """Write a file as a German Excel does, its numbers with groups and without."""
    rng, lines = random.Random(seed), ["ts;host;ms;bytes"]
    for i in range(rows):
        moment = dt.datetime(2024, 5, 1) + dt.timedelta(seconds=31 * i)
        number = f"{rng.choice([1.5, 1234.25, -1234567.75, 0.125, 12]):,}" if rng.random() < 0.9 else "-"
        number = number.translate(str.maketrans(",.", ".,"))
        lines.append(f"{moment:%d.%m.%Y %H:%M:%S};{rng.choice(['a', 'b', '-'])};{number};{rng.choice(['1.234', '7'])}")
    path.write_text("\n".join(lines) + "\n", encoding="latin-1")
    return path


GERMAN = ReadOptions(
    delimiter=";", decimal_comma=True, thousands=".", null=["-"], time_format="%d.%m.%Y %H:%M:%S", encoding="latin-1"
)


def of_pandas(path):
    table = pd.read_csv(path, sep=";", decimal=",", thousands=".", na_values=["-"], dtype={"host": "string"})
    table["ts"] = pd.to_datetime(table["ts"], format="%d.%m.%Y %H:%M:%S")
    return pa.Table.from_pandas(table, preserve_index=False)


def test_a_file_of_a_german_excel_is_read_as_pandas_reads_it(tmp_path, capfd):
    path = german(tmp_path / "a.csv")
    german_frame = TiltFrame(
        ["1m"], "ts", {"t": aggr.sum("ms"), "b": aggr.sum("bytes"), "n": aggr.count("ms")}, ["host"]
    )
    expected = finish(rollup(of_pandas(path), german_frame), german_frame).to_pylist()
    assert finish(rollup(path, german_frame, GERMAN), german_frame).to_pylist() == expected
    options = ["--delimiter", ";", "--decimal-comma", "--thousands", ".", "--null", "-", "--encoding", "latin-1"]
    options += ["--time-format", GERMAN.time_format, "--store", str(tmp_path / "st")]
    assert call(capfd, "rollup", str(path), *ARGUMENTS, *options)[0] == 0
    read = frame()
    stored = FrameStore(tmp_path / "st", read).query(per="1m").drop_columns(["partial"])
    assert (
        stored.to_pylist()
        == finish(rollup(path, read, GERMAN), read).filter(pa.compute.field("level") == "1m").to_pylist()
    )


def test_rows_in_order_are_read_so_too(tmp_path):
    path = german(tmp_path / "a.csv")
    measures, order = {"total": aggr.sum("bytes"), "n": aggr.count("ms")}, {"time": "ts", "keys": ["host"]}
    names = ["ts", "host", "total", "n"]
    expected = running(of_pandas(path), measures, **order).select(names).to_pylist()
    actual = running(path, measures, **order, reading=GERMAN).select(names).to_pylist()
    assert actual == [row | {"ts": row["ts"].replace(tzinfo=dt.UTC)} for row in expected]
    frame = OrderedFrame(["count(3)"], "ts", measures, ["host"])
    ordered = finish_ordered(ordered_rollup(of_pandas(path), frame), frame).to_pylist()
    assert finish_ordered(ordered_rollup(path, frame, GERMAN), frame).to_pylist() == ordered
    with pytest.raises(ValueError, match="may set only where, time, clock, time_format"):
        running(of_pandas(path), measures, **order, reading=GERMAN)
    chosen = running(of_pandas(path), measures, **order, reading=ReadOptions(where="ms > 0"))
    assert chosen.num_rows == of_pandas(path).filter(pa.compute.field("ms") > 0).num_rows


def test_the_command_line_has_an_option_for_each_field():
    for command in ("rollup", "stream"):
        option_names = {parameter.name.rstrip("s") for parameter in cli.commands[command].params}
        assert {field.name.rstrip("s") for field in fields(ReadOptions)} <= option_names, command


@pytest.mark.parametrize("form", ["%d.%m.%Y %H:%M", "%d/%b/%Y:%H:%M:%S %z", "%m/%d/%y %I:%M:%S %p", "%Y%m%d%H%M%S"])
@pytest.mark.parametrize("more", ["", ".%f", " (%A, %j)"])
def test_time_formats_are_read_as_datetime_reads_them(form, more):
    rng, form = random.Random(form), form.replace("%S", "%S.%f") if more == ".%f" else form + more.replace(", %j", "")
    moments = [dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=rng.randrange(2**50)) for _ in range(200)]
    zones = [dt.timezone(dt.timedelta(minutes=rng.randrange(-700, 700))) if "%z" in form else None for _ in moments]
    texts = [m.replace(tzinfo=zone).strftime(form) for m, zone in zip(moments, zones, strict=True)]
    expected = [dt.datetime.strptime(text, form) for text in texts]
    expected = [m if m.tzinfo else m.replace(tzinfo=dt.UTC) for m in expected]
    assert read_format(pa.array(texts), form).to_pylist() == expected
    assert read_format(pa.array(["30.02.2024 10:00", "x", None]), "%d.%m.%Y %H:%M").to_pylist() == [None] * 3


def test_seconds_with_fractions_are_exact_to_the_microsecond():
    rng = random.Random(2)
    exact = [Fraction(rng.randrange(-(10**15), 2 * 10**15), 10**6) for _ in range(500)]
    expected = [int(x * 10**6) for x in exact]
    texts = [f"{x.numerator * (10**6 // x.denominator) / 10**6:.6f}" for x in exact]
    for numbers in (pa.array(texts), pa.array([float(text) for text in texts])):
        assert timestamps_with_fractions(numbers, "s").cast(pa.int64()).to_pylist() == expected


@pytest.mark.parametrize("kind", ["csv", "jsonl", "json", "parquet"])
def test_times_in_seconds_with_fractions_by_every_format(kind, tmp_path):
    rows = [{"ts": 1714521600, "host": "a", "ms": 1}, {"ts": 1714521659.999999, "host": "a", "ms": 2}]
    rows.append({"ts": 1714521660.25, "host": "a", "ms": 4})
    path = tmp_path / f"a.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist([row | {"ts": float(row["ts"])} for row in rows]), path)
    elif kind == "csv":
        path.write_text("ts,host,ms\n" + "".join(f"{r['ts']},{r['host']},{r['ms']}\n" for r in rows))
    else:
        path.write_text(json.dumps(rows) if kind == "json" else "".join(json.dumps(r) + "\n" for r in rows))
    result = finish(rollup(path, frame(), ReadOptions({"ts": "seconds"})), frame())
    assert result.column("t").to_pylist() == [3, 4, 7]


def test_times_are_computed_and_rows_chosen(tmp_path, capfd):
    lines = ["day,clock,host,ms", "2024-05-01,10:00:00,a,1", "2024-05-01,10:00:30,b,2", "2024-05-01,10:01:00,a,8"]
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    reading = ReadOptions(time="day || 'T' || clock", where="host = 'a' AND ts < TIMESTAMP '2024-05-01 10:01:00'")
    result = finish(rollup(tmp_path / "a.csv", frame(), reading), frame()).to_pylist()
    assert [(r["level"], r["host"], r["t"]) for r in result] == [("1m", "a", 1), ("1h", "a", 1)]
    table = pa.table({"day": ["2024-05-01"] * 3, "clock": ["10:00:00", "10:00:30", "10:01:00"], "host": [*"aba"]})
    table = table.append_column("ms", pa.array([1, 2, 8]))
    assert finish(rollup(table, frame(), reading), frame()).to_pylist() == result
    arguments = [reading.time if a == "ts" else a for a in ARGUMENTS]
    arguments[1] = f"ts={reading.time}"
    path = str(tmp_path / "a.csv")
    assert call(capfd, "rollup", path, *arguments, "--where", reading.where, "--store", str(tmp_path / "st"))[0] == 0
    assert FrameStore(tmp_path / "st", frame()).query(per="1m").column("t").to_pylist() == [1]


@pytest.mark.long
@pytest.mark.slow
def test_arrays_of_objects_are_read_as_json_reads_them(monkeypatch):
    rng = random.Random(3)

    def value(depth=0):
        kind = rng.random()
        if kind < 0.3:
            return "".join(rng.choice('ab,]}{["\\\n é') for _ in range(rng.randint(0, 8)))
        if depth < 3 and kind < 0.6:
            return {rng.choice('xyz,"\\'): value(depth + 1) for _ in range(rng.randint(0, 3))}
        return [value(depth + 1) for _ in range(2)] if depth < 3 and kind < 0.8 else rng.choice([None, 7])

    for _ in range(500):
        monkeypatch.setattr("tiltframe.files.json_arrays._CHUNK", rng.randint(1, 12))
        rows = [{"k": value()} for _ in range(rng.randint(0, 4))]
        text = json.dumps(rows, indent=rng.choice([None, 1]), ensure_ascii=False).encode()
        lines = ArrayLines(io.BytesIO(text), "a.json").read().split(b"\n")
        assert [json.loads(line) for line in lines if line.strip()] == rows
        for bad in (text[:-1], text + b"x", text + b"[]"):
            with pytest.raises(ValueError, match="its array of objects"):
                ArrayLines(io.BytesIO(bad), "a.json").read()


MESSY = (
    'ts,host,ms\n2024-05-01T10:00,a,1.5\n\n2024-05-01T10:01,"b\nc",2.5\n2024-05-01T10:02,c,{}\n2024-05-01T10:03,d,5\n'
)
WRONG = [
    ("n/a", "if it means null, use --null n/a; else --text ms and TRY_CAST(ms AS DOUBLE)", ["--null", "n/a"]),
    ("12 ms", "use --text ms and TRY_CAST(ms AS DOUBLE), which returns null for it", None),
    ('"1,5"', "'1,5' in line 6, in the column 'ms', is not of type float64; use --decimal-comma", None),
    ('"1,234"', "use --decimal-comma, or --thousands ,", ["--thousands", ","]),
    ('"1.234,5"', "use --thousands . and --decimal-comma", None),
    ("1'234.5", "use --thousands ''\"'\"''", ["--thousands", "'"]),
]


@pytest.mark.parametrize(("value", "message", "way_out"), WRONG)
@pytest.mark.parametrize("typed", [[], ["--type", "ms=float64"]])
def test_a_value_that_is_no_number_is_named_with_its_line_and_a_way_out_that_works(
    value, message, way_out, typed, tmp_path, capfd
):
    path, store = tmp_path / "a.csv", str(tmp_path / "st")
    path.write_text(MESSY.format(value))
    status, _, err = call(capfd, "rollup", str(path), *ARGUMENTS, *typed, "--store", store)
    assert status == 2
    assert "in line 6, in the column 'ms', is not of type float64" in err
    assert message in err
    assert len(err) < 300 + len(str(path))
    if way_out:
        assert call(capfd, "rollup", str(path), *ARGUMENTS, *typed, *way_out, "--store", store)[0] == 0
    with pytest.raises(ValueError, match="in line 6") as error:
        rollup(path, frame())
    assert "--" not in str(error.value)


def test_another_delimiter_is_advised(tmp_path, capfd):
    path = tmp_path / "a.csv"
    path.write_text("ts;host;ms\n01.05.2024 10:00;a;1.234,5\n")
    status, _, err = call(capfd, "rollup", str(path), *ARGUMENTS, "--store", str(tmp_path / "st"))
    assert (status, err.count("\n")) == (2, 1)
    assert err.endswith("a.csv: fields seem to be separated by ';', not by ','; use --delimiter ';'\n")


@pytest.mark.slow
def test_a_value_that_comes_late_is_named_too(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("ts,host,ms\n" + "2024-05-01T10:00:00,a,10\n" * 800_000 + "2024-05-01T10:00:00,a,x\n")
    with pytest.raises(
        ValueError, match=r"'x' in line 800,002, in the column 'ms', is not of type int64; use types=\{'ms': 'text'\}"
    ):
        rollup(path, frame())


@pytest.mark.parametrize("array", [False, True])
def test_wrong_values_of_json_are_named_with_their_line(array, tmp_path):
    path = tmp_path / "a.json"
    rows = [json.dumps({"ts": 1714521600000 + i, "host": "a", "ms": ms}) for i, ms in enumerate([1, None, "-", 2])]
    path.write_text("[" + ",\n".join(rows) + "]" if array else "\n".join(rows))
    with pytest.raises(ValueError, match="'-' in line 3, of 'ms', is not of type float64, which previous values have"):
        rollup(path, frame())
    path.write_text(path.read_text().replace('"-"', "2}"))
    with pytest.raises(ValueError, match=r"line 3 is not a JSON object|there is text after its array"):
        rollup(path, frame())


def test_times_that_cannot_be_read_are_named_with_their_line(tmp_path):
    path = tmp_path / "a.csv"
    for first, late, options in (
        ("2024-05-01", "1 May", ReadOptions()),
        ("01.05.2024", "2024-05-01", ReadOptions(time_format="%d.%m.%Y")),
        ("1714521600", "now", ReadOptions({"ts": "seconds"})),
    ):
        path.write_text(f"ts,host,ms\n{first},a,1\n{first},a,1\n{late},a,1\n{first},a,1\n")
        with pytest.raises(ValueError, match="line 4: cannot read the time column 'ts'"):
            rollup(path, frame(), options)


BAD = [
    ({"delimiter": ";;"}, "delimiter must be one character"),
    ({"thousands": "."}, "thousands and fractions cannot both use the separator '.'"),
    ({"thousands": ",", "decimal_comma": True}, "thousands and fractions cannot both use the separator ','"),
    ({"null": "-"}, "null"),
    ({"null": [1]}, "null must be a list of texts"),
    ({"time_format": "%H:%M"}, "does not contain the day"),
    ({"time_format": "%Y-%m-%d %Q"}, "has the directive %Q, which is not supported"),
    ({"where": "ms >"}, "cannot read the condition"),
    ({"time": "ms +"}, "cannot read the expression"),
    ({"types": {"ms": "number"}}, "unknown type 'number'"),
    ({"types": {"gone": "text"}}, "uses the column 'gone'"),
    ({"types": {"ms": "seconds"}}, "only for the time column"),
    ({"encoding": "klingon"}, "unknown encoding"),
    ({"where": "gone > 1"}, "no column 'gone'"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_what_is_no_option_is_one_sentence(arguments, message, tmp_path):
    (tmp_path / "a.csv").write_text("ts,host,ms\n2024-05-01,a,1\n")
    with pytest.raises(ValueError, match=message) as error:
        rollup(tmp_path / "a.csv", frame(), ReadOptions(**arguments))
    assert len(str(error.value)) <= 300


def test_fields_of_structs_have_types_too(tmp_path, capfd, monkeypatch):
    path, highest = tmp_path / "a.jsonl", 2**64 - 1
    path.write_text("".join(f'{{"ts": {i}, "http": {{"id": {n}}}}}\n' for i, n in enumerate([1, highest, highest - 1])))
    read = TiltFrame(["1m"], "ts", {"n": aggr.count()}, ["http.id"])
    with pytest.raises(ValueError, match=f"{highest - 1}|{highest} in the column 'http.id' would lose digits") as error:
        rollup(path, read)
    assert "types={'http.id': 'uint64'}" in str(error.value)
    assert rollup(path, read, ReadOptions({"http.id": "uint64"}))["http.id"].to_pylist() == [1, highest - 1, highest]
    arguments = ["--time", "ts", "--key", "http.id", "--levels", "1m", "--measure", "n=count()"]
    with path.open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        status, out, error = call(capfd, "stream", *arguments, "--type", "http.id=uint64")
    assert [json.loads(line)["http.id"] for line in out.splitlines()] == [1, highest - 1, highest], (status, error)


def test_tables_take_no_options_of_files():
    with pytest.raises(ValueError, match="may set only where, time, clock, time_format"):
        rollup(pa.table({"ts": [0], "host": ["a"], "ms": [1]}), frame(), ReadOptions(delimiter=";"))


def test_a_stream_takes_them_as_well(tmp_path, capfd, monkeypatch):
    rows = [{"at": 1714521600.5, "host": "a", "http": {"ms": 1}}, {"at": 1714521601, "host": "-", "http": {"ms": 2}}]
    rows += [{"at": 1714521602.5, "host": "b", "http": {"ms": 4}}]
    lines = tmp_path / "lines"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = ["stream", "--key", "host", "--levels", "1m", "--measure", "t=sum(http.ms)", "--where", "http.ms < 4"]
    with lines.open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        status, out, err = call(capfd, *arguments, "--time", "ts=at", "--type", "ts=seconds", "--null", "-")
    assert (status, err) == (0, "")
    assert [(r["host"], r["t"]) for r in map(json.loads, out.splitlines())] == [("a", 1), (None, 2)]
    (tmp_path / "in").mkdir()
    german(tmp_path / "in" / "a.csv")
    options = ["--delimiter", ";", "--decimal-comma", "--thousands", ".", "--null", "-", "--time-format"]
    options += [GERMAN.time_format, "--where", "ms > 0", "--once"]
    status, out, _ = call(capfd, "stream", str(tmp_path / "in"), *ARGUMENTS, *options)
    assert status == 0
    positive = of_pandas(tmp_path / "in" / "a.csv").filter(pa.compute.field("ms") > 0)
    expected = finish(rollup(positive, frame()), frame()).to_pylist()
    assert sorted((r["level"], str(r["host"]), r["t"]) for r in map(json.loads, out.splitlines())) == sorted(
        (r["level"], str(r["host"]), r["t"]) for r in expected
    )


def test_days_of_the_year():
    """Python reads the day 366 of a common year as the first day of the next year, so it is not the reference here."""
    years, days = (1900, 1999, 2000, 2023, 2024, 2100), range(400)
    texts = [f"{year}-{day} 03:04 +02:00" for year in years for day in days]
    read = read_format(pa.array(texts), "%Y-%j %H:%M %z").to_pylist()
    expected = [
        dt.datetime.fromisoformat(f"{year}-01-01T01:04Z") + dt.timedelta(days=day - 1)
        if 1 <= day <= 365 + calendar.isleap(year)
        else None
        for year in years
        for day in days
    ]
    assert read == expected
