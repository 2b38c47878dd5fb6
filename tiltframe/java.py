"""The Java that Spark starts on this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple


class Java(NamedTuple):
    """An installed Java: the path of its program, and its major version."""

    program: str
    version: int


class NoJava(ValueError):
    """Raised if Spark cannot start Java. ``problem`` says why, and ``advice`` says what the user can do."""

    def __init__(self, problem: str, advice: str) -> None:
        """Create the error. Its message consists of ``problem``, a semicolon and ``advice``."""
        super().__init__(f"{problem}; {advice}")
        self.problem = problem
        self.advice = advice


def java_program() -> str | None:
    """Return the path of the Java program that Spark starts: ``bin/java`` in the folder JAVA_HOME or, if this variable
    is not set, ``java`` on the PATH. Return None if the program does not exist.
    """
    home = os.environ.get("JAVA_HOME")
    return shutil.which(str(Path(home, "bin", "java")) if home else "java")


def find_java() -> Java:
    """Return the Java that Spark starts. Java is run once to read its version.

    Raises
    ------
    NoJava
        If Java is not installed, does not run, or is older than the installed PySpark requires.
    """
    program = java_program()
    spark, oldest = _oldest_version()
    if program is None:
        home = os.environ.get("JAVA_HOME")
        problem = f"JAVA_HOME={home} does not contain bin/java" if home else "there is no java on the PATH"
        raise NoJava(problem, f"for Spark, install Java {oldest} or newer, such as openjdk-17-jre-headless")
    try:
        process = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoJava(f"{program} does not run: {error}", "set JAVA_HOME to a working Java") from None
    match = re.search(r'version "(?:1\.)?(\d+)', process.stderr + process.stdout)
    if match is None:
        raise NoJava(f"{program} does not print a version", "set JAVA_HOME to a working Java")
    if int(match[1]) < oldest:
        raise NoJava(
            f"version {match[1]} at {program}",
            f"{spark} needs Java {oldest} or newer: install one, and set JAVA_HOME to it",
        )
    return Java(program, int(match[1]))


def _oldest_version() -> tuple[str, int]:
    """Return the name of the installed Spark, and the oldest version of Java that it supports. If PySpark is not
    installed, the values are those of Spark 4.
    """
    for package in ("pyspark", "pyspark-client"):
        try:
            major = int(version(package).partition(".")[0])
        except PackageNotFoundError:
            continue
        return (f"Spark {major}", 17 if major >= 4 else 8)
    return "Spark 4", 17
