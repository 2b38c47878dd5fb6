"""The numbers of groups and of values that results leave out. They are computed from states."""

from __future__ import annotations

from typing import NamedTuple

from aggr.arrays import Whole


class ExcludedCounts(NamedTuple):
    """The numbers of groups and of values that the results of states leave out, with one number per state.

    ``groups`` contains the number of groups that have no result because they exceed the function's limit of values,
    shape (rows,). ``values`` contains the number of values that the function refused and skipped, shape (rows,). A
    field has the value None if the state does not count these groups or values.
    """

    groups: Whole | None = None
    values: Whole | None = None
