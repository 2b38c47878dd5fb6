"""A stream into a store in one process, without Spark. Closed windows are committed, and each row counts exactly once::

    rows ──▶ OpenWindows ── closed ──▶ uncommitted windows ──▶ save the state ──▶ commit (writer, number)

The attribute ``uncommitted_windows`` contains the closed windows that wait for a commit. The saved state of the stream
includes them. Each row counts exactly once, because the state is saved before each commit, and because a store accepts
each commit number of a writer only once. If a process is killed after saving and before committing, the restarted
process repeats the same commit. Late rows become separate states, which queries of the store merge with the other
states of the window. Therefore closed windows need not stay in memory for late rows.
"""

from __future__ import annotations

import copy
import datetime as dt
import json
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from aggr.arguments import checked_name, checked_whole
from aggr.arrow import compute as pc
from aggr.state_checks import mark_as_checked
from tiltframe.caller_warnings import warn_caller
from tiltframe.event_time import INSTANT, event_times
from tiltframe.exclusions import Exclusions, Note
from tiltframe.frame import TiltFrame, finest_frame
from tiltframe.instants import instants_of
from tiltframe.level_chain import join_levels, with_level_column
from tiltframe.merged_windows import merge_level
from tiltframe.names import END, LEVEL, REASON, START
from tiltframe.parameter_names import parameter_text
from tiltframe.ranges import EVER, as_text
from tiltframe.reducing import reduce_rows
from tiltframe.store.changes.append import append_from_stream
from tiltframe.store.log.errors import CommitConflict, MissingStore, StoreError
from tiltframe.store.log.records import WATERMARKS
from tiltframe.store.log.run import WritingTransaction, run_transaction
from tiltframe.store.log.stream_watermarks import StreamWatermark
from tiltframe.store.log.writers import check_writer
from tiltframe.store.query.query import Query
from tiltframe.streaming import AfterClose, Drop, EmitPolicy, LatePolicy, OpenWindows, TrueWindow, read_emit, read_late
from tiltframe.streaming.saved import append_extension, read_extension

if TYPE_CHECKING:
    from tiltframe.store.frame_store import FrameStore

__all__ = ["ClosedWindows", "committed_before", "compact_or_warn", "recovered"]

COMPACT_EVERY = 50  # the number of commits between two compactions

_AFTER_ALL_WINDOWS = "9999-01-01"  # a time later than the end of any window


