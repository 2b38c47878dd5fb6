"""Times for tests of windows: close and far, repeated, before 1970, around midnights and transitions."""

from __future__ import annotations

import numpy as np

from aggr.arguments import checked_type, checked_whole
from aggr.duration import DAY, SECOND
from windows.contract import TimeWindow
from windows.timezone import Instants, clock

_FIRST, _LAST = -(10**15), 2 * 10**15  # 1938 … 2033


def times_of(window: TimeWindow, size: int, seed: int) -> Instants:
    """Return times, not sorted, that are difficult for a kind of window.

    Parameters
    ----------
    window : TimeWindow
        Half of the times are about its length apart. If it has a zone, times near transitions are included.
    size, seed : int
        The number of times, and the seed that selects them.

    Returns
    -------
    array of int64, shape (size,)
        Microseconds UTC.

    Raises
    ------
    ValueError
        If ``window`` is not a window, or a number is not an integer from 0.

    Examples
    --------
    >>> from windows import session
    >>> len(times_of(session("30m"), 10, seed=1))
    10
    """
    checked_type(window, TimeWindow, "the kind of window", ", such as session('30m')")  # type: ignore[type-abstract]
    rng = np.random.default_rng(checked_whole(seed, "seed"))
    checked_whole(size, "size")
    middle = int(rng.integers(_FIRST, _LAST)) // DAY * DAY
    step = int(min(window.length, 400 * DAY))
    near = middle + rng.integers(-3, 4, size) * step + rng.choice([-1, 0, 0, 1, SECOND], size)
    spread = middle + rng.integers(-4 * step, 4 * step, size)
    edges = middle + rng.integers(-40, 40, size) * DAY + rng.choice([-1, 0, 1], size)
    kinds = [near, near, spread, spread, edges]
    if window.timezone is not None:
        transitions = clock(window.timezone, _FIRST, _LAST).since[1:]
        if len(transitions):
            at = int(rng.integers(0, len(transitions)))
            kinds.append(transitions[at] + rng.integers(-3, 4, size) * 1800 * SECOND + rng.choice([-1, 0, 1], size))
    times = np.choose(rng.integers(0, len(kinds), size), kinds)
    return times[rng.integers(0, size, size)] if size else times  # with repetitions
