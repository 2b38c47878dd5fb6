"""Appending: add states or rows to a store, in one commit of a writer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import pyarrow as pa

from aggr.arguments import checked_whole
from tiltframe.exclusions import Note
from tiltframe.files.read_options import ReadOptions
from tiltframe.level_chain import with_level_column
from tiltframe.rolling_up import from_rows
from tiltframe.spilled_states import MAX_STATE_BYTES, Slices, spill_states
from tiltframe.store.changes.commit import begin_checked, by_level, read_receipts
from tiltframe.store.checked_states import (
    check_fallible,
    check_results_computable,
    checked_levels,
    frame_of_fallible_measures,
)
from tiltframe.store.log.records import checked_records
from tiltframe.store.log.stream_watermarks import StreamWatermark
from tiltframe.store.log.writers import check_writer
from tiltframe.store.opened import OpenedStore
from tiltframe.tabular import table_of


def append(
    store: OpenedStore,
    states: Any,
    writer: str,
    commit: int,
    recorded: Mapping[str, Any] | None = None,
    replacing: Mapping[str, Any] | None = None,
    note: Note | None = None,
) -> bool:
    """Add states in one atomic commit, identified by a writer and a number.

    Parameters
    ----------
    states : table
        A table from `tiltframe.rollup`, or the same data as a DataFrame of polars or pandas, a stream, a pyarrow
        dataset, or Parquet files. Coarser levels that the table lacks are derived from the finest level.
    writer : str
        The name of the writer.
    commit : int
        A number that increases with every commit of the writer. If the store already has a commit of the writer with
        this number and the same states, nothing changes, so that a repeated commit counts once. If the states differ,
        an error is raised.
    recorded : name -> plain data, optional
        Values to record with the states, such as the files from which the states were computed. They replace values
        that were recorded under the same names. The method `recorded` returns them.
    replacing : name -> plain data, optional
        The values that the store must have under the names in ``recorded``, as the method ``recorded`` returned them
        earlier. If the store has other values, `CommitConflict` is raised. By default, the store must not have values
        under these names.
    note : function of a text, optional
        A function that receives messages as text. For a measure with ``beyond="null"``, a message contains the number
        of groups with more values than the limit of the measure. For a measure with ``bad_values="skip"``, a message
        contains the number of skipped values. There is no message if the number is 0. By default, the messages are
        `BeyondLimit` and `RefusedValues` warnings.

    Returns
    -------
    bool
        Whether the states were added.

    Raises
    ------
    ValueError, OverflowError
        If the states do not belong to this frame (levels, windows, time zone, measures or conditions differ), if
        coarser states differ from the merged states of the finest level, or if a result cannot be computed from the
        states. Nothing is written.
    OtherFrame
        If the store has states of other types, or its frame has changed since it was opened.
    CommitConflict
        If the store has this commit number of the writer with other states. If the store has a later commit number of
        the writer, and this number is not among the writer's last 64 commits. If another writer has recorded other
        values under the names in ``recorded``.
    """
    return append_from_stream(
        store, states, writer, commit, recorded=recorded, replacing=replacing, note=note, watermark=None
    )


def append_from_stream(
    store: OpenedStore,
    states: Any,
    writer: str,
    commit: int,
    *,
    recorded: Mapping[str, Any] | None,
    replacing: Mapping[str, Any] | None,
    watermark: StreamWatermark | None,
    note: Note | None = None,
) -> bool:
    """Add states like `append`. If ``watermark`` is not None, also record it as the watermark of the stream that
    produced the states. The other parameters are those of `append`.
    """
    check_writer(writer, commit)
    checked_records(recorded)
    states = checked_levels(table_of(states, "states"), store.frame)
    check_results_computable(states, store.frame)
    store.backend.check_values(states)
    pending = begin_checked(
        store, states.schema, writer, commit, recorded=recorded, replacing=replacing, watermark=watermark
    )
    receipt = pending.write_checked(by_level(states, store.frame))
    return pending.commit([receipt], note)


def append_rows(
    store: OpenedStore,
    data: Any,
    writer: str,
    commit: int,
    recorded: Mapping[str, Any] | None = None,
    max_bytes: int = MAX_STATE_BYTES,
    reading: ReadOptions | None = None,
    note: Note | None = None,
) -> bool:
    """Roll up rows and add their states like `append`. Memory grows neither with the number of rows nor with the number
    of windows: states beyond twelve times ``max_bytes`` are stored in the folder for temporary files. States are
    written to the store only after all rows were read.

    Parameters
    ----------
    data : table, DataFrame, stream, dataset or paths
        Any input of `tiltframe.rollup`.
    writer, commit, recorded : str, int and mapping
        See `append`.
    max_bytes : int
        The approximate number of bytes of states that each thread collects from rows before it merges them. Merged
        states are kept in memory up to twelve times this size. The rows and the merging need additional memory.
    reading : ReadOptions, optional
        See `tiltframe.rollup`.
    note : function of a text, optional
        See `append`.

    Returns
    -------
    bool
        Whether the states were added.

    Raises
    ------
    ValueError, TypeError, OverflowError
        If the data does not fit the frame, or a result cannot be computed. Nothing is written.
    StoreError
        For the same reasons as `append`. States that were already written are removed.

    Examples
    --------
    >>> import aggr, tempfile, pyarrow as pa
    >>> from tiltframe import FrameStore, TiltFrame
    >>> store = FrameStore(tempfile.mkdtemp(), TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}))
    >>> store.append_rows(pa.table({"ts": [0, 60_000, 3_600_000]}), writer="docs", commit=1)
    True
    >>> store.query(per="1h").column("n").to_pylist()
    [2, 1]
    """
    check_writer(writer, commit)
    checked_records(recorded)
    bound = checked_whole(max_bytes, "max_bytes", 1)
    with ExitStack() as stack:

        def spill(batches: Iterator[pa.RecordBatch]) -> Slices:
            return stack.enter_context(
                spill_states(batches, store.frame, bound, check=store.backend.check_values, jobs=store.jobs)
            )

        def use_stored_types(schema: pa.Schema, guessed: Sequence[str]) -> pa.Schema:
            return store.with_stored_types(schema, guessed=guessed)

        slices = from_rows(data, store.frame, reading, spill, use_stored_types=use_stored_types)
        added = append_spilled(store, slices, writer=writer, commit=commit, recorded=recorded, note=note)
        return added is not None


def append_spilled(
    store: OpenedStore,
    slices: Slices,
    writer: str,
    commit: int,
    recorded: Mapping[str, Any] | None = None,
    replacing: Mapping[str, Any] | None = None,
    note: Note | None = None,
) -> int | None:
    """Add the states of a rollup that was spilled to disk, like `append_rows`.

    Parameters
    ----------
    slices : Slices
        The slices of states that `spill_states` returned. `spill_states` must have received
        ``store.backend.check_values`` as its argument ``check``.
    writer, commit, recorded, replacing, note : str, int, mappings and function
        See `append`.

    Returns
    -------
    int or None
        The number of states that were added, or None if the store already had the commit.

    Raises
    ------
    ValueError, OverflowError, StoreError
        For the same reasons as `append`.
    """
    if (fallible_frame := frame_of_fallible_measures(slices.schema, store.frame)) is not None:
        for _, states in slices.with_states_of(fallible_frame).levels():
            check_fallible(states, fallible_frame)
    schema = with_level_column(slices.schema.empty_table(), store.frame, store.frame.levels[0]).schema
    pending = begin_checked(store, schema, writer, commit, recorded=recorded, replacing=replacing)
    receipt = pending.write_checked(slices.levels(), store.jobs)
    if not pending.commit([receipt], note):
        return None
    parts, _ = read_receipts([receipt])
    return sum(part.rows for part in parts)
