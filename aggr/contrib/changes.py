"""Changes between the points of a series: the growth of each group, and the number of falls of its values.

Floats are computed in double arithmetic, in the order of time. Whole numbers and decimals are added exactly, as in
`aggr.exact.row_sums`, and rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from aggr.extend import ExactNumbers, Groups, Limbs, Numbers, compiled, sum_exactly
from aggr.extend.arguments import SECOND
from aggr.extend.columns import Flags, Floats, Ids, Whole, order_keys
from aggr.extend.exact import exact_float_parts, scale_of
from aggr.extend.lists import Series


@dataclass(frozen=True, eq=False)
class Changes:
    """The growth of each group, shape (n,): doubles if the values of the series are floats, otherwise exact numbers."""

    numbers: Floats | ExactNumbers

    def rounded(self) -> Floats:
        """Return the growth of each group as the nearest double, shape (n,)."""
        return self.numbers.over_integers() if isinstance(self.numbers, ExactNumbers) else self.numbers

    def per_second(self, spans: Whole) -> Floats:
        """Return the growth of each group per second, shape (n,).

        ``spans`` has the length of time of each group in microseconds, above 0.
        """
        if isinstance(self.numbers, ExactNumbers):
            return (self.numbers * SECOND).over_integers(spans)
        return self.numbers / (spans / SECOND)


def increases_of(series: Series, is_counter: bool) -> Changes:
    """Return the last value of each group minus its first value. Only the points in the group's window are used.

    If ``is_counter`` is true, the value before each fall is added. A fall is a value that is smaller than the value
    before, which means that the counter was reset to 0.
    """
    start, end = series.ranges_inside
    if pa.types.is_floating(series.values.type):
        return Changes(_float_increases(series.floats, start, end, is_counter))
    parts = exact_float_parts(series.values)
    longest = int(series.lengths.max(initial=0))
    # ``parts`` contains whole numbers. If all sums of a group are below 2^53, doubles represent them exactly, so that
    # the faster loop for floats computes the exact result.
    if len(parts) == 1 and np.abs(parts[0]).max(initial=0.0) * (longest + 1) < 2.0**53:
        growth = _float_increases(parts[0], start, end, is_counter).astype(np.int64)
        return Changes(ExactNumbers(ExactNumbers.of(growth).limbs, scale_of(series.values.type)))
    groups = np.flatnonzero(start < end)
    terms = [(end[groups] - 1, groups, 1.0), (start[groups], groups, -1.0)]
    if is_counter:
        falls = _falls_within(series, start, end)
        terms.append((falls - 1, series.groups.ids[falls], 1.0))
    return Changes(_exact_sums(series.values, terms, len(start)))


def steps_of(series: Series, points: Ids, is_counter: bool) -> Floats:
    """Return the growth from each point whose index is in ``points`` to the next point, shape (len(points),).

    If ``is_counter`` is true and the next value is smaller, the growth is the next value, because the counter was reset
    to 0 between the two points.
    """
    if pa.types.is_floating(series.values.type):
        before = series.floats[points]
        after = series.floats[points + 1]
        return np.where(after < before, after, after - before) if is_counter else after - before
    step_ids = np.arange(len(points))
    is_fall = is_counter & (_order_keys_of(series)[points + 1] < _order_keys_of(series)[points])
    terms = [(points + 1, step_ids, 1.0), (points[~is_fall], step_ids[~is_fall], -1.0)]
    return _exact_sums(series.values, terms, len(points)).over_integers()


def count_falls(series: Series, start: Whole, end: Whole) -> Whole:
    """Return the number of falls in each group, shape (n,). A fall is a value that is smaller than the value before.

    The points of a group have the indices ``start[group]`` to ``end[group] - 1``. The first of them is not a fall.
    """
    falls = _falls_within(series, start, end)
    counts: Whole = np.bincount(series.groups.ids[falls], minlength=len(start))
    return counts


def _falls_within(series: Series, start: Whole, end: Whole) -> Ids:
    """Return the indices of the points whose value is smaller than the previous value of the group. The parameters are
    those of `count_falls`.
    """
    values = series.floats if pa.types.is_floating(series.values.type) else _order_keys_of(series)
    is_fall: Flags = np.zeros(len(values), np.bool_)
    is_fall[1:] = values[1:] < values[:-1]
    rows = np.flatnonzero(is_fall)
    ids = series.groups.ids[rows]
    return rows[(rows > start[ids]) & (rows < end[ids])]


def _order_keys_of(series: Series) -> Whole:
    return order_keys(series.values)


def _exact_sums(values: pa.Array, terms: Sequence[tuple[Ids, Ids, float]], n: int) -> ExactNumbers:
    """Return the exact sum of selected values of each group, for ``n`` groups.

    Each of ``terms`` consists of indices into ``values``, the group of each index, and a sign, 1 or -1. The value at
    each index, multiplied by the sign, is added to the sum of its group.
    """
    rows = np.concatenate([rows for rows, _, _ in terms])
    ids = np.concatenate([ids for _, ids, _ in terms])
    signs = np.concatenate([np.full(len(rows), sign) for rows, _, sign in terms])
    groups = Groups(ids, n)
    parts = [Numbers(part * signs, groups) for part in exact_float_parts(values.take(pa.array(rows)))]
    return ExactNumbers(Limbs.of_arrow(sum_exactly(parts)), scale_of(values.type))


@compiled
def _float_increases(values: Floats, start: Whole, end: Whole, is_counter: bool) -> Floats:
    """Return the last value of each group minus its first, shape (groups,). With ``is_counter``, add the value before
    each fall.

    The values of a group are ``values[start[group]:end[group]]``.
    """
    increases = np.zeros(len(start))
    for group in range(len(start)):
        first = start[group]
        last = end[group]
        if first < last:
            increases[group] = values[last - 1] - values[first]
        if is_counter:
            for i in range(first + 1, last):
                if values[i] < values[i - 1]:
                    increases[group] += values[i - 1]
    return increases
