"""Lists in states: lists of values, sorted rows, series of events, maps from keys to states, and limits of the number
of elements.

>>> import numpy as np, pyarrow as pa
>>> from aggr.extend import Groups
>>> from aggr.extend.lists import entries_of, lists_of
>>> lists = lists_of(pa.array([1, 2, 3]), np.array([2, 0, 1]))
>>> lists.to_pylist(), entries_of(lists, Groups.each(3))[1].ids
([[1, 2], [], [3]], array([0, 0, 2]))
"""

from aggr.distinct.item_hashes import HASHABLE
from aggr.distinct.registers import Registers
from aggr.functions.event_lists import ORDERED_AT_TIMES, Series, SeriesFunction
from aggr.functions.keyed_states import SAMPLE, KeyedStates
from aggr.functions.limits import ERROR, NULL, check_beyond, check_max
from aggr.functions.value_counts import Counted, most_frequent_first
from aggr.functions.value_lists import (
    DEFAULT_MAX,
    OrderedRows,
    check_neighbours,
    check_set,
    checked_entries,
    entries_of,
    first_of_each,
    lists_of,
    values_of,
)

__all__ = [
    "DEFAULT_MAX",
    "ERROR",
    "HASHABLE",
    "NULL",
    "ORDERED_AT_TIMES",
    "SAMPLE",
    "Counted",
    "KeyedStates",
    "OrderedRows",
    "Registers",
    "Series",
    "SeriesFunction",
    "check_beyond",
    "check_max",
    "check_neighbours",
    "check_set",
    "checked_entries",
    "entries_of",
    "first_of_each",
    "lists_of",
    "most_frequent_first",
    "values_of",
]
