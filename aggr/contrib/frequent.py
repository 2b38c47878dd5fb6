"""frequent: the values with the most rows, among any number of distinct values, with a state of bounded size.

cells         a CountMin sketch: each value is counted in one cell per line. The smallest count among the cells of a
              value is an upper bound of the value's count.
candidates    the values with the smallest hashes of (value, event time); results list only these values

The cells and the candidates depend only on the rows, and not on how rows are divided into parts whose states are
merged. Cells are sums. Candidates are compared by the smallest hash of their rows. Every candidate of all rows is also
a candidate of one part: the part that contains the row with the candidate's smallest hash. The number of values with
smaller hashes is not greater in this part than in all rows.

Source: Cormode, Muthukrishnan, "An improved data stream summary: the count-min sketch", 2005; Kirsch, Mitzenmacher,
"Less hashing, same performance", 2006; Broder, "On the resemblance and containment of documents", 1997.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import ClassVar

import numpy as np
import pyarrow as pa

from aggr.extend import (
    COUNT,
    EVENT_TIME,
    ORDERED,
    Buckets,
    DamagedState,
    Field,
    Function,
    Groups,
    Histograms,
    State,
    Values,
)
from aggr.extend.arguments import shown
from aggr.extend.columns import Whole, extreme_by_group, field_of_type, group_by, hash64, normalize_floats, order_keys
from aggr.extend.hashes import NO_THRESHOLD
from aggr.extend.lists import check_neighbours, check_set, checked_entries, entries_of, first_of_each, lists_of

# The number of lines of cells. With five lines, the probability is at least 1 - e^-5 that in one line or more, the
# count of a value exceeds the true count by at most ``overcount`` (see `Frequent`).
_LINES = 5
# The number of candidates of a state for each value that can be frequent. At most 1 / share values can be frequent, so
# a state has 10 / share candidates. The same factor determines the number of cells per line, e · 10 / share. A line of
# a CountMin sketch with e / ε cells per line counts a value at most ε · N too high, with a probability of at least
# 1 - 1/e. Here, ε is share / 10.
_CANDIDATES_PER_VALUE = 10
_MIN_SHARE = 1e-4
# The first pass of `keep_candidates` reads only the rows with the smallest hashes. This is the expected number of rows
# that it reads, as a multiple of the number of candidates to find.
_ROWS_PER_CANDIDATE = 4


@dataclass(frozen=True)
class Candidates(Field):
    """The field of a state that contains the ``max_values`` values with the smallest hashes, in the order of hashes."""

    max_values: int

    def keep_candidates(self, values: pa.Array, hashes: Whole, groups: Groups) -> pa.ListArray:
        """Return a list of pairs (hash, value) for each group: its distinct values with the smallest hashes.

        A list has ``max_values`` pairs, or fewer if the group has fewer distinct values. A first pass reads only rows
        with small hashes, which is faster. If a list is then too short, all rows are read.
        """
        shares = np.minimum(_ROWS_PER_CANDIDATE * self.max_values / np.maximum(groups.counts(), 1), 1.0)
        has_small_hash = hashes >> 1 < (shares * 2.0**62).astype(np.int64)[groups.ids]
        lists = self._least_hashes(
            values.filter(pa.array(has_small_hash)), hashes[has_small_hash], groups.filter(has_small_hash)
        )
        is_complete = (lists.value_lengths().to_numpy() == self.max_values) | (shares == 1.0)
        return lists if is_complete.all() else self._least_hashes(values, hashes, groups)

    def _least_hashes(self, values: pa.Array, hashes: Whole, groups: Groups) -> pa.ListArray:
        """Return the lists that `keep_candidates` describes, computed from all rows that are passed."""
        value_groups, first_rows = group_by([pa.array(groups.ids), values], len(values))
        least_hashes = extreme_by_group(hashes, value_groups, False)
        owners = Groups(groups.ids[first_rows], groups.n)
        # `group_by` returns the values of a group in ascending order. The sort is stable, so that values with equal
        # hashes remain in this order.
        by_hash = np.lexsort((least_hashes, owners.ids))
        order = first_of_each(by_hash, owners, self.max_values)
        columns = [pa.array(least_hashes[order]), values.take(pa.array(first_rows[order]))]
        entries = pa.StructArray.from_arrays(columns, names=["hash", "value"])
        return lists_of(entries, np.minimum(owners.counts(), self.max_values))

    def merge(self, column: pa.ListArray, groups: Groups) -> pa.ListArray:
        entries, owners = entries_of(column, groups)
        return self.keep_candidates(entries.field("value"), entries.field("hash").to_numpy(), owners)

    def thresholds(self, column: pa.ListArray) -> Whole:
        """Return one hash per state, shape (states,): all values with a smaller hash are candidates of the state. The
        hash is `NO_THRESHOLD` if all values of the state are candidates.

        ``column`` has the candidates of each state.
        """
        entries, owners = entries_of(column, Groups.each(len(column)))
        greatest = np.append(entries.field("hash").to_numpy(), 0)[owners.offsets[1:] - 1]
        return np.where(owners.counts() < self.max_values, NO_THRESHOLD, greatest)

    def check(self, column: pa.Array) -> None:
        entries, lengths = checked_entries(column, self.max_values)
        if not pa.types.is_struct(entries.type) or [f.name for f in entries.type] != ["hash", "value"]:
            raise DamagedState(f"has entries of type {entries.type}, not structs of hash and value")
        hashes = field_of_type(entries.field("hash"), pa.int64()).to_numpy()
        if len(hashes) and (hashes.min() < 0 or hashes.max() == NO_THRESHOLD):
            raise DamagedState("contains a hash that is not from 0 to 2^63 - 2")
        owners = np.repeat(np.arange(len(lengths)), lengths)
        column = entries.field("value")
        # `order_keys` does not accept nulls. If there are nulls, any order will do, because `check_set` raises an
        # error.
        values = np.zeros(len(column), np.int64) if column.null_count else order_keys(column)
        check_set(column.take(pa.array(np.lexsort((values, owners)))), lengths)
        is_ascending = (hashes[1:] > hashes[:-1]) | (hashes[1:] == hashes[:-1]) & (values[1:] > values[:-1])
        check_neighbours(is_ascending, lengths)


@dataclass(frozen=True)
class FrequentState(State):
    """The state of `Frequent`: the cells of a CountMin sketch, and the candidates.

    The candidates are the values with the smallest hashes.
    """

    share: float

    name = "frequent"
    parameters: ClassVar[Mapping[str, pa.DataType]] = {"share": pa.float64()}

    @property
    def fields(self) -> Mapping[str, Field]:
        return {"count": COUNT, "cells": self.cells_field, "candidates": self.candidates_field}

    @property
    def width(self) -> int:
        """The number of cells in one line of the CountMin sketch."""
        return math.ceil(math.e * _CANDIDATES_PER_VALUE / self.share)

    @property
    def cells_field(self) -> Buckets:
        """The field of the CountMin cells."""
        return Buckets(lowest_key=0, highest_key=_LINES * self.width - 1)

    @property
    def candidates_field(self) -> Candidates:
        """The field of the candidates."""
        return Candidates(math.ceil(_CANDIDATES_PER_VALUE / self.share))

    def reduce_values(self, values: Values) -> Mapping[str, pa.Array]:
        column = normalize_floats(values.field("value").array)
        times = values.field(EVENT_TIME).array
        if pa.types.is_timestamp(times.type):
            times = times.cast(pa.timestamp("us", times.type.tz), safe=False)
        rows = values.groups.rows_by_group
        groups = Groups(np.repeat(values.groups.ids[rows], _LINES), values.groups.n)
        cell_indices = self.cell_indices(hash64(column))[rows].ravel()
        if values.weights is None:
            cell_counts = self.cells_field.count(cell_indices, groups)
        else:
            cell_counts = self.cells_field.count_weighted(cell_indices, np.repeat(values.weights[rows], _LINES), groups)
        candidates = self.candidates_field.keep_candidates(column, hash64(column, times), values.groups)
        return {"count": pa.array(values.counts), "cells": cell_counts, "candidates": candidates}

    def cell_indices(self, hashes: Whole) -> Whole:
        """Return the index of the cell of each value in each line, shape (values, lines)."""
        first = hashes & 0x7FFFFFFF
        step = hashes >> 31
        columns = (first[:, np.newaxis] + step[:, np.newaxis] * np.arange(_LINES)) % self.width
        return columns + np.arange(_LINES) * self.width

    def check_consistency(self, states: pa.StructArray) -> None:
        counts = states.field("count").to_numpy()
        totals = states.field("cells").field("total").to_numpy()
        candidate_counts = states.field("candidates").value_lengths().to_numpy()
        if (counts * _LINES != totals).any() or ((counts > 0) != (candidate_counts > 0)).any():
            raise DamagedState("its count, its cells and its candidates cannot come from the same rows")


@dataclass(frozen=True)
class Frequent(Function):
    """List the values that occur in at least a certain share of the rows, with their counts, the most frequent first.

    The number of distinct values is not limited: the state has at most about 136 / share cells of a CountMin sketch (5
    lines of e · 10 / share cells), and 10 / share candidates. Both zeros count as one value, and all NaN count as one.
    For N rows,

    - a count is never below the true count. It exceeds the true count by more than ``overcount`` = N · share / 10 with
      a probability of at most e^-5 (0.7 %), so that the true share of a listed value may be a tenth below ``share``;
    - a value that occurs at m different times is missing from the list with the probability ``(1 - looked_at)^m``.
      ``looked_at`` in the result is the share of all hashes that are small enough for a candidate. For a value that has
      ``share`` of the rows, all at different times, the probability is at most e^-10 (0.005 %). With twice as many
      rows, it is at most e^-20. A value whose rows have only a few different times is missing more often, because m
      counts rows with equal value and time once;
    - as long as there are at most 10 / share distinct values, no value is missing, and ``looked_at`` is 1.

    These bounds do not hold for values that were chosen by their hashes, for example to hide a frequent value.

    Parameters
    ----------
    share : float from 0.0001 to 1
        The minimum share of the rows that a listed value must have. The state depends on this parameter.

    Raises
    ------
    ValueError
        If ``share`` is not a number from 0.0001 to 1.

    References
    ----------
    Cormode, Muthukrishnan, "An improved data stream summary: the count-min sketch", 2005.

    Examples
    --------
    >>> from aggr import frequent
    >>> frequent("path", share=0.02)
    frequent('path', share=0.02)
    """

    share: float = 0.01

    name = "frequent"
    takes = ORDERED
    keeps = "CountMin cells, and candidates by the least hashes of value and event time"
    returns = "record: count of rows, overcount, looked_at, values (a list of records of value and count)"
    guarantee = (
        "a count is never too low, and in 99.3 % of cases at most overcount too high; a value with m rows is missed "
        "with probability (1 - looked_at)^m"
    )
    inputs = ("value", EVENT_TIME)
    takes_weights = True

    def __post_init__(self) -> None:
        share = self.share
        if isinstance(share, bool) or not isinstance(share, Real) or not _MIN_SHARE <= share <= 1:
            raise ValueError(
                "share, the minimum fraction of the rows for a listed value, must be a number from 0.0001 to 1; got "
                f"{shown(share)}"
            )
        object.__setattr__(self, "share", float(share))

    @property
    def own_state(self) -> FrequentState:
        return FrequentState(self.share)

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        totals = states.field("count").to_numpy()
        entries, owners = entries_of(states.field("candidates"), Groups.each(len(states)))
        values = entries.field("value")
        counts = self._bounds(states.field("cells"), values, owners)
        is_frequent = counts >= self.share * totals[owners.ids]
        values = values.filter(pa.array(is_frequent))
        counts = counts[is_frequent]
        owners = owners.filter(is_frequent)
        order = np.lexsort((order_keys(values), -counts, owners.ids))
        entries_of_result = pa.StructArray.from_arrays(
            [values.take(pa.array(order)), pa.array(counts[order])], names=["value", "count"]
        )
        thresholds = self.own_state.candidates_field.thresholds(states.field("candidates"))
        columns = {
            "count": pa.array(totals),
            "overcount": pa.array((totals * (math.e / self.own_state.width)).astype(np.int64)),
            "looked_at": pa.array(np.where(thresholds == NO_THRESHOLD, 1.0, thresholds / 2.0**63)),
            "values": lists_of(entries_of_result, owners.counts()),
        }
        return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))

    def _bounds(self, cells: pa.StructArray, values: pa.Array, owners: Groups) -> Whole:
        """Return an upper bound of the count of each value, shape (values,): the smallest count among its cells.

        ``cells`` has the cells of all states, and ``owners`` the state of each value.
        """
        self.own_state.cells_field.check(cells)
        histograms = Histograms.from_arrow(cells)
        size = _LINES * self.own_state.width
        # ``cell_places`` has the index of each counted cell among the cells of all states. It ascends, as searchsorted
        # requires, because histograms are in the order of states, and the keys of a histogram ascend.
        cell_places = histograms.rows() * size + histograms.keys
        value_places = (owners.ids * size)[:, np.newaxis] + self.own_state.cell_indices(hash64(values))
        positions = np.minimum(np.searchsorted(cell_places, value_places), max(len(cell_places) - 1, 0))
        cell_counts = np.append(histograms.counts, 0)[positions]
        is_counted = np.append(cell_places, -1)[positions] == value_places
        bounds: Whole = np.where(is_counted, cell_counts, 0).min(axis=1, initial=np.iinfo(np.int64).max)
        return bounds
