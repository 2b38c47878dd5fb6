"""Read time windows from text: ``1h``, ``tumbling(1d, offset=6h)``, ``hopping(1h, 10m)``, ``session(30m)``, ``all``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aggr.arguments import shown
from aggr.call_text import evaluate_call, read_call, split
from aggr.duration import UNITS
from windows.contract import TimeWindow
from windows.kinds.tumbling import window
from windows.level_range import is_level_range, levels_between
from windows.registry import GROUP, window_constructors
from windows.timezone import check_timezone

_ORDERED_HINT = "ordered windows, such as count(100), can be used only in tiltframe.running and OrderedFrame"


def read_window(text: str, timezone: str = "UTC") -> TimeWindow:
    """Return the window that a text describes.

    Parameters
    ----------
    text : str
        A size such as ``10s``, ``1h`` or ``1 month``; ``tumbling(SIZE, offset=TIME)``; ``hopping(SIZE, HOP)`` or
        ``hopping(SIZE, HOP, offset=TIME)``; ``session(GAP)``; ``all``, for one window over all time; or a registered
        kind, by its name or as a call. `aggr.call_text` describes the syntax of calls.
    timezone : str
        An IANA name. Sessions and ``all`` do not use a zone.

    Returns
    -------
    TimeWindow

    Raises
    ------
    ValueError
        If the text cannot be read, its parts do not fit each other, or the zone is unknown.

    Examples
    --------
    >>> [read_window(text) for text in ("1h", "hopping(1 hour, 10m)", "session(30m)", "all")]
    [Tumbling('1h'), Hopping('1h', '10m'), Session('30m'), AllTime()]
    >>> read_window("tumbling(1d, offset=6h)", "Europe/Paris")
    Tumbling('1d', 'Europe/Paris', offset='6h')
    """
    timezone = check_timezone(timezone)
    call = read_call(text, allows_bare_name=True)
    if hasattr(text, "ranges"):
        raise ValueError(f"{shown(text)} is not a time window, such as '1h'; {_ORDERED_HINT}")
    if not isinstance(text, str) or ("(" not in text and (call is None or call.name in UNITS)):
        return window(text, timezone)
    constructors: Mapping[str, Callable[..., TimeWindow]] = window_constructors(TimeWindow, call.name if call else "")
    example = f"a size such as '10s', '1h' or '1mo', or one of {', '.join(constructors)}; {_ORDERED_HINT}"
    fixed = {"timezone": timezone}
    return evaluate_call(constructors, text, "a window", example, fixed_arguments=fixed, allows_bare_name=True)


def text_of(window: TimeWindow) -> str:
    """Return the text of a window, from which `read_window` creates an equal window in the same zone.

    Parameters
    ----------
    window : TimeWindow

    Returns
    -------
    str
        The name of the window.

    Raises
    ------
    ValueError
        If `read_window` would not create an equal window from the text, for example because the class of ``window`` is
        not registered.

    Examples
    --------
    >>> text_of(window("90s"))
    '90s'
    """
    try:
        restored = read_window(window.name, window.timezone or "UTC")
    except ValueError:
        restored = None
    if type(restored) is type(window) and restored != window:
        raise ValueError(
            f"the text {shown(window.name)} is read as {shown(restored)}, which differs from {shown(window)}; "
            "use only field values that can be written as text: numbers, booleans, texts, and tuples of them"
        )
    if restored != window:
        raise ValueError(
            f"windows of {shown(window.name)} cannot be read from this text, and only the text is stored; "
            f"give {type(window).__name__} a kind and register it: windows.register, or an entry point of {GROUP}"
        )
    return window.name


def as_window(window: str | TimeWindow, timezone: str = "UTC") -> TimeWindow:
    """Return a window object unchanged, or the window that a text describes.

    Parameters
    ----------
    window : TimeWindow or str
        A window object, or text that `read_window` reads.
    timezone : str
        An IANA name, used for text only. A `TimeWindow` contains its zone.

    Returns
    -------
    TimeWindow

    Raises
    ------
    ValueError
        If the text cannot be read, or the zone is unknown.

    Examples
    --------
    >>> as_window("1h"), as_window(window("1d"))
    (Tumbling('1h'), Tumbling('1d'))
    """
    return window if isinstance(window, TimeWindow) else read_window(window, timezone)


def read_windows(text: str, timezone: str = "UTC") -> list[TimeWindow]:
    """Return the windows that a text describes. The text separates the windows by commas outside of parentheses.

    Parameters
    ----------
    text : str
        A text such as ``10s,1m,1h`` or ``hopping(1h, 10m),1d``; or a range, ``1s ... 1y`` or ``sec ... year``, which
        has the seconds, minutes, hours, days, months and years from one end to the other.
    timezone : str
        An IANA name.

    Returns
    -------
    list of TimeWindow

    Raises
    ------
    ValueError
        If one of the windows cannot be read.

    Examples
    --------
    >>> read_windows("hopping(1h, 10m), 1d")
    [Hopping('1h', '10m'), Tumbling('1d')]
    >>> read_windows("sec ... day")
    [Tumbling('1s'), Tumbling('1m'), Tumbling('1h'), Tumbling('1d')]
    """
    if not isinstance(text, str):
        raise ValueError(f"windows must be written as text, such as '10s,1m,1h'; got {shown(text)}")
    names = split(text)
    if names is None:
        raise ValueError(f"cannot read {shown(text)} as windows; close every bracket and quote: 10s,hopping(1h, 10m)")
    sizes: list[str] = []
    for name in names:
        if is_level_range(name):
            sizes += levels_between(name)
        else:
            sizes.append(name)
    return [read_window(size, timezone) for size in sizes]
