"""The first examples of the start page and of the README run without loading the compiler, if no compiled code is
stored.
"""

from __future__ import annotations

import doctest
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.store]

# Loops are interpreted for a limited time. The limit is raised, so that the test also passes on a slow machine.
COMMAND = (
    "import json, sys; from aggr.compiling import jit; jit._NUMBA_LOAD_SECONDS *= 5; from tiltframe.cli import main; "
    "main(json.loads(sys.argv[1])); print('numba' in sys.modules)"
)
EXAMPLE = "import sys; exec(sys.argv[1]); print('numba' in sys.modules)"


def run(folder: Path, *arguments: str) -> list[str]:
    """Run Python without compiled code, and return the lines of both of its outputs."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "code"), "PYTHONPATH": str(ROOT)}
    environment.pop("TILTFRAME_COMPILE_FROM", None)  # as without settings
    done = subprocess.run(
        [sys.executable, "-u", *arguments],
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_the_start_page(tmp_path):
    page = (ROOT / "docs" / "start.md").read_text()
    events = re.search(r"^```python\n(# make_events\.py\n.*?)^```", page, flags=re.M | re.S)
    command = re.search(r"^\$ tiltframe (rollup(?:.*\\\n)+.*)\n(.*)$", page, flags=re.M)
    assert events
    assert command
    (tmp_path / "events.csv").write_text("\n".join(run(tmp_path, "-c", events[1])) + "\n")
    arguments = shlex.split(command[1].replace("\\\n", " "))
    assert run(tmp_path, "-c", COMMAND, json.dumps(arguments)) == [command[2], "False"]


def test_the_readme(tmp_path):
    block = re.search(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), flags=re.M | re.S)
    assert block
    source = "".join(example.source for example in doctest.DocTestParser().get_examples(block[1]))
    assert "store.query(" in source
    assert run(tmp_path, "-c", EXAMPLE, source)[-1] == "False"
