"""Spark's workers run the ``python3`` of the PATH unless told otherwise: let the tests use the one they run on."""

import os
import sys
from collections import defaultdict

import pytest

LONG_PAGES = {"streams.md", "spark.md", "rerunning.md"}  # of docs, whose examples start streams on Spark

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ.setdefault("TILTFRAME_COMPILE_FROM", "0")  # but for tests/aggr/test_compiled.py, machine code


def pytest_addoption(parser):
    """Let a quick run leave parameters out."""
    parser.addoption("--few", type=int, metavar="N", help="run a test with at most N of its parameters, far apart")


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config, items):
    """Mark the pages that take as long as tests that are marked so, and what asks for a session of Spark."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        if item.path.name in LONG_PAGES:
            item.add_marker(pytest.mark.long)
    yield  # -m leaves tests out
    if most := config.getoption("--few"):
        by_function = defaultdict(list)
        for item in items:
            by_function[item.nodeid.split("[")[0]].append(item)
        chosen = {item for same in by_function.values() for item in same[:: -(-len(same) // most)]}
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = [item for item in items if item in chosen]


@pytest.fixture(autouse=True)
def readme_folder(request, tmp_path, monkeypatch):
    """Run the README's example in an empty folder, because it creates a store there."""
    if request.node.path.name == "README.md":
        monkeypatch.chdir(tmp_path)
