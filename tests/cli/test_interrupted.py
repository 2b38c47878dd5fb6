"""Ctrl-C at any time during a command: exit status 130, one message, and a store with all of the changes or none."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time

import pyarrow.compute as pc
import pytest

import tiltframe.cli as cli
from tiltframe.cli.interrupts import COMMIT_UNSURE, NOTHING_WRITTEN, ROWS_WRITTEN
from tiltframe.store import FrameStore

FRAME = ["--time", "ts", "--key", "k", "--measure", "n=count()", "--levels", "10s,1m,1h", "--store", "st"]

LAST_LINES = {NOTHING_WRITTEN: [1], ROWS_WRITTEN: [80_001], COMMIT_UNSURE: [1, 80_001]}


def start(cwd, *args):
    script = f"import tiltframe.cli as cli; print('ready', flush=True); cli.main({list(args)!r})"
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", script], stdout=pipe, stderr=pipe, text=True, cwd=cwd)
    assert process.stdout.readline() == "ready\n"
    return process


def run(cwd, *args):
    """Run a command to its end, in this process."""
    with contextlib.chdir(cwd):
        cli.main(list(args))


def counted(cwd):
    """Sum the rows of each level."""
    store = FrameStore(str(cwd / "st"))
    totals = {pc.sum(store.query(per=per, keys=()).column("n")).as_py() for per in ("10s", "1m", "1h")}
    assert len(totals) == 1
    return totals.pop()


@pytest.mark.slow
@pytest.mark.parametrize("after", [0.05, 0.4, 0.7, 1.0])
@pytest.mark.long
def test_a_rollup_is_there_or_not(after, tmp_path):
    (tmp_path / "a.csv").write_text("ts,k\n2024-05-01T10:00:00Z,a\n")
    run(tmp_path, "rollup", "a.csv", *FRAME)
    rows = "".join(
        f"2024-05-01T{i // 3600:02}:{i // 60 % 60:02}:{i % 60:02}Z,{'abc'[i % 3]}\n" for i in range(80_000)
    )  # as many seconds
    (tmp_path / "b.csv").write_text("ts,k\n" + rows)
    process = start(tmp_path, "rollup", "b.csv", *FRAME)
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert "Traceback" not in err
    assert err.strip().count("\n") == 0
    if process.returncode:
        assert process.returncode == 130
        assert counted(tmp_path) in LAST_LINES[err.strip().removeprefix("tiltframe: ")]
    run(tmp_path, "rollup", "b.csv", *FRAME)
    assert counted(tmp_path) == 80_001


@pytest.mark.long
@pytest.mark.slow
def test_an_interrupt_at_exit_comes_too_late():
    script = """
import atexit, os, signal
atexit.register(os.kill, os.getpid(), signal.SIGINT)  # what is registered first is called last
import tiltframe.cli as cli
cli.main(["functions"])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_an_interrupt_that_python_cannot_raise_is_not_swallowed():
    """Python prints what a weak reference's callback raises, and goes on."""
    script = """
import os, signal, sys, time, weakref
import tiltframe.cli as cli
class Held: pass
held = Held()
watched = weakref.ref(held, lambda _: os.kill(os.getpid(), signal.SIGINT))
def slow(**arguments):
    global held
    held = None
    time.sleep(20)
    print("not interrupted")
cli.app.functions.callback = slow
cli.main(["functions"])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", f"tiltframe: {NOTHING_WRITTEN}")


@pytest.mark.slow
@pytest.mark.parametrize("after", [0.05, 0.4])
def test_compact_does_not_say_that_nothing_was_written(after, tmp_path):
    for n in range(3):
        (tmp_path / f"{n}.csv").write_text("ts,k\n" + f"2024-05-01T10:00:0{n}Z,a\n")
        run(tmp_path, "rollup", f"{n}.csv", *FRAME)
    process = start(tmp_path, "compact", "st")
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert "Traceback" not in err
    if process.returncode:
        assert process.returncode == 130
        assert "interrupted; " in err
    assert counted(tmp_path) == 3
    run(tmp_path, "compact", "st")
    assert counted(tmp_path) == 3


@pytest.mark.parametrize(("moment", "sentence", "rows"), [("before", NOTHING_WRITTEN, 1), ("after", ROWS_WRITTEN, 2)])
def test_what_was_written_is_said(moment, sentence, rows, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("ts,k\n2024-05-01T10:00:00Z," + name + "\n")
    cli.main(["rollup", "a.csv", *FRAME])
    capsys.readouterr()
    write = FrameStore.append_spilled

    def interrupted(*args, **options):
        if moment == "after":
            write(*args, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(FrameStore, "append_spilled", interrupted)
    with pytest.raises(SystemExit) as ended:
        cli.main(["rollup", "b.csv", *FRAME])
    assert ended.value.code == 130
    assert capsys.readouterr().err.strip() == f"tiltframe: {sentence}"
    assert counted(tmp_path) == rows


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiltframe", "pyarrow", "aggr.registry", "click", "tiltframe.cli.app"])
def test_the_first_import_ends_in_a_sentence_as_well(name):
    script = f"""
import os, signal, sys
class Finder:
    def find_spec(name, *_):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder)
from tiltframe_command import main
sys.argv = ["tiltframe", "functions"]
main()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", f"tiltframe: {NOTHING_WRITTEN}")
