"""Tables by key: reduce, merge and finish complete tables, which have key columns and columns of states.

    host   latency (states)          host   p (results)
    a      {…}                 ──▶   a      {"count": …}
    b      {…}                       b      {"count": …}

There is one row per group, in the order of the keys, with null last. A tilt frame adds the start of the window as
another key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from aggr import sql
from aggr.arguments import checked_type, listed, nearest, shown
from aggr.arrays import Flags, Ids
from aggr.arrow import compute as pc
from aggr.arrow.damaged_state import DamagedState
from aggr.arrow.normalize import normalize, one_array
from aggr.errors import with_text
from aggr.fields import ROWS_NOT_IN_STATE, CannotSubtract
from aggr.function import Function
from aggr.groups.groups import Groups, group_by
from aggr.measure import Measure
from aggr.neighbours import Neighbours
from aggr.python_objects import python_objects
from aggr.state import CANNOT_SUBTRACT
from aggr.state_checks import CheckedStates, arrow_of, checked_like
from aggr.tables.identify import function_of, states_in
from aggr.tables.keys import Keys, key_columns, key_fields, names_with_keys, plain_keys, schema_with_keys
from aggr.tables.keys import key_column as key_column
from aggr.tables.keys import key_type as key_type
from aggr.tables.state_plan import StateColumn
from aggr.values import Values

Arrays = Mapping[str, pa.Array]


def reduce_by(
    rows: pa.Table,
    keys: Arrays,
    states: Sequence[StateColumn],
    times: pa.Array | None = None,
    carried: Arrays = MappingProxyType({}),
    timezone: str = "UTC",
) -> pa.Table:
    """Reduce rows to a table of keys and columns of states, with one row per group, in the order of the keys.

    ``keys`` are computed by `aggr.tables.keys`, and ``states`` by `aggr.tables.state_plan`. ``times`` are the event
    times, which functions such as first need. ``carried`` contains further columns, in which all rows of a group have
    the same value. In the result, these columns follow the keys.
    """
    groups, row_of_group = group_by(list(keys.values()), rows.num_rows)
    # Measures that read the same values share one `Values` object and its cached quantities.
    values: dict[object, Values] = {}
    reduced = {}
    for column in states:
        measure = column.measure
        # The key of ``values`` also contains the columns, because measures with equal ``reads`` may read different
        # columns. For example, one measure reads a text column, and another reads an additional column with the texts
        # as numbers (`aggr.sql.number_columns`).
        value_key = measure.reads, measure.columns(rows.column_names)
        if value_key not in values:
            values[value_key] = measure.values(rows, groups, times, timezone)
        try:
            reduced[column.name] = measure.reduce_values(values[value_key])
        except (TypeError, ValueError, OverflowError) as error:
            raise _error_with_key(
                error, keys, row_of_group, _first_rejected_group(measure, values[value_key])
            ) from error.__cause__
    return pa.table(group_keys(keys, row_of_group) | group_keys(carried, row_of_group) | reduced)


def merge_by(
    states: pa.Table | CheckedStates,
    keys: Arrays,
    functions: Mapping[str, Function],
    max_ratio: float = 1.0,
    carried: Arrays = MappingProxyType({}),
    *,
    unknown: bool = False,
) -> pa.Table:
    """Merge states to a table with one row per group, in the order of the keys.

    ``functions`` contains the function of each column of states, and ``carried`` is described in `reduce_by`.
    `CheckedStates` are not checked again. If ``max_ratio`` is below 1, and the number of groups, divided by the number
    of rows of ``states``, is above ``max_ratio``, the states are returned unchanged. If ``unknown`` is true, the
    merged state of a group with a null state is null. Otherwise, null states are skipped.
    """
    table = arrow_of(states)
    groups, row_of_group = group_by(list(keys.values()), table.num_rows)
    if max_ratio < 1.0 and groups.n > max_ratio * table.num_rows:
        return table
    copied_ranges = _find_copied_ranges(states, functions, groups, row_of_group)
    merged = {}
    for name, function in functions.items():
        try:
            if copied_ranges is None:
                merged[name] = arrow_of(function.merge(states.column(name), groups))
            else:
                merged[name] = copied_ranges.merge(function, states.column(name), groups.n)
        except DamagedState:
            raise
        except (ValueError, OverflowError) as error:
            rejected_group = _first_unmergeable_group(function, states.column(name), groups)
            if rejected_group is None:
                raise
            measure = f"{name}, {function.name}"
            raise _error_with_key(error, keys, row_of_group, rejected_group, measure=measure) from error.__cause__
    if unknown:
        merged = {name: _null_if_unknown(merged[name], table.column(name), groups) for name in merged}
    return pa.table(group_keys(keys, row_of_group) | group_keys(carried, row_of_group) | merged)


# A range is copied if it has at least `_RANGE_GROUPS` groups, and if all such ranges together have at least the share
# `_RANGE_SHARE` of the rows.
_RANGE_GROUPS = 512
_RANGE_SHARE = 0.5


@dataclass(frozen=True)
class _CopiedRanges:
    """Ranges of rows that a merge copies, because each row is the only one of its group, and the rows are in the order
    of their groups. Tables that were reduced from consecutive ranges of time mostly consist of such rows.

    ``first_groups`` contains the first group of each range, ascending. ``first_rows`` contains the row of this group,
    and ``sizes`` the number of groups of each range. ``is_outside`` is a mask of the rows that are not in any range.
    ``remaining_groups`` contains the groups of the rows that are not in any range, numbered from 0.
    """

    first_groups: Ids
    first_rows: Ids
    sizes: Ids
    is_outside: Flags
    remaining_groups: Groups

    def merge(self, function: Function, states: pa.ChunkedArray | CheckedStates, count: int) -> pa.ChunkedArray:
        """Return the merged states of all ``count`` groups. The states of the rows in the ranges are copied."""
        column = arrow_of(states)
        remaining = checked_like(states, column.filter(pa.array(self.is_outside)))
        merged = arrow_of(function.merge(remaining, self.remaining_groups))
        pieces = list[pa.Array]()
        copied_group_count = 0
        end = 0  # the number of the first group after the previous copied range
        for group, row, size in zip(*map(np.ndarray.tolist, self._ranges), strict=True):
            pieces.append(merged.slice(end - copied_group_count, group - end))
            pieces += column.slice(row, size).chunks
            copied_group_count = copied_group_count + size
            end = group + size
        pieces.append(merged.slice(end - copied_group_count, count - end))
        return pa.chunked_array([piece for piece in pieces if len(piece)], merged.type)

    @property
    def _ranges(self) -> tuple[Ids, Ids, Ids]:
        return self.first_groups, self.first_rows, self.sizes


def _find_copied_ranges(
    states: pa.Table | CheckedStates, functions: Mapping[str, Function], groups: Groups, row_of_group: Ids
) -> _CopiedRanges | None:
    """Return the ranges of rows that a merge can copy, or None if a merge must process all rows.

    A merge must process all rows if the ranges contain too few rows, or if a state is unchecked, null or in the layout
    of an earlier release.
    """
    table = arrow_of(states)
    counts = groups.counts()
    if (
        not isinstance(states, CheckedStates)
        or groups.n <= _RANGE_GROUPS
        or (counts == 1).sum() < _RANGE_SHARE * table.num_rows
        or not all(_is_current(function, table.column(name)) for name, function in functions.items())
    ):
        return None
    is_alone = counts == 1
    continues = is_alone[1:] & is_alone[:-1] & (np.diff(row_of_group) == 1)
    first_groups = np.flatnonzero(np.append(True, ~continues))
    sizes = np.diff(first_groups, append=groups.n)
    is_long = sizes >= _RANGE_GROUPS
    first_groups = first_groups[is_long]
    sizes = sizes[is_long]
    if sizes.sum() < _RANGE_SHARE * table.num_rows:
        return None
    is_copied = np.zeros(groups.n, np.bool_)
    is_copied[_range_members(first_groups, sizes)] = True
    is_outside = ~is_copied[groups.ids]
    new_numbers = np.cumsum(~is_copied) - 1
    remaining_groups = Groups._trusted(new_numbers[groups.ids[is_outside]], int(groups.n - is_copied.sum()))
    return _CopiedRanges(
        first_groups,
        first_rows=row_of_group[first_groups],
        sizes=sizes,
        is_outside=is_outside,
        remaining_groups=remaining_groups,
    )


def _is_current(function: Function, states: pa.ChunkedArray) -> bool:
    """Return whether a column has no nulls, and all its states have the layout of this release.

    A merge of such a column can copy each state that is the only one of its group.
    """
    return not states.null_count and all(function.own_state.is_current(chunk) for chunk in states.chunks)


def _range_members(firsts: Ids, sizes: Ids) -> Ids:
    """Return the numbers in all ranges, shape (sizes.sum(),). Range i consists of ``sizes[i]`` numbers, and begins with
    ``firsts[i]``.
    """
    before = np.cumsum(sizes) - sizes
    return np.repeat(firsts - before, sizes) + np.arange(sizes.sum())


def _error_with_key(
    error: Exception, keys: Arrays, row_of_group: pa.Array, group: int | None, measure: str | None = None
) -> Exception:
    """Return an error like ``error``, with the keys of ``group`` added to the message. One of the keys may be the start
    of a window.

    The new message begins with ``measure``. Callers omit ``measure`` if the message of ``error`` already names the
    measure.
    """
    text = str(error) if measure is None else f"{measure}: {error}"
    if group is not None and keys:
        text += f" (at {_row_text(pa.table(group_keys(keys, row_of_group)), group)})"
    return with_text(error, text)


def _first_rejected_group(measure: Measure, values: Values) -> int | None:
    """Return the first group whose rows a measure rejects.

    Return None if the measure accepts the rows of every group when they are reduced separately, or if it rejects even
    a column without rows. In both cases, the error does not belong to a single group.
    """

    def is_rejected(low: int, high: int) -> bool:
        try:
            measure.reduce_values(values.filter((values.groups.ids >= low) & (values.groups.ids < high)))
        except (TypeError, ValueError, OverflowError):
            return True
        return False

    return _first_rejected_number(is_rejected, values.groups.n)


def _first_unmergeable_group(function: Function, states: pa.ChunkedArray | CheckedStates, groups: Groups) -> int | None:
    """Return the first group whose states cannot be merged, for example because a merged list would exceed its limit.

    Return None if the states of each group can be merged.
    """
    column = one_array(arrow_of(states))

    def is_rejected(low: int, high: int) -> bool:
        rows = (groups.ids >= low) & (groups.ids < high)
        try:
            function.merge(checked_like(states, column.filter(pa.array(rows))), groups.filter(rows))
        except (ValueError, OverflowError):
            return True
        return False

    return _first_rejected_number(is_rejected, groups.n)


def _first_rejected_number(is_rejected: Callable[[int, int], bool], n: int) -> int | None:
    """Return the first number in [0, n) that is rejected, found by bisection.

    ``is_rejected(low, high)`` returns whether a number in [low, high) is rejected. Return None if no number in [0, n)
    is rejected. Also return None if ``is_rejected(0, 0)`` is true: the range [0, 0) is empty, so the cause is not a
    number.
    """
    if n == 0 or is_rejected(0, 0):
        return None
    low = 0
    high = n
    while high - low > 1:
        middle = (low + high) // 2
        if is_rejected(low, middle):
            high = middle
        else:
            low = middle
    return low if is_rejected(low, high) else None


def subtract_by(
    states: pa.Table, subtracted: pa.Table, keys: Sequence[str], functions: Mapping[str, Function]
) -> pa.Table:
    """Return ``states`` without the rows of ``subtracted``. Keys without remaining rows are left out.

    Both tables are results of `merge_by` with one row per key. ``keys`` are the names of their key columns, and
    ``functions`` has the function of each column of states. If a state is null, which means unknown, the difference is
    null. A key is left out if at least one state is known, and no known state has rows. Rows that none of the functions
    count, for example because their values are null, are not seen.

    Raise `CannotSubtract` if ``states`` does not have a key of ``subtracted``. Also raise `CannotSubtract` if
    `aggr.Function.subtract` raises it for a state. The message names the key, and in the latter case also the column.
    """
    columns = [pa.chunked_array([*states.column(key).chunks, *subtracted.column(key).chunks]) for key in keys]
    groups, _ = group_by([normalize(column) for column in columns], states.num_rows + subtracted.num_rows)
    row_of_key = np.full(groups.n, -1)
    row_of_key[groups.ids[: states.num_rows]] = np.arange(states.num_rows)
    rows_of_keys = row_of_key[groups.ids[states.num_rows :]]
    if (rows_of_keys < 0).any():
        row = int(np.argmax(rows_of_keys < 0))
        raise CannotSubtract(row, ROWS_NOT_IN_STATE, f"the state at {_row_text(subtracted.select(keys), row)}")
    has_rows = np.zeros(len(rows_of_keys), np.bool_)
    is_any_known = np.zeros(len(rows_of_keys), np.bool_)
    result_rows = np.arange(states.num_rows)
    result_rows[rows_of_keys] = states.num_rows + np.arange(len(rows_of_keys))
    for name, function in functions.items():
        minuends = one_array(states.column(name))
        subtrahends = one_array(subtracted.column(name))
        is_known = pc.and_(minuends.take(pa.array(rows_of_keys)).is_valid(), subtrahends.is_valid()).to_numpy(
            zero_copy_only=False
        )
        rows = np.flatnonzero(is_known)
        try:
            differences = function.subtract(
                minuends.take(pa.array(rows_of_keys[rows])), subtrahends.take(pa.array(rows))
            )
        except CannotSubtract as error:
            row = int(rows[error.row])
            where = f" at {_row_text(subtracted.select(keys), row)}" if keys else ""
            raise CannotSubtract(row, error.reason, f"{name}, {function.name}{where}") from None
        has_rows[rows] |= function.own_state.row_counts(differences) > 0
        is_any_known |= is_known
        difference_rows = np.full(len(rows_of_keys), -1)
        difference_rows[rows] = np.arange(len(rows))
        differences = differences.take(pa.array(difference_rows, mask=difference_rows < 0))
        column = pa.concat_arrays([minuends, differences.cast(minuends.type)]).take(pa.array(result_rows))
        states = states.set_column(states.column_names.index(name), states.schema.field(name), column)
    is_kept = np.ones(states.num_rows, np.bool_)
    is_kept[rows_of_keys[is_any_known & ~has_rows]] = False
    return states.filter(pa.array(is_kept))


def check_subtractable(functions: Mapping[str, Function]) -> None:
    """Raise ``TypeError`` if the states of a column cannot be subtracted. The message names all such columns."""
    unsupported = [
        f"{name} ({function.name})" for name, function in functions.items() if not function.own_state.counted_by
    ]
    if unsupported:
        raise TypeError(CANNOT_SUBTRACT.format(f"the states of {listed(unsupported)}"))


def _null_if_unknown(merged: pa.Array, states: pa.ChunkedArray, groups: Groups) -> pa.Array:
    """Return the merged states, with null for each group that has a null in ``states``."""
    if not states.null_count:
        return merged
    unknown_groups = groups.ids[one_array(states).is_null().to_numpy(zero_copy_only=False)]
    is_known = np.ones(groups.n, np.bool_)
    is_known[unknown_groups] = False
    return merged.take(pa.array(np.arange(groups.n), mask=~is_known))


def finish_by(
    states: pa.Table | CheckedStates,
    keys: Sequence[str],
    measures: Mapping[str, tuple[str, Measure]],
    neighbours: Mapping[str, Neighbours] = MappingProxyType({}),
) -> pa.Table:
    """Return a table with the keys and the results of measures.

    ``measures`` maps the name of each result to the name of its column of states and its measure. Some results are
    also computed from points of the previous and the next window of the same key. For each such result, ``neighbours``
    contains the window and the key of each state. `CheckedStates` are not checked again. An error names the measure,
    and the keys of the first row whose result cannot be computed.
    """
    table = arrow_of(states)
    columns = {name: table.column(name) for name in keys}
    for name, (column, measure) in measures.items():
        try:
            columns[name] = measure.function.finish(states.column(column), neighbours.get(name))
        except (TypeError, ValueError, OverflowError) as error:
            row, reason = _first_unreadable(measure.function, table.column(column), error)
            where = f" at {_row_text(table.select(list(keys)), row)}" if keys and row is not None else ""
            error_with_measure = with_text(reason, f"{name}, {measure!r}{where}: {reason}")
            raise error_with_measure from error_with_measure.__cause__
    return pa.table(columns)


def _first_unreadable(function: Function, states: pa.ChunkedArray, error: Exception) -> tuple[int | None, Exception]:
    """Return the first row whose result cannot be computed, and its error.

    Return None and ``error`` if the result of every single row can be computed.
    """
    low = 0
    high = len(states)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            function.finish(states.slice(low, middle - low))
            low = middle
        except (TypeError, ValueError, OverflowError) as finish_error:
            high = middle
            error = finish_error
    try:
        function.finish(states.slice(low, high - low))
    except (TypeError, ValueError, OverflowError) as finish_error:
        return low, finish_error
    return None, error


def _row_text(keys: pa.Table, row: int) -> str:
    """Return the keys of a row as text: times in ISO 8601, and other values in Python's notation."""
    key_values = {name: python_objects(keys.column(name).slice(row, 1))[0] for name in keys.column_names}
    texts = {k: v.isoformat() if hasattr(v, "isoformat") else repr(v) for k, v in key_values.items()}
    return ", ".join(f"{k}={text}" for k, text in texts.items())