class ClosedWindows:
    """The open windows of a stream on the finest level, and the closed windows that are not in the store yet.

    Parameters
    ----------
    store : FrameStore
        The store to write to. At each commit, the stream merges its closed windows into windows of the coarser levels.
        The store may not exist yet, and other writers may write to it at the same time.
    stream : str
        The name of the stream, which must be unique among all streams into this store.
    emit : AfterClose or str
        When windows are emitted. Only `after_close` is allowed, with no parameters other than ``delay`` and
        ``timeout``. If a window is closed by its timeout, all earlier windows are closed too.
    late : LatePolicy or str
        How late rows are treated; see `OpenWindows`. With ``true_window``, late rows count in their windows, however
        long ago these windows were closed. Closed windows do not stay in memory for this purpose.
    compact_every : int, optional
        The number of commits after which the store is compacted. With None, the stream does not compact the store.
    **bounds
        ``max_keys`` and ``beyond``, which `OpenWindows` describes.

    Raises
    ------
    ValueError
        If ``emit`` is not ``after_close``, or has parameters other than ``delay`` and ``timeout``, because a store
        accepts only closed windows.
    StoreError
        If the store cannot be read.

    Guarantee
    ---------
    Suppose that `to_ipc` is always called before `commit`, and that a restarted stream continues from the last saved
    state and receives all rows that were added after this state was saved. Then, after any failure, the states in the
    store are bit-for-bit those of a rollup of all rows. Without a saved state, the stream continues from the store:
    rows whose window of the finest level is already in the store are ignored.

    Examples
    --------
    >>> import tempfile, aggr
    >>> from tiltframe import FrameStore
    >>> frame = TiltFrame(["1s", "1m"], time="ts", measures={"n": aggr.count()})
    >>> stream = ClosedWindows(FrameStore(tempfile.mkdtemp() + "/store", frame), "requests")
    >>> late = stream.add_rows(pa.table({"ts": [0, 500, 1500]}))
    >>> stream.advance(1_000_000)
    >>> saved = stream.to_ipc()      # to a file, before each commit
    >>> stream.commit()
    True
    >>> stream.store.query("1m").column("n").to_pylist()
    [2]
    """

    def __init__(
        self,
        store: FrameStore,
        stream: str,
        emit: EmitPolicy | str = "after_close",
        late: LatePolicy | str = "true_window",
        *,
        compact_every: int | None = COMPACT_EVERY,
        **bounds: Any,
    ) -> None:
        """Check the arguments, and read the time before which all windows of the stream are in the store."""
        self.store = store
        self.stream = stream
        check_writer(checked_name(stream, "stream, the name of the stream,"), 0)
        self._emit = _checked_emit(emit)
        self._late = read_late(late)
        self._compact_every = None if compact_every is None else checked_whole(compact_every, "compact_every", 1)
        self._frame = finest_frame(store.frame)
        self._window_late_policy = Drop() if self._late == TrueWindow() else self._late
        self.writer = f"{stream} {uuid.uuid4()}"
        self.commit_number = 0
        self.uncommitted_windows: pa.Table | None = None
        self._has_ended = False
        records = store.recorded([_owner_record_name(stream), WATERMARKS])
        self._owner = records.get(_owner_record_name(stream))
        self._recorded_watermark: int | None = records.get(WATERMARKS, {}).get(stream)
        # the number of values that measures have skipped, and the number of groups with more values than the limit of a
        # measure, in all commits so far
        self.excluded = Exclusions(store.frame)
        self.committed = committed_before(store, stream)
        if self.committed is None:
            self.windows = OpenWindows(self._frame, self._emit, self._window_late_policy, **bounds)
        else:
            no_states = _no_states(store, self._frame)
            self.windows = OpenWindows.from_committed(
                no_states, self.committed, frame=self._frame, emit=self._emit, late=self._window_late_policy, **bounds
            )

    def add_rows(self, rows: pa.Table) -> pa.Table:
        """Add a batch of rows, like `OpenWindows.add_rows`; return the rows that are dropped. Batches must be added in
        the order of their arrival.
        """
        self._has_ended = False
        if self._late != TrueWindow() or self.windows.closed_before is None:
            return self.windows.add_rows(rows)
        self._frame.check(rows.schema)
        times = event_times(rows.column(self._frame.time), self._frame.time, self._frame.timezone)
        finest = self._frame.levels[0]
        committed = EVER[0] if self.committed is None else self.committed
        window_ends = finest.ends(finest.starts(times))
        late = (window_ends <= self.windows.closed_before) & (window_ends > committed)
        dropped = self.windows.add_rows(rows.filter(pa.array(~late)) if late.any() else rows)
        if late.any():
            self._add_uncommitted(reduce_rows(rows.filter(pa.array(late)), self._frame, times[late]))
        return dropped

    def advance(self, watermark: dt.datetime | int | None = None, now: dt.datetime | int | None = None) -> None:
        """Advance the time, like `OpenWindows.advance`. The windows that are closed by this call wait for the next
        commit.
        """
        emitted = self.windows.advance(watermark, now)
        self._add_uncommitted(emitted)
        if emitted.num_rows and (timed_out := emitted.filter(pc.equal(emitted.column(REASON), "timeout"))).num_rows:
            end = int(instants_of(timed_out, END).max())
            self._add_uncommitted(self.windows.advance(self._watermark_after(end)))

    def close(self) -> None:
        """Close all windows, because no more rows will arrive. The next commit removes the stream's watermark from the
        store.
        """
        end = self.windows.last_end
        if end is not None:
            self.advance(self._watermark_after(end))
        self._has_ended = True

    def copy(self) -> ClosedWindows:
        """Return an independent copy of the stream in its current state."""
        clone = copy.copy(self)
        clone.windows = self.windows.copy()
        clone.excluded = self.excluded.without_counts()
        clone.excluded.add(self.excluded)
        return clone

    def to_ipc(self, notes: Mapping[str, Any] | None = None) -> bytes:
        """Return the open windows and the closed windows that wait for a commit, as bytes for `from_ipc`. ``notes`` are
        values of the caller to save in these bytes, such as the position in the input.
        """
        description = {
            "stream": self.stream,
            "writer": self.writer,
            "number": self.commit_number,
            "notes": dict(notes or {}),
        }
        stream_state = {"committed": self.committed, "owner": self._owner}
        return append_extension(self.windows.to_ipc(), description | stream_state, self.uncommitted_windows)

    @property
    def is_waiting(self) -> bool:
        """Whether `commit` has windows or a watermark to write."""
        watermark = self._watermark()
        return self.uncommitted_windows is not None or (watermark is not None and self._closes_windows(watermark))

    @classmethod
    def from_ipc(
        cls,
        data: bytes,
        store: FrameStore,
        stream: str | None = None,
        emit: EmitPolicy | str = "after_close",
        late: LatePolicy | str = "true_window",
        *,
        compact_every: int | None = COMPACT_EVERY,
        **bounds: Any,
    ) -> ClosedWindows:
        """Return the stream that continues from a state that `to_ipc` returned. Call `commit` next, because the store
        may lack the windows that waited for a commit.

        Raises
        ------
        ValueError
            If ``data`` is not such a state, or belongs to another frame or stream.
        """
        description, uncommitted_windows = read_extension(data)
        if "writer" not in description:
            raise ValueError(
                "the saved state belongs to a stream without a store; pass the saved state of a stream into this "
                "store, or begin without a saved state"
            )
        if stream is not None and description["stream"] != stream:
            raise ValueError(
                f"the saved state belongs to the stream {description['stream']!r}, and this stream is {stream!r}; use "
                "the state of this stream"
            )
        restored = cls(store, description["stream"], emit, late, compact_every=compact_every)
        restored.windows = OpenWindows.from_ipc(
            data, restored._frame, restored._emit, restored._window_late_policy, **bounds
        )
        restored.writer = description["writer"]
        restored.commit_number = description["number"]
        restored.committed = description["committed"]
        # A state that an earlier release saved has no entry "owner".
        restored._owner = description.get("owner", restored._owner)
        restored.uncommitted_windows = uncommitted_windows if uncommitted_windows.num_rows else None
        return restored

    def commit(self, note: Note | None = None) -> bool:
        """Commit the closed windows in ``uncommitted_windows`` to the store, under the next commit number. The caller
        must have saved `to_ipc()` before.

        The commit also records the stream's watermark minus its delay and lateness. Queries with ``closed=True`` return
        only windows that end by this time. If no closed windows wait for a commit, a commit without states records this
        time, but only if the time closes further windows of coarser levels. Return True if states were added, and False
        if no closed windows waited or the store already had this commit.

        Raise `StoreError` if the store cannot be written, or has other states under this commit number because the
        stream has continued from an outdated state. ``note`` receives the messages that `FrameStore.append` describes;
        by default they are warnings.
        """
        watermark = self._watermark()
        if self.uncommitted_windows is None:
            if watermark is not None and self._closes_windows(watermark):
                self._record_watermark(watermark)
            return False
        finer = self.uncommitted_windows
        levels = []
        for level in self.store.frame.levels:
            finer = merge_level(mark_as_checked(finer), self.store.frame, level, nulls_are_unknown=True)
            levels.append((level, finer))
        states = join_levels(levels, self.store.frame)
        before = self.store.recorded([_closed_record_name(self.stream), _owner_record_name(self.stream)])
        self._check_owner(before.get(_owner_record_name(self.stream)))
        recorded = {**self._closed_record(before), _owner_record_name(self.stream): self.writer}
        try:
            added = append_from_stream(
                self.store,
                states,
                self.writer,
                self.commit_number,
                recorded=recorded,
                replacing=before,
                watermark=watermark,
                note=note,
            )
        except CommitConflict:
            self._check_owner(
                self.store.recorded([_owner_record_name(self.stream)]).get(_owner_record_name(self.stream))
            )
            raise
        self._owner = self.writer
        if watermark is not None:
            self._recorded_watermark = watermark.closed_before
        # Values and groups are counted on the finest level only. A coarser window may be in several commits, and would
        # be counted repeatedly.
        finest, closed = levels[0]
        self.excluded.count_groups(finest.name, closed)
        self.excluded.count_values(closed)
        self.uncommitted_windows = None
        self.commit_number += 1
        if self._compact_every is not None and self.commit_number % self._compact_every == 0:
            compact_or_warn(self.store)
        return added

    def _record_watermark(self, watermark: StreamWatermark) -> None:
        """Record the watermark in a commit without windows. Raise `CommitConflict` if another process now writes this
        stream.
        """
        owner = _owner_record_name(self.stream)

        def attempt(transaction: WritingTransaction) -> None:
            transaction.read(owner)
            self._check_owner(json.loads(transaction.snapshot.text(owner) or "null"))
            watermark.record(transaction)

        run_transaction(self.store.backend, attempt, [WATERMARKS, owner])
        self._recorded_watermark = watermark.closed_before

    def _check_owner(self, owner: str | None) -> None:
        """Raise `CommitConflict` if another process has written to this stream since this process began. ``owner``
        identifies the last process that the store has recorded for the stream.
        """
        if owner not in (self._owner, self.writer):
            raise CommitConflict(
                f"another process writes the stream {self.stream!r} into {self.store.display_uri}, and only one "
                "process can write a stream; end one of them, or name another stream"
            )

    def _closed_record(self, before: Mapping[str, Any]) -> dict[str, Any]:
        """Return the record of the time before which all rows of the stream are in the store. The result is a dict with
        one entry: the name of the record → the time in microseconds UTC.

        Return an empty dict if no window has closed, or if the record in the store has this time or a later one.
        ``before`` contains the records in the store.
        """
        until = self.windows.closed_before
        name = _closed_record_name(self.stream)
        return {} if until is None or until <= before.get(name, EVER[0]) else {name: until}

    def _watermark_after(self, end: int) -> int:
        """Return the watermark, in microseconds UTC, that closes all windows which end at or before ``end``."""
        watermark = end + self._emit.delay_micros
        if not self._window_late_policy.closes_by_events:
            return watermark
        finest = self._frame.levels[0]
        boundary = finest.ends(finest.starts(np.array([watermark - 1])))
        newest = self._window_late_policy.newest_at(finest, int(boundary[0]))
        return watermark if newest is None else newest

    def _watermark(self) -> StreamWatermark | None:
        """Return the watermark to record, or None if no window has closed yet. After the end of the stream, return a
        watermark without a time, which removes the stream's watermark from the store.
        """
        if self._has_ended:
            return StreamWatermark(self.stream, None)
        until = self.windows.closed_before
        if until is None:
            return None
        return StreamWatermark(self.stream, until - (self._window_late_policy.lateness_micros or 0))

    def _closes_windows(self, watermark: StreamWatermark) -> bool:
        """Return whether a watermark closes windows of coarser levels that the recorded watermark leaves open. Return
        False if no watermark is recorded. If the stream has ended and a watermark is recorded, return True, because the
        recorded watermark must be removed.

        A watermark that closes windows is recorded even if the stream has no windows to commit. Otherwise, queries with
        ``closed=True``, which use the earliest watermark of all streams, would still leave out the closed windows. If
        there are several levels, the finest level is ignored: when its windows close, they are committed together with
        the watermark.
        """
        until = watermark.closed_before
        if self._recorded_watermark is None or until is None:
            return self._recorded_watermark is not None
        levels = self.store.frame.levels
        times = np.array([self._recorded_watermark, max(until, self._recorded_watermark)])
        return any(len(set(level.starts(times).tolist())) > 1 for level in levels[1:] or levels)

    def _add_uncommitted(self, states: pa.Table) -> None:
        """Add states of the finest level to the closed windows that wait for a commit."""
        if not states.num_rows:
            return
        states = states.select(self._frame.states_columns[1:])
        self.uncommitted_windows = (
            states if self.uncommitted_windows is None else pa.concat_tables([self.uncommitted_windows, states])
        )


