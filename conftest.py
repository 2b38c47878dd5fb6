"""Settings and fixtures of all tests: environment variables, marks, the options ``--few`` and ``--share``, and failures
in place of skips with CI=true.
"""

import gc
import os
import re
import sys
import tomllib
from argparse import ArgumentTypeError
from collections import defaultdict
from importlib.metadata import distributions
from pathlib import Path
from zlib import crc32

import pytest

ROOT = Path(__file__).parent

LONG_PAGES = {"streams.md", "spark.md", "rerunning.md"}  # pages of docs/ whose examples start streams on Spark

# The only reasons for which a test may be skipped in CI. Installing a tool or a package would not help.
ALLOWED_SKIPS = (
    "root may write everywhere",
    "needs root, to act as another user",
    "needs glibc",
    "datasketches has no wheels for Python 3.14 and newer",
    "this pyarrow has no remainder",
    "this PySpark has no TwsTester",
    "EXPRESSIONS is not set to a file with an expression per line",
    "chdb is only in the environment of the benchmarks",
)

# Spark's workers run the ``python3`` on the PATH by default; they must use the interpreter of the tests.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
# JVMs of tests run for about a minute, in which the optimizing compiler and a concurrent collector do not save time.
SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SPARK_CLASSES = Path(sys.prefix, "spark.jsa")  # written by tests/spark_classes.py, so that JVMs start faster
ARCHIVED = f" -XX:SharedArchiveFile={SPARK_CLASSES} -Xlog:cds*=off"  # a JVM ignores a missing archive
os.environ.setdefault("SPARK_SUBMIT_OPTS", SHORT_LIVED_JVM + ARCHIVED)  # for drivers
os.environ.setdefault("SPARK_LAUNCHER_OPTS", SHORT_LIVED_JVM)  # for the process that prints the driver's command
os.environ.setdefault("SPARK_DAEMON_JAVA_OPTS", SHORT_LIVED_JVM)  # for masters and workers


def refresh_entry_points():
    """Write the entry points of pyproject.toml into the metadata of an editable installation of this tree.

    pip copies the entry points at installation, so extensions that pyproject.toml declares later would be missing.
    """
    declaration = ROOT / "pyproject.toml"
    if not declaration.exists():  # this file has been copied without the project
        return
    project = tomllib.loads(declaration.read_text(encoding="utf-8"))["project"]
    groups = {"console_scripts": project["scripts"], **project["entry-points"]}
    declared = {(group, name, value) for group, points in groups.items() for name, value in points.items()}
    sections = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in sorted(points.items()))
        for group, points in sorted(groups.items())
    ]
    for installed in distributions(name="tiltframe"):
        if {(point.group, point.name, point.value) for point in installed.entry_points} == declared:
            continue
        origin = installed.read_text("direct_url.json") or ""
        in_tree = Path(str(installed.locate_file(""))).resolve() == ROOT
        if in_tree or f'"file://{ROOT}"' in origin.replace("localhost", ""):
            files = [file for file in installed.files or () if file.name == "entry_points.txt"]
            path = Path(str(files[0].locate())) if files else ROOT / "tiltframe.egg-info" / "entry_points.txt"
            partial = path.with_name(f"entry_points.{os.getpid()}")
            partial.write_text("\n".join(sections), encoding="utf-8")
            partial.replace(path)


refresh_entry_points()


def pytest_addoption(parser):
    """Add the option ``--few N``, with which each test runs with at most N of its parameters, and the option ``--share
    K/N``, with which only the long tests in the K-th of N parts of the files run.
    """
    parser.addoption("--few", type=int, metavar="N", help="run a test with at most N of its parameters, far apart")
    parser.addoption("--share", type=share, metavar="K/N", help="run only one of N parts of the long tests, by file")


def share(text):
    """Return the numbers K and N of the option ``--share``. Raise ``ArgumentTypeError`` unless K is from 1 to N."""
    match = re.fullmatch("([1-9][0-9]*)/([1-9][0-9]*)", text)
    if match is None or int(match[1]) > int(match[2]):
        raise ArgumentTypeError(f"the share is K/N, such as 1/2, with K from 1 to N; got {text!r}")
    return int(match[1]), int(match[2])


def is_in_share(item, part, parts):
    """Return whether a test is in a share of the long tests. Tests of a file are in the same share, because they may
    have fixtures in common. Tests that are not long are in each share.
    """
    path = item.path.relative_to(ROOT).as_posix()
    return item.get_closest_marker("long") is None or (crc32(path.encode()) >> 16) % parts == part - 1


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config, items):
    """Mark tests with the fixture ``spark`` as ``spark``, and pages in `LONG_PAGES` as ``long``. With ``--few N``,
    deselect all but N parameters of each test. With ``--share K/N``, deselect long tests outside of this share.
    """
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        if item.path.name in LONG_PAGES:
            item.add_marker(pytest.mark.long)
    yield  # here, pytest deselects tests by -m
    if numbers := config.getoption("--share"):
        deselect(config, items, [item for item in items if is_in_share(item, *numbers)])
    if limit := config.getoption("--few"):
        by_function = defaultdict(list)
        for item in items:
            by_function[item.nodeid.split("[")[0]].append(item)
        deselect(config, items, [item for same in by_function.values() for item in same[:: -(-len(same) // limit)]])


def deselect(config, items, selected):
    """Deselect all items that are not in the list ``selected``."""
    chosen = set(selected)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]


@pytest.fixture(scope="session", autouse=True)
def machine_code():
    """Compile loops at their first call in the process of the tests. Processes that tests start compile them as for
    users, once there is enough work.
    """
    from aggr.compiling.jit import compile_at_first_call

    with compile_at_first_call():
        yield


@pytest.fixture(scope="session")
def spark():
    """Yield the classic Spark session that all tests share, except tests that need a process of their own."""
    from tests import engines

    with engines.session("classic") as session:
        yield session


@pytest.fixture(autouse=True)
def shared_session_of_pages(request, monkeypatch):
    """Run the Spark examples of a page in the session of the tests, which a ``stop`` in the page does not end."""
    page = request.node.path
    if page.suffix == ".md" and "SparkSession.builder.master" in page.read_text():
        request.getfixturevalue("spark")
        from pyspark.sql import SparkSession

        monkeypatch.setattr(SparkSession, "stop", lambda session: None)


def fail_if_skipped(report):
    """If CI=true, change the outcome of a skipped test or file to failed, unless the reason contains a text of
    `ALLOWED_SKIPS`.
    """
    if os.environ.get("CI") != "true" or not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if any(allowed in reason for allowed in ALLOWED_SKIPS):
        return
    report.outcome = "failed"
    report.longrepr = f"{reason}\nWith CI=true, tools and packages must be installed: run `.ci/install_tools`."


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """Apply `fail_if_skipped` to each test."""
    report = yield
    fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report():
    """Apply `fail_if_skipped` to each file."""
    report = yield
    fail_if_skipped(report)
    return report


@pytest.fixture(autouse=True)
def page_folder(request, tmp_path_factory, monkeypatch):
    """Run the examples of a page in an empty folder, because some of them create stores and files there."""
    if request.node.path.suffix == ".md":
        monkeypatch.chdir(tmp_path_factory.mktemp("page"))


def pytest_unconfigure():
    """Unfreeze the objects that `spark_udaf.plan.worker` has frozen in the garbage collector. Otherwise DuckDB reports
    them as leaks at exit.
    """
    gc.unfreeze()
