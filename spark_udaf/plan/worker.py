"""The Python workers of Spark: settings before each task."""

from __future__ import annotations

import ctypes
import gc
import os
import secrets
from itertools import count

import pyarrow as pa
from pyspark import TaskContext

from spark_udaf.versions.worker_allocator import TUNE_VARIABLE

# The numbers that identify two parameters of glibc's function mallopt.
_TRIM_THRESHOLD = -1
_MMAP_THRESHOLD = -3
_MAX_FREED_BYTES = 1 << 28
_task_ordinals = count(1)  # a counter of the tasks that run in this process


def partition_index_or_random() -> int:
    """Return the index of the partition of the current task, which is the same in each attempt of the task. Outside of
    a Spark task, return a random number.
    """
    context = TaskContext.get()
    return secrets.randbits(62) if context is None else context.partitionId()


def tune_worker() -> None:
    """Prepare a worker for a task: limit threads, exclude loaded objects from garbage collection, keep freed memory.

    Arrow uses one thread, because Spark runs one task per core. Spark collects garbage after each task, which takes
    about 70 ms for imported modules and loaded code. These objects are therefore excluded from garbage collection
    (frozen) before the first task of a worker. The exclusion is repeated before the second, fourth, eighth … task,
    because tasks load further objects, such as compiled loops at their first call. The C library keeps up to 256 MiB of
    freed memory, because requesting it from the system again takes as long as the work itself.

    Spark reuses workers, so these settings affect other jobs. ``TILTFRAME_TUNE_WORKERS=0`` in the environment of the
    workers disables these settings. Results are the same.
    """
    if os.environ.get(TUNE_VARIABLE) == "0":
        return
    task_ordinal = next(_task_ordinals)
    if task_ordinal == 1:
        _keep_freed_memory()
        pa.set_cpu_count(1)
    if task_ordinal & (task_ordinal - 1) == 0:  # the first, second, fourth, eighth … task
        gc.collect()
        gc.freeze()


def _keep_freed_memory() -> None:
    """Configure glibc to keep up to 256 MiB of freed memory. With another C library, do nothing."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    mallopt(_TRIM_THRESHOLD, _MAX_FREED_BYTES)
    mallopt(_MMAP_THRESHOLD, _MAX_FREED_BYTES)
