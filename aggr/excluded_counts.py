"""The numbers of groups and of values that results leave out. They are computed from states."""

from __future__ import annotations

from typing import NamedTuple

from aggr.arrays import Whole


class ExcludedCounts(NamedTuple):
    """The numbers of groups and of values that the result of each state leaves out. Each field has one number per
    state, or the value None if the states do not count such groups or values.

    ``groups`` is 1 if the result is null because the group has more values than the limit of the function, otherwise 0.
    A state that contains the states of several groups, like a state of `per`, has the sum of their numbers. ``values``
    is the number of values that the function refused and skipped.
    """

    groups: Whole | None = None
    values: Whole | None = None
