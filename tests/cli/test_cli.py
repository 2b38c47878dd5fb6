"""The command line in real processes, with real files and typical mistakes of users."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import aggr
from aggr.arrow.bit_equality import same_bits
from tests.command_line import call
from tiltframe import FrameStore, TiltFrame, rollup

LINES = [
    {"ts": "2024-05-01T10:00:00Z", "host": "a", "bytes": 10, "ms": 1.5, "status": 200},
    {"ts": "2024-05-01T10:00:05Z", "host": "b", "bytes": 20, "ms": 2.5, "status": 503},
    {"ts": "2024-05-01T10:01:05Z", "host": None, "bytes": None, "ms": None, "status": 503},
]
LEVELS = ["--levels", "10s,1m,1h"]
MEASURES = [
    *["--measure", "requests=count()"],
    *["--measure", "bytes=sum(bytes)"],
    *["--measure", "latency=dds(ms, quantiles=[0.5, 0.99])"],
    *["--measure", 'errors=count(where="status >= 500")'],
]
ARGUMENTS = ["--time", "ts", "--key", "host", *MEASURES, *LEVELS]


def run(*args, cwd=None):
    """Run the command in its own process; returns status, output, errors."""
    done = subprocess.run(
        [sys.executable, "-m", "tiltframe.cli", *map(str, args)], capture_output=True, text=True, cwd=cwd
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def lines(tmp_path):
    file = tmp_path / "events.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return file


@pytest.fixture
def store(tmp_path, lines, capfd):
    folder = tmp_path / "store"
    assert call(capfd, "rollup", lines, *ARGUMENTS, "--store", folder)[0] == 0
    return folder


@pytest.mark.slow
def test_a_map_of_other_calls_is_kept_and_read(tmp_path, lines, capfd):
    """A map says what it keeps on the command line, in the store's own description, and to a second rollup."""
    measure = "hosts=per(host, of={n: count(), 'worst': max(ms), errors: count(where='status >= 500')}, max=100)"
    arguments = [lines, "--time", "ts", "--measure", measure, "--levels", "10s,1m", "--store", tmp_path / "maps"]
    assert call(capfd, "rollup", *arguments)[0] == 0
    later = [{"ts": "2024-05-01T10:00:07Z", "host": "b", "bytes": 1, "ms": 9.0, "status": 200}]
    (tmp_path / "later.jsonl").write_text("".join(json.dumps(line) + "\n" for line in later))
    assert call(capfd, "rollup", tmp_path / "later.jsonl", *arguments[1:])[0] == 0
    out = call(capfd, "query", tmp_path / "maps", "--per", "1m", "--format", "json")[1]
    a, b = json.loads(out.splitlines()[0])["hosts"]["entries"]
    assert a == {"key": "a", "errors": 0, "n": 1, "worst": 1.5}
    assert b == {"key": "b", "errors": 1, "n": 2, "worst": 9.0}
    arguments[4] = "m=per(host, of={a: b})"
    status, _, err = call(capfd, "rollup", *arguments)
    assert status == 2
    assert "cannot read 'b' as a measure" in err


@pytest.mark.long
def test_rollup_and_query_in_processes_of_their_own(lines, tmp_path):
    folder = tmp_path / "store"
    status, out, err = run("rollup", lines, *ARGUMENTS, "--store", folder)
    assert (status, out) == (0, "")
    assert "8 states at 3 levels, from 1 files" in err or "states at 3 levels" in err
    status, out, err = run("query", folder, "--per", "1h", "--format", "json")
    assert (status, err) == (0, "")
    rows = [json.loads(line) for line in out.splitlines()]
    assert rows[0] == {
        "level": "1h",
        "partial": False,
        "window_start": "2024-05-01T10:00:00Z",
        "window_end": "2024-05-01T11:00:00Z",
        "host": "a",
        "requests": 1,
        "bytes": 10,
        "latency": {
            "count": 1,
            "sum": 1.5,
            "min": 1.5,
            "max": 1.5,
            "mean": 1.5,
            "quantiles": {"0.5": 1.5, "0.99": 1.5},
        },
        "errors": 0,
    }
    assert [row["host"] for row in rows] == ["a", "b", None]
    assert rows[2]["latency"] is None
    assert rows[2]["errors"] == 1


