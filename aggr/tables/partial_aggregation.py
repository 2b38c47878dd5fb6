"""Partial states: a stream of batches reduced as it comes, in memory that does not grow with the rows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from operator import itemgetter
from queue import SimpleQueue

import numpy as np
import pyarrow as pa

REDUCE_ROWS = 1 << 19  # rows reduced at once: enough to spread the cost of a call over, few enough for the cache
_MOST_ROWS = 1 << 20  # the same, where groups have so few rows each that merging would cost more than the cache saves
_MANY = 32  # rows a group has where they are many
MAX_RATIO = 0.7  # merge partial states where no more than this share of them is left
_UNSEEN = 7  # tables that are taken to be like the one before, which has nearly as many groups as rows
_MERGE_BYTES = 1 << 27  # partial states held before they are merged
_KEPT_BYTES = 31 << 20  # glibc then keeps blocks of up to 32 MiB, and twice as much free memory
_FIRST_ROWS = 1 << 16  # rows reduced at first where memory is bounded, before it is known how much their states take


def partial_states(
    batches: Iterable[pa.RecordBatch],
    reduce: Callable[[pa.Table], pa.Table],
    merge: Callable[[pa.Table], pa.Table],
    max_bytes: int | None = None,
) -> Iterator[pa.Table]:
    """Reduce a stream of batches to states, merged as they come.

    Parameters
    ----------
    batches : record batches
    reduce : rows -> states
    merge : states -> fewer states, or the same where that is not worth it
    max_bytes : int, optional
        Yield the merged states whenever they reach this size, and start again, so that memory is bounded.

    Returns
    -------
    iterator of tables of states
        A group may come more than once; one table even where there are no rows but a batch, for its types.
    """
    return map(itemgetter(1), adaptive_states(batches, reduce, merge, max_bytes))


def adaptive_states(
    batches: Iterable[pa.RecordBatch],
    reduce: Callable[[pa.Table], pa.Table],
    merge: Callable[[pa.Table], pa.Table],
    max_bytes: int | None = None,
    groups: Callable[[pa.Table], int] | None = None,
) -> Iterator[tuple[bool, pa.Table]]:
    """Reduce a stream of batches as `partial_states` does, or pass rows on unchanged if reducing leaves too many.

    Known as adaptive partial aggregation. Where a table of rows has nearly as many groups as rows, states would take
    more room than the rows, and be merged later all the same. One table in eight is looked at while that is so, as
    counting groups takes as long as reducing them would; all are where states come of it, so that a stream may change.

    Parameters
    ----------
    batches, reduce, merge, max_bytes : as for `partial_states`
    groups : rows -> how many groups they have; None reduces all rows

    Yields
    ------
    pairs of whether these are states, and the table: of states, or of rows
    """
    _keep_freed_memory()
    partials: list[pa.Table] = []
    least_room = _MERGE_BYTES if max_bytes is None else min(_MERGE_BYTES, max_bytes)
    size, room = 0, least_room
    want = [REDUCE_ROWS if max_bytes is None else _FIRST_ROWS]
    spread, unseen = groups is not None, 0
    for table in _ahead(_gathered(batches, want)):
        if spread and groups is not None:
            if unseen:
                unseen -= 1
            else:
                spread = groups(table) > MAX_RATIO * table.num_rows
                unseen = _UNSEEN if spread else 0
            if spread:
                yield False, table
                continue
        partials.append(reduce(table))
        size += partials[-1].nbytes
        spread = groups is not None and partials[-1].num_rows > MAX_RATIO * table.num_rows
        if table.num_rows < _MANY * partials[-1].num_rows:
            want[0] = min(2 * want[0], _MOST_ROWS)
        if max_bytes is not None and table.num_rows:
            room_for = max_bytes * table.num_rows // max(1, 2 * partials[-1].nbytes)
            want[0] = min(max(want[0], REDUCE_ROWS), max(room_for, _FIRST_ROWS))
        if size < room:
            continue
        partials = [_joined(partials, merge)]
        size = partials[0].nbytes
        room = max(least_room, 2 * size)
        if max_bytes is not None and size >= max_bytes:
            yield True, partials.pop()
            size, room = 0, least_room
    if partials:
        partials = [_joined(partials, merge)]
        yield True, partials.pop()  # popped, so that the consumer alone holds the table


def _keep_freed_memory() -> None:
    """Have glibc keep freed memory for the next table, as it does once it has freed a block of `_KEPT_BYTES`.

    New memory from the system costs as much as the computation that uses it. The block itself is never touched.
    """
    np.empty(_KEPT_BYTES, np.uint8)


def _joined(partials: list[pa.Table], merge: Callable[[pa.Table], pa.Table]) -> pa.Table:
    return merge(pa.concat_tables(partials)) if len(partials) > 1 else partials[0]


def _ahead(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Fetch the next table while the last one is processed, so that the source does not wait.

    A consumer that stops early does not wait for the source either: the thread ends once its table has come, and does
    not keep the process from ending.
    """
    requests: SimpleQueue[bool] = SimpleQueue()
    fetched: SimpleQueue[pa.Table | BaseException | None] = SimpleQueue()
    threading.Thread(target=_fetch, args=(tables, requests, fetched), name="tiltframe-ahead", daemon=True).start()
    requests.put(True)
    try:
        while (table := fetched.get()) is not None:
            if isinstance(table, BaseException):
                raise table
            requests.put(True)
            yield table
    finally:
        requests.put(False)


def _fetch(
    tables: Iterator[pa.Table], requests: SimpleQueue[bool], fetched: SimpleQueue[pa.Table | BaseException | None]
) -> None:
    """Send one table each time that one is asked for, None after the last one, and an error in its place."""
    while requests.get():
        try:
            table = next(tables, None)
        except BaseException as error:  # raised in the thread that asks
            table = error
        fetched.put(table)


def _gathered(batches: Iterable[pa.RecordBatch], want: list[int]) -> Iterator[pa.Table]:
    """Join small batches into tables of ``want[0]`` rows; the first also comes without rows, for its types."""
    pending: list[pa.RecordBatch] = []
    rows, has_yielded = 0, False
    for batch in chain.from_iterable(map(_pieces, batches)):
        pending.append(batch)
        rows += batch.num_rows
        if rows >= want[0]:
            yield joined_batches(pending)
            pending, rows, has_yielded = [], 0, True
    if pending and (rows or not has_yielded):
        yield joined_batches(pending)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch into tables of at most ``REDUCE_ROWS``: larger arrays would need new memory each time."""
    return (batch.slice(start, REDUCE_ROWS) for start in range(0, max(batch.num_rows, 1), REDUCE_ROWS))


def joined_batches(batches: list[pa.RecordBatch]) -> pa.Table:
    """Join batches into a table of one chunk."""
    table = pa.Table.from_batches(batches)
    rows = sum(batch.num_rows for batch in batches)
    if table.num_rows != rows:
        raise ValueError(f"batches of {rows:,} rows became a table of {table.num_rows:,}")
    if len(batches) == 1:
        return table
    try:
        return table.combine_chunks()
    except pa.ArrowInvalid:  # Arrow cannot join dictionaries that hold a null
        plain = [pa.field(f.name, getattr(f.type, "value_type", f.type)) for f in table.schema]
        coded = [pa.types.is_dictionary(f.type) for f in table.schema]
        schema = pa.schema([p if c else f for p, c, f in zip(plain, coded, table.schema, strict=True)])
        return table.cast(schema).combine_chunks()
