"""Compiled loops return the bits of the Python code that they are compiled from, for all arrays and in all
processes.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from aggr.compiling import notice
from aggr.compiling.interrupts import defer_interrupts
from aggr.compiling.jit import compiled
from aggr.compiling.notice import announce_compiling

ROOT = Path(__file__).parents[2]


@compiled
def twice(x):
    return 2 * x


@compiled
def doubled(values):
    out = np.empty(len(values), np.int64)
    for i in range(len(values)):
        out[i] = twice(values[i])
    return out


@compiled
def busy(times):
    total = 0
    for i in range(times):
        total ^= i * total + 1
    return np.full(3, total)


@pytest.mark.slow
def test_ctrl_c_while_a_loop_runs():
    busy(1)
    main = threading.main_thread().ident
    alarm = threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT))
    alarm.start()

    def for_long():
        for _ in range(100):
            busy(300_000_000)

    with pytest.raises(KeyboardInterrupt):
        for_long()


def test_a_handler_that_is_set_while_ctrl_c_waits_stays():
    """As Spark's, which cancels its jobs."""
    before = signal.getsignal(signal.SIGINT)
    try:
        with defer_interrupts():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        signal.signal(signal.SIGINT, before)
        with defer_interrupts():
            pass
        assert signal.getsignal(signal.SIGINT) is before
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@pytest.mark.long
def test_ctrl_c_while_a_loop_is_compiled(tmp_path):
    """LLVM calls back into Python, where an interrupt would be lost."""
    text = "import numpy as np\nfrom aggr.compiling.jit import compiled\n"
    for i in range(11):
        text += f"@compiled\ndef sort_{i}(x):\n    return np.sort(x) + np.argsort(x) * {i}\n"
    (tmp_path / "sorts.py").write_text(text)
    script = """
import os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background may ignore it
import numpy as np, sorts
rows = np.arange(100_000.0)
sorts.sort_0(rows)  # numba itself is loaded
for i in range(1, 11):
    begun = []
    def interrupt():
        time.sleep(i * 0.07)
        begun and os.kill(os.getpid(), signal.SIGINT)
    thread = threading.Thread(target=interrupt)
    try:
        begun.append(i)
        thread.start()
        getattr(sorts, f"sort_{i}")(rows)
        begun.clear()
        thread.join()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    else:
        print("in time" if not begun else "lost", flush=True)
"""
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)]), "TILTFRAME_COMPILE_FROM": "0"}
    env = {**os.environ, **paths}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=300)
    assert done.stderr == ""
    assert done.stdout.count("interrupted") > 2


def test_one_calls_another():
    assert doubled(np.array([1, -2])).tolist() == [2, -4]


def test_arrays_of_all_kinds_share_one_compilation():
    from aggr.compiling.jit import _machine_code

    numbers = np.arange(6)
    for array in (numbers, pa.array(numbers).to_numpy(), numbers[::2], numbers[1:3], np.zeros(0, np.int64)):
        assert doubled(array).tolist() == [2 * value for value in array.tolist()]
    assert len(_machine_code(doubled.__wrapped__).signatures) == 1
    assert numbers.flags.writeable


def test_where_nothing_can_be_written_each_process_compiles():
    namespace = {}
    exec("def thrice(x):\n    return 3 * x\n", namespace)  # no file to keep its code next to
    assert compiled(namespace["thrice"])(14) == 42


