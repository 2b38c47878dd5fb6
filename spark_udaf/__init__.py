"""spark_udaf: mergeable aggregates and tilt frames on classic Spark and Spark Connect.

Overview::

    import spark_udaf as su
    states = su.rollup(df, frame)                  # level, window_start, window_end, keys…, states
    states = su.aggregate(df, ["host"], measures)  # host, states: groups without windows
    results = su.finish(states, frame)             # one row per state, with its results in the place of the state

    su.group_by(df, "host", F.window("ts", "1 hour")).agg(aggr.dds("ms", [0.99]))   # results in one step

    states.select(su.states.quantile("ms", 0.99))   # results from states, without a shuffle

    su.rollup_into(df, store, "nightly", 20240501) # write rows into a frame store; su.append writes states
    su.read(spark, store.uri, per="1h")            # read results from it
    su.read_states(spark, store.uri, per="1h")     # read states from it
    su.join(df, store, on="host", per="1h")        # each row with the results of a store, in batches and streams
    su.backfill(df, store, "archive", "1d")        # write past rows, one day per commit; can be interrupted and resumed
    su.sql("SELECT …", store)                      # a query of the raw table, answered from a store of its rows
    su.sql(spark, "SELECT aggr_dds(ms), max(ms) …")  # a query with functions of this library and of Spark
    su.stream_into(df, store, name=…, checkpoint=…)  # write a stream into a store
    su.stream(df, frame, emit=…, late=…)           # emit the windows of a stream to any sink

    from spark_udaf import functions as A          # aggregate functions for groupBy().agg() and over()
    su.register(spark)                             # register SQL functions, such as aggr_dds
    su.warm(spark)                                 # compile the functions' loops on the workers before the first job
"""

from typing import Any

# This is imported first, because Arrow's allocator reads its setting when pyarrow is loaded.
from spark_udaf.versions import worker_allocator  # noqa: F401  # isort: skip
from aggr.entry_points import NO_OBJECT, load_name
from aggr.extras import MissingExtra

try:
    import pyspark  # noqa: F401
except ImportError as error:
    raise MissingExtra(
        what="spark_udaf outside of a cluster that provides PySpark", extra="spark-local", error=error
    ) from None

from spark_udaf.versions import features  # noqa: F401 (imported first, because it checks the version of PySpark)

from spark_udaf import states  # isort: skip
from spark_udaf.batch.aggregate import aggregate, finish, merge
from spark_udaf.batch.rollup import rollup
from spark_udaf.batch.running import ordered_rollup, running
from spark_udaf.batch.warm import warm
from spark_udaf.plan.plain_scan import scan_of
from spark_udaf.plan.scan import scan_parquet
from spark_udaf.store.join import join
from spark_udaf.store.source import read, read_states
from spark_udaf.store.write import append, backfill, replace, retract, rollup_into
from spark_udaf.streaming.progress import progress
from spark_udaf.streaming.scan_stream import scan_parquet_stream
from spark_udaf.streaming.stream import stream
from spark_udaf.streaming.stream_into import stream_into
from spark_udaf.udaf.group_by import group_by
from spark_udaf.udaf.query import sql
from spark_udaf.udaf.sql import register
from spark_udaf.versions.features import has_data_source
from spark_udaf.versions.grouped_data import reject_measures_in_pyspark_agg

__all__ = [
    "aggregate",
    "append",
    "backfill",
    "finish",
    "group_by",
    "join",
    "merge",
    "ordered_rollup",
    "progress",
    "read",
    "read_states",
    "register",
    "replace",
    "retract",
    "rollup",
    "rollup_into",
    "running",
    "scan_of",
    "scan_parquet",
    "scan_parquet_stream",
    "sql",
    "states",
    "stream",
    "stream_into",
    "warm",
]

reject_measures_in_pyspark_agg()

if has_data_source():
    from spark_udaf.store.data_source import TiltframeSource

    __all__ += ["TiltframeSource"]


def __getattr__(name: str) -> Any:
    """Return the object that an entry point of the group ``spark_udaf.names`` declares under this name.

    Raise ``AttributeError`` for other names. If ``su.states`` has a function of this name, the message refers to it.
    """
    if not name.startswith("_"):
        added = load_name("spark_udaf.names", name)
        if added is not NO_OBJECT:
            return added
    if name in states.__all__:
        raise AttributeError(
            f"su has no function {name}; for a column of states, use su.states.{name}; to aggregate values of rows, "
            "use spark_udaf.functions, such as A.count('x') or A.dds('x', [0.99])"
        )
    raise AttributeError(f"module 'spark_udaf' has no attribute {name!r}")
