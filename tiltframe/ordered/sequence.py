"""Rows in the order of key and time, with ticks between them. A tick is the start of a unit of the clock, such as an
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
_NEVER = -(2**62)  # before all times; -_NEVER is after all times


@dataclass(frozen=True)
class Order:
    """The order of rows: by keys, time, further columns, and finally arrival."""

    keyed_by: Mapping[str, str]
    time: str
    then: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the keys; ``keyed_by`` maps each name to its column or expression."""
        return tuple(self.keyed_by)


class Keys(NamedTuple):
    """The keys of all batches so far: their sorted columns, the time of the last row of each key, and the first and
    last time of all keys.
    """

    columns: tuple[pa.Array, ...]
    latest: Ints
    end: int
    first: int = -_NEVER

    @property
    def n(self) -> int:
        """The number of keys."""
        return len(self.latest)


class Sorted(NamedTuple):
    """Sorted rows: the table, the key and time of each row, all keys, and the new index of each previous key."""

    table: pa.Table
    key: Ints
    times: Ints
    keys: Keys
    places: Ints
    before: Ints


class Entries(NamedTuple):
    """Rows and ticks in order. ``source[i]`` is the number of the row in the table, or -1 for a tick."""

    rows: Rows
    source: Ints
    key: Ints


def no_keys(schema: pa.Schema, order: Order) -> Keys:
    """Return empty keys, for the state before the first rows."""
    columns = tuple(pa.array([], field.type) for field in key_fields(order.keyed_by, schema))
    return Keys(columns, np.zeros(0, np.int64), _NEVER)


def in_order(table: pa.Table, order: Order, known_keys: Keys) -> Sorted:
    """Sort rows by key and time if needed; raise ``ValueError`` if a row precedes a row of the same key in an earlier
    batch.

    If a key is an element of a list, a row occurs once per element.
    """
    table, _, by_name = keyed(table, order.keyed_by, table.column_names)
    own = [normalize(key) for key in by_name.values()]
    times = event_times(table.column(order.time), order.time)
    both = [pa.concat_arrays([old, new.cast(old.type)]) for old, new in zip(known_keys.columns, own, strict=True)]
    groups, first_rows = group_by(both, known_keys.n + len(times))
    places, key = groups.ids[: known_keys.n], groups.ids[known_keys.n :]
    columns = tuple(column.take(pa.array(first_rows)) for column in both)
    ranks = [group_by([normalize(table.column(name))], len(times))[0].ids for name in order.then]
    if not _is_sorted([key, times, *ranks]):
        by = np.lexsort([*ranks[::-1], times, key])
        table, key, times = table.take(pa.array(by)), key[by], times[by]
    before = np.full(groups.n, _NEVER)
    before[places] = known_keys.latest
    heads = np.flatnonzero(np.diff(key, prepend=-1))
    late = heads[times[heads] < before[key[heads]]]
    if len(late):
        raise ValueError(
            f"rows of a key must be in ascending order of {order.time!r} across all batches; a row at "
            f"{_shown(times[late[0]])} comes after one at {_shown(before[key[late[0]]])}; sort the rows by time first"
        )
    latest = before.copy()
    latest[key[heads]] = times[np.append(heads[1:], len(times)) - 1] if len(heads) else 0
    end = max(known_keys.end, int(times.max(initial=_NEVER)))
    first = min(known_keys.first, int(times.min(initial=-_NEVER)))
    keys = Keys(columns, latest, end, first)
    return Sorted(table, key=key, times=times, keys=keys, places=places, before=before)


