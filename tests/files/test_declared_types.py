"""Types of text files: declared types, types that are rejected because values would lose digits, and stored values."""

from __future__ import annotations

import bz2
import gzip
import json
import random
from pathlib import Path

import pyarrow as pa
import pytest

import aggr
import tiltframe
from tests.command_line import call

BIG = 18_446_744_073_709_551_615


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def rollup(desk, capfd):
    """Write a file, roll it up per key k, and return status, what was said, and key → count."""

    def run(text, *type_options, name="a.csv", measure="n=count()", store="st"):
        Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
        arguments = ["--time", "ts", "--key", "k", "--measure", measure, "--levels", "1h", "--store", store]
        status, _, err = call(capfd, "rollup", name, *arguments, *type_options)
        if status:
            assert err.count("\n") == 1, err
            assert "Traceback" not in err
            assert not Path(store).exists()
            return status, err, None
        rows = json_rows(capfd, store)
        return status, err, {row["k"]: row["n"] for row in rows}

    return run


def json_rows(capfd, store):
    status, out, err = call(capfd, "query", store, "--per", "1h", "--format", "json")
    assert status == 0, err
    return [json.loads(line) for line in out.split("\n") if line]


def csv_of(*keys):
    return "ts,k\n" + "".join(f"0,{key}\n" for key in keys)


LOSSY = {
    "leading zeros": ["007", "7"],
    "leading zeros of all": ["00501", "02134"],
    "trailing zeros": ["1.10", "1.1"],
    "a version": ["1.0", "2.5"],
    "a plus": ["+7", "7"],
    "minus nothing": ["-0", "0"],
    "hexadecimal": ["0x1F", "31"],
    "an exponent": ["1e3", "1000"],
    "beyond int64": [str(BIG), str(BIG - 1)],
    "beyond uint64": [str(BIG * 10), str(BIG * 10 + 1)],
    "many digits of a fraction": ["0.12345678901234567", "0.12345678901234568"],
    "beyond doubles": ["1e400", "2e400"],
    "one is true": ["true", "1"],
}


@pytest.mark.parametrize("case", LOSSY)
def test_keys_that_would_lose_digits_stay_text(case, rollup):
    keys = LOSSY[case]
    assert rollup(csv_of(*keys))[2] == dict.fromkeys(keys, 1)
    assert rollup(csv_of(*keys), "--text", "k", store="text")[2] == dict.fromkeys(keys, 1)


@pytest.mark.slow
def test_declared_types(rollup):
    assert rollup(csv_of("007", "7"), "--type", "k=int64")[2] == {7: 2}
    assert rollup(csv_of(BIG, BIG - 1), "--type", "k=uint64", store="u")[2] == {BIG: 1, BIG - 1: 1}
    keys = rollup(csv_of(BIG * 10, BIG * 10 + 1), "--type", "k=decimal(38)", store="d")[2]
    assert {str(key) for key in keys} == {str(BIG * 10), str(BIG * 10 + 1)}
    assert rollup(csv_of("1.10", "1.1"), "--type", "k=float64", store="f")[2] == {1.1: 2}
    assert rollup(csv_of("True", "1"), "--type", "k=bool", store="b")[2] == {True: 2}
    lines = "".join(json.dumps({"ts": 0, "k": k}) + "\n" for k in (BIG, BIG - 1))
    assert rollup(lines, "--type", "k=uint64", name="a.jsonl", store="j")[2] == {BIG: 1, BIG - 1: 1}


@pytest.mark.slow
@pytest.mark.parametrize("where", [0, 1, 300_000])
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_whole_numbers_beyond_int64_are_found_wherever_they_are(where, name, rollup):
    """Also beyond the bytes that types are inferred from, and in measures."""
    numbers = [1.5] * (where + 1)
    numbers[where] = BIG - 1
    if name == "a.csv":
        text = "ts,k,pad,x\n" + "".join(f"0,a,{'p' * 60},{x}\n" for x in numbers)
    else:
        text = "".join(json.dumps({"ts": 0, "k": "a", "pad": "p" * 40, "x": x}) + "\n" for x in numbers)
    status, err, _ = rollup(text, name=name, measure="n=sum(x)")
    assert status == 2
    assert str(BIG - 1) in err
    kind = "uint64" if where == 0 else "'decimal(21, 1)'"
    assert f"--type x={kind}" in err
    assert rollup(text, "--type", f"x={kind.strip(chr(39))}", name=name, measure="n=max(x)", store="exact")[0] == 0
    assert rollup(text, "--type", "x=float64", name=name, measure="n=sum(x)")[0] == 0


