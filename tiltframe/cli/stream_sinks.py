"""Destinations of `tiltframe stream`: standard output for emitted windows, or a store for closed ones."""

from __future__ import annotations

import sys
import time as clock
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from tiltframe.frame import TiltFrame
from tiltframe.ordered.query import OrderedQuery
from tiltframe.reducing import reduce_rows
from tiltframe.regular_files import replaced
from tiltframe.store.closed_windows import ClosedWindows
from tiltframe.streaming import OpenWindows
from tiltframe.streaming.saved import extended
from tiltframe.text.results import json_lines

DRAINED = "drained"  # the note of a saved state whose windows were all emitted: the watermark before
_EVERY = 1.0  # seconds between commits, and between saves of the state
_SAVING = 10  # this multiple of the time of a save, if that is longer


class Sink:
    """The destination of a stream, and how rows are read for it."""

    windows: Any

    @property
    def read(self) -> TiltFrame | OrderedQuery:
        """The frame with the measures of the emit policy; it determines the columns to read."""
        frame: TiltFrame = self.windows.partial_frame
        return frame

    def attempt(self, rows: pa.Table) -> object:
        """Aggregate rows and discard the result; raise an error if they cannot be aggregated."""
        return reduce_rows(rows, self.windows.partial_frame)

    def discard_output(self) -> None:
        """Discard results that are not written yet, because standard output is closed."""


@dataclass
class Output(Sink):
    """Write windows to standard output as JSON lines, after all rows that they are emitted for have arrived."""

    windows: Any  # an OpenWindows or an OrderedStream
    _lines: list[str] = field(default_factory=list)
    _drained: dict[str, int | None] = field(default_factory=dict)

    def copy(self) -> Self:
        """Return a copy that keeps the state before later rows."""
        return type(self)(self.windows.copy(), list(self._lines))

    def add(self, rows: pa.Table) -> pa.Table:
        """Add rows, and return those that are dropped as late."""
        late: pa.Table = self.windows.add_rows(rows)
        return late

    def tell(self, watermark: int | None) -> None:
        """Advance the watermark, and write the emitted windows."""
        self._write(self.windows.advance(None if self.windows.late.closes_by_events else watermark, _now()))

    def close(self) -> None:
        """Close all windows; a state that is saved after this records the watermark before."""
        self._drained = {DRAINED: self.windows.progress.watermark_us}
        self._write(self.windows.close())

    def discard_output(self) -> None:
        self._lines.clear()

    def _write(self, emitted: pa.Table) -> None:
        if emitted.num_rows:
            self._lines.append(json_lines(self.windows.results(emitted)))

    def settle(self, state: Path | None, notes: Mapping[str, Any], ended: bool = False) -> None:
        """Write emitted windows; at the end, save the state, so that the next run does not write them again."""
        if self._lines:
            sys.stdout.write("".join(self._lines))
            sys.stdout.flush()
            self._lines.clear()
        if state is not None and ended:
            save(state, extended(self.windows.to_ipc(), {"notes": dict(notes), **self._drained}))


class OrderedOutput(Output):
    """Write results of ordered windows to standard output as JSON lines."""

    @property
    def read(self) -> OrderedQuery:
        query: OrderedQuery = self.windows.query
        return query

    def attempt(self, rows: pa.Table) -> object:
        return self.windows.anew().finish(rows)

    def tell(self, watermark: int | None) -> None:
        self._write(self.windows.advance(watermark))


@dataclass
class IntoStore(Sink):
    """Commit closed windows to a store: first the state is saved, then the windows that it has for the store."""

    closed: ClosedWindows
    _last: float = field(default_factory=clock.monotonic)
    _every: float = _EVERY
    _unsaved: bool = False

    def copy(self) -> IntoStore:
        """Return a copy that keeps the state before later rows."""
        return replace(self, closed=self.closed.copy())

    @property
    def windows(self) -> OpenWindows:
        """The open windows."""
        return self.closed.windows

    def add(self, rows: pa.Table) -> pa.Table:
        """Add rows, and return those that are dropped as late."""
        self._unsaved = True
        return self.closed.add_rows(rows)

    def tell(self, watermark: int | None) -> None:
        """Advance the watermark."""
        self.closed.advance(None if self.windows.late.closes_by_events else watermark, _now())

    def close(self) -> None:
        """Close all windows."""
        self.closed.close()

    def settle(self, state: Path | None, notes: Mapping[str, Any], ended: bool = False) -> None:
        """Save the state and then commit closed windows: at intervals if rows have arrived, and at the end."""
        came = self.closed.outgoing is not None or (self._unsaved and state is not None)
        if not ended and (not came or clock.monotonic() - self._last < self._every):
            return
        if state is not None and came:
            began = clock.monotonic()
            save(state, self.closed.to_ipc(notes))
            self._every = max(_EVERY, _SAVING * (clock.monotonic() - began))
        self.closed.commit()
        if ended and state is not None:
            save(state, self.closed.to_ipc(notes))
        self._last, self._unsaved = clock.monotonic(), False


@contextmanager
def side_output(file: Path | None) -> Iterator[Callable[[pa.Table], None]]:
    """Yield a function that appends rows to a file as JSON lines, one table per write, if there is a file."""
    if file is None:
        yield lambda rows: None
        return
    with file.open("a", encoding="utf-8") as out:

        def put(rows: pa.Table) -> None:
            if rows.num_rows:
                out.write(json_lines(rows))
                out.flush()

        yield put


def save(file: Path, state: bytes) -> None:
    """Replace the saved state in a file."""
    with replaced(file, durable=True) as out:
        out.write(state)


def _now() -> int:
    return clock.time_ns() // 1000
