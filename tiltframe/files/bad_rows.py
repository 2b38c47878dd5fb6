"""Bad rows: skip the rows that cannot be read, and write each to a file, with its line number and the reason.

A row is bad if its line is not JSON or CSV, if a value has another type than its column or is not a time, or if an
expression or a function rejects a value. If a block of lines cannot be read, it is halved until the bad lines are
known. Other systems call the file of bad rows a dead letter queue.
"""

from __future__ import annotations

import csv
import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa

from tiltframe.event_time import event_times
from tiltframe.files.formats import delimiter_of, has_types, kind_of, open_text, schema_of_file
from tiltframe.files.json_arrays import is_array
from tiltframe.files.read_options import ReadOptions
from tiltframe.files.readers import read_batches, read_schema, reader_of
from tiltframe.files.soundness import count_line_ends, record_pattern
from tiltframe.files.source import Source
from tiltframe.files.type_widening import WiderTypeNeeded

# the size of a block of a text file, in bytes
_BLOCK_BYTES = 1 << 23
# the number of rows of a batch of Parquet
_BATCH_ROWS = 1 << 16
# the maximum number of lines of a quoted field; in a longer field, the closing quote counts as missing
_MAX_FIELD_LINES = 1000
# the number of records from which types are inferred
_SAMPLE_RECORDS = 10_000
# the maximum length of the reason why a row is bad, in characters
_MAX_REASON_LENGTH = 300
# the errors that may be raised when a bad row is read or checked
UNREADABLE = (ValueError, TypeError, OverflowError)
# If a block of a file has at least this many rows and all are bad, an error is raised. In this case, the options for
# reading are probably wrong.
ALL_BAD = 10
Rows = TypeVar("Rows")


@dataclass(frozen=True)
class Line:
    """A record of a text file, usually one line: the number of its first line, and its bytes."""

    number: int
    text: bytes


_BadLines: TypeAlias = list[tuple[Line, Exception]]
# a part of a file: a table of its good rows (None if there are none), the number of all its rows, and its bad rows
_Piece: TypeAlias = tuple[pa.Table | None, int, _BadLines]
_NO_BAD_LINES: _BadLines = []
_Check: TypeAlias = Callable[[pa.Table], object]


class BadRows:
    """A file of JSON lines to which bad rows are written, and the number of bad rows.

    Parameters
    ----------
    file : Path, optional
        The file to append to. Without a file, bad rows are only counted.
    once : bool
        Whether a bad row is written only if the file does not already contain this row. This is needed if a process was
        killed, and its input is read again.
    """

    def __init__(self, file: Path | None = None, once: bool = True) -> None:
        """If ``once`` is true, read the bad rows that the file already contains."""
        self.file = file
        self.count = 0
        self._lines_in_file = set[str]()
        if once:
            self.restart()

    def restart(self) -> None:
        """Set the count to 0, and read the bad rows that the file now contains. `put` does not write these rows again.
        Call this method before the input is read again from its beginning.
        """
        self.count = 0
        if self.file is not None and self.file.exists():
            try:
                # `splitlines` would also divide a line at other signs in a row, such as U+2028.
                self._lines_in_file = set(self.file.read_text(encoding="utf-8").split("\n"))
            except UnicodeDecodeError:
                raise ValueError(
                    f"{self.file} already exists and is not a file of bad rows; choose another file"
                ) from None

    def put(self, source: str, line: Line, error: Exception) -> None:
        """Count a bad row, and append it to the file. ``source`` is the name of the file that contains the row, and
        ``error`` the reason why it is bad.
        """
        self.count += 1
        if self.file is None:
            return
        text = line.text.decode(errors="backslashreplace").rstrip("\r\n")
        entry = {"source": source, "line": line.number, "reason": reason(error), "text": text}
        written = json.dumps(entry, ensure_ascii=False)
        if written not in self._lines_in_file:
            with self.file.open("a", encoding="utf-8") as out:
                out.write(written + "\n")

    def summary(self) -> str | None:
        """Return a sentence with the number of bad rows and their file, or None if there were no bad rows."""
        if not self.count:
            return None
        place = "" if self.file is None else f", and kept in {self.file}"
        return f"{self.count:,} bad rows were left out{place}"


def reason(error: Exception) -> str:
    """Return the reason why a row is bad: the message of an error in one line. The name of the file, the number of the
    line and the advice are removed from the message.
    """
    message = re.sub(r"^cannot read [^:]* as JSON lines: ", "", str(error))
    message = re.sub(r"^(cannot read )?\S*piece\.\w+(, line [0-9,]+)?(:| is) ?(in line [0-9,]+,? )?", "", message)
    message = re.sub(r" in line [0-9,]+(?=, in the column )", "", message)
    return message.split("\n")[0].split("; ")[0][:_MAX_REASON_LENGTH] or type(error).__name__