def test_large_doubles_that_are_no_whole_numbers_stay(rollup):
    text = '{"ts": 0, "k": "a", "x": 1e300}\n{"ts": 0, "k": "a", "x": 9007199254740992}\n'
    assert rollup(text, name="a.jsonl", measure="n=max(x)")[2] == {"a": 1e300}
    assert rollup("ts,k,x\n0,a,1e300\n0,a,inf\n", measure="n=max(x)", store="c")[2] == {"a": "Infinity"}


QUOTES = {
    "never closed": ('ts,k\n0,a\n0,"b\n' + "0,c\n" * 1000, 3),
    "closed by another": ('ts,k\n0,a\n0,"b\n0,c\n0,"d"\n', 3),
    "in the header": ('ts,"k\n0,a\n', 1),
    "the last byte": ('ts,k\n0,a\n0,"', 3),
    "text after it": ('ts,k\n0,"a"b\n', 2),
    "after a long way": ("ts,k\n" + "0,a\n" * 6_000_000 + '0,"b\n', 6_000_002),
}


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
@pytest.mark.parametrize("case", QUOTES)
def test_a_quote_that_is_not_closed_is_named_by_its_line(case, ending, rollup):
    text, line = QUOTES[case]
    data = gzip.compress(text.encode(), 1) if ending == ".csv.gz" else text
    status, err, _ = rollup(data, name="a" + ending)
    assert status == 2
    assert f"a{ending}: in line {line:,} a quote opens a field" in err


def test_quotes_that_are_sound(rollup):
    text = 'ts,k\n0,"a,b"\n0,"line\nbreak"\n0,"a ""q"""\n0,""\n0,5" pipe\n0,"x"\r\n'
    assert rollup(text)[2] == {"a,b": 1, "line\nbreak": 1, 'a "q"': 1, None: 1, '5" pipe': 1, "x": 1}


@pytest.mark.parametrize(
    ("name", "line"), [("a.csv", "ts,k\n0,a\n0,café\n"), ("a.jsonl", '{"ts":0,"k":"a"}\n{"ts":0,"k":"café"}\n')]
)
def test_bytes_in_another_encoding(name, line, rollup):
    status, err, _ = rollup(line.encode("latin-1"), name=name)
    assert status == 2
    assert f"{name} is not in utf-8: byte 0xe9 in line {2 if name == 'a.jsonl' else 3}; declare its encoding" in err
    for encoding in ("latin-1", "utf-16", "cp1252", "utf-8"):
        keys = rollup(line.encode(encoding), "--encoding", encoding, name=name, store=encoding)[2]
        assert keys == {"a": 1, "café": 1}
    assert rollup("\ufeff" + line, name=name, store="bom")[2] == {"a": 1, "café": 1}
    assert "unknown encoding 'klingon'" in rollup(line, "--encoding", "klingon", name=name, store="no")[1]


def test_latin_1_beyond_the_first_block(rollup):
    text = "ts,k,pad\n" + f"0,a,{'p' * 100}\n" * 200_000 + "0,é,\n"
    status, err, _ = rollup(text.encode("latin-1"))
    assert status == 2
    assert "byte 0xe9 in line 200,002" in err


TYPES = {
    "no equals": (["--type", "k"], "cannot read the type 'k'"),
    "no such type": (["--type", "k=string"], "unknown type 'string'; the allowed types are text, int64"),
    "twice": (["--type", "k=int64", "--text", "k"], "the type of 'k' is listed twice"),
    "no such column": (["--text", "kk"], "no key, measure or time uses the column 'kk'"),
    "a unit of a key": (["--type", "k=seconds"], "the type seconds is only for the time column, 'ts'"),
    "a time of floats": (["--type", "ts=float64"], "the type of the time column must be text, date, timestamp, int64"),
    "a decimal too long": (["--type", "k=decimal(39)"], "a decimal has 1 to 38 digits"),
    "a decimal without": (["--type", "k=decimal"], "unknown type 'decimal'; the allowed types are"),
    "what cannot be": (["--type", "k=int64"], "'a' in line 2, in the column 'k', is not of type int64; use --text k"),
}


@pytest.mark.parametrize("case", TYPES)
def test_mistakes_in_types(case, rollup):
    type_options, message = TYPES[case]
    status, err, _ = rollup(csv_of("a", "b"), *type_options)
    assert status == 2
    assert message in err


