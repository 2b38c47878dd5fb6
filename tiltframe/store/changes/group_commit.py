"""Group commits: the rows of several writers are committed in one transaction, each under its own writer and number.

    rows of a ── prepare ──▶ states ─┐
    rows of b ── prepare ──▶ states ─┼─ merge ──▶ one part per level ──▶ one transaction, which records a 7, b 3 and c 9
    rows of c ── prepare ──▶ states ─┘

A transaction for many writers takes about as long as one for a single writer. Databases combine transactions in the
same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from aggr.arguments import shown
from aggr.state_checks import mark_as_checked
from tiltframe.exclusions import Exclusions, Note
from tiltframe.files.read_options import ReadOptions
from tiltframe.level_chain import climb, with_level_column
from tiltframe.merged_windows import merge_panes
from tiltframe.rolling_up import finest_states, from_rows
from tiltframe.store.changes.commit import Commit
from tiltframe.store.checked_states import check_fallible, frame_of_fallible_measures
from tiltframe.store.log.errors import StoreError
from tiltframe.store.log.records import checked_records, expected_texts
from tiltframe.store.log.run import WritingTransaction, run_transaction
from tiltframe.store.log.writers import Digest, check_writer, digests_of_each
from tiltframe.store.opened import OpenedStore


@dataclass(frozen=True, eq=False)
class PreparedRows:
    """Rows that were rolled up and checked for a commit, as `tiltframe.FrameStore.prepare_rows` returns them.

    Parameters
    ----------
    commit : Commit
        The commit that will add the states. It has the writer and the commit number.
    finest : table
        The merged states of the finest level.
    excluded : Exclusions
        The numbers of groups with more values than the limit of a measure, and the numbers of skipped values.
    note : callable, optional
        A function that receives messages about ``excluded`` after the commit; see `append`.
    """

    commit: Commit
    finest: pa.Table
    excluded: Exclusions
    note: Note | None = None

    @property
    def writer(self) -> str:
        """The name of the writer of the commit."""
        return self.commit.writer


def prepare_rows(
    store: OpenedStore,
    data: Any,
    writer: str,
    commit: int,
    recorded: Mapping[str, Any] | None = None,
    replacing: Mapping[str, Any] | None = None,
    reading: ReadOptions | None = None,
    note: Note | None = None,
) -> PreparedRows:
    """Roll up rows in memory and check them for `commit_group`, without writing states.

    Several threads can prepare rows at the same time. The store is created if it does not exist.

    Parameters
    ----------
    data : table, DataFrame, stream, dataset or paths
        Any input of `tiltframe.rollup`.
    writer, commit, recorded, replacing, note : str, int, mappings and function
        See `append`.
    reading : ReadOptions, optional
        See `tiltframe.rollup`.

    Returns
    -------
    PreparedRows

    Raises
    ------
    ValueError, TypeError, OverflowError
        If the data does not fit the frame, or a result cannot be computed.
    StoreError
        If the store cannot be read, or has states of other types.

    Examples
    --------
    >>> import aggr, tempfile, pyarrow as pa
    >>> from tiltframe import FrameStore, TiltFrame
    >>> store = FrameStore(tempfile.mkdtemp(), TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}))
    >>> prepared = store.prepare_rows(pa.table({"ts": [0, 60_000]}), writer="docs", commit=1)
    >>> store.commit_group([prepared]), store.query(per="1h").column("n").to_pylist()
    ([True], [2])
    """
    check_writer(writer, commit)
    texts = checked_records(recorded)
    expected = expected_texts(recorded, replacing)

    def use_stored_types(schema: pa.Schema, guessed: Sequence[str]) -> pa.Schema:
        return store.with_stored_types(schema, guessed=guessed)

    finest = from_rows(
        data,
        store.frame,
        reading,
        lambda batches: finest_states(batches, store.frame),
        use_stored_types=use_stored_types,
    )
    store.backend.check_values(finest)
    excluded = Exclusions(store.frame)
    fallible_frame = frame_of_fallible_measures(finest.schema, store.frame)
    if excluded.has_columns or fallible_frame is not None:
        for _, states in excluded.count_while_yielding(climb(finest, store.frame)):
            if fallible_frame is not None:
                check_fallible(states, fallible_frame)
    manifest = store.create_if_missing(with_level_column(finest.slice(0, 0), store.frame, store.frame.levels[0]).schema)
    pending = Commit(store.backend, manifest, writer, commit, is_repeated=False, recorded=texts, replacing=expected)
    return PreparedRows(pending, finest, excluded, note)


def commit_group(store: OpenedStore, prepared: Sequence[PreparedRows]) -> list[bool | StoreError]:
    """Commit the rows of several writers in one transaction.

    Parameters
    ----------
    prepared : sequence of PreparedRows
        Results of `prepare_rows` of the same store: at least one, and at most one per writer.

    Returns
    -------
    list of bool or StoreError
        The outcome for each element of ``prepared``: True if its rows were added, False if the store already had the
        commit, or an error that concerns only this element, such as `CommitConflict`. The error is returned, not
        raised.

    Raises
    ------
    ValueError
        If a writer occurs twice.
    StoreError
        If the transaction fails. Nothing was written.

    Guarantee
    ---------
    All rows that were added become visible together. States and records are bit-for-bit those of separate calls of
    `append_rows`.

    Examples
    --------
    >>> import aggr, tempfile, pyarrow as pa
    >>> from tiltframe import FrameStore, TiltFrame
    >>> store = FrameStore(tempfile.mkdtemp(), TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}))
    >>> rows = pa.table({"ts": [0, 60_000]})
    >>> store.commit_group([store.prepare_rows(rows, writer, 1) for writer in ("a", "b")])
    [True, True]
    >>> store.version(), store.query(per="1h").column("n").to_pylist()
    (1, [4])
    """
    writers = [rows.writer for rows in prepared]
    for writer in writers:
        if writers.count(writer) > 1:
            raise ValueError(
                f"a group must have one commit per writer; got several commits of {shown(writer)}; commit only the "
                "first of them in this group, and the others afterwards"
            )

    digests = _digests_of_commits(prepared)

    def attempt(transaction: WritingTransaction) -> list[bool | StoreError]:
        outcomes = [_record_commit(rows, digests[rows.writer], transaction) for rows in prepared]
        added = [rows for rows, outcome in zip(prepared, outcomes, strict=True) if outcome is True]
        for tables in _group_by_schema(rows.finest for rows in added):
            # All added rows have the current frame of the store, because `_record_commit` rejects rows of other frames.
            frame = added[0].commit.frame
            finest = merge_panes(mark_as_checked(pa.concat_tables(tables)), frame)
            for level, states in climb(finest, frame):
                transaction.write(level, states)
        return outcomes

    names = {name: None for rows in prepared for name in rows.commit.record_names}
    outcomes = run_transaction(store.backend, attempt, names)
    for rows, outcome in zip(prepared, outcomes, strict=True):
        if outcome is True:
            rows.excluded.report(rows.note)
    return outcomes


def _digests_of_commits(prepared: Sequence[PreparedRows]) -> dict[str, list[Digest]]:
    """Return the digests of the states of each commit (see `tiltframe.store.log.writers.digests_of`), by writer."""
    groups: dict[tuple[pa.Schema, int], list[PreparedRows]] = {}
    for rows in prepared:
        groups.setdefault((rows.finest.schema.remove_metadata(), id(rows.commit.manifest)), []).append(rows)
    digests: dict[str, list[Digest]] = {}
    for group in groups.values():
        tables = [rows.finest.replace_schema_metadata() for rows in group]
        digests_of_group = digests_of_each(tables, group[0].commit.manifest, include_earlier_frames=True)
        digests.update(zip((rows.writer for rows in group), digests_of_group, strict=True))
    return digests


def _record_commit(rows: PreparedRows, digests: Sequence[Digest], transaction: WritingTransaction) -> bool | StoreError:
    """Record the commit of ``rows`` in a transaction. Return True if the commit number is new, and False if the store
    already has the commit. If the rows cannot be committed, return the `StoreError`.
    """
    try:
        return rows.commit.record_in(transaction, digests, rows.excluded.refused)
    except StoreError as error:
        return error


def _group_by_schema(tables: Iterable[pa.Table]) -> Iterator[list[pa.Table]]:
    """Yield one list of tables for each schema. Rows of different types may produce states of different types, which
    are stored in the same way but cannot be concatenated.
    """
    by_schema: dict[pa.Schema, list[pa.Table]] = {}
    for table in tables:
        by_schema.setdefault(table.schema.remove_metadata(), []).append(table)
    yield from by_schema.values()
