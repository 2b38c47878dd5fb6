"""The command does not import pandas, unless a plug-in of another distribution may pass its objects to pyarrow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.store]
pytest.importorskip("pandas")
TRIES_ONCE = pytest.mark.skipif(
    int(pa.__version__.partition(".")[0]) < 20, reason="old versions of pyarrow import pandas at each conversion"
)

COMMAND = """
import json, sys
import tiltframe_command
tiltframe_command._Completed.end_process = lambda self: print("pandas" in sys.modules)  # called at exit
sys.argv[1:] = json.loads(sys.argv[1])
tiltframe_command.main()
"""
SERIES = "pa.array(pd.Series([1.0, float('nan')])).null_count"


def run(folder: Path, code: str, *arguments: str) -> list[str]:
    """Run Python in a folder, which may have further distributions, and return the lines of its output."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
    command = [sys.executable, "-c", code, json.dumps(arguments)]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def add_plugin(folder: Path, group: str, target: str) -> None:
    """Write a distribution with the module ``other`` and one entry point."""
    metadata = folder / "other-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{group}]\nother = other:{target}\n")
    code = ["import click, aggr", "@click.command()", "def show():"]
    code += ["    import pandas as pd, pyarrow as pa", f"    click.echo({SERIES})"]
    code += ["class Rows(aggr.Count):", "    name = 'rows_of_other'"]
    (folder / "other.py").write_text("\n".join(code) + "\n")


@TRIES_ONCE
def test_commands_do_not_import_pandas(tmp_path):
    (tmp_path / "rows.csv").write_text("ts,x\n2024-01-01T00:00:00Z,2\n2024-01-01T00:00:30Z,8\n")
    rollup = ["rollup", "rows.csv", "--time", "ts", "--levels", "1m,1h", "--measure", "p=dds(x, [0.5])", "--store", "s"]
    assert run(tmp_path, COMMAND, *rollup)[-1] == "False"
    for output in ("table", "json", "csv"):
        lines = run(tmp_path, COMMAND, *f"query s --per 1h --format {output}".split())
        assert len(lines) > 1
        assert lines[-1] == "False"


def test_a_command_of_another_distribution_can_use_pandas(tmp_path):
    add_plugin(tmp_path, "tiltframe.commands", "show")
    assert run(tmp_path, COMMAND, "other") == ["1", "True"]


def test_a_function_of_another_distribution_can_use_pandas(tmp_path):
    add_plugin(tmp_path, "aggr.functions", "Rows")
    assert run(tmp_path, COMMAND, "functions")[-1] == "True"


@TRIES_ONCE
def test_conversions_to_pandas_work_as_before(tmp_path):
    code = """
from aggr.skipped_pandas import allow_pandas, skip_pandas
skip_pandas()
import pyarrow as pa, sys
print(pa.array([1]).to_pylist(), "pandas" in sys.modules)
allow_pandas()
import pandas as pd
print(SERIES, pa.table({"a": [1]}).to_pandas().a.sum())
"""
    assert run(tmp_path, code.replace("SERIES", SERIES)) == ["[1] False", "1 1"]


def test_functions_of_other_distributions_are_loaded_only_for_their_names(tmp_path):
    add_plugin(tmp_path, "aggr.functions", "Rows")
    code = "import aggr, sys\n" + "".join(
        f"aggr.get({name!r}); print('other' in sys.modules)\n" for name in ("dds", "mean", "rows_of_other")
    )
    assert run(tmp_path, code) == ["False", "False", "True"]
