"""Stored code of compiled loops is compiled again after a change, and workers of Spark are tuned unless this is
disabled.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numba
import pytest
from numba.core import caching

from aggr.compiling.code_folders import private_folder
from aggr.compiling.jit import _dispatcher

ROOT = Path(__file__).parents[2]
AT_ONCE = {**os.environ, "TILTFRAME_COMPILE_FROM": "0"}  # compile at the first call, however small its arguments are
INNER = "from aggr.compiling.jit import compiled\nSTEP = {step}\n@compiled\ndef inner(x):\n    return x {sign} 1\n"
OUTER = """
from aggr.compiling.jit import compiled
from loops_inner import STEP, inner
@compiled
def constant(x):
    return x * STEP
@compiled
def calling(x):
    return inner(x) * 10
@compiled
def twice_removed(x):
    return calling(x) + 1
"""
ASK = """
import loops_outer, numpy as np
from aggr.compiling.jit import _machine_code
print(loops_outer.constant(7), loops_outer.calling(7), loops_outer.twice_removed(7))
made = [_machine_code(getattr(loops_outer, n).__compiled_loop__) for n in ("constant", "calling", "twice_removed")]
print(sum(sum(f.stats.cache_hits.values()) for f in made))
"""


def ask(folder: Path, **more: str) -> list[int]:
    environment = AT_ONCE | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "NUMBA_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "-B", "-c", ASK],
        env=environment | more,
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
    )
    return [int(word) for word in done.stdout.split()]


@pytest.mark.slow
@pytest.mark.long
def test_a_constant_or_a_called_loop_that_changes_in_another_file_is_seen(tmp_path):
    """The outer file stays as it is, its time of change and all; numba alone would keep on using its old code."""
    (tmp_path / "loops_outer.py").write_text(OUTER)
    for step, sign, expected in (
        (2, "+", [14, 80, 81]), (2, "+", [14, 80, 81]), (3, "+", [21, 80, 81]), (3, "-", [21, 60, 61]),
    ):  # fmt: skip
        (tmp_path / "loops_inner.py").write_text(INNER.format(step=step, sign=sign))
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
        *answers, hits = ask(tmp_path)
        assert answers == expected
    assert hits == 1  # of the three, only the constant's loop was there as it is
    assert ask(tmp_path) == [21, 60, 61, 3]


@pytest.mark.slow
@pytest.mark.long
def test_code_that_checks_indices_is_kept_apart(tmp_path):
    (tmp_path / "loops_outer.py").write_text(OUTER)
    (tmp_path / "loops_inner.py").write_text(INNER.format(step=1, sign="+"))
    assert [ask(tmp_path)[-1], ask(tmp_path, NUMBA_BOUNDSCHECK="1")[-1], ask(tmp_path)[-1]] == [0, 0, 3]


@pytest.mark.slow
@pytest.mark.long
def test_code_that_another_version_is_replacing_is_compiled_again(tmp_path):
    """Numba replaces the index first, so that it may name code whose bitcode this version of LLVM cannot read."""
    (tmp_path / "loops_outer.py").write_text(OUTER)
    (tmp_path / "loops_inner.py").write_text(INNER.format(step=2, sign="+"))
    assert ask(tmp_path) == [14, 80, 81, 0]
    files = sorted((tmp_path / "cache").rglob("loops_*.nbc"))
    for file in files:
        assert b"BC\xc0\xde" in file.read_bytes()
        file.write_bytes(file.read_bytes().replace(b"BC\xc0\xde", b"XX\xc0\xde"))
    assert ask(tmp_path) == [14, 80, 81, 0]
    assert ask(tmp_path) == [14, 80, 81, 3]


@pytest.fixture
def without_folders(tmp_path):
    """Return variables with which neither the source's folder nor the user's can store code, not even for root.

    Files take the places of both folders.
    """
    (tmp_path / "loops_outer.py").write_text(OUTER)
    (tmp_path / "loops_inner.py").write_text(INNER.format(step=2, sign="+"))
    (tmp_path / "__pycache__").touch()
    (tmp_path / "home").touch()
    (tmp_path / "temporary").mkdir()
    home = str(tmp_path / "home")
    return {"NUMBA_CACHE_DIR": "", "HOME": home, "XDG_CACHE_HOME": home, "TMPDIR": str(tmp_path / "temporary")}


@pytest.mark.slow
@pytest.mark.long
def test_processes_share_code_in_a_private_folder_if_no_other_can_be_written(tmp_path, without_folders):
    assert [ask(tmp_path, **without_folders) for _ in range(2)] == [[14, 80, 81, 0], [14, 80, 81, 3]]
    (folder,) = (tmp_path / "temporary").iterdir()
    assert folder.name == f"tiltframe-code-{os.getuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
@pytest.mark.long
def test_loops_run_if_no_folder_can_be_written(tmp_path, without_folders):
    (tmp_path / "temporary" / f"tiltframe-code-{os.getuid()}").touch()
    before = sorted(tmp_path.rglob("*"))
    for _ in range(2):
        assert ask(tmp_path, **without_folders) == [14, 80, 81, 0]
    assert sorted(tmp_path.rglob("*")) == before


def test_threads_restore_the_configured_folder(monkeypatch):
    changed, entered, finished, calls = threading.Event(), threading.Event(), threading.Event(), []

    def njit(cache=False, **options):
        def decorate(loop):
            if cache and loop is first and not numba.config.CACHE_DIR:
                raise RuntimeError("no folder can be written")
            if cache and loop is second:
                calls.append(loop)
                if len(calls) == 2:
                    entered.set()
                    finished.wait(10)
                raise RuntimeError("the loop is not defined in a file")
            if cache:
                changed.set()
                entered.wait(0.5)
            return loop

        return decorate

    def first():
        """Stand for a loop whose code is stored in the private folder."""

    def second():
        """Stand for a loop without a file."""

    def create_first():
        _dispatcher(first, {})
        finished.set()

    monkeypatch.setattr(numba, "njit", njit)
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    threads = [threading.Thread(target=create_first), threading.Thread(target=_dispatcher, args=(second, {}))]
    threads[0].start()
    assert changed.wait(10)
    threads[1].start()
    for thread in threads:
        thread.join(20)
    assert numba.config.CACHE_DIR == ""


def test_a_folder_that_others_can_write_is_not_used(tmp_path, monkeypatch):
    """Its code is executed, so that another user could run code as this one."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    find = private_folder.__wrapped__
    folder = Path(find())
    assert folder.parent == tmp_path
    folder.chmod(0o770)
    assert find() is None
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    assert find() is None


