"""Saved streams: the tables of windows in memory, and a JSON description of the frame, the policies and the clock.

A saved stream has up to three tables per level: its windows in memory, the last emissions of its windows, and removed
sessions. Each table is saved as several blocks. The first block has the bounds and keys of the windows, and several
integers for each window (`MARKS`), such as the number of rows since its last emission. The first block is read for
every batch. The other blocks have the states (`tiltframe.streaming.state_blocks`). A block of states is decoded only if
some of its windows are merged or emitted. A block that was read and has not changed is not encoded again.

The container is not an Arrow IPC file, because such a file has no checksums: if one bit is damaged, reading the file
may end the process instead of raising an error. Writing such a file would also take 3 to 14 times as long, because
blocks with different schemas would have to be copied into a binary column.
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
from tiltframe.streaming.stored import StoredTable, not_a_saved_state
from tiltframe.streaming.stream_rules import StreamRules
from tiltframe.streaming.window_table import LOWEST, WindowTable
from windows import MAX_INSTANT, MIN_INSTANT, TimeWindow

COUNTS = (
    "rows",
    "late_rows",
    "partly_late_rows",
    "moved_rows",
    "refused_rows",
    "committed_rows",
    "emitted_rows",
    "refused_values",
    "results_beyond_limit",
)
VERSION = 6
# The versions of the format that can be read. In version 5, all states of a table are in one block.
_READ_VERSIONS = (5, VERSION)
# The maximum number of columns of states that may be added to a stream by new measures or levels. Each window has an
# int64, ``unknown``, with one bit per added column. The bit is set if the window has rows that arrived before the
# column was added.
_MAX_ADDED_COLUMNS = 62
# the number of bytes that store the length of a stream's description
_LENGTH = 8
# the number of bytes that store the CRC-32 of a stream's description
_CHECKSUM = 4
# the names of the three tables of a level: windows in memory, last emissions, and removed sessions
_IN_MEMORY = "held"
_EMITTED = "emitted"
_REMOVED = "forgotten"
# the names of the two kinds of blocks of a table: the block with the bounds, the keys and the integers of `MARKS`, and
# the blocks with the states
_WINDOWS = "windows"
_STATES = "states"
_EXTENSION = "extension"
_Restored = TypeVar("_Restored")


@dataclass(frozen=True)
class Clock:
    """The latest times that a stream has received, in microseconds; None before a time is first received."""

    watermark: int | None = None
    now: int | None = None
    # the time of the last check of open windows, as `EmitPolicy.last_checked` returned it
    last_checked: int | None = None
    # the start of the newest window with events; used only by the late policy `buffer`
    newest: int | None = None
    # rows in windows that end at or before this time are in a store, and are ignored
    committed: int | None = None

    def advanced_to(self, watermark: int | None, now: int | None) -> Clock:
        """Return the clock with a new watermark and a new arrival time. None, or a value lower than the present one,
        changes nothing.
        """
        if watermark is not None:
            checked_whole(watermark, "watermark", MIN_INSTANT, MAX_INSTANT - 1)
        if now is not None:
            checked_whole(now, "now", 0)
        return replace(self, watermark=_latest(self.watermark, watermark), now=_latest(self.now, now))

    def with_newest(self, start: int) -> Clock:
        """Return the clock after an event in the window of the finest level that begins at ``start``, in microseconds
        UTC: ``newest`` becomes ``start``, unless ``newest`` is already later.
        """
        return replace(self, newest=_latest(self.newest, start))

    def after_check(self, emit: EmitPolicy, time: int | None, due: bool, early: bool) -> Clock:
        """Return the clock after `OpenWindows.advance`.

        Parameters
        ----------
        emit : EmitPolicy
        time : int, optional
            The time of the policy's clock, in microseconds.
        due : bool
            Whether the policy was allowed to emit open windows.
        early : bool
            Whether an open window was emitted.
        """
        return replace(self, last_checked=emit.last_checked(self.last_checked, time, due and early))


def _latest(before: int | None, after: int | None) -> int | None:
    """Return the greater of two times; None is less than any time."""
    times = [int(at) for at in (before, after) if at is not None]
    return max(times) if times else None


@dataclass(frozen=True)
class Saved:
    """The saved state of a stream: a description that can be written as JSON, and stored tables (blocks) by name."""

    description: Mapping[str, Any]
    blocks: Mapping[str, StoredTable]

    @property
    def head(self) -> bytes:
        """The description as JSON in UTF-8, including the size and checksum of each block."""
        blocks = {name: [block.size, block.checksum] for name, block in self.blocks.items()}
        return json.dumps({**self.description, "blocks": blocks}).encode()

    def to_bytes(self) -> bytes:
        """Return the description and all blocks as bytes, from which `read_saved` restores them."""
        head = self.head
        length = len(head).to_bytes(_LENGTH, "big")
        checksum = zlib.crc32(head).to_bytes(_CHECKSUM, "big")
        return b"".join([length, head, checksum, *(block.data for block in self.blocks.values())])

    @property
    def frame(self) -> TiltFrame:
        """The frame of the saved stream, created from its description."""
        return create_from_saved("frame", TiltFrame.from_dict, self.description["frame"])

    def added(self, rules: StreamRules) -> tuple[str, ...]:
        """Return the names of the columns of states that are missing in some of the windows, because measures or levels
        were added later.

        The names of columns that were added before the stream was saved come first. Then come the names of columns that
        the present frame and policies add and, if levels are added, the names of all other columns of states.

        Raise ``ValueError`` if there are more than 62 such columns.
        """
        names = [*self._added_measures(rules)]
        if self.added_levels(rules.frame) and self.description["watermarks"]:
            names += [name for name in rules.memory_frame.state_functions if name not in names]
        if len(names) > _MAX_ADDED_COLUMNS:
            raise ValueError(
                f"{len(names)} columns of states are missing in saved windows, because measures or levels were added; "
                f"at most {_MAX_ADDED_COLUMNS} columns may be missing; begin with a new state"
            )
        return tuple(names)

    def _added_measures(self, rules: StreamRules) -> tuple[str, ...]:
        """Return the names of the columns of states that were added before the stream was saved, followed by those that
        the present frame and policies add.
        """
        saved_columns = self.description["columns"]
        added = [name for name in rules.memory_frame.state_functions if name not in saved_columns]
        return (*self.description["added"], *added)

    def added_levels(self, frame: TiltFrame) -> tuple[TimeWindow, ...]:
        """Return the levels of ``frame`` that the saved stream lacks. They are coarser than all saved levels."""
        return frame.levels[len(self.frame.levels) :]

    def levels(self, rules: StreamRules) -> tuple[OpenLevel, ...]:
        """Return the levels of the saved stream, from the finest to the coarsest.

        If ``rules`` has measures that the saved stream lacks, their states are marked as unknown in all saved windows,
        because these windows have rows from before the addition. Columns that neither the frame nor the policies of
        ``rules`` need are left out.
        """
        watermarks = self.description["watermarks"]
        # Streams that were saved by earlier releases do not have ``known_from``.
        known_from = self.description.get("known_from", [LOWEST] * len(watermarks))
        times = zip(watermarks, self.description["cascaded"], known_from, strict=True)
        # In the integer ``unknown`` of a window, the bits of the columns of states that are added now. The lower bits
        # belong to columns that were added before the stream was saved.
        unknown = (1 << len(self._added_measures(rules))) - (1 << len(self.description["added"]))
        # the columns of states to leave out: those of removed measures, and those that only the saved policies needed
        unneeded = [name for name in self.description["columns"] if name not in rules.memory_frame.state_functions]
        return tuple(
            replace(
                self._level(rules.frame, at, unknown, unneeded, watermark=watermark, cascaded=cascaded),
                known_from=since,
            )
            for at, (watermark, cascaded, since) in enumerate(times)
        )

    def _level(
        self, frame: TiltFrame, at: int, unknown: int, unneeded: Sequence[str], *, watermark: int, cascaded: int
    ) -> OpenLevel:
        """Return the level with the number ``at``, counted from the finest.

        The argument ``unknown`` is an integer in which the bits of the measures that are added now are set. These bits
        are also set in the integer ``unknown`` of each saved window (see `MARKS`). ``unneeded`` has the columns of
        states to leave out. ``watermark`` and ``cascaded`` are the saved values of the fields ``watermark`` and
        ``cascaded_until`` of `OpenLevel`, in microseconds UTC.
        """
        windows = self._windows(at, _IN_MEMORY, unknown, unneeded)
        has_emitted = _name(at, _EMITTED, _WINDOWS) in self.blocks
        emitted = self._windows(at, _EMITTED, unknown, unneeded) if has_emitted else windows.without_rows()
        # The table of removed sessions is missing if it was empty, or if an earlier release saved the stream.
        has_removed = _name(at, _REMOVED, _WINDOWS) in self.blocks
        removed_sessions = self._windows(at, _REMOVED, 0, ()) if has_removed else None
        return OpenLevel(
            frame.levels[at], windows, emitted, watermark, cascaded_until=cascaded, removed_sessions=removed_sessions
        )

    def _windows(self, at: int, table_kind: str, unknown: int, unneeded: Sequence[str]) -> WindowTable:
        """Return one of the tables of the level with the number ``at``. ``table_kind`` is `_IN_MEMORY`,
        `_EMITTED` or `_REMOVED`. ``unknown`` and ``unneeded`` are as in `_level`.
        """
        table = WindowTable.from_stored(
            self.blocks[_name(at, table_kind, _WINDOWS)],
            lambda first_start: self.blocks[_name(at, table_kind, _states_name(first_start))],
        )
        return table.without_columns(unneeded).with_marks(unknown=table.marks["unknown"] | unknown)


def create_from_saved(what: str, make: Callable[[Any], _Restored], description: Any) -> _Restored:
    """Return the object that the function ``make`` creates from a saved description. ``what`` names the object in the
    error message.

    Raise ``ValueError`` if the object cannot be created. The checksum of the description was correct; therefore the
    usual reason is a missing package, such as one that defines a function.
    """
    try:
        return make(description)
    except ValueError as error:
        raise ValueError(
            f"the saved windows are intact, but their {what} cannot be created here: {str(error).partition(';')[0]}; "
            "install the packages that were installed when they were saved"
        ) from error


def save_stream(
    rules: StreamRules,
    settings: Mapping[str, Any],
    levels: tuple[OpenLevel, ...],
    clock: Clock,
    counts: Mapping[str, int],
) -> Saved:
    """Return the saved state of a stream. ``settings`` has those arguments of `OpenWindows` that are not in ``rules``,
    such as ``max_keys``. Blocks that have not changed since they were read are not encoded again.
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
        "columns": list(rules.memory_frame.state_functions),
        "added": list(rules.added),
        "watermarks": [level.watermark for level in levels],
        "cascaded": [level.cascaded_until for level in levels],
        "known_from": [level.known_from for level in levels],
    }
    columns = [START, END, *rules.frame.keys]
    blocks = {}
    for at, level in enumerate(levels):
        tables = {_IN_MEMORY: level.windows, _EMITTED: level.last_emissions, _REMOVED: level.removed_sessions}
        for table_kind, table in tables.items():
            if table is not None and (table_kind == _IN_MEMORY or len(table)):
                blocks[_name(at, table_kind, _WINDOWS)], states = table.to_stored(columns)
                for first_start, stored in states.items():
                    blocks[_name(at, table_kind, _states_name(first_start))] = stored
    return Saved(description, blocks)


