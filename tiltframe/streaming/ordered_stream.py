"""Ordered windows while events come: rows wait until the watermark has passed them, and are then taken in their order.

rows ── add_rows ──▶ waiting ── advance(watermark) ──▶ in the order of time ──▶ results
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from aggr.arguments import checked_type, checked_whole, shown
from tiltframe.event_time import event_times
from tiltframe.ordered.aggregation import RunningAggregation
from tiltframe.ordered.chain import OrderedRollup, finish_ordered
from tiltframe.streaming.progress import Progress
from windows import MAX_INSTANT, MIN_INSTANT


class OrderedStream:
    """The ordered windows of a stream: count, interval, session, since, sliding, and chains of them.

    A result comes with the row that brings it about, or with the tick, once the watermark has passed it. Of each key a
    few states are kept, and the rows that the watermark has not passed. ``pickle`` saves all of it, and goes on.

    Parameters
    ----------
    windows : RunningAggregation or OrderedRollup
        What rows are given to in their order; it has taken none yet.

    Raises
    ------
    ValueError
        If it is neither.

    Guarantee
    ---------
    Up to the end the same results, to the bit, as `tiltframe.running` and `tiltframe.ordered_rollup` give of all rows
    but the late ones, sorted, however they are cut into batches.

    Examples
    --------
    >>> import aggr
    >>> stream = OrderedStream(RunningAggregation({"total": aggr.sum("x")}, "sliding(2)", time="ts"))
    >>> late = stream.add_rows(pa.table({"ts": [2000, 0, 1000], "x": [4, 1, 2]}))
    >>> stream.advance(2_000_000).column("total").to_pylist()
    [1, 3]
    >>> stream.add_rows(pa.table({"ts": [1500, 2500], "x": [100, 8]})).column("x").to_pylist()
    [100]
    >>> stream.close().column("total").to_pylist()
    [6, 12]
    """

    def __init__(self, windows: RunningAggregation | OrderedRollup) -> None:
        """Begin without rows."""
        if not isinstance(windows, RunningAggregation | OrderedRollup):
            raise ValueError(f"windows must be a RunningAggregation or an OrderedRollup; got {shown(windows)}")
        self._windows = windows
        self._order = windows.query.order if isinstance(windows, RunningAggregation) else windows.frame.order
        self._waiting: pa.Table | None = None
        self._watermark: int | None = None
        self._rows = self._late = self._emitted = 0

    def add_rows(self, rows: pa.Table) -> pa.Table:
        """Take a batch of rows in the order of their arrival.

        Parameters
        ----------
        rows : table
            Of the same columns in every batch.

        Returns
        -------
        table
            The rows that came behind the watermark: they are late, and not taken.

        Raises
        ------
        ValueError, TypeError
            If rows do not fit. Nothing has changed then.
        """
        checked_type(rows, pa.Table, "rows")
        if self._waiting is None:
            made = self._windows
            (made.query if isinstance(made, RunningAggregation) else made.frame).check(rows.schema)
        elif not rows.schema.equals(self._waiting.schema):
            raise ValueError(f"batches must have the same columns; got {rows.schema} after {self._waiting.schema}")
        late = event_times(rows.column(self._order.time), self._order.time) < self._at
        taken = rows.filter(pa.array(~late)) if late.any() else rows
        self._waiting = taken if self._waiting is None else pa.concat_tables([self._waiting, taken])
        self._rows, self._late = self._rows + len(late), self._late + int(late.sum())
        return rows.filter(pa.array(late))

    def advance(self, watermark: int | None = None) -> pa.Table:
        """Tell the time, and get the results of the rows, and of the ticks, that come before it.

        Parameters
        ----------
        watermark : int, optional
            No events before it are awaited; microseconds UTC. One that is lower than before changes nothing.

        Returns
        -------
        table
            As `tiltframe.RunningAggregation.add` or `tiltframe.OrderedRollup.add` gives it, in the order of keys and
            time; without columns before the first rows have come. `results` reads the results of states.

        Raises
        ------
        ValueError
            If this is no such moment, or the stream is closed.
        """
        if watermark is not None:
            checked_whole(watermark, "watermark", MIN_INSTANT, MAX_INSTANT - 1)
            self._watermark = max(watermark, self._at)
        if self._waiting is None:
            return pa.table({})
        passed = event_times(self._waiting.column(self._order.time), self._order.time) < self._at
        emitted = self._windows.add(self._waiting.filter(pa.array(passed)), self._watermark)
        self._waiting = self._waiting.filter(pa.array(~passed)).combine_chunks()
        self._emitted += emitted.num_rows
        return emitted

    def close(self) -> pa.Table:
        """Take the rows that wait, for no more are to come.

        Returns
        -------
        table
            As `advance` gives it; with ``emit="final"`` the results of the end.

        Raises
        ------
        ValueError
            If the stream is closed.
        """
        if self._waiting is None:
            return pa.table({})
        emitted = self._windows.finish(self._waiting)
        self._waiting = self._waiting.slice(0, 0)
        self._emitted += emitted.num_rows
        return emitted

    def results(self, emitted: pa.Table) -> pa.Table:
        """Read the results of what was emitted: of a chain's states; others are results as they are.

        Parameters
        ----------
        emitted : table
            From `advance` or `close`.

        Returns
        -------
        table

        Raises
        ------
        ValueError
            If these are no states of the chain.
        """
        if isinstance(self._windows, RunningAggregation) or not emitted.num_columns:
            return emitted
        return finish_ordered(emitted, self._windows.frame)

    @property
    def progress(self) -> Progress:
        """What was done so far, and what is held: the bytes are those of the rows that wait."""
        return Progress(
            rows=self._rows,
            late_rows=self._late,
            emitted_rows=self._emitted,
            watermark_us=self._watermark,
            state_bytes=0 if self._waiting is None else self._waiting.nbytes,
        )

    @property
    def _at(self) -> int:
        return int(np.iinfo(np.int64).min) if self._watermark is None else self._watermark
