"""The operations of a measure as calls that can be timed: reduce, merge, finish, and the complete computation from rows
to results.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from aggr.arrow.bit_equality import same_bits
from aggr.bench.distributions import event_times
from aggr.bench.timing import Call
from aggr.function_inputs import EVENT_TIME
from aggr.groups.groups import Groups, group_by
from aggr.measure import Measure
from aggr.state_checks import mark_as_checked

# the name of the column with the group of each row
GROUP = "bench_group"
# the number of parts into which the rows of each group are divided; each part has one partial state
PARTS = 8


@dataclass(frozen=True)
class Operation:
    """One operation to be timed.

    Parameters
    ----------
    stage : str
        ``reduce``, ``merge``, ``finish``, or ``answers`` for the complete computation from rows to results.
    unit : str
        The unit of ``count``: ``row`` or ``state``.
    count : int
        The number of rows or states that one call processes.
    call : callable without parameters
    """

    stage: str
    unit: str
    count: int
    call: Call


@dataclass(frozen=True)
class MeasureCase:
    """A measure, and the rows from which its operations are timed.

    Parameters
    ----------
    measure : Measure
    rows : pa.Table
        The rows, with the columns of the measure and the column `GROUP`, which has numbers from 0 to
        ``group_count - 1``.
    group_count : int
    are_checked : bool
        Whether merge and finish receive states that are marked as checked, as if the same job had computed the states.
        Otherwise, merge and finish check the states, as they check states from a file.
    """

    measure: Measure
    rows: pa.Table
    group_count: int
    are_checked: bool = False

    def operations(self) -> list[Operation]:
        """Return the operations of the measure. The states that are merged and finished are computed by this method, so
        that the timed calls do not include their computation.
        """
        function = self.measure.function
        states = self.reduce_rows()
        parts = self.partial_states()
        state_count = len(states)
        part_count = len(parts)
        part_groups = self._groups_of_parts(part_count)
        if self.are_checked:
            states = mark_as_checked(states)
            parts = mark_as_checked(parts)
        return [
            Operation(stage="reduce", unit="row", count=len(self.rows), call=self.reduce_rows),
            Operation(
                stage="merge",
                unit="state",
                count=part_count,
                call=lambda: function.merge(parts, Groups(part_groups, self.group_count)),
            ),
            Operation(stage="finish", unit="state", count=state_count, call=lambda: function.finish(states)),
            Operation(stage="answers", unit="row", count=len(self.rows), call=self.compute_results),
        ]

    def reduce_rows(self) -> pa.StructArray:
        """Reduce the rows to one state per group.

        Each call creates a new `Groups` object. The object caches values, such as the order of rows, so later calls
        with the same object would be faster.
        """
        return self.measure.reduce(self.rows, Groups(self._group_ids, self.group_count), self._times)

    def partial_states(self) -> pa.StructArray:
        """Split the rows of each group into `PARTS` parts. Return the states of all parts, group after group."""
        part = np.arange(len(self.rows)) % PARTS
        groups = Groups(self._group_ids * PARTS + part, self.group_count * PARTS)
        return self.measure.reduce(self.rows, groups, self._times)

    def compute_results(self) -> pa.Array:
        """Compute the results from the rows: number the groups by the column `GROUP`, reduce and finish."""
        groups, _ = group_by([self.rows.column(GROUP).chunk(0)], len(self.rows))
        return self.measure.function.finish(self.measure.reduce(self.rows, groups, self._times))

    def merges_keep_bits(self) -> bool:
        """Return whether the merged partial states are bit-for-bit equal to the states of all rows."""
        parts = self.partial_states()
        merged = self.measure.function.merge(parts, Groups(self._groups_of_parts(len(parts)), self.group_count))
        return same_bits(merged, self.reduce_rows())

    @cached_property  # cached, so that the timed calls do not repeat the conversion
    def _group_ids(self) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
        return np.asarray(self.rows.column(GROUP).to_numpy(), np.intp)

    def _groups_of_parts(self, count: int) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
        return np.arange(count, dtype=np.intp) // PARTS

    @cached_property
    def _times(self) -> pa.Array | None:
        return event_times(len(self.rows)) if EVENT_TIME in self.measure.function.inputs else None