def read_saved(data: bytes) -> Saved:
    """Verify the checksums in the bytes that `Saved.to_bytes` returned, and return the saved state. Raise
    ``ValueError`` if a checksum is wrong, or if the bytes are not a saved state.
    """
    return _parse_states(data)[0]


def read_head(head: bytes, block: Callable[[str, int, int], StoredTable]) -> Saved:
    """Return the saved state with the description ``head`` (see `Saved.head`). ``block`` is a function that receives
    the name, the size in bytes and the checksum of a block, and returns the block.
    """
    try:
        description = json.loads(head)
        sizes = description.pop("blocks")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise not_a_saved_state(str(error)) from None
    return Saved(description, {name: block(name, *size_and_checksum) for name, size_and_checksum in sizes.items()})


def check_version(state: Saved) -> None:
    """Raise ``ValueError`` if the state was written in a version of the format that this release cannot read."""
    if state.description.get("version") not in _READ_VERSIONS:
        readable = " and ".join(map(str, _READ_VERSIONS))
        raise ValueError(
            f"this saved stream has version {state.description.get('version')} of the format, and this release reads "
            f"the versions {readable}; use the release that wrote it, or begin with a new state"
        )


def append_extension(data: bytes, notes: Mapping[str, Any], table: pa.Table | None = None) -> bytes:
    """Return the bytes of a saved stream with further data appended: ``notes``, which can be written as JSON, and
    optionally a table. `read_saved` ignores the appended data, and `read_extension` returns it.
    """
    more = Saved(notes, {} if table is None else {_EXTENSION: StoredTable.encode(table)})
    return data + more.to_bytes()


