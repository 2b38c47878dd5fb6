"""The house: imports run downwards only, and three of the four folders need no JVM."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
STANDARD = sys.stdlib_module_names

MAY_IMPORT = {
    "aggr": {"pyarrow", "numpy", "numba", "sqlglot", "ddsketch", "google"},
    "windows": {"pyarrow", "numpy"},
    "tiltframe": {"pyarrow", "numpy", "click", "rich", "deltalake", "adbc_driver_postgresql", "aggr", "windows"},
    "spark_udaf": {"pyarrow", "numpy", "click", "matplotlib", "pyspark", "pandas", "aggr", "windows", "tiltframe"},
}


def imported(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative imports hide where they lead"
            found.add(str(node.module).split(".")[0])
    return found


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_run_downwards(package):
    for file in (ROOT / package).rglob("*.py"):
        extra = imported(file) - STANDARD - MAY_IMPORT[package] - {package}
        assert not extra, f"{file.relative_to(ROOT)} imports {extra}"


@pytest.mark.parametrize("package", ["aggr", "windows", "tiltframe", "tiltframe.cli"])
def test_no_pyspark_without_spark(package):
    script = f"import sys, {package}; assert not {{'pyspark', 'py4j'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_nothing_touches_the_jvm():
    for file in (ROOT / "spark_udaf").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute):
                assert node.attr not in ("_jvm", "_jdf", "_jsparkSession", "sparkContext", "rdd"), file


def test_files_are_small_and_named_by_a_concept():
    for package in MAY_IMPORT:
        for file in (ROOT / package).rglob("*.py"):
            assert file.stem not in ("utils", "util", "common", "helpers", "misc"), file
            assert len(file.read_text().splitlines()) <= 300, file
