"""The numbers of groups and of values that results leave out. They are computed from states."""

from __future__ import annotations

from typing import NamedTuple

from aggr.arrays import Whole


class ExcludedCounts(NamedTuple):
    """The numbers of groups and of values that the results of states leave out, with one number per state.

    ``groups`` contains the number of groups without a result, because they have more values than the limit of the
    function, shape (rows,). ``values`` contains the number of refused values that were skipped, shape (rows,). A state
    that does not count groups or values has None instead of the array.
    """

    groups: Whole | None = None
    values: Whole | None = None
