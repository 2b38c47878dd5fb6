"""Zig-zag LEB128: whole numbers in as few bytes as they need, rows of them at once.

A number's sign becomes its lowest bit, 0, −1, 1, −2 → 0, 1, 2, 3; then seven bits a byte, the lowest first, and the
eighth says that more follow. The ninth byte holds all eight of its bits, so that nine bytes are enough for int64.

Source: the LEB128-64b9B variant of HdrHistogram.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from aggr.ragged import Ragged

LONGEST = 9  # bytes of a number
_LEAST_OF = np.uint64(1) << np.arange(7, 7 * LONGEST, 7, dtype=np.uint64)  # what takes 2, 3, … 9 bytes


def write(numbers: Ragged) -> list[bytes]:
    """Write each row of int64.

    >>> write(Ragged(np.array([2, 0, 1]), np.array([1, -2, 300])))
    [b'\\x02\\x03', b'', b'\\xd8\\x04']
    """
    values = numbers.values
    words = ((values << 1) ^ (values >> 63)).view(np.uint64)
    sizes = 1 + np.searchsorted(_LEAST_OF, words, side="right")
    edges = np.append(0, np.cumsum(sizes))
    data = np.empty(edges[-1], np.uint8)
    for j in range(int(sizes.max(initial=0))):
        long = np.flatnonzero(sizes > j)
        part = words[long] >> np.uint64(7 * j)
        if j < LONGEST - 1:
            part = (part & np.uint64(0x7F)) | ((sizes[long] > j + 1).astype(np.uint64) << np.uint64(7))
        data[edges[long] + j] = part
    whole = data.tobytes()
    return [whole[a:b] for a, b in pairwise(edges[np.append(0, np.cumsum(numbers.lengths))].tolist())]


def read(rows: list[bytes]) -> tuple[Ragged, NDArray[np.bool_]]:
    """Read rows of int64; say as well which of them break off within a number.

    >>> read([b"\\x02\\x03", b"", b"\\xd8"])[1]
    array([False, False,  True])
    """
    data = np.frombuffer(b"".join(rows), np.uint8)
    ends = np.cumsum([len(row) for row in rows], dtype=np.int64)
    last = data < 0x80
    place = np.arange(len(data))
    fresh = np.append(True, last)[: len(data)]
    depth = (place - np.maximum.accumulate(np.where(fresh, place, 0))) % LONGEST  # of a byte within its number
    full = depth == LONGEST - 1
    at = np.flatnonzero(depth == 0)
    bits = np.where(full, data, data & 0x7F).astype(np.uint64) << (7 * depth).astype(np.uint64)
    words = np.bitwise_or.reduceat(bits, at) if len(at) else bits
    values = (words >> np.uint64(1)).view(np.int64) ^ -(words & np.uint64(1)).view(np.int64)
    lengths = np.diff(np.searchsorted(at, np.append(0, ends)))
    return Ragged(lengths, values), ~np.append(True, last | full)[ends]
