"""tiltframe stream as a process that reads lines and writes windows, is stopped, and continues."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import aggr
import tiltframe.cli as cli
from aggr.arrow.bit_equality import same_bits
from tests.conftest import CONFORMANCE  # noqa: F401  the profile of hypothesis
from tiltframe import FrameStore, TiltFrame, rollup
from tiltframe.streaming import OpenWindows

COMMAND = [sys.executable, "-m", "tiltframe.cli", "stream", "--time", "ts", "--key", "k", "--measure", "n=count()"]


def lines(*times_and_hosts: tuple[float, str]) -> str:
    return "".join(json.dumps({"ts": int(t * 1000), "k": k, "other": [1]}) + "\n" for t, k in times_and_hosts)


@pytest.fixture
def run(forked):
    return partial(run_command, forked)


def run_command(forked, text: str, *options: str, status: int = 0) -> list[tuple] | str:
    ended, output, errors = forked.run([*COMMAND[3:], *options], text=text)
    assert ended == status, errors
    return counts_of(output) if status == 0 else errors


def counts_of(out: str) -> list[tuple]:
    rows = [json.loads(line) for line in out.splitlines()]
    return [(r["level"], r["window_start"], r["k"], r["n"], r["reason"], r["revision"], r["partial"]) for r in rows]


@pytest.mark.slow
def test_lines_to_windows(run):
    got = run(lines((1, "a"), (2, "b"), (61, "a")).rstrip("\n"), "--levels", "10s,1m")
    first, second = "1970-01-01T00:00:00Z", "1970-01-01T00:01:00Z"
    assert sorted(got) == [
        ("10s", first, "a", 1, "close", 0, False),
        ("10s", first, "b", 1, "close", 0, False),
        ("10s", second, "a", 1, "close", 0, False),
        ("1m", first, "a", 1, "close", 0, False),
        ("1m", first, "b", 1, "close", 0, False),
        ("1m", second, "a", 1, "close", 0, False),
    ]


@pytest.mark.slow
@pytest.mark.long
def test_late_rows_go_to_a_file_of_their_own(tmp_path, run):
    dropped = tmp_path / "late.jsonl"
    options = ["--levels", "10s", "--emit", "on_update", "--dropped", str(dropped)]
    run(lines((1, "a")), *options, "--state", str(tmp_path / "state"))
    assert not dropped.read_text()
    for number in (31, 2, 32, 3):  # a batch each
        run(lines((number, "a")), *options, "--state", str(tmp_path / "state"))
    dropped_rows = [(row["ts"], row["k"]) for row in map(json.loads, dropped.read_text().splitlines())]
    assert dropped_rows == [(2000, "a"), (3000, "a")]


@pytest.mark.slow
@pytest.mark.long
def test_a_state_goes_on(tmp_path, run):
    state = tmp_path / "state"
    options = [
        "--levels",
        "10s",
        "--emit",
        "on_update(mode=accumulating)",
        "--late",
        "true_window",
        "--state",
        str(state),
    ]
    start = "1970-01-01T00:00:00Z"
    assert run(lines((1, "a")), *options) == [("10s", start, "a", 1, "update", 0, True)]
    assert OpenWindows.from_ipc(state.read_bytes()).progress.rows == 1
    assert run(lines((2, "a")), *options) == [("10s", start, "a", 2, "update", 1, True)]
    coarser = run(lines((3, "a"), (62, "a")), *[*options[:1], "10s,1m", *options[2:]])
    assert [row[3] for row in coarser if row[:2] == ("10s", start)] == [3]
    assert [row[1:4] for row in coarser if row[0] == "1m"] == [(start, "a", None), ("1970-01-01T00:01:00Z", "a", 1)]
    output = run("", *[*options[:1], "1m", *options[2:]], status=2)
    assert (
        "the saved windows belong to another frame: levels is ['10s', '1m'] in the saved state and ['1m'] now" in output
    )
    assert output.endswith("any frame can be used after tiltframe stream --drain has closed all windows\n")
    with pytest.raises(ValueError, match=r"or pass the saved frame$"):
        OpenWindows.from_ipc(state.read_bytes(), TiltFrame(["1m"], "ts", {"n": aggr.count()}, ["k"]))


@pytest.mark.slow
def test_ctrl_c_saves_what_was_read(tmp_path):
    state = tmp_path / "state"
    options = ["--levels", "10s", "--emit", "on_update", "--state", str(state)]
    process = subprocess.Popen(
        [*COMMAND, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdin.write(lines((1, "a"), (1, "b")))
    process.stdin.flush()
    assert [json.loads(process.stdout.readline())["k"] for _ in range(2)] == ["a", "b"]
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "")
    assert OpenWindows.from_ipc(state.read_bytes()).progress.rows == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("{", [], "cannot read standard input as JSON lines"),
        (
            "no json\n",
            [],
            "each line must be one JSON object; correct the line, or leave such lines out by --bad-rows skip",
        ),
        ('{"ts": 1}\n', [], "no column 'k'"),
        ("", ["--emit", "sometimes"], "cannot read 'sometimes' as emit policy"),
        ("", ["--late", "drop(1x)"], "cannot read the lateness '1x'"),
        ("", ["--state", "."], "this path is a folder"),
    ],
)
def test_mistakes_are_one_sentence(text, options, message, run):
    err = run(text, "--levels", "10s", *options, status=2)
    assert message in err
    assert err.count("\n") == 1


SECOND, DAY = 1_000_000, 86_400_000_000
STORED = TiltFrame(
    ["1s", "1m", "1h"], "ts", {"n": aggr.count(), "x": aggr.sum("x"), "p": aggr.dds("x"), "i": aggr.last("i")}, ["k"]
)
INTO = (
    "--time ts --key k --measure n=count() --measure x=sum(x) --measure p=dds(x) --measure i=last(i) --levels 1s,1m,1h"
)
KILLS = int(os.environ.get("KILLS", "1"))  # KILLS=15 makes 30 kills
RUN = (
    "import sys, tiltframe.cli as cli, tiltframe.cli.stream_sinks as s; s._MIN_COMMIT_SECONDS = 0; "
    "print('ready', flush=True); "
)


def rows_of(number: int, n: int = 300) -> pa.Table:
    """Rows of some seconds, one key, some of them older than all before."""
    rng = np.random.default_rng(number)
    times = number * 5 * SECOND + rng.integers(0, 8 * SECOND, n) - rng.choice([0, 60 * SECOND], n, p=[0.95, 0.05])
    return pa.table(
        {
            "ts": pa.array(times + DAY, pa.timestamp("us", "UTC")),
            "k": np.array(["a", "b"])[rng.integers(0, 2, n)],
            "x": rng.lognormal(0, 30, n),
            "i": rng.integers(0, 100, n),
        }
    )


def arrive(folder: Path, number: int, rows: pa.Table) -> None:
    """Put a file of one of the formats into a folder, whole at once, with the time of its number."""
    folder.mkdir(exist_ok=True)
    kind = ("parquet", "csv", "json")[number % 3]
    file = folder / f".{number}"
    if kind == "parquet":
        pq.write_table(rows, file)
    elif kind == "csv":
        pa.csv.write_csv(rows, file)
    else:
        text = rows.set_column(0, "ts", pc.strftime(rows.column("ts"), "%Y-%m-%dT%H:%M:%SZ"))
        file.write_text("".join(json.dumps(row) + "\n" for row in text.to_pylist()))
    os.utime(file, (1_700_000_000 + number,) * 2)
    file.rename(folder / f"{number}.{kind}")


def start(tmp_path: Path, *options: str) -> subprocess.Popen:
    """Start a stream that commits as often as it can; it has imported everything."""
    args = ["stream", str(tmp_path / "in"), *INTO.split(), "--store", str(tmp_path / "store"), "--once", *options]
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [sys.executable, "-c", f"{RUN}cli.main({args!r})"], stdout=pipe, stderr=pipe, text=True, cwd=tmp_path
    )
    assert process.stdout.readline() == "ready\n"
    return process


def ended(process: subprocess.Popen, status: int = 0) -> str:
    _, err = process.communicate(timeout=900)
    assert process.returncode == status, err
    return err


def assert_holds(path: Path, rows: pa.Table) -> None:
    """Compare all levels of a store with a rollup, bit for bit."""
    store, batch_states = FrameStore(path), rollup(rows, STORED)
    for level in STORED.levels:
        expected = batch_states.filter(pc.equal(batch_states.column("level"), level.name))
        got = store.states(level)
        for name in expected.column_names:
            assert same_bits(got.column(name), expected.column(name)), (level, name)


@pytest.mark.slow
@pytest.mark.long
def test_files_into_a_store_once_over_kills(tmp_path):
    """Kill -9 at any moment, with a saved state: nothing is lost, and nothing counts twice."""
    files, chance, kills = 12, random.Random(7), 2 * KILLS
    last = pa.table({c: rows_of(0).column(c).slice(0, 1) for c in rows_of(0).column_names})
    last = last.set_column(0, "ts", pa.array([2 * DAY], pa.timestamp("us", "UTC")))  # closes all windows before
    for number in range(files):
        arrive(tmp_path / "in", number, rows_of(number))
    done = 0
    for at in range(kills):
        process = start(tmp_path, "--state", "state")
        time.sleep(chance.random() * 1.5)
        process.kill()
        done += process.wait() == -signal.SIGKILL
        process.stdout.close(), process.stderr.close()
        if at >= 2:  # more to do
            arrive(tmp_path / "in", files, rows_of(files))
            files += 1
    arrive(tmp_path / "in", 1000 * 3, last)
    ended(start(tmp_path, "--state", "state"))
    rows = pa.concat_tables([rows_of(number) for number in range(files)])
    assert_holds(tmp_path / "store", rows)
    assert done > kills // 3
    before = (tmp_path / "state").stat().st_size
    ended(start(tmp_path, "--state", "state"))  # nothing new
    assert_holds(tmp_path / "store", rows)
    assert (tmp_path / "state").stat().st_size <= before + 200


@pytest.mark.slow
@pytest.mark.long
def test_a_store_alone_says_what_is_committed(tmp_path):
    """Without a saved state rows of committed windows are not taken again, as a new writer's: and it says so."""
    six = DAY + 6 * 3600 * SECOND
    times = [six - 2 * SECOND, six - 2 * SECOND, six - SECOND, six, six + SECOND, six + 2 * SECOND]
    rows_of_store = rows_of(0, 6).set_column(0, "ts", pa.array(times, pa.timestamp("us", "UTC")))
    arrive(tmp_path / "in", 0, rows_of_store)
    ended(start(tmp_path, "--state", "state"))
    assert_holds(tmp_path / "store", rows_of_store[:5])  # the last second is open, and in the state
    (tmp_path / "state").unlink()
    message = ended(start(tmp_path))
    assert "there is no saved state; the stream 'folder " in message
    assert "as a new writer, and skips rows of windows that end by 1970-01-02T06:00:02Z, because" in message
    assert "5 rows were ignored because their windows are already committed" in message
    assert_holds(tmp_path / "store", rows_of_store)