def as_csv(path, table):
    pacsv.write_csv(table, path)


def as_json(path, table):
    def normalize(row):
        return {k: v.isoformat() if isinstance(v, dt.datetime) else v for k, v in row.items()}

    text = "".join(json.dumps(normalize(row)) + "\n" for row in table.to_pylist())
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def sample(n=500, seed=0):
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "ts": pa.array(1_714_557_600_000_000 + rng.integers(0, 7_200_000_000, n)).cast(pa.timestamp("us", "UTC")),
            "host": rng.choice(["a", "b", "c"], n),
            "bytes": rng.integers(0, 1000, n),
            "ms": rng.lognormal(0, 2, n),
            "status": rng.choice([200, 404, 503], n),
        }
    )


FRAME = TiltFrame(
    ["10s", "1m", "1h"],
    "ts",
    {
        "requests": aggr.count(),
        "bytes": aggr.sum("bytes"),
        "latency": aggr.dds("ms", [0.5, 0.99]),
        "errors": aggr.count(where="status >= 500"),
    },
    ["host"],
)


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl", "json.gz", "folder"])
def test_every_format_gives_the_same_bits(ending, tmp_path, capfd):
    table, data_file = sample(), tmp_path / f"data.{ending}"
    if ending == "parquet":
        pq.write_table(table, data_file)
    elif ending == "csv":
        as_csv(data_file, table)
    elif ending == "folder":
        (data_file / "part=1").mkdir(parents=True)
        pq.write_table(table.slice(0, 100), data_file / "part=1" / "a.parquet")
        as_csv(data_file / "b.csv", table.slice(100, 150))
        as_json(data_file / "c.jsonl", table.slice(250))
        (data_file / "_SUCCESS").touch()
        (data_file / "notes.txt").write_text("not data")
    else:
        as_json(data_file, table)
    status, _, err = call(capfd, "rollup", data_file, *ARGUMENTS, "--store", tmp_path / "store")
    assert status == 0, err
    opened = FrameStore(tmp_path / "store")
    assert opened.frame == FRAME
    expected = rollup(table, FRAME)
    for level in ("10s", "1m", "1h"):
        states = opened.states(level)
        expected_level = expected.filter(pa.compute.equal(expected["level"], level))
        assert all(same_bits(states.column(c), expected_level.column(c)) for c in expected_level.column_names), level


def test_files_of_differing_schemas_are_widened(tmp_path, capfd):
    (tmp_path / "a.csv").write_text("ts,x\n0,1\n")
    (tmp_path / "b.csv").write_text("x,ts,more\n2.5,1000,z\n")
    (tmp_path / "c.csv").write_text("ts\n2000\n")
    arguments = ["--time", "ts", "--measure", "s=sum(x)", "--measure", "n=count(x)", "--levels", "1h"]
    assert call(capfd, "rollup", tmp_path, *arguments, "--store", tmp_path / "store")[0] == 0
    out = json.loads(call(capfd, "query", tmp_path / "store", "--per", "1h", "--format", "json")[1])
    assert (out["s"], out["n"]) == (3.5, 2)


