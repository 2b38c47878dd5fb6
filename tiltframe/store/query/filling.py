"""Filling: add windows without rows to the results of a query, and replace missing values.

states ──▶ add an empty state for each missing window and key ──▶ results ──▶ null, zero, previous or linear
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import partial, reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arrow import compute as pc
from aggr.arrow.normalize import one_array, zero_of
from aggr.groups.groups import Groups, group_by
from aggr.tables.by_key import key_column, merge_by
from tiltframe.event_time import INSTANT
from tiltframe.instants import instants_of
from tiltframe.names import END, FILLED, START
from tiltframe.ranges import EVER
from tiltframe.store.query.limits import MAX_ROWS
from tiltframe.time_range import fill_open_ends
from windows.timezone import Instants

if TYPE_CHECKING:
    from tiltframe.store.query.plan import QueryPlan

Indices = NDArray[np.intp]
Marks = NDArray[np.bool_]
# Whole numbers and decimals below this bound are interpolated as doubles. A decimal is compared with the bound without
# its decimal point: 1.50 counts as 150. Larger numbers are interpolated exactly, because a double would not round them
# correctly.
_EXACT_DOUBLES = 2.0**50
_DECIMAL_PRECISION = 80  # the precision of decimal arithmetic; an Arrow decimal has at most 76 digits


def empty_rows_of_all_windows(states: pa.Table, plan: QueryPlan, now: int) -> pa.Table:
    """Return a row for every window in the range up to ``now`` and every key that occurs in ``states``. The rows have
    the state of a group without rows. ``now`` is in microseconds UTC. Raise ``ValueError`` if there would be more than
    `MAX_ROWS` rows.
    """
    starts = instants_of(states)
    if len(starts):
        low, high = fill_open_ends(plan.within, (int(starts.min()), int(starts.max()) + 1))
    else:  # no state bounds an open range, so it has no windows
        low, high = (0, 0) if set(EVER) & set(plan.within) else plan.within
    high = min(high, now + 1)
    window_starts = plan.window.starts_between(low, high) if low < high else np.array([], np.int64)
    keys = merge_by(states, {name: key_column(states.column(name)) for name in plan.keys}, {}) if plan.keys else None
    key_count = 1 if keys is None else keys.num_rows
    if len(window_starts) * key_count > MAX_ROWS:
        raise ValueError(
            f"filling would return {len(window_starts) * key_count:,} rows, but at most {MAX_ROWS:,} are allowed; use "
            "a shorter range, fewer keys or coarser windows"
        )
    window_columns = ((START, window_starts), (END, plan.window.ends(window_starts)))
    grid = {name: pa.array(np.repeat(at, key_count)).cast(INSTANT) for name, at in window_columns}
    for name in plan.keys:
        assert keys is not None
        grid[name] = keys.column(name).take(pa.array(np.tile(np.arange(key_count), len(window_starts))))
    # Added windows have the state of a group without rows. A null state would mean that the measure did not exist yet.
    for name in plan.states:
        empty_state = plan.frame.state_functions[name].merge(pa.nulls(1, states.column(name).type), Groups.each(1))
        grid[name] = empty_state.take(pa.array(np.zeros(len(window_starts) * key_count, np.int64)))
    return pa.table(grid, schema=states.schema)


def fill_values(results: pa.Table, rows_with_events: pa.Table, plan: QueryPlan, fill: str | bool) -> pa.Table:
    """Replace missing values in results by the method ``fill``, separately for each key. Add the column ``filled``,
    which is true if a window and key have no rows, and return the table. ``rows_with_events`` contains the windows and
    keys that have rows.
    """
    windows_and_keys = pa.concat_tables([table.select([START, *plan.keys]) for table in (rows_with_events, results)])
    windows, _ = group_by(
        [key_column(windows_and_keys.column(name)) for name in (START, *plan.keys)], windows_and_keys.num_rows
    )
    ids = windows.ids[rows_with_events.num_rows :]
    filled = np.bincount(windows.ids[: rows_with_events.num_rows], minlength=windows.n)[ids] == 0
    keys, _ = group_by([key_column(results.column(name)) for name in plan.keys], results.num_rows)
    gaps = _Gaps(instants_of(results), keys.ids, filled, keeps_null=str(fill).endswith("_gaps"))
    fill_functions: dict[str, Callable[[pa.Array], pa.Array]] = {
        "zero": partial(_fill_numbers, fill=_zero, gaps=gaps),
        "previous": partial(_previous, gaps=gaps),
        "linear": partial(_fill_numbers, fill=partial(_linear, gaps=gaps), gaps=gaps),
    }
    fill_function = fill_functions.get(str(fill).removesuffix("_gaps"))
    # If the query has the option ``edges``, the measures in ``complete_measures`` also have results for windows without
    # rows, so there is no value to replace.
    complete_measures = plan.read_to_edges if plan.edges is not None else ()
    if fill_function is not None:
        for name in plan.results:
            if name not in complete_measures:
                values = fill_function(one_array(results.column(name)))
                results = results.set_column(results.column_names.index(name), name, values)
    return results.append_column(FILLED, pa.array(filled))


@dataclass(frozen=True)
class _Gaps:
    """The windows and keys of the rows of results, with a mask of the rows that filling has added.

    Parameters
    ----------
    starts : array, shape (rows,)
        The start of each row's window, in microseconds UTC.
    keys : array, shape (rows,)
        The integer id of each row's key.
    is_added : mask, shape (rows,)
        The rows that filling has added.
    keeps_null : bool
        Whether null results of windows with rows count as values, and are therefore not replaced.
    """

    starts: Instants
    keys: Indices
    is_added: Marks
    keeps_null: bool

    def rows_to_fill(self, values: pa.Array) -> Marks:
        """Return a mask of the rows whose value must be replaced."""
        if self.keeps_null:
            return self.is_added
        nulls: Marks = values.is_null().to_numpy(zero_copy_only=False)
        return self.is_added | nulls

    def neighbours(self, values: pa.Array) -> tuple[Indices, Indices]:
        """Return two arrays with one index per row. For each row, the first array contains the index of the nearest
        earlier row of the same key that has a value, and the second array the index of the nearest later row. A row
        that has a value is its own neighbour in both arrays. The index -1 means that there is no neighbour.
        """
        order = np.lexsort((self.starts, self.keys))
        places = np.arange(len(values))
        has_value = ~self.is_added
        if not self.keeps_null:
            has_value = has_value & values.is_valid().to_numpy(zero_copy_only=False)
        has_value = has_value[order]
        previous_with_value = np.maximum.accumulate(np.where(has_value, places, 0))
        next_with_value = np.minimum.accumulate(np.where(has_value, places, len(values) - 1)[::-1])[::-1]
        before = np.empty_like(order)
        after = np.empty_like(order)
        for neighbour, at in ((before, previous_with_value), (after, next_with_value)):
            usable = has_value[at] & (self.keys[order][at] == self.keys[order])
            neighbour[order] = np.where(usable, order[at], -1)
        return before, after


def _fill_numbers(values: pa.Array, fill: Callable[[pa.Array], pa.Array], gaps: _Gaps) -> pa.Array:
    """Return ``values`` with missing numbers replaced, also in the fields of records. ``fill`` is a function that
    replaces the missing numbers of one column. Columns of other types are returned unchanged.
    """
    kind = values.type
    if pa.types.is_struct(kind):
        children = [_fill_numbers(child, fill, gaps) for child in values.flatten()]
        is_all_null = reduce(pc.and_, [child.is_null() for child in children], values.is_null())
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=is_all_null)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return pc.if_else(pa.array(gaps.rows_to_fill(values)), fill(values), values)
    return values


def _zero(values: pa.Array) -> pa.Array:
    return values.fill_null(zero_of(values.type))


def _previous(values: pa.Array, gaps: _Gaps) -> pa.Array:
    before, _ = gaps.neighbours(values)
    return pc.if_else(pa.array(gaps.rows_to_fill(values)), values.take(pa.array(before, mask=before < 0)), values)


def _linear(values: pa.Array, gaps: _Gaps) -> pa.Array:
    """Return the values of the rows to fill, interpolated over time between the nearest values of the same key. All
    other rows, and rows before the first or after the last value of a key, are null.
    """
    before, after = gaps.neighbours(values)
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    is_between = gaps.rows_to_fill(values) & (before >= 0) & (after >= 0)
    # The index -1, which stands for a missing neighbour, selects the last row here. ``is_between`` is false for the
    # rows that have a missing neighbour.
    between = np.flatnonzero(is_between & valid[before] & valid[after])
    low = before[between]
    high = after[between]
    starts = gaps.starts
    share = (starts[between] - starts[low]) / (starts[high] - starts[low])
    numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    interpolated = numbers[low] + (numbers[high] - numbers[low]) * share
    is_large = np.zeros(len(between), np.bool_)
    if not pa.types.is_floating(values.type):
        scale = values.type.scale if pa.types.is_decimal(values.type) else 0
        is_large = np.maximum(np.abs(numbers[low]), np.abs(numbers[high])) * 10.0**scale >= _EXACT_DOUBLES
    if pa.types.is_integer(values.type):
        interpolated = np.rint(interpolated)
    filled = pa.array(np.where(is_large, 0.0, interpolated)).cast(values.type)
    if is_large.any():
        exact = _interpolate_exactly(
            values, low[is_large], high[is_large], starts=starts, filled_times=starts[between][is_large]
        )
        filled = pc.replace_with_mask(filled, pa.array(is_large), exact)
    positions = np.full(len(values), -1)
    positions[between] = np.arange(len(between))
    return filled.take(pa.array(positions, mask=positions < 0))


def _interpolate_exactly(
    values: pa.Array, low: Indices, high: Indices, *, starts: Instants, filled_times: Instants
) -> pa.Array:
    """Return the interpolated values of a column of whole numbers or decimals, computed exactly and rounded half to
    even.

    ``low`` and ``high`` are the indices of the rows before and after each missing value. ``starts`` has
    the time of each row of ``values``, and ``filled_times`` the times of the missing values, in microseconds UTC.
    """
    scale = values.type.scale if pa.types.is_decimal(values.type) else 0
    with localcontext(prec=_DECIMAL_PRECISION):
        low_units, high_units = (
            [int(Decimal(number).scaleb(scale)) for number in values.take(pa.array(rows)).to_pylist()]
            for rows in (low, high)
        )
        units = [
            round(low_unit + Fraction((high_unit - low_unit) * (time - begin), end - begin))
            for (low_unit, high_unit), begin, time, end in zip(
                zip(low_units, high_units, strict=True),
                starts[low].tolist(),
                filled_times.tolist(),
                starts[high].tolist(),
                strict=True,
            )
        ]
        interpolated = [Decimal(unit).scaleb(-scale) for unit in units] if scale else units
    return pa.array(interpolated, values.type)
