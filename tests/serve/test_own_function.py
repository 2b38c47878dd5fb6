"""A PromQL function of one's own: one file in the tree, copied from the documentation."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = Path("tiltframe/serve/promql/value_functions")
# An editable installation must not find the original package in the place of its copy.
ISOLATED = """import sys

sys.meta_path[:] = [finder for finder in sys.meta_path if "_EditableFinder" not in str(finder)]
"""
ASK = """
import json, sys
import pyarrow as pa
import aggr, tiltframe
from tests.serve.prometheus_world import serving, store_of
from tiltframe import TiltFrame
from tiltframe.store.testing import MemoryBackend

frame = TiltFrame(["1m"], "ts", {"balance": aggr.last("v")}, ["account"])
rows = pa.table({"ts": [0, 1, 60_000], "account": ["a", "b", "a"], "v": [-2.5, 4.0, -0.0]})
with serving({"s": store_of(MemoryBackend("memory:own"), rows, frame)}) as server:
    answers = [server.query(text, at) for text in json.loads(sys.argv[1]) for at in (60, 120)]
print(json.dumps([tiltframe.__file__, [[answer.status, json.loads(answer.body)] for answer in answers]]))
"""


def answers_of(copy: Path, *queries: str) -> list:
    """Return the status and the body of each query at 60 and at 120 seconds, by a server from a copy of the package."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(copy), str(ROOT)])}
    command = [sys.executable, "-c", ASK, json.dumps(queries)]
    done = subprocess.run(command, env=environment, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    origin, answers = json.loads(done.stdout)
    assert Path(origin).is_relative_to(copy)
    return answers


@pytest.mark.slow
@pytest.mark.store
def test_a_file_from_the_documentation_is_a_function_of_promql(tmp_path):
    copy = tmp_path.resolve()
    shutil.copytree(ROOT / "tiltframe", copy / "tiltframe", ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "sitecustomize.py").write_text(ISOLATED)
    [(status, before), *_] = answers_of(copy, "abs(balance)")
    assert status == 422, before
    assert "abs cannot be computed by merging windows" in before["error"]

    page = (ROOT / "docs/prometheus.md").read_text()
    [(name, text)] = re.findall(r"```python\n# (abs\.py)\n(.*?)```", page, re.DOTALL)
    (copy / FOLDER / name).write_text(text)
    values = [
        {series["metric"].get("account"): series["value"][1] for series in body["data"]["result"]}
        for status, body in answers_of(copy, "abs(balance)", "sum(abs(balance)) - vector(1)", "vector(abs(1))")
        if status == 200
    ]
    # The last query is an error, because the parser of Prometheus knows that abs takes a vector.
    assert values == [{"a": "2.5", "b": "4"}, {"a": "0", "b": "4"}, {None: "5.5"}, {None: "3"}]
