"""tiltframe doctor reports problems, and what to do about them."""

from __future__ import annotations

import json
import os
import stat
import sys
from importlib.metadata import PackageNotFoundError, metadata, requires, version

import pytest
from packaging.requirements import Requirement

from tests.command_line import call
from tiltframe.doctor import examine

PARTS = {"about", "ok", "found", "do", "required"}


def finding(about):
    (match,) = [candidate for candidate in examine() if candidate.about == about]
    return match


def test_every_finding_has_the_same_parts(capfd, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/python")
    status, out = call(capfd, "doctor", "--format", "json")[:2]
    rows = [json.loads(line) for line in out.splitlines()]
    assert all(row.keys() == PARTS for row in rows)
    assert {"Python", "pyarrow", "pyspark", "Java", "memory", "cache of compiled loops"} <= {
        row["about"] for row in rows
    }
    assert all(bool(row["do"]) != row["ok"] for row in rows)
    assert status == 1
    out = call(capfd, "doctor")[1]
    assert "NO  Spark's Python workers: /nowhere/python does not run" in out
    assert "    set PYSPARK_PYTHON=" in out


def test_a_package_of_an_extra_that_is_not_installed_is_neither_ok_nor_required(capfd, monkeypatch):
    def installed(name):
        if name in ("pysail", "sqlglot"):
            raise PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr("tiltframe.doctor.version", installed)
    lines = call(capfd, "doctor")[1].splitlines()
    assert lines[lines.index("--  pysail: not installed") + 1] == (
        "    only for the extra sail: pip install 'tiltframe[sail]'"
    )
    assert "NO  sqlglot: not installed" in lines
    assert not [line for line in lines if line.startswith("ok") and "not installed" in line]


@pytest.mark.parametrize(
    ("installed_version", "ok"),
    [("1.5.2", False), ("1.5.3", True), ("2.3.0rc1", True), ("3.0", False)],
)
def test_a_package_must_be_within_both_bounds(installed_version, ok, monkeypatch):
    monkeypatch.setattr(
        "tiltframe.doctor.version", lambda name: installed_version if name == "pandas" else version(name)
    )
    pandas = finding("pandas")
    assert pandas.ok is ok
    assert pandas.found == installed_version
    assert pandas.do == ("" if ok else "pip install --upgrade 'pandas<3,>=1.5.3'")


@pytest.mark.slow
def test_packages_are_not_checked_without_packaging(monkeypatch):
    monkeypatch.setitem(sys.modules, "packaging.requirements", None)
    assert not finding("packaging").ok
    assert finding("memory")


def test_packages_are_those_of_the_extras_that_users_install():
    """By the standard reader of requirements: what only tests, benchmarks and docs need is not asked for."""
    named = {
        requirement.name
        for requirement in map(Requirement, requires("tiltframe"))
        if requirement.name != "tiltframe"
        and (
            requirement.marker is None
            or any(
                requirement.marker.evaluate({"extra": extra})
                for extra in metadata("tiltframe").get_all("Provides-Extra")
                if extra not in ("bench", "dev", "docs", "mutation", "test")
            )
        )
    }
    other_subjects = {"Python", "Java", "Spark's Python workers", "memory", "cache of compiled loops"}
    assert {finding_of_doctor.about for finding_of_doctor in examine()} - other_subjects == named


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version_text", "ok"), [("8", False), ("1.8.0_392", False), ("11.0.2", False), ("17", True), ("21.0.2", True)]
)
def test_java_by_what_it_says(version_text, ok, tmp_path, monkeypatch):
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version_text}\"' >&2\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    java_finding = finding("Java")
    assert java_finding.ok is ok
    assert ("JAVA_HOME" in java_finding.do) is not ok


def test_no_java(monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    assert "install Java 17" in finding("Java").do


def test_workers_of_another_python(tmp_path, monkeypatch):
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho 3.9 20.0.0\n")
    other.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(other))
    workers_finding = finding("Spark's Python workers")
    assert not workers_finding.ok
    assert "the driver is Python 3." in workers_finding.do


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    tmp_path.chmod(0o500)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    assert "NUMBA_CACHE_DIR" in finding("cache of compiled loops").do