READ_ONLY = """
import os
from numba.core import caching
locator = getattr(caching, "InTreeCacheLocator", None) or caching._InTreeCacheLocator
def refuse(self):
    raise PermissionError("read-only")
locator.ensure_cache_path = refuse
may = os.access
os.access = lambda path, mode: "__pycache__" not in str(path) and may(path, mode)
"""


@pytest.mark.slow
@pytest.mark.long
def test_code_of_a_read_only_folder_is_used(tmp_path, without_folders):
    """As that of an image, which root has compiled, and which Spark runs as another user."""
    (tmp_path / "__pycache__").unlink()
    assert ask(tmp_path, NUMBA_CACHE_DIR="") == [14, 80, 81, 0]
    compiled_in_advance = sorted((tmp_path / "__pycache__").glob("loops_*.nb*"))
    (tmp_path / "sitecustomize.py").write_text(READ_ONLY)
    assert ask(tmp_path, **without_folders) == [14, 80, 81, 3]
    copied = sorted((tmp_path / "temporary").rglob("loops_*.nb*"))
    assert [file.name for file in copied] == [file.name for file in compiled_in_advance]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="limits of file sizes are of POSIX")
def test_loops_run_if_their_code_cannot_be_stored(tmp_path):
    """With a limit of 0 bytes per file, files can be created, and writing them fails, as on a full disk."""
    (tmp_path / "loops_outer.py").write_text(
        "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n" + OUTER
    )
    (tmp_path / "loops_inner.py").write_text(INNER.format(step=2, sign="+"))
    assert ask(tmp_path) == [14, 80, 81, 0]


@pytest.mark.slow
@pytest.mark.long
def test_workers_are_tuned_unless_that_is_turned_off():
    script = """
import gc, os, pyarrow as pa
pa.set_cpu_count(3)
from spark_udaf.plan.worker import tune_worker
tune_worker()
print(pa.cpu_count(), gc.get_freeze_count() > 0)
"""
    output = [
        subprocess.run(
            [sys.executable, "-c", script],
            env=AT_ONCE | {"TILTFRAME_TUNE_WORKERS": tuned}, capture_output=True, text=True, check=True, cwd=ROOT,
        ).stdout.split()
        for tuned in ("1", "0")
    ]  # fmt: skip
    assert output == [["1", "True"], ["3", "False"]]


@pytest.mark.slow
def test_what_workers_have_loaded_is_frozen_before_the_tasks_1_2_4_and_8():
    """Loops are loaded when they are first called, so that once would leave them to be collected after every task."""
    script = """
import gc
from spark_udaf.plan.worker import tune_worker
loaded = []
for task in range(1, 10):
    before = gc.get_freeze_count()
    loaded.append([[] for _ in range(1000)])
    tune_worker()
    if gc.get_freeze_count() >= before + 1000:
        print(task)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert ran.stdout.split() == ["1", "2", "4", "8"]


COMPILING = """
import sys, time
from numba.core import event
made, waiting = [], "--wait" in sys.argv
class Seen(event.Listener):
    def on_start(self, given):
        if waiting:  # dies with the lock in its hands
            print("compiling", flush=True)
            time.sleep(600)
        made.append(given.data["dispatcher"])
    def on_end(self, given):
        pass
