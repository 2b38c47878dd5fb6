"""Content: what a commit brought, told by a sum over its states, so that the same batch is known when it comes again.

The states of the finest level, one a window and key, are canonical: the same rows give the same bits. So the sum of
their hashes does not depend on batches, partitions, their order, or which attempt of a task wrote them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np
import pyarrow as pa

from aggr.kernels import compute as pc
from aggr.states.row_hash import row_hashes
from tiltframe.frame import LEVEL, START, TiltFrame

Content = tuple[int, int]  # of 64 bits each

NOTHING: Content = (0, 0)


def earlier_contents(
    content: Callable[[Sequence[str]], Content], columns: Collection[str], earlier: Iterable[Sequence[str]]
) -> list[Content]:
    """Sum up merged states as earlier frames of a store had them, those which had no other columns."""
    return [content(names) for names in earlier if set(names) <= set(columns)]


def content_of(states: pa.Table, frame: TiltFrame, columns: Sequence[str] | None = None) -> Content:
    """Sum up merged states: level, window_start, keys, states; all but those of the finest level are left out.

    ``columns`` of states are the frame's unless they are given.
    """
    finest = states.filter(pc.equal(states.column(LEVEL), frame.levels[0].name))
    if not finest.num_rows:
        return NOTHING
    names = [START, *frame.keys, *(columns or (column.name for column in frame.states))]
    first, second = row_hashes([finest.column(name) for name in names]).sum(axis=1, dtype=np.uint64).tolist()
    return first, second


def total(contents: Iterable[Content]) -> Content:
    """Add up what several tasks have written for one commit.

    >>> total([(1, 2), (2**64 - 1, 3)])
    (0, 5)
    """
    first, second = 0, 0
    for one, other in contents:
        first, second = (first + one) % 2**64, (second + other) % 2**64
    return first, second


def fingerprint(commit: int, content: Content) -> int:
    """Tell a commit by a whole number from 0, below 2^63."""
    text = f"{commit} {content[0]} {content[1]}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
