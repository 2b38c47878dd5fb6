"""JSON arrays: convert a file that is one array of objects to JSON lines, block by block. Arrow reads JSON lines, but
not arrays.
"""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

_CHUNK = 1 << 22
_BLANK = b" \t\r\n"


def is_array(head: bytes) -> bool:
    """Return whether a JSON text begins with the bracket of an array.

    >>> is_array(b' [{"a": 1}]'), is_array(b'{"a": [1]}')
    (True, False)
    """
    return head.removeprefix(b"\xef\xbb\xbf").lstrip(_BLANK).startswith(b"[")


class ArrayLines:
    """A file object whose content is the objects of a JSON array, one per line.

    Commas between objects become line ends; the outer brackets, and line ends inside objects, become spaces.

    Parameters
    ----------
    source : binary file object
        The text of the array.
    name : str
        The name of the file, for messages.

    Examples
    --------
    >>> import io
    >>> ArrayLines(io.BytesIO(b'[{"a": "x,]"},\\n {"a":\\n [1, 2]}]'), "a.json").read().split()
    [b'{"a":', b'"x,]"}', b'{"a":', b'[1,', b'2]}']
    """

    closed = False

    def __init__(self, source: BinaryIO, name: str) -> None:
        """Prepare to read from the beginning of the text."""
        self._source = source
        self._name = name
        self._depth = 0
        self._arrays = 0
        self._is_in_string = False
        self._escaped = False
        self._has_begun = False
        self._unread = b""

    def read(self, size: int = -1) -> bytes:
        """Return the next ``size`` bytes of the JSON lines, or all bytes if ``size`` is negative. Raise ``ValueError``
        if the array is not closed, or if text follows it.
        """
        parts = [self._unread]
        length = len(self._unread)
        while size < 0 or length < size:
            chunk = self._source.read(_CHUNK)
            if not chunk:
                if self._depth or self._is_in_string:
                    raise ValueError(
                        f"{self._name}: its array of objects is not closed, and the file may be incomplete; write the "
                        "file again"
                    )
                break
            parts.append(self._lines(chunk))
            length += len(parts[-1])
        data = b"".join(parts)
        piece, self._unread = (data, b"") if size < 0 else (data[:size], data[size:])
        return piece

    def readable(self) -> bool:
        """Return True. Arrow calls this method to check that it can read from the object."""
        return True

    def close(self) -> None:
        """Do nothing: the reader has no resources to release."""

    def _lines(self, chunk: bytes) -> bytes:
        """Return the next bytes of the array as JSON lines. Raise ``ValueError`` if text follows the array."""
        if not self._has_begun:
            self._has_begun = True
            chunk = chunk.removeprefix(b"\xef\xbb\xbf")
        codes = np.frombuffer(chunk, np.uint8).copy()
        outside = ~self._in_strings(codes)
        opening = outside & ((codes == ord("[")) | (codes == ord("{")))
        closing = outside & ((codes == ord("]")) | (codes == ord("}")))
        # for each byte, the number of brackets that are open after it
        depth = self._depth + np.cumsum(opening.astype(np.int64) - closing)
        beyond = outside & (depth - opening + closing == 0) & ~np.isin(codes, np.frombuffer(_BLANK + b"[", np.uint8))
        arrays = int(np.count_nonzero(opening & (depth == 1)))
        if beyond.any() or (depth < 0).any() or self._arrays + arrays > 1:
            raise ValueError(
                f"{self._name}: there is text after its array of objects; remove this text, or write JSON lines"
            )
        separating = outside & (depth == 1) & (codes == ord(","))
        codes[outside & ((codes == 10) | (codes == 13))] = 32
        codes[(opening & (depth == 1)) | (closing & (depth == 0))] = 32
        codes[separating] = 10
        self._depth = int(depth[-1])
        self._arrays += arrays
        return codes.tobytes()

    def _in_strings(self, codes: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Return a mask of the bytes that are inside a string. A closing quote counts as inside, and an opening quote
        as outside.
        """
        places = np.arange(len(codes))
        # for each byte, the index of the nearest byte at or before it that is not a backslash, or -1
        last = np.maximum.accumulate(np.where(codes != ord("\\"), places, -1))
        # for each byte, the number of backslashes directly before it
        run = places - np.concatenate([[-1], last[:-1]]) - 1
        odd = (run % 2 == 1) ^ (self._escaped & (run == places))
        quotes = (codes == ord('"')) & ~odd
        inside: NDArray[Any] = (np.cumsum(quotes) + self._is_in_string) % 2 == 1
        trailing = len(codes) - 1 - int(last[-1])
        self._escaped = bool((trailing % 2 == 1) ^ (self._escaped and trailing == len(codes)))
        before = np.concatenate([[self._is_in_string], inside[:-1]])
        self._is_in_string = bool(inside[-1])
        return before