event.register("numba:compile", Seen())
import loops_outer
print(loops_outer.twice_removed(7), sum("loops" in loop.__module__ for loop in made))
"""


@pytest.mark.slow
@pytest.mark.long
def test_of_several_processes_one_compiles_and_a_dead_one_stops_nobody(tmp_path):
    (tmp_path / "loops_outer.py").write_text(OUTER)
    (tmp_path / "loops_inner.py").write_text(INNER.format(step=1, sign="+"))
    environment = AT_ONCE | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "NUMBA_CACHE_DIR": str(tmp_path / "all")}

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", COMPILING, *arguments]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=tmp_path)

    dead = start("--wait")
    assert dead.stdout is not None
    assert dead.stdout.readline() == "compiling\n"
    together = [start() for _ in range(3)]
    with pytest.raises(subprocess.TimeoutExpired):
        together[0].wait(3)
    command = [sys.executable, "-c", "import loops_inner; print(loops_inner.inner(7))"]
    other_file = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert other_file.stdout == "8\n", "loops of another source file are compiled meanwhile"
    dead.kill()
    dead.communicate()
    outputs = [other.communicate(timeout=120)[0].split() for other in together]
    assert [answer for answer, _ in outputs] == ["81"] * 3
    assert sum(int(count) for _, count in outputs) == 3  # each of the three loops once, in whichever process
    assert start().communicate(timeout=120)[0].split() == ["81", "0"]


STORING = """
import sys
from pathlib import Path
from aggr.compiling.one_process import _storage_lock
with _storage_lock(Path(sys.argv[1])):
    print("storing", flush=True)
    sys.stdin.read()
"""


def test_processes_store_code_one_after_the_other(tmp_path):
    """Otherwise, two processes that read the same index could store two loops under the same name."""

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", STORING, str(tmp_path)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)

    first = start()
    assert first.stdout.readline() == "storing\n"
    second = start()
    time.sleep(2)
    os.set_blocking(second.stdout.fileno(), False)
    with pytest.raises(BlockingIOError):
        os.read(second.stdout.fileno(), 1)
    os.set_blocking(second.stdout.fileno(), True)
    first.communicate()
    assert second.stdout.readline() == "storing\n"
    second.communicate()


FORKED = """
import fcntl, os, sys
from pathlib import Path
import loops_outer
from aggr.compiling.one_process import LOCK_SUFFIX
started, ended = os.pipe(), os.pipe()
if not os.fork():
    print(loops_outer.constant(7), flush=True)
    os.write(started[1], b"x")
    os.read(ended[0], 1)  # a worker of Spark waits for its next task here
    os._exit(0)
os.read(started[0], 1)
locks = list(Path(os.environ["NUMBA_CACHE_DIR"]).rglob("*" + LOCK_SUFFIX))
for lock in locks:
    with lock.open("r+") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print(len(locks))
os.write(ended[1], b"x")
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
def test_a_forked_process_that_has_compiled_stops_nobody(tmp_path):
    (tmp_path / "loops_outer.py").write_text(OUTER)
    (tmp_path / "loops_inner.py").write_text(INNER.format(step=1, sign="+"))
    environment = AT_ONCE | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "NUMBA_CACHE_DIR": str(tmp_path / "all")}
    command = [sys.executable, "-c", FORKED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.stdout.split() == ["7", "1"], done.stderr


@pytest.mark.slow
@pytest.mark.long
def test_code_is_kept_for_each_kind_of_processor_and_touched_files_keep_it(tmp_path):
    """What an image holds serves where the processor is said to be the same; a copied file has another time."""
    (tmp_path / "loops_outer.py").write_text(OUTER)
    (tmp_path / "loops_inner.py").write_text(INNER.format(step=1, sign="+"))
    generic = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    assert [ask(tmp_path)[-1], ask(tmp_path, **generic)[-1]] == [0, 0]
    if hasattr(caching, "_hash_source_file"):  # older numba tells files by their times
        for file in tmp_path.glob("loops_*.py"):
            os.utime(file, (1, 1))
    assert [ask(tmp_path)[-1], ask(tmp_path, **generic)[-1]] == [3, 3]


@pytest.mark.slow
@pytest.mark.long
def test_what_is_warm_is_not_compiled_again(tmp_path):
    environment = AT_ONCE | {"PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(tmp_path)}

    def python(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=ROOT).stdout

    folders = python("-m", "tiltframe.cli", "warm", "count", "min").split()
    assert folders
    assert all(Path(folder).parent == tmp_path for folder in folders)
    script = """
import numpy as np, pyarrow as pa, aggr
from numba.core import event
with event.install_recorder("numba:compile") as seen:
    for function in (aggr.Min(), aggr.Count()):
        states = function.reduce(pa.array([2.0, -1.0, 5.0]), aggr.Groups.of([0, 1, 0], 2))
        print(function.finish(function.merge(states, aggr.Groups.single(2)))[0])
print(len(seen.buffer))
"""
    assert python("-c", script).split() == ["-1.0", "3", "0"]
