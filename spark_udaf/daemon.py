"""Spark's daemon of Python workers, which imports this library once. Workers are forked from the daemon, so they do not
import the library again.

Spark starts a worker for each running task. It also starts a new worker after a task whose output was not read
completely, for example because of ``limit`` or ``first``. With the setting
``spark.python.daemon.module=spark_udaf.daemon`` the library is imported once on each executor. The setting is read when
a session starts; the library must be installed on the executors.
"""

import pyarrow.compute  # noqa: F401  (for the workers)
from pyspark.daemon import manager

import aggr
import spark_udaf.plan.worker  # noqa: F401

# This loads the functions that entry points of other packages declare, so that no worker has to load them.
aggr.names()
if __name__ == "__main__":
    manager()
