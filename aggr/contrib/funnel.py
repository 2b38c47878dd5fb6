"""funnel: the number of steps that occur in their order within a length of time. A step is an event."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from aggr.contrib.constants import is_nan, values_of_type
from aggr.extend import compiled
from aggr.extend.arguments import read_duration, shown
from aggr.extend.columns import Whole
from aggr.extend.columns import compute as pc
from aggr.extend.lists import ORDERED_AT_TIMES, Series, SeriesFunction


@dataclass(frozen=True)
class Funnel(SeriesFunction):
    """Count how many steps of a funnel are reached. The steps are events that must occur in the order of ``steps``.

    Other events may occur between the steps. A step counts only if it is at most ``within`` after the first step.
    Events at the same time are read in the order of ``steps``. Use the user or the session of the events as a key of
    the frame.

    Parameters
    ----------
    steps : sequence of values of the column
        The events in the order of the steps, without repetitions. This parameter affects only results, not states.
    within : str
        The maximum time from the first step to the last, such as ``"1h"``. This parameter affects only results, not
        states.
    max, keep, beyond : as for `points`

    Raises
    ------
    ValueError
        If a step occurs twice or is NaN, ``within`` is not a length of time, ``max`` is not a whole number of at least
        1, or ``keep`` is not an allowed word.
    TypeError
        If steps are not a list. When the result is read: if the list is empty, or its values do not have the column's
        type.

    Examples
    --------
    >>> from aggr import funnel
    >>> funnel("event", ["view", "cart", "buy"], within="1h")
    funnel('event', steps=['view', 'cart', 'buy'])
    """

    steps: tuple[str, ...] = field(default=(), metadata={"accepts": "Sequence[str]"})
    within: str = "1h"

    name = "funnel"
    takes = ORDERED_AT_TIMES
    returns = "int64, the number of completed steps; 0 if there are no values"
    guarantee = "exact, ordered by event time, never by arrival"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.steps, list | tuple):
            raise TypeError(f"steps must be a list of events, such as ['view', 'buy']; got {shown(self.steps)}")
        object.__setattr__(self, "steps", tuple(self.steps))
        if any(map(is_nan, self.steps)):
            raise ValueError(
                f"steps must not contain NaN, which does not equal any event; got {shown(list(self.steps))}"
            )
        if any(step in self.steps[:place] for place, step in enumerate(self.steps)):
            raise ValueError(f"steps must not contain a step twice; got {shown(list(self.steps))}")
        read_duration(self.within, "within")

    def read(self, series: Series) -> pa.Array:
        if not self.steps:
            raise TypeError("funnel needs the parameter steps, such as steps=['view', 'buy']")
        try:
            step_values = values_of_type(self.steps, series.values.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            raise TypeError(
                f"the steps of funnel are {shown(list(self.steps))}, and the column has the type "
                f"{series.values.type}; write the steps in that type"
            ) from None
        steps = pc.fill_null(pc.index_in(series.values, step_values), -1).to_numpy().astype(np.int64)
        order = np.lexsort((steps, series.times, series.groups.ids))
        within = read_duration(self.within, "within")
        times = series.times[order]
        count = len(self.steps)
        return pa.array(_steps_reached(times, steps[order], series.offsets, count=count, within=within))


@compiled
def _steps_reached(times: Whole, steps: Whole, offsets: Whole, count: int, within: int) -> Whole:
    """Return the number of steps that each group reaches, shape (groups,).

    ``times`` has the time of each event, and ``steps`` the number of its step, from 0 to ``count - 1``, or -1 if the
    event is not a step. The events of a group have the indices ``offsets[group]`` to ``offsets[group + 1] - 1``.
    ``within`` is the maximum time from the first step to the last. Each event of the first step begins an attempt to
    reach the following steps. The local array ``starts`` has one entry per step: the start time of the latest attempt
    that reached this step.
    """
    n = len(offsets) - 1
    step_counts = np.zeros(n, np.int64)
    starts = np.zeros(count, np.int64)
    for group in range(n):
        for i in range(offsets[group], offsets[group + 1]):
            step = steps[i]
            if step == 0:
                starts[0] = times[i]
                step_counts[group] = max(step_counts[group], 1)
            elif 0 < step <= step_counts[group] and times[i] - starts[step - 1] <= within:
                starts[step] = starts[step - 1]
                step_counts[group] = max(step_counts[group], step + 1)
    return step_counts
