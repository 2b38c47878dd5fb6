"""A store with the open windows of a stream: the windows in the stream's saved state are combined with those in the
store.

A snapshot combines the store and the saved state as of one moment of the stream. The stream saves its state before each
commit, so the store lacks at most the pending commit of the newest saved state. If the store has a later commit than
the saved state, the file of the state is read again, because the stream has saved a newer state.

A part consists of states of one level that were written together. The windows of the saved state are presented as
additional parts, one for each level.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa

from aggr.arguments import because, shown
from tiltframe.event_time import INSTANT
from tiltframe.frame import finest_frame
from tiltframe.instants import instants_of
from tiltframe.merged_windows import merge_level
from tiltframe.names import END
from tiltframe.ranges import Range, inside
from tiltframe.store.backends.protocol import Backend, Part, Snapshot
from tiltframe.store.log.errors import OtherFrame, StoreError, UnreachableStore
from tiltframe.store.log.manifest import Manifest
from tiltframe.store.log.records import RECORD_PREFIX
from tiltframe.store.log.writers import digests_of, fingerprint, last_commits
from tiltframe.streaming import OpenWindows
from tiltframe.streaming.saved import read_extension

# A saved state that is older than the store is read again, at most `_MAX_ATTEMPTS` times, with a pause of
# `_PAUSE_SECONDS` between two attempts.
_MAX_ATTEMPTS = 50
_PAUSE_SECONDS = 0.02


class _OpenPart(Part):
    """The windows of one level in a stream's saved state, as a part of the store."""

    states: pa.Table

    @classmethod
    def from_states(cls, level: str, states: pa.Table, name: str) -> _OpenPart:
        starts = instants_of(states)
        part = cls(
            level,
            first_start=int(starts.min()),
            last_start=int(starts.max()),
            rows=states.num_rows,
            bytes=states.nbytes,
            name=name,
        )
        # ``states`` is not a field of the dataclass, because a store writes all fields of a part as metadata.
        object.__setattr__(part, "states", states)
        return part


class _SavedStream:
    """The saved state of a stream into a store: its open windows, and the closed windows of its pending commit. The
    stream writes the pending commit to the store after it has saved the state.
    """

    def __init__(self, data: bytes) -> None:
        """Read the header of the data; raise ``ValueError`` if the data is not a saved state."""
        description, self._pending_windows = read_extension(data)
        if "writer" not in description:
            raise ValueError(
                "the state belongs to a stream without a store; pass the saved state of a stream into this store"
            )
        self.writer = str(description["writer"])
        self._pending_number = int(description["number"])
        self.digest = int.from_bytes(hashlib.sha256(data).digest()[:4], "big")
        self._data = data
        self._parts: tuple[tuple[str, int, bool], tuple[Part, ...]] | None = None

    def is_commit_pending(self, snapshot: Snapshot, store: Backend, manifest: Manifest) -> bool | None:
        """Return whether a store lacks the pending commit of the saved state. Return None if the state is older than
        the last commit of the stream. Raise `OtherFrame` if the store lacks the commit before the pending commit.
        """
        last, fingerprints = last_commits(snapshot, self.writer)
        if last < self._pending_number - 1:
            raise OtherFrame(
                f"the store {store.display_uri} lacks the commit {self._pending_number - 1} of {shown(self.writer)}, "
                f"which precedes the saved state; name the store of this stream"
            )
        if last < self._pending_number:
            return True
        if last > self._pending_number or not self._pending_windows.num_rows:
            return None
        finest = _merged_into_levels([self._pending_windows], manifest)[0][1]
        digests = digests_of(finest, manifest, include_earlier_frames=True)
        expected = [fingerprint(self._pending_number, digest) for digest in digests]
        return False if fingerprints.get(str(self._pending_number)) in expected else None

    def parts(self, includes_pending: bool, manifest: Manifest) -> tuple[Part, ...]:
        """Return the parts that the store lacks, on all levels: the open windows of the saved state and, if
        ``includes_pending`` is true, the windows of the pending commit. Raise ``ValueError`` for states of another
        frame.
        """
        cache_key = manifest.store_id, manifest.generation, includes_pending
        if self._parts is None or self._parts[0] != cache_key:
            windows = OpenWindows.from_ipc(self._data, finest_frame(manifest.frame))
            tables = [windows.unemitted(), self._pending_windows] if includes_pending else [windows.unemitted()]
            levels = [(level, states) for level, states in _merged_into_levels(tables, manifest) if states.num_rows]
            self._parts = (
                cache_key,
                tuple(
                    _OpenPart.from_states(*level_states, f"open {self.digest} {level_states[0]}")
                    for level_states in levels
                ),
            )
        return self._parts[1]


def _merged_into_levels(tables: Sequence[pa.Table], manifest: Manifest) -> list[tuple[str, pa.Table]]:
    """Merge states of the finest level into the windows of every level. Return pairs of a level's name and its table,
    from the finest level to the coarsest.
    """
    no_states = manifest.schema.empty_table().append_column(END, pa.array([], INSTANT))
    finer = pa.concat_tables([no_states, *tables], promote_options="default").select(no_states.column_names)
    levels = []
    for level in manifest.frame.levels:
        finer = merge_level(finer, manifest.frame, level, nulls_are_unknown=True)
        levels.append((level.name, finer))
    return levels


