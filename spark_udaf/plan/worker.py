"""The Python workers of Spark: what to do in each before a task."""

from __future__ import annotations

import ctypes
import gc
import os
import secrets
from itertools import count

import pyarrow as pa
from pyspark import TaskContext

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
_KEPT_BYTES = 1 << 28
OFF = "TILTFRAME_TUNE_WORKERS"
_TASKS = count(1)


def task_number() -> int:
    """Tell the number of the partition that this task reads, the same in each attempt; any number if no engine says."""
    context = TaskContext.get()
    return secrets.randbits(62) if context is None else context.partitionId()


def tune_worker() -> None:
    """Make a worker ready for a task: Spark runs one task a core already, and collects garbage after each.

    Frozen, what has been imported and loaded is left out of those collections: some 70 ms of each task. It is frozen
    before the first task of a worker, the second, the fourth, the eighth and so on: loops are loaded when they are
    first called, and what garbage is frozen with them stays little. Memory that is let go is kept for the next batch:
    asking the system for it again costs as much as the work that is done in it.

    Spark reuses workers, so that other jobs may meet all three: Arrow's own thread pool of one thread, objects that
    are never collected, up to 256 MiB that the C library keeps. ``TILTFRAME_TUNE_WORKERS=0`` in the workers'
    environment turns them off; results are the same.
    """
    if os.environ.get(OFF) == "0":
        return
    task = next(_TASKS)
    if task == 1:
        _keep_memory()
        pa.set_cpu_count(1)
    if task & (task - 1) == 0:
        gc.collect()
        gc.freeze()


def _keep_memory() -> None:
    """Tell the C library to hold on to what is freed, up to 256 MiB; where it cannot be told, nothing is lost."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
    mallopt(_MMAP_THRESHOLD, _KEPT_BYTES)
