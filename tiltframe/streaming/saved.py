"""Saved streams: the tables of open windows, with a description of their frame, policies and clock.

The windows of a level are saved as two blocks. One has times, keys and marks, which every batch reads; the other has
states, which are read when windows are merged or emitted. A block that was read and has not changed is not written
again.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

import pyarrow as pa

from aggr.arguments import checked_whole, shown
from tiltframe.changed_frames import states_after_change
from tiltframe.frame import TiltFrame
from tiltframe.names import END, START
from tiltframe.streaming.open_level import OpenLevel
from tiltframe.streaming.policies import EmitPolicy
from tiltframe.streaming.stored import StoredTable, refused
from tiltframe.streaming.stream_rules import StreamRules
from tiltframe.streaming.window_table import WindowTable
from windows import MAX_INSTANT, MIN_INSTANT

COUNTS = (
    "rows",
    "late_rows",
    "moved_rows",
    "refused_rows",
    "committed_rows",
    "emitted_rows",
    "refused_values",
    "results_beyond_limit",
)
VERSION = 5
_MOST_ADDED = 62  # each added measure takes one bit of an int64
_LENGTH, _CHECKSUM = 8, 4  # bytes
_OPEN, _EMITTED, _FORGOTTEN = "held", "emitted", "forgotten"
_WINDOWS, _STATES = "windows", "states"  # the names of a level's two blocks
_EXTENSION = "extension"
_Restored = TypeVar("_Restored")


@dataclass(frozen=True)
class Clock:
    """The times that a stream has received, in microseconds, or None before the first one."""

    watermark: int | None = None
    now: int | None = None
    last_checked: int | None = None  # the policy's clock when open windows were last checked
    newest: int | None = None  # the start of the newest window with events; used only by the late policy `buffer`
    committed: int | None = None  # rows before this time are already in a store, and are ignored

    def advanced_to(self, watermark: int | None, now: int | None) -> Clock:
        """Return the clock with a new watermark and arrival time. Neither decreases."""
        if watermark is not None:
            checked_whole(watermark, "watermark", MIN_INSTANT, MAX_INSTANT - 1)
        if now is not None:
            checked_whole(now, "now", 0)
        return replace(self, watermark=_later(self.watermark, watermark), now=_later(self.now, now))

    def seen(self, start: int) -> Clock:
        """Return the clock after an event in a window that begins at ``start``."""
        return replace(self, newest=_later(self.newest, start))

    def after_look(self, emit: EmitPolicy, time: int | None, due: bool, early: bool) -> Clock:
        """Return the clock after open windows were checked."""
        return replace(self, last_checked=emit.last_checked(self.last_checked, time, due and early))


def _later(before: int | None, after: int | None) -> int | None:
    times = [int(at) for at in (before, after) if at is not None]
    return max(times) if times else None


@dataclass(frozen=True)
class Saved:
    """The saved state of a stream: a description as plain data, and tables by name."""

    said: Mapping[str, Any]
    blocks: Mapping[str, StoredTable]

    @property
    def head(self) -> bytes:
        """The description as JSON, with the size and checksum of each block."""
        blocks = {name: [block.size, block.checksum] for name, block in self.blocks.items()}
        return json.dumps({**self.said, "blocks": blocks}).encode()

    def to_bytes(self) -> bytes:
        """Return the description and all blocks as bytes."""
        head = self.head
        length, checksum = len(head).to_bytes(_LENGTH, "big"), zlib.crc32(head).to_bytes(_CHECKSUM, "big")
        return b"".join([length, head, checksum, *(block.data for block in self.blocks.values())])

    @property
    def frame(self) -> TiltFrame:
        """The frame of the saved stream."""
        return made("frame", TiltFrame.from_dict, self.said["frame"])

    def added(self, rules: StreamRules) -> tuple[str, ...]:
        """Return the columns of states that earlier saved windows lack; the last ones are new."""
        before, saved_columns = [str(name) for name in self.said["added"]], self.said["columns"]
        new = [name for name in rules.functions if name not in saved_columns]
        if len(before) + len(new) > _MOST_ADDED:
            raise ValueError(
                f"more than {_MOST_ADDED} measures were added since these windows were saved; begin with a new state"
            )
        return (*before, *new)

    def levels(self, rules: StreamRules) -> tuple[OpenLevel, ...]:
        """Return the levels of a frame. The states of added measures are unknown for earlier rows."""
        times = zip(self.said["watermarks"], self.said["cascaded"], strict=True)
        unknown = (1 << len(self.added(rules))) - (1 << len(self.said["added"]))
        # Leave out columns that only another policy needed.
        unneeded = [name for name in self.said["columns"] if name not in rules.functions]
        return tuple(
            self._level(rules.frame, at, unknown, unneeded, watermark=watermark, cascaded=cascaded)
            for at, (watermark, cascaded) in enumerate(times)
        )

    def _level(
        self, frame: TiltFrame, at: int, unknown: int, unneeded: Sequence[str], *, watermark: int, cascaded: int
    ) -> OpenLevel:
        windows = self._windows(at, _OPEN, unknown, unneeded)
        has_emitted = _name(at, _EMITTED, _WINDOWS) in self.blocks
        emitted = self._windows(at, _EMITTED, unknown, unneeded) if has_emitted else windows.none()
        has_forgotten = _name(at, _FORGOTTEN, _WINDOWS) in self.blocks  # missing in states that earlier releases saved
        forgotten = self._windows(at, _FORGOTTEN, 0, ()) if has_forgotten else None
        return OpenLevel(frame.levels[at], windows, emitted, watermark, cascaded_until=cascaded, forgotten=forgotten)

    def _windows(self, at: int, which: str, unknown: int, unneeded: Sequence[str]) -> WindowTable:
        table = WindowTable.of_stored(*(self.blocks[_name(at, which, block)] for block in (_WINDOWS, _STATES)))
        return table.without(unneeded).marked(unknown=table.marks["unknown"] | unknown)


def made(what: str, make: Callable[[Any], _Restored], description: Any) -> _Restored:
    """Create an object from its saved description. The checksum is correct, so a failure is not caused by damaged
    bytes.
    """
    try:
        return make(description)
    except ValueError as error:
        raise ValueError(
            f"the saved windows are intact, but their {what} cannot be created here: {str(error).partition(';')[0]}; "
            "install the packages that were installed when they were saved"
        ) from error


def written(
    rules: StreamRules,
    settings: Mapping[str, Any],
    levels: tuple[OpenLevel, ...],
    clock: Clock,
    counts: Mapping[str, int],
) -> Saved:
    """Return the saved state of levels and settings. Blocks that have not changed since they were read are used
    again.
    """
    description = {
        "version": VERSION,
        "frame": rules.frame.describe(),
        "emit": str(rules.emit),
        "late": str(rules.late),
        "settings": dict(settings),
        "clock": asdict(clock),
        "counts": dict(counts),
        "mode": rules.emit.mode,
        "columns": list(rules.functions),
        "added": list(rules.added),
        "watermarks": [level.watermark for level in levels],
        "cascaded": [level.cascaded_until for level in levels],
    }
    columns, blocks = [START, END, *rules.frame.keys], {}
    for at, level in enumerate(levels):
        tables = {_OPEN: level.held, _EMITTED: level.emitted, _FORGOTTEN: level.forgotten}
        for which, table in tables.items():
            if table is not None and (which == _OPEN or len(table)):
                for block, stored in zip((_WINDOWS, _STATES), table.to_stored(columns), strict=True):
                    blocks[_name(at, which, block)] = stored
    return Saved(description, blocks)


def of_bytes(data: bytes) -> Saved:
    """Check bytes from `Saved.to_bytes` completely, and return the state in them; raise ``ValueError`` for other
    bytes.
    """
    return _records(data)[0]


def of_head(head: bytes, block: Callable[[str, int, int], StoredTable]) -> Saved:
    """Return the state for a `Saved.head`, with a function that returns blocks by name, size and checksum."""
    try:
        description = json.loads(head)
        sizes = description.pop("blocks")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise refused(str(error)) from None
    return Saved(description, {name: block(name, *size_and_checksum) for name, size_and_checksum in sizes.items()})


def check_version(state: Saved) -> None:
    """Raise ``ValueError`` if another version of this package has written the state."""
    if state.said.get("version") != VERSION:
        raise ValueError(
            f"this state is of version {state.said.get('version')}, and this release can read version {VERSION}; "
            "upgrade tiltframe"
        )


def extended(data: bytes, notes: Mapping[str, Any], table: pa.Table | None = None) -> bytes:
    """Return bytes of `Saved.to_bytes` with additional plain data and a table, which `of_bytes` ignores."""
    more = Saved(notes, {} if table is None else {_EXTENSION: StoredTable.of(table)})
    return data + more.to_bytes()


def extension(data: bytes) -> tuple[dict[str, Any], pa.Table]:
    """Return the data that `extended` has added; both are empty if nothing was added."""
    record = [*_records(data), Saved({}, {})][1]
    return dict(record.said), record.blocks[_EXTENSION].table if record.blocks else pa.table({})


_name = "{}.{}.{}".format  # the name of a block: the number of the level, the kind of table, and "windows" or "states"


def _records(data: bytes) -> list[Saved]:
    if not isinstance(data, bytes):
        raise refused(f"it is {shown(data)}")
    records: list[Saved] = []
    at = 0
    while at < len(data) or not records:
        record, at = _record_at(data, at)
        records.append(record)
    return records


def _record_at(data: bytes, at: int) -> tuple[Saved, int]:
    begin = at + _LENGTH
    end = begin + int.from_bytes(data[at:begin], "big")
    head, place = data[begin:end], end + _CHECKSUM
    if place > len(data) or zlib.crc32(head).to_bytes(_CHECKSUM, "big") != data[end:place]:
        raise refused("its checksum does not match its bytes")

    def block(name: str, size: int, checksum: int) -> StoredTable:
        nonlocal place
        piece = memoryview(data)[place : place + size]
        place += size
        return StoredTable(size, checksum, lambda: piece)

    record = of_head(head, block)
    for stored in record.blocks.values():
        _ = stored.data  # verifies the checksum
    return record, place


class OtherSavedFrame(ValueError):
    """A saved state has another frame than the one to continue with."""


def continued_frame(state: Saved, frame: TiltFrame) -> TiltFrame:
    """Return a frame with the columns of states of the saved windows, which continue with it.

    Raise `OtherSavedFrame` if they cannot. Measures may be added and removed, and expressions may change.
    """
    before = state.frame
    common = {name: measure for name, measure in before.measures.items() if name in frame.measures}
    changed = before.with_results(common or before.measures).difference(
        frame.with_results({name: frame.measures[name] for name in common} or before.measures),
        "in the saved state",
        "now",
    )
    if changed is not None:
        raise OtherSavedFrame(
            f"the saved windows belong to another frame: {changed}; begin a new state, or keep the frame"
        )
    return frame if frame.kept else frame.keeping(states_after_change(before, frame, (), "the saved state"))


def check_mode(state: Saved, emit: EmitPolicy) -> None:
    """Raise ``ValueError`` if windows were emitted in another mode."""
    mode = state.said["mode"]
    if emit.mode != mode:
        raise ValueError(
            f"the saved windows were emitted in the mode {mode}, and the mode is now {emit.mode}; begin with a new "
            "state"
        )
