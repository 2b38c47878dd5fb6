"""tiltframe new-function: the package that it writes passes its tests and benchmarks, can be installed, and
is found.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tiltframe.cli.app import cli

FILES = {
    "pyproject.toml", "README.md", "benchmark.py", "src/aggr_weighted_median/__init__.py", "tests/test_laws.py",
    "tests/test_spark.py",
}  # fmt: skip


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "package"
    done = CliRunner().invoke(cli, ["new-function", "weighted_median", "--folder", str(folder)])
    assert done.exit_code == 0, done.output
    assert sorted(done.output.split()) == sorted(str(folder / name) for name in FILES)
    return folder


def run(folder: Path, *command: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ | environment,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


@pytest.mark.long
def test_its_files_have_no_placeholders_and_known_results(package):
    assert {str(path.relative_to(package)) for path in package.rglob("*") if path.is_file()} == FILES
    assert all("$" not in (package / name).read_text() for name in FILES)
    run(package, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_laws.py", "-k", "known")


@pytest.mark.long
def test_its_laws_pass_and_its_benchmark_runs(package):
    run(package, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_laws.py")
    report = run(package, "benchmark.py", "20000", PYTHONPATH=str(package / "src"))
    assert "WeightedMedian" in report or "weighted_median" in report


@pytest.mark.long
@pytest.mark.spark
def test_its_spark_test_passes(package):
    assert "1 passed" in run(package, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_spark.py")


@pytest.mark.long
def test_it_installs_and_is_found(package, tmp_path):
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--no-index"]
    run(package, "-m", "pip", "install", *options, "--target", str(tmp_path / "site"), ".")
    listed = run(tmp_path, "-m", "tiltframe.cli", "functions", "weighted_median", PYTHONPATH=str(tmp_path / "site"))
    assert "weighted_median" in listed


@pytest.mark.parametrize("name", ["Median", "sum", "mean", "2nd", "class", "weighted-median", "_x", ""])
def test_names_that_cannot_be_functions_are_refused(name, tmp_path):
    done = CliRunner().invoke(cli, ["new-function", name, "--folder", str(tmp_path / "package")])
    assert done.exit_code == 2
    assert "name" in done.output
    assert not (tmp_path / "package").exists()


def test_existing_files_are_never_overwritten(package):
    (package / "README.md").write_text("mine")
    done = CliRunner().invoke(cli, ["new-function", "weighted_median", "--folder", str(package)])
    assert done.exit_code == 2
    assert "; choose another --folder" in done.output
    assert (package / "README.md").read_text() == "mine"
