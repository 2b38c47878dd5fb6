"""JVMs load Spark's classes from an archive: those of tests, and those of local sessions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_udaf.demo.class_loading import LOAD_CLASSES, archive_in_background
from spark_udaf.plan.class_archive import archive_file, java_options, write_archive

SPARK_CLASSES = Path(sys.prefix, "spark.jsa")  # as in conftest.py
SESSION = "from pyspark.sql import SparkSession; SparkSession.builder.master('local[1]').getOrCreate().range(9).count()"
LOCAL_SESSION = "from spark_udaf.plan.session import local_session; local_session('test', {}).range(9).count()"


def share_of_archive(log, session, options, **environment):
    """Run a session, and return the share of Spark's classes that its JVM loads from an archive."""
    environment = {**os.environ, **environment, "SPARK_SUBMIT_OPTS": f"{options} -Xlog:class+load:file={log}"}
    subprocess.run([sys.executable, "-c", session], env=environment, check=True, capture_output=True)
    lines = log.read_text().splitlines()  # the JVM generates the classes of lambda expressions at run time
    loaded = [line for line in lines if " org.apache.spark." in line and "$$Lambda" not in line]
    assert len(loaded) > 1000
    return sum("source: shared objects file" in line for line in loaded) / len(loaded)


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.skipif(not SPARK_CLASSES.exists(), reason=f"{SPARK_CLASSES} is missing; make test-all writes it")
def test_a_jvm_of_tests_loads_classes_of_spark_from_the_archive(tmp_path):
    assert share_of_archive(tmp_path / "classes.log", SESSION, os.environ["SPARK_SUBMIT_OPTS"]) > 0.9


@pytest.mark.spark
@pytest.mark.long
def test_a_local_session_loads_classes_of_spark_from_the_archive_of_the_user(tmp_path, monkeypatch):
    caches, options = str(tmp_path / "caches"), "-XX:TieredStopAtLevel=1"
    monkeypatch.setenv("XDG_CACHE_HOME", caches)
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", options)
    assert java_options() == ""
    write_archive(archive_file(), LOAD_CLASSES)
    assert str(archive_file()) in java_options()
    assert not archive_in_background()  # there is an archive
    share = share_of_archive(tmp_path / "with.log", LOCAL_SESSION, options, XDG_CACHE_HOME=caches)
    assert share > 0.9


def test_nothing_is_left_if_the_code_fails(tmp_path):
    with pytest.raises(subprocess.CalledProcessError):
        write_archive(tmp_path / "caches" / "spark.jsa", "raise SystemExit(3)")
    assert list((tmp_path / "caches").iterdir()) == []


def test_an_archive_that_the_environment_names_is_used(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:SharedArchiveFile=other.jsa")
    if archive_file() is not None:
        archive_file().parent.mkdir()
        archive_file().touch()
    assert java_options() == ""
    assert not archive_in_background()


def test_there_is_no_archive_without_java(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    assert archive_file() is None
    assert java_options() == ""
    assert not archive_in_background()


def test_there_is_no_archive_without_a_home_folder(monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert archive_file() is None


def test_there_is_no_archive_in_a_folder_with_spaces(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/home/my name/caches")
    assert archive_file() is None


def test_another_version_of_java_has_another_archive(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    (tmp_path / "jars").mkdir()
    files = set()
    for version in ("17", "21"):
        program = tmp_path / version / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / version))
        files.add(archive_file())
    assert len(files) == 2
