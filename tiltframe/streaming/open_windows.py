"""Open windows: the windows of all levels of a tilt frame while events arrive.

The result depends only on the calls of `add` and `advance`, their order and their arguments. The times for policies are
passed by the caller; only the check ``ahead`` reads the machine's clock.
"""

from __future__ import annotations

import copy
import datetime as dt
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr import sql
from aggr.arguments import checked_type, checked_whole, shown
from aggr.arrow import compute as pc
from aggr.state_checks import mark_as_checked
from aggr.tables.keys import keyed
from tiltframe.event_time import event_times
from tiltframe.exclusions import Exclusions
from tiltframe.frame import TiltFrame
from tiltframe.instants import instants_of, with_bounds
from tiltframe.level_chain import climb
from tiltframe.merged_windows import merge_panes
from tiltframe.names import END, LEVEL, START
from tiltframe.parameter_names import parameter_text
from tiltframe.ranges import LATEST_TIME
from tiltframe.reducing import reduce_keyed, reduce_rows
from tiltframe.streaming import saved
from tiltframe.streaming.added_levels import reason_not_to_add, with_added_levels
from tiltframe.streaming.ahead import check_ahead, read_ahead
from tiltframe.streaming.key_limit import KeyLimit
from tiltframe.streaming.lateness import (
    accepted_session_rows,
    are_committed,
    closing_time,
    late_panes,
    may_be_late,
    start_of_window,
)
from tiltframe.streaming.moments import check_unit, read_moment
from tiltframe.streaming.open_level import OpenLevel, cascade, parts_by_level, pending_counts, prepare_restored
from tiltframe.streaming.policies import EmitPolicy, LatePolicy, emit_policy, read_emit, read_late
from tiltframe.streaming.progress import Progress
from tiltframe.streaming.rebuilt import rebuild_levels
from tiltframe.streaming.stream_rules import (
    CHANGE,
    StreamRules,
    checked_panes,
    earliest_ends,
    mark_first_panes,
    rows_only_in_panes,
    to_window_table,
)
from tiltframe.streaming.window_table import (
    HIGHEST,
    LOWEST,
    WindowTable,
    concat,
    merge_levels,
)
from windows import MAX_INSTANT, MIN_INSTANT, TimeWindow
from windows.timezone import Instants


