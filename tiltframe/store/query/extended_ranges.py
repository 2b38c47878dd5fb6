"""Extended ranges: a query that needs a large share of a part computes the table of the complete part, so that the
table can be kept for queries of other ranges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tiltframe.instants import instants_of
from tiltframe.ranges import Range

if TYPE_CHECKING:
    from tiltframe.store.log.snapshot import PartRanges

# Ranges of parts are extended only if they have at least this share of the time of the complete parts.
_MIN_SHARE = 0.5


def extend_each(part_ranges: PartRanges) -> PartRanges:
    """Replace each range by that of its complete part, if the range is a large enough share of it."""
    return [extended for piece in part_ranges for extended in extend_together([piece])]


def extend_together(part_ranges: PartRanges) -> PartRanges:
    """Return the complete parts if the time from the first to the last of the ranges is a large enough share of that of
    the complete parts. Otherwise, return ``part_ranges``.
    """
    complete: PartRanges = [(part, part.range) for part, _ in part_ranges]
    is_large = _length(hull_of(part_ranges)) >= _MIN_SHARE * _length(hull_of(complete))
    return complete if is_large else part_ranges


def are_complete(part_ranges: PartRanges) -> bool:
    """Return whether all ranges are those of complete parts."""
    return all(part_range == part.range for part, part_range in part_ranges)


def hull_of(part_ranges: PartRanges) -> Range:
    """Return the range from the start of the first range to the end of the last one. There must be at least one."""
    return min(low for _, (low, _) in part_ranges), max(high for _, (_, high) in part_ranges)


def select_range(windows: pa.Table, span: Range) -> pa.Table:
    """Return the rows of a table whose windows start in ``span``. The rows are sorted by the starts of windows."""
    first, end = np.searchsorted(instants_of(windows), span).tolist()
    return windows.slice(first, end - first)


def _length(span: Range) -> int:
    return span[1] - span[0]