@pytest.mark.parametrize(
    ("unit", "number"),
    [
        ("seconds", 1714557600),
        ("milliseconds", 1714557600000),
        ("microseconds", 1714557600000000),
        ("nanoseconds", 1714557600000000000),
    ],
)
def test_units_of_unix_times(unit, number, desk, capfd):
    Path("a.csv").write_text(f"ts\n{number}\n")
    arguments = ["--time", "ts", "--measure", "n=count()", "--levels", "1h", "--store", "st"]
    if unit == "seconds":
        status, _, err = call(capfd, "rollup", "a.csv", *arguments)
        assert status == 2
        assert "look like Unix seconds" in err
    assert call(capfd, "rollup", "a.csv", *arguments, "--type", f"ts={unit}")[0] == 0
    assert json_rows(capfd, "st")[0]["window_start"] == "2024-05-01T10:00:00Z"


def test_dates_without_dashes(desk, capfd):
    Path("a.csv").write_text("ts\n20240501\n20240502\n")
    arguments = ["--time", "ts", "--measure", "n=count()", "--levels", "1d", "--store", "st"]
    status, _, err = call(capfd, "rollup", "a.csv", *arguments)
    assert status == 2
    assert "look like dates without dashes; declare the meaning with --text ts" in err
    assert call(capfd, "rollup", "a.csv", *arguments, "--text", "ts")[0] == 0
    out = call(capfd, "query", "st", "--per", "1d", "--format", "json")[1]
    assert [json.loads(x)["window_start"][:10] for x in out.splitlines()] == ["2024-05-01", "2024-05-02"]


def test_every_form_of_time_in_one_column(desk, capfd):
    times = [
        "2024-05-01T10:00:00Z",
        "20240501T100000Z",
        "2024-05-01 12:00:00 +02",
        "2024-05-01T10:00:00z",
        "2024-05-01 10:00",
    ]
    Path("a.csv").write_text("ts\n" + "\n".join(times) + "\n")
    Path("b.jsonl").write_text("".join(json.dumps({"ts": t}) + "\n" for t in times))
    arguments = ["--time", "ts", "--measure", "n=count()", "--levels", "1h", "--store", "st"]
    assert call(capfd, "rollup", "a.csv", "b.jsonl", *arguments)[0] == 0
    assert [(row["window_start"], row["n"]) for row in json_rows(capfd, "st")] == [("2024-05-01T10:00:00Z", 10)]
    Path("c.csv").write_text("ts\n2024-05-01T10:00:00Z\n2024-W18-3\n")
    status, _, err = call(capfd, "rollup", "c.csv", *arguments)
    assert status == 2
    expected = "c.csv, line 3: cannot read the time column 'ts': cannot parse '2024-W18-3' as a time; use ISO 8601"
    assert expected in err


def test_json_of_another_type_than_declared_is_named_with_its_line(desk, capfd):
    Path("a.jsonl").write_text('{"ts": 0, "x": "1"}\n{"ts": 0, "x": 2}\n')
    arguments = ["--time", "ts", "--measure", "s=sum(x)", "--levels", "1h", "--store", "st"]
    status, _, err = call(capfd, "rollup", "a.jsonl", *arguments, "--text", "x")
    assert status == 2
    assert "a.jsonl: 2 in line 2, in the column 'x', is not text, the type declared by --text x;" in err
    status, _, err = call(capfd, "rollup", "a.jsonl", *arguments, "--type", "x=int64")
    assert status == 2
    assert "a.jsonl: 2 in line 2, of 'x', is not of type text, which previous values have;" in err
    Path("b.jsonl").write_text('{"ts": 0, "x": "1"}\n')
    status, _, err = call(capfd, "rollup", "b.jsonl", *arguments, "--type", "x=int64")
    assert status == 2
    assert "b.jsonl: '1' in line 1, in the column 'x', is not int64, the type declared by --type x=int64;" in err


