"""`tiltframe bench` as a user would run it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


def run(*arguments, cwd):
    command = [sys.executable, "-m", "tiltframe.cli", "bench", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.long
@pytest.mark.slow
def test_figures_of_a_file_as_a_table_a_file_and_a_plot(tmp_path):
    (tmp_path / "day.csv").write_text("ms\n" + "\n".join(str(i % 97 + 0.5) for i in range(2000)) + "\n")
    options = ["--data", "day.csv", "--groups", "1,1e1", "--rounds", 1, "--no-memory"]
    done = run(
        "dds(ms, [0.5, 0.9])",
        *options,
        "--against",
        "duckdb:quantile_cont(ms, [0.5, 0.9])",
        "--out",
        "a.json",
        "--plot",
        "a.png",
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "duckdb:quantile_cont(ms, [0.5, 0.9])" in done.stdout
    figures = json.loads((tmp_path / "a.json").read_text())
    assert {timing["groups"] for timing in figures["timings"]} == {1, 10}
    assert all(error["worst_relative"] <= 0.01 for error in figures["errors"])
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    again = run("dds(ms, [0.5, 0.9])", *options, "--against", "none", "--compare", "a.json", cwd=tmp_path)
    assert "earlier report" in again.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dds("], "cannot read 'dds(' as a measure"),
        (["avg(x)", "--groups", "many"], "cannot read --groups 'many'"),
        (["avg(x)", "--data", "missing.csv"], "missing.csv"),
        (["avg(x)", "--compare", "missing.json"], "missing.json"),
        (["avg(x)", "--against", "duckdb"], "write NAME:EXPRESSION"),
        (["avg(x)", "--distribution", "gauss"], "unknown distribution 'gauss'"),
    ],
    ids=str,
)
def test_a_mistake_is_one_sentence(arguments, message, tmp_path):
    done = run(*arguments, "--rows", 100, "--rounds", 1, "--no-memory", cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())
