"""Commits: the states of all levels are committed atomically, under the name of a writer and a commit number. If a
commit with the same writer and number is repeated, it counts only once.

The store keeps a fingerprint of the states for each of a writer's last commits. If a commit number is used again, the
fingerprints of the old and the new states are compared. If they are equal, the commit is a repetition, and nothing is
written; otherwise an error is raised. (Delta Lake's application transactions and Flink's two-phase sinks work in the
same way.) The states are written as parts; a part consists of states of one level that were written together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from aggr.arrow import compute as pc
from aggr.workers import map_in_threads
from tiltframe.exclusions import Exclusions, Note
from tiltframe.frame import TiltFrame
from tiltframe.names import LEVEL
from tiltframe.store.backends.protocol import Backend, Part, Transaction, threads_of
from tiltframe.store.checked_states import (
    check_fallible,
    check_results_computable,
    checked_levels,
    frame_of_fallible_measures,
)
from tiltframe.store.log.errors import CommitConflict, OtherFrame
from tiltframe.store.log.manifest import Manifest
from tiltframe.store.log.records import EXPIRED, RECORD_PREFIX, WATERMARKS, checked_records, expected_texts
from tiltframe.store.log.run import WritingTransaction, run_transaction, snapshot_of
from tiltframe.store.log.stream_watermarks import StreamWatermark
from tiltframe.store.log.writers import (
    REFUSED,
    Digest,
    check_writer,
    digests_of,
    fingerprint,
    last_commits,
    skipped_value_counts,
    sum_digests,
)
from tiltframe.store.opened import OpenedStore
from windows import TimeWindow

# The number of a writer's last commits whose fingerprints are stored. A restarted writer repeats only a few of its last
# commits, usually one, so that older fingerprints are not needed.
FINGERPRINTS_PER_WRITER = 64

# Under this key, a receipt contains the numbers of groups with more values than the limit of a measure, and the numbers
# of skipped values (see `Exclusions.as_record`).
EXCLUDED = "excluded"
# Tables of the same level are collected until their total size is at least this many bytes. They are then written as
# one table, because a few large parts are faster to read than many small parts.
_MIN_WRITE_BYTES = 1 << 25


@dataclass(frozen=True)
class Commit:
    """A commit that has begun, returned by `tiltframe.FrameStore.begin`. It can be pickled for tasks that write states.

    Parameters
    ----------
    backend : Backend
    manifest : Manifest
        The manifest of the store when the commit began.
    writer, number : str, int
        The name of the writer, and the commit number.
    is_repeated : bool
        Whether the store already had this commit number when the commit began. If so, the states are not written. Their
        fingerprint is compared with that of the earlier commit.
    recorded : name -> text
        Records to store with the commit.
    replacing : name -> text, optional
        The text that each record must have in the store when the commit completes; None if it must not exist.
    watermark : StreamWatermark, optional
        The watermark to record, if the states come from a stream.
    """

    backend: Backend
    manifest: Manifest
    writer: str
    number: int
    is_repeated: bool
    recorded: Mapping[str, str] = field(default_factory=dict)
    replacing: Mapping[str, str | None] = field(default_factory=dict)
    watermark: StreamWatermark | None = None

    @property
    def frame(self) -> TiltFrame:
        """The frame of the store."""
        return self.manifest.frame

    def write(self, states: pa.Table) -> str:
        """Check and write states from `tiltframe.rollup`. Return a receipt, which `commit` needs: a JSON text that
        describes the written parts.

        The states of the finest level suffice, because the coarser levels are derived from them. All states of one key
        and one window of the coarsest level must be in the same call. Raise the same errors as
        `tiltframe.FrameStore.append`; states that were already written are then removed.
        """
        states = checked_levels(states, self.frame)
        check_results_computable(states, self.frame)
        return self._check_values_and_write(states)

    def write_rolled_up(self, states: pa.Table) -> str:
        """Write the states of all levels that a rollup in the same program has returned; return a receipt.

        The levels are not compared with each other, because the rollup has derived each level from the next finer
        level. The states are not checked for damage. Raise an error if a result cannot be computed from the states.
        """
        if (fallible := frame_of_fallible_measures(states.schema, self.frame)) is not None:
            check_fallible(states, fallible)
        return self._check_values_and_write(states)

    def _check_values_and_write(self, states: pa.Table) -> str:
        self.backend.check_values(states)
        return self.write_checked(by_level(states, self.frame))

    def write_checked(self, levels: Iterable[tuple[TimeWindow, pa.Table]], jobs: int = 1) -> str:
        """Write checked states; return a receipt. Small tables of a level are written together.

        ``levels`` yields pairs of a level and a table of its states, from the finest level to the coarsest. If the
        states were divided into slices by keys and time, this sequence of levels is repeated for each slice. ``jobs``
        is the number of threads that write, if the backend supports threads. The parts and the receipt do not depend on
        ``jobs``.

        Raise `StoreError` if states cannot be written; states that were already written are then removed.
        """
        parts = list[Part]()
        digests = list[list[Digest]]()
        excluded = Exclusions(self.frame)
        # If one thread raises an error, the results of other threads may be lost. This list contains the parts that all
        # threads have written, so that they can be discarded.
        all_written = list[Part]()

        def write(states_of_level: tuple[TimeWindow, list[pa.Table]]) -> tuple[list[Part], list[list[Digest]]]:
            level, tables = states_of_level
            finest = tables if level == self.frame.levels[0] else []
            digests_of_finest = [
                digests_of(states, self.manifest, include_earlier_frames=self.is_repeated) for states in finest
            ]
            written = [] if self.is_repeated else self.backend.write(level, pa.concat_tables(tables))
            all_written.extend(written)
            return written, digests_of_finest

        try:
            tables_by_level = self._combine_tables(excluded.count_while_yielding(levels))
            threads = threads_of(self.backend, jobs)
            for written, digests_of_finest in map_in_threads(write, tables_by_level, threads, _is_large):
                parts += written
                digests += digests_of_finest
        except BaseException:
            # An error of `discard` is ignored, so that the original error is raised.
            with suppress(Exception):
                self.backend.discard(all_written)
            raise
        receipt = {"parts": [asdict(part) for part in parts], "digests": digests, EXCLUDED: excluded.as_record()}
        return json.dumps(receipt)

    def _combine_tables(
        self, levels: Iterable[tuple[TimeWindow, pa.Table]]
    ) -> Iterator[tuple[TimeWindow, list[pa.Table]]]:
        """Collect the tables of each level, and yield the level with a list of its tables as soon as the list has at
        least `_MIN_WRITE_BYTES`. At the end, yield the remaining tables of each level.
        """
        collected = dict[str, list[pa.Table]]()
        for level, states in levels:
            tables = collected.setdefault(level.name, [])
            tables.append(states)
            if _is_large((level, tables)):
                yield level, collected.pop(level.name)
        for name, tables in collected.items():
            yield self.frame.level(name), tables

    def with_stream_watermark(self, stream: str, receipts: Iterable[str], delay: int) -> Commit:
        """Return the commit with a watermark of the stream: the start of the newest window in the receipts, minus
        ``delay`` microseconds. The start of the window takes the place of the time of the newest row, because receipts
        do not contain times of rows. If the receipts contain no states, the commit is returned unchanged.
        """
        parts, _ = read_receipts(receipts)
        starts = [part.last_start for part in parts if part.level == self.frame.levels[0].name]
        return replace(self, watermark=StreamWatermark(stream, max(starts) - delay)) if starts else self

    def commit(self, receipts: Iterable[str], note: Note | None = None) -> bool:
        """Commit the written states; return whether the commit is new. ``receipts`` must contain the result of each
        call of `write` once. If the commit is new, ``note`` receives the messages that `tiltframe.FrameStore.append`
        describes; by default they are warnings.

        Raise `CommitConflict` if the store already has this commit number with other states, or if a record does not
        have the text in ``replacing``, because another writer has changed it. Raise `OtherFrame` if the frame of the
        store has changed. In both cases the written states are removed.
        """
        receipts = list(receipts)
        parts, digests = read_receipts(receipts)
        excluded = read_excluded(receipts, self.frame)
        try:
            is_new = self.commit_once(digests, lambda transaction: transaction.adds(parts), excluded.refused)
        except (CommitConflict, OtherFrame):
            self.backend.discard(parts)
            raise
        if is_new:
            excluded.report(note)
        else:
            self.backend.discard(parts)
        return is_new

    def commit_once(
        self,
        digests: Sequence[Digest],
        derive: Callable[[WritingTransaction], None],
        refused: Mapping[str, int] = MappingProxyType({}),
    ) -> bool:
        """Commit a transaction under the commit's number; return whether the number is new. ``derive`` adds the changes
        to the transaction; if the store already has the number, ``derive`` is not called.

        ``digests`` are the digests of the states in the commit. ``refused`` maps columns of states to the number of
        values that were skipped. Raise the same errors as `commit`.
        """

        def attempt(transaction: WritingTransaction) -> bool:
            is_new = self.record_in(transaction, digests, refused)
            if is_new:
                derive(transaction)
            return is_new

        return run_transaction(self.backend, attempt, self.record_names)

    @property
    def record_names(self) -> list[str]:
        """The names of the records that `record_in` reads or replaces."""
        return [EXPIRED, WATERMARKS, self._record_name, *self.recorded, *self.replacing]

    @property
    def _record_name(self) -> str:
        return f"{RECORD_PREFIX}writer {self.writer}"

    def record_in(self, transaction: Transaction, digests: Sequence[Digest], refused: Mapping[str, int]) -> bool:
        """Record the commit in a transaction, and return whether the commit number is new. If the number is not new,
        the transaction is not changed.

        ``digests`` and ``refused`` are the arguments of `commit_once`. Raise the same errors as `commit`, before the
        transaction changes.
        """
        possible_fingerprints = [fingerprint(self.number, digest) for digest in digests]
        transaction.read(self._record_name)
        last, fingerprints = last_commits(transaction.snapshot, self.writer)
        if last >= self.number:
            _check_repetition(self, last, fingerprints, possible_fingerprints)
            return False
        self.manifest.check_frame_unchanged(transaction.snapshot.manifest, self.backend.display_uri)
        check_unchanged(transaction, self.replacing)
        new_fingerprints = dict(
            [*fingerprints.items(), (str(self.number), possible_fingerprints[0])][-FINGERPRINTS_PER_WRITER:]
        )
        counts = skipped_value_counts(transaction.snapshot, self.writer)
        if refused:
            counts[str(self.number)] = dict(refused)
        counts = {number: by_column for number, by_column in counts.items() if number in new_fingerprints}
        writer_record = {"last": self.number, "states": new_fingerprints, **({REFUSED: counts} if counts else {})}
        transaction.records(self._record_name, json.dumps(writer_record))
        for name, text in self.recorded.items():
            transaction.records(name, text)
        if self.watermark is not None:
            self.watermark.record(transaction)
        return True


def _is_large(tables_of_level: tuple[TimeWindow, list[pa.Table]]) -> bool:
    """Return whether tables of a level are large enough to be written."""
    size: int = sum(table.nbytes for table in tables_of_level[1])
    return size >= _MIN_WRITE_BYTES


def read_receipts(receipts: Iterable[str]) -> tuple[list[Part], list[Digest]]:
    """Parse the receipts of one commit, which `Commit.write` has returned. Return the parts in all receipts, and the
    digests of the states in these parts. The first digest is computed from the columns of the current frame. If the
    commit is repeated, digests that are computed from the columns of earlier frames follow (see `digests_of`).
    """
    texts = [json.loads(receipt) for receipt in receipts]
    parts = [Part(**part) for text in texts for part in text["parts"]]
    digests = [digests for text in texts for digests in text["digests"]]
    return parts, [sum_digests(column) for column in zip(*digests, strict=True)] or [(0, 0)]


def read_excluded(receipts: Iterable[str], frame: TiltFrame) -> Exclusions:
    """For each column of states, return the number of groups with more values than the limit of a measure, and the
    number of skipped values. Both numbers are sums over ``receipts``, which `Commit.write` has returned.
    """
    return Exclusions(frame, (json.loads(receipt)[EXCLUDED] for receipt in receipts))


def by_level(states: pa.Table, frame: TiltFrame) -> Iterator[tuple[TimeWindow, pa.Table]]:
    """Yield pairs of a level and its rows in ``states``, from the finest level to the coarsest. ``states`` is the
    result of a rollup.
    """
    for level in frame.levels:
        yield level, states.filter(pc.equal(states.column(LEVEL), level.name))


def begin(
    store: OpenedStore, writer: str, commit: int, states: pa.Schema, recorded: Mapping[str, Any] | None = None
) -> Commit:
    """Begin a commit whose states are written by several processes.

    Parameters
    ----------
    writer, commit, recorded : str, int and mapping
        See `tiltframe.FrameStore.append`.
    states : pa.Schema
        A schema from `tiltframe.TiltFrame.states_schema`.

    Returns
    -------
    Commit
        The commit, which can be pickled. In any process, ``write(states)`` writes states and returns a receipt;
        ``commit(receipts)`` then completes the commit.

    Raises
    ------
    ValueError, StoreError
        For the same reasons as `ensure_created`.

    Examples
    --------
    >>> import aggr, tempfile, pyarrow as pa
    >>> from tiltframe import FrameStore, TiltFrame, rollup
    >>> store = FrameStore(tempfile.mkdtemp(), TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}))
    >>> states = rollup(pa.table({"ts": [0, 60_000]}), store.frame)
    >>> made = store.begin("docs", 1, states.schema)
    >>> receipts = [made.write(states)]
    >>> store.has_commit("docs", 1)
    False
    >>> made.commit(receipts), store.has_commit("docs", 1)
    (True, True)
    """
    check_writer(writer, commit)
    before = store.recorded(list(recorded or ()))
    return begin_checked(store, store.check_states(states), writer, commit, recorded=recorded, replacing=before)


def begin_checked(
    store: OpenedStore,
    schema: pa.Schema,
    writer: str,
    commit: int,
    *,
    recorded: Mapping[str, Any] | None,
    replacing: Mapping[str, Any] | None,
    watermark: StreamWatermark | None = None,
) -> Commit:
    """Begin a commit of states with the schema ``schema``, which must be a result of ``store.check_states``. The store
    is created if it does not exist. ``recorded`` and ``replacing`` are those of `tiltframe.FrameStore.append`, and
    ``watermark`` is the watermark to record if the states come from a stream.
    """
    texts = checked_records(recorded)
    expected = expected_texts(recorded, replacing)
    manifest = store.create_if_missing(schema)
    return begin_commit(
        store.backend,
        manifest,
        writer,
        check_writer(writer, commit),
        recorded=texts,
        replacing=expected,
        watermark=watermark,
    )


def begin_commit(
    backend: Backend,
    manifest: Manifest,
    writer: str,
    number: int,
    *,
    recorded: Mapping[str, str],
    replacing: Mapping[str, str | None],
    watermark: StreamWatermark | None = None,
) -> Commit:
    """Return a commit that has begun. ``manifest`` is the manifest that was read when the store was opened. The other
    parameters are those of `Commit`. Raise `OtherFrame` if the store was deleted and created again in the meantime.
    """
    snapshot = snapshot_of(backend, [f"{RECORD_PREFIX}writer {writer}"])
    manifest.check_same_store(snapshot.manifest, backend.display_uri)
    last, _ = last_commits(snapshot, writer)
    return Commit(
        backend,
        manifest,
        writer,
        number,
        is_repeated=last >= number,
        recorded=recorded,
        replacing=replacing,
        watermark=watermark,
    )


def check_unchanged(transaction: Transaction, replacing: Mapping[str, str | None]) -> None:
    """Raise `CommitConflict` if a record of the store does not have the expected text. ``replacing`` maps the names of
    records to their expected texts, or to None for records that must not exist.
    """
    if any(transaction.read(name) != text for name, text in replacing.items()):
        raise CommitConflict(
            "the recorded values differ from those that this commit expects, for example because another process added "
            "the same rows; nothing was written; read the recorded values again before the next attempt"
        )


def _check_repetition(
    commit: Commit, last: int, fingerprints: Mapping[str, str], possible_fingerprints: Sequence[str]
) -> None:
    """Raise `CommitConflict` unless ``commit``, whose number is already used, repeats the earlier commit with this
    number.

    ``fingerprints`` maps the numbers of the writer's last commits to their fingerprints. The fingerprint of the earlier
    commit must be one of ``possible_fingerprints``, the fingerprints of the new states for the current frame and for
    earlier frames. ``last`` is the writer's last commit number.
    """
    writer = commit.writer
    number = commit.number
    if fingerprints.get(str(number), "") in possible_fingerprints:
        return
    if last == number:
        conflict = f"already contains other states for the writer {writer!r} and the number {number}"
    else:
        conflict = (
            f"contains the number {last} of the writer {writer!r}, but the number {number} with these states is not "
            f"among its last {FINGERPRINTS_PER_WRITER} commits"
        )
    raise CommitConflict(
        f"the store {commit.backend.display_uri} {conflict}; a new batch needs a number above {last}, and a stream "
        f"or job that starts again from the beginning needs a new writer"
    )
