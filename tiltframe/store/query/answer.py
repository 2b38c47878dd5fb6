"""Answers: the results of a query, with their schema, their cost and messages about missing data.

The parts of a store are its units of storage. A part consists of states of one level that were written together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from tiltframe.ranges import EVER, align_outward, intersection
from tiltframe.store.log.snapshot import PartRanges
from tiltframe.store.query.derived_keys import DerivedKey, count_unmapped
from tiltframe.time_range import fill_open_ends

if TYPE_CHECKING:
    from tiltframe.store.query.plan import QueryPlan


@dataclass(frozen=True)
class PlannedRead:
    """A query plan with the parts of a snapshot that it reads.

    Parameters
    ----------
    plan : QueryPlan
    part_ranges : sequence of (Part, (int, int))
        The parts to read, each with the range of window starts to read, in microseconds UTC.
    retained_from : int
        The time before which windows may have been removed from the level to read, in microseconds UTC.
    closed_before : int
        If the query has ``closed=True``, the time before which all streams have closed their windows, in microseconds
        UTC. Otherwise, the latest possible time.
    is_filled : bool
        Whether the results include windows without rows.
    """

    plan: QueryPlan
    part_ranges: PartRanges
    retained_from: int
    closed_before: int = EVER[1]
    is_filled: bool = False

    @property
    def estimated_row_count(self) -> float:
        """The number of rows of states that are read, estimated from the sizes of the parts."""
        shares = ((part.rows, high - low, part.range) for part, (low, high) in self.part_ranges)
        return sum(rows * length / (end - start) for rows, length, (start, end) in shares)

    @property
    def estimated_window_count(self) -> float:
        """The number of windows in the results, estimated from the ranges and the rows of the parts."""
        if self.plan.has_single_window:
            return 1
        window = self.plan.window
        span = self.plan.span()
        # the ranges of window starts to read, limited to the range of the plan
        ranges = intersection((piece for _, piece in self.part_ranges), [span])
        aligned = [align_outward((ranges[0][0], ranges[-1][1]), window)] if ranges else []
        stored_span = next(iter(intersection(aligned, [span])), (0, 0))
        low, high = fill_open_ends(span, stored_span) if self.is_filled else stored_span
        in_range = max(high - low, 0) / window.length * window.max_overlap
        return in_range if self.is_filled else min(in_range, self.estimated_row_count * window.max_overlap)


@dataclass(frozen=True)
class Cost:
    """The estimated size of a query. The estimate reads only the list of parts.

    Parameters
    ----------
    rows : int
        The number of rows of states that the query would read.
    windows : int
        The number of windows in the results, for all kinds of windows together.
    """

    rows: int
    windows: int


@dataclass(frozen=True)
class Answer:
    """The answer of a store to a query.

    Parameters
    ----------
    schema : pa.Schema
        The schema of the results.
    slices : iterator of tables
        The results, as at least one table, which may have no rows. The slices can be iterated only once.
    expired : tuple of str
        Messages about windows in the range that have expired, one for each affected level that is read.
    unknown : tuple of str
        Messages about measures that were added later and have no values in part of the range.
    readings : sequence of PlannedRead
        The parts that are read, with the query plan, for each kind of window in the results.
    derived_keys : name -> DerivedKey
        The keys of results that are computed from keys of the frame.
    """

    schema: pa.Schema
    slices: Iterator[pa.Table]
    expired: tuple[str, ...]
    unknown: tuple[str, ...] = ()
    readings: Sequence[PlannedRead] = ()
    derived_keys: Mapping[str, DerivedKey] = field(default_factory=dict)

    def reporting_unmapped(self, report: Callable[[str], None]) -> Answer:
        """Return an answer with the same results. If the results have derived keys, the returned answer calls
        ``report`` after the last slice was read.

        Parameters
        ----------
        report : function of str
            A function that receives a message for each derived key that is null in some results, with the number of
            such results.

        Returns
        -------
        Answer
        """
        if not self.derived_keys:
            return self
        return replace(self, slices=count_unmapped(self.slices, self.derived_keys, report))

    @property
    def cost(self) -> Cost:
        """The estimated number of rows of states that the query reads, and the estimated number of windows in its
        results. The estimate reads only the list of parts.
        """
        rows = sum(planned_read.estimated_row_count for planned_read in self.readings)
        windows = sum(planned_read.estimated_window_count for planned_read in self.readings)
        return Cost(round(rows), round(windows))

    def table(self) -> pa.Table:
        """Read all results, and return them as one table."""
        return pa.concat_tables(self.slices)
