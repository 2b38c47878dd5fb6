"""The windows of one level in memory: states by window and key, with marks. A mark is a number that is stored for each
window.

New states are merged into their windows. Windows without new rows are not copied. All functions work on whole columns,
so that the cost of a batch is proportional to its rows and the windows in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr import Function
from aggr.arrow import compute as pc
from aggr.groups.groups import Groups, group_by
from aggr.state_checks import mark_as_checked
from aggr.tables.keys import key_column
from tiltframe.event_time import INSTANT
from tiltframe.instants import instants_of
from tiltframe.names import END, START
from tiltframe.streaming.stored import StoredTable
from windows import TimeWindow
from windows.contract import check_nested
from windows.timezone import Instants

LOWEST, HIGHEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
UNSTAMPED = HIGHEST  # a `last_arrival` later than the clock's last known time

# For each mark of a window, the function that merges it and its initial value; times are in microseconds.
MARKS: dict[str, tuple[np.ufunc, int]] = {
    "new_rows": (np.add, 0),  # the number of rows since the window's last emission
    "revision": (np.maximum, 0),  # the number of the window's emissions
    "last_arrival": (np.maximum, UNSTAMPED),  # the time of the clock when the window's last rows arrived
    "closed_until": (np.maximum, LOWEST),  # the end at which a timeout closed the window
    "first_pane": (np.minimum, HIGHEST),  # the start of the window's earliest pane, if events close windows
    "unknown": (np.bitwise_or, 0),  # one bit for each added measure; it is set if rows of the window lack the measure
}
_SCHEMA, _BYTES = b"states", b"nbytes"  # the metadata keys of a stored index
_FEW = 256  # up to this number, windows are grouped without a search
# below this number, windows of all levels are merged in one call, because the cost is mostly that of the call
_TOGETHER = 1 << 13
_MOST_CHUNKS = 16  # the maximum number of chunks, because each chunk has a fixed cost
_FEW_RUNS = 4  # up to this number, contiguous ranges of rows are sliced instead of filtered
Marks = Mapping[str, NDArray[np.int64]]


@dataclass(frozen=True)
class StoredStates:
    """The columns of saved states, which are read when they are first needed."""

    table: StoredTable
    schema: pa.Schema
    nbytes: int  # the size in memory after they are read


@dataclass(frozen=True)
class WindowTable:
    """The windows of one level, one row for each window and key."""

    index: pa.Table  # the columns window_start, window_end and keys; also states, unless they are in ``state_columns``
    marks: Marks  # the marks, by their names in `MARKS`
    state_columns: StoredStates | None = None  # the states of the same rows
    stored: StoredTable | None = None  # the saved index and marks, if they have not changed

    @classmethod
    def of_stored(cls, stored: StoredTable, states: StoredTable) -> WindowTable:
        """Return the windows that `to_stored` has stored. The states of the windows are read when they are needed."""
        index, metadata = stored.table, stored.table.schema.metadata
        state_columns = StoredStates(states, pa.ipc.read_schema(pa.py_buffer(metadata[_SCHEMA])), int(metadata[_BYTES]))
        marks = {name: index.column(f"__{name}").to_numpy().copy() for name in MARKS}
        index = index.drop_columns([f"__{name}" for name in MARKS]).replace_schema_metadata()
        return cls(index, marks, state_columns, stored)

    def to_stored(self, columns: Sequence[str]) -> tuple[StoredTable, StoredTable]:
        """Return two stored tables: one with the named columns (times and keys) and the marks, and one with the states.

        A table that was read and has not changed is returned in its stored form.
        """
        states = self.index.drop_columns(list(columns))
        state_columns = self.state_columns or StoredStates(StoredTable.of(states), states.schema, states.nbytes)
        if self.stored is not None:
            return self.stored, state_columns.table
        index = self.index.select(list(columns))
        for name in MARKS:
            index = index.append_column(f"__{name}", pa.array(self.marks[name], pa.int64()))
        metadata = {_SCHEMA: state_columns.schema.serialize().to_pybytes(), _BYTES: str(state_columns.nbytes)}
        return StoredTable.of(index.replace_schema_metadata(metadata)), state_columns.table

    def __len__(self) -> int:
        return int(self.index.num_rows)

    @cached_property
    def states(self) -> pa.Table:
        """The table with window_start, window_end, keys and states."""
        table = self.index
        if self.state_columns is not None:
            for field, column in zip(self.state_columns.schema, self.state_columns.table.table.columns, strict=True):
                table = table.append_column(field, column)
        return table

    @property
    def schema(self) -> pa.Schema:
        """The schema of `states`."""
        more = () if self.state_columns is None else self.state_columns.schema
        return pa.schema([*self.index.schema, *more])

    @property
    def nbytes(self) -> int:
        """The size of `states` in memory."""
        return int(self.index.nbytes) + (0 if self.state_columns is None else self.state_columns.nbytes)

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
        """The number of new rows of each window since its last emission."""
        return int(self.marks["new_rows"].sum())

    def none(self) -> WindowTable:
        """Return a table of the same types without windows."""
        return new_windows(self.schema.empty_table())

    def filter(self, rows: NDArray[np.bool_]) -> WindowTable:
        """Return the windows for which a mask is true, or the table itself if it is true for all."""
        if rows.all():
            return self
        if not rows.any():
            return self.none()
        return WindowTable(_filtered(self.states, rows), {name: m[rows] for name, m in self.marks.items()})

    def between(self, begin: int, end: int) -> WindowTable:
        """Return the windows in a range of indices."""
        states = self.states.slice(begin, end - begin)
        return WindowTable(states, {name: m[begin:end] for name, m in self.marks.items()})

    def take(self, rows: NDArray[np.integer]) -> WindowTable:
        """Return windows by their indices."""
        if not len(rows):
            return self.none()
        return WindowTable(self.states.take(pa.array(rows)), {name: m[rows] for name, m in self.marks.items()})

    def marked(self, **marks: NDArray[np.int64]) -> WindowTable:
        """Return the table with some of the marks replaced, or the table itself if they are equal."""
        if all(np.array_equal(self.marks[name], new) for name, new in marks.items()):
            return self
        return replace(self, marks={**self.marks, **marks}, stored=None)

    def without_states(self, keys: Sequence[str]) -> WindowTable:
        """Return the table with only the columns of times and keys."""
        return WindowTable(self.index.select([START, END, *keys]), self.marks)

    def without(self, columns: Sequence[str]) -> WindowTable:
        """Return the table without some columns of states, or the table itself if it does not have these."""
        return WindowTable(self.states.drop_columns(list(columns)), self.marks) if columns else self

    def moved(self, starts: Instants, end_times: Instants) -> WindowTable:
        """Return the windows with new starts and ends, in microseconds UTC."""
        return WindowTable(with_bounds(self.states, starts, end_times), self.marks)

    def widened(self, like: pa.Schema) -> WindowTable:
        """Add the columns of a schema that the table lacks, because measures were added. They are null."""
        missing = [field for field in like if field.name not in self.schema.names]
        if not missing:
            return self
        states = self.states
        for field in missing:
            states = states.append_column(field, pa.nulls(len(self), field.type))
        return WindowTable(states, self.marks)

    def known_states(self, added: Sequence[str]) -> pa.Table:
        """Return the states. The state of an added measure is null if rows of the window lack the measure."""
        states = self.states
        for bit, name in enumerate(added):
            unknown = self.marks["unknown"] >> bit & 1 != 0
            if name in states.column_names and unknown.any():
                rows = pa.array(np.arange(len(self)), mask=unknown)
                states = states.set_column(states.column_names.index(name), name, states.column(name).take(rows))
        return states

    def with_zeros(self, rows: NDArray[np.bool_], functions: Mapping[str, Function]) -> WindowTable:
        """Return the table in which the states of some windows are replaced by the state of no rows."""
        states = self.states
        places = pa.array(np.where(rows, len(self), np.arange(len(self))))
        for name in functions.keys() & {*states.column_names}:
            column, function = states.column(name), functions[name]
            zero = function.merge(mark_as_checked(column.slice(0, 0)), Groups.of(np.zeros(0, np.int64), 1)).states
            both = pa.chunked_array([*column.chunks, zero]).take(places)
            states = states.set_column(states.column_names.index(name), name, both)
        return WindowTable(states, self.marks)


def _filtered(states: pa.Table, rows: NDArray[np.bool_]) -> pa.Table:
    """Return the rows for which a mask is true. Contiguous rows, such as windows that begin at the same time, are not
    copied.
    """
    edges = np.flatnonzero(np.diff(rows, prepend=False, append=False))
    if len(edges) > 2 * _FEW_RUNS:
        return states.filter(pa.array(rows))
    runs = zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
    return pa.concat_tables([states.slice(begin, end - begin) for begin, end in runs])


def with_bounds(states: pa.Table, starts: Instants, end_times: Instants) -> pa.Table:
    """Replace the starts and ends of windows, in microseconds UTC."""
    for name, micros in ((START, starts), (END, end_times)):
        states = states.set_column(states.column_names.index(name), name, pa.array(micros).cast(INSTANT))
    return states


def new_windows(states: pa.Table, **marks: NDArray[np.int64]) -> WindowTable:
    """Return a table of new windows; marks that are not passed have their initial values."""
    n = states.num_rows
    return WindowTable(states, {name: marks.get(name, np.full(n, new)) for name, (_, new) in MARKS.items()})


def unknown_in(states: pa.Table, added: Sequence[str]) -> NDArray[np.int64]:
    """Return the mark ``unknown`` of windows. A state is null if rows of the window lack it."""
    marks = np.zeros(states.num_rows, np.int64)
    for bit, name in enumerate(added):
        unknown = states.column(name).is_null().to_numpy() if name in states.column_names else np.True_
        marks |= unknown.astype(np.int64) << bit
    return marks


def as_parts_of(windows: WindowTable, level: TimeWindow) -> WindowTable:
    """Return windows as partial windows of a coarser level, whose windows are contiguous.

    Raise ``ValueError`` if a window crosses an edge of the level.
    """
    assigned = level.assign(windows.starts)
    check_nested(level, assigned, windows.starts, windows.ends)
    states = windows.moved(assigned.starts, assigned.ends).states
    return new_windows(states, **{name: windows.marks[name] for name in ("new_rows", "last_arrival", "unknown")})


def concat(tables: Sequence[WindowTable]) -> WindowTable:
    """Return the concatenation of tables of windows."""
    filled = [table for table in tables if len(table)] or list(tables[:1])
    if len(filled) == 1:
        return filled[0]
    states = pa.concat_tables([table.states for table in filled], promote_options="default")
    if states.column(0).num_chunks > _MOST_CHUNKS:
        states = states.combine_chunks()
    return WindowTable(states, {name: np.concatenate([t.marks[name] for t in filled]) for name in MARKS})


def merged(present: WindowTable, new: WindowTable, level: TimeWindow, functions: Mapping[str, Function]) -> WindowTable:
    """Merge new windows into existing ones. Windows without new rows are not changed."""
    return merged_levels([(present, new, level)], functions)[0]


def merged_levels(
    levels: Sequence[tuple[WindowTable, WindowTable, TimeWindow]], functions: Mapping[str, Function]
) -> list[WindowTable]:
    """On each level, merge new windows into existing ones. Windows without new rows are not changed.

    Each level is a tuple of the existing windows, the new windows and the window. ``functions`` merge the columns of
    states, which were computed or checked in this process and are not checked again.
    """
    parts = [_parted(*tables_and_window, functions) for tables_and_window in levels]
    several = [at for at, part in enumerate(parts) if part.groups]
    few = sum(len(parts[at].meeting) for at in several) <= _TOGETHER
    tables = [part.apart for part in parts]
    for ats in [several] if few and several else [[at] for at in several]:
        offsets = np.cumsum([0] + [parts[at].groups for at in ats])
        ids = np.concatenate([parts[at].ids + offset for at, offset in zip(ats, offsets, strict=False)])
        reduced = _reduced(concat([parts[at].meeting for at in ats]), ids, functions)
        for at, begin, end in zip(ats, offsets, offsets[1:], strict=False):
            tables[at] = concat([tables[at], reduced.between(int(begin), int(end))])
    return tables


@dataclass(frozen=True)
class _Parted:
    """The windows of a level. Windows in ``apart`` do not change. In ``meeting``, rows with the same id form one
    window.
    """

    apart: WindowTable
    meeting: WindowTable
    ids: NDArray[np.int64]
    groups: int


def _parted(present: WindowTable, new: WindowTable, level: TimeWindow, functions: Mapping[str, Function]) -> _Parted:
    """Determine from times and keys which rows form one window, so that states are copied only once."""
    none = np.zeros(0, np.int64)
    if not len(new):
        return _Parted(present, new, none, 0)
    near = _near(present.index, new.index, level, functions)
    keys = [name for name in new.index.column_names if name not in {START, END, *functions}]
    both = _united(concat([present.without_states(keys).filter(near), new.without_states(keys)]), level, keys)
    groups, _ = group_by([key_column(both.index.column(name)) for name in (START, *keys)], len(both))
    if groups.n == len(both):
        return _Parted(concat([present, new]), new.none(), none, 0)
    more = groups.counts() > 1
    several = more[groups.ids]
    of_held = near.copy()
    of_held[near] = several[: len(both) - len(new)]
    of_new = several[len(both) - len(new) :]
    apart = concat([present.filter(~of_held), new.filter(~of_new)])
    meeting = concat([present.filter(of_held), new.filter(of_new)])
    if level.is_merging:
        meeting = meeting.moved(both.starts[several], both.ends[several])
    return _Parted(apart, meeting, (np.cumsum(more) - 1)[groups.ids[several]], int(more.sum()))


def places(
    sought: WindowTable, among: WindowTable, level: TimeWindow, keys: Sequence[str], *, among_all: bool = False
) -> NDArray[np.int64]:
    """For each sought window, return the index of the window in ``among`` that equals or contains it, or -1 if there is
    none.

    With ``among_all``, any window of the same key counts, whatever its time.
    """
    columns = [START, END, *keys]
    both = pa.concat_tables([t.index.select(columns) for t in (sought, among)])
    united = _united(WindowTable(both, {}), level, keys).index
    by = keys if among_all else (START, *keys)
    groups, _ = group_by([key_column(united.column(name)) for name in by], len(both))
    place_of_group = np.full(groups.n, -1)
    place_of_group[groups.ids[len(sought) :]] = np.arange(len(among))
    return np.asarray(place_of_group[groups.ids[: len(sought)]])


def ordered(table: WindowTable, keys: Sequence[str]) -> NDArray[np.int64]:
    """Return the indices that sort windows by start and keys."""
    groups, _ = group_by([key_column(table.index.column(name)) for name in (START, *keys)], len(table))
    return np.argsort(groups.ids, kind="stable")


def _near(present: pa.Table, new: pa.Table, level: TimeWindow, functions: Mapping[str, Function]) -> NDArray[np.bool_]:
    """Return a mask of the existing windows that may equal new ones. Each column is checked separately, so that few
    windows have to be sorted.
    """
    near = np.ones(present.num_rows, np.bool_)
    if present.num_rows <= _FEW:
        return near
    bounds = {START, END} if level.is_merging else {END}  # sessions may touch sessions that have other starts
    for name in present.column_names:
        if name not in bounds and name not in functions:
            values = new.column(name).unique()
            near &= pc.is_in(present.column(name), value_set=values).to_numpy()
    return near


def _united(both: WindowTable, level: TimeWindow, keys: Sequence[str]) -> WindowTable:
    if not level.is_merging:
        return both
    groups, _ = group_by([key_column(both.index.column(name)) for name in keys], len(both))
    united = level.merge(groups.ids, both.starts, both.ends)
    return both.moved(united.starts[united.ids], united.ends[united.ids])


def _reduced(meeting: WindowTable, ids: NDArray[np.int64], functions: Mapping[str, Function]) -> WindowTable:
    """Merge the windows of each group. Every group has at least one window."""
    groups = Groups.of(ids, int(ids.max()) + 1)
    rows, until = groups.rows_by_group, groups.offsets
    states = meeting.states
    same = [name for name in states.column_names if name not in functions]
    first_of_each = states.select(same).take(pa.array(rows[until[:-1]]))
    merged = {
        name: function.merge(mark_as_checked(states.column(name)), groups).states
        for name, function in functions.items()
        if name in states.column_names  # an added column does not exist before its first rows
    }
    columns = {name: merged[name] if name in merged else first_of_each.column(name) for name in states.column_names}
    marks = {name: merge.reduceat(meeting.marks[name][rows], until[:-1]) for name, (merge, _) in MARKS.items()}
    return WindowTable(pa.table(columns), marks)