FILES = {
    "two columns of one name": ("a.csv", "ts,k,k\n0,a,b\n", "has two columns called 'k'"),
    "a short row": ("a.csv", "ts,k\n0,a\n0\n", "Expected 2 columns, got 1"),
    "a long row": ("a.csv", "ts,k\n0,a\n0,a,b\n", "Expected 2 columns, got 3"),
    "words after numbers": (
        "a.csv",
        "ts,k,x\n" + "0,a,1\n" * 3_000_000 + "0,a,one\n",
        "'one' in line 3,000,002, in the column 'x', is not of type int64; use --text x",
    ),
    "another type in JSON": (
        "a.jsonl",
        '{"ts":0,"k":"a"}\n{"ts":0,"k":1}\n',
        "1 in line 2, of 'k', is not of type text, which previous values have",
    ),
    "a name twice in JSON": ("a.jsonl", '{"ts":0,"k":"a","k":"b"}\n', "was specified twice"),
    "beyond doubles in JSON": ("a.jsonl", '{"ts":0,"k":"a","x":1e400}\n', "too big to be stored in double"),
    "zeros before numbers in JSON": ("a.jsonl", '{"ts":0,"k":007}\n', "cannot read a.jsonl"),
    "a list that is not closed": ("a.json", '[{"ts":0,"k":"a"}\n', "its array of objects is not closed"),
    "nothing, compressed": ("a.csv.gz", gzip.compress(b""), "cannot read a.csv.gz"),
    "not compressed at all": ("a.csv.gz", "ts,k\n0,a\n", "cannot read a.csv.gz"),
    "Parquet that is none": ("a.parquet", "ts,k\n0,a\n", "cannot read a.parquet"),
    "compressed Parquet": ("a.parquet.gz", gzip.compress(b"x"), "cannot determine the format of a.parquet.gz"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", FILES)
def test_files_that_cannot_be_read(case, rollup):
    name, text, message = FILES[case]
    status, err, _ = rollup(text, name=name, measure="n=max(x)" if "x" in str(text)[:40] else "n=count()")
    assert status == 2
    assert message in err


@pytest.mark.parametrize(
    ("ending", "compress"),
    [(".gz", gzip.compress), (".bz2", bz2.compress), (".zst", lambda b: pa.compress(b, "zstd", asbytes=True))],
)
@pytest.mark.parametrize("kind", [".csv", ".tsv", ".jsonl"])
def test_compressed_files(ending, compress, kind, rollup):
    text = {".csv": "ts,k\r\n0,a\r\n", ".tsv": "ts\tk\n0\ta\n", ".jsonl": '{"ts":0,"k":"a"}\r\n\r\n'}[kind]
    assert rollup(compress(text.encode()), name="a" + kind + ending)[2] == {"a": 1}


def test_kinds_that_differ_between_files(desk, capfd):
    Path("a.csv").write_text("ts,k\n0,7\n")
    Path("b.csv").write_text("ts,k\n0,x7\n")
    Path("c.csv").write_text("ts,k\n0,1.5\n")
    arguments = ["--time", "ts", "--key", "k", "--measure", "n=count()", "--levels", "1h", "--store", "st"]
    summed = ["--time", "ts", "--measure", "n=sum(k)", "--levels", "1h", "--store", "st"]
    status, _, err = call(capfd, "rollup", "a.csv", "b.csv", *summed)
    assert status == 2
    assert "'x7'" in err
    assert call(capfd, "rollup", "a.csv", "b.csv", "c.csv", *arguments)[0] == 0
    assert [row["k"] for row in json_rows(capfd, "st")] == ["1.5", "7", "x7"]


def test_random_keys_of_text_come_back_as_they_were(rollup, desk, capfd):
    rng = random.Random(3)
    alphabet = [
        "0",
        "7",
        ".",
        "-",
        "+",
        "e",
        "é",
        '"',
        ",",
        "\n",
        " x",
        "NA",
        "null",
        "true",
        "\t",
        "'",
        "\\",
        "\u2028",
    ]
    keys = ["".join(rng.choices(alphabet, k=rng.randrange(1, 6))) for _ in range(500)] + ["a"]
    quoted = "ts,k\n" + "".join('0,"' + key.replace('"', '""') + '"\n' for key in keys)
    lines = "".join(json.dumps({"ts": 0, "k": key}) + "\n" for key in keys)
    expected = {key: keys.count(key) for key in keys}
    assert rollup(quoted, "--text", "k")[2] == expected
    assert rollup(lines, name="a.jsonl", store="j")[2] == expected


@pytest.mark.parametrize(("name", "text"), [("a.csv", "ts,x\n0,{}\n"), ("a.jsonl", '{{"ts": 0, "x": {}}}\n')])
def test_a_long_number_is_said_in_a_short_sentence(name, text, tmp_path):
    (tmp_path / name).write_text(text.format("9" * 300))
    with pytest.raises(ValueError, match="in the column 'x' would") as error:
        tiltframe.rollup(tmp_path / name, tiltframe.TiltFrame(["1d"], "ts", {"s": aggr.sum("x")}))
    assert len(str(error.value).replace(str(tmp_path), "")) <= 300
