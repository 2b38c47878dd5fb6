"""All loops are compiled in advance, and loaded from disk without the parts of numba that only the compiler needs."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# the modules of numba that import the implementations of NumPy's functions and, if it is installed, SciPy
REGISTRIES = "numba.np.arraymath", "numba.np.linalg"
PACKAGES = "aggr", "spark_udaf", "tiltframe", "windows"
ARRAYS = {"np.empty", "np.empty_like", "np.full", "np.zeros", ".copy", ".view"}
LOADED_CALLS = ARRAYS | {"math.log", "np.float64", "np.int64", "np.rint", "np.uint64", "np.uint8"}
LOADED = f"""
import sys
from aggr.warming import warm
warm()
print(*({{*{REGISTRIES}}} & {{*sys.modules}}))
"""
OTHER_PACKAGE = """
import sys
import numpy as np
from aggr.compiling.jit import compiled, compile_at_first_call
@compiled
def total(x):
    return x.sum() + hash("abcdef"[len(x):])
if __name__ == "__main__":
    import loops_of_others
    with compile_at_first_call():
        value = loops_of_others.total(np.ones(3))
    print(value == 3.0 + hash("def"), "numba.np.linalg" in sys.modules)
"""


def run(code: list[str], **environment: str) -> str:
    """Run Python, and return what it has printed."""
    command = [sys.executable, *code]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout


@pytest.mark.slow
@pytest.mark.long
def test_stored_loops_are_loaded_without_registries():
    run(["-c", LOADED])  # compiles the loops whose code is not on disk
    assert run(["-c", LOADED]).split() == []


def test_no_loop_calls_a_function_that_needs_registries():
    """Also loops that `warm` does not reach: they call only functions whose stored code was loaded without them."""
    calls = {call for root in PACKAGES for file in (ROOT / root).rglob("*.py") for call in calls_in_loops(file)}
    assert "np.empty" in calls  # loops are found
    assert calls <= LOADED_CALLS


def calls_in_loops(file: Path) -> Iterator[str]:
    """Yield the functions of NumPy and the methods that the loops of a source file call."""
    for loop in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(loop, ast.FunctionDef) and any(ast.unparse(d) == "compiled" for d in loop.decorator_list):
            for node in ast.walk(loop):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    owner = ast.unparse(node.func.value)
                    yield f"{owner if owner in ('np', 'math') else ''}.{node.func.attr}"


@pytest.mark.slow
@pytest.mark.long
def test_loops_of_other_packages_are_loaded_with_registries(tmp_path):
    module = tmp_path / "loops_of_others.py"
    module.write_text(OTHER_PACKAGE)
    environment = {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    for _ in range(2):  # compiled, then loaded
        assert run([str(module)], PYTHONHASHSEED="1", **environment).split() == ["True", "True"]


@pytest.mark.slow
@pytest.mark.long
def test_the_command_compiles_the_loops_of_every_function():
    assert run(["-c", "from tiltframe_command import main; main()", "warm"])  # the folders with the code


def test_a_function_without_loops_is_not_taken_for_a_folder_that_cannot_be_written():
    """Without its parameter ``steps``, funnel reduces rows without a loop."""
    printed = run(["-c", "from tiltframe_command import main; main()", "warm", "funnel"])
    assert printed.startswith("nowhere: no loop was compiled, or no folder is writable")