@pytest.mark.slow
@pytest.mark.long
def test_a_folder_is_watched(tmp_path):
    """A file is read once it has arrived, once, in the order of arrival; Ctrl-C keeps what was read."""
    arrive(tmp_path / "in", 4, rows_of(4, 50))
    arrive(tmp_path / "in", 1, rows_of(1, 50))
    command = [sys.executable, "-m", "tiltframe.cli", "stream", str(tmp_path / "in"), *INTO.split()]
    command += ["--emit", "on_update", "--late", "true_window", "--state", str(tmp_path / "state")]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)
    first = json.loads(process.stdout.readline())
    assert first["window_start"] < "1970-01-02T00:00:14Z"  # of file 1
    arrive(tmp_path / "in", 9, rows_of(9, 50))
    for line in process.stdout:
        if json.loads(line)["window_start"] >= "1970-01-02T00:00:45Z":
            break
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert all(" rows, " in line for line in err.splitlines())  # progress, if it took ten seconds
    assert OpenWindows.from_ipc((tmp_path / "state").read_bytes()).progress.rows == 150
    (tmp_path / "in" / "9.parquet").unlink()
    pq.write_table(rows_of(10, 50), tmp_path / "in" / "9.parquet")
    changed = subprocess.run([*command, "--once"], capture_output=True, text=True, timeout=60)
    assert (changed.returncode, changed.stdout) == (2, "")
    assert "9.parquet has changed since it was read, so its rows would be counted twice" in changed.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("nowhere", "nowhere is not a folder"),
        ("--once", "--once applies only to a folder or a Spark source"),
        ("--name a", "--name, --durable and --stream apply only to a store; pass --store too"),
        ("--format rate", "--format, --option and --shards apply only to a Spark source"),
        ("--store s --emit on_update", "--emit must be after_close, with no parameters but delay="),
        ("--store s --emit after_close(latest)", "--emit must be after_close, with no parameters but delay="),
    ],
)
def test_options_that_do_not_go_together(options, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        cli.main(["stream", *INTO.split(), *options.split()])
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.long
def test_the_time_of_arrival():
    """Windows close by the clock, though no row comes after them."""
    command = [*COMMAND[:3], "stream", "--arrival", "--time", "came", "--measure", "n=count()", "--levels", "1s"]
    begun = time.time()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        process.stdin.write('{"x": 1}\n{"x": 2}\n')
        process.stdin.flush()
        row = json.loads(process.stdout.readline())  # the input is still open
        process.stdin.close()
        other_rows = [json.loads(line) for line in process.stdout]
    assert sum(emitted_row["n"] for emitted_row in [row, *other_rows]) == 2
    assert begun - 1 <= pd.Timestamp(row["window_start"]).timestamp() <= time.time()
    bad = subprocess.run(command, input='{"came": 1}\n', capture_output=True, text=True, check=False)
    assert "--arrival adds a column called 'came', but the rows already have this column" in " ".join(
        bad.stderr.split()
    )
