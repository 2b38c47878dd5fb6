"""bool_and, bool_or: whether all values are true, and whether at least one value is true."""

from __future__ import annotations

from dataclasses import dataclass

from aggr.extend import BOOLEANS, PlainState
from aggr.extend.states import MAX, MIN, Max, Min

# The states of bool_and and bool_or have the layouts of the states of min and max. The parameter ``variant``
# distinguishes these states, so that a frame does not store one column for both bool_and and min.
BOOL_AND = PlainState("min", MIN.layout, variant="bool_and")
BOOL_OR = PlainState("max", MAX.layout, variant="bool_or")


@dataclass(frozen=True)
class BoolAnd(Min):
    """Return whether all values are true.

    Examples
    --------
    >>> from aggr import bool_and
    >>> bool_and("ok")
    bool_and('ok')
    """

    name = "bool_and"
    takes = BOOLEANS
    own_state = BOOL_AND
    reads = ()
    returns = "boolean; null if there are no values"


@dataclass(frozen=True)
class BoolOr(Max):
    """Return whether any value is true.

    Examples
    --------
    >>> from aggr import bool_or
    >>> bool_or("failed")
    bool_or('failed')
    """

    name = "bool_or"
    takes = BOOLEANS
    own_state = BOOL_OR
    reads = ()
    returns = BoolAnd.returns
