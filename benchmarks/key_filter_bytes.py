"""The bytes that a query for one of 100 keys reads, as a share of the bytes that a query for all keys reads.

The bytes are those that read calls return to the process, as counted by Linux in ``/proc/self/io``. They include the
footers of files and the log of the store.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import aggr
from tiltframe import FrameStore, TiltFrame, rollup
from tiltframe.store.backends import set_cache_memory
from tiltframe.store.backends.cache_memory import cache_memory

HOSTS = 100
DAYS = 30
# The length of an hour in microseconds.
HOUR = 3_600_000_000
# 2024-05-01 in microseconds since 1970.
BEGIN = 1_714_521_600_000_000
FRAME = TiltFrame(
    ["1h", "1d"],
    time="ts",
    keys=["host"],
    measures={"n": aggr.count(), "mean": aggr.avg("x"), "p": aggr.dds("x", [0.5, 0.99])},
)


def write_month_store(folder: Path, rows_per_hour: int = 5) -> FrameStore:
    """Write a compacted store of 30 days and 100 hosts to ``folder``, with one commit, and return it. Each host has
    ``rows_per_hour`` events per hour.
    """
    rng = np.random.default_rng(7)
    hours = np.arange(DAYS * 24) * HOUR + BEGIN
    hosts = np.char.add("host-", np.arange(HOSTS).astype(str))
    count = len(hours) * HOSTS * rows_per_hour
    events = pa.table(
        {
            "ts": pa.array(np.repeat(hours, HOSTS * rows_per_hour)).cast(pa.timestamp("us", "UTC")),
            "host": pa.array(np.tile(np.repeat(hosts, rows_per_hour), len(hours))),
            "x": rng.lognormal(3, 1, count),
        }
    )
    store = FrameStore(folder / "hours", FRAME)
    store.append(rollup(events, FRAME), "month", 0)
    store.compact()
    return store


def bytes_read(call: Callable[[], Any]) -> int:
    """Call ``call`` twice without caches of files, and return the number of bytes that the second call reads."""
    previous_limit = cache_memory()
    set_cache_memory(0)
    try:
        call()
        before = _bytes_read_so_far()
        call()
        return _bytes_read_so_far() - before
    finally:
        set_cache_memory(previous_limit)


def bytes_ratio_of_one_key(store: FrameStore) -> float:
    """Return the bytes read for a month of one host, divided by the bytes read for the same month of all hosts."""
    bytes_of_one_key = bytes_read(lambda: store.query("1h", where="host = 'host-42'"))
    return bytes_of_one_key / bytes_read(lambda: store.query("1h"))


def _bytes_read_so_far() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])
