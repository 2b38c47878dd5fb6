"""Values that functions refused and skipped, such as those of ``hdr("ms", bad_values="skip")``: counted, and reported.

The counts are read from states, so that they are those of the rows, however often rows were read and states merged.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping

import pyarrow as pa

from tiltframe.beyond_limit import Note
from tiltframe.frame import TiltFrame


class RefusedValues(UserWarning):
    """Some values were refused by the function of a measure, and skipped."""


class RefusedCounts:
    """The number of refused values by column of states."""

    def __init__(self, frame: TiltFrame, counts: Mapping[str, int] | None = None) -> None:
        """Start with counts of a frame's columns of states; none by default."""
        self._frame = frame
        self._counts = Counter(counts or {})

    def add(self, states: pa.Table) -> None:
        """Add the counts of states of one level whose windows do not overlap, or of its panes."""
        for column in self._frame.states:
            for chunk in states.column(column.name).chunks:
                counts = column.measure.function.own_state.refused_counts(chunk.drop_null())
                if counts is not None:
                    self._counts[column.name] += int(counts.sum())

    def as_record(self) -> dict[str, int]:
        """Return the counts that are not 0."""
        return {name: count for name, count in self._counts.items() if count}

    def report(self, note: Note | None = None, stacklevel: int = 2) -> None:
        """Pass a sentence for each measure with refused values to ``note``, or warn of them.

        ``stacklevel`` is the caller that warnings name, as for ``warnings.warn``; 1 is the caller of this method.
        """
        for column in self._frame.states:
            count = self._counts[column.name]
            if not count:
                continue
            sentence = f"{', '.join(column.serves)}, {column.measure!r}: {count:,} values were refused, and skipped"
            if note is None:
                warnings.warn(sentence, RefusedValues, stacklevel=stacklevel + 1)
            else:
                note(sentence)
