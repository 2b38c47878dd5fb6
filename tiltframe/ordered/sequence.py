"""Sort rows by key and time, and insert ticks between them. A tick is the start of a unit of the clock, such as an
hour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr import sql
from aggr.arguments import nearest, shown
from aggr.arrow import compute as pc
from aggr.arrow.normalize import normalize
from aggr.groups.groups import group_by
from aggr.tables.keys import key_fields, keyed
from tiltframe.event_time import event_times
from windows.ordered import Condition, Input, Rows, Tick, Weight

Ints = NDArray[np.int64]
_NEVER = -(2**62)  # less than every time in microseconds; -_NEVER is greater than every time


@dataclass(frozen=True)
class Order:
    """The order of rows: by keys, then by time, then by ``tie_columns``, and finally by arrival.

    ``keyed_by`` maps the name of each key to its column or expression. ``time`` is the name of the column of times.
    """

    keyed_by: Mapping[str, str]
    time: str
    tie_columns: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the keys."""
        return tuple(self.keyed_by)


class Keys(NamedTuple):
    """The keys of all batches so far, in ascending order. Times are in microseconds UTC.

    ``columns`` has the values of the keys, one column per key column. ``latest`` has, for each key, the time from which
    ticks are still to be inserted: the time of its last row, or a later time if the results at all ticks before that
    time have been returned. ``last_time`` and ``first_time`` are the latest and the earliest time of all rows.
    """

    columns: tuple[pa.Array, ...]
    latest: Ints
    last_time: int
    first_time: int = -_NEVER

    @property
    def n(self) -> int:
        """The number of keys."""
        return len(self.latest)


class SortedRows(NamedTuple):
    """The rows of a batch, sorted by key and time. Times are in microseconds UTC.

    ``key`` has the integer id of each row's key, which is its index in ``keys``. Keys are numbered again in each batch:
    ``new_key_ids`` has the new id of each key of the earlier batches. ``earlier_latest`` has, for each key, the value
    of `Keys.latest` after the earlier batches, or `_NEVER` for a key without earlier rows.
    """

    table: pa.Table
    key: Ints
    times: Ints
    keys: Keys
    new_key_ids: Ints
    earlier_latest: Ints


class RowsAndTicks(NamedTuple):
    """Rows and ticks, sorted by key and time. At equal times, rows come first.

    ``entries`` contains the rows and the ticks in the form that windows read. ``source`` has the index of each row in
    the table, and -1 for a tick. ``key`` has the integer id of the key of each row and tick.
    """

    entries: Rows
    source: Ints
    key: Ints


def empty_keys(schema: pa.Schema, order: Order) -> Keys:
    """Return a `Keys` object that contains no keys. ``schema`` is the schema of the rows, which determines the types of
    the keys.
    """
    columns = tuple(pa.array([], field.type) for field in key_fields(order.keyed_by, schema))
    return Keys(columns, np.zeros(0, np.int64), _NEVER)


