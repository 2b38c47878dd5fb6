"""Retraction: rows are taken out of the states of a store again, under a writer's number, as a commit brought them.

The parts of their windows are rewritten at all levels at once. What is left is to the bit what a store has that never
had the rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.fields import NOT_THERE, CannotSubtract
from aggr.tables.by_key import check_subtractable, subtract_by
from tiltframe.frame import START, TiltFrame
from tiltframe.level_chain import instants_of, merge_level
from tiltframe.store.backends.protocol import EXPIRED, Part
from tiltframe.store.changes.append import Commit, by_level, negated
from tiltframe.store.log.run import Attempt
from tiltframe.store.merging import by_windows, pieces_of
from tiltframe.store.ranges import EVER, as_text
from tiltframe.store.recorded import held_from
from windows import TimeWindow


def check_retractable(frame: TiltFrame) -> None:
    """Raise ``TypeError`` that names the measures out of whose states rows cannot be taken."""
    check_subtractable({", ".join(c.serves): c.measure.function for c in frame.states})


def retract(commit: Commit, states: pa.Table) -> bool:
    """Take states of all levels, which have been checked, out of a store by a commit; say whether it was new.

    Raises `CannotSubtract` if they are not in the store, or what is left is not known, and as `Commit.commit` does;
    what was written is removed.
    """
    levels = list(by_level(states, commit.frame))

    def derive(transaction: Attempt) -> None:
        transaction.read(EXPIRED)
        for level, gone in levels:
            is_held = instants_of(gone) >= held_from(transaction.snapshot, level.name)
            retracted = gone.filter(pa.array(is_held))
            starts = np.unique(instants_of(retracted))
            touched = [part for part in transaction.snapshot.of(level.name) if _has_some(part, starts)]
            transaction.removes(touched)
            _write_without(commit, transaction, level, parts=touched, gone=retracted)

    return commit.commit_once([negated(digest) for digest in commit.digests(levels[0][1])], derive)


def _has_some(part: Part, starts: NDArray[np.int64]) -> bool:
    first, end = np.searchsorted(starts, part.range)
    return bool(first < end)


def _write_without(
    commit: Commit, transaction: Attempt, level: TimeWindow, *, parts: Sequence[Part], gone: pa.Table
) -> None:
    """Write the states of parts without those that are gone, some windows at a time."""
    frame, starts = commit.frame, instants_of(gone)
    functions, found = {c.name: c.measure.function for c in frame.states}, np.zeros(gone.num_rows, np.bool_)
    for some in by_windows(pieces_of(parts, [EVER]), level):
        states = commit.backend.read(some, commit.manifest.schema.names[1:])
        merged = merge_level(states, frame, level, unknown=True)
        here = np.isin(starts, instants_of(merged))
        found |= here
        try:
            rest = subtract_by(merged, gone.filter(pa.array(here)), [START, *frame.keys], functions)
        except CannotSubtract as error:
            raise CannotSubtract(error.row, error.reason, f"{level.name}, {error.where}") from None
        if rest.num_rows:
            transaction.write(level, rest)
    if not found.all():
        row = int(np.argmin(found))
        raise CannotSubtract(row, NOT_THERE, f"the window of {level.name} at {as_text(int(starts[row]))}")
