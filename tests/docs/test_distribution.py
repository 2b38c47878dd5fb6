"""The sdist and the wheel: their files, their metadata, and that they work outside this repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.metadata import Metadata

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
PACKAGES = ("aggr", "windows", "tiltframe", "spark_udaf")
FOLDERS = (*PACKAGES, ".ci", "benchmarks", "docs", "examples", "tests")
GENERATED = (
    "__pycache__",
    "*.egg-info",
    "build",
    "_build",
    ".*",
    "spark-warehouse",
    "artifacts",
    "metastore_db",
    "*.log",
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSION = PROJECT["project"]["version"]
ADDRESS = PROJECT["tool"]["tiltframe"]["address"]
LINK = re.compile(r"\]\(([^)\s\"']+)\)")  # of Markdown; in code a bracket is followed by quotes, if at all


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Copy what is kept of this repository, without what its commands have made."""
    copy = tmp_path_factory.mktemp("source") / "tiltframe"
    copy.mkdir()
    for path in ROOT.iterdir():
        if path.name in FOLDERS:
            shutil.copytree(path, copy / path.name, ignore=shutil.ignore_patterns(*GENERATED))
        elif path.suffix in (".cff", ".md", ".txt", ".toml", ".py", ".in") or path.name in ("LICENSE", "Makefile"):
            shutil.copy(path, copy)
    return copy


@pytest.fixture(scope="module")
def built(source, tmp_path_factory):
    """Build the sdist, and the wheel from the sdist, as `make dist` does."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source)
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def unpacked(built, tmp_path_factory):
    """Unpack the sdist."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(built[0]) as archive:
        archive.extractall(folder, filter="data")
    (inside,) = folder.iterdir()
    return inside


