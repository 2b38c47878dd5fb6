"""All loops are compiled in advance, and loaded from disk without the parts of numba that only the compiler needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# the modules of numba that import the implementations of NumPy's functions and, if it is installed, SciPy
REGISTRIES = "numba.np.arraymath", "numba.np.linalg"
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
