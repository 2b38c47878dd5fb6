"""An archive of Spark's classes on disk, with which a local session starts in about half the time.

A JVM that starts Spark and runs a first job loads and verifies more than 15,000 classes. An archive contains them in
the form that the JVM needs in memory. Java 17 writes the archive when a JVM ends (class data sharing, JEP 350). A JVM
of another version, or with other jars, ignores the archive.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from pathlib import Path

from tiltframe.java import java_program

_ARCHIVE_OPTION = "-XX:SharedArchiveFile="


def archive_file() -> Path | None:
    """Return the path of the archive in the cache folder of the user. The file may not exist yet. Its name contains a
    checksum of the JVM and of Spark's jars.

    Return None if Java or Spark is not installed, if the user has no home folder, as in some containers, or if the path
    of the file contains a space, because spaces separate options of the JVM.
    """
    import pyspark

    java = java_program()
    jars = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent, "jars")
    if java is None or not jars.is_dir():
        return None
    program = Path(java).resolve()
    checksum_inputs = (str(program), program.stat().st_mtime_ns, str(jars.resolve()), jars.stat().st_mtime_ns)
    try:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    file = caches / "tiltframe" / f"spark-{zlib.crc32(repr(checksum_inputs).encode()):08x}.jsa"
    return None if " " in str(file) else file


def java_options() -> str:
    """Return the options with which a JVM of Spark reads the archive. Return an empty text if there is no archive, or
    if the environment already names one.
    """
    file = None if has_archive_option() else archive_file()
    return "" if file is None or not file.exists() else f"{_ARCHIVE_OPTION}{file} -Xlog:cds*=off"


def has_archive_option() -> bool:
    """Return whether the environment variable ``SPARK_SUBMIT_OPTS`` names an archive."""
    return _ARCHIVE_OPTION in os.environ.get("SPARK_SUBMIT_OPTS", "")


def write_archive(file: Path, code: str) -> None:
    """Run Python code that starts Spark, and write the classes that its JVM has loaded to a file.

    Parameters
    ----------
    file : Path
        The path of the archive. Missing folders are created. An existing file is replaced in one step, after the new
        archive is complete. Other processes therefore never see an incomplete archive.
    code : str
        Python code that starts Spark. It runs in a separate process.

    Raises
    ------
    CalledProcessError
        If the code fails, for example because the JVM cannot write archives.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished_file = file.with_name(f"{file.name}.{os.getpid()}")
    options = [text for text in os.environ.get("SPARK_SUBMIT_OPTS", "").split() if not text.startswith(_ARCHIVE_OPTION)]
    options += [f"-XX:ArchiveClassesAtExit={unfinished_file}", "-Xlog:cds*=off"]
    environment = {**os.environ, "SPARK_SUBMIT_OPTS": " ".join(options)}
    try:
        # The JVM writes the archive after the code has ended. Until the archive is complete, the JVM keeps the captured
        # output open, so that `run` does not return earlier.
        subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True)
        unfinished_file.replace(file)
    finally:
        unfinished_file.unlink(missing_ok=True)