def columns_of_keys_and_measures(keys: Keys, states: Sequence[StateColumn], names: Collection[str]) -> tuple[str, ...]:
    """Return the columns among ``names`` that the keys and the measures read.

    Raises ``ValueError`` for a column that does not exist, and for a text that is both the name of a column and an
    expression over other columns.
    """
    _check_columns_exist(plain_keys(keys), names)
    # The columns of keys are computed first, so that the error for an unknown name in a key mentions the key.
    columns_of_keys = key_columns(keys, names)
    needed = [name for name in columns_of_measures(keys, states, names) if name in names]
    return tuple(dict.fromkeys([*columns_of_keys, *needed]))


def columns_of_measures(keys: Keys, states: Sequence[StateColumn], names: Collection[str]) -> list[str]:
    """Return the columns that measures read: columns of the data, keys, and columns with the values of the entries of
    records (`aggr.sql.entry_columns`). A column may occur more than once.

    ``states`` contains a description of each column of states, and ``names`` the columns of the data. Raises
    ``ValueError`` for a column that does not exist.
    """
    readable = names_with_keys(keys, names)
    return [name for column in states for name in column.input_columns(readable)]


def _check_columns_exist(columns: Iterable[str], names: Collection[str]) -> None:
    for name in columns:
        if sql.column_in(name, names) is None:
            raise ValueError(f"the data has no column {shown(name)}; {nearest(name, names)}")


