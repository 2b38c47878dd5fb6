"""Backfills: add rows of the past, one range of time after another, each range in a separate commit. Other processes
can write new rows at the same time.

The commit number of a range is its index in the plan. The first commit records the plan. A backfill that was killed
continues after the last commit number of its writer. A different plan with the same writer raises an error.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arguments import checked_truth, checked_type, shown
from tiltframe.event_time import event_times
from tiltframe.files.inputs import open_source
from tiltframe.files.read_options import NO_OPTIONS, ReadOptions
from tiltframe.files.source import Source
from tiltframe.frame import TiltFrame
from tiltframe.parameter_names import by_caller
from tiltframe.ranges import EVER, Range, as_text
from tiltframe.rolling_up import frame_batches
from tiltframe.spilled_states import spill_states
from tiltframe.store.changes.progress import Progress
from tiltframe.store.opened import OpenedStore
from tiltframe.time_range import read_time_range
from windows import window

Rows: TypeAlias = Callable[[dt.datetime, dt.datetime], Any]
BatchesOfRange: TypeAlias = Callable[[Range], "Iterator[pa.RecordBatch] | None"]
Add: TypeAlias = "Callable[[OpenedStore, Range, str, int, Mapping[str, Any] | None], bool]"


@dataclass(frozen=True)
class Backfill:
    """The plan of a backfill: the ranges of time, in the order in which they are committed.

    `tiltframe.FrameStore.plan_backfill` returns it.

    Parameters
    ----------
    writer : str
        The name of the writer of the commits.
    ranges : sequence of (int, int)
        Ranges of times of rows, in microseconds UTC, end exclusive. The index of a range is its commit number.
    record : name -> plain data
        The arguments of the plan as plain data. The first commit records them, so that the arguments of a later
        call can be compared with them.
    add : callable
        A function that adds the rows of a range in one commit, and returns whether the commit is new.
    """

    writer: str
    ranges: Sequence[Range]
    record: Mapping[str, Any]
    add: Add

    @classmethod
    def by(
        cls,
        frame: TiltFrame,
        writer: str,
        *,
        chunk: str,
        newest_first: bool,
        within: Any,
        times: Callable[[], Range],
        add: Add,
    ) -> Backfill:
        """Divide a range of time into chunks, and return a plan that calls a function for each chunk.

        Parameters
        ----------
        frame : TiltFrame
        writer : str
        chunk : str
            The length of each chunk, such as ``1d``. Chunks are windows of this length in the time zone of the frame.
        newest_first : bool
            Whether to begin with the latest chunk.
        within : range or None
            The range of the rows' times. None stands for all times.
        times : callable
            A function that returns the first time of the rows, and a time after the last one, in microseconds UTC. The
            function is called only if ``within`` does not have both ends.
        add : callable of (store, range, writer, number, recorded)
            A function that adds the rows of a range in one commit, and returns whether the commit is new.

        Returns
        -------
        Backfill

        Raises
        ------
        ValueError
            If ``within`` or ``chunk`` cannot be read.
        """
        span = EVER if within is None else read_time_range(within, frame.timezone, open_ends=True)
        if set(EVER) & set(span):
            first, end = times()
            span = max(span[0], first), min(span[1], end)
        record = {"chunk": chunk, "newest_first": newest_first, "within": list(span)}
        return cls(writer, _ranges(frame, span, chunk, newest_first), record, add)

    @property
    def recorded_as(self) -> str:
        """The name of the record that stores the plan of the backfill."""
        return f"backfill {self.writer}"

    def ranges_left(self, store: OpenedStore) -> list[Range]:
        """Return the ranges that are not in a store yet, in the order of the plan.

        Parameters
        ----------
        store : FrameStore

        Returns
        -------
        list of (int, int)

        Raises
        ------
        ValueError
            If the store has recorded another plan of this writer.
        StoreError
            If the store cannot be read.
        """
        self._check_same_plan(store.recorded([self.recorded_as]).get(self.recorded_as))
        last = store.last_commit(self.writer)
        return list(self.ranges[0 if last is None else last + 1 :])

    def follow(self, store: OpenedStore, recorded: Mapping[str, Any], progress: Progress) -> int:
        """Add the ranges that are not in a store yet.

        Parameters
        ----------
        store : FrameStore
        recorded : name -> plain data
            Records to store with the first commit.
        progress : callable of (ranges done, ranges in the plan)

        Returns
        -------
        int
            The number of ranges that were added.

        Raises
        ------
        ValueError, StoreError
            For the same reasons as `tiltframe.FrameStore.backfill`.
        """
        remaining = self.ranges_left(store)
        added = 0
        first_records = {self.recorded_as: dict(self.record), **recorded}
        for number, span in enumerate(remaining, len(self.ranges) - len(remaining)):
            is_first = not store.recorded([self.recorded_as])
            arguments = store, span, self.writer, number, first_records if is_first else None
            added += self.add(*arguments)
            progress(number + 1, len(self.ranges))
        return added

    def _check_same_plan(self, recorded: Any) -> None:
        """Raise ``ValueError`` if ``recorded``, the plan in the store, is not None and differs from this plan."""
        if recorded is None or recorded == self.record:
            return
        # The names of the entries are taken from both plans, because one plan may lack the entry "files", which only
        # plans of files have.
        names = dict.fromkeys([*self.record, *recorded])
        differing_names = [name for name in names if recorded.get(name) != self.record.get(name)]
        differing = " and ".join(differing_names)
        raise ValueError(
            f"the backfill {shown(self.writer)} was begun with another value of {differing}, so its ranges are "
            "different; use the earlier arguments, or "
            + by_caller(
                "add rows that the store does not contain with tiltframe rollup --replace-within START,END",
                "pass another writer for rows that the store does not contain",
            )
        )


def _ranges(frame: TiltFrame, span: Range, chunk: str, newest_first: bool) -> list[Range]:
    size = window(chunk, frame.timezone)
    low, high = span
    if low >= high:
        return []
    starts = size.starts_between(int(size.starts(np.array([low]))[0]), high)
    ranges = [(max(low, a), min(high, b)) for a, b in zip(starts.tolist(), size.ends(starts).tolist(), strict=True)]
    return ranges[::-1] if newest_first else ranges


def _add_in_bounded_memory(batches: BatchesOfRange) -> Add:
    """Return a function that adds the rows of a range to a store in bounded memory. ``batches`` is a function that
    returns the rows of a range. If ``batches`` returns None, the range has no rows, and nothing is committed.
    """

    def add(store: OpenedStore, span: Range, writer: str, number: int, recorded: Mapping[str, Any] | None) -> bool:
        rows = batches(span)
        if rows is None:
            return False
        with spill_states(rows, store.frame, check=store.backend.check_values) as slices:
            return store.append_spilled(slices, writer=writer, commit=number, recorded=recorded) is not None

    return add


def _add_from_function(rows: Rows, frame: TiltFrame, reading: ReadOptions) -> Add:
    """Return a function that adds the rows of a range to a store. ``rows`` is the user's function, which receives the
    start and the end of the range. If ``rows`` returns rows outside the range, ``ValueError`` is raised.
    """

    def batches(span: Range) -> Iterator[pa.RecordBatch]:
        begin = dt.datetime.fromtimestamp(0, dt.UTC)
        data = rows(*(begin + dt.timedelta(microseconds=at) for at in span))
        for batch in frame_batches(data, frame, reading):
            if not _is_in_range(batch, frame, span).all():
                raise ValueError(
                    f"the rows of {as_text(span[0])} to {as_text(span[1])} include times outside this range, which "
                    "would be counted again in another range; return only the rows in the range"
                )
            yield batch

    return _add_in_bounded_memory(batches)


def _add_from_files(source: Source, times: Mapping[Path, Range | None], frame: TiltFrame) -> Add:
    columns = list(frame.columns_in(source.schema.names))

    def batches(span: Range) -> Iterator[pa.RecordBatch] | None:
        files = [
            file
            for file, file_range in times.items()
            if file_range is not None and file_range[0] < span[1] and file_range[1] >= span[0]
        ]
        if not files:
            return None
        rows = replace(source, files=tuple(files)).batches(columns)
        return (batch.filter(pa.array(_is_in_range(batch, frame, span))) for batch in rows)

    return _add_in_bounded_memory(batches)


def _is_in_range(batch: pa.RecordBatch, frame: TiltFrame, span: Range) -> NDArray[np.bool_]:
    times = event_times(batch.column(frame.time), frame.time, frame.timezone)
    return (times >= span[0]) & (times < span[1])


def _time_range_of_file(source: Source, file: Path) -> Range | None:
    """Return the first and the last event time in a file, in microseconds UTC, or None if the file has no rows."""
    batches = replace(source, files=(file,)).batches([source.time])
    batch_times = [
        event_times(batch.column(source.time), source.time, source.timezone) for batch in batches if batch.num_rows
    ]
    return (int(min(map(np.min, batch_times))), int(max(map(np.max, batch_times)))) if batch_times else None


def _paths(data: Any) -> list[Path]:
    paths = list(data) if isinstance(data, list | tuple) else [data]
    try:
        return [Path(path) for path in paths]
    except TypeError:
        raise ValueError(
            f"the data of a backfill must be files, or a function of (start, end); got {shown(data)}"
        ) from None


def plan_backfill(
    store: OpenedStore,
    data: Any,
    chunk: str = "1d",
    *,
    within: Any = None,
    writer: str | None = None,
    newest_first: bool = False,
    reading: ReadOptions | None = None,
) -> Backfill:
    """Plan a backfill. If the data is in files, their event times are read.

    Parameters
    ----------
    data, chunk, within, writer, newest_first, reading : optional
        See `backfill`.

    Returns
    -------
    Backfill
        The plan. Its ``ranges_left(store)`` lists the ranges that are not in the store yet, and ``follow`` adds them.

    Raises
    ------
    ValueError
        If ``data``, ``within`` or ``chunk`` cannot be read.
    """
    frame = store.frame
    checked_truth(newest_first, "newest_first")
    options = NO_OPTIONS if reading is None else checked_type(reading, ReadOptions, "reading")
    span = EVER if within is None else read_time_range(within, frame.timezone, open_ends=True)
    settings = {"chunk": chunk, "newest_first": newest_first, "within": list(span)}
    if callable(data):
        if writer is None or set(EVER) & set(span):
            raise ValueError(
                "a backfill from a function needs writer= and a range with both ends, within=(start, end); got "
                f"writer={shown(writer)} and within={shown(within)}"
            )
        return Backfill(
            writer, _ranges(frame, span, chunk, newest_first), settings, _add_from_function(data, frame, options)
        )
    paths = [path.resolve() for path in _paths(data)]
    source = open_source(
        paths, frame.time, uses=frame.column_uses(options.where), reading=options, timezone=frame.timezone
    )
    source.check(frame.check)
    times = {file: _time_range_of_file(source, file) for file in source.files}
    spans = [span for span in times.values() if span is not None]
    low, high = (min(first for first, _ in spans), max(last for _, last in spans) + 1) if spans else (0, 0)
    ranges = _ranges(frame, (max(span[0], low), min(span[1], high)), chunk, newest_first)
    files = {str(file.resolve()): [file.stat().st_size, span and list(span)] for file, span in times.items()}
    name = " ".join(map(str, paths)) if writer is None else writer
    return Backfill(name, ranges, {**settings, "files": files}, _add_from_files(source, times, frame))


def backfill(
    store: OpenedStore,
    data: Any,
    chunk: str = "1d",
    *,
    within: Any = None,
    writer: str | None = None,
    newest_first: bool = False,
    reading: ReadOptions | None = None,
    progress: Progress = lambda done, total: None,
) -> int:
    """Add older rows in several commits, one for each range of time. Other processes can write new rows at the same
    time.

    Parameters
    ----------
    data : path, list of paths, or function
        Files and folders, or a function. For each range, the files with times in the range are read, or the function is
        called. The function receives the start and the end (exclusive) of a range as datetimes, and returns the rows of
        the range in any form that `append_rows` accepts.
    chunk : str
        The length of each range, such as ``1d``. The ranges are windows of this length in the time zone of the frame.
    within : range, optional
        The range of the times of the rows, as for `query`; by default all times in the files.
    writer : str, optional
        The name of the writer of the commits. For files, the default is derived from their paths.
    newest_first : bool
        Whether to begin with the latest range.
    reading : ReadOptions, optional
        See `append_rows`.
    progress : callable of (ranges done, ranges in the plan), optional

    Returns
    -------
    int
        The number of ranges that were added.

    Raises
    ------
    ValueError
        If the ranges differ from an earlier plan of the writer: another chunk, order or range, or changed files.
    StoreError
        For the same reasons as `append_rows`.

    Guarantee
    ---------
    Each range counts exactly once. A backfill that is killed at any moment continues after the last range in the store
    when it is called again.

    Examples
    --------
    >>> import aggr, tempfile, pyarrow as pa
    >>> from tiltframe import FrameStore, TiltFrame
    >>> store = FrameStore(tempfile.mkdtemp(), TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}))
    >>> def rows(start, end):
    ...     return pa.table({"ts": [start, start]})
    >>> past = {"within": "2024-05", "writer": "archive"}
    >>> store.backfill(rows, "1w", **past), store.backfill(rows, "1w", **past)
    (5, 0)
    >>> store.query(per="all").column("n").to_pylist()
    [10]
    """
    plan = plan_backfill(store, data, chunk, within=within, writer=writer, newest_first=newest_first, reading=reading)
    return plan.follow(store, {}, progress)
