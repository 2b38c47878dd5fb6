"""Ticks: instants at which a unit of the clock begins, such as an hour. Ordered windows use them to begin new windows
and to trigger outputs.

A tick comes after the rows with the same time. Each key has ticks from its first row until the end of the data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aggr.arguments import shown
from windows.kinds.tumbling import window

_SIZES = {"minutely": "1m", "hourly": "1h", "daily": "1d", "weekly": "1w", "monthly": "1mo", "yearly": "1y"}


@dataclass(frozen=True)
class Tick:
    """The instants at which a unit of the clock begins, such as all full hours.

    Parameters
    ----------
    name : str
        One of ``minutely``, ``hourly``, ``daily``, ``weekly``, ``monthly`` and ``yearly``.
    timezone : str
        The IANA zone of the clock.

    Examples
    --------
    >>> str(daily("Europe/Paris"))
    "daily('Europe/Paris')"
    >>> daily("UTC").instants(1, 172_800_000_000) // 3_600_000_000
    array([24, 48])
    """

    name: str
    timezone: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or self.name not in _SIZES:
            raise ValueError(f"the name of a tick must be one of {', '.join(_SIZES)}; got {shown(self.name)}")
        if not isinstance(self.timezone, str):
            raise ValueError(
                f"{self.name}() needs the time zone whose clock it follows: {self.name}('UTC'), "
                f"{self.name}('Europe/Paris'); got {shown(self.timezone)}"
            )
        zone = window(_SIZES[self.name], self.timezone).timezone
        object.__setattr__(self, "timezone", zone)

    def instants(self, low: int, high: int) -> NDArray[np.int64]:
        """Return the ticks in a range of time.

        Parameters
        ----------
        low, high : int
            The first and the last instant of the range, in microseconds UTC.

        Returns
        -------
        array of int64, shape (ticks,)
            Ascending, microseconds UTC.

        Raises
        ------
        ValueError
            If there are more than ten million ticks.
        """
        return window(_SIZES[self.name], self.timezone or "UTC").starts_between(low, high + 1)

    def first_from(self, at: int) -> int:
        """Return the first tick at or after an instant.

        Parameters
        ----------
        at : int
            Microseconds UTC.

        Returns
        -------
        int
            Microseconds UTC.

        Examples
        --------
        >>> daily("UTC").first_from(1) // 3_600_000_000
        24
        """
        return window(_SIZES[self.name], self.timezone or "UTC").first_start_from(at)

    def __str__(self) -> str:
        omits_zone = self.timezone == "UTC" and self.name in ("minutely", "hourly")
        return f"{self.name}()" if omits_zone else f"{self.name}({self.timezone!r})"


def _tick_maker(name: str, summary: str, timezone: str | None) -> Callable[..., Tick]:
    default = "the default is UTC" if timezone else "required, because the instants differ by zone"

    def make(timezone: str | None = timezone) -> Tick:
        return Tick(name, timezone)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"""Tick {summary}.

    Parameters
    ----------
    timezone : str
        The IANA name of the zone of the clock; {default}.

    Returns
    -------
    Tick

    Raises
    ------
    ValueError
        If the zone is missing or unknown.

    Examples
    --------
    >>> str({name}("Europe/Paris"))
    "{name}('Europe/Paris')"
    """
    return make


minutely = _tick_maker("minutely", "at every full minute", "UTC")
hourly = _tick_maker("hourly", "at every full hour", "UTC")
daily = _tick_maker("daily", "at every midnight", None)
weekly = _tick_maker("weekly", "at the start of a week, the midnight before each Monday", None)
monthly = _tick_maker("monthly", "at the start of a month", None)
yearly = _tick_maker("yearly", "at the start of a year", None)
TICKS = {tick.__name__: tick for tick in (minutely, hourly, daily, weekly, monthly, yearly)}