def check_rows(
    schema: pa.Schema, keys: Keys, states: Sequence[StateColumn], time: pa.DataType, more: Sequence[str] = ()
) -> None:
    """Raise ``ValueError`` or ``TypeError`` unless rows of a schema can be reduced.

    The keys must be valid. The schema must have the columns in ``more`` and the inputs of all measures, and the
    functions must accept their types. ``time`` is the type of the event times.
    """
    _check_columns_exist(more, schema.names)
    for name in [*more, *columns_of_keys_and_measures(keys, states, schema.names)]:
        if schema.names.count(name) > 1:
            raise ValueError(f"the data has several columns called {shown(name)}; rename all but one")
    schema = schema_with_keys(keys, schema) if key_fields(keys, schema) else schema
    for column in states:
        try:
            state_type = column.measure.function.state_type(column.measure.input_type(schema, time))
        except TypeError as error:
            raise TypeError(f"{', '.join(column.serves)}: {error} (the input is {column.measure.column!r})") from None
        except ValueError as error:
            raise ValueError(f"{', '.join(column.serves)}: {error}") from None
        for name, measure in column.readers.items():
            try:
                measure.function.result_type(state_type)
            except TypeError as error:
                raise TypeError(f"{name}: {error} (the input is {measure.column!r})") from None


