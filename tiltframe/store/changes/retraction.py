"""Retraction: subtract rows from the states of a store. A retraction is a commit of a writer and has a commit number,
like a commit that adds rows.

The parts of the affected windows are rewritten on all levels atomically; a part consists of states of one level that
were written together. The remaining states are bit-for-bit those of a store that never had the subtracted rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.fields import ROWS_NOT_IN_STATE, CannotSubtract
from aggr.tables.by_key import check_subtractable, subtract_by
from tiltframe.frame import TiltFrame
from tiltframe.instants import instants_of
from tiltframe.merged_windows import merge_level
from tiltframe.names import START
from tiltframe.ranges import EVER, Range, as_text, inside
from tiltframe.store.backends.protocol import Part
from tiltframe.store.changes.commit import Commit, begin, begin_checked, by_level, read_receipts
from tiltframe.store.checked_states import checked_levels
from tiltframe.store.log.records import EXPIRED, available_from, checked_records
from tiltframe.store.log.run import WritingTransaction
from tiltframe.store.log.snapshot import pieces_of
from tiltframe.store.log.writers import Digest, check_writer, digests_of, negate_digest
from tiltframe.store.opened import OpenedStore
from tiltframe.store.query.merging import split_by_windows
from tiltframe.tabular import table_of
from windows import TimeWindow


def check_retractable(frame: TiltFrame) -> None:
    """Raise ``TypeError`` if the states of some measures of a frame cannot be subtracted; the message names these
    measures.
    """
    check_subtractable({", ".join(c.serves): c.measure.function for c in frame.states})


@dataclass(frozen=True)
class Retraction:
    """A retraction whose states are written by several processes. It can be pickled.

    `tiltframe.FrameStore.begin_retraction` returns it.

    Parameters
    ----------
    pending_commit : Commit
        The commit that will subtract the states. It has the name of the writer and the commit number.
    """

    pending_commit: Commit

    @property
    def frame(self) -> TiltFrame:
        """The frame of the store."""
        return self.pending_commit.frame

    def write(self, states: pa.Table) -> str:
        """Check and write states from `tiltframe.rollup`; return a receipt for `commit`.

        All states of one key and one window of the coarsest level must be in the same call. Raise the same errors as
        `tiltframe.FrameStore.retract`.
        """
        return self.pending_commit.write(states)

    def commit(self, receipts: Iterable[str]) -> bool:
        """Subtract the written states from the store; return whether the commit number is new.

        ``receipts`` must contain the result of each call of `write`. Raise the same errors as
        `tiltframe.FrameStore.retract`. The states that `write` has stored are always removed at the end, and are never
        visible to readers.
        """
        parts, digests = read_receipts(receipts)
        backend = self.pending_commit.backend
        columns = self.pending_commit.manifest.schema.names[1:]
        by_name = {level.name: [part for part in parts if part.level == level.name] for level in self.frame.levels}

        def read_starts(level: TimeWindow) -> NDArray[np.int64]:
            return np.unique(instants_of(backend.read(pieces_of(by_name[level.name], [EVER]), [])))

        def read_rows(level: TimeWindow, span: Range) -> pa.Table:
            rows = backend.read(pieces_of(by_name[level.name], [span]), columns)
            return merge_level(rows, self.frame, level, nulls_are_unknown=True)

        try:
            return _retract(
                self.pending_commit,
                StatesToSubtract(read_starts, read_rows),
                [negate_digest(digest) for digest in digests],
            )
        finally:
            backend.discard(parts)


class StatesToSubtract(NamedTuple):
    """The states to subtract, as two functions. ``starts(level)`` returns the starts of the windows from which
    states are subtracted on a level, in microseconds UTC, in ascending order. ``rows(level, range)`` returns the merged
    states to subtract from the windows of a level that start in a range.
    """

    starts: Callable[[TimeWindow], NDArray[np.int64]]
    rows: Callable[[TimeWindow, Range], pa.Table]


def retract_states(commit: Commit, states: pa.Table) -> bool:
    """Subtract checked states of all levels from a store in a commit; return whether the commit is new.

    Raise `CannotSubtract` if the store does not contain the states, or if the remaining states cannot be computed. For
    other reasons, raise the same errors as `Commit.commit`. After an error, the store is unchanged.
    """
    levels = {level.name: rows for level, rows in by_level(states, commit.frame)}
    subtrahends = StatesToSubtract(
        lambda level: np.unique(instants_of(levels[level.name])),
        lambda level, span: levels[level.name].filter(pa.array(inside(instants_of(levels[level.name]), [span]))),
    )
    digests = digests_of(
        levels[commit.frame.levels[0].name], commit.manifest, include_earlier_frames=commit.is_repeated
    )
    return _retract(commit, subtrahends, [negate_digest(digest) for digest in digests])


def _retract(commit: Commit, subtrahends: StatesToSubtract, digests: Sequence[Digest]) -> bool:
    """Subtract the states ``subtrahends`` in a transaction, and return whether the commit is new. On every level, the
    parts that contain affected windows are written again. ``digests`` has the digests of the subtracted states, each
    negated by `negate_digest`.
    """

    def derive(transaction: WritingTransaction) -> None:
        transaction.read(EXPIRED)
        for level in commit.frame.levels:
            starts = subtrahends.starts(level)
            starts = starts[starts >= available_from(transaction.snapshot, level.name)]
            affected_parts = [part for part in transaction.snapshot.of(level.name) if _contains_any(part, starts)]
            transaction.removes(affected_parts)
            _write_remaining(commit, transaction, level, parts=affected_parts, starts=starts, subtrahends=subtrahends)

    return commit.commit_once(digests, derive)


def _contains_any(part: Part, starts: NDArray[np.int64]) -> bool:
    """Return whether at least one of ``starts`` lies in the range of the part. ``starts`` are window starts in
    microseconds UTC, in ascending order.
    """
    first, end = np.searchsorted(starts, part.range)
    return bool(first < end)


def _write_remaining(
    commit: Commit,
    transaction: WritingTransaction,
    level: TimeWindow,
    *,
    parts: Sequence[Part],
    starts: NDArray[np.int64],
    subtrahends: StatesToSubtract,
) -> None:
    """Subtract the retracted states from the states in ``parts``, and write the remaining states. Only a few windows
    are in memory at a time. ``starts`` are the starts of the windows to change. Raise `CannotSubtract` if ``parts``
    lack one of the windows.
    """
    frame = commit.frame
    is_found = np.zeros(len(starts), np.bool_)
    for pieces in split_by_windows(pieces_of(parts, [EVER]), level):
        states = commit.backend.read(pieces, commit.manifest.schema.names[1:])
        merged = merge_level(states, frame, level, nulls_are_unknown=True)
        starts_of_pieces = starts[np.isin(starts, instants_of(merged))]
        is_found |= np.isin(starts, starts_of_pieces)
        span = (int(starts_of_pieces[0]), int(starts_of_pieces[-1]) + 1) if len(starts_of_pieces) else (0, 0)
        rows = subtrahends.rows(level, span)
        rows = rows.filter(pa.array(np.isin(instants_of(rows), starts_of_pieces)))
        try:
            remaining = subtract_by(merged, rows, [START, *frame.keys], frame.state_functions)
        except CannotSubtract as error:
            raise CannotSubtract(error.row, error.reason, where=f"{level.name}, {error.where}") from None
        if remaining.num_rows:
            transaction.write(level, remaining)
    if not is_found.all():
        row = int(np.argmin(is_found))
        window_text = f"the window of {level.name} at {as_text(int(starts[row]))}"
        raise CannotSubtract(row, reason=ROWS_NOT_IN_STATE, where=window_text)


def retract(
    store: OpenedStore,
    states: Any,
    writer: str,
    commit: int,
    recorded: Mapping[str, Any] | None = None,
    replacing: Mapping[str, Any] | None = None,
) -> bool:
    """Subtract states from the store on every level atomically, for erasure and corrections.

    Parameters
    ----------
    states : table
        The states of the rows to remove, ``rollup(rows, store.frame)``, in any form that `append` accepts.
    writer, commit : str, int
        See `append`. If the store already has the same retraction under this commit number, nothing changes.
    recorded, replacing : name -> plain data, optional
        See `append`.

    Returns
    -------
    bool
        Whether this call has subtracted the states.

    Raises
    ------
    TypeError
        If the states of a measure cannot be subtracted, such as those of min, max, first, last, sets and lists. The
        message names all such measures.
    CannotSubtract
        If the states show that the store does not have the rows, or the remaining states cannot be computed; see
        `aggr.subtract`. The message names level, measure, window and keys. Nothing is changed. `CannotSubtract` is a
        ``ValueError``.
    ValueError, StoreError
        For the same reasons as `append`.

    Guarantee
    ---------
    The remaining states are bit-for-bit those of a store that never had the subtracted rows. If no rows remain for a
    window and key, their state is removed. Only a frame with the measure ``count()`` counts rows whose values are all
    null or excluded by conditions. Without it, a state is also removed if only such rows remain. Expired windows stay
    expired. The previous files stay until `vacuum` removes them.

    Examples
    --------
    >>> import aggr, tempfile, pyarrow as pa
    >>> from tiltframe import FrameStore, TiltFrame, rollup
    >>> store = FrameStore(tempfile.mkdtemp(), TiltFrame(["1m", "1h"], "ts", {"s": aggr.sum("x")}))
    >>> rows = pa.table({"ts": [0, 1, 60_000], "x": [0.1, 1e300, 5.0]})
    >>> store.append_rows(rows, writer="docs", commit=1)
    True
    >>> store.retract(rollup(rows.slice(1), store.frame), writer="docs", commit=2)
    True
    >>> store.query(per="1h").column("s").to_pylist()
    [0.1]
    """
    check_writer(writer, commit)
    checked_records(recorded)
    _ = store.manifest
    check_retractable(store.frame)
    states = checked_levels(table_of(states, "states"), store.frame)
    return retract_states(
        begin_checked(store, states.schema, writer, commit, recorded=recorded, replacing=replacing), states
    )


def begin_retraction(
    store: OpenedStore, writer: str, commit: int, states: pa.Schema, recorded: Mapping[str, Any] | None = None
) -> Retraction:
    """Begin a retraction whose states are written by several processes.

    Parameters
    ----------
    writer, commit, recorded : str, int and mapping
        See `retract`.
    states : pa.Schema
        A schema from `tiltframe.TiltFrame.states_schema`.

    Returns
    -------
    Retraction
        The retraction, which can be pickled. In any process, ``write(states)`` writes states and returns a receipt;
        ``commit(receipts)`` then completes the retraction.

    Raises
    ------
    TypeError, ValueError, StoreError
        For the same reasons as `retract`.
    """
    check_writer(writer, commit)
    _ = store.manifest
    check_retractable(store.frame)
    return Retraction(begin(store, writer, commit=commit, states=states, recorded=recorded))
