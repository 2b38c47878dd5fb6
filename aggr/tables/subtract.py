"""Subtraction: the rows of some states taken out of others again, table by table."""

from __future__ import annotations

import pyarrow as pa

from aggr.arguments import checked_type, shown
from aggr.tables.by_key import check_subtractable, key_column, merge_by, subtract_by
from aggr.tables.identify import function_of, states_in


def subtract(states: pa.Table, gone: pa.Table) -> pa.Table:
    """Take the rows of some states out of others again.

    Parameters
    ----------
    states : table of keys and columns of states
        As a rollup gives it, for example; the columns without states are keys, and a key may come more than once.
    gone : table of the same columns
        States of rows that are among those of ``states``.

    Returns
    -------
    table
        The keys and the states of what is left, in the order of the keys. Keys of which nothing is left are left out.

    Raises
    ------
    TypeError
        For functions whose states do not tell what is left, by name: min, max, first, last, sets and lists.
    CannotSubtract
        As `aggr.Function.subtract`, and for a key that is not there; it names column and key. A ``ValueError``.
    ValueError
        If there are no states, or the columns of the tables differ.

    Guarantee
    ---------
    To the bit the states of the rows that are left.

    Examples
    --------
    >>> from aggr import Groups, Sum
    >>> a, b = Sum().reduce(pa.array([0.1, 1e300, 5.0]), Groups.of([0, 0, 1], 2)), Sum().reduce(pa.array([1e300, 5.0]),
    ...     Groups.each(2))
    >>> rest = subtract(pa.table({"host": ["a", "b"], "ms": a}), pa.table({"host": ["a", "b"], "ms": b}))
    >>> rest["host"].to_pylist(), Sum().finish(rest["ms"]).to_pylist()
    (['a'], [0.1])
    """
    names = states_in(checked_type(states, pa.Table, "states").schema)
    if not names or set(checked_type(gone, pa.Table, "gone").column_names) != set(states.column_names):
        both = " and ".join(", ".join(table.column_names) for table in (states, gone))
        raise ValueError(f"subtract takes two tables of the same columns, states among them; got {shown(both)}")
    functions = {name: function_of(states.column(name)) for name in names}
    check_subtractable(functions)
    keys = [name for name in states.column_names if name not in names]
    whole, part = (merge_by(t, {key: key_column(t.column(key)) for key in keys}, functions) for t in (states, gone))
    rest = subtract_by(whole, part, keys, functions)
    return rest.cast(pa.schema([field.with_metadata(states.field(field.name).metadata) for field in rest.schema]))