def compact_or_warn(store: FrameStore) -> None:
    """Compact all windows. A failure only causes a warning, because the rows are already committed, and a later
    compaction can merge them.
    """
    try:
        store.compact(before=_AFTER_ALL_WINDOWS)
    except StoreError as error:
        warn_caller(
            f"the store {store.display_uri} was not compacted: {error}; its rows are committed, and a later compaction "
            "merges them"
        )


def committed_before(store: FrameStore, stream: str | None = None) -> int | None:
    """Return the time, in microseconds UTC, before which all rows of a stream are in a store, or None if the store has
    no rows of the stream.

    ``stream`` is the name that was passed to `ClosedWindows`. Without ``stream``, all rows of the store count, and the
    result is the end of the last window of the finest level. Raise `StoreError` if the store cannot be read.
    """
    if stream is not None:
        return store.recorded([_closed_record_name(stream)]).get(_closed_record_name(stream))
    if store.schema is None:
        return None
    finest = store.frame.levels[0]
    return store.at().level(finest.name).end


def recovered(
    store: FrameStore,
    emit: EmitPolicy | str = "after_close",
    late: LatePolicy | str = "drop",
    *,
    stream: str | None = None,
    **bounds: Any,
) -> OpenWindows:
    """Restore open windows from a store, without a saved state. Coarser windows are merged from finer ones.

    Parameters
    ----------
    store : FrameStore
    emit, late, **bounds : optional
        See `OpenWindows`.
    stream : str, optional
        The name of the stream to continue. By default, all rows of the store count; see `committed_before`.

    Returns
    -------
    OpenWindows
        The open windows, on all levels of the store. Rows whose window of the finest level is in the store are ignored
        if they arrive again; ``progress.committed_rows`` counts them.

    Raises
    ------
    MissingStore
        If the store has no rows of the stream.
    StoreError
        If the store cannot be read.

    Examples
    --------
    >>> import tempfile, aggr, tiltframe
    >>> from tiltframe import FrameStore
    >>> frame = TiltFrame(["1s", "1m"], time="ts", measures={"n": aggr.count()})
    >>> store = FrameStore(tempfile.mkdtemp() + "/store", frame)
    >>> store.append(tiltframe.rollup(pa.table({"ts": [0, 500, 1500]}), frame), "w", 0)
    True
    >>> windows = recovered(store)
    >>> late = windows.add_rows(pa.table({"ts": [0, 500, 1500, 2500]}))     # sent again, and a new one
    >>> windows.progress.committed_rows
    3
    >>> windows.results(windows.advance(60_000_000)).column("n").to_pylist()
    [1, 4]
    """
    committed = committed_before(store, stream)
    if committed is None:
        stream_text = "" if stream is None else f" of the stream {stream!r}"
        raise MissingStore(
            f"the store {store.display_uri} contains no rows{stream_text} to continue from; begin with a "
            "new OpenWindows"
        )
    # For each level but the coarsest, the states of a range of windows are read, because they belong to windows of the
    # next coarser level that may still be open. One coarser window contains the time ``committed``. The range begins at
    # the start of the coarser window before it, and ends at ``committed``.
    spans = {}
    for level, coarser in zip(store.frame.levels, store.frame.levels[1:], strict=False):
        low = int(coarser.starts(coarser.starts(np.array([committed])) - 1)[0])
        spans[level.name] = (as_text(low), as_text(committed))
    tables = [store.at().states(Query(level, span)).table() for level, span in spans.items()]
    states = pa.concat_tables([_no_states(store, store.frame), *tables])
    return OpenWindows.from_committed(states, committed, frame=store.frame, emit=emit, late=late, **bounds)


