"""Ordered windows in a stream: rows are stored until the watermark has passed them, and are then processed in the order
of their times.
"""

from __future__ import annotations

import copy
import datetime as dt

import numpy as np
import pyarrow as pa

from aggr.arguments import checked_type, shown
from tiltframe.event_time import event_times
from tiltframe.ordered.aggregator import OrderedAggregator, columns_text
from tiltframe.ordered.query import OrderedQuery
from tiltframe.streaming.moments import check_unit, read_moment
from tiltframe.streaming.progress import Progress
from tiltframe.streaming.saved import VERSION, Saved, check_version, read_saved
from tiltframe.streaming.stored import StoredTable
from windows.timezone import Instants

_WAITING = "waiting"


class OrderedStream:
    """Ordered windows of a stream: windows of the kinds count, interval, session, since and sliding
    (`RunningAggregation`), or a chain of such windows (`OrderedRollup`).

    A row is processed when the watermark has passed its time, and a window that ends at a tick is emitted when the
    watermark has passed the tick. A tick is the start of a unit of the clock, such as an hour. Memory contains a few
    states per key, and the rows that the watermark has not passed. `to_ipc` saves these states and rows.

    Parameters
    ----------
    windows : RunningAggregation or OrderedRollup
        The aggregation that computes the windows. It must not have processed any rows.

    Raises
    ------
    ValueError
        If ``windows`` is another object.

    Guarantee
    ---------
    The results of a complete stream are bit-for-bit those of `tiltframe.running` or `tiltframe.ordered_rollup` for all
    rows that were not late, sorted by time. The results do not depend on how rows are split into batches.

    Examples
    --------
    >>> import aggr
    >>> from tiltframe import RunningAggregation
    >>> stream = OrderedStream(RunningAggregation({"total": aggr.sum("x")}, "sliding(2)", time="ts"))
    >>> late = stream.add_rows(pa.table({"ts": [2000, 0, 1000], "x": [4, 1, 2]}))  # the times are in milliseconds
    >>> stream.advance(2_000_000).column("total").to_pylist()  # the watermark is in microseconds
    [1, 3]
    >>> stream.add_rows(pa.table({"ts": [1500, 2500], "x": [100, 8]})).column("x").to_pylist()
    [100]
    >>> stream.close().column("total").to_pylist()
    [6, 12]
    """

    def __init__(self, windows: OrderedAggregator) -> None:
        """Create a stream that has not received any rows."""
        self._windows = checked_type(windows, OrderedAggregator, "windows")
        self._waiting: pa.Table | None = None
        self._watermark: int | None = None
        self._rows = self._late = self._emitted = 0

    def add_rows(self, rows: pa.Table) -> pa.Table:
        """Add a batch of rows in any order, and return the late rows. The other rows are processed when the watermark
        has passed them.

        Parameters
        ----------
        rows : table
            Rows with the same columns and types in every batch.

        Returns
        -------
        table
            The late rows, whose times are before the watermark. They are not processed.

        Raises
        ------
        ValueError, TypeError
            If the rows do not fit the aggregation. In these cases, the stream is unchanged.
        """
        checked_type(rows, pa.Table, "rows")
        if self._waiting is None:
            self._windows.query.check(rows.schema)
        elif not rows.schema.equals(self._waiting.schema):
            raise ValueError(
                f"batches must have the same columns; got {columns_text(rows.schema)} after "
                f"{columns_text(self._waiting.schema)}; convert each batch to the columns and types of the first one"
            )
        late = self._times(rows) < self._at
        accepted = rows.filter(pa.array(~late)) if late.any() else rows
        self._waiting = accepted if self._waiting is None else pa.concat_tables([self._waiting, accepted])
        self._rows += len(late)
        self._late += int(late.sum())
        return rows.filter(pa.array(late))

    def advance(self, watermark: dt.datetime | int | None = None) -> pa.Table:
        """Advance the watermark, process the rows before it, and return the results.

        Parameters
        ----------
        watermark : datetime or int, optional
            The time before which no more events are expected: a datetime with a zone, or microseconds UTC. A value
            lower than the previous one changes nothing.

        Returns
        -------
        table
            A table like the result of `tiltframe.RunningAggregation.add` or `tiltframe.OrderedRollup.add`, sorted by
            keys and time. Before the first rows arrive, the table has no columns. `results` converts states to results.

        Raises
        ------
        ValueError
            If the watermark is neither a datetime with a zone nor an integer, or is implausible (see
            `OpenWindows.advance`), or if the stream is closed.
        """
        if watermark is not None:
            moment = read_moment(watermark, "watermark")
            waiting = self._waiting is not None and self._waiting.num_rows > 0
            check_unit(moment, int(self._times(self._waiting).min()) if waiting else None)
            self._watermark = max(moment, self._at)
        if self._waiting is None:
            return pa.table({})
        passed = self._times(self._waiting) < self._at
        emitted = self._windows.add(self._waiting.filter(pa.array(passed)), self._watermark)
        self._waiting = self._waiting.filter(pa.array(~passed)).combine_chunks()
        self._emitted += emitted.num_rows
        return emitted

    def close(self) -> pa.Table:
        """Process all rows that the watermark has not passed, because no more rows will arrive, and return their
        results.

        Returns
        -------
        table
            A table like the result of `advance`. If the aggregation has ``emit="final"``, the table has the last result
            of each key.

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
        """Return the results of emitted rows. If the aggregation is a chain (`OrderedRollup`), the rows have states,
        which are converted to results. Otherwise the rows already have results, and are returned unchanged.

        Parameters
        ----------
        emitted : table
            A table from `advance` or `close`.

        Returns
        -------
        table

        Raises
        ------
        ValueError
            If the states do not belong to the chain.
        """
        return self._windows.results(emitted) if emitted.num_columns else emitted

    @property
    def query(self) -> OrderedQuery:
        """The query of the aggregation: its windows, measures, keys and order of rows."""
        query: OrderedQuery = self._windows.query
        return query

    def anew(self) -> OrderedAggregator:
        """Return an aggregation that computes the same windows and has not processed any rows."""
        return self._windows.for_query(self.query)

    def copy(self) -> OrderedStream:
        """Return an independent copy: rows that are added to one of the two objects do not change the other."""
        twin = copy.copy(self)
        twin._windows = copy.copy(self._windows)
        return twin

    def to_ipc(self) -> bytes:
        """Return the complete state of the stream as bytes, from which `from_ipc` restores it."""
        return self.save().to_bytes()

    def save(self) -> Saved:
        """Return the complete state of the stream in blocks; see `OpenWindows.save`."""
        counts = {"rows": self._rows, "late": self._late, "emitted": self._emitted, "watermark": self._watermark}
        blocks = {} if self._waiting is None else {_WAITING: self._waiting, **self._windows.carried()}
        description = {"version": VERSION, "ordered": self._windows.query.describe(), "counts": counts}
        return Saved(description, {name: StoredTable.encode(table) for name, table in blocks.items()})

    @classmethod
    def from_ipc(cls, data: bytes | Saved, windows: OrderedAggregator) -> OrderedStream:
        """Return the stream that continues from a state that `to_ipc` or `save` returned.

        Parameters
        ----------
        data : bytes or Saved
        windows : RunningAggregation or OrderedRollup
            An aggregation that has the windows of the saved stream, and has not processed any rows. The aggregation may
            compute other results from the same states, such as other quantiles.

        Returns
        -------
        OrderedStream

        Raises
        ------
        ValueError
            If ``data`` is not a saved state, or has other windows; the message names the difference.
        """
        state = data if isinstance(data, Saved) else read_saved(data)
        check_version(state)
        stream = cls(windows)
        before = state.description.get("ordered", {})
        now = windows.query.describe()
        if not before:
            raise ValueError(
                "the saved state belongs to a stream of time windows, but this stream has ordered windows; begin with "
                "a new state"
            )
        for name in now:
            if before.get(name) != now[name]:
                raise ValueError(
                    f"the saved state belongs to another stream: {name} is {shown(before.get(name))} in the saved "
                    f"state and {shown(now[name])} here; begin with a new state"
                )
        counts = state.description["counts"]
        stream._rows, stream._late, stream._emitted = (counts[name] for name in ("rows", "late", "emitted"))
        stream._watermark = counts["watermark"]
        tables = {name: block.table for name, block in state.blocks.items()}
        stream._waiting = tables.pop(_WAITING, None)
        if tables:
            windows.restore(tables, stream._waiting.schema)
        return stream

    @property
    def progress(self) -> Progress:
        """The numbers of rows so far. ``state_bytes`` is the size in bytes of the rows that the watermark has not
        passed.
        """
        return Progress(
            rows=self._rows,
            late_rows=self._late,
            emitted_rows=self._emitted,
            watermark_us=self._watermark,
            state_bytes=0 if self._waiting is None else self._waiting.nbytes,
        )

    def _times(self, rows: pa.Table) -> Instants:
        """Return the times of rows in microseconds UTC."""
        time = self._windows.query.time
        return event_times(rows.column(time), time)

    @property
    def _at(self) -> int:
        """The watermark in microseconds UTC, or the lowest int64 before the first watermark."""
        return int(np.iinfo(np.int64).min) if self._watermark is None else self._watermark
