"""Formats of responses: JSON, CSV or an Arrow stream, with or without compression. Responses are written in pieces."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.csv as pacsv

from aggr.extend.tables import flattened
from tiltframe.extend import csv_cells, json_rows, json_text
from tiltframe.serve.deadline import Deadline
from tiltframe.serve.errors import Refused
from tiltframe.store import Answer, Joined, StoreView

JSON = "application/json"
CSV = "text/csv"
ARROW = "application/vnd.apache.arrow.stream"
# the format in which OpenTelemetry's exporters send metrics
PROTOBUF = "application/x-protobuf"
# JSON lines, a format in which clients send events
LINES = "application/x-ndjson"


# The number of rows that are written as text between two checks of the deadline. Results as Arrow are not split,
# because writing them is fast.
_ROWS_AT_ONCE = 5_000


class _PieceBuffer(io.BytesIO):
    """A file in memory. `take` returns and removes the bytes that were written. `close` has no effect, so that the last
    bytes can be taken after a writer has closed the file.
    """

    def close(self) -> None:
        pass

    def take(self) -> bytes:
        content = self.getvalue()
        self.seek(0)
        self.truncate()
        return content


def headers_and_body(
    store: str,
    view: StoreView,
    results: Answer | Joined,
    *,
    media_type: str,
    compression: str | None,
    deadline: Deadline,
) -> tuple[Mapping[str, str], Iterator[bytes]]:
    """Return the headers of an answer, and an iterator over the pieces of its body. ``compression`` is gzip, zstd or
    None. The iterator raises `OutOfTime` after the deadline.
    """
    warnings = [*results.expired, *results.unknown]
    leading_members = {"store": store, "version": view.version, "warnings": warnings}
    slices = results.slices if media_type == ARROW else _split_rows(results.slices)
    answer = Answer(results.schema, deadline.check_each(slices), results.expired, results.unknown)
    return warning_header(warnings), body_pieces(answer, media_type, compression, leading_members)


def _split_rows(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the rows of ``tables`` in tables of at most `_ROWS_AT_ONCE` rows. A table without rows is yielded as well,
    because CSV takes the names of the columns from it.
    """
    for table in tables:
        for begin in range(0, max(table.num_rows, 1), _ROWS_AT_ONCE):
            yield table.slice(begin, _ROWS_AT_ONCE)


def body_pieces(
    answer: Answer, media_type: str, compression: str | None, leading_members: Mapping[str, Any]
) -> Iterator[bytes]:
    """Yield the body of an answer in pieces of bytes, one for each slice of results. ``compression`` is gzip, zstd or
    None. In JSON, the members of ``leading_members`` come before the rows.
    """
    pieces = _PieceBuffer()
    file = pa.PythonFile(pieces, "w")
    out = pa.CompressedOutputStream(file, compression) if compression else file
    for _ in _WRITERS[media_type](answer, out, leading_members):
        if piece := pieces.take():
            yield piece
    out.close()
    yield pieces.take()


def _write_json(answer: Answer, out: pa.NativeFile, leading_members: Mapping[str, Any]) -> Iterator[None]:
    columns = [{"name": field.name, "type": str(field.type)} for field in answer.schema]
    out.write(json_text({**leading_members, "columns": columns})[:-1].encode() + b', "rows": [')
    separator = b"\n"
    for results in answer.slices:
        if results.num_rows:
            out.write(separator + json_rows(results).encode())
            separator = b",\n"
        yield
    out.write(b"\n]}\n")


def _write_csv(answer: Answer, out: pa.NativeFile, leading_members: Mapping[str, Any]) -> Iterator[None]:
    writer = None
    for results in answer.slices:
        cells = csv_cells(flattened(results))
        writer = writer or pacsv.CSVWriter(out, cells.schema, write_options=pacsv.WriteOptions(quoting_style="needed"))
        writer.write_table(cells)
        yield
    assert writer is not None
    writer.close()


def _write_arrow(answer: Answer, out: pa.NativeFile, leading_members: Mapping[str, Any]) -> Iterator[None]:
    with pa.ipc.new_stream(out, answer.schema) as writer:
        for results in answer.slices:
            writer.write_table(results)
            yield


# A function that writes an answer to a file. The function yields after each slice, so that the caller can send the
# bytes.
_Writer: TypeAlias = Callable[[Answer, pa.NativeFile, Mapping[str, Any]], Iterator[None]]
_WRITERS: dict[str, _Writer] = {JSON: _write_json, CSV: _write_csv, ARROW: _write_arrow}


def warning_header(sentences: Sequence[str]) -> dict[str, str]:
    r"""Return the header ``Warning`` with messages; characters outside ASCII are escaped.

    >>> warning_header(['the measure "名" is not known'])
    {'warning': '299 - "the measure \\"\\u540d\\" is not known"'}
    """
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in sentences)
    ascii_only = (json.dumps(text)[1:-1].replace('\\"', '"').replace("\\\\", "\\") for text in quoted)
    return {"warning": ", ".join(f'299 - "{text}"' for text in ascii_only)} if sentences else {}


def media_type_of(accept: str) -> str:
    """Return the media type that a request prefers. ``accept`` is its header ``Accept``. Raise `Refused` if the server
    supports none of the accepted types.

    >>> media_type_of("text/html, */*;q=0.1"), media_type_of("application/*;q=0.5, text/csv")
    ('application/json', 'text/csv')
    """
    media_type = _preferred(accept or "*/*", list(_WRITERS))
    if media_type is None:
        raise Refused(406, f"the header Accept must name one of {', '.join(_WRITERS)}, or */*; got {accept[:80]}")
    return media_type


def compression_of(accept_encoding: str) -> str | None:
    """Return the compression that a request prefers, zstd or gzip, or None if it accepts neither. ``accept_encoding``
    is its header ``Accept-Encoding``.

    >>> compression_of("gzip, deflate, br, zstd"), compression_of("zstd;q=0, gzip"), compression_of("*;q=0")
    ('zstd', 'gzip', None)
    """
    return _preferred(accept_encoding, ["zstd", "gzip"])


def _preferred(header: str, offered: Sequence[str]) -> str | None:
    """Return the name in ``offered`` to which a header such as ``Accept`` gives the highest weight, or the first of
    several such names. Return None if the header accepts none of them.
    """
    weights = {}
    for part in header.split(","):
        name, *parameters = (word.strip().lower() for word in part.split(";"))
        weights[name] = next((_weight(text[2:]) for text in parameters if text.startswith("q=")), 1.0)
    best = 0.0
    preferred = None
    for name in offered:
        patterns = (name, f"{name.partition('/')[0]}/*", "*/*" if "/" in name else "*")
        weight = next((weights[pattern] for pattern in patterns if pattern in weights), 0.0)
        if weight > best:
            best = weight
            preferred = name
    return preferred


def _weight(text: str) -> float:
    try:
        return min(max(float(text), 0.0), 1.0)
    except ValueError:
        return 0.0