def read_extension(data: bytes) -> tuple[dict[str, Any], pa.Table]:
    """Return the ``notes`` and the ``table`` that `append_extension` has appended. If nothing was appended, both are
    empty.
    """
    record = [*_parse_states(data), Saved({}, {})][1]
    return dict(record.description), record.blocks[_EXTENSION].table if record.blocks else pa.table({})


# a function that returns the full name of a block, such as "0.held.windows", from the number of the level, the name of
# the table and the name of the block
_name = "{}.{}.{}".format


def _states_name(first_start: int | None) -> str:
    """Return the name of a block of states. ``first_start`` is the start of its first window, in microseconds UTC, or
    None for the only block of a table in version 5.
    """
    return _STATES if first_start is None else f"{_STATES}@{first_start}"


def _parse_states(data: bytes) -> list[Saved]:
    """Return a list with the saved state in the bytes. If `append_extension` has appended data to the bytes, the
    appended data is the second element.
    """
    if not isinstance(data, bytes):
        raise not_a_saved_state(f"expected bytes, got {shown(data)}")
    records: list[Saved] = []
    at = 0
    while at < len(data) or not records:
        record, at = _parse_state_at(data, at)
        records.append(record)
    return records


def _parse_state_at(data: bytes, at: int) -> tuple[Saved, int]:
    """Return the saved state that begins at the byte offset ``at``, and the offset of its end, after its checksums are
    verified.
    """
    begin = at + _LENGTH
    end = begin + int.from_bytes(data[at:begin], "big")
    head = data[begin:end]
    place = end + _CHECKSUM
    if place > len(data) or zlib.crc32(head).to_bytes(_CHECKSUM, "big") != data[end:place]:
        raise not_a_saved_state("the checksum does not match the bytes")

    def block(name: str, size: int, checksum: int) -> StoredTable:
        nonlocal place
        piece = memoryview(data)[place : place + size]
        place += size
        return StoredTable(size, checksum, lambda: piece)

    record = read_head(head, block)
    for stored in record.blocks.values():
        _ = stored.data  # Reading the property ``data`` verifies the checksum of the block.
    return record, place