def separate_bad_lines(
    lines: Sequence[Line], read: Callable[[Sequence[Line]], Rows], check: Callable[[Rows], object]
) -> tuple[Rows | None, _BadLines]:
    """Return the rows of the good lines, or None if all lines are bad, and a list of the bad lines with their errors.

    A line is bad if ``read`` or ``check`` raises an error for it. ``read`` returns the rows of lines, and ``check``
    receives these rows. ``check`` is slow, so it is first called once for all lines that ``read`` accepts. If this call
    raises an error, the lines are halved until the bad lines are known.
    """

    def checked(lines: Sequence[Line]) -> Rows:
        rows = read(lines)
        check(rows)
        return rows

    good, bad = _bisect(lines, read)
    try:
        return (checked(good) if good else None), bad
    except UNREADABLE:
        good, more = _bisect(good, checked)
        return (read(good) if good else None), sorted([*bad, *more], key=lambda bad_line: bad_line[0].number)


def before_first_bad(lines: Sequence[Line], read: Callable[[Sequence[Line]], object]) -> int:
    """Return the number of lines before the first line for which ``read`` raises an error. The line is found by
    bisection. At least one line must be bad.
    """
    low = 0
    high = len(lines)
    while high - low > 1:
        half = (low + high) // 2
        try:
            read(lines[low:half])
            low = half
        except UNREADABLE:
            high = half
    return low


def _bisect(lines: Sequence[Line], read: Callable[[Sequence[Line]], object]) -> tuple[list[Line], _BadLines]:
    """Return the good lines, and a list of the bad lines with their errors. ``read`` is called with all lines. If it
    raises an error, the lines are halved, down to single lines.
    """
    try:
        read(lines)
    except WiderTypeNeeded:
        raise
    except UNREADABLE as error:
        if len(lines) == 1:
            return [], [(lines[0], error)]
        half = len(lines) // 2
        first_rows, first_errors = _bisect(lines[:half], read)
        second_rows, second_errors = _bisect(lines[half:], read)
        return first_rows + second_rows, first_errors + second_errors
    return list(lines), []


