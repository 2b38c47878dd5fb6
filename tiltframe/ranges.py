"""Ranges of time ``[from, to)`` in microseconds UTC: unions, intersections and differences of lists of ranges.

These functions return sorted lists of ranges that do not overlap or touch.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from windows import TimeWindow

# [from, to), in microseconds UTC; a window belongs to a range if the start of the window lies in the range
Range: TypeAlias = tuple[int, int]

_EPOCH = dt.datetime(1970, 1, 1)
# the range of all times
EVER: Range = (-(2**62), 2**62)
# The beginning of the year 3, the earliest time whose window is computed. This window may begin up to a year earlier,
# and times before the year 2 are not supported.
EARLIEST_TIME = (dt.datetime(3, 1, 1) - _EPOCH) // dt.timedelta(microseconds=1)
# The beginning of the year 9998, the last year of event times. Windows of times from there on are not computed.
LATEST_TIME = (dt.datetime(9998, 1, 1) - _EPOCH) // dt.timedelta(microseconds=1)


def union(ranges: Iterable[Range]) -> list[Range]:
    """Return sorted ranges that cover the same times as ``ranges``. Ranges that overlap or touch are joined.

    >>> union([(3, 5), (0, 1), (1, 2), (4, 9)])
    [(0, 2), (3, 9)]
    """
    joined: list[Range] = []
    for low, high in sorted(span for span in ranges if span[0] < span[1]):
        if joined and low <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return joined


def intersection(ranges: Iterable[Range], other_ranges: Iterable[Range]) -> list[Range]:
    """Return the intersection of two lists of ranges.

    >>> intersection([(0, 5), (7, 9)], [(4, 8)])
    [(4, 5), (7, 8)]
    """
    merged_ranges = union(other_ranges)
    return union((max(a, c), min(b, d)) for a, b in union(ranges) for c, d in merged_ranges if max(a, c) < min(b, d))


def difference(ranges: Iterable[Range], removed: Sequence[Range]) -> list[Range]:
    """Return the ranges ``ranges`` without the parts that ranges in ``removed`` cover.

    >>> difference([(0, 10)], [(2, 3), (5, 20)])
    [(0, 2), (3, 5)]
    """
    left = union(ranges)
    for low, high in removed:
        left = [side for a, b in left for side in ((a, min(b, low)), (max(a, high), b)) if side[0] < side[1]]
    return left


def as_text(at: int) -> str:
    """Return a moment, in microseconds UTC, as ISO 8601 text.

    >>> as_text(1_500_000)
    '1970-01-01T00:00:01.500000Z'
    """
    return (_EPOCH + dt.timedelta(microseconds=at)).isoformat() + "Z"


def range_text(span: Range) -> str:
    """Return a range as text, in the form that the command line reads: its start and end, separated by a comma."""
    return ",".join(as_text(at) for at in span)


def align_outward(span: Range, level: TimeWindow) -> Range:
    """Return the shortest range that contains ``span`` and consists of complete windows of a level. The windows of the
    level must follow each other without gaps.

    >>> from windows import window
    >>> align_outward((61_000_000, 62_000_000), window("1m"))
    (60000000, 120000000)
    """
    last = level.starts(np.array([span[1] - 1]))
    return int(level.starts(np.array([span[0]]))[0]), int(level.ends(last)[0])


def inside(starts: NDArray[np.int64], ranges: Iterable[Range]) -> NDArray[np.bool_]:
    """Return a mask of the window starts that lie in one of the ranges.

    >>> inside(np.array([0, 1, 5]), [(1, 3), (5, 6)]).tolist()
    [False, True, True]
    """
    mask: NDArray[np.bool_] = np.zeros(len(starts), np.bool_)
    for low, high in ranges:
        mask |= (starts >= low) & (starts < high)
    return mask
