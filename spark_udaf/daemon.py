"""Spark's daemon of Python workers, which imports this library once. Workers are forked from the daemon, so they do not
import it again.

Spark starts a worker for each running task, and starts another one after a task whose output was not read to its end,
for example because of ``limit`` or ``first``. With the setting ``spark.python.daemon.module=spark_udaf.daemon`` the
library is imported once on each executor. The setting is read when a session starts; the library must be installed on
the executors.
"""

import pyarrow.compute  # noqa: F401  (for the workers)
from pyspark.daemon import manager

import aggr
import spark_udaf.plan.worker  # noqa: F401

aggr.names()  # This loads the functions that entry points of other packages declare, so that no worker has to do it.
if __name__ == "__main__":
    manager()
