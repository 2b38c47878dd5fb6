"""The windows of one level in memory: a table with one row per window and key, and functions that merge such tables.

A row has the bounds of the window, the key, the states, and several integers, such as the number of rows since the
window's last emission (see `MARKS`). All functions work on whole columns.

A batch merges only the states of windows for which it has new rows. All other windows in memory are compared with the
new windows by their bounds and keys, and are at most copied. The time for a batch is therefore proportional to the
number of its rows plus the number of windows in memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr import Function
from aggr.arrow import compute as pc
from aggr.groups.groups import Groups, group_by
from aggr.state_checks import mark_as_checked
from aggr.tables.keys import key_column
from tiltframe.instants import instants_of, with_bounds
from tiltframe.names import END, START
from tiltframe.streaming.state_blocks import (
    StateBlock,
    divide_states,
    filter_blocks,
    filter_rows,
    mask_unchanged,
    offsets_of,
)
from tiltframe.streaming.stored import StoredTable
from windows import TimeWindow
from windows.contract import check_nested
from windows.timezone import Instants

LOWEST = np.iinfo(np.int64).min
HIGHEST = np.iinfo(np.int64).max
# The value of ``last_arrival`` in `MARKS` for a window that has received rows since the last call of `advance`. The
# next call of `advance` replaces this value by the argument ``now``.
UNSTAMPED = HIGHEST

# The integers that are stored for each window. For each integer: the function that combines it when windows are merged,
# and its initial value. Times are in microseconds.
MARKS: dict[str, tuple[np.ufunc, int]] = {
    # the number of rows that arrived since the window's last emission
    "new_rows": (np.add, 0),
    # the number of the window's emissions
    "revision": (np.maximum, 0),
    # the arrival time of the window's last rows
    "last_arrival": (np.maximum, UNSTAMPED),
    # the end that the window had when a timeout closed it
    "closed_until": (np.maximum, LOWEST),
    # the start of the window's earliest pane; set only if windows are closed by newer events instead of a watermark
    "first_pane": (np.minimum, HIGHEST),
    # one bit per column of states that was added to the stream later: whether the window has rows that arrived before
    # the column was added, so that its state is unknown
    "unknown": (np.bitwise_or, 0),
}
# Three keys of the metadata of stored windows. The values are the schema of the states; the number of rows and the size
# in bytes of each block of states, as JSON; and, instead of the latter, the size of all states in version 5 of the
# format, in which a table has one block of states.
_SCHEMA = b"states"
_BLOCKS = b"blocks"
_BYTES = b"nbytes"
# If a level has more than this number of existing windows, `_may_be_merged` selects the windows that may have to be
# merged with new windows. For fewer windows, the selection would take longer than the time that it saves.
_FEW = 256
# If at most this number of windows are merged on all levels together, they are merged in one call, because the fixed
# cost of a call then exceeds the time for the windows.
_FEW_ON_ALL_LEVELS = 1 << 13
# the maximum number of chunks of a column; more chunks are copied into a single chunk, because each has a fixed cost
_MAX_CHUNKS = 16
Marks = Mapping[str, NDArray[np.int64]]


@dataclass(frozen=True)
class WindowTable:
    """The windows of one level in memory, one row for each window and key."""

    # window_start, window_end and keys; also the states, unless they are in ``blocks``
    index: pa.Table
    # the integers of each window, by their names in `MARKS`
    marks: Marks
    # the states of the rows of ``index``, if some of them were read from a saved stream; otherwise empty
    blocks: tuple[StateBlock, ...] = ()
    # the stored form of ``index`` and ``marks``, if they were read from a saved stream and have not changed; otherwise
    # None
    stored: StoredTable | None = None

    @classmethod
    def from_stored(cls, stored: StoredTable, find_states: Callable[[int | None], StoredTable]) -> WindowTable:
        """Return the windows that `to_stored` has converted to stored tables. ``stored`` has the bounds, the keys and
        the integers of `MARKS`.

        ``find_states`` receives the start of the first window of a block of states, in microseconds UTC, and returns
        the block. It receives None for the only block of windows that were saved in version 5 of the format.
        """
        index = stored.table
        metadata = index.schema.metadata
        schema = pa.ipc.read_schema(pa.py_buffer(metadata[_SCHEMA]))
        marks = {name: index.column(f"__{name}").to_numpy().copy() for name in MARKS}
        index = index.drop_columns([f"__{name}" for name in MARKS]).replace_schema_metadata()
        is_current = _BLOCKS in metadata
        if not (index.num_rows and len(schema)):
            rows = index if index.num_rows else pa.schema([*index.schema, *schema]).empty_table()
            return cls(rows, marks, stored=stored if is_current else None)
        if not is_current:
            return cls(index, marks, (StateBlock(find_states(None), schema, index.num_rows, int(metadata[_BYTES])),))
        sizes = json.loads(metadata[_BLOCKS])
        first_rows = np.cumsum([0, *(rows for rows, _ in sizes[:-1])])
        blocks = (
            StateBlock(find_states(start), schema, rows, nbytes)
            for start, (rows, nbytes) in zip(instants_of(index)[first_rows].tolist(), sizes, strict=True)
        )
        return cls(index, marks, tuple(blocks), stored)

    def to_stored(self, columns: Sequence[str]) -> tuple[StoredTable, dict[int, StoredTable]]:
        """Return the windows as stored tables: one with the bounds, the keys and the integers of `MARKS`, and blocks of
        states, by the start of their first window, in microseconds UTC.

        ``columns`` are the names of the columns of bounds and keys. Tables that were read from a saved stream and have
        not changed are not encoded again.
        """
        table = self if self.stored is not None else self._in_blocks_of_windows(columns)
        first_starts = table.starts[offsets_of(table.blocks)[:-1]].tolist()
        blocks = {start: block.to_stored() for start, block in zip(first_starts, table.blocks, strict=True)}
        # Blocks are found by their first start, so the states of one of them would be lost.
        if len(blocks) < len(table.blocks):
            raise AssertionError(f"two blocks of states begin with windows of the same start: {sorted(first_starts)}")
        if table.stored is not None:
            return table.stored, blocks
        index = table.index.select(list(columns))
        for name in MARKS:
            index = index.append_column(f"__{name}", pa.array(table.marks[name], pa.int64()))
        schema = pa.schema([field for field in self.schema if field.name not in columns])
        sizes = [[block.rows, block.nbytes] for block in table.blocks]
        metadata = {_SCHEMA: schema.serialize().to_pybytes(), _BLOCKS: json.dumps(sizes)}
        return StoredTable.encode(index.replace_schema_metadata(metadata)), blocks

    def _in_blocks_of_windows(self, columns: Sequence[str]) -> WindowTable:
        """Return the windows in another order, in which all states of the windows with the same start are in one block.
        Blocks of states that have not changed are kept.

        ``columns`` are the names of the columns of bounds and keys.
        """
        state_columns = [name for name in self.schema.names if name not in columns]
        if not len(self) or not state_columns:
            return self
        table = self.with_blocks(state_columns)
        if all(block.is_stored for block in table.blocks):
            return table
        is_unchanged = mask_unchanged(table.blocks, table.starts)
        changed = table.filter(~is_unchanged)
        starts = changed.starts
        if (np.diff(starts) < 0).any():
            changed = changed.take(np.argsort(starts, kind="stable"))
        states = changed.states.select(state_columns)
        blocks = divide_states(states, changed.starts)
        divided = WindowTable(changed.states.drop_columns(state_columns), changed.marks, tuple(blocks))
        return concat([table.filter(is_unchanged), divided]) if is_unchanged.any() else divided

    def with_blocks(self, state_columns: Sequence[str]) -> WindowTable:
        """Return the table with its states in ``blocks``. ``state_columns`` are the names of the columns of states."""
        if self.blocks:
            return self
        block = StateBlock.in_memory(self.index.select(list(state_columns)))
        return WindowTable(self.index.drop_columns(list(state_columns)), self.marks, (block,))

    def __len__(self) -> int:
        return int(self.index.num_rows)

    @cached_property
    def states(self) -> pa.Table:
        """The table with the columns window_start, window_end, keys and states."""
        table = self.index
        if self.blocks:
            states = pa.concat_tables([block.states for block in self.blocks])
            for field, column in zip(states.schema, states.columns, strict=True):
                table = table.append_column(field, column)
        return table

    @property
    def schema(self) -> pa.Schema:
        """The schema of `states`."""
        return pa.schema([*self.index.schema, *(self.blocks[0].schema if self.blocks else ())])

    @property
    def nbytes(self) -> int:
        """The size of `states` in memory, in bytes."""
        return int(self.index.nbytes) + sum(block.nbytes for block in self.blocks)

    @property
    def ends(self) -> Instants:
        """The ends of the windows, in microseconds UTC."""
        return instants_of(self.index, END)

    @property
    def starts(self) -> Instants:
        """The starts of the windows, in microseconds UTC."""
        return instants_of(self.index, START)

    @property
    def rows(self) -> int:
        """The number of rows that have arrived since the last emission of their window."""
        return int(self.marks["new_rows"].sum())

    def without_rows(self) -> WindowTable:
        """Return a table with the same columns and without rows."""
        return new_windows(self.schema.empty_table())

    def filter(self, rows: NDArray[np.bool_]) -> WindowTable:
        """Return the rows for which the mask ``rows`` is true. If the mask is true for all rows, return this object."""
        if rows.all():
            return self
        if not rows.any():
            return self.without_rows()
        marks = {name: m[rows] for name, m in self.marks.items()}
        return WindowTable(filter_rows(self.index, rows), marks, tuple(filter_blocks(self.blocks, rows)))

    def slice_rows(self, begin: int, end: int) -> WindowTable:
        """Return the rows from index ``begin`` to index ``end``, exclusively."""
        states = self.states.slice(begin, end - begin)
        return WindowTable(states, {name: m[begin:end] for name, m in self.marks.items()})

    def take(self, rows: NDArray[np.integer]) -> WindowTable:
        """Return the rows with the indices ``rows``, in this order."""
        if not len(rows):
            return self.without_rows()
        marks = {name: m[rows] for name, m in self.marks.items()}
        if len(self.blocks) < 2:
            return WindowTable(self.states.take(pa.array(rows)), marks)
        # Only blocks with these rows are decoded. ``before`` is the number of rows of other blocks before each block.
        offsets = offsets_of(self.blocks)
        block_numbers = np.searchsorted(offsets, rows, side="right") - 1
        is_needed = np.isin(np.arange(len(self.blocks)), block_numbers)
        block_rows = np.diff(offsets)
        before = np.cumsum(np.where(is_needed, 0, block_rows))
        needed = self.filter(np.repeat(is_needed, block_rows))
        return WindowTable(needed.states.take(pa.array(rows - before[block_numbers])), marks)

    def with_marks(self, **marks: NDArray[np.int64]) -> WindowTable:
        """Return the table with new values of some of the integers in `MARKS`, which are passed by name. If no value
        differs, return this object.
        """
        if all(np.array_equal(self.marks[name], new) for name, new in marks.items()):
            return self
        return replace(self, marks={**self.marks, **marks}, stored=None)

    def without_states(self, keys: Sequence[str]) -> WindowTable:
        """Return the table without the columns of states. ``keys`` are the names of the key columns."""
        return WindowTable(self.index.select([START, END, *keys]), self.marks)

    def without_columns(self, columns: Sequence[str]) -> WindowTable:
        """Return the table without the named columns of states. If no name is passed, return this object."""
        return WindowTable(self.states.drop_columns(list(columns)), self.marks) if columns else self

    def with_bounds(self, starts: Instants, end_times: Instants) -> WindowTable:
        """Return the table with the bounds ``starts`` and ``end_times``, in microseconds UTC, instead of its own."""
        return WindowTable(with_bounds(self.index, starts, end_times), self.marks, self.blocks)

    def with_missing_columns(self, schema: pa.Schema) -> WindowTable:
        """Return the table with a column of nulls for each column of ``schema`` that the table lacks. Columns are
        missing if measures were added to the stream after the windows were saved.
        """
        missing = [field for field in schema if field.name not in self.schema.names]
        if not missing:
            return self
        states = self.states
        for field in missing:
            states = states.append_column(field, pa.nulls(len(self), field.type))
        return WindowTable(states, self.marks)

    def states_with_unknown(self, added: Sequence[str]) -> pa.Table:
        """Return `states`, in which the states of added columns are null for the windows that have rows from before the
        column was added.

        ``added`` has the names of the added columns, in the order of the bits of ``unknown`` in `MARKS`.
        """
        states = self.states
        for bit, name in enumerate(added):
            unknown = self.marks["unknown"] >> bit & 1 != 0
            if name in states.column_names and unknown.any():
                rows = pa.array(np.arange(len(self)), mask=unknown)
                states = states.set_column(states.column_names.index(name), name, states.column(name).take(rows))
        return states

    def with_empty_states(self, rows: NDArray[np.bool_], functions: Mapping[str, Function]) -> WindowTable:
        """Return the table after the states of some windows are replaced by the state of a group without rows. ``rows``
        is the mask of the windows. ``functions`` maps columns of states to the functions that merge them.
        """
        states = self.states
        places = pa.array(np.where(rows, len(self), np.arange(len(self))))
        for name in functions.keys() & {*states.column_names}:
            column = states.column(name)
            function = functions[name]
            zero = function.merge(mark_as_checked(column.slice(0, 0)), Groups.of(np.zeros(0, np.int64), 1)).states
            new_column = pa.chunked_array([*column.chunks, zero]).take(places)
            states = states.set_column(states.column_names.index(name), name, new_column)
        return WindowTable(states, self.marks)


def new_windows(states: pa.Table, **marks: NDArray[np.int64]) -> WindowTable:
    """Return a `WindowTable` for a table with bounds, keys and states. Integers of `MARKS` that are not passed have
    their initial values.
    """
    n = states.num_rows
    return WindowTable(states, {name: marks.get(name, np.full(n, new)) for name, (_, new) in MARKS.items()})


def unknown_marks(states: pa.Table, added: Sequence[str]) -> NDArray[np.int64]:
    """Return, for each window of a table of states, an integer whose bit i is set if the state in the i-th column of
    ``added`` is null or missing.
    """
    marks = np.zeros(states.num_rows, np.int64)
    for bit, name in enumerate(added):
        unknown = states.column(name).is_null().to_numpy() if name in states.column_names else np.True_
        marks |= unknown.astype(np.int64) << bit
    return marks


def to_partial_windows(windows: WindowTable, level: TimeWindow) -> WindowTable:
    """Return the windows with the bounds of the coarser windows that contain them. The result can have several entries
    per coarser window and key. Each entry has the states of some rows of the coarser window.

    ``level`` is the coarser level. The windows of this level must follow each other without gaps.

    Raise ``ValueError`` if a window does not lie within one window of the level.
    """
    assigned = level.assign(windows.starts)
    check_nested(level, assigned, windows.starts, windows.ends)
    states = windows.with_bounds(assigned.starts, assigned.ends).states
    return new_windows(states, **{name: windows.marks[name] for name in ("new_rows", "last_arrival", "unknown")})


def concat(tables: Sequence[WindowTable]) -> WindowTable:
    """Return the rows of several tables of windows as one table, in the order of the tables."""
    filled = [table for table in tables if len(table)] or list(tables[:1])
    if len(filled) == 1:
        return filled[0]
    marks = {name: np.concatenate([table.marks[name] for table in filled]) for name in MARKS}
    with_blocks = _with_equal_blocks(filled)
    tables_of_rows = (
        [table.states for table in filled] if with_blocks is None else [table.index for table in with_blocks]
    )
    rows = pa.concat_tables(tables_of_rows, promote_options="default")
    if rows.column(0).num_chunks > _MAX_CHUNKS:
        rows = rows.combine_chunks()
    blocks = () if with_blocks is None else tuple(chain.from_iterable(table.blocks for table in with_blocks))
    return WindowTable(rows, marks, blocks)


def _with_equal_blocks(tables: Sequence[WindowTable]) -> list[WindowTable] | None:
    """Return the tables with their states in blocks of the same schema. Return None if no table has blocks, or if the
    tables have different columns of states, because measures were added to the stream.
    """
    schema = next((table.blocks[0].schema for table in tables if table.blocks), None)
    if schema is None or any(table.schema.names != tables[0].schema.names for table in tables):
        return None
    with_blocks = [table.with_blocks(schema.names) for table in tables]
    return with_blocks if all(block.schema == schema for table in with_blocks for block in table.blocks) else None


def merge_windows(
    present: WindowTable, new: WindowTable, level: TimeWindow, functions: Mapping[str, Function]
) -> WindowTable:
    """Merge new windows of a level into the existing ones, and return the windows of the level. Existing windows
    without new rows are returned unchanged.

    ``functions`` maps the columns of states to the functions that merge them.
    """
    return merge_levels([(present, new, level)], functions)[0]


def merge_levels(
    levels: Sequence[tuple[WindowTable, WindowTable, TimeWindow]], functions: Mapping[str, Function]
) -> list[WindowTable]:
    """Merge new windows of several levels into the existing ones, and return the windows of each level. Existing
    windows without new rows are returned unchanged.

    Parameters
    ----------
    levels : sequence of (existing windows, new windows, window of the level)
    functions : name -> function
        The functions that merge the columns of states. The functions do not check the states, because they were
        computed or already checked in this process.
    """
    parts = [_split_windows(*tables_and_window, functions) for tables_and_window in levels]
    changed_levels = [at for at, part in enumerate(parts) if part.groups]
    are_few = sum(len(parts[at].to_merge) for at in changed_levels) <= _FEW_ON_ALL_LEVELS
    tables = [part.unchanged for part in parts]
    # for each call of `_merge_groups`, the numbers of the levels whose windows it merges
    merged_together = [changed_levels] if are_few and changed_levels else [[at] for at in changed_levels]
    for level_numbers in merged_together:
        offsets = np.cumsum([0] + [parts[at].groups for at in level_numbers])
        ids = np.concatenate([parts[at].ids + offset for at, offset in zip(level_numbers, offsets, strict=False)])
        merged = _merge_groups(concat([parts[at].to_merge for at in level_numbers]), ids, functions)
        for at, begin, end in zip(level_numbers, offsets, offsets[1:], strict=False):
            tables[at] = concat([tables[at], merged.slice_rows(int(begin), int(end))])
    return tables


@dataclass(frozen=True)
class _SplitWindows:
    """The result of `_split_windows`: the windows of a level that stay unchanged, and those that are merged.

    Rows of ``to_merge`` with the same integer in ``ids`` are merged into one window; ``groups`` is the number of
    different integers.
    """

    unchanged: WindowTable
    to_merge: WindowTable
    ids: NDArray[np.int64]
    groups: int


def _split_windows(
    present: WindowTable, new: WindowTable, level: TimeWindow, functions: Mapping[str, Function]
) -> _SplitWindows:
    """Return the existing and the new windows of a level, split into windows that stay unchanged and windows to merge.

    The split is computed from tables with only bounds and keys. States are selected once, when the split is known.
    """
    none = np.zeros(0, np.int64)
    if not len(new):
        return _SplitWindows(present, new, none, 0)
    is_near = _may_be_merged(present.index, new.index, level, functions)
    keys = [name for name in new.index.column_names if name not in {START, END, *functions}]
    all_windows = _with_united_sessions(
        concat([present.without_states(keys).filter(is_near), new.without_states(keys)]), level, keys
    )
    groups, _ = group_by([key_column(all_windows.index.column(name)) for name in (START, *keys)], len(all_windows))
    if groups.n == len(all_windows):
        return _SplitWindows(concat([present, new]), new.without_rows(), none, 0)
    # for each group of windows with the same start and key, whether the group has several windows; these windows must
    # be merged into one
    has_several_rows = groups.counts() > 1
    is_merged = has_several_rows[groups.ids]
    is_present_merged = is_near.copy()
    is_present_merged[is_near] = is_merged[: len(all_windows) - len(new)]
    is_new_merged = is_merged[len(all_windows) - len(new) :]
    unchanged = concat([present.filter(~is_present_merged), new.filter(~is_new_merged)])
    to_merge = concat([present.filter(is_present_merged), new.filter(is_new_merged)])
    if level.is_merging:
        to_merge = to_merge.with_bounds(all_windows.starts[is_merged], all_windows.ends[is_merged])
    ids = (np.cumsum(has_several_rows) - 1)[groups.ids[is_merged]]
    return _SplitWindows(unchanged, to_merge, ids, int(has_several_rows.sum()))


def find_windows(
    sought: WindowTable, among: WindowTable, level: TimeWindow, keys: Sequence[str], *, among_all: bool = False
) -> NDArray[np.int64]:
    """For each window of ``sought``, return the index of the window of ``among`` with the same key and start, or -1 if
    there is none. For a session, return the index of a session of the same key that overlaps or touches it. ``keys``
    are the names of the key columns.

    If ``among_all`` is true, bounds are not compared: the result is the index of the last window of the same key.
    """
    columns = [START, END, *keys]
    all_rows = pa.concat_tables([t.index.select(columns) for t in (sought, among)])
    united = _with_united_sessions(WindowTable(all_rows, {}), level, keys).index
    compared_columns = keys if among_all else (START, *keys)
    groups, _ = group_by([key_column(united.column(name)) for name in compared_columns], len(all_rows))
    place_of_group = np.full(groups.n, -1)
    place_of_group[groups.ids[len(sought) :]] = np.arange(len(among))
    return np.asarray(place_of_group[groups.ids[: len(sought)]])


def sorted_indices(table: WindowTable, keys: Sequence[str]) -> NDArray[np.int64]:
    """Return the indices that sort windows by their start and then by the key columns ``keys``."""
    groups, _ = group_by([key_column(table.index.column(name)) for name in (START, *keys)], len(table))
    return np.argsort(groups.ids, kind="stable")


def _may_be_merged(
    present: pa.Table, new: pa.Table, level: TimeWindow, functions: Mapping[str, Function]
) -> NDArray[np.bool_]:
    """Return a mask of the existing windows that may have to be merged with new ones. The other existing windows need
    not be grouped with the new windows.

    The mask is false for a window if no new window has the same start, or if, for one of its key columns, no new window
    has the same value. The starts of sessions are not compared, because sessions with different starts can be merged.
    """
    near = np.ones(present.num_rows, np.bool_)
    if present.num_rows <= _FEW:
        return near
    # the columns of bounds that are not compared: the ends and, for sessions, the starts
    bounds = {START, END} if level.is_merging else {END}
    for name in present.column_names:
        if name not in bounds and name not in functions:
            values = new.column(name).unique()
            near &= pc.is_in(present.column(name), value_set=values).to_numpy()
    return near


def _with_united_sessions(both: WindowTable, level: TimeWindow, keys: Sequence[str]) -> WindowTable:
    """Return the rows of the table ``both`` after sessions of a key that overlap or touch are united: each row has the
    bounds of its united session. Windows that are not sessions are returned unchanged.
    """
    if not level.is_merging:
        return both
    groups, _ = group_by([key_column(both.index.column(name)) for name in keys], len(both))
    united = level.merge(groups.ids, both.starts, both.ends)
    return both.with_bounds(united.starts[united.ids], united.ends[united.ids])


def _merge_groups(to_merge: WindowTable, ids: NDArray[np.int64], functions: Mapping[str, Function]) -> WindowTable:
    """Return one window for each integer in ``ids``, merged from the rows of ``to_merge`` with this integer. Every
    integer from 0 to the largest occurs at least once.
    """
    groups = Groups.of(ids, int(ids.max()) + 1)
    rows = groups.rows_by_group
    until = groups.offsets
    states = to_merge.states
    same = [name for name in states.column_names if name not in functions]
    first_of_each = states.select(same).take(pa.array(rows[until[:-1]]))
    merged_states = {
        name: function.merge(mark_as_checked(states.column(name)), groups).states
        for name, function in functions.items()
        if name in states.column_names  # the column of an added measure is missing until rows arrive after the addition
    }
    columns = {
        name: merged_states[name] if name in merged_states else first_of_each.column(name)
        for name in states.column_names
    }
    marks = {name: merge.reduceat(to_merge.marks[name][rows], until[:-1]) for name, (merge, _) in MARKS.items()}
    return WindowTable(pa.table(columns), marks)
