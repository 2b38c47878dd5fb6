"""The Python workers of Spark: what to do once in each."""

from __future__ import annotations

import ctypes
import gc
import os
from functools import cache

import pyarrow as pa

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
_KEPT_BYTES = 1 << 28
OFF = "TILTFRAME_TUNE_WORKERS"


@cache
def tune_worker() -> None:
    """Make a worker ready, once in its life: Spark runs one task a core already, and collects garbage after each.

    Frozen, what has been imported is left out of those collections: some 20 ms of each task. Memory that is let go is
    kept for the next batch: asking the system for it anew costs as much as the work that is done in it.

    Spark reuses workers, so that other jobs may meet all three: Arrow's own thread pool of one thread, objects that
    are never collected, up to 256 MiB that the C library keeps. ``TILTFRAME_TUNE_WORKERS=0`` in the workers'
    environment turns them off; results are the same.
    """
    if os.environ.get(OFF) == "0":
        return
    _keep_memory()
    pa.set_cpu_count(1)
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