@pytest.mark.slow
@pytest.mark.long
def test_without_the_compiler_the_loops_give_the_same():
    """The loops are plain Python: run as such, every kernel gives the same bits."""
    script = """
import hashlib, numpy as np, pyarrow as pa, aggr
from aggr.groups.groups import Groups
rng = np.random.default_rng(5)
x = np.concatenate([rng.lognormal(3, 1, 400), -rng.lognormal(0, 2, 100), [0.0, -0.0, 1e300, 5e-324, 2**60, 1.0]])
ids, halves = Groups.of(rng.integers(0, 7, len(x)), 7), Groups.of([*range(7)] * 2, 7)
seen = hashlib.sha256()
for function, values in [
    *((f, x) for f in (aggr.Min(), aggr.Max(), aggr.Sum(), aggr.Var(), aggr.Dds(), aggr.Dds(max_bins=20))),
    *((f, np.abs(x[:450]).astype(np.int64)) for f in (aggr.Hdr(), aggr.Hdr(digits=5), aggr.Var(), aggr.Max())),
    *((f, x) for f in (aggr.ApproxCountDistinct(16), aggr.ApproxCountDistinct(), aggr.Hll(8), aggr.Hll())),
]:
    some = Groups(ids.ids[: len(values)], 7)
    state = function.reduce(pa.array(values), some)
    merged = function.merge(pa.concat_arrays([state, state]), halves)
    seen.update(repr(merged.to_pylist()).encode() + repr(function.finish(merged).to_pylist()).encode())
print(seen.hexdigest())
"""
    answers = [
        subprocess.run(
            [sys.executable, "-W", "error", "-c", script],
            env={**os.environ, "NUMBA_DISABLE_JIT": off, "TILTFRAME_COMPILE_FROM": few},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for off, few in (("0", "0"), ("1", "0"), ("0", "8192"))
    ]
    assert len(answers[0].strip()) == 64
    assert answers == answers[:1] * 3


@pytest.mark.slow
def test_few_rows_wait_for_no_compiler():
    script = """
import math, sys, numpy as np, pyarrow as pa, aggr
from aggr.compiling.jit import _interpreter, compile_at_first_call
x = np.random.default_rng(1).normal(0, 1e9, 1000)
states = aggr.Sum().reduce(pa.array(x), aggr.Groups.single(1000))
print(aggr.Sum().finish(states)[0].as_py() == math.fsum(x), "numba" in sys.modules)
from aggr.exact.superaccumulator import _balance
loop, other = _balance.__compiled_loop__, eval("lambda x: " + "+".join("x" * 300))  # a long loop without a file
should_interpret = _interpreter.should_interpret
print(should_interpret(loop, [x]), should_interpret(loop, [np.zeros(10**6)]), should_interpret(loop, [7]))
_interpreter.loop_seconds |= {loop: 0.1, other: 0.1}
_interpreter.loop_elements |= {loop: 10**5, other: 10**5}
print(should_interpret(loop, [x]), "numba" in sys.modules)
with compile_at_first_call():
    print(should_interpret(loop, [x]))
    aggr.Sum().reduce(pa.array(x), aggr.Groups.single(1000))
print(should_interpret(loop, [x]), should_interpret(other, [x]))
print(should_interpret(other, [np.zeros(30_000)]), should_interpret(other, [np.zeros(900_000)]))
_interpreter.total_seconds = 2.0
print(should_interpret(other, [x]))
"""
    environment = {name: value for name, value in os.environ.items() if name != "TILTFRAME_COMPILE_FROM"}
    output = subprocess.run(
        [sys.executable, "-c", script], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    sums, first, before_numba, at_once, is_cached, predicted, spent = output.splitlines()
    assert sums == "True False"
    assert first == "True False False"
    assert before_numba == "True False", "numba is not loaded for it"
    assert at_once == "False"
    assert is_cached == "False True", "code that is on disk is loaded, and none is made"
    assert predicted == "True False", "0.1 s for 100,000 elements are known"
    assert spent == "False"


def test_a_program_is_told_once_that_it_waits_for_the_compiler(monkeypatch):
    monkeypatch.setattr(notice, "_NOTICE_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(notice, "_notice", notice._Notice())
    announced: list[str] = []
    announce_compiling(lambda: announced.append("compiling"))
    for step in (2, 3):
        namespace = {}
        exec(f"def times(x):\n    return {step} * x\n", namespace)
        assert compiled(namespace["times"])(7) == 7 * step
    assert announced == ["compiling"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("is_enabled", [True, False])
def test_the_garbage_collector_pauses_only_while_a_loop_is_compiled(is_enabled):
    from numba.core import event

    class Listener(event.Listener):
        def __init__(self):
            self.seen: list[tuple[bool, bool]] = []

        def on_start(self, event):
            process = os.fork()
            if not process:
                os._exit(gc.isenabled())
            self.seen.append((gc.isenabled(), os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 1))

        def on_end(self, event):
            pass

    namespace = {}
    exec("def thrice(x):\n    return 3 * x\n", namespace)
    listener = Listener()
    was_enabled = gc.isenabled()
    try:
        (gc.enable if is_enabled else gc.disable)()
        with event.install_listener("numba:compile", listener):
            assert compiled(namespace["thrice"])(7) == 21
        assert gc.isenabled() == is_enabled
        assert listener.seen == [(False, is_enabled)], "the second value is that of a forked process"
    finally:
        (gc.enable if was_enabled else gc.disable)()


def test_what_is_kept_on_disk_knows_what_it_calls():
    from aggr.compiling.jit import _fingerprint

    def outer(x):
        return inner(x) + 1  # noqa: F821

    namespaces = [dict(outer.__globals__, inner=compiled(loop)) for loop in (lambda x: x, lambda x: 2 * x)]
    loops = [type(outer)(outer.__code__, namespace) for namespace in namespaces]
    assert _fingerprint(loops[0]) != _fingerprint(loops[1])
    assert _fingerprint(loops[0]) == _fingerprint(type(outer)(outer.__code__, dict(namespaces[0])))
    assert [compiled(loop)(20) for loop in loops] == [21, 41]
