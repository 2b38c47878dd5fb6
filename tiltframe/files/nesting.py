"""A limit for the depth of JSON. Arrow's parser calls itself for each nested array or object, and a line that is nested
too deeply would exhaust the stack and end the process.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

MAX_DEPTH = 200
_NEWLINE = ord("\n")
_NEITHER_OPENS_NOR_ENDS = bytes(set(range(256)) - set(b"[{\n"))
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)


class DepthLimit:
    r"""A check of JSON lines that arrive in parts of any size.

    Examples
    --------
    >>> DepthLimit("events.jsonl").check(b'{"a": [[1]]}\n' + b"[" * 201)
    Traceback (most recent call last):
    ValueError: events.jsonl: line 2 has arrays or objects that are nested more than 200 levels deep; write ...
    """

    def __init__(self, name: str) -> None:
        """``name`` is the name of the input, for the message."""
        self._name = name
        self._complete_lines = 0
        self._incomplete_line = b""

    def check(self, data: bytes) -> None:
        """Raise ``ValueError`` if a line, including the incomplete one at the end, is nested more than `MAX_DEPTH`
        levels deep.
        """
        data = self._incomplete_line + data
        # A line can be nested too deeply only if it has more than `MAX_DEPTH` brackets that open. `translate` keeps
        # only these brackets and line ends, so that one fast pass finds such lines.
        brackets = np.frombuffer(data.translate(None, _NEITHER_OPENS_NOR_ENDS), np.uint8)
        line_ends = np.append(np.flatnonzero(brackets == _NEWLINE), len(brackets))
        suspicious = np.flatnonzero(np.diff(line_ends, prepend=-1) > MAX_DEPTH + 1)
        if len(suspicious):
            lines = data.split(b"\n")
            for line in suspicious.tolist():
                self._check_line(lines[line], self._complete_lines + line + 1)
        self._complete_lines += len(line_ends) - 1
        self._incomplete_line = data[data.rfind(b"\n") + 1 :]

    def _check_line(self, line: bytes, number: int) -> None:
        if _depth(line) > MAX_DEPTH:
            raise ValueError(
                f"{self._name}: line {number:,} has arrays or objects that are nested more than {MAX_DEPTH} levels "
                "deep; write the value as text, or leave out the line"
            )


def _depth(line: bytes) -> int:
    """Return the greatest number of arrays and objects that are open at the same time, without brackets in texts."""
    codes = np.frombuffer(_TEXT.sub(b"", line), np.uint8) | 0x20
    steps = (codes == ord("{")).astype(np.int64) - (codes == ord("}"))
    return int(np.cumsum(steps).max(initial=0))


class CheckedLines:
    """A file object that returns the bytes of another one, and checks their depth."""

    closed = False

    def __init__(self, source: pa.NativeFile, name: str) -> None:
        """``name`` is the name of the file, for messages."""
        self._source = source
        self._limit = DepthLimit(name)

    def read(self, size: int = -1) -> bytes:
        """Return at most ``size`` bytes, or all if ``size`` is negative. Raise ``ValueError`` as `DepthLimit.check`
        does.
        """
        data: bytes = self._source.read(None if size < 0 else size)
        self._limit.check(data)
        return data

    def readable(self) -> bool:
        """Return True. Arrow calls this method to check that it can read from the object."""
        return True

    def close(self) -> None:
        """Close the source."""
        self.closed = True
        self._source.close()
