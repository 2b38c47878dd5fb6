"""Ordered windows as text: what `str` writes of a window is read back."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from typing import Any

from aggr.arguments import shown
from windows.contract import TimeWindow
from windows.ordered.contract import OrderedWindow
from windows.ordered.kinds.count import count, weighted_count
from windows.ordered.kinds.emit_when import emit_when
from windows.ordered.kinds.interval import interval
from windows.ordered.kinds.session import session
from windows.ordered.kinds.sliding import running, since, sliding
from windows.ordered.ticks import Tick, daily, hourly, minutely, monthly, weekly, yearly

_WINDOWS: dict[str, Callable[..., OrderedWindow]] = {
    "count": count,
    "weighted_count": weighted_count,
    "interval": interval,
    "session": session,
    "emit_when": emit_when,
    "since": since,
    "sliding": sliding,
    "running": running,
}
_TIME_WINDOW = re.compile(r"\s*([0-9]+\s*[a-z]+\s*$|(tumbling|hopping)\s*\(|session\s*\(\s*[0-9])")
_DURATION = re.compile(r"(?<!['\w])([0-9]+[a-z]+)(?!['\w])")  # without quotes
_EXAMPLE = "count(100) or since('n > 5', daily('UTC'))"
_TICKS: dict[str, Callable[..., Tick]] = {
    "minutely": minutely,
    "hourly": hourly,
    "daily": daily,
    "weekly": weekly,
    "monthly": monthly,
    "yearly": yearly,
}


def read_ordered(text: str) -> OrderedWindow:
    """Read an ordered window.

    Parameters
    ----------
    text : str
        A call of one of the functions of `windows.ordered`, as Python writes it.

    Returns
    -------
    OrderedWindow

    Raises
    ------
    ValueError
        If it cannot be read, or its arguments are not allowed.

    Examples
    --------
    >>> str(read_ordered("session('30m', max='8h', start='speed > 50')"))
    "session('30m', max='8h', start='speed > 50')"
    """
    window: OrderedWindow = _call(_parsed(text, _EXAMPLE), _WINDOWS, text, _EXAMPLE)
    return window


def read_tick(text: str) -> Tick:
    """Read a tick from text.

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
        If it cannot be read, or its zone is missing or unknown.

    Examples
    --------
    >>> str(read_tick("daily('UTC')"))
    "daily('UTC')"
    """
    tick: Tick = _call(_parsed(text, "hourly()"), _TICKS, text, "hourly()")
    return tick


def _parsed(text: str, example: str) -> ast.expr:
    if isinstance(text, str) and (_TIME_WINDOW.match(text) or text.strip() == "all"):
        raise ValueError(
            f"cannot read {shown(text)}: time windows follow the clock, and here the rows before decide; write it as "
            f"{example}"
        )
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, AttributeError, MemoryError, RecursionError):
        quoted = _DURATION.sub(r"'\1'", text) if isinstance(text, str) else ""
        if quoted and quoted != text:
            raise ValueError(f"cannot read {shown(text)}; write lengths of time in quotes: {shown(quoted)}") from None
        raise ValueError(f"cannot read {shown(text)}; write it as {example}") from None


def _call(node: ast.expr, known: dict[str, Callable[..., Any]], text: str, example: str) -> Any:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in known):
        raise ValueError(f"cannot read {shown(text)}; write it as {example}; there are {', '.join(known)}")
    if any(keyword.arg is None for keyword in node.keywords):
        raise ValueError(f"cannot read {shown(text)}; write it as {example}")
    given = [_argument(argument, text) for argument in node.args]
    named = {str(keyword.arg): _argument(keyword.value, text) for keyword in node.keywords}
    make = known[node.func.id]
    try:
        inspect.signature(make).bind(*given, **named)
    except TypeError:
        takes = ", ".join(str(part).split(":")[0] for part in inspect.signature(make).parameters.values())
        raise ValueError(f"cannot read {shown(text)}: {node.func.id} takes {takes or 'nothing'}") from None
    return make(*given, **named)


def _argument(node: ast.expr, text: str) -> Any:
    if isinstance(node, ast.Call):
        return _call(node, dict(_TICKS), text, "hourly()")
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise ValueError(f"cannot read {shown(text)}: its arguments are numbers, texts and ticks") from None


def as_ordered(window: OrderedWindow | str) -> OrderedWindow:
    """Take an ordered window as it is, or read it by its name.

    Parameters
    ----------
    window : OrderedWindow or str
        Text as `read_ordered` reads it.

    Returns
    -------
    OrderedWindow

    Raises
    ------
    ValueError
        If the text cannot be read, or this is no ordered window, such as a time window.

    Examples
    --------
    >>> as_ordered("count(100)")
    Count(n=100)
    """
    if isinstance(window, OrderedWindow):
        return window
    if isinstance(window, str):
        return read_ordered(window)
    of_time = ": that is a time window, which follows the clock" if isinstance(window, TimeWindow) else ""
    such_as = "such as windows.ordered.count(100) or since('n > 5')"
    raise ValueError(f"an ordered window is needed here, {such_as}; got {shown(window)}{of_time}")
