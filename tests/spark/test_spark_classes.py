"""JVMs of tests load Spark's classes from the archive that `tests/spark_classes.py` writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SPARK_CLASSES = Path(sys.prefix, "spark.jsa")  # as in conftest.py
SESSION = "from pyspark.sql import SparkSession; SparkSession.builder.master('local[1]').getOrCreate().range(9).count()"


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.skipif(not SPARK_CLASSES.exists(), reason=f"{SPARK_CLASSES} is missing; make test-all writes it")
def test_a_new_jvm_loads_classes_of_spark_from_the_archive(tmp_path):
    log = tmp_path / "classes.log"
    options = f"{os.environ['SPARK_SUBMIT_OPTS']} -Xlog:class+load:file={log}"
    environment = {**os.environ, "SPARK_SUBMIT_OPTS": options}
    subprocess.run([sys.executable, "-c", SESSION], env=environment, check=True, capture_output=True)
    lines = log.read_text().splitlines()  # the JVM generates the classes of lambda expressions at run time
    loaded = [line for line in lines if " org.apache.spark." in line and "$$Lambda" not in line]
    archived = [line for line in loaded if "source: shared objects file" in line]
    assert len(loaded) > 1000
    assert len(archived) > 0.9 * len(loaded)
