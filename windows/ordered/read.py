"""Read ordered windows from text. `str` of a window returns its text."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aggr.arguments import shown
from aggr.call_text import evaluate_call, read_call
from windows.contract import TimeWindow
from windows.ordered.contract import OrderedWindow
from windows.ordered.kinds.count import count, weighted_count
from windows.ordered.kinds.emit_when import emit_when
from windows.ordered.kinds.interval import interval
from windows.ordered.kinds.session import session
from windows.ordered.kinds.sliding import running, since, sliding
from windows.ordered.ticks import TICKS, Tick
from windows.registry import add_family, window_constructors

add_family(
    OrderedWindow,
    {kind.__name__: kind for kind in (count, weighted_count, interval, session, emit_when, since, sliding, running)},
)
_EXAMPLE = "count(100), since('n > 5', daily('UTC')) or another of windows.ordered; time windows follow the clock"


def read_ordered(text: str) -> OrderedWindow:
    """Return the ordered window that a text describes.

    Parameters
    ----------
    text : str
        A call of one of the functions of `windows.ordered`, or of a registered kind (`windows.register`), in the syntax
        of `aggr.call_text`.

    Returns
    -------
    OrderedWindow

    Raises
    ------
    ValueError
        If the text cannot be read, or its arguments are not allowed.

    Examples
    --------
    >>> str(read_ordered("session(30m, max=8h, start=speed > 50)"))
    "session('30m', max='8h', start='speed > 50')"
    """
    call = read_call(text)
    constructors: Mapping[str, Callable[..., OrderedWindow]] = window_constructors(
        OrderedWindow, call.name if call else ""
    )
    return evaluate_call(constructors, text, "an ordered window", _EXAMPLE, parse_inner_call=read_tick)


def read_tick(text: str) -> Tick:
    """Return the tick that a text describes, such as ``hourly()``.

    Parameters
    ----------
    text : str
        A call such as ``hourly()`` or ``daily('Europe/Paris')``.

    Returns
    -------
    Tick

    Raises
    ------
    ValueError
        If the text cannot be read, or its zone is missing or unknown.

    Examples
    --------
    >>> str(read_tick("daily(UTC)"))
    "daily('UTC')"
    """
    return evaluate_call(
        TICKS,
        text,
        "a tick",
        f"hourly() or daily('UTC'), one of {', '.join(TICKS)}; if it is a condition, put it in quotes",
    )


def as_ordered(window: OrderedWindow | str) -> OrderedWindow:
    """Return an ordered window unchanged, or the ordered window that a text describes.

    Parameters
    ----------
    window : OrderedWindow or str
        A window object, or text that `read_ordered` reads.

    Returns
    -------
    OrderedWindow

    Raises
    ------
    ValueError
        If the text cannot be read, or the argument is not an ordered window, for example a time window.

    Examples
    --------
    >>> as_ordered("count(100)")
    Count(n=100)
    """
    if isinstance(window, OrderedWindow):
        return window
    if isinstance(window, str):
        return read_ordered(window)
    of_time = ", which is a time window and follows the clock" if isinstance(window, TimeWindow) else ""
    such_as = "such as windows.ordered.count(100) or since('n > 5')"
    raise ValueError(f"the window must be an ordered window, {such_as}; got {shown(window)}{of_time}")
