"""Bad rows: lines that cannot be read are left out, and kept with line and reason, where they would end a command.

    lines ──▶ read together ──▶ rows
                 └─ fails ──▶ halves, and theirs ──▶ rows, and the lines that cannot be read alone

A line is bad if it alone cannot be read: no JSON or CSV, a value of another type, no time, or a value that an
expression or a function refuses. Known as a dead letter queue.
"""

from __future__ import annotations

import csv
import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from tiltframe.event_time import event_times
from tiltframe.files.formats import delimiter_of, kind_of, open_text
from tiltframe.files.inputs import Source
from tiltframe.files.read_options import ReadOptions

_BLOCK = 1 << 23  # bytes that are read together
_ROWS = 1 << 16  # the same of Parquet
_MOST_LINES = 1000  # of a quoted field: a quote that is not closed by then is the mistake
_SAMPLE = 1000  # records by whose values types are told
_LONGEST = 300  # characters of a reason
UNREADABLE = (ValueError, TypeError, OverflowError)
ALL_BAD = 10  # so many rows, none of which can be read, are no bad rows, but read in the wrong way
_KINDS = (
    ("whole", re.compile(r"[+-]?[0-9]+")),
    ("number", re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|(?i:nan|[+-]?inf(inity)?)")),
    ("time", re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}.*")),
)
Rows = TypeVar("Rows")


@dataclass(frozen=True)
class Line:
    """A line, or a record of several: its number, and its bytes."""

    number: int
    text: bytes


class BadRows:
    """Where bad rows go: into a file as JSON lines, or nowhere; they are counted.

    Parameters
    ----------
    file : path, optional
    once : bool
        Whether what the file has already is not written again: where the same files may be read again after a kill.
    """

    def __init__(self, file: Path | None = None, once: bool = True) -> None:
        """Look what is there."""
        self.file, self.count = file, 0
        there = once and file is not None and file.exists()
        self._known = set(file.read_text(encoding="utf-8").splitlines()) if there and file else set()

    def put(self, source: str, line: Line, error: Exception) -> None:
        """Keep a line."""
        self.count += 1
        if self.file is None:
            return
        text = line.text.decode(errors="backslashreplace").rstrip("\r\n")
        said = {"source": source, "line": line.number, "reason": reason(error), "text": text}
        written = json.dumps(said, ensure_ascii=False)
        if written not in self._known:
            with self.file.open("a", encoding="utf-8") as out:
                out.write(written + "\n")

    def told(self) -> str | None:
        """Say how many there were, and where they are; None if there were none."""
        if not self.count:
            return None
        kept = "" if self.file is None else f", and kept in {self.file}"
        return f"{self.count:,} bad rows were left out{kept}"


def reason(error: Exception) -> str:
    """Say in one line why a row cannot be read, without where, and without what to do."""
    said = re.sub(r"^cannot read standard input as JSON lines: ", "", str(error))
    said = re.sub(r"^(cannot read )?\S*piece\.\w+(, line [0-9,]+)?(:| is) ?(in line [0-9,]+,? )?", "", said)
    return said.split("\n")[0].split("; ")[0][:_LONGEST] or type(error).__name__


def sound(
    lines: Sequence[Line], read: Callable[[Sequence[Line]], Rows], check: Callable[[Rows], object]
) -> tuple[Rows | None, list[tuple[Line, Exception]]]:
    """Read the lines that can be read, together; tell which cannot, and why.

    Parameters
    ----------
    lines : of lines
    read : lines -> rows
        Raises an error where one of them cannot be read.
    check : function of rows
        Raises an error for rows that are to be left out as well; it takes longer.

    Returns
    -------
    rows, None where there are none, and the bad lines with their errors
    """

    def checked(some: Sequence[Line]) -> Rows:
        rows = read(some)
        check(rows)
        return rows

    good, bad = _divided(lines, read)
    try:
        return (checked(good) if good else None), bad
    except UNREADABLE:
        good, more = _divided(good, checked)
        return (read(good) if good else None), sorted([*bad, *more], key=lambda each: each[0].number)


def before_first_bad(lines: Sequence[Line], read: Callable[[Sequence[Line]], object]) -> int:
    """Count the lines before the first that cannot be read, of lines that cannot be read together, by halves."""
    low, high = 0, len(lines)
    while high - low > 1:
        half = (low + high) // 2
        try:
            read(lines[low:half])
            low = half
        except UNREADABLE:
            high = half
    return low


def _divided(
    lines: Sequence[Line], read: Callable[[Sequence[Line]], object]
) -> tuple[list[Line], list[tuple[Line, Exception]]]:
    """Read lines together; where that fails, halves of them, down to lines that cannot be read alone."""
    try:
        read(lines)
    except UNREADABLE as error:
        if len(lines) == 1:
            return [], [(lines[0], error)]
        half = len(lines) // 2
        (first, bad), (second, more) = _divided(lines[:half], read), _divided(lines[half:], read)
        return first + second, bad + more
    return list(lines), []


def file_batches(
    source: Source, file: Path, columns: Sequence[str], check: Callable[[pa.Table], object], bad: BadRows | None
) -> Iterator[pa.RecordBatch]:
    """Read some columns of the rows of a file: all, or those that can be read, as `sound_batches` does."""
    return source.batches_of(file, columns) if bad is None else sound_batches(source, file, columns, check, bad)


def sound_batches(
    source: Source, file: Path, columns: Sequence[str], check: Callable[[pa.Table], object], bad: BadRows
) -> Iterator[pa.RecordBatch]:
    """Read some columns of the rows of a file that can be read; keep the others.

    Parameters
    ----------
    source : Source
    file : path
        Of the source.
    columns : names
    check : function of rows
        Raises an error for rows that are to be left out as well.
    bad : BadRows
    """
    with tempfile.TemporaryDirectory(prefix="tiltframe-") as folder:
        piece = Path(folder) / f"piece.{kind_of(file)}"
        schema = pa.schema([source.schema.field(name) for name in columns])
        for head, lines, write in _pieces(file, source.reading):

            def read(some: Sequence[Line], head: bytes = head, write: _Write = write) -> pa.Table:
                write(piece, head, some)
                rows = pa.Table.from_batches(source.batches_of(piece, columns), schema)
                if source.reading.where is None and rows.num_rows != len(some):
                    raise ValueError(f"these are {rows.num_rows} rows in one line")
                event_times(rows.column(source.time), source.time)
                return rows

            rows, unread = sound(lines, read, check) if lines else (None, [])
            if len(unread) == len(lines) >= ALL_BAD:
                raise ValueError(f"{file}: not one of {len(lines):,} rows can be read; {reason(unread[0][1])}")
            for line, error in unread:
                bad.put(str(file), line, error)
            if rows is not None:
                yield from rows.to_batches()


_Write = Callable[[Path, bytes, Sequence[Line]], None]


def _pieces(file: Path, reading: ReadOptions) -> Iterator[tuple[bytes, list[Line], _Write]]:
    if kind_of(file) == "parquet":
        yield from _parquet_pieces(file)
        return
    quoted = delimiter_of(file, reading) is not None
    head = b""
    for lines in _blocks(file, reading, quoted):
        if quoted and not head and lines:
            head, lines = lines[0].text, lines[1:]
        yield head, [line for line in lines if line.text.strip()], _write_lines


def _write_lines(piece: Path, head: bytes, lines: Sequence[Line]) -> None:
    piece.write_bytes(head + b"".join(line.text for line in lines))


def _parquet_pieces(file: Path) -> Iterator[tuple[bytes, list[Line], _Write]]:
    import pyarrow.parquet as pq  # a quarter of a second, which other formats need not wait for

    before = 0
    for batch in pq.ParquetFile(file).iter_batches(_ROWS):
        begun = before

        def write(
            piece: Path, _: bytes, some: Sequence[Line], batch: pa.RecordBatch = batch, begun: int = begun
        ) -> None:
            rows = batch.take([line.number - 1 - begun for line in some])
            pq.write_table(pa.Table.from_batches([rows]), piece)

        before += batch.num_rows
        yield b"", [Line(begun + at + 1, b"") for at in range(batch.num_rows)], write


def _blocks(file: Path, reading: ReadOptions, quoted: bool) -> Iterator[list[Line]]:
    """Cut a text file into lines, or records whose quotes are closed, many at once."""
    if "\n".encode(reading.encoding) != b"\n":
        raise ValueError(f"bad rows are left out of text whose lines end in one byte, and {reading.encoding} has two")
    number, held = 1, b""
    with open_text(file) as stream:
        while True:
            chunk = stream.read(_BLOCK)
            data = held + chunk
            if number == 1 and not quoted and data.lstrip()[:1] == b"[":
                raise ValueError(f"{file} is one array: bad rows are left out of JSON lines; write an object a line")
            whole = data.rfind(b"\n") + 1 if chunk else len(data)
            lines, left = _records(data[:whole].splitlines(keepends=True), number, quoted, last=not chunk)
            number = left[0].number if left else (lines[-1].number + lines[-1].text.count(b"\n") if lines else number)
            held = b"".join(line.text for line in left) + data[whole:]
            yield lines
            if not chunk:
                return


def _records(lines: list[bytes], number: int, quoted: bool, last: bool) -> tuple[list[Line], list[Line]]:
    """Join lines until their quotes are closed; give also those whose end has perhaps not been read."""
    found: list[Line] = []
    at = 0
    while at < len(lines):
        end, quotes = at + 1, lines[at].count(b'"') if quoted else 0
        while quotes % 2 and end < len(lines) and end - at < _MOST_LINES:
            quotes += lines[end].count(b'"')
            end += 1
        if quotes % 2 and end == len(lines) and end - at < _MOST_LINES and not last:
            return found, [Line(number + place, lines[place]) for place in range(at, len(lines))]
        end = at + 1 if quotes % 2 else end
        found.append(Line(number + at, b"".join(lines[at:end])))
        at = end
    return found, []


def sample_of(file: Path, reading: ReadOptions, folder: Path) -> Path:
    """Write the first records whose values are of the kinds that most are, to tell types by; give the file's path."""
    if kind_of(file) == "parquet":
        return file
    delimiter = delimiter_of(file, reading)
    lines = next(_blocks(file, reading, delimiter is not None), [])
    head = b"".join(line.text for line in lines[:1]) if delimiter else b""
    records = [line for line in lines[1 if delimiter else 0 :] if line.text.strip()][:_SAMPLE]
    kinds = [_kinds(line.text.decode(reading.encoding, "replace"), delimiter) for line in records]
    names = _kinds(head.decode(reading.encoding, "replace"), delimiter) if delimiter else None
    of_values: dict[object, Counter[str]] = {}
    for kind in kinds:
        for name, value in (kind or {}).items():
            of_values.setdefault(name, Counter())[value] += value != "nothing"
    most = {name: {counted.most_common(1)[0][0], "nothing"} for name, counted in of_values.items()}
    for usual in most.values():
        usual |= {"whole", "number"} if usual & {"whole", "number"} else set()
    good = [
        line.text
        for line, kind in zip(records, kinds, strict=True)
        if kind is not None
        and (names is None or len(kind) == len(names))
        and all(value in most[name] for name, value in kind.items())
    ]
    sample = folder / f"{len(list(folder.iterdir()))}.{kind_of(file)}"
    sample.write_bytes(head + b"".join(good))
    return sample if good else file


def _kinds(text: str, delimiter: str | None) -> dict[object, str] | None:
    """Tell of what kind each value of a record is; None for what is no record."""
    try:
        values = dict(enumerate(next(csv.reader([text], delimiter=delimiter)))) if delimiter else json.loads(text)
    except (ValueError, csv.Error, StopIteration, RecursionError):
        return None
    return {name: _kind(value, delimiter) for name, value in values.items()} if isinstance(values, dict) else None


def _kind(value: object, delimiter: str | None) -> str:
    if value is None or value == "":
        return "nothing"
    if isinstance(value, str):
        return next((kind for kind, form in _KINDS if delimiter and form.fullmatch(value.strip())), "text")
    return {bool: "truth", int: "whole", float: "number"}.get(type(value), type(value).__name__)


def open_sampled(opened: Callable[[Callable[[Path], Path]], Source], reading: ReadOptions) -> Source:
    """Open a source by types that samples of its files tell, for files may begin with bad rows."""
    with tempfile.TemporaryDirectory(prefix="tiltframe-") as folder:
        return opened(lambda file: sample_of(file, reading, Path(folder)))