@dataclass
class OpenWindowsBackend:
    """A read-only backend that combines a store with the saved state of a stream.

    Parameters
    ----------
    store : Backend
        The backend of the store.
    saved : bytes or Path
        The saved state of a stream into this store, with its open and its uncommitted windows: the bytes that
        `tiltframe.store.closed_windows.ClosedWindows.to_ipc` returned, or a file with these bytes. A file that has
        changed is read again.
    """

    store: Backend
    saved: bytes | Path
    _cached: tuple[Any, _SavedStream] | None = field(default=None, init=False, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.store, self.saved)

    @classmethod
    def at(cls, uri: str, name: str, options: Mapping[str, str], durable: bool) -> NoReturn:
        """Raise an error, because an address cannot name both a store and a saved state."""
        raise ValueError("with_open is a method of an open store; write FrameStore(uri).with_open(…)")

    @property
    def uri(self) -> str:
        """The address of the store."""
        return self.store.uri

    @property
    def display_uri(self) -> str:
        """The address of the store, for messages."""
        return self.store.display_uri

    def store_named(self, name: str) -> OpenWindowsBackend:
        """Return a backend for the store ``name`` at the same place, combined with the same saved state."""
        return OpenWindowsBackend(self.store.store_named(name), self.saved)

    def snapshot(self, recorded: Iterable[str] | None = ()) -> Snapshot | None:
        """Return a snapshot of the store and the saved state, for one moment of the stream, or None if there is no
        store.
        """
        # The value None requests all records, which only a copy of the store needs. A copy is refused, because it would
        # lack the open windows.
        if recorded is None:
            self._raise_read_only()
        names = list(recorded)
        for attempt in range(1 if isinstance(self.saved, bytes) else _MAX_ATTEMPTS):
            time.sleep(_PAUSE_SECONDS if attempt else 0)
            stream = self._stream()
            snapshot = self.store.snapshot([*names, f"{RECORD_PREFIX}writer {stream.writer}"])
            if snapshot is None:
                return None
            manifest = Manifest.from_dict(snapshot.manifest, self.display_uri)
            includes_pending = stream.is_commit_pending(snapshot, self.store, manifest)
            if includes_pending is not None:
                with self._converted_errors():
                    parts = stream.parts(includes_pending, manifest)
                version = snapshot.version << 32 | stream.digest
                return replace(snapshot, version=version, parts=(*snapshot.parts, *parts))
        raise UnreachableStore(
            f"the saved state {self._state_text} is older than the store {self.display_uri}, which contains windows "
            f"that are still open in the state; pass a newer saved state of the stream"
        )

    @property
    def _state_text(self) -> str:
        return "that was passed" if isinstance(self.saved, bytes) else shown(str(self.saved))

    def _stream(self) -> _SavedStream:
        """Return the saved state. A file is read again only if it has changed since the last call."""
        with self._converted_errors():
            file_status = None if isinstance(self.saved, bytes) else os.stat(self.saved)
            file = None if file_status is None else (file_status.st_ino, file_status.st_size, file_status.st_mtime_ns)
            if self._cached is None or self._cached[0] != file:
                data = self.saved if isinstance(self.saved, bytes) else self.saved.read_bytes()
                self._cached = file, _SavedStream(data)
            return self._cached[1]

    @contextmanager
    def _converted_errors(self) -> Iterator[None]:
        """Convert the errors of a block that reads the saved state. An ``OSError`` or ``ValueError`` becomes a
        `StoreError` whose message says that the saved state cannot be read.
        """
        try:
            yield
        except OSError as error:
            raise UnreachableStore(
                f"cannot read the saved state: {because(error)}; pass the path of a readable file"
            ) from None
        except ValueError as error:
            raise StoreError(f"cannot read the saved state {self._state_text}: {error}") from error

    def read(self, parts: Sequence[tuple[Part, Range]], columns: Sequence[str], where: str | None = None) -> pa.Table:
        """Return, for each pair of a part and a range, the rows of the part whose windows start in the range. A part
        belongs to the store or to the saved state.
        """
        rows = self.store.read([piece for piece in parts if not isinstance(piece[0], _OpenPart)], columns, where)
        tables = [
            part.states.filter(pa.array(inside(instants_of(part.states), [span]))).select(rows.column_names)
            for part, span in parts
            if isinstance(part, _OpenPart)
        ]
        return pa.concat_tables([rows, *(table.cast(rows.schema) for table in tables)])

    def discard(self, parts: Sequence[Part]) -> None:
        """Do nothing, because the backend writes nothing."""

    def _raise_read_only(self, *_: Any, **__: Any) -> NoReturn:
        """Raise an error, because the backend does not write."""
        raise ValueError(
            f"the store {self.display_uri} is read-only, because it was opened together with a saved state; to write, "
            "open the store without the state"
        )

    create = check_values = write = commit = vacuum = verify = _raise_read_only
