"""tiltframe stream with several inputs, with a drained state, and as other programs observe it: real processes, pipes
and files.
"""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import tiltframe.cli as cli
from tests.cli.test_stream_service import PIPES, STREAM, line, one_by_one, run_command
from tiltframe import FrameStore
from tiltframe.cli.stream_sources import wait_for_input
from tiltframe.streaming import OpenWindows

STEPS = 20


def test_descriptors_may_be_greater_than_select_takes():
    reader, writer = os.pipe()
    greater = fcntl.fcntl(reader, fcntl.F_DUPFD, 1100)
    try:
        assert greater >= 1100
        assert not wait_for_input([greater], 0.01)
        os.write(writer, b"a line\n")
        assert wait_for_input([greater], 10)
    finally:
        for descriptor in (reader, writer, greater):
            os.close(descriptor)


@pytest.mark.long
def test_an_input_behind_the_others_loses_nothing(tmp_path, forked):
    """One input is a minute behind. As one input its rows are late; as two, none is."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.jsonl").write_text("".join(map(line, range(60, 120, 2))))
    behind = tmp_path / "behind.jsonl"
    behind.write_text("".join(map(line, range(0, 60, 2))))
    inputs = ["--input", f"a={tmp_path / 'a'}", "--input", f"b={behind}"]
    rows, error_text = run_command(forked, "", *inputs, "--once", "--levels", "10s")
    assert (sum(row["n"] for row in rows), {row["revision"] for row in rows}, error_text) == (60, {0}, "")
    assert [row["n"] for row in rows] == [5] * 12


@pytest.mark.long
def test_runs_with_once_lose_no_files_of_an_input_behind_the_others(tmp_path, forked):
    """Each run reads a file of either input. One input is 40 seconds behind, as in a job that runs once an hour."""
    inputs = []
    for name in ("ahead", "behind"):
        (tmp_path / name).mkdir()
        inputs += ["--input", f"{name}={tmp_path / name}"]
    options = [*inputs, "--once", "--state", str(tmp_path / "state"), "--levels", "10s"]
    emitted = []
    for run in range(3):
        for name, delay in (("ahead", 40), ("behind", 0)):
            seconds = range(delay + 20 * run, delay + 20 * run + 20)
            (tmp_path / name / f"{run}.jsonl").write_text("".join(map(line, seconds)))
        rows, error_text = run_command(forked, "", *options, *(["--drain"] if run == 2 else []))
        assert error_text == ""
        emitted += [(row["window_start"][-6:-1], row["n"]) for row in rows]
    assert emitted == [(f"{10 * n // 60:02}:{10 * n % 60:02}", 20 if 4 <= n < 6 else 10) for n in range(10)]


@pytest.mark.long
def test_an_idle_input_no_longer_holds_the_watermark_back(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    inputs = ["--input", f"quiet={tmp_path / 'pipe'}", "--input", "busy=-", "--idle", "2s"]
    with subprocess.Popen([*STREAM, *inputs, "--levels", "10s"], **PIPES) as process:
        with (tmp_path / "pipe").open("w") as pipe:
            pipe.write(line(1))
            pipe.flush()
            one_by_one(process, line(2) + line(25))
            begun = time.monotonic()
            first = json.loads(process.stdout.readline())  # the pipe is still open, and its watermark is at 1 s
            assert (first["n"], first["window_start"]) == (2, "2024-05-01T10:00:00Z")
            assert time.monotonic() - begun > 0.5
        out, error_text = process.communicate(timeout=60)
        assert (json.loads(out)["n"], error_text, process.returncode) == (1, "", 0)


@pytest.mark.long
def test_a_drained_state_goes_on_with_another_frame(tmp_path, forked):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.jsonl").write_text(line(1) + line(12) + line(25))
    options = [str(tmp_path / "in"), "--once", "--state", str(tmp_path / "state")]
    rows, _ = run_command(forked, "", *options, "--levels", "10s,1m")
    assert [row["n"] for row in rows] == [1, 1]
    rows, _ = run_command(forked, "", *options, "--levels", "10s,1m", "--drain")
    assert [(row["level"], row["n"]) for row in rows] == [("10s", 1), ("1m", 3)]
    (tmp_path / "in" / "2.jsonl").write_text(line(2) + line(26) + line(40))
    rows, error_text = run_command(forked, "", *options, "--levels", "5s", "--drain")
    assert [(row["window_start"][-6:-1], row["n"]) for row in rows] == [("00:25", 1), ("00:40", 1)]
    assert "1 late rows were dropped" in error_text


def scraped(port: int) -> dict[tuple, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(s.name.removeprefix("tiltframe_stream_"), *sorted(s.labels.items())): s.value for s in samples}


@pytest.mark.long
def test_a_stream_is_seen_from_outside(tmp_path, forked):
    """Prometheus' own parser reads the numbers; a second stream at the same address is refused in one sentence."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ["--levels", "10s,1m", "--bad-rows", "skip", "--metrics", f"127.0.0.1:{port}"]
    with subprocess.Popen([*STREAM, *options], **PIPES) as process:
        one_by_one(process, line(1) + line(25))
        process.stdout.readline()
        one_by_one(process, line(2) + "nonsense\n", line(27))
        deadline = time.monotonic() + 30
        while scraped(port)[("rows_total",)] < 4 or time.monotonic() < deadline - 28:
            time.sleep(0.1)
        numbers = scraped(port)
        assert numbers[("rows_total",)] == 4
        assert numbers[("dropped_rows_total", ("reason", "late"))] == 0  # its minute is still open
        assert numbers[("dropped_rows_total", ("reason", "bad"))] == 1
        assert numbers[("partly_late_rows_total",)] == 1
        assert numbers[("open_windows", ("level", "10s"))] == 1
        assert numbers[("open_windows", ("level", "1m"))] == 1
        assert numbers[("watermark_seconds",)] == 1714557627
        assert abs(time.time() - numbers[("watermark_seconds",)] - numbers[("watermark_age_seconds",)]) < 5
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10) as answer:
            assert json.load(answer) == {"status": "ok"}
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10)
        _, error_text = run_command(forked, "", *options, status=2)
        assert f"--metrics cannot listen at 127.0.0.1:{port}" in error_text
        process.communicate(timeout=60)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--input a=in --input a=other", "--input a is used twice"),
        ("--input a=in --input b=in/../in", "so the rows of in/../in would be counted twice"),
        ("--input in", "cannot read --input in; write NAME=PATH"),
        ("--input a=nowhere", "nowhere does not exist"),
        ("in --input a=-", "both name inputs"),
        ("in --idle 1m", "--idle needs several inputs, and there is only one"),
        ("--input a=in --input b=- --idle soon", "--idle must be a duration such as 1m"),
        ("--metrics 9465", "cannot read the address '9465' of --metrics"),
        ("--spark --drain", "--drain cannot be used with --spark"),
        ("--spark --metrics :0", "--metrics cannot be used with --spark"),
        ("--spark --input a=in", "--input cannot be used with --spark"),
    ],
)
def test_options_that_do_not_fit(options, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    with pytest.raises(SystemExit) as exited:
        cli.main(["stream", "--time", "ts", "--measure", "n=count()", "--levels", "1m", *options.split()])
    assert exited.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


def stream(arguments: list[str], error_file: str) -> None:
    """Run the command in a process that has imported it already."""
    descriptor = os.open(error_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 2)
    cli.main(arguments)


@pytest.mark.long
def test_twenty_kills_drains_restarts_and_double_starts(tmp_path):
    """No row is lost or counted twice, and dropped rows are in the report of the last process."""
    draws, expected, states = random.Random(5), Counter(), tmp_path / "state"
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["tiltframe.cli.stream", "tiltframe.cli.stream_run"])
    arguments = ["stream", "--time", "ts", "--measure", "n=count()", "--levels", "10s,1m", "--late", "drop"]
    arguments += ["--store", str(tmp_path / "store"), "--state", str(states), "--emit", "after_close"]
    for name in "ab":
        (tmp_path / name).mkdir()
        arguments += ["--input", f"{name}={tmp_path / name}"]

    def arrive(number: int) -> None:
        name = "ab"[number % 3 == 0]
        seconds = [number * 20 + draws.randrange(-30, 20) for _ in range(50)]
        expected["rows"] += len(seconds)
        hidden = tmp_path / name / f".{number}.jsonl"
        hidden.write_text("".join(line(300 + second) for second in seconds))
        hidden.rename(tmp_path / name / f"{number}.jsonl")

    def start(*more: str) -> multiprocessing.Process:
        process = processes.Process(target=stream, args=([*arguments, *more], str(tmp_path / "errors")))
        process.start()
        return process

    def ended(process: multiprocessing.Process, *statuses: int) -> None:
        process.join(60)
        assert process.exitcode in statuses, (tmp_path / "errors").read_text()

    seen: Counter[str] = Counter()
    for number in range(STEPS):
        arrive(number)
        step = ("kill", "drain", "stop", "double")[number % 4]
        if step == "drain":
            ended(start("--once", "--drain"), 0)
        elif step == "double":
            both = [start("--once"), start("--once")]
            for process in both:
                ended(process, 0, 2)
            seen["refused"] += sum(process.exitcode == 2 for process in both)
        else:
            process = start("--once")
            process.join(draws.random() * 0.6)
            if process.is_alive():
                os.kill(process.pid, signal.SIGKILL if step == "kill" else signal.SIGTERM)
                seen[step] += 1
            ended(process, 0, -signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGTERM)
    ended(start("--once", "--drain"), 0)
    stored = sum(FrameStore(tmp_path / "store").query("10s").column("n").to_pylist())
    late = OpenWindows.from_ipc(states.read_bytes()).progress.late_rows
    assert stored + late == expected["rows"], (stored, late, seen)
    assert f"{late:,} late rows were dropped since the saved state began" in (tmp_path / "errors").read_text()
    assert late > 0
    assert seen["refused"] >= 3
    assert seen["kill"] + seen["stop"] >= 5
