"""Load the classes of Spark that jobs of this library need, and archive them in the background."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
from pyspark.sql import functions as F

import aggr
import spark_udaf as su
from spark_udaf.plan.class_archive import archive_file, has_archive_option, write_archive
from spark_udaf.plan.session import local_session
from tiltframe import FrameStore, TiltFrame

LOAD_CLASSES = "from spark_udaf.demo.class_loading import load_classes; load_classes()"
_WRITE_ARCHIVE = "from spark_udaf.demo.class_loading import main; main()"


def load_classes() -> None:
    """In a local session, run a rollup into a store and an aggregation of files, so that the JVM loads the classes that
    such jobs need.
    """
    rows = pa.table({"ts": pa.array(range(1000), pa.timestamp("s", "UTC")), "k": ["a", "b"] * 500, "x": range(1000)})
    spark = local_session("classes", {"spark.sql.shuffle.partitions": "2"})
    with tempfile.TemporaryDirectory() as folder:
        frame = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count(), "p": aggr.dds("x", [0.5])}, ["k"])
        su.rollup_into(spark.createDataFrame(rows), FrameStore(Path(folder, "store"), frame), "rows", 1)
        spark.createDataFrame(rows).write.parquet(f"{folder}/rows")
        files = spark.read.parquet(f"{folder}/rows")
        files.where("x > 1").groupBy("k").agg(F.count("x"), F.percentile_approx("x", 0.5)).orderBy("k").toArrow()
    spark.stop()


def archive_in_background() -> bool:
    """Start a process of low priority that writes the archive of Spark's classes. The new process continues after the
    current process has ended.

    Returns
    -------
    bool
        Whether a process was started. No process is started if the archive exists, or if ``SPARK_SUBMIT_OPTS`` names an
        archive.
    """
    file = archive_file()
    if file is None or file.exists() or has_archive_option():
        return False
    nothing = subprocess.DEVNULL
    command = [sys.executable, "-c", _WRITE_ARCHIVE]
    subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)
    return True


def main() -> None:
    """Write the archive of Spark's classes into the cache folder of the user, with low priority."""
    if hasattr(os, "nice"):
        os.nice(19)
    file = archive_file()
    if file is not None:
        write_archive(file, LOAD_CLASSES)
