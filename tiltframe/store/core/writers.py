"""Writers of the store's own: the names under which a level keeps numbers that no user's commit has."""

from __future__ import annotations

OWN = "tiltframe:"  # writers whose names begin so are the store's own
MERGED = "tiltframe:merged"  # states of many commits, all of which every coarser level holds
CHANGED = "tiltframe:changed"  # in the finest level, grows with every replacement and expiry: one at a time
EXPIRED = "tiltframe:expired"  # its number is the time before which a level holds no windows, microseconds UTC
FRAME = "tiltframe:frame"  # its number is how often the frame had evolved when something was last committed to a level
FILLED = "tiltframe:filled"  # in a level that was added to a store: it has taken over what the finer one held


def expired_in(level: str) -> str:
    """Name what the finest level notes before a coarser one expires windows."""
    return f"{EXPIRED} {level}"
