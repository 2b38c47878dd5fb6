"""The Python workers of Spark: what to do once in each."""

from __future__ import annotations

import gc
from functools import cache

import pyarrow as pa


@cache
def settle() -> None:
    """Make a worker ready, once in its life: Spark runs one task a core already, and collects garbage after each.

    Frozen, what has been imported is left out of those collections: some 20 ms of each task.
    """
    pa.set_cpu_count(1)
    gc.collect()
    gc.freeze()
