"""bool_and, bool_or: whether all values of a column are true, and whether any is."""

from __future__ import annotations

from dataclasses import dataclass

from aggr.functions.min_max import Max, Min
from aggr.input_types import BOOLEANS


@dataclass(frozen=True)
class BoolAnd(Min):
    """Say whether all values are true.

    Examples
    --------
    >>> from aggr import bool_and
    >>> bool_and("ok")
    bool_and('ok')
    """

    name = "bool_and"
    takes = BOOLEANS
    state_name = "min"
    returns = "boolean; null where there is nothing"


@dataclass(frozen=True)
class BoolOr(Max):
    """Say whether any value is true.

    Examples
    --------
    >>> from aggr import bool_or
    >>> bool_or("failed")
    bool_or('failed')
    """

    name = "bool_or"
    takes = BOOLEANS
    state_name = "max"
    returns = BoolAnd.returns
