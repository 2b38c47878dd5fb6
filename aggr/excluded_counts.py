"""The numbers of groups and of values that results leave out. They are computed from states."""

from __future__ import annotations

from typing import NamedTuple

from aggr.arrays import Whole


class ExcludedCounts(NamedTuple):
    """How much the results of states leave out. Each field has one number per state, or the value None if the states
    do not count this.

    ``groups`` is the number of results that are null because a group has more values than the limit of the function.
    This number is 0 or 1. If a state contains the states of several groups, like the states of `per`, the numbers of
    these groups are added. ``values`` is the number of values that the function refused and skipped.
    """

    groups: Whole | None = None
    values: Whole | None = None
