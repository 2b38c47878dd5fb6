"""store: states from Spark jobs into a frame store: tasks write, the driver commits once.

    task ── states of some windows ──▶ parts, which nobody reads yet ─┐
    task ── states of some windows ──▶ parts, which nobody reads yet ─┼─▶ driver ── commit ──▶ all at once
    task ── states of some windows ──▶ parts, which nobody reads yet ─┘

Of a part only its description comes back. A task that fails and is tried again writes other parts: those of the
attempt that succeeded are committed, what the others left is removed by `FrameStore.clean`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aggr.states.grouped_tables import key_column
from spark_udaf.jobs.null_times import with_times
from spark_udaf.jobs.rollup import Levels, plan_rollup, with_coarsest
from spark_udaf.jobs.scan import ParquetScan
from spark_udaf.jobs.schema import as_schema
from spark_udaf.jobs.shard_messages import Content
from spark_udaf.jobs.task_errors import clear
from spark_udaf.jobs.two_phase import MOST_BYTES, Batches, TwoPhases, as_states, source_of
from tiltframe import FrameStore
from tiltframe.frame import INSTANT, LEVEL, START
from tiltframe.level_chain import joined
from tiltframe.names import COARSE
from tiltframe.store.core.backend import Part
from tiltframe.store.core.checked_states import check_readable, checked, micros_of
from tiltframe.store.core.commits import by_level, check_writer, commit_parts, write_levels
from tiltframe.store.core.content import NOTHING, content_of, earlier_contents, total
from tiltframe.store.core.manifest import Manifest
from tiltframe.store.core.retry import retry_on_conflict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WRITTEN = pa.schema(
    [
        *((name, pa.string()) for name in ("level", "writer")),
        *((name, pa.int64()) for name in ("commit", "least", "greatest", "rows", "bytes")),
        ("name", pa.string()),
        ("content", pa.binary()),  # in rows of its own, one for each set of shards; that of earlier frames behind it
    ]
)


def append(
    states: DataFrame | ParquetScan,
    store: FrameStore,
    writer: str,
    commit: int,
    made_from: Mapping[str, int] | None = None,
) -> bool:
    """Add states to a frame store under a writer's commit number, at once or not at all.

    One shuffle brings the states of a key and coarsest window together, where they are checked against each other.

    Parameters
    ----------
    states : DataFrame, or Parquet files as `scan_parquet` gives them
        As `rollup` gives it, perhaps written, read back, filtered or united with others. With rows of finer levels
        only, coarser ones are derived later.
    store : FrameStore
        Driver and tasks must reach it.
    writer : str
        Who writes.
    commit : int
        Grows from commit to commit of one writer.
    made_from : name -> number, optional
        What else counts as committed with it, as for `tiltframe.FrameStore.append`.

    Returns
    -------
    bool
        Whether the states were added. Those of a commit that is already there are compared with what it brought, and
        nothing is written.

    Raises
    ------
    ValueError, TypeError, StoreError
        If they are not states of the store's frame, or of other types than those in the store, before any job starts;
        if windows, levels or results are refused as by `tiltframe.FrameStore.append`, if the commit is there with
        other states, or if a task cannot write. Nothing is committed.

    Guarantee
    ---------
    Tasks that are tried again, or run twice, count once. A task holds some 64 MB of states at a time.

    Examples
    --------
    The docs have one that runs::

        su.append(su.rollup(df, store.frame), store, writer="nightly", commit=20240501)
    """
    check_store(store)
    check_writer(writer, commit)
    source, given = source_of(states, lambda names: store.frame.states_columns)
    wanted, kept = store.check_states(given), store.prepare(given)
    frame = kept.frame
    write = _write(store, kept, writer, commit)
    sharded = wanted.insert(0, pa.field(COARSE, INSTANT))

    def first(batches: Batches) -> Iterator[pa.Table]:
        for gathered in _gathered(batches):
            some = as_schema(gathered, wanted)
            micros_of(some, START)
            for at, name in enumerate(wanted.names):
                if name in frame.keys:  # zeros, and NaN, of equal bits
                    some = some.set_column(at, name, key_column(some.column(name)))
            yield with_coarsest(some, frame)

    def reduce(batches: Batches, _: int) -> Iterator[tuple[Content, pa.Table]]:
        return as_states(first(batches))

    def merge(some: pa.Table) -> pa.Table:
        return write(checked(some.drop_columns([COARSE]), frame))

    def plan() -> DataFrame:
        shards = [COARSE, *frame.keys]
        return TwoPhases(source, wanted.names, frame.keys, reduce, sharded, shards, merge, WRITTEN).run()

    return _committed(store, kept, plan, writer, commit, made_from)


def rollup_into(
    rows: DataFrame | ParquetScan,
    store: FrameStore,
    writer: str,
    commit: int,
    made_from: Mapping[str, int] | None = None,
    on_null_time: str = "fail",
) -> bool:
    """Roll up rows into a frame store: `append` of `rollup`, whose states never pass through the JVM.

    Parameters
    ----------
    rows : DataFrame, or Parquet files as `scan_parquet` gives them
        With the time, keys and columns of the store's frame.
    store : FrameStore
        Driver and tasks must reach it.
    writer : str
        Who writes.
    commit : int
        Grows from commit to commit of one writer.
    made_from : name -> number, optional
        What else counts as committed with it, as for `tiltframe.FrameStore.append`.
    on_null_time : str
        What becomes of rows of a DataFrame whose time is null: they ``fail`` the job, or it can ``skip`` them.

    Returns
    -------
    bool
        Whether the rows were added. Those of a commit that is already there are rolled up to compare them with what it
        brought, and nothing is written.

    Raises
    ------
    ValueError, TypeError, StoreError
        If the rows do not fit the store's frame, or give states of other types than those in the store, before any
        job starts; if a task cannot read its rows or write; if the commit is there with other rows.
    OverflowError
        If a result could not be read.

    Examples
    --------
    The docs have one that runs::

        su.rollup_into(df, store, writer="nightly", commit=20240501)
    """
    check_store(store)
    check_writer(writer, commit)
    source, given = source_of(with_times(rows, store.frame.time, on_null_time), store.frame.columns_in)
    store.frame.check(given)
    kept = store.prepare(store.frame.states_schema(given))
    write = _write(store, kept, writer, commit)

    def then(levels: Levels) -> pa.Table:
        states = joined(levels, kept.frame)
        check_readable(states, kept.frame)
        return write(states)

    def plan() -> DataFrame:
        # a task before the shuffle may run again when some of what it gave has been read: it must not write
        return plan_rollup(source, given, kept.frame, then, WRITTEN, finishes=False)

    return _committed(store, kept, plan, writer, commit, made_from)


def check_store(store: FrameStore) -> None:
    """Raise ``TypeError`` for what is no store."""
    if not isinstance(store, FrameStore):
        raise TypeError(f"give a store, say tiltframe.FrameStore('s3://bucket/path', frame); got {store!r}")


def _write(store: FrameStore, kept: Manifest, writer: str, commit: int) -> Callable[[pa.Table], pa.Table]:
    """Make what tasks do: write states, unless the commit is there, and describe parts and content."""
    backend, there = store.backend, store.holds(writer, commit)

    def write(states: pa.Table) -> pa.Table:
        parts = [] if there else write_levels(backend, by_level(states, kept.frame), writer, commit)
        content_by = partial(content_of, states, kept.frame)
        earlier = earlier_contents(content_by, states.column_names, kept.earlier) if there else []
        content = np.array([content_of(states, kept.frame), *earlier], np.uint64).tobytes()
        levels = ", ".join(pc.unique(states.column(LEVEL)).to_pylist())
        return pa.Table.from_pylist([*map(asdict, parts), {"level": levels, "content": content}], WRITTEN)

    return write


def _committed(
    store: FrameStore,
    kept: Manifest,
    plan: Callable[[], DataFrame],
    writer: str,
    commit: int,
    made_from: Mapping[str, int] | None,
) -> bool:
    """Run the job, and commit its parts, unless its commit is there."""
    with clear():
        rows = plan().toArrow().to_pylist()
    given = sorted({row["level"] for row in rows if row["content"] and row["level"]})
    if len(given) > 1:
        raise ValueError(
            f"some windows have states of {given[0]}, others of {given[1]}: give the same levels for all windows, or "
            "the finest alone"
        )
    each = [np.frombuffer(row["content"], np.uint64).reshape(-1, 2).tolist() for row in rows if row["content"]]
    content, *earlier = [total(map(tuple, of)) for of in zip(*each, strict=True)] or [NOTHING]
    parts = [Part(**{k: row[k] for k in WRITTEN.names[:-1]}) for row in rows if not row["content"]]
    return retry_on_conflict(
        lambda: commit_parts(store.backend, kept, parts, writer, commit, content, made_from, earlier)
    )


def _gathered(batches: Batches) -> Iterator[pa.Table]:
    """Gather batches into tables worth a shuffle."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= MOST_BYTES:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)
