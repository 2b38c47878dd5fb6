"""Set operations on the distinct values of two columns of states of approx_count_distinct, row by row::

    left     visitors of Monday       union          visitors of either day
    right    visitors of Tuesday      intersection   visitors of both days
                                      difference     visitors of Monday without a visit on Tuesday
                                      jaccard        the size of the intersection divided by the size of the union

All operations except jaccard return states, which can be finished or passed to other operations. Results are exact as
long as both states contain the hashes of all their values, that is, as long as the theta of both states is 2^63 - 1,
the maximum.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from aggr.arrays import Whole
from aggr.arrow import compute as pc
from aggr.arrow.normalize import with_nulls
from aggr.arrow.row_hash import NO_THRESHOLD
from aggr.compiling.jit import Int, compiled
from aggr.distinct.least_hashes import Sketches
from aggr.functions.approx_count_distinct import ApproxCountDistinct
from aggr.groups.groups import Groups
from aggr.state_checks import checked
from aggr.tables.identify import function_of


def union(left: pa.Array, right: pa.Array) -> pa.Array:
    """Compute the union of the values of two columns of states, row by row, by merging them.

    Parameters
    ----------
    left, right : columns of states of approx_count_distinct, shape (n,)
        Columns of states with equal k.

    Returns
    -------
    column of states, shape (n,)
        The result is null if either state is null.

    Raises
    ------
    TypeError, ValueError
        If columns contain other states, or differ in k or length.

    Examples
    --------
    >>> from aggr import ApproxCountDistinct
    >>> monday, tuesday = (ApproxCountDistinct().reduce(pa.array(x), Groups.single(3)) for x in ([1, 2, 3], [2, 3, 4]))
    >>> ApproxCountDistinct().finish(union(monday, tuesday)).to_pylist()
    [4]
    """
    function, pair, valid = _checked_pair(left, right)
    n = len(pair[0])
    merged = function.merge(pa.concat_arrays(pair), Groups.of(np.tile(np.arange(n), 2), n))
    return with_nulls(merged, valid)


def intersection(left: pa.Array, right: pa.Array) -> pa.Array:
    """Compute the intersection of the values of two columns of states, row by row.

    The parameters and errors are those of `union`. The smaller the intersection is compared with the union, the larger
    is the error of its estimate, which `aggr.tables.accessors.bounds` returns.

    Returns
    -------
    column of states, shape (n,)
        The result is null if either state is null.

    Examples
    --------
    >>> from aggr import ApproxCountDistinct
    >>> monday, tuesday = (ApproxCountDistinct().reduce(pa.array(x), Groups.single(3)) for x in ([1, 2, 3], [2, 3, 4]))
    >>> ApproxCountDistinct().finish(intersection(monday, tuesday)).to_pylist()
    [2]
    """
    return _combine_sketches(left, right, True)


def difference(left: pa.Array, right: pa.Array) -> pa.Array:
    """Compute the values of the states in ``left`` that the states in ``right`` do not have, row by row.

    The parameters, the errors and the result are those of `intersection`.

    Examples
    --------
    >>> from aggr import ApproxCountDistinct
    >>> monday, tuesday = (ApproxCountDistinct().reduce(pa.array(x), Groups.single(3)) for x in ([1, 2, 3], [2, 3, 4]))
    >>> ApproxCountDistinct().finish(difference(monday, tuesday)).to_pylist()
    [1]
    """
    return _combine_sketches(left, right, False)


def jaccard(left: pa.Array, right: pa.Array) -> pa.Array:
    """Return the Jaccard index of two columns of states, row by row: the size of the intersection divided by the size
    of the union.

    The parameters and errors are those of `union`.

    Returns
    -------
    array of float64, shape (n,)
        The index is in [0, 1], or null if either state is null or both are empty. The standard error of the index is at
        most ``0.5 / sqrt(k)``.

    Examples
    --------
    >>> from aggr import ApproxCountDistinct
    >>> monday, tuesday = (ApproxCountDistinct().reduce(pa.array(x), Groups.single(3)) for x in ([1, 2, 3], [2, 3, 4]))
    >>> jaccard(monday, tuesday).to_pylist()
    [0.5]
    """
    _, pair, valid = _checked_pair(left, right)
    left_sketches, right_sketches = _sketches(pair)
    thetas = np.minimum(left_sketches.thetas, right_sketches.thetas)
    intersection_sizes = _select_part(left_sketches, right_sketches, thetas, True).retained
    union_sizes = intersection_sizes + sum(
        _select_part(*sides, thetas, False).retained
        for sides in ((left_sketches, right_sketches), (right_sketches, left_sketches))
    )
    return with_nulls(pa.array(intersection_sizes / np.maximum(union_sizes, 1), mask=union_sizes == 0), valid)


def _combine_sketches(left: pa.Array, right: pa.Array, in_both: bool) -> pa.Array:
    function, pair, valid = _checked_pair(left, right)
    left_sketches, right_sketches = _sketches(pair)
    # The result is empty if the left operand has no values. An intersection is also empty if the right operand has no
    # values. Such an empty result is exact, so its theta is the maximum, even if the theta of the other operand is
    # smaller.
    is_empty = left_sketches.are_empty | (right_sketches.are_empty & in_both)
    thetas = np.where(is_empty, NO_THRESHOLD, np.minimum(left_sketches.thetas, right_sketches.thetas))
    selected = _select_part(left_sketches, right_sketches, thetas, in_both)
    return with_nulls(function.own_state.pack({"sketch": selected.to_arrow()}, len(thetas)), valid)


def _checked_pair(left: pa.Array, right: pa.Array) -> tuple[ApproxCountDistinct, list[pa.StructArray], pa.Array]:
    """Return the function of two columns of states, the states of each column, and a mask.

    The mask has one entry per row, and is true for the rows in which both states are not null. The returned columns
    contain only the states in these rows.

    Raise ``TypeError`` or ``ValueError`` unless both columns contain states of approx_count_distinct with equal k, and
    have the same length.
    """
    function = function_of(left)
    if not isinstance(function, ApproxCountDistinct):
        raise TypeError(f"states of {function.name} are not sets; set operations need states of approx_count_distinct")
    columns = [checked(function, states).states for states in (left, right)]
    if len(left) != len(right):
        raise ValueError(
            f"set operations work row by row and need two columns of equal length; got {len(left)} states and "
            f"{len(right)}"
        )
    valid = pc.and_(columns[0].is_valid(), columns[1].is_valid())
    return function, [column.filter(valid) for column in columns], valid


def _sketches(pair: Sequence[pa.StructArray]) -> list[Sketches]:
    return [Sketches.from_arrow(states.field("sketch")) for states in pair]


def _select_part(sketches: Sketches, other: Sketches, thetas: Whole, in_both: bool) -> Sketches:
    """Return sketches with a part of the hashes of ``sketches``, and with the thetas ``thetas``.

    All selected hashes are below the theta of their row. If ``in_both`` is true, only hashes that the same row of
    ``other`` also contains are selected. Otherwise, only hashes that the same row of ``other`` does not contain are
    selected.
    """
    hashes, places = _select_hashes(
        sketches.hashes, sketches.places, other.hashes, other.places, thetas=thetas, in_both=in_both
    )
    return Sketches(thetas, hashes, places)


@compiled
def _select_hashes(
    hashes: Whole, places: Whole, other_hashes: Whole, other_places: Whole, thetas: Whole, in_both: bool
) -> tuple[Whole, Whole]:
    """Return the hashes that `_select_part` selects, and the offsets of each row's hashes, shape (rows + 1,).

    ``places`` and ``other_places`` are the offsets of each row's hashes in ``hashes`` and in ``other_hashes``.
    """
    selected = np.empty(len(hashes), np.int64)
    selected_places = np.zeros(len(places), np.int64)
    at: Int = np.int64(0)
    for row in range(len(thetas)):
        other_position = other_places[row]
        end = other_places[row + 1]
        for i in range(places[row], places[row + 1]):
            while other_position < end and other_hashes[other_position] < hashes[i]:
                other_position += 1
            if (
                hashes[i] < thetas[row]
                and (other_position < end and other_hashes[other_position] == hashes[i]) == in_both
            ):
                selected[at] = hashes[i]
                at += 1
        selected_places[row + 1] = at
    return selected[:at].copy(), selected_places
