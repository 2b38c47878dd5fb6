"""The destinations of `tiltframe stream`: standard output, which receives emitted windows, or a store, which receives
closed windows.
"""

from __future__ import annotations

import sys
import time as clock
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from tiltframe.exclusions import Exclusions
from tiltframe.frame import TiltFrame
from tiltframe.ordered.query import OrderedQuery
from tiltframe.reducing import reduce_rows
from tiltframe.regular_files import replace_file
from tiltframe.store.closed_windows import ClosedWindows
from tiltframe.streaming import OpenWindows
from tiltframe.streaming.saved import append_extension
from tiltframe.text.results import json_lines

# The name of a note in the saved state of a stream. If the note is present, all windows were closed and emitted. Its
# value is the watermark before the windows were closed, in microseconds UTC.
DRAINED = "drained"
# the minimum number of seconds between two commits, and between two saves of the state
_MIN_COMMIT_SECONDS = 1.0
# The time between two saves of the state is at least the duration of a save, multiplied by this number.
_SAVE_INTERVAL_FACTOR = 10


class Sink:
    """A destination of a stream. It also contains the open windows of the stream."""

    windows: Any

    @property
    def row_frame(self) -> TiltFrame | OrderedQuery:
        """The frame that determines which columns of rows are read. It also has the measures from which the stream
        decides which windows to emit.
        """
        frame: TiltFrame = self.windows.partial_frame
        return frame

    @property
    def excluded(self) -> Exclusions | None:
        """Two counts for the results of this process: the groups with more values than the limit of a measure, and the
        values that a measure refused. For ordered windows, None is returned.
        """
        excluded: Exclusions | None = getattr(self.windows, "excluded", None)
        return excluded

    def try_reduce(self, rows: pa.Table) -> object:
        """Reduce rows to states without adding them to the stream. An error is raised if a measure rejects a row, so
        that the row can be skipped as bad.
        """
        return reduce_rows(rows, self.windows.partial_frame)

    def discard_output(self) -> None:
        """Discard the results that were not written yet, because standard output is closed."""


@dataclass
class OutputSink(Sink):
    """A destination that writes emitted windows to standard output as JSON lines. They are written by `flush`, after a
    complete batch.
    """

    windows: Any  # an OpenWindows or an OrderedStream
    _lines: list[str] = field(default_factory=list)
    _drained: dict[str, int | None] = field(default_factory=dict)

    def copy(self) -> Self:
        """Return a copy of the destination and its windows. Rows that are added later do not change the copy."""
        return type(self)(self.windows.copy(), list(self._lines))

    def add(self, rows: pa.Table) -> pa.Table:
        """Add rows, and return the rows that are dropped as late."""
        late: pa.Table = self.windows.add_rows(rows)
        return late

    def advance(self, watermark: int | None) -> None:
        """Advance the watermark. Windows that are emitted as a result are written by the next call of `flush`."""
        self._write(self.windows.advance(None if self.windows.late.closes_by_events else watermark, _now()))

    def close(self) -> None:
        """Close all windows. This moves the watermark to the end of time. The previous watermark is kept, because a
        state that is saved later also records it.
        """
        self._drained = {DRAINED: self.windows.progress.watermark_us}
        self._write(self.windows.close())

    def discard_output(self) -> None:
        self._lines.clear()

    def _write(self, emitted: pa.Table) -> None:
        if emitted.num_rows:
            self._lines.append(json_lines(self.windows.results(emitted)))

    def flush(self, state: Path | None, notes: Mapping[str, Any], ended: bool = False) -> None:
        """Write the emitted windows to standard output. With ``ended``, also save the state together with ``notes``, so
        that the next run does not write these windows again.
        """
        if self._lines:
            sys.stdout.write("".join(self._lines))
            sys.stdout.flush()
            self._lines.clear()
        if state is not None and ended:
            save_state(state, append_extension(self.windows.to_ipc(), {"notes": dict(notes), **self._drained}))


class OrderedOutputSink(OutputSink):
    """A destination that writes the results of ordered windows to standard output as JSON lines."""

    @property
    def row_frame(self) -> OrderedQuery:
        query: OrderedQuery = self.windows.query
        return query

    def try_reduce(self, rows: pa.Table) -> object:
        return self.windows.anew().finish(rows)

    def advance(self, watermark: int | None) -> None:
        self._write(self.windows.advance(watermark))


@dataclass
class StoreSink(Sink):
    """A destination that commits closed windows to a store. `flush` first saves the state, and then commits the closed
    windows. The saved state includes these windows, so that the commit can be repeated if the process is killed.
    """

    closed: ClosedWindows
    _last_commit: float = field(default_factory=clock.monotonic)
    _commit_seconds: float = _MIN_COMMIT_SECONDS
    _has_unsaved_rows: bool = False

    def copy(self) -> StoreSink:
        """Return a copy of the destination and its windows. Rows that are added later do not change the copy."""
        return replace(self, closed=self.closed.copy())

    @property
    def excluded(self) -> Exclusions:
        """Two counts for the states that this process has committed: the groups with more values than the limit of a
        measure, and the values that a measure refused.
        """
        return self.closed.excluded

    @property
    def windows(self) -> OpenWindows:
        """The windows that are still open."""
        return self.closed.windows

    def add(self, rows: pa.Table) -> pa.Table:
        """Add rows, and return the rows that are dropped as late."""
        self._has_unsaved_rows = True
        return self.closed.add_rows(rows)

    def advance(self, watermark: int | None) -> None:
        """Advance the watermark."""
        self.closed.advance(None if self.windows.late.closes_by_events else watermark, _now())

    def close(self) -> None:
        """Close all windows."""
        self.closed.close()

    def flush(self, state: Path | None, notes: Mapping[str, Any], ended: bool = False) -> None:
        """Save the state together with ``notes``, and then commit the closed windows.

        If ``ended`` is false, the call does nothing in two cases: if there is nothing to save or commit, and if the
        last commit was less than ``_commit_seconds`` seconds ago.
        """
        has_changes = self.closed.is_waiting or (self._has_unsaved_rows and state is not None)
        if not ended and (not has_changes or clock.monotonic() - self._last_commit < self._commit_seconds):
            return
        if state is not None and has_changes:
            began = clock.monotonic()
            save_state(state, self.closed.to_ipc(notes))
            self._commit_seconds = max(_MIN_COMMIT_SECONDS, _SAVE_INTERVAL_FACTOR * (clock.monotonic() - began))
        self.closed.commit(_ignore_sentence)
        if ended and state is not None:
            save_state(state, self.closed.to_ipc(notes))
        self._last_commit = clock.monotonic()
        self._has_unsaved_rows = False


@contextmanager
def dropped_rows_writer(file: Path | None) -> Iterator[Callable[[pa.Table], None]]:
    """Yield a function that appends rows to a file as JSON lines. Without a file, it ignores the rows."""
    if file is None:
        yield lambda rows: None
        return
    with file.open("a", encoding="utf-8") as out:

        def append_rows(rows: pa.Table) -> None:
            if rows.num_rows:
                out.write(json_lines(rows))
                out.flush()

        yield append_rows


def save_state(file: Path, state: bytes) -> None:
    """Write a state to a file. The file has its previous content until the new content is on the disk."""
    with replace_file(file, durable=True) as out:
        out.write(state)


def _now() -> int:
    return clock.time_ns() // 1000


def _ignore_sentence(sentence: str) -> None:
    """Ignore a sentence about the groups and values that one commit has excluded, because the command prints the totals
    of all commits at the end.
    """
