"""Buckets: the hours, days, months or years by which the states of a level are divided into files. States are stored
together if their windows start in the same bucket.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tiltframe.instants import instants_of
from windows import TimeWindow, Tumbling, window

_NUMPY_UNITS = {"h": "h", "d": "D", "mo": "M", "y": "Y"}


def bucket_of(level: TimeWindow) -> Tumbling:
    """Return the bucket of a level: the shortest of hour, day, month and year (UTC) that contains at least 300 windows.
    Levels with long windows have years.

    >>> [bucket_of(window(size)).name for size in ("1s", "10s", "1m", "10m", "1h", "1d", "1y")]
    ['1h', '1h', '1d', '1mo', '1mo', '1y', '1y']
    """
    # 300 is below the 360 windows of 10s in an hour and the 365 days of a year, so that files are neither tiny nor huge
    sizes = [window(size) for size in ("1h", "1d", "1mo", "1y")]
    return next((size for size in sizes if size.length >= 300 * level.length), sizes[-1])


def bucket_names(starts: NDArray[np.int64], level: TimeWindow) -> NDArray[np.str_]:
    """Return the name of each window's bucket: ``2024-05-01T13``, ``2024-05-01``, ``2024-05`` or ``2024``."""
    bucket = bucket_of(level)
    begins = bucket.starts(starts).astype("datetime64[us]")
    names: NDArray[np.str_] = begins.astype(f"datetime64[{_NUMPY_UNITS[bucket.unit]}]").astype(np.str_)
    return names


def split_by_bucket(states: pa.Table, level: TimeWindow) -> Iterator[tuple[str, pa.Table]]:
    """Yield the name and the states of each bucket of time. The order of the states of a bucket does not change. States
    that are sorted by window_start are not copied.

    >>> from tiltframe.instants import as_instants
    >>> states = pa.table({"window_start": as_instants(np.array([0, 86_400_000_000, 86_460_000_000]))})
    >>> [(name, rows.num_rows) for name, rows in split_by_bucket(states, window("1m"))]
    [('1970-01-01', 1), ('1970-01-02', 2)]
    """
    begins = bucket_of(level).starts(instants_of(states))
    if (np.diff(begins) < 0).any():
        order = np.argsort(begins, kind="stable")
        states, begins = states.take(pa.array(order)), begins[order]
    edges = np.flatnonzero(np.diff(begins, prepend=begins[:1] - 1))
    names = bucket_names(begins[edges], level).tolist()
    for name, (first, last) in zip(names, pairwise([*edges.tolist(), len(begins)]), strict=True):
        yield name, states.slice(first, last - first)
