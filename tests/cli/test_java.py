"""The Java that Spark starts: which one is found, and which versions each PySpark accepts."""

from __future__ import annotations

import pytest

import aggr
from tiltframe import java
from tiltframe.doctor import examine
from tiltframe.java import NoJava, find_java


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that installs a Java with a version, and a PySpark with a version."""

    def installed(java_version: str, spark_version: str = "4.1.0", exit_status: int = 0) -> str:
        program = tmp_path / "bin" / "java"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\necho 'openjdk version \"{java_version}\"' >&2\nexit {exit_status}\n")
        program.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        monkeypatch.setattr(java, "version", lambda package: spark_version)
        return str(program)

    return installed


@pytest.mark.parametrize("java_version", ["8", "1.8.0_392", "11.0.2", "17", "21.0.2"])
@pytest.mark.parametrize("spark_version", ["3.4.4", "3.5.3", "4.0.0", "4.1.0"])
def test_versions(java_version, spark_version, install):
    program = install(java_version, spark_version)
    major = {"1.8.0_392": 8}.get(java_version) or int(java_version.partition(".")[0])
    if spark_version < "4" or major >= 17:
        assert find_java() == (program, major)
    else:
        with pytest.raises(NoJava, match=rf"^version {major} at .*; Spark 4 needs Java 17 or newer: install one"):
            find_java()


@pytest.mark.parametrize("java_version", ["11.0.2", "x"])
def test_each_door_refuses_a_java_that_spark_cannot_use(java_version, install, capsys):
    pytest.importorskip("pyspark")
    from aggr.bench.peers import read_peer
    from spark_udaf.plan.session import has_java
    from tiltframe import cli

    install(java_version)
    with pytest.raises(NoJava) as refusal:
        find_java()
    doctor_finding = next(finding for finding in examine() if finding.about == "Java")
    assert (doctor_finding.ok, doctor_finding.found, doctor_finding.do) == (
        False,
        refusal.value.problem,
        refusal.value.advice,
    )
    assert not has_java()
    with pytest.raises(ValueError, match=refusal.value.advice):
        read_peer("spark:avg(x)", aggr.avg("x")).check()
    with pytest.raises(SystemExit):
        cli.main(["bench", "--spark", "sum(x)"])
    assert refusal.value.advice in " ".join(capsys.readouterr().err.split())


def test_a_java_home_without_java(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NoJava, match=r"JAVA_HOME=.* does not contain bin/java; for Spark, install Java"):
        find_java()
