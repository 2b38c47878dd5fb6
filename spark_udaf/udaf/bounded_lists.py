"""bounded_list: collect the values of each group into a list, and fail before long lists exhaust the JVM's memory.

    collect_list(x)                                     all values of a group
    sum(if x is not null: longest interval / limit)     overflows at the limit, in the tasks that fill the list

Spark cannot limit the length of a list. A second aggregate in the same query therefore fails if a list is too long: it
adds up one interval per value, and each interval is the longest interval of Spark divided by the limit. Spark evaluates
this sum for the same rows as the list, also in partial aggregation.
"""

from __future__ import annotations

import os
import re
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from spark_udaf.udaf.list_errors import interval_text, register_call

# An estimate of the number of bytes that each value of a list needs in the JVM: an object for the value, a reference
# to the object in a growing array, and a serialized copy.
_BYTES_PER_VALUE = 128
_MIN_VALUES = 100_000

# Matches Spark masters whose tasks run in the driver, such as ``local`` and ``local[4]``.
_LOCAL = re.compile(r"local(?:\[\s*(\d+|\*)\s*(?:,.*)?\])?")

# The default memory of a driver or an executor, according to Spark's documentation.
_DEFAULT_HEAP = "1g"
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def bounded_list(values: Column, label: str) -> Column:
    """Return a Column with the list of each group's values. The job fails if a list has too many values.

    Parameters
    ----------
    values : Column
        The values to collect. Nulls are left out.
    label : str
        The call, for the message of the error.
    """
    limit = max_list_values(SparkSession.getActiveSession())
    # The result must depend on the sum, because otherwise Spark would not evaluate the sum. The sum is null if the
    # group has no values.
    interval_sum = F.sum(F.when(values.isNotNull(), F.expr(interval_per_value(label, limit))))
    return F.when(interval_sum.isNotNull(), F.collect_list(values)).otherwise(F.array())


def interval_per_value(label: str, limit: int) -> str:
    """Return the text of an interval in SQL, whose sum overflows if it is added up about ``limit`` times. The overflow
    is an error in Spark, with and without ANSI mode. The message of the error is replaced by a message that names the
    call ``label``.
    """
    max_seconds = (2**63 - 1) // 1_000_000
    # The sum of ``limit`` intervals must not overflow. One second is subtracted from each interval, because
    # `interval_text` adds the call id to each interval as microseconds, which are less than a second.
    seconds = max_seconds // limit - 1
    return interval_text(seconds, register_call(label, limit))


def max_list_values(spark: SparkSession | None) -> int:
    """Return the number of values per group that fit into the heap of a task, at least 100,000. Without a session, the
    heap is unknown, and the number is 100,000.
    """
    conf: Any = None if spark is None else spark.conf
    if conf is None:
        return _MIN_VALUES
    local = _LOCAL.fullmatch(str(conf.get("spark.master", "") or ""))
    heap = conf.get("spark.driver.memory" if local else "spark.executor.memory", None) or _DEFAULT_HEAP
    cores = _threads(local) if local else int(conf.get("spark.executor.cores", None) or 1)
    return max(_MIN_VALUES, memory_bytes(str(heap)) // cores // _BYTES_PER_VALUE)


def memory_bytes(text: str) -> int:
    """Return the number of bytes of an amount of memory in the notation of Spark's settings.

    >>> memory_bytes("4g"), memory_bytes("512m")
    (4294967296, 536870912)
    """
    match = re.fullmatch(r"(\d+)\s*([bkmgt]?)b?", text.strip().lower())
    return memory_bytes(_DEFAULT_HEAP) if match is None else int(match[1]) * _UNITS[match[2]]


def _threads(local_master: re.Match[str]) -> int:
    """Return the number of tasks that run at once in the driver, and share its heap. ``local_master`` is the match of
    `_LOCAL` for a master such as ``local[4]``.
    """
    threads = local_master[1] or "1"
    return (os.cpu_count() or 1) if threads == "*" else int(threads)
