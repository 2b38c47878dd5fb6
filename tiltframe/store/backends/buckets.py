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

# the possible sizes of buckets, ascending
_SIZES = tuple(window(size) for size in ("1h", "1d", "1mo", "1y"))
_NUMPY_UNITS = {"h": "h", "d": "D", "mo": "M", "y": "Y"}


def bucket_of(level: TimeWindow) -> Tumbling:
    """Return the bucket of a level: the shortest of hour, day, month and year (UTC) that is at least as long as 300
    windows of the level. Return the year if even a year is shorter.

    >>> [bucket_of(window(size)).name for size in ("1s", "10s", "1m", "10m", "1h", "1d", "1y")]
    ['1h', '1h', '1d', '1mo', '1mo', '1y', '1y']
    """
    # With 300 windows, files are neither tiny nor huge. A file has, for example, 360 windows of 10s (an hour), or 365
    # windows of 1d (a year).
    return next((size for size in _SIZES if size.length >= 300 * level.length), _SIZES[-1])


def bucket_names(starts: NDArray[np.int64], level: TimeWindow) -> NDArray[np.str_]:
    """Return the name of the bucket of each window, such as ``2024-05-01T13``, ``2024-05-01``, ``2024-05`` or ``2024``.
    ``starts`` are the starts of the windows in microseconds UTC.
    """
    bucket = bucket_of(level)
    begins = bucket.starts(starts).astype("datetime64[us]")
    names: NDArray[np.str_] = begins.astype(f"datetime64[{_NUMPY_UNITS[bucket.unit]}]").astype(np.str_)
    return names


def split_by_bucket(states: pa.Table, level: TimeWindow) -> Iterator[tuple[str, pa.Table]]:
    """Yield the name of each bucket of time, and the rows of ``states`` whose windows start in this bucket. The order
    of the rows of a bucket does not change. If ``states`` is sorted by window_start, no rows are copied.

    >>> from tiltframe.instants import as_instants
    >>> states = pa.table({"window_start": as_instants(np.array([0, 86_400_000_000, 86_460_000_000]))})
    >>> [(name, rows.num_rows) for name, rows in split_by_bucket(states, window("1m"))]
    [('1970-01-01', 1), ('1970-01-02', 2)]
    """
    begins = bucket_of(level).starts(instants_of(states))
    if (np.diff(begins) < 0).any():
        order = np.argsort(begins, kind="stable")
        states = states.take(pa.array(order))
        begins = begins[order]
    edges = np.flatnonzero(np.diff(begins, prepend=begins[:1] - 1))
    names = bucket_names(begins[edges], level).tolist()
    for name, (first, last) in zip(names, pairwise([*edges.tolist(), len(begins)]), strict=True):
        yield name, states.slice(first, last - first)