def with_ticks(
    ordered: Sorted,
    reads: Sequence[Input],
    ticks: Sequence[Tick],
    until: int | None = None,
    *,
    is_last: bool = False,
    is_filled: bool = False,
) -> Entries:
    """Insert ticks between the rows of each key, including ticks before a time that later rows cannot precede.

    With ``is_last``, each kind of tick also has the first instant after the last row. With ``is_filled``, the ticks of
    every key begin with the first row of all keys.
    """
    key, times, source = ordered.key, ordered.times, np.arange(len(ordered.key))
    end = ordered.keys.end if until is None else max(ordered.keys.end, until - 1)
    instants = _instants(ordered, ticks, end, is_filled=is_filled)
    if is_last and end > _NEVER:
        instants = np.unique(np.append(instants, [tick.first_from(end) for tick in ticks]))
        until = int(instants[-1]) + 1
    if len(instants):
        tick_key, tick_times = _between(ordered, instants, until, is_filled=is_filled)
        kind = np.repeat([0, 1], [len(key), len(tick_key)])
        key, times = np.append(key, tick_key), np.append(times, tick_times)
        source = np.append(source, np.full(len(tick_key), -1))
        by = np.lexsort([kind, times, key])
        key, times, source = key[by], times[by], source[by]
    inputs: dict[Input, NDArray[Any]] = {}
    for read in reads:
        if isinstance(read, Tick):
            of_tick = read.instants(int(instants[0]), int(instants[-1])) if len(instants) else instants
            inputs[read] = (source < 0) & np.isin(times, of_tick)
        else:  # inputs are False or 0 for ticks
            values = _evaluated(read, ordered.table)
            inputs[read] = np.append(values, np.zeros(1, values.dtype))[source]
    lengths = np.bincount(key, minlength=ordered.keys.n)
    return Entries(Rows(np.cumsum(lengths) - lengths, lengths, times, inputs), source, key)


def check_inputs(reads: Sequence[Input], schema: pa.Schema) -> None:
    """Raise ``ValueError`` if conditions or weights cannot be computed from data of a schema."""
    for read in reads:
        if not isinstance(read, Tick):
            if isinstance(read, Weight) and read.column not in schema.names:
                raise ValueError(
                    f"the data has no column {read.column!r} of weights; {nearest(read.column, schema.names)}"
                )
            _evaluated(read, schema.empty_table())


def _is_sorted(columns: Sequence[NDArray[Any]]) -> bool:
    undecided = np.ones(max(len(columns[0]) - 1, 0), np.bool_)
    for column in columns:
        step = np.diff(column)
        if (step[undecided] < 0).any():
            return False
        undecided &= step == 0
        if not undecided.any():
            return True
    return True


def _instants(ordered: Sorted, ticks: Sequence[Tick], end: int, *, is_filled: bool) -> Ints:
    """Return all ticks in the time range of the rows, ascending."""
    seen = ordered.before[ordered.before > _NEVER]
    low = min(int(ordered.times.min(initial=2**62)), int(seen.min(initial=2**62)))
    if is_filled:
        low = min(low, ordered.keys.first)
    if not ticks or low > end:
        return np.zeros(0, np.int64)
    return np.unique(np.concatenate([tick.instants(low, end) for tick in ticks]))


def _between(ordered: Sorted, instants: Ints, until: int | None, *, is_filled: bool) -> tuple[Ints, Ints]:
    """Return the ticks of each key between its rows: from the time of a row up to the time of the next row,
    exclusive.
    """
    key, times = ordered.key, ordered.times
    since = np.empty_like(times)
    since[1:] = times[:-1]
    heads = np.flatnonzero(np.diff(key, prepend=-1))
    since[heads] = ordered.before[key[heads]]
    # without fill, a key has no ticks before its first row
    since = np.where(since == _NEVER, ordered.keys.first if is_filled else times, since)
    low, high = np.searchsorted(instants, since), np.searchsorted(instants, times)
    if until is not None:
        low = np.append(low, np.searchsorted(instants, ordered.keys.latest))
        high = np.append(high, np.full(ordered.keys.n, np.searchsorted(instants, until)))
        key = np.append(key, np.arange(ordered.keys.n))
    counts = np.maximum(high - low, 0)
    upper = np.cumsum(counts)
    place = np.arange(int(upper[-1]) if len(upper) else 0) - np.repeat(upper - counts - low, counts)
    return np.repeat(key, counts), instants[place]


def _evaluated(read: Condition | Weight, table: pa.Table) -> NDArray[Any]:
    if isinstance(read, Condition):
        return sql.rows_where(read.text, table)
    weights = normalize(table.column(read.column))
    if not pa.types.is_integer(weights.type):
        raise TypeError(f"weights must be whole numbers; the column {read.column!r} has type {shown(weights.type)}")
    try:
        values: Ints = pc.fill_null(weights, 0).cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid:
        heaviest = pc.max(weights).as_py()
        raise ValueError(
            f"weights must be whole numbers up to 2^63 - 1; the column {read.column!r} has {heaviest}"
        ) from None
    if len(values) and values.min() < 0:
        raise ValueError(f"weights must be whole numbers of at least 0; the column {read.column!r} has {values.min()}")
    return values


def _shown(micros: int) -> str:
    return str(np.datetime64(int(micros), "us"))