def file_batches(
    source: Source, file: Path, columns: Sequence[str], bad: BadRows | None, check: _Check | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield batches of the rows of a file, with the columns ``columns``.

    If ``bad`` is passed, bad rows are written to ``bad``, and are not yielded. Otherwise, an error is raised for a bad
    row. ``check`` is a function that receives a table of rows. It raises an error if a row is bad for other reasons,
    for example because a measure rejects a value.
    """
    if bad is None:
        yield from source.batches_of_file(file, columns)
        return
    with tempfile.TemporaryDirectory(prefix="tiltframe-") as folder:
        read_pieces = _typed_file_pieces if has_types(file) else _text_file_pieces
        check = check or (lambda rows: None)
        for rows, number, bad_lines in read_pieces(source, file, columns, check=check, folder=Path(folder)):
            if len(bad_lines) == number >= ALL_BAD:
                raise ValueError(
                    f"{file}: none of {number:,} rows can be read; the error of the first row is: "
                    f"{reason(bad_lines[0][1])}"
                )
            for line, error in bad_lines:
                bad.put(str(file), line, error)
            if rows is not None:
                yield from rows.to_batches()


def _read_table(
    source: Source, file: Path, columns: Sequence[str], rows: list[pa.RecordBatch] | None = None
) -> pa.Table:
    schema = pa.schema([source.schema.field(name) for name in columns])
    table = pa.Table.from_batches(source.batches_of_file(file, columns, rows), schema)
    event_times(table.column(source.time), source.time, source.timezone)
    return table


def _read_if_good(read: Callable[[], pa.Table], check: _Check) -> pa.Table | None:
    """Return the rows that ``read`` returns, or None if ``read`` or ``check`` raises an error, because a row is bad."""
    try:
        check(rows := read())
    except WiderTypeNeeded:
        raise
    except UNREADABLE:
        return None
    return rows


def _typed_batches(file: Path, columns: Sequence[str]) -> Iterator[tuple[pa.RecordBatch, Callable[[], pa.RecordBatch]]]:
    """Yield pairs of a batch and a function, for a file in a format with typed columns, such as Parquet. The batch has
    the columns ``columns``. The function returns the same rows with all columns of the file, because bad rows are
    written with all columns.
    """
    own_reader = reader_of(file)
    # A reader of another package reads all columns in a single call. In a second call for other columns, the reader
    # could divide the rows into batches of other sizes. The batches of the two calls would then have different rows.
    if own_reader is not None:
        names = read_schema(own_reader, file).names
        for batch in read_batches(own_reader, file, names):
            yield batch.select([name for name in columns if name in names]), partial(_same_batch, batch)
        return
    import pyarrow.parquet as pq  # imported here, because the import takes a quarter of a second

    data = pq.ParquetFile(file)
    needed = [name for name in columns if name in data.schema_arrow.names]
    full = enumerate(pq.ParquetFile(file).iter_batches(_BATCH_ROWS))
    for place, batch in enumerate(data.iter_batches(_BATCH_ROWS, columns=needed)):
        yield batch, partial(_batch_at, full, place)


def _same_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def _to_pylist(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return rows as dictionaries. In texts that are not UTF-8, wrong bytes are replaced."""
    try:
        texts: list[dict[str, Any]] = rows.to_pylist()
    except UnicodeDecodeError:
        columns = [column.dictionary_decode() if pa.types.is_dictionary(column.type) else column for column in rows]
        columns = [
            [value and value.decode(errors="replace") for value in column.cast(pa.binary()).to_pylist()]
            if pa.types.is_string(column.type)
            else column
            for column in columns
        ]
        texts = pa.table(columns, rows.schema.names).to_pylist()
    return texts


def _batch_at(batches: Iterator[tuple[int, pa.RecordBatch]], place: int) -> pa.RecordBatch:
    return next(batch for at, batch in batches if at == place)


def _typed_file_pieces(
    source: Source, file: Path, columns: Sequence[str], check: _Check, folder: Path
) -> Iterator[_Piece]:
    """Yield a `_Piece` for each batch of a file in a format with typed columns. If a batch cannot be read as a whole,
    `separate_bad_lines` separates its good rows from its bad rows.
    """
    first_row = 1
    for batch, read_all_columns in _typed_batches(file, source.columns_to_read(columns).names):

        def read(lines: Sequence[Line], batch: pa.RecordBatch = batch, first_row: int = first_row) -> pa.Table:
            return _read_table(source, file, columns, [batch.take([line.number - first_row for line in lines])])

        rows = _read_if_good(partial(_read_table, source, file, columns, rows=[batch]), check)
        bad_lines = _NO_BAD_LINES
        if rows is None:
            rows, bad_lines = separate_bad_lines(
                [Line(first_row + at, b"") for at in range(batch.num_rows)], read, check
            )
            texts = _to_pylist(read_all_columns().take([line.number - first_row for line, _ in bad_lines]))
            bad_lines = [
                (Line(line.number, json.dumps(text, default=str, ensure_ascii=False).encode()), error)
                for (line, error), text in zip(bad_lines, texts, strict=True)
            ]
        yield rows, batch.num_rows, bad_lines
        first_row += batch.num_rows


def _text_file_pieces(
    source: Source, file: Path, columns: Sequence[str], check: _Check, folder: Path
) -> Iterator[_Piece]:
    """Yield a `_Piece` for each block of a text file. A block consists of complete records. If a block cannot be read
    as a whole, `separate_bad_lines` separates its good lines from its bad lines.
    """
    reading = source.reading
    delimiter = delimiter_of(file, source.reading)
    piece = folder / f"piece.{kind_of(file)}"
    schema = source.file_schemas.get(file) or schema_of_file(sample_of(file, reading, folder), reading)
    source = replace(source, file_schemas={piece: schema})
    head = b""
    data = b""
    number = 1

    def read(lines: Sequence[Line]) -> pa.Table:
        piece.write_bytes(head + b"".join(line.text for line in lines))
        return _read_table(source, piece, columns)

    for chunk in _chunks(file, reading):
        data += chunk
        if not head and delimiter is not None:
            head = _header_part(data, delimiter, reading.skip_rows)
            number = 1 + count_line_ends(head)
            data = data[len(head) :]
        text = data[: _end_of_records(data, delimiter is not None) if chunk else len(data)]
        rows = _read_if_good(partial(read, [Line(0, text)]), check) if text.strip() else None
        if rows is not None:
            yield rows, rows.num_rows, _NO_BAD_LINES
            number = number + count_line_ends(text)
            data = data[len(text) :]
        elif text.strip():
            records, incomplete_text = _records(text, number, delimiter, last=not chunk)
            lines = [line for line in records if line.text.strip()]
            if lines:
                rows, bad_lines = separate_bad_lines(lines, read, check)
                yield rows, len(lines), bad_lines
            number = records[-1].number + (count_line_ends(records[-1].text) or 1) if records else number
            data = incomplete_text + data[len(text) :]


def _end_of_records(data: bytes, quoted: bool) -> int:
    """Return the position after the last line end that is outside quotes. If all line ends are inside quotes, return
    the position after the last line end. If ``quoted`` is false, quotes have no meaning.
    """
    line_end = b"\n" if b"\n" in data else b"\r"
    # The last byte is left out if it is a \r, because the next byte may be the \n of the same line end.
    last = end = data.rfind(line_end, 0, len(data) if line_end == b"\n" else len(data) - 1) + 1
    quotes = data.count(b'"', 0, end) if quoted else 0
    while quotes % 2 and end:
        before = data.rfind(line_end, 0, end - 1) + 1
        quotes = quotes - data.count(b'"', before, end)
        end = before
    return end or last


def _chunks(file: Path, reading: ReadOptions) -> Iterator[bytes]:
    """Yield the bytes of a text file in blocks of `_BLOCK_BYTES` bytes, and then an empty block. Raise ``ValueError``
    if a line break in the encoding has more than one byte, or if the file is a JSON array.
    """
    if "\n".encode(reading.encoding) != b"\n":
        raise ValueError(
            f"bad rows can be skipped only in encodings whose line breaks are one byte, such as utf-8; {file} has the "
            f"encoding {reading.encoding}; convert it to utf-8"
        )
    with open_text(file) as stream:
        chunk = stream.read(_BLOCK_BYTES)
        if delimiter_of(file, reading) is None and is_array(chunk):
            raise ValueError(
                f"{file} is a single JSON array, but bad rows can be skipped only in JSON lines; write one object per "
                "line"
            )
        while chunk:
            yield chunk
            chunk = stream.read(_BLOCK_BYTES)
        yield b""


def _header_part(data: bytes, delimiter: str, skip_rows: int) -> bytes:
    """Return the beginning of a CSV file: the first ``skip_rows`` lines, empty lines and the header."""
    above = b"".join(data.splitlines(keepends=True)[:skip_rows]) if skip_rows else b""
    complete = re.match(rb"[\r\n]*+" + record_pattern(delimiter), data[len(above) :])
    return above + (complete[0] if complete else data[len(above) : data.find(b"\n", len(above)) + 1])


def _records(data: bytes, number: int, delimiter: str | None, last: bool) -> tuple[list[Line], bytes]:
    """Split bytes into records. Return the records, and the bytes of an incomplete record at the end. ``number`` is the
    number of the first line.

    A record of CSV ends at the first line end outside quotes. If the closing quote is missing in the next thousand
    lines, the line with the opening quote is a record of its own. If fewer lines follow, the record is incomplete,
    because later bytes may contain the closing quote. If ``last`` is true, no bytes follow, and the line with the
    opening quote is a record of its own. Without a ``delimiter``, the file has JSON lines, and a record is one line.
    """
    record = re.compile(rb"[^\r\n]*+(?:\r\n|\n|\r)" if delimiter is None else record_pattern(delimiter))
    line = re.compile(rb"[^\r\n]*+(?:\r\n|\n|\r|\Z)")
    records: list[Line] = []
    at = 0
    while at < len(data):
        match = record.match(data, at)
        if match and count_line_ends(match[0]) > _MAX_FIELD_LINES:
            match = None
        elif match is None and not last and count_line_ends(data, at) < _MAX_FIELD_LINES:
            break
        text = (match or line.match(data, at))[0]  # type: ignore[index]
        records.append(Line(number, text))
        number = number + (count_line_ends(text) or 1)
        at = at + len(text)
    return records, data[at:]


def sample_of(file: Path, reading: ReadOptions, folder: Path) -> Path:
    """Write a sample of a text file to a new file in ``folder``, and return the path of the sample. Types of columns
    are inferred from the sample instead of the file, because bad rows could lead to wrong types.

    A record of the first 10,000 records is in the sample if every value has the most frequent kind of its column, such
    as number or text. If there are no such records, or if the file is in a format with typed columns, ``file`` is
    returned.
    """
    if has_types(file):
        return file
    delimiter = delimiter_of(file, reading)
    data = next(_chunks(file, reading))
    head = _header_part(data, delimiter, reading.skip_rows) if delimiter else b""
    records = _records(data[len(head) :], 1, delimiter, last=True)[0]
    records = [line for line in records if line.text.strip()][:_SAMPLE_RECORDS]
    patterns = _patterns(reading)
    kinds = [_kinds_of_values(line.text.decode(reading.encoding, "replace"), delimiter, patterns) for line in records]
    names_line = b"".join(head.splitlines(keepends=True)[reading.skip_rows :])
    names = _kinds_of_values(names_line.decode(reading.encoding, "replace"), delimiter, patterns) if delimiter else None
    kind_counts: dict[object, Counter[str]] = {}
    for kind in kinds:
        for name, value in (kind or {}).items():
            kind_counts.setdefault(name, Counter())[value] += value != "nothing"
    usual_kinds = {name: {counted.most_common(1)[0][0], "nothing"} for name, counted in kind_counts.items()}
    for usual in usual_kinds.values():
        usual |= {"whole", "number"} if usual & {"whole", "number"} else set()
    good = [
        line.text
        for line, kind in zip(records, kinds, strict=True)
        if kind is not None
        and (names is None or len(kind) == len(names))
        and all(value in usual_kinds[name] for name, value in kind.items())
    ]
    sample = folder / f"{len(list(folder.iterdir()))}.{kind_of(file)}"
    sample.write_bytes(head + b"".join(good))
    return sample if good else file


def _patterns(reading: ReadOptions) -> dict[str, re.Pattern[str]]:
    """Return the patterns of the kinds of texts in CSV, in the notation of numbers that the options declare."""
    point = re.escape(reading.point)
    separator = re.escape(reading.thousands or "")
    grouped = rf"[0-9]{{1,3}}(?:{separator}[0-9]{{3}})+|" if separator else ""
    patterns = {
        "nothing": "|".join(map(re.escape, ["", *reading.null])),
        "whole": rf"[+-]?(?:{grouped}[0-9]+)",
        "number": rf"[+-]?(?:(?:{grouped}[0-9]+)(?:{point}[0-9]*)?|{point}[0-9]+)(?:[eE][+-]?[0-9]+)?"
        r"|(?i:nan|[+-]?inf(?:inity)?)",
        "time": r"[0-9]{4}-[0-9]{2}-[0-9]{2}.*",
    }
    return {kind: re.compile(pattern) for kind, pattern in patterns.items()}


def _kinds_of_values(
    text: str, delimiter: str | None, patterns: Mapping[str, re.Pattern[str]]
) -> dict[object, str] | None:
    """Return the kind of each value in a record, as column → kind, or None if the text is not a record. A kind is
    ``nothing``, ``text``, ``truth``, ``whole``, ``number`` or ``time``, and in JSON also ``list`` or ``dict``. Without
    a ``delimiter``, the record is JSON. ``patterns`` are those of `_patterns`.
    """
    try:
        if delimiter:
            values = dict(enumerate(next(csv.reader([text], delimiter=delimiter, strict=True))))
        else:
            values = json.loads(text)
    except (ValueError, csv.Error, StopIteration, RecursionError):
        return None
    return (
        {name: _kind_of_value(value, delimiter, patterns) for name, value in values.items()}
        if isinstance(values, dict)
        else None
    )


def _kind_of_value(value: object, delimiter: str | None, patterns: Mapping[str, re.Pattern[str]]) -> str:
    if value is None or value == "":
        return "nothing"
    if isinstance(value, str):
        kinds = patterns.items() if delimiter else ()
        return next((kind for kind, form in kinds if form.fullmatch(value.strip())), "text")
    return {bool: "truth", int: "whole", float: "number"}.get(type(value), type(value).__name__)


def open_leniently(
    open_files: Callable[..., Source], check: Callable[[pa.Schema], None], reading: ReadOptions
) -> Source:
    """Return the source that ``open_files`` returns, even if the files have bad rows.

    Bad rows may be the cause if ``open_files`` or ``check`` raises an error, or if event times are text. In these
    cases, ``open_files`` is called a second time, and types are inferred from samples of the files (`sample_of`). The
    second source is returned if there was an error, or if the event times have different types in the two sources.
    Otherwise the first source is returned.

    ``open_files`` is `open_source` with all arguments but ``sample``. ``check`` raises an error if a schema does not
    fit.
    """

    def text_times(source: Source) -> list[bool]:
        csv = [source.file_schemas[file] for file in source.files if delimiter_of(file, reading) is not None]
        return [pa.types.is_string(own.field(source.time).type) for own in csv if source.time in own.names]

    try:
        source = open_files(sample=lambda file: file)
        check(source.schema)
        if not any(text_times(source)):
            return source
    except UNREADABLE:
        source = None
    with tempfile.TemporaryDirectory(prefix="tiltframe-") as folder:
        sampled = open_files(sample=lambda file: sample_of(file, reading, Path(folder)))
    return sampled if source is None or text_times(source) != text_times(sampled) else source
