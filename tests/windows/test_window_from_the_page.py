"""The window of docs/adding-a-window.md in a file of its own, which other processes find by its entry point."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PAGE = (Path(__file__).parent.parent.parent / "docs" / "adding-a-window.md").read_text()
TIMES = [
    f"2024-{month:02d}-{day:02d}T{hour:02d}:30:00" for month in (2, 3) for day in (1, 15, 16, 29) for hour in (0, 22)
]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Put the class into the file, and the entry point into a distribution, that the page says."""
    site = tmp_path_factory.mktemp("site")
    (source,) = (block for block in blocks("python") if block.startswith("# wages.py"))
    (site / "wages.py").write_text(source)
    assert len(source.splitlines()) <= 30
    project = tomllib.loads(blocks("toml")[0])["project"]
    folder = site / f"{project['name']}-{project['version']}.dist-info"
    folder.mkdir()
    metadata = {"Metadata-Version": "2.1", "Name": project["name"], "Version": project["version"]}
    (folder / "METADATA").write_text("".join(f"{name}: {value}\n" for name, value in metadata.items()))
    ((group, points),) = project["entry-points"].items()
    (folder / "entry_points.txt").write_text(f"[{group}]\n" + "".join(f"{n} = {v}\n" for n, v in points.items()))
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    return os.environ | {"PYTHONPATH": path}


def run(
    arguments: list[str], folder: Path, environment: dict[str, str], code: int = 0
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tiltframe.cli", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr[-3000:]
    return done


@pytest.mark.store
@pytest.mark.long
def test_the_commands_of_the_page(installed, tmp_path):
    (tmp_path / "sales.csv").write_text(
        "ts,shop,price\n" + "".join(f"{time},a,{2**n}\n" for n, time in enumerate(TIMES))
    )
    lines = "".join(blocks("console")).splitlines()
    rolled, query_arguments = (shlex.split(line)[2:] for line in lines if line.startswith("$ tiltframe "))
    run(rolled, tmp_path, installed)
    query_arguments = query_arguments[: query_arguments.index("--format")]
    out = run([*query_arguments, "--format", "json"], tmp_path, installed).stdout
    got = {row["window_start"][:10]: row["sold"] for row in map(json.loads, out.splitlines())}
    expected: dict[str, int] = {}
    for n, time in enumerate(TIMES):
        start = f"{time[:8]}{'01' if int(time[8:10]) < 16 else '16'}"
        expected[start] = expected.get(start, 0) + 2**n
    assert got == expected
    with_argument = run(
        [*query_arguments[:2], "--per", "half_month(day=16)", "--format", "json"], tmp_path, installed
    ).stdout
    assert with_argument == out  # one window, however it is written
    without = run(query_arguments, tmp_path, os.environ.copy(), code=2).stderr
    assert "cannot read 'half_month' as a window" in without
    for text, message in (
        ("half_month(day=40)", "offset"),
        ("half_month(dya=16)", "no parameter 'dya'"),
        ("half_mnth", "did you mean"),
    ):
        assert message in run([*query_arguments[:2], "--per", text], tmp_path, installed, code=2).stderr


@pytest.mark.slow
def test_a_broken_distribution_is_named_and_left_out(installed, tmp_path):
    folder = tmp_path / "windows_broken-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: windows-broken\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[tiltframe.windows]\nbroken = not_there:Broken\nint = builtins:int\n")
    code = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import windows
    assert not caught and windows.read_window("half_month(day=11)").day == 11
for warning in caught: print(warning.message)
"""
    environment = installed | {"PYTHONPATH": os.pathsep.join([installed["PYTHONPATH"], str(tmp_path)])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert (
        "'broken' of windows-broken cannot be loaded, and is not available: No module named 'not_there'" in done.stdout
    )
    assert "windows.TimeWindow or windows.ordered.OrderedWindow; got the class int" in done.stdout
