"""Time zones of windows, and checks of event times."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from aggr.arguments import shown
from aggr.clocks import check_years
from aggr.time_zones import canonical_zone

# arrays of microseconds since 1970-01-01 UTC; a variable with "local" in its name has local times instead
Instants = NDArray[np.int64]


def check_timezone(name: str) -> str:
    """Return the name of a time zone in its usual form. Raise an error if the zone does not exist.

    Parameters
    ----------
    name : str
        An IANA name, or an offset such as ``+05:30`` or ``-0300``.

    Returns
    -------
    str
        The IANA name, an offset in the form ``+05:30``, or ``UTC`` for an offset of 0.

    Raises
    ------
    ValueError
        If the zone does not exist; the message suggests the nearest name.

    Examples
    --------
    >>> check_timezone("Europe/Paris")
    'Europe/Paris'
    >>> check_timezone("+0530")
    '+05:30'
    """
    return canonical_zone(name)


def checked_instants(times: object, what: str) -> Instants:
    """Return ``times`` unchanged if it is an array of int64 with one dimension. Raise ``ValueError`` otherwise.
    ``what`` names the argument in the message.
    """
    if not isinstance(times, np.ndarray) or times.dtype != np.int64 or times.ndim != 1:
        type_text = f"an array of {times.dtype}" if isinstance(times, np.ndarray) else shown(times)
        type_text += f" and shape {times.shape}" if isinstance(times, np.ndarray) and times.ndim != 1 else ""
        raise ValueError(f"{what} must be an array of int64, microseconds since 1970-01-01 UTC; got {type_text}")
    return times


def checked_times(times: object) -> Instants:
    """Return ``times`` unchanged if it is an array of microseconds in the years 2 to 9998. Raise ``ValueError``
    otherwise.
    """
    checked = checked_instants(times, "times")
    if len(checked):
        check_years(int(checked.min()), int(checked.max()))
    return checked
