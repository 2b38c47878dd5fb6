"""Sources of rows for `tiltframe stream`: JSON lines from standard input or a pipe, and files that arrive in a folder.
Each file is read once.
"""

from __future__ import annotations

import io
import os
import re
import select
import sys
import time as clock
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.json as pajson

from aggr.arrow import versions
from aggr.arrow.normalize import one_array
from tiltframe.cli.ingested_files import file_digest
from tiltframe.cli.output import time_or_dot
from tiltframe.event_time import INSTANT, event_times
from tiltframe.files.bad_rows import (
    ALL_BAD,
    UNREADABLE,
    BadRows,
    Line,
    before_first_bad,
    file_batches,
    open_leniently,
    separate_bad_lines,
)
from tiltframe.files.digits import check_floats
from tiltframe.files.formats import json_types, replace_null_texts
from tiltframe.files.found_files import files_below
from tiltframe.files.inputs import open_source
from tiltframe.files.key_texts import with_key_texts
from tiltframe.files.nesting import DepthLimit
from tiltframe.files.new_fields import NewFields, check_fields
from tiltframe.files.read_options import ReadOptions
from tiltframe.files.rows import columns_to_prepare, convert_times, prepare_rows, with_time_column
from tiltframe.files.soundness import count_line_ends
from tiltframe.files.source import Source
from tiltframe.files.written_numbers import find_number_types, number_arrays, with_number_columns
from tiltframe.frame import TiltFrame
from tiltframe.ordered.query import OrderedQuery
from tiltframe.store import FrameStore
from tiltframe.streaming.ahead import first_ahead
from tiltframe.units_of_numbers import refuse_other_units
from windows.timezone import Instants

# a function that reduces rows to states, and raises an error if a measure rejects a row; its result is not used
TryReduce: TypeAlias = Callable[[pa.Table], object]
# the number of seconds without rows after which a batch without rows is yielded
PAUSE = 0.2
# the maximum number of bytes of a batch of lines; a batch has fewer if no more lines are available
_MAX_BATCH_BYTES = 1 << 20
_STANDARD_INPUT = "standard input"
# a file counts as complete, and is read, if it was not modified for this number of seconds
_QUIET_SECONDS = 1.0


@dataclass(frozen=True)
class ArrivedBatch:
    """A batch of rows that have arrived. ``rows`` equals None if no rows have arrived for some time, and at the end of
    a file or input.

    ``may_save`` says whether the state may be saved after this batch. It is false for the batches of a file, because a
    saved state must not contain a part of a file. ``source`` is the name of the input.
    """

    rows: pa.Table | None
    may_save: bool = True
    source: str = ""


