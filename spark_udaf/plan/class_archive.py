"""An archive of Spark's classes on disk, with which a local session starts in about half the time.

A JVM that starts Spark and runs a first job loads and verifies more than 15,000 classes. An archive contains them in
the form that the JVM needs in memory. Java 17 writes it when a JVM ends (class data sharing, JEP 350). A JVM that does
not fit the archive, because it has another version or other jars, ignores it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

_READ = "-XX:SharedArchiveFile="
_LOAD_CLASSES = "from spark_udaf.plan.class_archive import load_classes; load_classes()"
_WRITE_ARCHIVE = "from spark_udaf.plan.class_archive import main; main()"


def archive_file() -> Path | None:
    """Return the file of the archive in the cache folder of the user, which may not exist yet. The name of the file
    contains a checksum of the JVM and of Spark's jars. Return None if Java or Spark is not installed.
    """
    import pyspark

    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home, "bin", "java")) if home else "java")
    jars = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent, "jars")
    if java is None or not jars.is_dir():
        return None
    program = Path(java).resolve()
    parts = (str(program), program.stat().st_mtime_ns, str(jars.resolve()), jars.stat().st_mtime_ns)
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "tiltframe" / f"spark-{pyspark.__version__}-{zlib.crc32(repr(parts).encode()):08x}.jsa"


def java_options() -> str:
    """Return the options with which a JVM of Spark reads the archive. Return an empty text if there is no archive, or
    if the environment already names one.
    """
    file = None if _is_set() else archive_file()
    return "" if file is None or not file.exists() else f"{_READ}{file} -Xlog:cds*=off"


def _is_set() -> bool:
    return _READ in os.environ.get("SPARK_SUBMIT_OPTS", "")


def load_classes() -> None:
    """Run a rollup into a store and an aggregation of files in a local session, so that its JVM loads the classes that
    such jobs need.
    """
    import pyarrow as pa
    from pyspark.sql import functions as F

    import aggr
    import spark_udaf as su
    from spark_udaf.plan.session import local_session
    from tiltframe import FrameStore, TiltFrame

    rows = pa.table({"ts": pa.array(range(1000), pa.timestamp("s", "UTC")), "k": ["a", "b"] * 500, "x": range(1000)})
    spark = local_session("classes", {"spark.sql.shuffle.partitions": "2"})
    with tempfile.TemporaryDirectory() as folder:
        frame = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count(), "p": aggr.dds("x", [0.5])}, ["k"])
        su.rollup_into(spark.createDataFrame(rows), FrameStore(Path(folder, "store"), frame), "rows", 1)
        spark.createDataFrame(rows).write.parquet(f"{folder}/rows")
        files = spark.read.parquet(f"{folder}/rows")
        files.where("x > 1").groupBy("k").agg(F.count("x"), F.percentile_approx("x", 0.5)).orderBy("k").toArrow()
    spark.stop()


def write_archive(file: Path, load: str = _LOAD_CLASSES) -> None:
    """Run Python code that starts Spark, and write the classes that its JVM has loaded to a file.

    Parameters
    ----------
    file : Path
        The folder is created. A complete file replaces an existing one, and other processes never see an incomplete
        one.
    load : str
        Code for a process of its own. The default is `load_classes`.

    Raises
    ------
    CalledProcessError
        If the code fails, for example because the JVM cannot write archives.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.name}.{os.getpid()}")
    options = [text for text in os.environ.get("SPARK_SUBMIT_OPTS", "").split() if not text.startswith(_READ)]
    options += [f"-XX:ArchiveClassesAtExit={partial}", "-Xlog:cds*=off"]
    environment = {**os.environ, "SPARK_SUBMIT_OPTS": " ".join(options)}
    try:
        # The JVM writes the archive after the code has ended. It keeps the captured output open, for which `run` waits.
        subprocess.run([sys.executable, "-c", load], env=environment, check=True, capture_output=True)
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


def archive_in_background() -> bool:
    """Start a process of low priority that writes the archive. It continues when this process ends.

    Returns
    -------
    bool
        Whether a process was started. None is started if there is an archive, or if the environment names one.
    """
    file = archive_file()
    if file is None or file.exists() or _is_set():
        return False
    nothing = subprocess.DEVNULL
    command = [sys.executable, "-c", _WRITE_ARCHIVE]
    subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)
    return True


def main() -> None:
    """Write the archive of this user, with low priority."""
    if hasattr(os, "nice"):
        os.nice(19)
    file = archive_file()
    if file is not None:
        write_archive(file)