class OpenWindows:
    """Keep the windows of all levels of a tilt frame in memory while events arrive. A policy determines when windows
    are emitted; `advance` returns the emitted windows.

    Parameters
    ----------
    frame : TiltFrame
    emit : EmitPolicy or str, optional
        The policy that determines when windows are emitted, and whether an emission has all rows of the window or only
        new ones. Text is parsed by `read_emit`. The default is ``after_close``. If the only level is ``all``, whose
        windows never close, the default is ``periodic(2s)``.
    late : LatePolicy or str
        The policy that determines how long closed windows are kept in memory for late events, and how events that
        arrive even later are treated. Text is parsed by `read_late`.
    max_keys : int, optional
        The maximum number of different keys in memory. By default, there is no limit.
    beyond : str
        The action for rows with further keys: ``error`` raises an error, ``drop`` drops and counts the rows.
    ahead : str, optional
        A duration such as ``1h``. If the time of a row is later than the machine's clock by more than this duration,
        `add_rows` raises an error. By default, rows may have any time.
    where : str, optional
        An SQL condition on rows. `add_rows` ignores rows that do not meet it; they do not count in ``progress`` either.
        The condition does not apply to `add`, because rows cannot be selected from states.

    Raises
    ------
    ValueError
        If the arguments contradict each other.

    Guarantee
    ---------
    In the mode ``accumulating``, the last emission of a window is bit-for-bit the result of `tiltframe.rollup` for the
    rows that were not late for the window. This holds for any batches in any order, any calls of `advance` and any
    restarts.

    Examples
    --------
    >>> import aggr
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
        emit: EmitPolicy | str | None = None,
        late: LatePolicy | str = "drop",
        *,
        max_keys: int | None = None,
        beyond: str = "error",
        ahead: str | None = None,
        where: str | None = None,
    ) -> None:
        """Check the arguments, and create a stream that has not received any rows."""
        self.frame = checked_type(frame, TiltFrame, "frame")
        self.emit = emit_policy(emit, self.frame)
        self.late = read_late(late).for_frame(self.frame)
        self.max_keys = None if max_keys is None else checked_whole(max_keys, parameter_text("max_keys"), 1)
        self._limit = KeyLimit(self.frame.keys, self.max_keys, beyond)
        self.beyond = beyond
        read_ahead(ahead)
        self.ahead = ahead
        if where is not None:
            sql.check_condition(where)
        self.where = where
        self._rules = StreamRules(self.frame, self.emit, self.late)
        self._rules.check()
        self._rules.warn_about_sessions()
        # The levels are created when the first states arrive, because these states determine the types of the columns.
        self._levels: tuple[OpenLevel, ...] = ()
        self._clock = saved.Clock()
        self._counts = dict.fromkeys(saved.COUNTS, 0)
        self.excluded = Exclusions(self.frame)  # the values that each measure skipped, counted since this process began

    @property
    def partial_frame(self) -> TiltFrame:
        """The frame with which rows are reduced to states for `add`. It has the measures of the stream's frame, further
        measures that the emit policy needs, and a measure that counts rows.

        Rows may be reduced in another process, such as a task of Spark. To do so, call ``reduce_rows(rows,
        partial_frame)`` of `tiltframe.reducing`, and optionally ``merge_panes(states, partial_frame)`` of
        `tiltframe.merged_windows` to merge the states of several batches. Pass the result to `add`.
        """
        return self._rules.partial_frame

    @property
    def emitted_columns(self) -> Mapping[str, pa.DataType]:
        """The names and types of the columns that follow the states in the result of `advance`."""
        return self._rules.emitted_columns

    def add_rows(self, rows: pa.Table) -> pa.Table:
        """Add a batch of rows, in the order of their arrival, and return the rows that were dropped as late.

        Parameters
        ----------
        rows : table
            Rows with the columns of the frame, with the same types in every batch.

        Returns
        -------
        table
            The rows that were dropped as late, with all their columns. Which rows are dropped does not depend on how
            the rows between two calls of `advance` are split into batches.

        Raises
        ------
        ValueError, TypeError
            If the rows do not fit the frame, are too far ahead of the clock, or have more keys than ``max_keys`` while
            ``beyond`` is ``error``. In these cases, the windows are unchanged.
        """
        self.frame.check(checked_type(rows, pa.Table, "rows").schema)
        if self.where is not None:
            rows = rows.filter(pa.array(sql.rows_where(self.where, rows, self.frame.timezone)))
        times = event_times(rows.column(self.frame.time), self.frame.time, self.frame.timezone)
        check_ahead(times, self.frame.time, self.ahead)
        is_committed = are_committed(times, self._clock.committed, self.frame.levels[0])
        if is_committed.any():
            rows = rows.filter(pa.array(~is_committed))
            times = times[~is_committed]
        window_times, dropped, newest = self.late.arrive(self.frame.levels[0], times, self._clock.newest)
        moved = int((window_times != times).sum())
        dropped = dropped.copy()
        remaining = rows.filter(pa.array(~dropped)) if dropped.any() else rows
        states, late = self._reduce_rows(remaining, times[~dropped], window_times[~dropped])
        panes = merge_panes(mark_as_checked(states), self.partial_frame)
        lost, levels, counts = self._merge_panes(panes)
        if len(lost):
            late = rows_only_in_panes(lost, remaining, window_times[~dropped], self._rules)
        dropped[~dropped] = late
        counts |= {"moved_rows": moved, "rows": len(is_committed), "late_rows": int(dropped.sum())}
        counts |= {"committed_rows": int(is_committed.sum())}
        counts |= {"refused_values": self._count_refused(panes, lost)}
        self._replace_state(levels, replace(self._clock, newest=newest), counts)
        return rows.filter(pa.array(dropped))

    def add(self, states: pa.Table, newest: int | None = None) -> pa.Table:
        """Add a batch of rows that were already reduced to states of panes, and return the panes that were dropped as
        late.

        Panes are the shortest windows to which rows are reduced when they arrive: the windows of the finest level or,
        if these overlap, shorter windows that divide them. The panes may have any order.

        Parameters
        ----------
        states : table of window_start, window_end, keys, states
            States of `partial_frame`, from `tiltframe.reducing.reduce_rows` or `tiltframe.merged_windows.merge_panes`.
            A pane may occur several times. All rows of the batch arrive at the same time: a row that would be late
            alone is accepted if it joins a session that another row of the batch extends.
        newest : int, optional
            If the batch is a part of a larger one, the start of the newest window of the finest level in the larger
            batch, in microseconds UTC. Only the policy `Buffer` uses this argument.

        Returns
        -------
        table of window_start, window_end, keys, states
            The panes that were dropped because all their windows have been removed from memory, with the states of the
            frame.

        Raises
        ------
        ValueError
            If the states do not belong to `partial_frame` or are damaged, or if there would be more than ``max_keys``
            keys and ``beyond`` is ``error``. In these cases, the windows are unchanged.
        """
        finest = self.frame.levels[0]
        rules = self._rules
        panes = merge_panes(checked_panes(states, rules), self.partial_frame)
        is_committed = are_committed(instants_of(panes), self._clock.committed, finest)
        committed = 0
        if is_committed.any():
            committed = to_window_table(panes.filter(pa.array(is_committed)), rules).rows
            panes = panes.filter(pa.array(~is_committed))
        arrival = self.late.arrive(finest, instants_of(panes), self._clock.newest, together=True)
        dropped = to_window_table(panes.filter(pa.array(arrival.dropped)), rules)
        starts = arrival.times
        if len(dropped):
            panes = panes.filter(pa.array(~arrival.dropped))
            starts = starts[~arrival.dropped]
        moved = starts != instants_of(panes)
        moved_rows = to_window_table(panes.filter(pa.array(moved)), rules).rows
        if moved.any():
            panes = merge_panes(mark_as_checked(with_bounds(panes, starts, finest.ends(starts))), self.partial_frame)
        clock = replace(self._clock, newest=arrival.newest)
        if newest is not None:
            clock = clock.with_newest(newest)
        lost, levels, counts = self._merge_panes(panes)
        counts["late_rows"] = dropped.rows + lost.rows
        counts["rows"] += dropped.rows + committed
        counts["refused_values"] = self._count_refused(panes, lost)
        self._replace_state(levels, clock, counts | {"moved_rows": moved_rows, "committed_rows": committed})
        return pa.concat_tables(
            [
                panes_left_out.states.select([START, END, *self.frame.states_columns[3:]])
                for panes_left_out in (dropped, lost)
            ]
        )

    def advance(self, watermark: dt.datetime | int | None = None, now: dt.datetime | int | None = None) -> pa.Table:
        """Advance the watermark and the clock, and return the rows to emit.

        Parameters
        ----------
        watermark : datetime or int, optional
            The time before which no more events are expected: a datetime with a zone, or microseconds UTC. A value
            lower than the previous one changes nothing.
        now : datetime or int, optional
            The time at which the rows since the last call arrived, a datetime with a zone or microseconds. Periods and
            timeouts of policies use it. A value lower than the previous one changes nothing.

        Returns
        -------
        table
            One row for each emitted window: level, window_start, window_end (both null for a window over all time),
            keys, one struct per column of states, and

            - the columns that the emit policy adds: ``span`` (duration) with `AfterKeyExpire`,
            - ``reason`` (string): ``close``, ``timeout``, ``late`` (rows of a closed window arrived), ``period``,
              ``update``, ``count``, ``expired``, ``over_span``,
            - ``revision`` (int64): the number of earlier emissions of the window,
            - ``partial`` (bool): whether the window was still open,
            - ``change`` (int8; in a changelog only): -1 for a retraction, 1 for an emission.

            Rows are sorted by level, from the finest to the coarsest. Within a level, retractions come first, and then
            rows by window and keys. Before the first rows arrive, the table has only the column level. `results`
            converts the states to results.

        Raises
        ------
        ValueError
            If a time has another type or is implausible. A time beyond the year 9999 is implausible, because it may be
            in nanoseconds. A watermark in 1970 is implausible if all windows in memory begin later, because it may be
            in seconds.
        """
        if watermark is not None:
            watermark = read_moment(watermark, "watermark")
            has_windows = bool(self._levels) and len(self._levels[0].windows) > 0
            check_unit(watermark, int(self._levels[0].windows.starts.min()) if has_windows else None)
        if now is not None:
            now = read_moment(now, "now", 0)
        return self._advance_levels(self._clock.advanced_to(watermark, now))

    def close(self) -> pa.Table:
        """Close all windows, including windows over all time, because no more rows will arrive, and return the rows to
        emit.

        Returns
        -------
        table
            A table like the result of `advance`, with one row for each window that has changed since its last emission.
        """
        return self._advance_levels(replace(self._clock, watermark=MAX_INSTANT + self.emit.delay_micros))

    def _advance_levels(self, clock: saved.Clock) -> pa.Table:
        """Store ``clock``, advance all levels to its watermark and its arrival time, and return the rows to emit."""
        at = closing_time(clock.watermark, self._rules)
        if self.late.closes_by_events and clock.watermark is not None and clock.watermark < LATEST_TIME:
            clock = clock.with_newest(start_of_window(clock.watermark, self.frame.levels[0]))
        time = self.emit.time(clock.watermark, clock.now)
        due = self.emit.is_due(clock.last_checked, time)
        if not self._levels:
            self._clock = clock.after_check(self.emit, time, due, False)
            return _COLUMNS_BEFORE_ROWS.empty_table()
        # If windows are closed by newer events, and not by a watermark, the windows of a level that end at or before
        # ``closed_until`` are closed. For the finest level, ``closed_until`` follows from the newest event. For a
        # coarser level, ``closed_until`` is the start of the newest closed window of the next finer level.
        closed_until = LOWEST
        if self.late.closes_by_events and clock.newest is not None:
            closed_until = self.late.closed_until(self.frame.levels[0], clock.newest)
        levels = []
        emitted = []
        early = False
        for level in cascade(self._levels, self._rules, self._rules.last_closed_end(at)):
            advanced, rows, newest, emitted_open = level.advance(max(at, closed_until), clock.now, due, self._rules)
            closed_until = newest if self.late.closes_by_events else LOWEST
            levels.append(advanced)
            emitted.append(rows)
            early |= emitted_open
        table = pa.concat_tables(emitted)
        counts = {"emitted_rows": table.num_rows, "results_beyond_limit": self._count_beyond_limit(table)}
        self._replace_state(tuple(levels), clock.after_check(self.emit, time, due, early), counts)
        return table

    def _count_refused(self, panes: pa.Table, lost: WindowTable) -> int:
        """Return the number of values that measures have skipped in a batch, and add this number to ``excluded``.
        ``panes`` has the states of all rows of the batch; values in the panes ``lost``, which were dropped as late, do
        not count.
        """
        counted = self.excluded.without_counts()
        dropped = self.excluded.without_counts()
        counted.count_values(panes)
        dropped.count_values(lost.states)
        counted.subtract(dropped)
        self.excluded.add(counted)
        return counted.values

    def _count_beyond_limit(self, emitted: pa.Table) -> int:
        """Return the number of results that are null because of a limit of their measure, in the rows ``emitted``. Add
        this number to ``excluded``. Retractions do not count.
        """
        if CHANGE in emitted.column_names:
            emitted = emitted.filter(pc.greater(emitted.column(CHANGE), 0))
        counted = self.excluded.without_counts()
        counted.count_levels(emitted)
        self.excluded.add(counted)
        return counted.groups

    def results(self, emitted: pa.Table) -> pa.Table:
        """Return the results of emitted states.

        Parameters
        ----------
        emitted : table
            A table that `advance` returned.

        Returns
        -------
        table
            The same rows, with one column per measure and expression instead of the columns of states.

        Raises
        ------
        ValueError
            If the states do not belong to the frame.
        """
        if checked_type(emitted, pa.Table, "emitted").schema.equals(_COLUMNS_BEFORE_ROWS):
            return emitted
        self.frame.check_states(emitted.schema)
        return self._rules.results(emitted)

    @property
    def progress(self) -> Progress:
        """The numbers of rows so far, and of the windows, keys and bytes in memory."""
        bounds = [(level.windows.ends, level.windows.marks["closed_until"], level) for level in self._levels]
        closed = [self._rules.are_closed(e, level.watermark) | (e <= to) for e, to, level in bounds]
        names = [level.window.name for level in self._levels]
        opened = [int((~c & self._has_begun(at)).sum()) for at, c in enumerate(closed)]
        keys, ids = self._limit.number_keys([level.windows.index for level in self._levels])
        pending = pending_counts(self._levels, ids)
        return Progress(
            **self._counts,
            open_windows={name: n + more for name, n, more in zip(names, opened, pending, strict=True)},
            kept_windows={n: int(c.sum()) for n, c in zip(names, closed, strict=True)},
            keys=keys,
            watermark_us=self._clock.watermark,
            state_bytes=sum(t.nbytes for level in self._levels for t in (level.windows, level.last_emissions)),
        )

    @property
    def typed(self) -> bool:
        """Whether the types of all states are known.

        They are unknown before the first batch, which may be empty. After measures were added to a saved stream, their
        types are unknown before the next batch. Emitted rows have no column for a measure of unknown type.
        """
        columns = self._levels[0].windows.schema.names if self._levels else ()
        return all(name in columns for name in self._rules.memory_frame.state_functions)

    @property
    def closed_before(self) -> int | None:
        """The latest end of closed windows of the finest level, in microseconds UTC: all windows that end at or before
        this time are closed. None before the first watermark.
        """
        at = self._levels[0].watermark if self._levels else self._first_watermark
        return None if at == LOWEST else at - self.emit.delay_micros

    @property
    def last_end(self) -> int | None:
        """The latest end of the finest level's windows in memory, in microseconds UTC. None if there are no windows."""
        windows = self._levels[0].windows if self._levels else ()
        return int(self._levels[0].windows.ends.max()) if len(windows) else None

    def unemitted(self) -> pa.Table:
        """Return the windows of the finest level that have new rows since their last emission, with their states.

        Returns
        -------
        table of window_start, window_end, keys, states
            In the mode ``discarding``, the states contain only the new rows. Before the first rows, the table has no
            columns.
        """
        if not self._levels:
            return pa.table({})
        windows = self._levels[0].windows
        states = windows.filter(windows.marks["new_rows"] > 0).states_with_unknown(self._rules.added)
        names = [START, END, *self.frame.keys, *(column.name for column in self.frame.states)]
        return states.select([name for name in names if name in states.column_names])

    def copy(self) -> OpenWindows:
        """Return an independent copy: rows that are added to one of the two objects do not change the other. The tables
        of windows are shared and not copied, because later calls replace tables and do not modify them.
        """
        twin = copy.copy(self)
        twin._counts = dict(self._counts)
        twin.excluded = self.excluded.without_counts()
        twin.excluded.add(self.excluded)
        return twin

    def to_ipc(self) -> bytes:
        """Return the complete state of the stream as bytes, from which `from_ipc` restores it."""
        return self.save().to_bytes()

    @classmethod
    def from_ipc(
        cls,
        data: bytes | saved.Saved,
        frame: TiltFrame | None = None,
        emit: EmitPolicy | str | None = None,
        late: LatePolicy | str | None = None,
        **bounds: Any,
    ) -> OpenWindows:
        """Return the stream that continues from a state that `to_ipc` or `save` returned.

        Parameters
        ----------
        data : bytes or Saved
            A saved state. The blocks of a `Saved` are read when they are first needed, so the error for a damaged block
            may be raised after this method has returned.
        frame, emit, late, **bounds : optional
            Arguments of `OpenWindows` that replace the saved ones; ``bounds`` may be ``max_keys``, ``beyond``,
            ``ahead`` and ``where``. In ``frame``, measures may be added or removed, expressions over results may
            change, and levels that are coarser than all others may be added; otherwise it must be the saved frame. An
            added measure is null in windows that have earlier rows. The results of an added level are null in windows
            that begin before the watermark of the saved state. The mode of emission must not change.

        Returns
        -------
        OpenWindows

        Raises
        ------
        ValueError
            If ``data`` is not a saved state, or has another frame; the message names the difference. Also if ``frame``
            adds levels, but the windows of a level do not follow each other without gaps or overlaps, or the policies
            remove rows that an added level needs.
        """
        state = data if isinstance(data, saved.Saved) else saved.read_saved(data)
        saved.check_version(state)
        if "ordered" in state.description:
            raise ValueError(
                "the saved state belongs to a stream of ordered windows, but this stream has time windows; begin with "
                "a new state"
            )
        frame = state.frame if frame is None else saved.continued_frame(state, frame)
        emit = saved.create_from_saved("emit policy", read_emit, state.description["emit"]) if emit is None else emit
        late = saved.create_from_saved("late policy", read_late, state.description["late"]) if late is None else late
        windows = cls(frame, emit, late, **{**state.description["settings"], **bounds})
        saved.check_mode(state, windows.emit)
        windows._rules = replace(windows._rules, added=state.added(windows._rules))
        added = state.added_levels(frame)
        if added and (reason := reason_not_to_add(windows._rules)):
            raise saved.OtherSavedFrame(
                f"the level {added[0].name} cannot be added to the saved windows: {reason}; leave out the level, or "
                "begin a new state"
            )
        restored = prepare_restored(state.levels(windows._rules), windows._rules)
        windows._levels = with_added_levels(restored, added, windows._rules) if restored else ()
        windows._clock = saved.Clock(**state.description["clock"])
        windows._counts = {**windows._counts, **state.description["counts"]}
        return windows

    def save(self) -> saved.Saved:
        """Return the complete state of the stream in blocks, so that only changed blocks need to be written.

        The result has ``head``, bytes that describe the state, and ``blocks``, a mapping from names to blocks. A block
        that has not changed since it was read is the same object as in the `Saved` that was passed to `from_ipc`.
        """
        settings: dict[str, Any] = {"max_keys": self.max_keys, "beyond": self.beyond}
        settings |= {name: value for name, value in (("ahead", self.ahead), ("where", self.where)) if value is not None}
        return saved.save_stream(self._rules, settings, levels=self._levels, clock=self._clock, counts=self._counts)

    @classmethod
    def from_committed(
        cls,
        states: pa.Table,
        committed: int,
        frame: TiltFrame,
        emit: EmitPolicy | str | None = None,
        late: LatePolicy | str = "drop",
        **bounds: Any,
    ) -> OpenWindows:
        """Return a stream that continues from the states of a store. Its open windows, on all levels, are rebuilt from
        these states.

        Parameters
        ----------
        states : table of level, window_start, window_end, keys, states
            States from a store or a rollup. If the states of a level are missing, they are computed from the next finer
            level. For each window that ends after ``committed``, on any level, all its states must be passed. The
            states of other windows may be left out.
        committed : int
            A time in microseconds UTC. The store must have all rows of the windows of the finest level that end at or
            before this time. If such rows arrive again, they are ignored and counted in ``progress.committed_rows``.
        frame, emit, late, **bounds : optional
            Arguments of `OpenWindows`.

        Returns
        -------
        OpenWindows
            The watermark of the stream is ``committed`` plus the delay of the emit policy.

        Raises
        ------
        ValueError
            If the states do not belong to the frame or are damaged, or if windows of a level are not contiguous.
        """
        windows = cls(frame, emit, late, **bounds)
        overlapping = [level.name for level in frame.levels if not level.contiguous]
        if overlapping:
            raise ValueError(
                "open windows can be rebuilt only for levels whose windows follow each other without gaps or overlaps, "
                f"and those of the level {overlapping[0]} do not; leave out the level, or use OpenWindows.from_ipc"
            )
        committed = checked_whole(committed, "committed, a time in microseconds UTC,", MIN_INSTANT, MAX_INSTANT - 1)
        frame.check_states(states.schema)
        finest = frame.levels[0]
        committed_states = states.select(list(frame.states_columns))
        rules, levels = rebuild_levels(committed_states, committed, frame, windows._rules)
        windows._rules = rules
        windows._levels = prepare_restored(levels, windows._rules)
        newest = windows.late.newest_at(finest, committed)
        windows._clock = saved.Clock(committed + windows.emit.delay_micros, newest=newest, committed=committed)
        return windows

    def _reduce_rows(
        self, rows: pa.Table, times: Instants, window_times: Instants
    ) -> tuple[pa.Table, NDArray[np.bool_]]:
        """Reduce rows to states of panes. Rows are left out if they are late because their session was removed from
        memory.

        ``times`` are the times of the rows. ``window_times`` has one time per row: the row counts in the window that
        contains this time. This time differs from the time of the row if the late policy has moved the row. All times
        are in microseconds UTC. Return the states, and a mask of the late rows.
        """
        late = np.zeros(len(times), np.bool_)
        window = self.frame.levels[0]
        assigned = window.assign(times) if window.is_merging else None
        if assigned is None or not may_be_late(assigned, self._first_watermark, self._rules).any():
            return reduce_rows(rows, self.partial_frame, times, window_times), late
        none = reduce_rows(rows.slice(0, 0), self.partial_frame)
        level = self._levels[0] if self._levels else self._empty_level(window, to_window_table(none, self._rules))
        needed = self.partial_frame.columns_to_reduce(tuple(rows.column_names))
        rows, owners, keys = keyed(rows, self.frame.keyed_by, needed, self.frame.timezone)
        owners = np.arange(len(times)) if owners is None else owners
        joins = accepted_session_rows(
            level, keys, rules=self._rules, starts=assigned.starts[owners], end_times=assigned.ends[owners]
        )
        late[owners] = True
        late[owners[joins]] = False
        chosen = pa.array(joins)
        keys = {name: key.filter(chosen) for name, key in keys.items()}
        return reduce_keyed(rows.filter(chosen), keys, self.partial_frame, times[owners][joins]), late

    def _merge_panes(self, panes: pa.Table) -> tuple[WindowTable, tuple[OpenLevel, ...], dict[str, int]]:
        """Merge states of panes into the windows of all levels.

        Return the panes that were dropped as late, the new levels, and the numbers to add to ``progress``. The stream
        itself is not changed.
        """
        exceeding = self._limit.mask_beyond_limit([level.windows.index for level in self._levels], panes)
        refused = 0
        if exceeding.any():
            refused = to_window_table(panes.filter(pa.array(exceeding)), self._rules).rows
            panes = panes.filter(pa.array(~exceeding))
        pane_table = to_window_table(panes, self._rules)
        counts = {"rows": pane_table.rows + refused, "refused_rows": refused}
        levels = self._levels or tuple(self._empty_level(level, pane_table) for level in self.frame.levels)
        late = pane_table.without_rows()
        if levels[0].window.is_merging and (touching := levels[0].late_sessions(pane_table, self._rules)).any():
            late = pane_table.filter(touching)
            pane_table = pane_table.filter(~touching)
            panes = panes.filter(pa.array(~touching))
        if self._rules.cascades:
            new_tables = parts_by_level(pane_table, levels)
        else:
            climbed = [
                (level, to_window_table(states, self._rules)) for level, states in climb(panes, self.partial_frame)
            ]
            new_tables = [mark_first_panes(table, level, panes, self._rules) for level, table in climbed]
        if not self._levels:
            levels[0].check_having(self._rules)
        _check_types(levels[0].windows.schema, new_tables[0].schema)
        lost, counts_in_coarser = late_panes(pane_table, levels, self._rules)
        counts["partly_late_rows"] = pane_table.filter(counts_in_coarser).rows if counts_in_coarser.any() else 0
        pairs = [
            (level.windows.with_missing_columns(table.schema), table, level.window)
            for level, table in zip(levels, new_tables, strict=True)
        ]
        tables = merge_levels(pairs, self._rules.memory_frame.state_functions)
        merged = (
            replace(level, last_emissions=level.last_emissions.with_missing_columns(table.schema)).with_windows(
                table, self._rules
            )
            for level, table in zip(levels, tables, strict=True)
        )
        return concat([late, pane_table.filter(lost)]), tuple(merged), counts

    def _empty_level(self, level: TimeWindow, table: WindowTable) -> OpenLevel:
        """Return a level without windows. ``level`` is the window of the level, and ``table`` a table with the columns
        that its windows will have.
        """
        none = table.without_rows()
        at = self._first_watermark
        until = self._rules.last_closed_end(at) if self._rules.cascades else HIGHEST
        return OpenLevel(level, windows=none, last_emissions=none, watermark=at, cascaded_until=until)

    @property
    def _first_watermark(self) -> int:
        """The watermark of a new level, in microseconds UTC. Levels are created when the first rows arrive. Windows
        that end before this watermark are closed from the beginning.
        """
        return closing_time(self._clock.watermark, self._rules)

    def _has_begun(self, at: int) -> NDArray[np.bool_]:
        """Return a mask of the windows of a level that are counted in `progress`. ``at`` is the number of the level,
        counted from the finest.

        With the late policy `Buffer`, a window of a coarser level is counted only after a window of the next finer
        level in it has closed. Until then, the rows of the coarser window are counted in finer windows. A finer window
        that was closed by a timeout counts as closed here only if the windows of the finer level do not overlap.
        Windows whose first pane is not known are always counted.
        """
        level = self._levels[at]
        below = self._levels[at - 1]
        firsts = level.windows.marks["first_pane"]
        begun = np.ones(len(firsts), np.bool_)
        if self.late.closes_by_events and at:
            has_first = firsts < HIGHEST
            begun[has_first] = self._rules.are_closed(earliest_ends(below.window, firsts[has_first]), below.watermark)
            timed = below.windows.filter(
                (below.windows.ends <= below.windows.marks["closed_until"]) & below.window.disjoint
            )
            first_panes = mark_first_panes(level.windows, level.window, timed.index, self._rules).marks["first_pane"]
            begun |= first_panes < HIGHEST
        return begun

    def _replace_state(self, levels: tuple[OpenLevel, ...], clock: saved.Clock, counts: Mapping[str, int]) -> None:
        """Replace the levels and the clock, and add to the counts of `progress`. Other methods call this method last,
        so that an error before this call leaves the stream unchanged.
        """
        self._levels = levels
        self._clock = clock
        for name, count in counts.items():
            self._counts[name] += count


# the columns of the table that `OpenWindows.advance` returns before the first batch
_COLUMNS_BEFORE_ROWS = pa.schema([(LEVEL, pa.string())])


def _check_types(schema: pa.Schema, new: pa.Schema) -> None:
    """Raise ``ValueError`` if a column of a batch has another type than in earlier batches."""
    for field in new:
        kind = schema.field(field.name).type if field.name in schema.names else field.type
        if kind != field.type:
            raise ValueError(
                f"the column {field.name!r} is {shown(field.type)} in this batch and {shown(kind)} in earlier "
                f"batches; pass every batch with the same types"
            )
