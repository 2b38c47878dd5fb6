"""Check a text file before Arrow reads it: its bytes must be valid in the encoding, and every quote must be closed.

Arrow reads files with such errors without an exception. It reads invalid text as a column of bytes. After a quote that
is not closed, it reads the rest of the file as one field.
"""

from __future__ import annotations

import codecs
import re
from pathlib import Path

import numpy as np
import pyarrow as pa

from tiltframe.parameter_names import by_caller

_CHUNK = 1 << 24
_QUOTE = ord('"')
_LINE_ENDS = (10, 13)


def check_text(file: Path, encoding: str = "utf-8", delimiter: str | None = None) -> None:
    """Raise ``ValueError``, with the file and the line, if bytes are invalid in the encoding or if a quote is not
    closed.

    Quotes are checked only if ``delimiter`` is passed, which means that the file is CSV. A quote must begin or end a
    field, or be written twice inside a field.
    """
    decoder = codecs.getincrementaldecoder(encoding)()
    plain = encoding in ("utf-8", "utf-8-sig")
    lines = 0
    quotes = _Quotes(delimiter) if delimiter else None
    with pa.input_stream(file, compression="detect") as stream:
        while True:
            chunk = stream.read(_CHUNK)
            incomplete = decoder.getstate()[0]
            try:
                text = None if plain and not incomplete and chunk.isascii() else decoder.decode(chunk, final=not chunk)
            except UnicodeError as error:
                content = incomplete + chunk
                reason = "it does not begin with a byte order mark"
                if isinstance(error, UnicodeDecodeError):
                    line = lines + content.count(b"\n", 0, error.start) + 1
                    reason = f"byte 0x{content[error.start]:02x} in line {line:,}"
                begins = content[:2] if not lines else b""
                likely = "utf-16" if begins in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "latin-1"
                option = f"--encoding {likely}"
                in_python = f" on the command line, or ReadOptions(encoding={likely!r}) in Python"
                raise ValueError(
                    f"{file} is not in {encoding}: {reason}; declare its encoding, such as {option}"
                    + by_caller("", in_python)
                ) from None
            if quotes is not None:
                quotes.check(chunk if plain or text is None else text.encode())
            lines += chunk.count(b"\n")
            if not chunk:
                break
    if quotes is not None and not quotes.are_closed():
        _find_unclosed(file, encoding, str(delimiter))


class _Quotes:
    """A check of the quotes in a stream of CSV. A quote is valid if it begins or ends a field, or is written twice
    inside a field. Therefore the byte before an opening quote, and the byte after a closing quote, must be a
    delimiter, a line end or another quote.
    """

    def __init__(self, delimiter: str) -> None:
        self._may_be_next = np.zeros(256, bool)
        self._may_be_next[[_QUOTE, *_LINE_ENDS, ord(delimiter)]] = True
        self._last = b"\n"
        self._is_open = False
        self._is_valid = True

    def check(self, chunk: bytes) -> None:
        """Check the next bytes of the stream. Pass empty bytes at its end. The last byte is checked by the next call,
        because the check needs the byte after it.
        """
        data = self._last + (chunk or b"\n")
        self._last = data[-2:]
        if not self._is_valid or _QUOTE not in data[1:-1]:
            return
        codes = np.frombuffer(data, np.uint8)
        at = np.flatnonzero(codes[1:-1] == _QUOTE) + 1
        opens, closes = (at[1::2], at[::2]) if self._is_open else (at[::2], at[1::2])
        self._is_open ^= len(at) % 2 == 1
        self._is_valid = bool(self._may_be_next[codes[opens - 1]].all() and self._may_be_next[codes[closes + 1]].all())

    def are_closed(self) -> bool:
        return self._is_valid and not self._is_open


def _find_unclosed(file: Path, encoding: str, delimiter: str) -> None:
    """Raise ``ValueError``, with the line, for the first field that has an opening quote but not a closing quote. Do
    nothing if the file has no such field. This can happen, because `_Quotes` also rejects some quotes that Arrow reads
    correctly.
    """
    with pa.input_stream(file, compression="detect") as stream:
        data = stream.read().decode(encoding).removeprefix("\ufeff").encode()
    complete = re.match(rb"(?:%s)*+" % record_pattern(delimiter), data + b"\n")
    at = complete.end() if complete else 0
    if at < len(data):
        line = count_line_ends(data, 0, at) + 1
        start = data[at : at + 40].split(b"\n")[0].decode(errors="replace")
        raise ValueError(
            f"{file}: in line {line:,} a quote opens a field, {start!r}, and is not closed before a delimiter or the "
            'end of a line; close it, and write a quote within a quoted field twice ("")'
        )


def count_line_ends(data: bytes, begin: int = 0, end: int | None = None) -> int:
    r"""Return the number of line ends in bytes, from the index ``begin`` to the index ``end``, exclusively. A line ends
    with ``\n``, ``\r\n`` or ``\r``.

    >>> count_line_ends(b"a\nb\r\nc\rd")
    3
    """
    return data.count(b"\n", begin, end) + data.count(b"\r", begin, end) - data.count(b"\r\n", begin, end)


def record_pattern(delimiter: str) -> bytes:
    """Return a regular expression for a CSV record including its line end. A quote begins a quoted field only at the
    start of a field.
    """
    separator = re.escape(delimiter).encode()
    field = rb'(?:"[^"]*+(?:""[^"]*+)*+"|[^"\r\n%s][^\r\n%s]*+)?+' % (separator, separator)
    return rb"%s(?:%s%s)*+(?:\r\n|\n|\r)" % (field, separator, field)
