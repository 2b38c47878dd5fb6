"""Standard input as a file: its bytes are copied to a temporary file, which is read like any other file."""

from __future__ import annotations

import bz2
import gzip
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from tiltframe.files.readers import BUILT_IN, readers

STANDARD_INPUT = Path("-")


def input_format(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return ``value``, the name of a format. Raise ``BadParameter`` if it is neither a built-in format nor the format
    of a registered reader.
    """
    if value is not None and value not in BUILT_IN and value not in readers():
        formats = ", ".join([*BUILT_IN, *readers()])
        raise click.BadParameter(f"unknown format {value!r}; the known formats are {formats}", ctx, param)
    return value


_NAME_IN_MESSAGES = "standard input"
_DECOMPRESSORS: dict[bytes, tuple[str, Callable[[bytes], bytes]]] = {
    b"\x1f\x8b": (".gz", lambda head: _decompress_beginning(gzip.open, head)),
    b"BZh": (".bz2", lambda head: _decompress_beginning(bz2.open, head)),
}
_HEAD_BYTES = 1 << 16


@contextmanager
def with_standard_input(inputs: Sequence[Path], form: str | None) -> Iterator[tuple[list[Path], Path | None]]:
    """Yield the inputs with a temporary file in place of ``-``, and the path of this file. The file contains all bytes
    of standard input. If the inputs do not contain ``-``, yield the unchanged inputs, and None in place of the path.

    The format of the file is ``form``. If it is None, the format is detected: Parquet and JSON by their first bytes,
    and tab-separated values by a tab and no comma in the first line. All other data is CSV. In errors within the block,
    the file is called standard input.
    """
    if STANDARD_INPUT not in inputs:
        if form is not None:
            raise ValueError(
                "--input-format applies only to standard input, and the inputs do not include -; leave it out, "
                "because the format of a file follows from its ending"
            )
        yield list(inputs), None
        return
    if sys.stdin is None or sys.stdin.isatty():
        raise ValueError(
            "standard input is a terminal; send rows through a pipe, such as cat events.jsonl | tiltframe …"
        )
    with tempfile.TemporaryDirectory(prefix="tiltframe") as folder:
        file = _write_file(Path(folder).resolve(), form)
        paths = list(dict.fromkeys(file if path == STANDARD_INPUT else path for path in inputs))
        try:
            yield paths, file
        except (ValueError, TypeError, OverflowError) as error:
            if str(file) not in str(error):
                raise
            raise ValueError(str(error).replace(str(file), _NAME_IN_MESSAGES)) from None


def _write_file(folder: Path, form: str | None) -> Path:
    """Copy standard input to a file in ``folder``, and return the path of the file. The name of the file ends with the
    endings of its format and compression, such as ``.csv.gz``.
    """
    stream = sys.stdin.buffer
    head = stream.read(_HEAD_BYTES)
    if not head:
        raise ValueError(f"{_NAME_IN_MESSAGES} is empty: it has no columns and no rows; send rows, or leave out -")
    ending, plain_head = next(
        (
            (ending, decompress(head))
            for magic, (ending, decompress) in _DECOMPRESSORS.items()
            if head.startswith(magic)
        ),
        ("", head),
    )
    reader = readers().get(form) if form else None
    form_ending = f".{form or _format_of(plain_head)}" if reader is None else reader.endings[0]
    file = folder / f"input{form_ending}{ending}"
    with open(file, "wb") as out:
        out.write(head)
        shutil.copyfileobj(stream, out)
    return file


def _format_of(head: bytes) -> str:
    """Detect the format of data from ``head``, the first bytes of the data, and return the name of the format.

    >>> [_format_of(head) for head in (b"PAR1", b' {"a": 1}', b"a\\tb\\n1\\t2,5", b"a,b\\n1,2")]
    ['parquet', 'json', 'tsv', 'csv']
    """
    if head.startswith(b"PAR1"):
        return "parquet"
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    first = text.split(b"\n", 1)[0]
    if text.startswith((b"{", b"[")):
        return "json"
    return "tsv" if b"\t" in first and b"," not in first else "csv"


def _decompress_beginning(open_compressed: Callable[..., object], head: bytes) -> bytes:
    """Decompress the beginning of a compressed stream, and return the first decompressed bytes. ``head`` has the first
    bytes of the stream, and may end at any byte. Return ``b""`` if nothing can be decompressed.
    """
    import io

    try:
        with open_compressed(io.BytesIO(head)) as stream:  # type: ignore[attr-defined]
            first: bytes = stream.read1(_HEAD_BYTES) if hasattr(stream, "read1") else stream.read(1 << 10)
            return first
    except (OSError, EOFError, zlib.error):
        return b""
