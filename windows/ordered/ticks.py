"""Ticks: instants of the clock that rows are cut at, and that have outputs of their own.

A tick comes after the rows of its instant. It is kept per key, from the key's first row on, up to the end of the data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from windows.kinds.tumbling import window

_SIZES = {"minutely": "1m", "hourly": "1h", "daily": "1d", "monthly": "1mo", "yearly": "1y"}


@dataclass(frozen=True)
class Tick:
    """The instants at which a unit of the clock begins.

    Parameters
    ----------
    name : str
        ``minutely hourly daily monthly yearly``.
    timezone : str
        The IANA zone whose clock it is.

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
        """Check the name and the zone."""
        if self.name not in _SIZES:
            raise ValueError(f"a tick is one of {', '.join(_SIZES)}; got {self.name!r}")
        if not isinstance(self.timezone, str):
            raise ValueError(
                f"{self.name}() needs the time zone whose clock it follows: {self.name}('UTC'), "
                f"{self.name}('Europe/Paris'); got {self.timezone!r}"
            )
        window(_SIZES[self.name], self.timezone)

    def instants(self, low: int, high: int) -> NDArray[np.int64]:
        """List the ticks in ``[low, high]``, microseconds UTC, ascending."""
        return window(_SIZES[self.name], self.timezone or "UTC").between(low, high + 1)

    def __str__(self) -> str:
        """Write it as it is read."""
        bare = self.timezone == "UTC" and self.name in ("minutely", "hourly")
        return f"{self.name}()" if bare else f"{self.name}({self.timezone!r})"


def minutely(timezone: str = "UTC") -> Tick:
    """Tick at every full minute; the zone matters only where its offset is no whole number of minutes."""
    return Tick("minutely", timezone)


def hourly(timezone: str = "UTC") -> Tick:
    """Tick at every full hour; the zone matters where its offset is no whole number of hours."""
    return Tick("hourly", timezone)


def daily(timezone: str | None = None) -> Tick:
    """Tick at every midnight of a zone; raises ``ValueError`` without a zone."""
    return Tick("daily", timezone)


def monthly(timezone: str | None = None) -> Tick:
    """Tick where a month begins in a zone; raises ``ValueError`` without a zone."""
    return Tick("monthly", timezone)


def yearly(timezone: str | None = None) -> Tick:
    """Tick where a year begins in a zone; raises ``ValueError`` without a zone."""
    return Tick("yearly", timezone)
