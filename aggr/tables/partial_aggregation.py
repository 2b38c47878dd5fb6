"""Partial states: reduce a stream of batches incrementally, in memory that does not grow with the number of rows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from operator import itemgetter
from queue import SimpleQueue

import numpy as np
import pyarrow as pa

from aggr.workers import map_in_threads, start_background_thread

# the usual number of rows per call of reduce: enough to amortize the call, and few enough to fit into the cache
REDUCE_ROWS = 1 << 19
# The maximum number of rows per call of reduce. Tables of more than `REDUCE_ROWS` rows do not fit into the cache. If
# groups have few rows, such tables are faster nevertheless, because their states must be merged less often.
_MAX_REDUCE_ROWS = 1 << 20
# If a table has fewer than this number of rows per group, the next tables are twice as long.
_MIN_ROWS_PER_GROUP = 32
# Rows are reduced only if the number of groups, divided by the number of rows, is at most this ratio. States are merged
# only if the number of groups, divided by the number of states, is at most this ratio.
MAX_RATIO = 0.7
# the number of tables whose groups are not counted after a table with nearly as many groups as rows
_UNCOUNTED_TABLES = 7
# Partial states are merged when they have this size in bytes.
_MERGE_BYTES = 1 << 27
# Once a block of this size has been freed, glibc no longer returns freed blocks of up to this size to the system, as
# long as less than twice this size is free. This holds for sizes of up to 32 MiB.
_KEPT_BYTES = 31 << 20
# The number of rows of the first table if memory is limited. The table is short, because the size of its states is not
# known in advance.
_FIRST_ROWS = 1 << 16


def partial_states(
    batches: Iterable[pa.RecordBatch],
    reduce: Callable[[pa.Table], pa.Table],
    merge: Callable[[pa.Table], pa.Table],
    max_bytes: int | None = None,
) -> Iterator[pa.Table]:
    """Reduce a stream of batches to states, and merge the states whenever their total size reaches a limit.

    Parameters
    ----------
    batches : record batches
    reduce : rows -> states
    merge : states -> fewer states, or the same states if merging is not worthwhile
    max_bytes : int, optional
        The size in bytes at which merged states are yielded and a new table is begun. Without it, memory is not
        limited.

    Returns
    -------
    iterator of tables of states
        A group may occur more than once. If the batches have no rows, one table without rows is yielded, with the
        columns of states. Without batches, nothing is yielded.
    """
    return map(itemgetter(1), adaptive_states(batches, reduce, merge, max_bytes))


def adaptive_states(
    batches: Iterable[pa.RecordBatch],
    reduce: Callable[[pa.Table], pa.Table],
    merge: Callable[[pa.Table], pa.Table],
    max_bytes: int | None = None,
    count_groups: Callable[[pa.Table], int] | None = None,
    jobs: int = 1,
) -> Iterator[tuple[bool, pa.Table]]:
    """Reduce a stream of batches like `partial_states`, but yield rows unchanged if they have too many groups.

    This is known as adaptive partial aggregation. If a table has nearly as many groups as rows, its states would need
    more memory than the rows, and would still have to be merged later. As long as the tables have nearly as many groups
    as rows, groups are counted in only one of eight tables, because counting takes as long as reducing. As long as the
    tables have fewer groups, all tables are reduced, and the numbers of groups and rows of every table are compared,
    because later tables may have more groups.

    Parameters
    ----------
    batches, reduce, merge, max_bytes : as for `partial_states`
    count_groups : rows -> the number of their groups, or None to reduce all rows
    jobs : int
        The number of threads that reduce. If ``count_groups`` is passed, the calling thread reduces.

    Yields
    ------
    (bool, table)
        Whether the table contains states, and the table of states or rows.
    """
    keep_freed_memory()
    partials: list[pa.Table] = []
    min_merge_limit = _MERGE_BYTES if max_bytes is None else min(_MERGE_BYTES, max_bytes)
    size = 0
    merge_limit = min_merge_limit
    wanted_rows = [REDUCE_ROWS if max_bytes is None else _FIRST_ROWS]
    has_many_groups = count_groups is not None
    uncounted_tables = 0

    def states_or_rows(table: pa.Table) -> tuple[bool, int, pa.Table]:
        """Return whether the rows of a table were reduced, the number of rows, and the table of states or of rows."""
        nonlocal has_many_groups, uncounted_tables
        if has_many_groups and count_groups is not None:
            if uncounted_tables:
                uncounted_tables -= 1
            else:
                has_many_groups = count_groups(table) > MAX_RATIO * table.num_rows
                uncounted_tables = _UNCOUNTED_TABLES if has_many_groups else 0
            if has_many_groups:
                return False, table.num_rows, table
        states = reduce(table)
        has_many_groups = count_groups is not None and states.num_rows > MAX_RATIO * table.num_rows
        return True, table.num_rows, states

    first_rows = wanted_rows[0]
    reduced = map_in_threads(
        states_or_rows,
        _prefetch(batches, wanted_rows),
        jobs if count_groups is None else 1,
        is_large=lambda table: _is_long_enough(table.num_rows, first_rows),
    )
    for is_reduced, rows, table in reduced:
        if not is_reduced:
            yield False, table
            continue
        partials.append(table)
        del table
        size += partials[-1].nbytes
        if rows < _MIN_ROWS_PER_GROUP * partials[-1].num_rows:
            wanted_rows[0] = min(2 * wanted_rows[0], _MAX_REDUCE_ROWS)
        if max_bytes is not None and rows:
            rows_in_memory = max_bytes * rows // max(1, 2 * partials[-1].nbytes)
            wanted_rows[0] = min(max(wanted_rows[0], REDUCE_ROWS), max(rows_in_memory, _FIRST_ROWS))
        if size < merge_limit:
            continue
        partials = [_merge_partials(partials, merge)]
        size = partials[0].nbytes
        merge_limit = max(min_merge_limit, 2 * size)
        if max_bytes is not None and size >= max_bytes:
            yield True, partials.pop()
            size = 0
            merge_limit = min_merge_limit
    if partials:
        partials = [_merge_partials(partials, merge)]
        yield True, partials.pop()  # popped, so that the consumer has the only reference to the table, and can free it


def keep_freed_memory() -> None:
    """Allocate and free a block of `_KEPT_BYTES`. From then on, glibc keeps freed memory for the next table.

    Getting new memory from the system would take as long as the computation that uses it. The block itself does not
    take up physical memory, because it is not accessed.
    """
    np.empty(_KEPT_BYTES, np.uint8)


def _merge_partials(partials: list[pa.Table], merge: Callable[[pa.Table], pa.Table]) -> pa.Table:
    return merge(pa.concat_tables(partials)) if len(partials) > 1 else partials[0]


def _prefetch(batches: Iterable[pa.RecordBatch], wanted_rows: list[int]) -> Iterator[pa.Table]:
    """Yield the tables of `_gather_batches`. While the consumer processes a table, a thread computes the next one. If
    all rows fit into the first table, no thread is started.

    A consumer that stops early does not wait for the source. The thread ends after the batch that it is computing. At
    exit, the process waits up to two seconds for the thread.
    """
    should_stop = threading.Event()
    tables = _gather_batches(_until_stopped(batches, should_stop), wanted_rows)
    first = next(tables, None)
    if first is None:
        return
    if not _is_long_enough(first.num_rows, wanted_rows[0]):  # it is the last table
        yield first
        return
    requests: SimpleQueue[bool] = SimpleQueue()
    results: SimpleQueue[pa.Table | BaseException | None] = SimpleQueue()

    def stop() -> None:
        should_stop.set()
        requests.put(False)

    start_background_thread(lambda: _fetch(tables, requests, results), stop, "tiltframe-ahead")
    requests.put(True)
    try:
        yield first
        del first  # so that the first table can be freed while the next table is processed
        while (table_or_error := results.get()) is not None:
            if isinstance(table_or_error, BaseException):
                raise table_or_error
            requests.put(True)
            yield table_or_error
    finally:
        stop()


def _until_stopped(batches: Iterable[pa.RecordBatch], should_stop: threading.Event) -> Iterator[pa.RecordBatch]:
    """Yield ``batches`` until ``should_stop`` is set."""
    for batch in batches:
        if should_stop.is_set():
            return
        yield batch


def _fetch(
    tables: Iterator[pa.Table], requests: SimpleQueue[bool], results: SimpleQueue[pa.Table | BaseException | None]
) -> None:
    """For each True in ``requests``, put the next of ``tables`` into ``results``, or None after the last table.

    If the source raises an exception, put the exception into ``results``. End the thread for a False in ``requests``.
    """
    while requests.get():
        try:
            table = next(tables, None)
        except BaseException as error:  # `_prefetch` raises the error again, in the thread of the consumer
            table = error
        results.put(table)


def _gather_batches(batches: Iterable[pa.RecordBatch], wanted_rows: list[int]) -> Iterator[pa.Table]:
    """Yield tables of joined batches. Except for the last one, each is long enough for ``wanted_rows[0]`` rows.

    The consumer may change ``wanted_rows[0]`` between two tables. If the batches have no rows, one empty table with
    their schema is yielded. Without batches, nothing is yielded.
    """
    pending: list[pa.RecordBatch] = []
    rows = 0
    has_yielded = False
    for batch in chain.from_iterable(map(_slices, batches)):
        pending.append(batch)
        rows += batch.num_rows
        if _is_long_enough(rows, wanted_rows[0]):
            yield joined_batches(pending)
            pending = []
            rows = 0
            has_yielded = True
    if pending and (rows or not has_yielded):
        yield joined_batches(pending)


def _is_long_enough(rows: int, wanted_rows: int) -> bool:
    """Return whether a table with this number of rows can be reduced. It may be a quarter shorter than requested.
    Joining it with the next batch would copy both.

    A row group of Parquet with a million rows, for example, is read as one batch of `REDUCE_ROWS` rows and one that is
    a tenth shorter.
    """
    return 4 * rows >= 3 * wanted_rows


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield slices of a batch, each of at most `REDUCE_ROWS` rows.

    The memory of larger arrays would not be reused for the next table (see `_KEPT_BYTES`).
    """
    return (batch.slice(start, REDUCE_ROWS) for start in range(0, max(batch.num_rows, 1), REDUCE_ROWS))


def joined_batches(batches: list[pa.RecordBatch]) -> pa.Table:
    """Return the rows of batches as a table in which each column has one chunk."""
    table = pa.Table.from_batches(batches)
    rows = sum(batch.num_rows for batch in batches)
    if table.num_rows != rows:
        raise ValueError(
            f"batches of {rows:,} rows became a table of {table.num_rows:,} rows, because they have no columns; add a "
            "column"
        )
    if len(batches) == 1:
        return table
    filled = [batch for batch in batches if batch.num_rows]
    if len(filled) == 1:
        return pa.Table.from_batches(filled)
    try:
        return table.combine_chunks()
    except pa.ArrowInvalid:  # Arrow cannot join dictionaries that contain null, so dictionary columns are decoded
        plain = [pa.field(f.name, getattr(f.type, "value_type", f.type)) for f in table.schema]
        coded = [pa.types.is_dictionary(f.type) for f in table.schema]
        schema = pa.schema([p if c else f for p, c, f in zip(plain, coded, table.schema, strict=True)])
        return table.cast(schema).combine_chunks()