class OtherSavedFrame(ValueError):
    """The error for a frame that cannot continue a saved state, because its levels, keys, time or measures differ."""


def continued_frame(state: Saved, frame: TiltFrame) -> TiltFrame:
    """Return ``frame`` with its columns of states: the columns of the saved windows from which measures of ``frame``
    can be computed, and further columns for added measures. A ``frame`` whose columns were set by `TiltFrame.keeping`
    is returned unchanged.

    Between the saved frame and ``frame``, measures may be added or removed, expressions over results may change, and
    coarser levels may be added. Raise `OtherSavedFrame` if there is another difference.
    """
    before = state.frame
    common = {name: measure for name, measure in before.measures.items() if name in frame.measures}
    common_levels = frame.levels[: len(before.levels)]
    results = {name: frame.measures[name] for name in common} or before.measures
    changed = before.with_results(common or before.measures).difference(
        TiltFrame(
            common_levels if common_levels == before.levels else frame.levels,
            frame.time,
            results,
            keys=frame.keyed_by,
            timezone=frame.timezone,
        ),
        "in the saved state",
        "now",
    )
    if changed is not None:
        raise OtherSavedFrame(
            f"the saved windows belong to another frame: {changed}; begin with a new state, or pass the saved frame"
        )
    return frame if frame.kept else frame.keeping(states_after_change(before, frame, (), "the saved state"))


def check_mode(state: Saved, emit: EmitPolicy) -> None:
    """Raise ``ValueError`` if the mode of the emit policy (``accumulating``, ``discarding`` or ``changelog``) is not
    the mode in which the saved stream emitted windows.
    """
    mode = state.description["mode"]
    if emit.mode != mode:
        raise ValueError(
            f"the saved windows were emitted in the mode {mode}, and the mode is now {emit.mode}; pass the saved "
            "mode, or begin with a new state"
        )
