"""spark_udaf: mergeable aggregates and tilt frames on Spark, on classic Spark and Spark Connect alike.

import spark_udaf as su
states = su.rollup(df, frame)                  # level, window_start, window_end, keys…, states
states = su.aggregate(df, ["host"], measures)  # the same without windows
results = su.finish(states, frame)             # the same rows, results for states

su.rollup_into(df, store, "nightly", 20240501) # rows into a frame store; su.append for states
su.read(spark, store.uri, per="1h")            # and results out of it
su.stream_into(stream, store, name=…, checkpoint=…)  # a stream into a store

from spark_udaf import functions as A          # aggregate functions for groupBy().agg() and over()
su.register(spark)                             # and for SQL
"""

from spark_udaf.jobs.aggregate import aggregate, merge
from spark_udaf.jobs.finish import finish
from spark_udaf.jobs.rollup import rollup
from spark_udaf.jobs.running import ordered_rollup, running
from spark_udaf.jobs.scan import scan_parquet
from spark_udaf.store.source import TiltframeSource, read
from spark_udaf.store.write import append, rollup_into
from spark_udaf.streaming.progress import progress
from spark_udaf.streaming.stream_into import stream_into
from spark_udaf.udaf.accessors import count, mean, quantile, rank, stdev
from spark_udaf.udaf.interchange import from_dds_proto, from_hdr_v2, to_dds_proto, to_hdr_v2
from spark_udaf.udaf.sql import register

__all__ = [
    "TiltframeSource",
    "aggregate",
    "append",
    "count",
    "finish",
    "from_dds_proto",
    "from_hdr_v2",
    "mean",
    "merge",
    "ordered_rollup",
    "progress",
    "quantile",
    "rank",
    "read",
    "register",
    "rollup",
    "rollup_into",
    "running",
    "scan_parquet",
    "stdev",
    "stream_into",
    "to_dds_proto",
    "to_hdr_v2",
]
