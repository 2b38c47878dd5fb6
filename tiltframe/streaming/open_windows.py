"""Open windows: all levels of a tilt frame while events come, and what is emitted of them.

    states ── add ──▶ windows of every level ── advance(watermark, now) ──▶ emitted states

A batch is reduced once, to states of the finest panes; `add` climbs with them through the levels and merges each level's
into the windows that are held. `advance` tells the time: it closes, emits and forgets windows. Everything that happens
is a function of the order of these two calls and of what they were given: there is no clock here but the caller's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

import aggr
from aggr import predicate
from aggr.arguments import checked_type, checked_whole, shown
from aggr.kernels.groups import group_by
from aggr.states.grouped_tables import finish_by, key_column
from tiltframe.event_time import event_times
from tiltframe.frame import END, INSTANT, LEVEL, START, TiltFrame
from tiltframe.level_chain import climb, instants_of, labelled, merge_panes, reduce_rows
from tiltframe.names import PARTIAL, REASON, REVISION
from tiltframe.streaming import saved
from tiltframe.streaming.emit import AfterKeyExpire, EmitPolicy, read_emit
from tiltframe.streaming.late import Buffer, LatePolicy, moved, read_late
from tiltframe.streaming.progress import Progress
from tiltframe.streaming.window_table import LOWEST, UNSTAMPED, WindowTable, fresh, merged, ordered, places, stacked
from windows import BEGINNING, NEVER, TimeWindow
from windows.timezone import Instants

CHANGE, SPAN = "change", "span"
ROWS, EARLIEST, LATEST, SEEN = "__rows", "__earliest", "__latest", "__seen"
BEYOND = ("error", "drop")


class OpenWindows:
    """The windows of a tilt frame that are not over, on every level at once.

    Parameters
    ----------
    frame : TiltFrame
    emit : EmitPolicy or str
        When windows are emitted, and what of them; text is read by `read_emit`.
    late : LatePolicy or str
        How long closed windows are kept, and what becomes of events that come later; text is read by `read_late`.
    max_keys : int, optional
        How many distinct keys may be held at once.
    beyond : str
        What becomes of rows of more keys: ``error``, or ``drop``, which counts them.

    Raises
    ------
    ValueError
        If the parts do not go together.

    Guarantee
    ---------
    After any batches in any order, with any calls of `advance` and any restarts between them, the last that is emitted
    of a window in the mode ``accumulating`` is, bit for bit, what `tiltframe.rollup` makes of the same rows, those left
    out that were late for the window.

    Examples
    --------
    >>> frame = TiltFrame(["1s", "1m"], time="ts", measures={"n": aggr.count()})
    >>> windows = OpenWindows(frame)
    >>> late = windows.add_rows(pa.table({"ts": [0, 500, 1500]}))
    >>> emitted = windows.advance(1_000_000, now=0)
    >>> windows.results(emitted).drop_columns(["window_start", "window_end"]).to_pylist()
    [{'level': '1s', 'n': 2, 'reason': 'close', 'revision': 0, 'partial': False}]
    """

    def __init__(
        self,
        frame: TiltFrame,
        emit: EmitPolicy | str = "after_close",
        late: LatePolicy | str = "drop",
        *,
        max_keys: int | None = None,
        beyond: str = "error",
    ) -> None:
        """Check that the parts go together; no window is open yet."""

    @property
    def partial_frame(self) -> TiltFrame:
        """The frame that rows are reduced by for `add`: the given one, and what the policies need to know of rows.

        Where rows are reduced elsewhere, in Spark's tasks or in another process, ``reduce_rows(rows, partial_frame)``
        and ``merge_panes(states, partial_frame)`` of `tiltframe.level_chain` give what `add` takes.
        """

    def add_rows(self, rows: pa.Table) -> pa.Table:
        """Take a batch of rows in the order of their arrival.

        Parameters
        ----------
        rows : table
            With the columns of the frame, of the same types in every batch.

        Returns
        -------
        table
            The rows that were dropped as late, as they were given.

        Raises
        ------
        ValueError, TypeError
            If rows do not fit the frame, or their keys are more than ``max_keys``. Nothing has changed then.
        """

    def add(self, states: pa.Table) -> None:
        """Take a batch as states of the finest panes; they need not be merged, and come in any order.

        Parameters
        ----------
        states : table of window_start, window_end, keys, states
            Of `partial_frame`, as `tiltframe.level_chain.reduce_rows` and `merge_panes` give them.

        Raises
        ------
        ValueError
            If they are no such states, or their keys are more than ``max_keys``. Nothing has changed then.
        """

    def advance(self, watermark: int | None = None, now: int | None = None) -> pa.Table:
        """Tell the time, and get what is to be emitted.

        Parameters
        ----------
        watermark : int, optional
            No events before it are awaited; microseconds UTC. One that is lower than before changes nothing.
        now : int, optional
            The clock by which rows arrive, microseconds; for periods and timeouts. It does not go back either.

        Returns
        -------
        table
            One row for each emission: level, window_start, window_end (both null of a window over all time), keys, one
            struct per state, and

            - ``span`` (duration; with `AfterKeyExpire` only), from a key's earliest event to its latest,
            - ``reason`` (string): ``close``, ``timeout``, ``late`` (late rows have reached a closed window), ``period``,
              ``update``, ``count``, ``expired``, ``over_span``,
            - ``revision`` (int64): how often the window was emitted before,
            - ``partial`` (bool): whether the window was still open,
            - ``change`` (int8; in a changelog only): -1 for a retraction, 1 for what stands.

            By level, from the finest on; in each, retractions first, then by window and keys. `results` reads results.
        """

    def results(self, emitted: pa.Table) -> pa.Table:
        """Read results of emitted states: the same rows, the measures in place of the states."""

    @property
    def progress(self) -> Progress:
        """What was done so far, and what is held."""

    def to_ipc(self) -> bytes:
        """Write all that is held, and how it came to be, as one Arrow IPC stream; `from_ipc` goes on from there."""

    @classmethod
    def from_ipc(
        cls,
        data: bytes,
        frame: TiltFrame | None = None,
        emit: EmitPolicy | str | None = None,
        late: LatePolicy | str | None = None,
        **bounds: Any,
    ) -> OpenWindows:
        """Go on from what `to_ipc` wrote.

        Parameters
        ----------
        data : bytes
        frame, emit, late, max_keys, beyond : optional
            Those it was saved with, unless they are given. Measures may be added: they start from here. Otherwise the
            frame must be the same, and the mode of emission too.

        Raises
        ------
        ValueError
            If this is no saved state, or of another frame; the difference is named.
        """