def run(*command, cwd=None, **variables) -> str:
    """Run a command that must succeed, away from this repository."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd=cwd, env=environment)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def files(folder):
    """List what a folder holds, but for what setuptools adds."""
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    return {name for name in names if ".egg-info/" not in name} - {"PKG-INFO", "setup.cfg"}


@pytest.mark.long
def test_the_sdist_holds_the_source_and_nothing_else(source, unpacked):
    assert files(unpacked) == files(source)


@pytest.mark.long
def test_the_wheel_holds_the_packages_and_nothing_else(source, built):
    with zipfile.ZipFile(built[1]) as wheel:
        names = set(wheel.namelist())
        points = wheel.read(f"tiltframe-{VERSION}.dist-info/entry_points.txt").decode()
    package_files = {name for name in names if ".dist-info/" not in name}
    typed = {f"{package}/py.typed" for package in PACKAGES}
    code = {name for name in files(source) if name.startswith(PACKAGES) and name.endswith((".py", ".pyi"))}
    page_files = (ROOT / "tiltframe" / "serve" / "page").rglob("*.*")
    page = {path.relative_to(ROOT).as_posix() for path in page_files}
    template = {name for name in files(source) if name.startswith("tiltframe/cli/function_template/")}
    data = {"aggr/bench/measured.json", "pyspark_tiltframe.py", "tiltframe_command.py"}
    assert package_files == code | typed | page | template | data
    assert f"tiltframe-{VERSION}.dist-info/licenses/LICENSE" in names
    assert "tiltframe = tiltframe_command:main" in points
    assert "demo = spark_udaf.demo:demo" in points
    assert built[1].stat().st_size < 1.8e6


def test_what_an_index_shows(built, unpacked):
    with zipfile.ZipFile(built[1]) as wheel:
        package_metadata = wheel.read(f"tiltframe-{VERSION}.dist-info/METADATA")
    assert (unpacked / "PKG-INFO").read_bytes() == package_metadata
    metadata = Metadata.from_email(package_metadata, validate=True)
    urls = metadata.project_urls or {}
    assert set(urls) == {"Homepage", "Documentation", "Source", "Changelog"}
    assert all(url == ADDRESS or url.startswith(ADDRESS + "/") for url in urls.values())
    assert (metadata.license_expression, metadata.description_content_type) == ("Apache-2.0", "text/markdown")

    links = LINK.findall(metadata.description or "")
    assert len(links) > 20
    for link in links:
        assert link.startswith(urls["Source"] + "/"), link
        assert (unpacked / link.removeprefix(urls["Source"] + "/")).is_file(), link


def test_the_citation_and_the_changes_name_this_version():
    citation, changes = (ROOT / "CITATION.cff").read_text(), (ROOT / "CHANGELOG.md").read_text()
    assert f"\nversion: {VERSION}\n" in citation
    (newest, *_) = re.findall(r"^## (.*)$", changes, re.MULTILINE)
    assert re.fullmatch(rf"{re.escape(VERSION)} \((unreleased|\d{{4}}-\d\d-\d\d)\)", newest)
    assert version("tiltframe") == VERSION


def test_the_address_is_written_in_three_files_only(source):
    """Before the first release, it is replaced in the places that CONTRIBUTING names."""
    assert f'repository-code: "{ADDRESS}/source"' in (ROOT / "CITATION.cff").read_text()
    name = ADDRESS.removeprefix("https://").encode()
    texts = [path for path in source.rglob("*") if path.is_file() and name in path.read_bytes()]
    texts = [path for path in texts if path.parent.suffix != ".egg-info"]  # a build writes it there
    assert sorted(path.name for path in texts) == ["CITATION.cff", "CONTRIBUTING.md", "pyproject.toml"]


def test_the_classifiers_name_the_versions_that_are_tested():
    (tested,) = re.findall(r"^PYTHONS \?= (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    oldest = PROJECT["project"]["requires-python"].removeprefix(">=")
    prefix = "Programming Language :: Python :: 3."
    named = [name.rpartition(" ")[2] for name in PROJECT["project"]["classifiers"] if name.startswith(prefix)]
    assert named == [oldest, *tested.split()]


def test_no_file_names_an_index(source):
    """Readers configure the index of their organisation; a page or a script that names one would go around it."""
    index = re.compile(rb"\b(?:test\.)?py" + rb"pi\.(?:org|io)|python" + rb"hosted\.org", re.IGNORECASE)
    named = [path for path in source.rglob("*") if path.is_file() and index.search(path.read_bytes())]
    assert [path.relative_to(source).as_posix() for path in named] == []


@pytest.mark.long
def test_tests_run_from_the_sdist(unpacked):
    chosen_tests = ["tests/aggr/test_golden.py", "tests/windows/test_windows.py", "docs/conditions.md"]
    # loops run as Python, which warns where whole numbers wrap around
    options = ["-p", "no:cacheprovider", "-m", "not spark and not slow", "-W", "ignore:overflow:RuntimeWarning"]
    output = run(sys.executable, "-m", "pytest", *options, *chosen_tests, cwd=unpacked, NUMBA_DISABLE_JIT="1")
    assert re.search(r"^\d{3,} passed", output, re.MULTILINE), output[-500:]
    imported = run(sys.executable, "-c", "import aggr; print(aggr.__file__)", cwd=unpacked)
    assert imported.strip() == str(unpacked / "aggr" / "__init__.py")


@pytest.mark.long
def test_the_wheel_works_alone(built, tmp_path):
    """Dependencies come from the tests' environment, so that no index is asked; tiltframe from the wheel alone."""
    place = tmp_path / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", place)
    (inside,) = place.glob("lib/python*/site-packages")
    options = ["--quiet", "--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check"]
    run(sys.executable, "-m", "pip", "--python", place / "bin" / "python", "install", *options, built[1])
    (inside / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (tmp_path / "rows.csv").write_text("ts,x\n2024-01-01T00:00:00,2\n2024-01-01T00:00:30,8\n2024-01-01T00:01:00,5\n")

    def tiltframe(*args):
        return run(place / "bin" / "tiltframe", *args, cwd=tmp_path, NUMBA_DISABLE_JIT="1")

    imported = run(place / "bin" / "python", "-c", "import tiltframe; print(tiltframe.__file__)", cwd=tmp_path)
    assert imported.strip() == str(inside / "tiltframe" / "__init__.py")
    assert tiltframe("--version") == f"tiltframe, version {VERSION}\n"
    assert "demo " in tiltframe("--help")
    levels, measures = ["--levels", "1m,1h"], ["--measure", "n=count()", "--measure", "s=sum(x)"]
    tiltframe("rollup", "rows.csv", "--time", "ts", *measures, *levels, "--store", "store")
    assert '"n":3,"s":15' in tiltframe("query", "store", "--per", "1h", "--format", "json").replace(" ", "")
