"""Retention: the share of the keys in one map, such as the visitors of a week, that also occur in another map."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from aggr.arrow import compute as pc
from aggr.arrow.normalize import with_nulls
from aggr.arrow.row_hash import hash64
from aggr.function import Function
from aggr.functions.keyed_states import KeyedStates
from aggr.functions.value_lists import entries_of
from aggr.groups.groups import Groups, group_by
from aggr.state_checks import checked
from aggr.tables.identify import function_of


def retention(states: pa.Array, later: pa.Array) -> pa.Array:
    """Return the share of the keys in states that occur again in later states, row by row.

    Parameters
    ----------
    states, later : columns of states, shape (n,)
        States of `per`, or of functions with the state of `value_counts`. Each row has the states of one group in two
        windows, for example the visitors from one country in two weeks.

    Returns
    -------
    array of float64, shape (n,)
        The share is in [0, 1]. It is null if either state is null, if either group had more than ``max`` keys and the
        function has ``beyond="null"``, or if the state in ``states`` has no keys. The share is exact if both groups
        have at most ``max`` keys. The map of a group with more keys is a sample: it contains the keys whose hashes are
        below the threshold ``theta``. The share is then an estimate from the keys whose hashes are below the thresholds
        of both states. For a share ``p`` that was estimated from n keys, the standard error is ``sqrt(p (1 - p) / n)``.

    Raises
    ------
    TypeError, ValueError
        If columns contain other states, or differ in parameters or length.

    Examples
    --------
    >>> from aggr import ValueCounts
    >>> week, next_week = (ValueCounts().reduce(pa.array(list(x)), Groups.single(len(x))) for x in ("aabcd", "cdde"))
    >>> retention(week, next_week).to_pylist()
    [0.5]
    """
    function = function_of(states)
    name = next((name for name, field in function.own_state.fields.items() if isinstance(field, KeyedStates)), None)
    if name is None:
        raise TypeError(f"states of {function.name} have no keys; retention needs states of per or value_counts")
    pair = [checked(function, column).states for column in (states, later)]
    if len(states) != len(later):
        raise ValueError(
            f"retention compares row by row and needs two columns of equal length; got {len(states)} states and "
            f"{len(later)}"
        )
    valid = pc.and_(*(_has_map(function, column) for column in pair))
    maps = [column.filter(valid).field(name) for column in pair]
    thetas = np.minimum(*(column.field("theta").to_numpy() for column in maps))
    entries = [entries_of(column.field("entries"), Groups.each(len(column))) for column in maps]
    keys = pa.concat_arrays([structs.field("key") for structs, _ in entries])
    rows = np.concatenate([owners.ids for _, owners in entries])
    groups, _ = group_by([pa.array(rows), keys], len(keys))
    key_count = len(entries[0][0])
    is_in_both_samples = hash64(keys[:key_count]) < thetas[rows[:key_count]]
    is_in_later = np.isin(groups.ids[:key_count], groups.ids[key_count:])
    could_return, did_return = (
        np.bincount(rows[:key_count][is_counted], minlength=len(thetas))
        for is_counted in (is_in_both_samples, is_in_later)
    )
    return with_nulls(pa.array(did_return / np.maximum(could_return, 1), mask=could_return == 0), valid)


def _has_map(function: Function, states: pa.Array) -> pa.Array:
    """Return a mask of the states that have a map, even if the map is empty. A state without a map is null, or had too
    many keys.
    """
    is_beyond = function.own_state.beyond_limit(states)
    return states.is_valid() if is_beyond is None else pc.and_(states.is_valid(), pa.array(~is_beyond))
