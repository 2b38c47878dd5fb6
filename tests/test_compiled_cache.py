"""What is kept on disk of compiled loops is never stale, and workers are tuned only where that is wanted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
INNER = "from aggr.kernels.jit import compiled\nSTEP = {step}\n@compiled\ndef inner(x):\n    return x {sign} 1\n"
OUTER = """
from aggr.kernels.jit import compiled
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
from aggr.kernels.jit import _machine_code
print(loops_outer.constant(7), loops_outer.calling(7), loops_outer.twice_removed(7))
made = [_machine_code(getattr(loops_outer, n).__compiled_loop__) for n in ("constant", "calling", "twice_removed")]
print(sum(sum(f.stats.cache_hits.values()) for f in made))
"""


def ask(folder: Path, **more: str) -> list[int]:
    environment = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "NUMBA_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", ASK], env=environment | more, capture_output=True, text=True, check=True, cwd=folder
    )
    return [int(word) for word in done.stdout.split()]


def test_a_constant_or_a_called_loop_that_changes_in_another_file_is_seen(tmp_path):
    """The outer file stays as it is, its time of change and all; numba alone would keep on using its old code."""
    (tmp_path / "loops_outer.py").write_text(OUTER)
    for step, sign, wanted in (
        (2, "+", [14, 80, 81]), (2, "+", [14, 80, 81]), (3, "+", [21, 80, 81]), (3, "-", [21, 60, 61]),
    ):  # fmt: skip
        (tmp_path / "loops_inner.py").write_text(INNER.format(step=step, sign=sign))
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
        *answers, hits = ask(tmp_path)
        assert answers == wanted
    assert hits == 1  # of the three, only the constant's loop was there as it is
    assert ask(tmp_path) == [21, 60, 61, 3]


def test_code_that_checks_indices_is_kept_apart(tmp_path):
    (tmp_path / "loops_outer.py").write_text(OUTER)
    (tmp_path / "loops_inner.py").write_text(INNER.format(step=1, sign="+"))
    assert [ask(tmp_path)[-1], ask(tmp_path, NUMBA_BOUNDSCHECK="1")[-1], ask(tmp_path)[-1]] == [0, 0, 3]


def test_workers_are_tuned_unless_that_is_turned_off():
    script = """
import gc, os, pyarrow as pa
pa.set_cpu_count(3)
from spark_udaf.jobs.tune_worker import tune_worker
tune_worker()
print(pa.cpu_count(), gc.get_freeze_count() > 0)
"""
    said = [
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"TILTFRAME_TUNE_WORKERS": tuned}, capture_output=True, text=True, check=True, cwd=ROOT,
        ).stdout.split()
        for tuned in ("1", "0")
    ]  # fmt: skip
    assert said == [["1", "True"], ["3", "False"]]
