"""first, last, any_value: the value of the earliest or the latest event, by event time rather than by arrival."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from aggr.function_inputs import EVENT_TIME
from aggr.functions.arg_min_max import ArgMin
from aggr.functions.event_points import ANY_VALUE, FIRST, FOUR_POINTS, LAST
from aggr.input_types import ORDERED
from aggr.state import State


@dataclass(frozen=True)
class First(ArgMin):
    """Return the value of the earliest event. Among several events at that time, the smallest value is returned.

    Examples
    --------
    >>> from aggr import first
    >>> first("price")
    first('price')
    """

    name = "first"
    keeps = "value and event time of the earliest event"
    returns = "the type of the input; null if there are no values"
    guarantee = "exact; ties in time are broken by value, never by arrival"
    takes = ORDERED
    inputs = ("value", EVENT_TIME)
    time_is_order = True
    own_state: ClassVar[State] = FIRST
    reads: ClassVar[tuple[State, ...]] = (FOUR_POINTS,)


@dataclass(frozen=True)
class Last(First):
    """Return the value of the latest event. Among several events at that time, the greatest value is returned.

    Examples
    --------
    >>> from aggr import last
    >>> last("price", by="traded_at")
    last('price', by='traded_at')
    """

    name = "last"
    keeps = "value and event time of the latest event"
    own_state = LAST


@dataclass(frozen=True)
class AnyValue(First):
    """Return one value of a column. It is the value of the earliest event, so that repeated runs return the same value;
    see `first`.

    Examples
    --------
    >>> from aggr import any_value
    >>> any_value("region")
    any_value('region')
    """

    name = "any_value"
    own_state = ANY_VALUE
