"""Reading windows from text: ``1h``, ``tumbling(1d, offset=6h)``, ``hopping(1h, 10m)``, ``session(30m)``, ``all``."""

from __future__ import annotations

import re
from collections.abc import Callable

from aggr.arguments import shown
from windows.contract import TimeWindow
from windows.kinds.all_time import AllTime
from windows.kinds.hopping import hopping
from windows.kinds.session import session
from windows.kinds.tumbling import window
from windows.timezone import check_timezone

# name -> how it is written, how many arguments it takes, whether it takes an offset, what makes it
_Make = Callable[[list[str], str, str | None], TimeWindow]
_KINDS: dict[str, tuple[str, int, bool, _Make]] = {
    "hopping": (
        "hopping(SIZE, HOP), such as hopping(1h, 10m), or hopping(1h, 10m, offset=5m)",
        2,
        True,
        lambda texts, zone, offset: hopping(texts[0], texts[1], zone, offset),
    ),
    "tumbling": (
        "tumbling(SIZE, offset=TIME), such as tumbling(1d, offset=6h)",
        1,
        True,
        lambda texts, zone, offset: window(texts[0], zone, offset),
    ),
    "session": ("session(GAP), such as session(30m)", 1, False, lambda texts, zone, offset: session(texts[0])),
}


_ORDERED = re.compile(
    r"\s*(count|weighted_count|interval|emit_when|since|sliding|running)\s*\(|\s*session\s*\(\s*['\"]"
)


def read_window(text: str, timezone: str = "UTC") -> TimeWindow:
    """Read any kind of window by its name.

    Parameters
    ----------
    text : str
        A size such as ``10s``, ``1h`` or ``1 month``; ``tumbling(SIZE, offset=TIME)``; ``hopping(SIZE, HOP)``, perhaps
        with an offset; ``session(GAP)``; or ``all``, for one window without start and end.
    timezone : str
        An IANA name; sessions and ``all`` follow no clock.

    Returns
    -------
    TimeWindow

    Raises
    ------
    ValueError
        If it cannot be read, its parts do not go together, or the zone is unknown.

    Examples
    --------
    >>> [read_window(text) for text in ("1h", "hopping(1 hour, 10m)", "session(30m)", "all")]
    [Tumbling('1h'), Hopping('1h', '10m'), Session('30m'), AllTime()]
    >>> read_window("tumbling(1d, offset=6h)", "Europe/Paris")
    Tumbling('1d', 'Europe/Paris', offset='6h')
    """
    check_timezone(timezone)
    if hasattr(text, "ranges") or (isinstance(text, str) and _ORDERED.match(text)):
        raise ValueError(
            f"{shown(text)} is an ordered window, which depends on the rows before; here a time window is needed, "
            "such as '1h'; tiltframe.running and OrderedFrame take ordered ones"
        )
    if not isinstance(text, str):
        return window(text, timezone)
    if text.strip() == AllTime().name:
        return AllTime()
    kind = re.match(r"\s*([a-z]+)\s*\(", text, re.ASCII)
    if kind is None and (named := next((name for name in _KINDS if text.strip().startswith(name)), None)) is None:
        return window(text, timezone)
    name = kind[1] if kind else str(named)
    if name not in _KINDS:
        raise ValueError(
            f"cannot read {shown(text)} as a window; write {', '.join(each[0] for each in _KINDS.values())}"
        )
    written, count, takes_offset, make = _KINDS[name]
    inside = re.fullmatch(r"\s*[a-z]+\s*\(([^()]*)\)\s*", text, re.ASCII)
    parts = [part.strip() for part in inside[1].split(",")] if inside else []
    offset = re.fullmatch(r"offset\s*=\s*(.*)", parts[-1], re.ASCII) if takes_offset and len(parts) > count else None
    if len(parts) != count + (offset is not None) or not all(parts):
        raise ValueError(f"cannot read {shown(text)} as {name} windows; write {written}")
    return make(parts, timezone, offset[1] if offset else None)


def as_window(window: str | TimeWindow, timezone: str = "UTC") -> TimeWindow:
    """Take a window as it is, or read it by its name.

    Parameters
    ----------
    window : TimeWindow or str
        Text as `read_window` reads it.
    timezone : str
        An IANA name, for what is text; a window has its own.

    Returns
    -------
    TimeWindow

    Raises
    ------
    ValueError
        If the text cannot be read, or the zone is unknown.

    Examples
    --------
    >>> as_window("1h"), as_window(AllTime())
    (Tumbling('1h'), AllTime())
    """
    return window if isinstance(window, TimeWindow) else read_window(window, timezone)


def read_windows(text: str, timezone: str = "UTC") -> list[TimeWindow]:
    """Read a list of windows, separated by commas; commas within parentheses separate arguments.

    Parameters
    ----------
    text : str
        Such as ``10s,1m,1h`` or ``hopping(1h, 10m),1d``.
    timezone : str
        An IANA name.

    Returns
    -------
    list of TimeWindow

    Raises
    ------
    ValueError
        If one of them cannot be read.

    Examples
    --------
    >>> read_windows("hopping(1h, 10m), 1d")
    [Hopping('1h', '10m'), Tumbling('1d')]
    """
    if not isinstance(text, str):
        raise ValueError(f"windows are read from text, such as '10s,1m,1h'; got {shown(text)}")
    return [read_window(name, timezone) for name in re.split(r",(?![^()]*\))", text)]
