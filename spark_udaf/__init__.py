"""spark_udaf: tilt frames on Spark DataFrames, on classic Spark and Spark Connect alike.

import spark_udaf as su
states = su.rollup(df, frame)        # level, window_start, window_end, keys…, states
results = su.finish(states, frame)   # the same rows, results for states
"""

from spark_udaf.rollup import finish, rollup
from spark_udaf.scan import scan_parquet

__all__ = ["finish", "rollup", "scan_parquet"]
