"""Bytes of one state after different numbers of rows."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from aggr.bench.distributions import event_times
from aggr.function_inputs import EVENT_TIME
from aggr.groups.groups import Groups
from aggr.measure import Measure

ROW_COUNTS = (1, 100, 10_000, 1_000_000)


def state_sizes(measure: Measure, rows: pa.Table) -> Iterator[tuple[int, int | None]]:
    """Yield numbers of rows, each with the size of the state of that many rows, in bytes of Arrow's memory.

    Parameters
    ----------
    measure : Measure
    rows : pa.Table
        The rows. Entries of `ROW_COUNTS` that exceed the length of this table are left out.

    Yields
    ------
    (int, int or None)
        A number of rows, and the bytes of their state, or None if the function raises an error for this number of rows,
        for example because the number exceeds the function's ``max``.
    """
    for count in ROW_COUNTS:
        if count > len(rows):
            return
        first_rows = rows.slice(0, count)
        times = event_times(count) if EVENT_TIME in measure.function.inputs else None
        try:
            states = measure.reduce(first_rows, Groups.single(count), times)
        except (ValueError, OverflowError):
            yield count, None
        else:
            yield count, states.nbytes
