"""Random times for tests of windows: near each other and far apart, repeated, before 1970, and near midnights and
changes of the UTC offset.
"""

from __future__ import annotations

import numpy as np

from aggr.arguments import checked_type, checked_whole
from aggr.clocks import clock
from aggr.duration import DAY, SECOND
from windows.contract import TimeWindow
from windows.timezone import Instants

# the range of random midnights and changes of the UTC offset, in microseconds UTC: from 1938 to 2033
_FIRST = -(10**15)
_LAST = 2 * 10**15
EDGE_YEARS = (2038, 1900, 2100, 1800, 2400, 2000, 1700, 2200)


def times_of(window: TimeWindow, size: int, seed: int) -> Instants:
    """Return random times that are difficult for a kind of window, in random order.

    Parameters
    ----------
    window : TimeWindow
        The kind of window. At least a third of the times, on average, are within one second of a random midnight, or of
        a time that is one to three lengths of the window before or after this midnight. A length over 400 days counts
        as 400 days. If the kind has a time zone, some times are near a change of the UTC offset.
    size, seed : int
        The number of times, and the seed of the random numbers.

    Returns
    -------
    array of int64, shape (size,)
        Microseconds UTC.

    Raises
    ------
    ValueError
        If ``window`` is not a window, or ``size`` or ``seed`` is not an integer of at least 0.

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
    candidate_times = [near, near, spread, spread, edges]
    if window.timezone is not None:
        transitions = clock(window.timezone, _FIRST, _LAST).since[1:]
        if len(transitions):
            at = int(rng.integers(0, len(transitions)))
            candidate_times.append(
                transitions[at] + rng.integers(-3, 4, size) * 1800 * SECOND + rng.choice([-1, 0, 1], size)
            )
    times = np.choose(rng.integers(0, len(candidate_times), size), candidate_times)
    return times[rng.integers(0, size, size)] if size else times  # drawn with replacement, so that times are repeated


def times_near_year_edges(window: TimeWindow, year: int, size: int, seed: int) -> Instants:
    """Return random times near the leap day, the middle, the start and the end of a year, in random order.

    Parameters
    ----------
    window : TimeWindow
        The kind of window. On average, half of the times are within one second of one of six dates of the year, or of
        a time that is one or two lengths of this window before or after such a date. A length over 400 days counts as
        400 days. The other times are within two days of such a date.
    year : int
    size, seed : int
        The number of times, and the seed of the random numbers.

    Returns
    -------
    array of int64, shape (size,)
        Microseconds UTC.

    Examples
    --------
    >>> from windows import session
    >>> times_near_year_edges(session("30m"), 2100, 2, seed=1) > 4_000_000_000_000_000
    array([ True,  True])
    """
    rng = np.random.default_rng([seed, year])
    days = [f"{year}-01-01", f"{year}-01-19", f"{year}-02-28", f"{year}-03-01", f"{year}-07-01", f"{year + 1}-01-01"]
    edges = np.array(days, "datetime64[us]").astype(np.int64)
    step = int(min(window.length, 400 * DAY))
    near = rng.integers(-2, 3, size) * step + rng.choice([-1, 0, 1, SECOND], size)
    spread = rng.integers(-2 * DAY, 2 * DAY, size)
    times: Instants = rng.choice(edges, size) + np.where(rng.random(size) < 0.5, near, spread)
    return times