def _closed_record_name(stream: str) -> str:
    """Return the name of the record that has the time before which all rows of the stream are in the store."""
    return f"{stream} closed"


def _owner_record_name(stream: str) -> str:
    """Return the name of the record that identifies the process that last wrote to the stream."""
    return f"{stream} writer"


def _no_states(store: FrameStore, frame: TiltFrame) -> pa.Table:
    """Return a table of states without rows, with the types of the store."""
    assert store.schema is not None
    empty = store.schema.empty_table().append_column(END, pa.array([], INSTANT))
    return with_level_column(empty, frame, frame.levels[0]).select([LEVEL, START, END, *store.schema.names[1:]])


def _checked_emit(emit: EmitPolicy | str) -> AfterClose:
    """Parse the argument ``emit`` of a stream into a store. Raise ``ValueError`` unless it is ``after_close``, with no
    parameters except ``delay``, ``timeout`` and a mode other than ``changelog``.
    """
    policy = read_emit(emit)
    supported = AfterClose(delay=policy.delay, timeout=policy.timeout, mode=policy.mode)
    if policy != supported or policy.mode == "changelog":
        raise ValueError(
            f"a store accepts only closed windows, so {parameter_text('emit')} must be after_close, with no parameters "
            f"but delay= and timeout=; got {policy}"
        )
    return replace(supported, mode="discarding")