def test_csv_and_parquet_and_table_output(store, tmp_path, capfd):
    status, out, _ = call(capfd, "query", store, "--per", "1m", "--format", "csv")
    assert status == 0
    header, first, *other_lines = out.splitlines()
    assert header.replace('"', "").startswith("window_start,window_end,host,requests,bytes,latency_count")
    assert first.replace('"', "").startswith("2024-05-01T10:00:00Z,2024-05-01T10:01:00Z,a,1,10,1,1.5")
    assert len(other_lines) == 2
    out_file = tmp_path / "out.parquet"
    assert call(capfd, "query", store, "--per", "1m", "--format", "parquet", "--out", out_file)[0] == 0
    assert pq.read_table(out_file).column("requests").to_pylist() == [1, 1, 1]
    status, out, _ = call(capfd, "query", store, "--per", "1m")
    assert "p99" in out
    assert "2024-05-01 10:01" in out


def test_the_ending_of_the_output_file_is_its_format_unless_another_is_named(store, tmp_path, capfd):
    texts = {}
    for name, *options in (["a.csv"], ["a.jsonl"], ["a.PARQUET"], ["a.pq"], ["a.txt"], ["b.csv", "--format", "json"]):
        assert call(capfd, "query", store, "--per", "1m", *options, "--out", tmp_path / name)[0] == 0
        texts[name] = (tmp_path / name).read_bytes()
    assert texts["a.csv"].replace(b'"', b"").startswith(b"window_start,window_end,host")
    for name in ("a.PARQUET", "a.pq"):
        assert pq.read_table(tmp_path / name).column("requests").to_pylist() == [1, 1, 1]
    assert [json.loads(line)["requests"] for line in texts["a.jsonl"].splitlines()] == [1, 1, 1]
    assert texts["b.csv"] == texts["a.jsonl"]
    assert "─────".encode() in texts["a.txt"]


@pytest.mark.parametrize("name", ["a.tsv", "a.csv.gz", "a.parquet.zst"])
def test_an_ending_that_can_only_be_read_is_refused_unless_a_format_is_named(name, store, tmp_path, capfd):
    out = tmp_path / name
    status, _, error = call(capfd, "query", store, "--per", "1m", "--out", out)
    assert (status, out.exists()) == (2, False)
    assert f"end in {out.suffix} can only be read; write --out" in " ".join(error.split())
    assert call(capfd, "query", store, "--per", "1m", "--format", "csv", "--out", out)[0] == 0
    assert "window_start" in out.read_text()


@pytest.mark.parametrize("name", ["link.csv", "link.txt"])
def test_a_result_is_written_to_the_file_that_a_link_names(name, store, tmp_path, capfd):
    link, target = tmp_path / name, tmp_path / f"target.{name}"
    target.write_text("old")
    link.symlink_to(target)
    assert call(capfd, "query", store, "--per", "1m", "--out", link)[0] == 0
    assert link.is_symlink()
    assert "2024-05-01" in target.read_text()


@pytest.mark.parametrize(
    ("arguments", "requests"),
    [
        (["--where", "host = 'a'"], [1]),
        (["--where", "host IS NULL"], [1]),
        (["--where", "host IN ('a', 'b')"], [1, 1]),
        (["--within", "2024-05-01T10:01Z,2024-05-02"], [1]),
        (["--within", "2024-05-01T10:00,2024-05-01T10:01"], [1, 1]),
        (["--within", "1714557600000,1714557660000"], [1, 1]),
        (["--within", "2024-05-01T15:30+05:30,2024-05-01T15:31+05:30"], [1, 1]),
        (["--within", "2030-01-01,2031-01-01"], []),
    ],
)
def test_where_and_within(store, capfd, arguments, requests):
    status, out, err = call(capfd, "query", store, "--per", "1m", "--format", "json", *arguments)
    assert (status, err) == (0, "")
    assert [json.loads(line)["requests"] for line in out.splitlines()] == requests


def test_appending_adds_and_the_same_file_does_not(store, lines, tmp_path, capfd):
    status, _, err = call(capfd, "rollup", lines, *ARGUMENTS, "--store", store)
    assert status == 0
    assert "nothing new" in err
    more = tmp_path / "more.jsonl"
    more.write_text(json.dumps(LINES[0]) + "\n")
    assert call(capfd, "rollup", lines, more, *ARGUMENTS, "--store", store)[0] == 0
    out = call(capfd, "query", store, "--per", "1h", "--format", "json", "--where", "host = 'a'")[1]
    assert json.loads(out)["requests"] == 2
    assert FrameStore(store).inspect().levels[0].parts == 2


