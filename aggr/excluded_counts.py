"""The numbers of groups and values that are missing in results. States contain these numbers."""

from __future__ import annotations

from typing import NamedTuple

from aggr.arrays import Whole


class ExcludedCounts(NamedTuple):
    """The numbers of groups and of values that are missing in the results of states, with one number per state.

    ``groups`` contains the number of groups beyond an absorbing limit, shape (rows,). ``values`` contains the number of
    values that were refused and skipped, shape (rows,). Either is None if the state does not count them.
    """

    groups: Whole | None = None
    values: Whole | None = None