def states_fields(
    schema: pa.Schema, keys: Keys, states: Sequence[StateColumn], time: pa.DataType | None = None
) -> list[pa.Field]:
    """Return the fields of a table of states that is reduced from rows of a schema: keys, then columns of states."""
    readable = schema_with_keys(keys, schema) if keys else schema
    state_types = [(c.name, c.measure.function.state_type(c.measure.input_type(readable, time))) for c in states]
    return [*key_fields(keys, schema), *(pa.field(name, dtype) for name, dtype in state_types)]


def group_keys(keys: Arrays, row_of_group: Ids) -> dict[str, pa.Array]:
    """Return the keys of groups in the types of key columns, from one row of each group.

    Parameters
    ----------
    keys : mapping of name -> array, shape (rows,)
    row_of_group : array of intp, shape (groups,)
        The index of a row of each group.

    Returns
    -------
    dict of name -> array, shape (groups,)
    """
    columns = {name: normalize(key.take(pa.array(row_of_group))) for name, key in keys.items()}
    return {name: key.cast(key_type(key.type)) for name, key in columns.items()}


def subtract(states: pa.Table, gone: pa.Table) -> pa.Table:
    """Subtract the states of some rows from the states of all rows, key by key.

    Parameters
    ----------
    states : table of keys and columns of states
        A table, such as the result of a rollup. The columns that do not contain states are keys. A key may occur more
        than once.
    gone : table of the same columns
        The states to subtract. For each key, they must be computed from a part of the rows from which the states of the
        same key in ``states`` were computed.

    Returns
    -------
    table
        The keys with their remaining states, in the order of the keys. Keys without remaining rows are left out.

    Raises
    ------
    TypeError
        If states of a function cannot be subtracted, such as states of min, max, first, last, sets and lists. The
        message names the columns of such states and their functions.
    CannotSubtract
        If a key of ``gone`` is not in ``states``, or if `aggr.Function.subtract` raises this error for a state. The
        error is a ``ValueError`` whose message names the key, and in the latter case also the column.
    ValueError
        If there are no states, or the tables have different columns.

    Guarantee
    ---------
    The result is bit-for-bit the states of the remaining rows.

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
        columns, columns_of_gone = (shown(", ".join(table.column_names)) for table in (states, gone))
        raise ValueError(
            "subtract needs two tables with the same columns, including columns of states; got tables with the columns "
            f"{columns} and {columns_of_gone}"
        )
    functions = {name: function_of(states.column(name)) for name in names}
    check_subtractable(functions)
    keys = [name for name in states.column_names if name not in names]
    minuend, subtrahend = (
        merge_by(t, {key: key_column(t.column(key)) for key in keys}, functions) for t in (states, gone)
    )
    differences = subtract_by(minuend, subtrahend, keys, functions)
    return differences.cast(
        pa.schema([field.with_metadata(states.field(field.name).metadata) for field in differences.schema])
    )
