"""Archive the classes of Spark that tests load, which saves a third of the CPU time to start a JVM.

python -m tests.spark_classes FILE

A small job loads the classes, and the JVM writes them to the file when it ends (class data sharing, JEP 350).
`conftest.py` passes the file to the JVMs of tests. A JVM with other jars or another version ignores the file.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from spark_udaf.plan.class_archive import write_archive


def load_classes() -> None:
    """Run one job of each kind that most tests run: files, aggregation, joins, Python functions and a stream."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", 2)
    builder = builder.config("spark.ui.enabled", False).config("spark.python.daemon.module", "spark_udaf.daemon")
    spark = builder.getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        spark.range(1000).selectExpr("id", "id % 7 AS k", "string(id) AS s").write.parquet(f"{folder}/rows")
        rows = spark.read.parquet(f"{folder}/rows")
        rows.createOrReplaceTempView("rows")
        spark.sql("SELECT k, percentile_approx(id, 0.5), collect_list(s) FROM rows GROUP BY k").toArrow()
        rows.join(rows.groupBy("k").count(), "k").orderBy("id").toArrow()
        rows.mapInArrow(lambda batches: batches, rows.schema).toPandas()
        stream = spark.readStream.schema(rows.schema).parquet(f"{folder}/rows").groupBy("k").count()
        query = stream.writeStream.outputMode("complete").format("memory").queryName("counts")
        query.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    import conftest  # noqa: F401  sets the options of JVMs

    try:
        write_archive(Path(sys.argv[1]).absolute(), "from tests.spark_classes import load_classes; load_classes()")
    except subprocess.CalledProcessError:
        print("this JVM did not write an archive of Spark's classes; tests run without it, and take longer")
