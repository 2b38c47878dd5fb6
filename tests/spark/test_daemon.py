"""Workers of the daemon `spark_udaf.daemon` have loaded the library when they start."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark


def loaded_modules(batches):
    """Return the names of the modules that a worker has before it is sent any code of this library."""
    import sys

    import pyarrow as pa

    for _ in batches:
        names = {"spark_udaf.plan.worker", "pyarrow.compute"} & set(sys.modules)
        yield pa.RecordBatch.from_arrays([pa.array(sorted(names))], names=["name"])


def test_a_worker_starts_with_the_library(spark):
    assert spark.conf.get("spark.python.daemon.module") == "spark_udaf.daemon"
    rows = spark.range(1).coalesce(1).mapInArrow(loaded_modules, "name string").collect()
    assert [row.name for row in rows] == ["pyarrow.compute", "spark_udaf.plan.worker"]
