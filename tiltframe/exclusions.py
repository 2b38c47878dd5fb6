"""Exclusions: two counts of data that is missing in results. One counts the groups with more values than a limit, for
which results are null. The other counts the values that a function does not accept and has skipped.

    collect("ms", max=100, beyond="null")    the result of a window and key with more than 100 values is null
    hdr("ms", bad_values="skip")             negative values, which hdr refuses, are not in the result

The counts are computed from states. They do not depend on how often rows were read and states were merged.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from aggr.arrays import Whole
from aggr.state import State
from aggr.tables.state_plan import StateColumn
from tiltframe.caller_warnings import warn_caller
from tiltframe.frame import TiltFrame
from tiltframe.names import LEVEL
from windows import TimeWindow

# a function that receives the sentences of a report, one per call
Note: TypeAlias = Callable[[str], object]
# the keys of the dict that `Exclusions.as_record` returns
BEYOND = "beyond"
REFUSED = "refused"


class BeyondLimit(UserWarning):
    """A warning: some groups have more values than the limit of a measure, and their results are null."""


class RefusedValues(UserWarning):
    """A warning: the function of a measure has refused and skipped some values."""


class Exclusions:
    """Two counts. The first is the number of groups with more values than the limit of their function, by column of
    states and level. The second is the number of refused values, by column of states.

    A group consists of the rows of one window and key. A group with more values than the limit has a null result.

    Parameters
    ----------
    frame : TiltFrame
    records : results of `as_record`, optional
        Earlier counts, for example those of several tasks. The new object begins with their sums.
    """

    def __init__(self, frame: TiltFrame, records: Iterable[Mapping[str, Any]] = ()) -> None:
        """Set the counts to the sums of the counts in the records, or to 0."""
        self._frame = frame
        self._states = excluded_states(frame.states)
        self._groups: Counter[tuple[str, str]] = Counter()
        self._values: Counter[str] = Counter()
        for record in records:
            self._values.update(record.get(REFUSED, {}))
            for name, by_level in record.get(BEYOND, {}).items():
                self._groups.update({(name, level): count for level, count in by_level.items()})

    @property
    def has_columns(self) -> bool:
        """Whether the frame has a function that may have groups beyond a limit, or may skip values."""
        return bool(self._states)

    def count_values(self, states: pa.Table) -> None:
        """Count the refused values in a table of states. The table contains the windows of one level, or the panes of
        these windows. Its windows must not overlap, because a value in two windows would be counted twice.
        """
        for name, state in self._states_in(states):
            self._values[name] += sum_excluded(state, states.column(name))[1]

    def count_groups(self, level: str, states: pa.Table) -> None:
        """Count the groups with more values than their limit in a table of states of one level, one row per group."""
        for name, state in self._states_in(states):
            self._groups[name, level] += sum_excluded(state, states.column(name))[0]

    def count_levels(self, states: pa.Table) -> None:
        """Count the groups with more values than their limit in a table with the states of all levels, such as the
        result of a rollup.
        """
        for name, state in self._states_in(states):
            counts = _group_counts(state, states.column(name))
            if counts is None:
                continue
            has_any = counts > 0
            levels = states.column(LEVEL).filter(pa.array(has_any))
            by_level = pa.table({LEVEL: levels.cast(pa.string()), "count": counts[has_any]}).group_by(LEVEL)
            for row in by_level.aggregate([("count", "sum")]).to_pylist():
                self._groups[name, row[LEVEL]] += row["count_sum"]

    def count_while_yielding(
        self, levels: Iterable[tuple[TimeWindow, pa.Table]]
    ) -> Iterator[tuple[TimeWindow, pa.Table]]:
        """Yield the pairs of ``levels`` unchanged. Meanwhile, count the groups of every level that have more values
        than their limit. Count the refused values on the finest level only.
        """
        for level, states in levels:
            self.count_groups(level.name, states)
            if level == self._frame.levels[0]:
                self.count_values(states)
            yield level, states

    def without_counts(self) -> Exclusions:
        """Return a copy in which all counts are 0."""
        fresh = copy.copy(self)
        fresh._groups = Counter()
        fresh._values = Counter()
        return fresh

    @property
    def groups(self) -> int:
        """The total number of groups with more values than their limit, in all columns of states and all levels."""
        return self._groups.total()

    @property
    def values(self) -> int:
        """The total number of refused values, in all columns of states."""
        return self._values.total()

    def add(self, other: Exclusions) -> None:
        """Add the counts of another object, which must have counted the same columns of states."""
        self._groups.update(other._groups)
        self._values.update(other._values)

    def subtract(self, other: Exclusions) -> None:
        """Subtract the counts of ``other``. The states that ``other`` has counted must be a part of the states that
        this object has counted.
        """
        self._groups.subtract(other._groups)
        self._values.subtract(other._values)

    @property
    def refused(self) -> dict[str, int]:
        """The number of refused values by column of states. Columns without refused values are left out."""
        return {name: count for name, count in self._values.items() if count}

    def as_record(self) -> dict[str, Any]:
        """Return the counts that are not 0, as a dict that JSON can represent."""
        beyond: dict[str, dict[str, int]] = {}
        for (name, level), count in self._groups.items():
            if count:
                beyond.setdefault(name, {})[level] = count
        return {REFUSED: self.refused, BEYOND: beyond}

    def report(self, note: Note | None = None) -> None:
        """Report each measure that has exclusions. The function ``note`` receives each sentence of the report. Without
        ``note``, each sentence becomes a warning, `BeyondLimit` or `RefusedValues`, which names the line that called
        the library.
        """
        for category, sentence in self._sentences():
            if note is None:
                warn_caller(sentence, category)
            else:
                note(sentence)

    def _states_in(self, table: pa.Table) -> list[tuple[str, State]]:
        """Return the name and the `State` of each column of states in a table. Only columns whose function limits the
        number of values of a group, or may skip values, are returned. A table that was computed before a measure was
        added to a stream does not have the column of this measure.
        """
        return [(name, state) for name, state in self._states.items() if name in table.column_names]

    def _sentences(self) -> Iterator[tuple[type[UserWarning], str]]:
        for column in self._frame.states:
            counts = {level.name: self._groups[column.name, level.name] for level in self._frame.levels}
            parts = [f"{count:,} at level {level}" for level, count in counts.items() if count]
            if parts:
                yield (
                    BeyondLimit,
                    f"{', '.join(column.serves)}, {column.measure!r}: the results of groups with more values than the "
                    f"limit are null: {', '.join(parts)}",
                )
        for column in self._frame.states:
            if count := self._values[column.name]:
                yield (
                    RefusedValues,
                    f"{', '.join(column.serves)}, {column.measure!r}: invalid values skipped: {count:,}",
                )


def excluded_states(columns: Iterable[StateColumn]) -> dict[str, State]:
    """Return the `State` of each column of states, by the name of the column. Only columns whose function limits the
    number of values of a group, or may skip values, are returned.
    """
    states = {column.name: column.measure.function.own_state for column in columns}
    return {name: state for name, state in states.items() if _may_exclude(state)}


def sum_excluded(state: State, states: pa.ChunkedArray) -> tuple[int, int]:
    """Return the number of groups with more values than the limit, and the number of refused values, in a column of
    states.
    """
    groups = 0
    values = 0
    for chunk in states.chunks:
        counts = state.excluded_counts(chunk.drop_null())
        groups += 0 if counts.groups is None else int(counts.groups.sum())
        values += 0 if counts.values is None else int(counts.values.sum())
    return groups, values


def _may_exclude(state: State) -> bool:
    """Return whether a state may have groups beyond a limit, or may skip values: whether its class overrides
    `State.beyond_limit` or `State.excluded_counts`.
    """
    state_class = type(state)
    return (
        state_class.beyond_limit is not State.beyond_limit or state_class.excluded_counts is not State.excluded_counts
    )


def _group_counts(state: State, states: pa.ChunkedArray) -> Whole | None:
    """Return an array of shape (rows,) with the number of groups beyond a limit for each row of a column of states.
    Return None if the state has no limit.
    """
    parts = []
    has_any = False
    for chunk in states.chunks:
        counts = np.zeros(len(chunk), np.int64)
        counts_of_valid = state.excluded_counts(chunk.drop_null() if chunk.null_count else chunk).groups
        if counts_of_valid is not None:
            counts[chunk.is_valid().to_numpy(zero_copy_only=False)] = counts_of_valid
            has_any = True
        parts.append(counts)
    return np.concatenate(parts) if has_any else None
