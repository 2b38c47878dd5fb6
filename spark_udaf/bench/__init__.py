"""Benchmarks of measures on Spark: seconds, shuffled and spilled bytes, and the memory of Python workers.

`bench` runs a measure as `su.rollup`, as `su.group_by`, by `spark_udaf.functions` in `agg`, and in SQL, and compares it
with Spark's own functions. `SparkPeer` makes Spark's functions available to `aggr.bench`.
"""

from spark_udaf.bench.peer import SparkPeer
from spark_udaf.bench.run import bench

__all__ = ["SparkPeer", "bench"]
