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
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_udaf.failures import clear
from spark_udaf.rollup import plan_rollup
from spark_udaf.scan import ParquetScan
from spark_udaf.schema import as_schema
from spark_udaf.two_phase import MOST_BYTES, Batches, source_of
from spark_udaf.worker import settle
from tiltframe import FrameStore
from tiltframe.frame import LEVEL
from tiltframe.store.commits import check_writer, commit_parts, write_levels
from tiltframe.store.compact import again
from tiltframe.store.description import Description
from tiltframe.store.tables import Part, Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARTS = pa.schema(
    [
        *((name, pa.string()) for name in ("level", "writer")),
        *((name, pa.int64()) for name in ("commit", "least", "greatest", "rows", "bytes")),
        ("name", pa.string()),
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

    Parameters
    ----------
    states : DataFrame, or Parquet files as `scan_parquet` gives them
        As `rollup` gives it, perhaps written, read back, filtered or united with others. With rows of finer levels
        only, coarser ones are derived later.
    store : FrameStore
        Driver and tasks must reach it.
    writer, commit, made_from
        As for `tiltframe.FrameStore.append`.

    Returns
    -------
    bool
        Whether the states were added. No job starts for a commit that is already there.

    Raises
    ------
    ValueError, TypeError, StoreError
        If they are not states of the store's frame, or of other types than those in the store, before any job starts;
        if a task cannot write.

    Guarantee
    ---------
    Tasks that are tried again, or run twice, count once. A task holds some 64 MB of states at a time.

    Examples
    --------
    The docs have one that runs::

        su.append(su.rollup(df, store.frame), store, writer="nightly", commit=20240501)
    """
    _check(store, writer, commit)
    source, given = source_of(states)
    kept = store.prepare(given)
    wanted = kept.schema.insert(0, pa.field(LEVEL, pa.string()))
    write = _write(store.tables, kept, writer, commit)

    def task(batches: Batches) -> Batches:
        settle()
        for some in _gathered(batches):
            yield from write(as_schema(some, wanted)).to_batches()

    return _committed(store, kept, lambda: source.map(wanted.names, [], task, PARTS), writer, commit, made_from)


def rollup_into(
    rows: DataFrame | ParquetScan,
    store: FrameStore,
    writer: str,
    commit: int,
    made_from: Mapping[str, int] | None = None,
) -> bool:
    """Roll up rows into a frame store: `append` of `rollup`, whose states never pass through the JVM.

    Parameters
    ----------
    rows : DataFrame, or Parquet files as `scan_parquet` gives them
        With the time, keys and columns of the store's frame.
    store, writer, commit, made_from
        As for `append`.

    Returns
    -------
    bool
        Whether the rows were added. No job starts for a commit that is already there.

    Raises
    ------
    ValueError, TypeError, StoreError
        If the rows do not fit the store's frame, or give states of other types than those in the store, before any
        job starts; if a task cannot read its rows or write.

    Examples
    --------
    The docs have one that runs::

        su.rollup_into(df, store, writer="nightly", commit=20240501)
    """
    _check(store, writer, commit)
    source, given = source_of(rows)
    store.frame.check(given)
    kept = store.prepare(store.frame.states_schema(given))
    write = _write(store.tables, kept, writer, commit)
    return _committed(
        store, kept, lambda: plan_rollup(source, given, kept.frame, write, PARTS), writer, commit, made_from
    )


def _check(store: FrameStore, writer: str, commit: int) -> None:
    if not isinstance(store, FrameStore):
        raise TypeError(f"give a store, say tiltframe.FrameStore('s3://bucket/path', frame); got {store!r}")
    check_writer(writer, commit)


def _write(tables: Tables, kept: Description, writer: str, commit: int) -> Callable[[pa.Table], pa.Table]:
    """Make what tasks do: write states, and describe the parts that they have become."""

    def write(states: pa.Table) -> pa.Table:
        parts = write_levels(tables, kept, states, writer, commit)
        return pa.Table.from_pylist([asdict(part) for part in parts], PARTS)

    return write


def _committed(
    store: FrameStore,
    kept: Description,
    plan: Callable[[], DataFrame],
    writer: str,
    commit: int,
    made_from: Mapping[str, int] | None,
) -> bool:
    """Run the job, unless its commit is there, and commit its parts."""
    parts = []
    if not store.holds(writer, commit):
        with clear():
            parts = [Part(**row) for row in plan().toArrow().to_pylist()]
    return again(lambda: commit_parts(store.tables, kept, parts, writer, commit, made_from))


def _gathered(batches: Batches) -> Iterator[pa.Table]:
    """Gather batches into tables worth a file."""
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