def sort_rows(table: pa.Table, order: Order, earlier_keys: Keys) -> SortedRows:
    """Return the rows of a batch, sorted by ``order``. Rows that are sorted already are not sorted again.
    ``earlier_keys`` are the keys of the earlier batches.

    If a key consists of the elements of a list, a row occurs once per element. Raise ``ValueError`` if a row is earlier
    than a row of the same key in an earlier batch.
    """
    table, _, by_name = keyed(table, order.keyed_by, table.column_names)
    keys_of_batch = [normalize(key) for key in by_name.values()]
    times = event_times(table.column(order.time), order.time)
    all_keys = [
        pa.concat_arrays([earlier, new.cast(earlier.type)])
        for earlier, new in zip(earlier_keys.columns, keys_of_batch, strict=True)
    ]
    groups, first_rows = group_by(all_keys, earlier_keys.n + len(times))
    new_key_ids = groups.ids[: earlier_keys.n]
    key = groups.ids[earlier_keys.n :]
    columns = tuple(column.take(pa.array(first_rows)) for column in all_keys)
    ranks = [group_by([normalize(table.column(name))], len(times))[0].ids for name in order.tie_columns]
    if not _is_sorted([key, times, *ranks]):
        sort_order = np.lexsort([*ranks[::-1], times, key])
        table = table.take(pa.array(sort_order))
        key = key[sort_order]
        times = times[sort_order]
    earlier_latest = np.full(groups.n, _NEVER)
    earlier_latest[new_key_ids] = earlier_keys.latest
    heads = np.flatnonzero(np.diff(key, prepend=-1))
    late = heads[times[heads] < earlier_latest[key[heads]]]
    if len(late):
        raise ValueError(
            f"rows of a key must be in ascending order of {order.time!r} across all batches; a row at "
            f"{shown_time(times[late[0]])} comes after a row at {shown_time(earlier_latest[key[late[0]]])}; sort the "
            "rows by time first"
        )
    latest = earlier_latest.copy()
    latest[key[heads]] = times[np.append(heads[1:], len(times)) - 1] if len(heads) else 0
    last_time = max(earlier_keys.last_time, int(times.max(initial=_NEVER)))
    first_time = min(earlier_keys.first_time, int(times.min(initial=-_NEVER)))
    keys = Keys(columns, latest, last_time, first_time)
    return SortedRows(table, key=key, times=times, keys=keys, new_key_ids=new_key_ids, earlier_latest=earlier_latest)


def with_ticks(
    ordered: SortedRows,
    reads: Sequence[Input],
    ticks: Sequence[Tick],
    until: int | None = None,
    *,
    is_last: bool = False,
    is_filled: bool = False,
) -> RowsAndTicks:
    """Return the sorted rows of each key with ticks between them, and the values of the inputs that the windows need.

    Parameters
    ----------
    ordered : SortedRows
    reads : sequence of inputs
        The conditions, weights and ticks that the windows need.
    ticks : sequence of ticks
    until : int, optional
        A time in microseconds UTC, before which later batches have no rows. Ticks after the last row of a key and
        before this time are inserted as well.
    is_last : bool
        Whether to add the last ticks: for each element of ``ticks``, the first tick at or after the time of the last
        row of all keys.
    is_filled : bool
        Whether the ticks of every key begin with the first row of all keys, and not with the first row of the key.
    """
    key = ordered.key
    times = ordered.times
    source = np.arange(len(ordered.key))
    end = ordered.keys.last_time if until is None else max(ordered.keys.last_time, until - 1)
    instants = _tick_times(ordered, ticks, end, is_filled=is_filled)
    if is_last and end > _NEVER:
        instants = np.unique(np.append(instants, [tick.first_from(end) for tick in ticks]))
        until = int(instants[-1]) + 1
    if len(instants):
        tick_key, tick_times = _ticks_between_rows(ordered, instants, until, is_filled=is_filled)
        kind = np.repeat([0, 1], [len(key), len(tick_key)])
        key = np.append(key, tick_key)
        times = np.append(times, tick_times)
        source = np.append(source, np.full(len(tick_key), -1))
        sort_order = np.lexsort([kind, times, key])
        key = key[sort_order]
        times = times[sort_order]
        source = source[sort_order]
    inputs: dict[Input, NDArray[Any]] = {}
    for read in reads:
        if isinstance(read, Tick):
            tick_times_of_input = read.instants(int(instants[0]), int(instants[-1])) if len(instants) else instants
            inputs[read] = (source < 0) & np.isin(times, tick_times_of_input)
        else:
            # A tick has ``source`` -1. This index selects the last element of the array: the appended False or 0.
            values = _evaluate(read, ordered.table)
            inputs[read] = np.append(values, np.zeros(1, values.dtype))[source]
    lengths = np.bincount(key, minlength=ordered.keys.n)
    return RowsAndTicks(Rows(np.cumsum(lengths) - lengths, lengths, times, inputs), source, key)


