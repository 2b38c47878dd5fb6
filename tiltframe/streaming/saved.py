"""Saved streams: all that is held of open windows as one Arrow IPC stream, and back.

One table holds the windows of all levels; the metadata of its schema says of which frame, policies and clock they are.
A checksum stands behind: Arrow trusts the lengths that a stream states, so that nothing damaged may reach it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from aggr.arguments import checked_whole, shown
from aggr.kernels import compute as pc
from tiltframe.frame import TiltFrame
from tiltframe.streaming.emit import EmitPolicy, read_emit
from tiltframe.streaming.late import LatePolicy, read_late
from tiltframe.streaming.open_level import OpenLevel, Rules
from tiltframe.streaming.window_table import MARKS, WindowTable
from windows import BEGINNING, NEVER

COUNTS = ("rows", "late_rows", "moved_rows", "refused_rows", "committed_rows", "emitted_rows")
_KEY, _VERSION = b"tiltframe.open_windows", 2
_OPTIONS = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 1), use_threads=False)  # a third of the bytes to move
_CHECKSUM = 4  # bytes
_PART = "__part"  # 2 × the level's number, and 1 more for what was emitted of it


@dataclass(frozen=True)
class Clock:
    """What a stream was told of time, in microseconds; None for what it was not told.

    Parameters
    ----------
    watermark, now : int, optional
    looked : int, optional
        Where the policy's clock stood when open windows were last looked at.
    newest : int, optional
        The start of the newest window that events have come for, where a buffer follows it.
    committed : int, optional
        Before which rows are in a store already, and are not taken.
    """

    watermark: int | None = None
    now: int | None = None
    looked: int | None = None
    newest: int | None = None
    committed: int | None = None

    def told(self, watermark: int | None, now: int | None) -> Clock:
        """Take a new watermark and clock; neither goes back."""
        if watermark is not None:
            checked_whole(watermark, "watermark", BEGINNING, NEVER - 1)
        if now is not None:
            checked_whole(now, "now", 0)
        return replace(self, watermark=_later(self.watermark, watermark), now=_later(self.now, now))

    def seen(self, start: int) -> Clock:
        """Take the start of a window that events have come for."""
        return replace(self, newest=_later(self.newest, start))

    def after_look(self, emit: EmitPolicy, time: int | None, due: bool, early: bool) -> Clock:
        """Note when open windows were looked at, as the policy counts."""
        return replace(self, looked=emit.looked(self.looked, time, due and early))


def _later(before: int | None, given: int | None) -> int | None:
    known = [int(at) for at in (before, given) if at is not None]
    return max(known) if known else None


@dataclass(frozen=True)
class Saved:
    """What was read: a table of windows, and what its metadata says."""

    table: pa.Table
    said: Mapping[str, Any]

    @property
    def frame(self) -> TiltFrame:
        """The frame that it was saved with."""
        return TiltFrame.from_dict(self.said["frame"])

    @property
    def emit(self) -> EmitPolicy:
        """The emit policy that it was saved with."""
        return read_emit(self.said["emit"])

    @property
    def late(self) -> LatePolicy:
        """The late policy that it was saved with."""
        return read_late(self.said["late"])

    @property
    def settings(self) -> dict[str, Any]:
        """The bounds that it was saved with."""
        return dict(self.said["settings"])

    @property
    def clock(self) -> Clock:
        """What it was told of time."""
        return Clock(**self.said["clock"])

    @property
    def counts(self) -> dict[str, int]:
        """What it has counted."""
        return {**dict.fromkeys(COUNTS, 0), **self.said["counts"]}

    def levels(self, frame: TiltFrame) -> tuple[OpenLevel, ...]:
        """Give the levels of a frame; states of added measures begin empty."""
        times = zip(self.said["watermarks"], self.said["handed"], strict=True)
        return tuple(
            OpenLevel(frame.levels[at], self._windows(2 * at), self._windows(2 * at + 1), watermark, handed)
            for at, (watermark, handed) in enumerate(times)
        )

    def _windows(self, part: int) -> WindowTable:
        rows = self.table.filter(pc.equal(self.table.column(_PART), part))
        marks = {name: rows.column(f"__{name}").to_numpy().copy() for name in MARKS}
        return WindowTable(rows.drop_columns([_PART, *(f"__{name}" for name in MARKS)]), marks)


def written(
    rules: Rules,
    settings: Mapping[str, Any],
    levels: tuple[OpenLevel, ...],
    clock: Clock,
    counts: Mapping[str, int],
) -> bytes:
    """Write levels and what they follow as one Arrow IPC stream."""
    said = {
        "version": _VERSION,
        "frame": rules.frame.describe(),
        "emit": str(rules.emit),
        "late": str(rules.late),
        "settings": dict(settings),
        "clock": asdict(clock),
        "counts": dict(counts),
        "watermarks": [level.watermark for level in levels],
        "handed": [level.handed for level in levels],
    }
    parts = [_part(t, 2 * at + n) for at, level in enumerate(levels) for n, t in enumerate((level.held, level.emitted))]
    table = pa.concat_tables(parts, promote_options="default") if parts else pa.table({})
    table = table.replace_schema_metadata({_KEY: json.dumps(said).encode()})
    return _sealed(_stream(table))


def read(data: bytes) -> Saved:
    """Read what `written` wrote; raises ``ValueError`` for anything else."""
    payload = _unsealed(data)
    try:
        table = pa.ipc.open_stream(pa.py_buffer(payload)).read_all()
        said = json.loads((table.schema.metadata or {})[_KEY])
    except (pa.ArrowException, KeyError, ValueError, OSError) as error:
        raise _refused(str(error).splitlines()[0]) from None
    if said.get("version") != _VERSION:
        raise ValueError(
            f"this state is of version {said.get('version')}, and this package reads {_VERSION}; upgrade it"
        )
    return Saved(table, said)


def extended(data: bytes, notes: Mapping[str, Any], table: pa.Table | None = None) -> bytes:
    """Put plain data, and a table, behind what `written` wrote, which `read` reads as before."""
    table = pa.table({}) if table is None else table
    metadata = {**(table.schema.metadata or {}), _KEY: json.dumps(dict(notes)).encode()}
    return _sealed(bytes(_unsealed(data)) + _stream(table.replace_schema_metadata(metadata)))


def extension(data: bytes) -> tuple[dict[str, Any], pa.Table]:
    """Read what `extended` put behind; nothing where there is none."""
    payload = _unsealed(data)
    source = pa.BufferReader(payload)
    pa.ipc.open_stream(source).read_all()
    if source.tell() == len(payload):
        return {}, pa.table({})
    table = pa.ipc.open_stream(source).read_all()
    return json.loads((table.schema.metadata or {})[_KEY]), table


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_OPTIONS) as writer:
        writer.write_table(table.combine_chunks())
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _sealed(payload: bytes) -> bytes:
    return payload + zlib.crc32(payload).to_bytes(_CHECKSUM, "big")


def _unsealed(data: bytes) -> memoryview:
    """Check what `_sealed` sealed; raises ``ValueError`` for anything else."""
    if not isinstance(data, bytes):
        raise _refused(f"it is {shown(data)}")
    payload, checksum = memoryview(data)[:-_CHECKSUM], data[-_CHECKSUM:]
    if len(checksum) < _CHECKSUM or zlib.crc32(payload).to_bytes(_CHECKSUM, "big") != checksum:
        raise _refused("its checksum is not that of its bytes")
    return payload


def _refused(why: str) -> ValueError:
    return ValueError(f"this is no saved state of open windows ({why}); give what OpenWindows.to_ipc wrote")


def check_change(state: Saved, frame: TiltFrame, emit: EmitPolicy) -> None:
    """Raise ``ValueError`` if windows cannot go on with another frame or policy; measures may be added."""
    there = state.said["frame"]["measures"]
    known = {name: measure for name, measure in frame.measures.items() if name in there}
    changed = None
    if len(known) == len(there):
        part = TiltFrame(frame.levels, frame.time, known, frame.keyed_by, frame.timezone)
        changed = state.frame.difference(part)
    else:
        changed = f"measure {next(name for name in there if name not in known)!r} was saved, and is missing now"
    if changed is not None:
        raise ValueError(f"the saved windows are of another frame: {changed}; begin a new state, or keep the frame")
    mode = state.emit.mode
    if emit.mode != mode:
        raise ValueError(f"the saved windows are emitted in the mode {mode}, and now {emit.mode}; begin a new state")


def _part(table: WindowTable, part: int) -> pa.Table:
    states = table.states.add_column(0, _PART, pa.array(np.full(len(table), part), pa.int32()))
    for name in MARKS:
        states = states.append_column(f"__{name}", pa.array(table.marks[name], pa.int64()))
    return states