def test_functions_are_listed(capfd):
    status, out, _ = call(capfd, "functions")
    assert status == 0
    assert all(name in out for name in aggr.names())


def halved(path, table):
    pq.write_table(table, path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


MISTAKES = {
    "a missing file": (["rollup", "nope.csv", *ARGUMENTS], "there is no file or folder nope.csv"),
    "a folder without data": (["rollup", "bare", *ARGUMENTS], "the folder bare has no data"),
    "an empty file": (["rollup", "empty.csv", *ARGUMENTS], "empty.csv is empty"),
    "a line with too many fields": (
        ["rollup", "long.csv", *ARGUMENTS],
        "Expected 3 columns, got 4: 1,2,3,4; correct the line, or leave such lines out by --bad-rows skip",
    ),
    "a file cut in half": (["rollup", "half.parquet", *ARGUMENTS], "cannot read half.parquet"),
    "json cut in half": (["rollup", "half.jsonl", *ARGUMENTS], "cannot read half.jsonl"),
    "gzip cut in half": (["rollup", "half.json.gz", *ARGUMENTS], "cannot read half.json.gz"),
    "an unknown format": (["rollup", "notes.txt", *ARGUMENTS], "cannot determine the format of notes.txt"),
    "a missing column": (
        ["rollup", "e.jsonl", "--time", "tss", *MEASURES, *LEVELS],
        "no column 'tss'; did you mean 'ts'",
    ),
    "a text column asked for a sum": (
        ["rollup", "e.jsonl", "--time", "ts", "--measure", "s=sum(host)", *LEVELS],
        "s: sum cannot take a column of type string",
    ),
    "levels that do not nest": (
        ["rollup", "e.jsonl", "--time", "ts", *MEASURES, "--levels", "10s,45s,1h"],
        "45s does not consist of whole windows of 10s",
    ),
    "an unknown zone": (["rollup", "e.jsonl", *ARGUMENTS, "--timezone", "Mars"], "there is no time zone 'Mars'"),
    "duplicate measures": (["rollup", "e.jsonl", *ARGUMENTS, "--measure", "bytes=count()"], "'bytes' is used twice"),
    "q above 1": (
        ["rollup", "e.jsonl", "--time", "ts", "--measure", "p=dds(ms, quantiles=[1.5])", *LEVELS],
        "a quantile must be a number from 0 to 1; got 1.5",
    ),
    "nine digits": (
        ["rollup", "e.jsonl", "--time", "ts", "--measure", "p=hdr(bytes, digits=9)", *LEVELS],
        "digits must be a whole number from 1 to 5; got 9",
    ),
    "no accuracy": (
        ["rollup", "e.jsonl", "--time", "ts", "--measure", "p=dds(ms, relative_accuracy=0)", *LEVELS],
        "relative_accuracy must be",
    ),
    "fractions without a unit": (
        ["rollup", "e.jsonl", "--time", "ts", "--measure", "p=hdr(ms)", *LEVELS],
        "hdr('ms'): hdr counts whole numbers; got 1.5; pass unit",
    ),
    "an unknown function": (
        ["rollup", "e.jsonl", "--time", "ts", "--measure", "p=medain(ms)", *LEVELS],
        "there is no function 'medain'",
    ),
    "no measure": (["rollup", "e.jsonl", "--time", "ts", *LEVELS], "Missing option '--measure'"),
    "the port of a server": (["serve", "store", "--port", "80"], "no option --port or --host; use --listen HOST:PORT"),
    "the delay of a watermark": (
        ["stream", "--time", "ts", *MEASURES, *LEVELS, "--watermark", "5s"],
        "no option --watermark or --delay; use --disorder TIME",
    ),
    "an unknown option": (["rollup", "e.jsonl", "--tiem", "ts"], "No such option"),
    "an unknown command": (["rolup"], "No such command 'rolup'"),
}


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A folder of good and bad files to work in."""
    monkeypatch.chdir(tmp_path)
    Path("e.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))
    Path("bare").mkdir()
    Path("empty.csv").touch()
    Path("long.csv").write_text("ts,bytes,ms\n0,1,2\n1,2,3,4\n")
    halved(Path("half.parquet"), sample())
    Path("half.jsonl").write_text(Path("e.jsonl").read_text()[:150])
    as_json(Path("half.json.gz"), sample())
    Path("half.json.gz").write_bytes(Path("half.json.gz").read_bytes()[:2000])
    Path("notes.txt").write_text("x")
    return tmp_path


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence_and_status_2(mistake, desk, capfd):
    arguments, message = MISTAKES[mistake]
    before = sorted(str(p) for p in desk.rglob("*"))
    status, out, err = call(capfd, *arguments, *(["--store", "st"] if arguments[0] == "rollup" else []))
    assert status == 2
    assert out == ""
    assert message in err
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert sorted(str(p) for p in desk.rglob("*")) == before  # nothing written


QUERIES = {
    "no store": (["query", "nope", "--per", "1h"], "there is no store nope"),
    "a folder that is not a store": (["query", ".", "--per", "1h"], "is not a store"),
    "an unknown level": (
        ["query", "store", "--per", "7s"],
        "7s does not consist of whole windows of a level; use a level (10s, 1m, 1h)",
    ),
    "a level that cannot be read": (["query", "store", "--per", "soon"], "cannot read 'soon' as a window"),
    "a condition on a measure": (["query", "store", "--per", "1h", "--where", "bytes > 1"], "keys of the frame (host)"),
    "a condition that is none": (["query", "store", "--per", "1h", "--where", "host ="], "cannot read the condition"),
    "a range that ends before it starts; exchange start and end": (
        ["query", "store", "--per", "1h", "--within", "2024-05-02,2024-05-01"],
        "its end must come after its start",
    ),
    "half a range": (["query", "store", "--per", "1h", "--within", "2024-05-02T"], "write START,END"),
    "a time that is none": (["query", "store", "--per", "1h", "--within", "May,June"], "cannot read 'May' as a time"),
    "parquet on the screen": (["query", "store", "--per", "1h", "--format", "parquet"], "--out FILE"),
    "a folder that is not there": (["query", "store", "--per", "1h", "--out", "no/where"], "no/where"),
    "a spreadsheet by its name": (["query", "store", "--per", "1h", "--out", "hours.xlsx"], "--out 'hours.csv'"),
    "a key without quotes": (
        ["query", "store", "--per", "1h", "--where", "host = a"],
        "got 'a'; a text is written in single quotes, 'a'",
    ),
    "a condition on a measure in place of a result": (
        ["query", "store", "--per", "1h", "--where", "requests > 1"],
        "got 'requests'; compare results with --having",
    ),
}


@pytest.mark.parametrize("mistake", QUERIES)
def test_a_mistaken_query(mistake, store, capfd, monkeypatch):
    monkeypatch.chdir(store.parent)
    arguments, message = QUERIES[mistake]
    status, out, err = call(capfd, *arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_a_store_of_another_frame(store, lines, capfd):
    before = {p: p.read_bytes() for p in store.rglob("*") if p.is_file()}
    arguments = ["--time", "ts", "--measure", "requests=count()", *LEVELS, "--store", store]
    status, _, err = call(capfd, "rollup", lines, *arguments)
    assert status == 2
    assert "another frame: keys is [] here and ['host'] there" in err
    assert {p: p.read_bytes() for p in store.rglob("*") if p.is_file()} == before


@pytest.mark.long
@pytest.mark.slow
def test_a_reader_that_goes_away(store):
    """``tiltframe query … | head`` ends in silence."""
    command = f"{sys.executable} -m tiltframe.cli query {store} --per 10s --format json | head -n 0"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_ctrl_c_writes_nothing(tmp_path):
    rng = np.random.default_rng(0)
    big = pa.table({"ts": rng.integers(0, 10**10, 6_000_000), "x": rng.lognormal(0, 1, 6_000_000)})
    pq.write_table(big, tmp_path / "big.parquet")
    arguments = ["--time", "ts", "--measure", "d=dds(x)", "--levels", "10s,1m", "--store", str(tmp_path / "store")]
    command = ["rollup", str(tmp_path / "big.parquet"), *arguments]
    script = f"import tiltframe.cli as cli; print('ready', flush=True); cli.main({command!r})"
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    try:
        _, err = process.communicate(timeout=120)
    finally:
        process.kill()
    if process.returncode != 0:  # it was still at work
        assert process.returncode == 130
        assert "interrupted; nothing was written" in err
        assert "Traceback" not in err
        assert not (tmp_path / "store").exists()


def test_a_file_that_comes_twice_counts_once(desk, capfd):
    Path("d").mkdir()
    Path("d/e.jsonl").write_bytes(Path("e.jsonl").read_bytes())
    assert call(capfd, "rollup", "d", "d/e.jsonl", Path("d").resolve(), *ARGUMENTS, "--store", "st")[0] == 0
    out = call(capfd, "query", "st", "--per", "1h", "--where", "host = 'a'", "--format", "json")[1]
    assert json.loads(out)["requests"] == 1


def test_a_file_that_has_grown_is_refused(store, lines, capfd):
    lines.write_text(lines.read_text() * 2)
    status, _, err = call(capfd, "rollup", lines, *ARGUMENTS, "--store", store)
    assert status == 2
    assert "has changed since it was rolled up" in err


@pytest.mark.slow
def test_a_store_below_an_input_is_no_input(desk, capfd):
    for name in ("e.jsonl", "more.jsonl"):
        Path("in").mkdir(exist_ok=True)
        Path("in", name).write_text(Path("e.jsonl").read_text() + "\n" * len(name))  # the same bytes count once
        assert call(capfd, "rollup", "in", *ARGUMENTS, "--store", "in/store")[0] == 0
    out = call(capfd, "query", "in/store", "--per", "1h", "--where", "host = 'a'", "--format", "json")[1]
    assert json.loads(out)["requests"] == 2


def test_other_types_than_the_store_keeps(desk, capfd):
    Path("a.csv").write_text("ts,x\n0,1\n")
    Path("b.csv").write_text("ts,x\n0,1.5\n")
    arguments = ["--time", "ts", "--measure", "s=sum(x)", "--levels", "1h", "--store", "st"]
    assert call(capfd, "rollup", "a.csv", *arguments)[0] == 0
    status, _, err = call(capfd, "rollup", "b.csv", *arguments)
    assert status == 2
    assert "contains states of int64 in 's'; got states of double" in err
    assert call(capfd, "query", "st", "--per", "1h")[0] == 0


def test_csv_keeps_words_and_numbers_apart(desk, capfd):
    Path("a.csv").write_text('ts,k,x\n0,NA,1.5\n0,NA,NA\n0,,2\n0,"[red]",\n')
    arguments = ["--time", "ts", "--key", "k", "--measure", "n=count(x)", "--levels", "1h", "--store", "st"]
    assert call(capfd, "rollup", "a.csv", *arguments)[0] == 0
    out = call(capfd, "query", "st", "--per", "1h", "--format", "json")[1]
    assert {r["k"]: r["n"] for r in map(json.loads, out.splitlines())} == {"NA": 1, None: 1, "[red]": 0}
    assert "[red]" in call(capfd, "query", "st", "--per", "1h")[1]


def test_nan_in_csv_is_a_value(desk, capfd):
    Path("a.csv").write_text("ts,x\n0,NaN\n0,1.5\n")
    arguments = ["--time", "ts", "--measure", "s=sum(x)", "--measure", "n=count(x)", "--levels", "1h", "--store", "st"]
    assert call(capfd, "rollup", "a.csv", *arguments)[0] == 0
    assert json.loads(call(capfd, "query", "st", "--per", "1h", "--format", "json")[1])["s"] == "NaN"


@pytest.mark.slow
def test_json_columns_that_come_late_are_read(desk, capfd):
    first = "".join(json.dumps({"ts": i, "pad": "x" * 1000}) + "\n" for i in range(20_000))
    Path("a.jsonl").write_text(json.dumps({"ts": 0, "late": 1}) + "\n")
    Path("b.jsonl").write_text(first + json.dumps({"ts": 0, "late": 10}) + "\n")
    arguments = ["--time", "ts", "--measure", "s=sum(late)", "--levels", "1h", "--store", "st"]
    assert call(capfd, "rollup", "a.jsonl", "b.jsonl", *arguments)[0] == 0
    assert json.loads(call(capfd, "query", "st", "--per", "1h", "--format", "json")[1])["s"] == 11


def test_nested_keys_are_refused(desk, capfd):
    Path("a.jsonl").write_text('{"ts": 0, "k": [1]}\n')
    arguments = ["--time", "ts", "--key", "k", "--measure", "n=count()", "--levels", "1h", "--store", "st"]
    status, _, err = call(capfd, "rollup", "a.jsonl", *arguments)
    assert status == 2
    assert "the key 'k' has type list" in err


@pytest.mark.slow
def test_inspect_compact_and_expire(store, lines, capfd):
    status, out, _ = call(capfd, "inspect", store)
    assert status == 0
    assert "TiltFrame(10s → 1m → 1h by host" in out
    assert "10s: no windows from 2024-05-01T10:00:10Z to 2024-05-01T10:01:00Z" in out
    report = json.loads(call(capfd, "inspect", store, "--format", "json")[1])
    assert [level["windows"] for level in report["levels"]] == [2, 2, 1]
    assert report["frame"]["keys"] == ["host"]
    (store.parent / "more.jsonl").write_text(lines.read_text() + "\n")
    assert call(capfd, "rollup", store.parent / "more.jsonl", *ARGUMENTS, "--store", store)[0] == 0
    before = call(capfd, "query", store, "--per", "1h", "--format", "json")[1]
    status, _, err = call(capfd, "compact", store)
    assert status == 0
    assert "parts 10s 2 → 1, 1m 2 → 1, 1h 2 → 1" in err
    assert call(capfd, "compact", store)[2].startswith(f"{store}: parts nothing to merge")
    status, _, err = call(capfd, "expire", store)
    assert status == 2
    assert "keeps every level for ever, so nothing expires; pass --retention" in err
    status, _, err = call(capfd, "expire", store, "--retention", "10s=1d,1m=none", "--now", "2024-06-01")
    assert status == 0
    assert "10s before 2024-05-31T00:00:00Z: 3 states removed" in err
    assert call(capfd, "query", store, "--per", "1h", "--format", "json")[1] == before
    status, out, err = call(capfd, "query", store, "--per", "10s", "--format", "json")
    assert (status, out) == (0, "")
    assert "10s has windows only from 2024-05-31T00:00:00Z on" in err


def test_replacing_a_range(store, lines, capfd):
    line = json.dumps({**LINES[0], "bytes": 5}) + "\n"
    lines.write_text(line + json.dumps(LINES[2]) + "\n")
    within = ["--replace-within", "2024-05-01T10:00,2024-05-01T10:01"]
    status, _, err = call(capfd, "rollup", lines, *ARGUMENTS, "--store", store, *within)
    assert status == 0, err
    assert "replaced 2024-05-01T10:00,2024-05-01T10:01" in err
    assert "1 states from 1 files; 1 states outside of it were left out" in err
    hours = [json.loads(x) for x in call(capfd, "query", store, "--per", "1h", "--format", "json")[1].splitlines()]
    assert {h["host"]: h["bytes"] for h in hours} == {"a": 5, None: None}
    status, _, err = call(
        capfd, "rollup", lines, *ARGUMENTS, "--store", store, "--replace-within", "2024-05-01T10:00,x"
    )
    assert status == 2
    assert "cannot read 'x'" in err


def test_every_way_to_ask(store, capfd):
    def ask(*arguments):
        status, out, err = call(capfd, "query", store, "--format", "json", *arguments)
        assert status == 0, err
        return [json.loads(line) for line in out.splitlines()]

    (total,) = ask("--per", "all", "--no-keys", "--measure", "requests")
    assert total == {
        "level": "all",
        "partial": False,
        "window_start": "2024-05-01T10:00:00Z",
        "window_end": "2024-05-01T11:00:00Z",
        "requests": 3,
    }
    top = ask(
        "--per",
        "1h",
        "--key",
        "host",
        "--measure",
        "p=dds(ms, quantiles=[0.1])",
        "--order-by",
        "p.max desc",
        "--limit",
        "1",
    )
    assert list(top[0]["p"]["quantiles"]) == ["0.1"]
    hops = ask("--per", "hopping(2m, 1m)", "--no-keys", "--measure", "requests")
    assert [h["requests"] for h in hops] == [2, 3, 1]
    filled = ask("--per", "1m", "--within", "2024-05-01 10:**:**", "--fill", "--no-keys", "--measure", "requests")
    assert len(filled) == 60
    hour = ("--within", "2024-05-01 10:**:**", "--no-keys", "--measure", "requests")
    before = [row["requests"] for row in ask("--per", "1m", "--fill", "previous", *hour) if row["filled"]]
    assert before
    assert 0 not in before
    status, out, _ = call(capfd, "query", store, "--per", "1d")
    assert status == 0
    assert "2024-05-01 " in out


def piped(data, *args):
    """Run the command in its own process, with bytes on standard input."""
    done = subprocess.run([sys.executable, "-m", "tiltframe.cli", *map(str, args)], capture_output=True, input=data)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.slow
@pytest.mark.parametrize("form", ["json", "csv", "tsv", "parquet", "json.gz"])
@pytest.mark.long
def test_standard_input_counts_as_a_file_does(form, lines, store, tmp_path, forked):
    table = pa.Table.from_pylist(LINES)
    sink = pa.BufferOutputStream()
    if form == "parquet":
        pq.write_table(table, sink)
    elif form in ("csv", "tsv"):
        pacsv.write_csv(table, sink, pacsv.WriteOptions(delimiter={"csv": ",", "tsv": "\t"}[form]))
    data = sink.getvalue().to_pybytes() or lines.read_bytes()
    data = gzip.compress(data) if form.endswith(".gz") else data
    other = tmp_path / "other"
    for message in ("from 1 files", "nothing new"):  # the same bytes once
        status, out, err = forked.run(["rollup", "-", *ARGUMENTS, "--store", other], text=data)
        assert (status, out) == (0, ""), err
        assert message in err
    assert FrameStore(other).query("1m").equals(FrameStore(store).query("1m"))
    assert not any("path" in file.read_text(errors="replace") for file in other.rglob("*.parquet"))


@pytest.mark.long
@pytest.mark.slow
def test_standard_input_with_mistakes(tmp_path):
    for data, message in ((b"", "standard input is empty"), (b"ts,host\n1,2,3\n", "standard input")):
        status, out, err = piped(data, "rollup", "-", *ARGUMENTS, "--store", tmp_path / "store")
        assert (status, out) == (2, "")
        assert message in err
        assert "/" not in err.replace("pip install", ""), err
        assert not (tmp_path / "store").exists()