@dataclass(frozen=True)
class AheadLimit:
    """The maximum time by which event times may be ahead of the clock: ``micros`` in microseconds, and ``text`` as the
    user wrote it. If ``micros`` is None, any time is allowed.
    """

    text: str
    micros: int | None

    def check(self, times: Instants, column: str) -> None:
        """Raise ``ValueError`` if one of ``times``, in microseconds UTC, is ahead of the clock by more than ``micros``.
        Such a time would make all later rows late. ``column`` is the name of the time column.
        """
        at = first_ahead(times, clock.time_ns() // 1000, self.micros)
        if at is not None:
            raise ValueError(
                f"the time {time_or_dot(at)} in the column {column!r} is ahead of the clock by more than "
                f"--ahead {self.text}, and would make later rows late; correct the time, leave out such rows with "
                "--bad-rows skip, or allow any time with --ahead none"
            )


@dataclass
class InputLines:
    """JSON lines from standard input or a pipe. The types of columns are declared, or inferred from the first lines.

    With ``arrival``, the event time of a row is the time of its arrival. ``pause`` is the number of seconds to wait for
    rows before a batch without rows is yielded.
    """

    frame: TiltFrame | OrderedQuery
    try_reduce: TryReduce
    reading: ReadOptions
    arrival: bool = False
    bad: BadRows | None = None
    ahead: AheadLimit = field(default_factory=lambda: AheadLimit("none", None))
    schema: pa.Schema | None = None
    pipe: int | None = None  # the file descriptor to read; None means standard input
    source_name: str = _STANDARD_INPUT
    pause: float = PAUSE
    # text column that functions also read as numbers → the type of the numbers
    _number_types: dict[str, pa.DataType] = field(default_factory=dict)
    # while a batch is processed, the number of its first line; between two batches, the number of the next line
    _next_line: int = 1

    @property
    def resume_notes(self) -> dict[str, Any]:
        """Information for the next run. It is empty, because standard input cannot be read again."""
        return {}

    @property
    def descriptor(self) -> int:
        """The file descriptor from which lines are read."""
        return sys.stdin.fileno() if self.pipe is None else self.pipe

    @property
    def resend_advice(self) -> str:
        """A text for the user that says which lines to send again if the rows of the last batch are lost."""
        return f"send line {self._next_line:,} of {self.source_name}, and those after it, again"

    def batches(self, received_signals: list[int]) -> Iterator[ArrivedBatch]:
        """Yield the rows of complete lines as they arrive. A batch has the rows of all lines that are available.

        Raise ``ValueError`` for an encoding in which a line does not end with one byte, such as UTF-16.
        """
        if len("\n\n".encode(self.reading.encoding)) - len("\n".encode(self.reading.encoding)) != 1:
            raise ValueError(
                f"{self.source_name} cannot be read in {self.reading.encoding}, because lines must end with one byte; "
                f"convert it, as by iconv --from-code {self.reading.encoding} --to-code utf-8"
            )
        for data in _gather_lines(self.descriptor, received_signals, self.pause):
            if not data:
                yield ArrivedBatch(None)
                continue
            try:
                rows = self._parse_lines(data)
                if self.bad is not None:  # a row that an expression or a measure rejects is a bad row too
                    self.try_reduce(rows)
            except UNREADABLE as error:
                yield from self._without_bad_lines(data, error)
            else:
                yield ArrivedBatch(rows)
            self._next_line += count_line_ends(data)

    def _without_bad_lines(self, data: bytes, error: Exception) -> Iterator[ArrivedBatch]:
        """Yield the rows of a batch that contains bad lines. If ``bad`` is set, the bad lines are written to it, and
        the rows of all other lines are yielded. If ``bad`` equals None, the rows before the first bad line are yielded,
        and then the error of this line is raised. ``error`` is the error of reading the complete batch.
        """
        had_schema = self.schema is not None
        lines = [Line(number, text) for number, text in enumerate(data.splitlines(keepends=True), self._next_line)]
        lines = [line for line in lines if line.text.strip()]
        if self.bad is None:
            good = before_first_bad(lines, self._read_lines)
            if good:
                yield ArrivedBatch(self._read_lines(lines[:good]))
            raise ValueError(
                f"line {lines[good].number:,} of {self.source_name}: {self._error_of_line(lines[good], error)}"
            ) from None
        rows, unread = separate_bad_lines(lines, self._read_lines, self.try_reduce)
        if len(unread) == len(lines) >= ALL_BAD and not had_schema:
            raise ValueError(
                f"none of the {len(lines):,} lines of {self.source_name} can be read; the error of the first line is: "
                f"{unread[0][1]}"
            )
        for line, why in unread:
            self.bad.put(self.source_name, line, why)
        if rows is not None:
            yield ArrivedBatch(rows)

    def _error_of_line(self, line: Line, error: Exception) -> Exception:
        """Return the error that occurs when ``line`` is read alone. If no error occurs, return ``error``, the error of
        reading the whole batch.
        """
        try:
            self._read_lines([line])
        except UNREADABLE as alone:
            return alone
        return error

    def _read_lines(self, lines: Sequence[Line]) -> pa.Table:
        """Return the rows in ``lines``, as `_parse_lines` does for bytes. If an error is raised, the attribute
        ``schema`` keeps its value.
        """
        before = self.schema
        try:
            return self._parse_lines(b"".join(line.text for line in lines))
        except UNREADABLE:
            self.schema = before
            raise

    def _declared(self) -> dict[str, pa.DataType]:
        """Return the declared types of columns, as name → type. Names with a dot are left out, because only the first
        lines show whether they are columns or fields of a struct.
        """
        fractional_type = self.reading.fractional_time_type(self.frame.time)
        declared = {name: kind for name, kind in self.reading.declared.items() if "." not in name}
        return {**declared, **({} if fractional_type is None else {self.frame.time: fractional_type})}

    def _parse_lines(self, data: bytes) -> pa.Table:
        """Return the rows in complete lines of JSON. Raise ``ValueError`` if a text is invalid, if a line is nested too
        deeply, if the number of rows differs from the number of lines, or if a value has another type than its column.
        """
        known_schema = self.schema or pa.schema(list(self._declared().items()))
        data = self._as_utf8(data)
        DepthLimit(self.source_name).check(data)
        try:
            if self.schema is not None:
                self._check_fields(data, self.schema)
            rows = _parse_json(data, known_schema, "infer" if self.schema is None else "ignore")
            if self.schema is None and any("." in name for name in self.reading.declared):
                typed = [f.with_type(self.reading.type_of(f.name, f.type)) for f in rows.schema]
                rows = _parse_json(data, pa.schema(typed), "ignore")
        except pa.ArrowException as error:
            problem = str(error).splitlines()[0]
            advice = "the types of columns are inferred from the first lines; declare a type with --type COL=TYPE"
            if re.search(r"JSON parse error: (Invalid value|Missing|The document)", problem):
                advice = (
                    "each line must be one JSON object; correct the line, or leave such lines out by --bad-rows skip"
                )
            raise ValueError(f"cannot read {self.source_name} as JSON lines: {problem}; {advice}") from None
        lines = sum(1 for line in data.splitlines() if line.strip())
        if rows.num_rows != lines:
            raise ValueError(f"there are {rows.num_rows} rows in {lines} lines; write one row per line")
        rows = self._with_time_texts(rows, data)
        check_floats(rows, self.source_name, data.decode, self.reading)
        if self.arrival:
            rows = self._with_arrival_times(rows)
        time = self.frame.time
        reading = self.reading
        if self.schema is None:
            uses = self.frame.column_uses(reading.where)
            self._number_types = find_number_types(
                rows.schema, lambda name: [one_array(rows.column(name))], uses, reading
            )
        full_schema = with_number_columns(with_time_column(rows.schema, time, reading), self._number_types)
        read = list(self.frame.columns_in(full_schema.names))
        if self.schema is None:
            self.frame.check(full_schema)
            self.schema = columns_to_prepare(read, full_schema, rows.schema, time=time, reading=reading)
        (batch,) = rows.select(self.schema.names).combine_chunks().to_batches()
        batch = replace_null_texts(batch, reading.null)
        at = batch.schema.get_field_index(time)
        has_format = reading.unit(time) is not None or reading.time_format is not None
        is_in_milliseconds = pa.types.is_integer(batch.column(at).type) and not has_format
        if reading.time is None and is_in_milliseconds:
            refuse_other_units(batch.column(at), time, partial(reading.time_option_text, time))
        elif reading.time is None and batch.column(at).type != INSTANT:
            times = convert_times(batch.column(at), time, reading, self.frame.timezone)
            batch = versions.set_column(batch, at, time, times.cast(INSTANT))
        for name, numbers in number_arrays(batch, full_schema, reading):
            batch = versions.append_column(batch, name, numbers)
        table = pa.Table.from_batches([prepare_rows(batch, read, time, reading=reading, timezone=self.frame.timezone)])
        times = event_times(table.column(time), time, self.frame.timezone)
        if not self.arrival:
            self.ahead.check(times, time)
        return table

    def _as_utf8(self, data: bytes) -> bytes:
        """Return lines in UTF-8. Raise ``ValueError`` if they are invalid in their encoding."""
        encoding = self.reading.encoding
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{self.source_name} is not in {encoding}: there is the byte 0x{data[error.start]:02x}; declare its "
                "encoding, such as --encoding latin-1, or leave out such lines with --bad-rows skip"
            ) from None
        return data if encoding == "utf-8" else text.encode()

    def _check_fields(self, data: bytes, schema: pa.Schema) -> None:
        """Raise ``ValueError`` if a struct has a field that it did not have in the first lines. A struct is checked
        only if the frame reads all its fields.
        """
        names = self.frame.column_uses(self.reading.where).complete_structs(schema)
        if not names:
            return
        structs = json_types(pa.schema([schema.field(name) for name in sorted(names)]))
        options = pajson.ParseOptions(explicit_schema=structs, unexpected_field_behavior="infer")
        try:
            check_fields(structs, pajson.read_json(io.BytesIO(data), parse_options=options).schema, names)
        except NewFields as new_fields:
            raise ValueError(f"cannot read {self.source_name}: {new_fields}") from None

    def _with_time_texts(self, rows: pa.Table, data: bytes) -> pa.Table:
        """Return ``rows`` with event times as text if the parser has converted them to timestamps. Timestamps do not
        show which of the texts had an offset from UTC, so ``data`` is parsed again.

        Keys that look like times become text too, unless their type is declared.
        """
        if self.schema is not None:
            return rows
        schema = with_key_texts(rows.schema, self.frame.time, self.frame.column_uses(), self.reading)
        at = schema.get_field_index(self.frame.time)
        if at >= 0 and pa.types.is_temporal(schema.field(at).type):
            schema = schema.set(at, pa.field(self.frame.time, pa.string()))
        return rows if schema == rows.schema else _parse_json(data, schema, "ignore")

    def _with_arrival_times(self, rows: pa.Table) -> pa.Table:
        if self.schema is None and self.frame.time in rows.column_names:
            raise ValueError(
                f"--arrival adds a column called {self.frame.time!r}, but the rows already have this column; pass "
                "another name to --time"
            )
        now = pa.repeat(pa.scalar(clock.time_ns() // 1000).cast(INSTANT), rows.num_rows)
        names = [name for name in rows.column_names if name != self.frame.time]
        return rows.select(names).append_column(self.frame.time, now)


def _parse_json(data: bytes, known_schema: pa.Schema, unexpected_fields: str) -> pa.Table:
    options = pajson.ParseOptions(explicit_schema=json_types(known_schema), unexpected_field_behavior=unexpected_fields)
    # One block, because Arrow refuses a line that is longer than a block.
    blocks = pajson.ReadOptions(block_size=max(len(data) + 1, _MAX_BATCH_BYTES))
    rows = pajson.read_json(io.BytesIO(data), blocks, options)
    for at, name in enumerate(rows.schema.names):
        if name in known_schema.names and rows.column(at).type != known_schema.field(name).type:
            rows = rows.set_column(at, name, rows.column(at).cast(known_schema.field(name).type))
    return rows


def wait_for_input(descriptors: Sequence[int], seconds: float) -> bool:
    """Wait until one of the file descriptors can be read, but at most ``seconds``. Return whether one of them can be
    read.

    ``poll`` is used if it exists (Windows has only ``select``), because ``select`` rejects descriptors of 1,024 and
    more. A process with many open files has such descriptors.
    """
    if not hasattr(select, "poll"):
        return bool(select.select(descriptors, [], [], seconds)[0])
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _gather_lines(source: int, received_signals: list[int], pause: float) -> Iterator[bytes]:
    """Yield complete lines as they arrive, as bytes. Lines that are available at the same time are yielded together.
    Yield empty bytes if no lines arrive for ``pause`` seconds.
    """
    incomplete = b""
    while not received_signals:
        if not wait_for_input([source], pause):
            yield b""
            continue
        parts = [incomplete]
        size = 0  # without the incomplete line, which may be longer than a batch
        ended = False
        while size < _MAX_BATCH_BYTES and wait_for_input([source], 0):
            part = os.read(source, _MAX_BATCH_BYTES)
            ended = not part
            if ended:
                break
            parts.append(part)
            size += len(part)
        data = b"".join(parts)
        length = len(data) if ended else data.rfind(b"\n") + 1
        incomplete = data[length:]
        if data[:length].strip():
            yield data[:length]
        if ended:
            return


@dataclass
class ArrivingFiles:
    """Files that arrive in a folder. Each is read once, in the order of their modification times. If ``folder`` is a
    single file, the stream ends after it.

    ``pause`` is the number of seconds to wait for files before a batch without rows is yielded. ``files_read`` maps the
    path of each file, relative to the folder, to three values: the digest of its bytes, its size in bytes, and its
    modification time in nanoseconds. A file that is removed from the folder is also removed from ``files_read``.
    """

    folder: Path
    frame: TiltFrame | OrderedQuery
    try_reduce: TryReduce
    reading: ReadOptions
    store: FrameStore | None = None
    once: bool = False
    files_read: dict[str, list[Any]] = field(default_factory=dict)
    bad: BadRows | None = None
    ahead: AheadLimit = field(default_factory=lambda: AheadLimit("none", None))
    pause: float = PAUSE
    _source: Source | None = None

    @property
    def resume_notes(self) -> dict[str, Any]:
        """Information for the next run: the files that were read."""
        return {"files": self.files_read}

    @property
    def resend_advice(self) -> str:
        """A text for the user that says which files are read again if the rows of the last batch are lost."""
        return "the next run reads the last file again"

    def batches(self, received_signals: list[int]) -> Iterator[ArrivedBatch]:
        """Yield the rows of the files as they arrive. End after a file if ``received_signals`` contains a signal."""
        next_listing = 0.0
        while not received_signals:
            started = clock.monotonic()
            if started >= next_listing:
                for path in self._find_new_files():
                    yield from self._read_file(path)
                    if received_signals:
                        return
                if self.once:
                    return
                # Listing a large folder is slow. The pause before the next listing is therefore at least five times the
                # time that was needed to list the folder and to read its new files.
                next_listing = clock.monotonic() + max(PAUSE, 5 * (clock.monotonic() - started))
            yield ArrivedBatch(None)
            clock.sleep(max(min(self.pause, next_listing - clock.monotonic()), 0) if not received_signals else 0)

    def _files(self) -> Iterator[Path]:
        return iter([self.folder]) if self.folder.is_file() else files_below(self.folder)

    def _name_of(self, path: Path) -> str:
        return path.name if path == self.folder else path.relative_to(self.folder).as_posix()

    def _find_new_files(self) -> list[Path]:
        """Return the files that were not read yet, with the oldest first. Remove files that no longer exist from
        ``files_read``. Raise ``ValueError`` if a file has changed since it was read.
        """
        new_files = []
        present = set()
        for path in self._files():
            status = path.stat()
            name = self._name_of(path)
            stamp = [status.st_size, status.st_mtime_ns]
            present.add(name)
            if name in self.files_read:
                self._check_unchanged(path, name, stamp)
            elif stamp[0] and (self.once or not 0 <= clock.time() - status.st_mtime < _QUIET_SECONDS):
                new_files.append((stamp[1], name, path))
        for name in self.files_read.keys() - present:
            del self.files_read[name]
        return [path for _, _, path in sorted(new_files)]

    def _check_unchanged(self, path: Path, name: str, stamp: list[int]) -> None:
        """Raise ``ValueError`` if the bytes of a file have changed since it was read. ``stamp`` is the current size and
        modification time of the file; if only these have changed, store them in ``files_read``.
        """
        content, *before = self.files_read[name]
        if before == stamp:
            return
        if file_digest(path) != content:
            raise ValueError(
                f"{path} has changed since it was read, so its rows would be counted twice; put new rows into a "
                "separate file"
            )
        self.files_read[name] = [content, *stamp]

    def _read_file(self, path: Path) -> Iterator[ArrivedBatch]:
        """Yield the rows of a file. After the last row, add the file to ``files_read``."""
        status = path.stat()
        content = file_digest(path)
        if self._source is None:
            self._source = self._open_source(path)
        columns = self.frame.columns_in(self._source.schema.names)
        for batch in file_batches(self._source, path, columns, bad=self.bad, check=self._check):
            if not batch.num_rows:
                continue
            rows = pa.Table.from_batches([batch])
            try:
                self._check_times(rows)
            except ValueError as error:
                raise ValueError(f"{path}: {error}") from None
            yield ArrivedBatch(rows, may_save=False)
        self.files_read[self._name_of(path)] = [content, status.st_size, status.st_mtime_ns]
        yield ArrivedBatch(None)

    def _check(self, rows: pa.Table) -> None:
        """Raise an error if a row that could be read is bad: its time is too far ahead of the clock, or a measure
        rejects the row.
        """
        self._check_times(rows)
        self.try_reduce(rows)

    def _check_times(self, rows: pa.Table) -> None:
        time = self.frame.time
        self.ahead.check(event_times(rows.column(time), time, self.frame.timezone), time)

    def _open_source(self, path: Path) -> Source:
        """Return the source that reads the files, with the types of the first file, ``path``."""
        uses = self.frame.column_uses(self.reading.where)
        opened = partial(open_source, [path], self.frame.time, uses, reading=self.reading, timezone=self.frame.timezone)
        source = opened() if self.bad is None else open_leniently(opened, self.frame.check, self.reading)
        source.check(self.frame.check)
        if self.store is not None:
            source = replace(
                source, schema=self.store.with_stored_types(source.schema, guessed=source.replaceable_columns)
            )
            self.store.check_states(self.store.frame.states_schema(source.schema))
        return source
