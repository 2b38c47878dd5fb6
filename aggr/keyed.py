"""States by key: tables of key columns and columns of states, reduced, merged and finished as a whole.

    host   latency (states)          host   p (results)
    a      {…}                 ──▶   a      {"count": …}
    b      {…}                       b      {"count": …}

One row a group, in the order of the keys, null last. A tilt frame is this with the window's start as one more key.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from aggr.fields import canonical
from aggr.function import Function
from aggr.groups import group_by
from aggr.measure import Measure
from aggr.order import has_order
from aggr.plain import one_array, plain, plain_type
from aggr.plan import StateColumn

Keys = Mapping[str, pa.Array]


def reduce_by(rows: pa.Table, keys: Keys, states: Sequence[StateColumn], times: pa.Array | None = None) -> pa.Table:
    """Reduce rows to one state per group and column of states.

    Parameters
    ----------
    rows : table
        With the columns that the measures read.
    keys : name -> array of as many rows, from `key_column`
    states : columns of states, from `aggr.plan`
    times : array of timestamps, optional
        Event times, for first and last.

    Returns
    -------
    table of keys and states, in the order of the keys
    """
    groups, one = group_by(list(keys.values()), rows.num_rows)
    reduced = {c.name: c.measure.reduce(rows, groups, times) for c in states}
    return pa.table(_taken(keys, one) | reduced)


def merge_by(states: pa.Table, keys: Keys, functions: Mapping[str, Function], worth: float = 1.0) -> pa.Table:
    """Merge the states of each group; ``functions`` names the columns of states and what merges each.

    With ``worth`` below 1 the states are returned as they are where merging would leave more than this share of them.
    """
    groups, one = group_by(list(keys.values()), states.num_rows)
    if worth < 1.0 and groups.n > worth * states.num_rows:
        return states
    merged = {name: function.merge(states.column(name), groups) for name, function in functions.items()}
    return pa.table(_taken(keys, one) | merged)


def finish_by(states: pa.Table, keys: Sequence[str], measures: Mapping[str, tuple[str, Measure]]) -> pa.Table:
    """Read results: ``measures`` names each result, the column of states it is read from and its measure."""
    columns = {name: states.column(name) for name in keys}
    for name, (column, measure) in measures.items():
        try:
            columns[name] = measure.function.finish(states.column(column))
        except (ValueError, OverflowError) as error:
            raise type(error)(f"{name}, {measure!r}: {error}") from None
    return pa.table(columns)


def key_column(column: pa.ChunkedArray) -> pa.Array:
    """Read a key column; of floats, both zeros are one key and all NaN are one, as Spark groups them."""
    if pa.types.is_dictionary(column.type) and not pa.types.is_floating(column.type.value_type):
        return one_array(column)  # the codes are there already
    key = plain(column).cast(key_type(column.type))
    return canonical(pc.add(key, pa.scalar(0, key.type))) if pa.types.is_floating(key.type) else key


def key_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that a key column is kept as; one of nothing but nulls as text."""
    return pa.string() if pa.types.is_null(kind) else plain_type(kind)


def columns_read(keys: Sequence[str], states: Sequence[StateColumn]) -> tuple[str, ...]:
    """Name the columns of rows that are read: the keys, and what the measures need."""
    return tuple(dict.fromkeys([*keys, *(name for c in states for name in c.measure.columns())]))


def check_rows(
    schema: pa.Schema, columns: Sequence[str], keys: Sequence[str], states: Sequence[StateColumn], time: pa.DataType
) -> None:
    """Raise ``ValueError`` or ``TypeError`` unless rows of a schema have the columns, legal keys and legal inputs."""
    for name in columns:
        if name not in schema.names:
            near = difflib.get_close_matches(name, schema.names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(schema.names)}"
            raise ValueError(f"the data has no column {name!r}; {hint}")
    for name in keys:
        if not has_order(key_type(schema.field(name).type)):
            raise TypeError(
                f"the key {name!r} has type {schema.field(name).type}; keys must be of plain types, not nested"
            )
    for column in states:
        try:
            column.measure.function.state_type(column.measure.input_type(schema, time))
        except TypeError as error:
            raise TypeError(f"{', '.join(column.serves)}: {error} (its column is {column.measure.column!r})") from None


def states_fields(
    schema: pa.Schema, keys: Sequence[str], states: Sequence[StateColumn], time: pa.DataType | None = None
) -> list[pa.Field]:
    """Return the fields of the keys and the columns of states for rows of a schema."""
    kept = [(c.name, c.measure.function.state_type(c.measure.input_type(schema, time))) for c in states]
    return [pa.field(name, kind) for name, kind in [*((k, key_type(schema.field(k).type)) for k in keys), *kept]]


def _taken(keys: Keys, one: pa.Array) -> dict[str, pa.Array]:
    """Take each group's key."""
    taken = {name: plain(key.take(pa.array(one))) for name, key in keys.items()}
    return {name: key.cast(key_type(key.type)) for name, key in taken.items()}