def check_inputs(reads: Sequence[Input], schema: pa.Schema) -> None:
    """Raise ``ValueError`` or ``TypeError`` if the conditions and weights cannot be computed from rows with this
    schema.
    """
    for read in reads:
        if not isinstance(read, Tick):
            if isinstance(read, Weight) and read.column not in schema.names:
                raise ValueError(
                    f"the data has no column {read.column!r} of weights; {nearest(read.column, schema.names)}"
                )
            _evaluate(read, schema.empty_table())


def _is_sorted(columns: Sequence[NDArray[Any]]) -> bool:
    """Return whether rows are sorted by several columns. Two neighbouring rows are compared by the first column in
    which they differ.
    """
    undecided = np.ones(max(len(columns[0]) - 1, 0), np.bool_)
    for column in columns:
        step = np.diff(column)
        if (step[undecided] < 0).any():
            return False
        undecided &= step == 0
        if not undecided.any():
            return True
    return True


def _tick_times(ordered: SortedRows, ticks: Sequence[Tick], end: int, *, is_filled: bool) -> Ints:
    """Return the times of all ticks that may have to be inserted between rows, ascending, in microseconds UTC. Ticks
    after ``end`` are not included.
    """
    seen = ordered.earlier_latest[ordered.earlier_latest > _NEVER]
    low = min(int(ordered.times.min(initial=2**62)), int(seen.min(initial=2**62)))
    if is_filled:
        low = min(low, ordered.keys.first_time)
    if not ticks or low > end:
        return np.zeros(0, np.int64)
    return np.unique(np.concatenate([tick.instants(low, end) for tick in ticks]))


def _ticks_between_rows(
    ordered: SortedRows, instants: Ints, until: int | None, *, is_filled: bool
) -> tuple[Ints, Ints]:
    """Return the ticks to insert, as an array of key ids and an array of times in microseconds UTC. ``instants`` has
    the times of all ticks.

    Between two rows of a key, ticks are inserted from the time of the earlier row, inclusively, to the time of the
    later row, exclusively. After the last row of a key, ticks before ``until`` are inserted if ``until`` is not None.
    """
    key = ordered.key
    times = ordered.times
    since = np.empty_like(times)
    since[1:] = times[:-1]
    heads = np.flatnonzero(np.diff(key, prepend=-1))
    since[heads] = ordered.earlier_latest[key[heads]]
    # A key without earlier rows has ticks before its first row only if ``is_filled`` is true.
    since = np.where(since == _NEVER, ordered.keys.first_time if is_filled else times, since)
    low = np.searchsorted(instants, since)
    high = np.searchsorted(instants, times)
    if until is not None:
        low = np.append(low, np.searchsorted(instants, ordered.keys.latest))
        high = np.append(high, np.full(ordered.keys.n, np.searchsorted(instants, until)))
        key = np.append(key, np.arange(ordered.keys.n))
    counts = np.maximum(high - low, 0)
    upper = np.cumsum(counts)
    place = np.arange(int(upper[-1]) if len(upper) else 0) - np.repeat(upper - counts - low, counts)
    return np.repeat(key, counts), instants[place]


def _evaluate(read: Condition | Weight, table: pa.Table) -> NDArray[Any]:
    """Return the value of a condition or a weight for each row, as an array of bool or int64. Raise an error if weights
    are not integers of at least 0.
    """
    if isinstance(read, Condition):
        return sql.rows_where(read.text, table)
    weights = normalize(table.column(read.column))
    if not pa.types.is_integer(weights.type):
        raise TypeError(
            f"weights must be whole numbers; the column {read.column!r} has type {shown(weights.type)}; cast it to "
            "an integer type"
        )
    try:
        values: Ints = pc.fill_null(weights, 0).cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid:
        heaviest = pc.max(weights).as_py()
        raise ValueError(
            f"weights must be at most 2^63 - 1; the column {read.column!r} has {heaviest}; leave out such rows"
        ) from None
    if len(values) and values.min() < 0:
        raise ValueError(
            f"weights must be at least 0; the column {read.column!r} has {values.min()}; leave out such rows"
        )
    return values


def shown_time(micros: int) -> str:
    """Return a time as text for an error message. ``micros`` is in microseconds UTC."""
    return str(np.datetime64(int(micros), "us"))
