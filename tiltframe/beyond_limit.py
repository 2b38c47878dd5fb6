"""Groups beyond an absorbing limit, such as ``collect("ms", max=100, beyond="null")``: counted, and reported.

A group is a window and its keys. Its result is null, and the report says how many there are of each level.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from aggr.arrays import Flags
from aggr.arrow import compute as pc
from aggr.function import Function
from tiltframe.frame import TiltFrame
from tiltframe.names import LEVEL
from windows import TimeWindow

Note: TypeAlias = Callable[[str], object]  # receives a sentence of a report


class BeyondLimit(UserWarning):
    """Some groups have more values than the limit of a measure, whose result is null for them."""


class GroupsBeyondLimit:
    """Counts the groups that are beyond the limit of a measure, by column of states and level."""

    def __init__(self, frame: TiltFrame) -> None:
        """Start to count groups of the states of a frame."""
        self._frame = frame
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, level: str, states: pa.Table) -> None:
        """Count the groups of states of one level, each state being another group."""
        for column in self._frame.states:
            beyond = _beyond(column.measure.function, states.column(column.name))
            if beyond is not None:
                self._counts[column.name, level] += int(beyond.sum())

    def counted(self, levels: Iterable[tuple[TimeWindow, pa.Table]]) -> Iterator[tuple[TimeWindow, pa.Table]]:
        """Yield the states of levels, and count their groups on the way."""
        for level, states in levels:
            self.add(level.name, states)
            yield level, states

    def add_levels(self, states: pa.Table) -> None:
        """Count the groups of states of all levels, as a rollup returns them."""
        for column in self._frame.states:
            beyond = _beyond(column.measure.function, states.column(column.name))
            if beyond is not None:
                levels = states.column(LEVEL).filter(pa.array(beyond))
                for counted in pc.value_counts(levels).to_pylist():
                    self._counts[column.name, counted["values"]] += counted["counts"]

    def report(self, note: Note | None = None, stacklevel: int = 2) -> None:
        """Pass a sentence for each measure with such groups to ``note``, or warn of them.

        ``stacklevel`` is the caller that warnings name, as for ``warnings.warn``; 1 is the caller of this method.
        """
        for sentence in self._sentences():
            if note is None:
                warnings.warn(sentence, BeyondLimit, stacklevel=stacklevel + 1)
            else:
                note(sentence)

    def _sentences(self) -> list[str]:
        sentences = []
        for column in self._frame.states:
            counts = {level.name: self._counts[column.name, level.name] for level in self._frame.levels}
            parts = [f"{count:,} of {level}" for level, count in counts.items() if count]
            if parts:
                sentences.append(
                    f"{', '.join(column.serves)}, {column.measure!r}: the results of groups with more values than the "
                    f"limit are null: {', '.join(parts)}"
                )
        return sentences


def _beyond(function: Function, states: pa.ChunkedArray) -> Flags | None:
    """Return which states are beyond the limit, shape (rows,); None if none is."""
    parts = []
    has_any = False
    for chunk in states.chunks:
        flags = np.zeros(len(chunk), np.bool_)
        beyond = function.own_state.beyond_limit(chunk.drop_null() if chunk.null_count else chunk)
        if beyond is not None:
            flags[chunk.is_valid().to_numpy(zero_copy_only=False)] = beyond
            has_any = True
        parts.append(flags)
    return np.concatenate(parts) if has_any else None
