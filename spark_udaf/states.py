"""Functions for columns that contain states. They compute results from states, or combine states of distinct counts as
sets, without a shuffle.

In a job::

    states = su.aggregate(df, ["host"], {"latency": aggr.dds("latency_ms")})
    states.select("host", su.states.quantile("latency", 0.99), su.states.count("latency"))

For a column that does not contain states, Spark raises an error when it analyzes the query, before a job starts. To
aggregate values of rows, use `spark_udaf.functions`, in `su.group_by` and in `agg()`.
"""

from spark_udaf.udaf.accessors import (
    bounds,
    count,
    difference,
    intersection,
    jaccard,
    max,
    mean,
    min,
    quantile,
    rank,
    read_accessor,
    stdev,
    union,
)

__all__ = [
    "bounds",
    "count",
    "difference",
    "intersection",
    "jaccard",
    "max",
    "mean",
    "min",
    "quantile",
    "rank",
    "read_accessor",
    "stdev",
    "union",
]
