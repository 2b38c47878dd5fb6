"""The registry of the kinds of windows, which maps the first word of a window's text to the kind of the window.

There are two families of windows: time windows, and ordered windows (`windows.ordered`). A kind of time window and a
kind of ordered window may have the same first word, such as ``session``. A package adds kinds of either family by entry
points in the group ``tiltframe.windows``::

    [project.entry-points."tiltframe.windows"]
    half_month = "payroll:HalfMonth"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

from aggr.arguments import shown
from aggr.duration import UNITS
from aggr.entry_points import load_group
from windows.contract import TimeWindow
from windows.kinds.all_time import AllTime
from windows.kinds.hopping import hopping
from windows.kinds.session import session
from windows.kinds.tumbling import window

GROUP = "tiltframe.windows"
# For the base class of each family: a mapping from the first word of a text to the function or class that creates the
# window.
_FAMILIES: dict[type[Any], dict[str, Callable[..., Any]]] = {
    TimeWindow: {"tumbling": window, "hopping": hopping, "session": session, "all": AllTime}
}
_K = TypeVar("_K", bound=type)


def add_family(base: type[Any], makers: Mapping[str, Callable[..., Any]]) -> None:
    """Add a family of windows: the subclasses of ``base``.

    ``makers`` maps the first word of a window's text to the function that creates this built-in kind of window.
    """
    _FAMILIES[base] = dict(makers)


def register(kind: _K) -> _K:
    """Register a kind of window, so that it can be read from text.

    Parameters
    ----------
    kind : subclass of TimeWindow or of windows.ordered.OrderedWindow
        A frozen dataclass whose fields are numbers, booleans, texts or tuples. In text, a tuple is written as a list.
        If a time window has a field ``timezone``, it receives the time zone of the frame.

    Returns
    -------
    The class itself, so that `register` can be used as a decorator

    Raises
    ------
    TypeError
        If ``kind`` is not a subclass of either class, or does not define a required method.
    ValueError
        If the attribute ``kind`` of the class is not a word in lower case, is a unit of time, or is registered for
        another class.

    Examples
    --------
    >>> register(int)
    Traceback (most recent call last):
    TypeError: register takes a subclass of windows.TimeWindow or windows.ordered.OrderedWindow; got the class int
    """
    window_class: Any = kind
    base = next((base for base in _FAMILIES if isinstance(window_class, type) and issubclass(window_class, base)), None)
    if base is None:
        raise TypeError(
            f"register takes a subclass of windows.TimeWindow or windows.ordered.OrderedWindow; got {shown(kind)}"
        )
    if missing := sorted(window_class.__abstractmethods__):
        raise TypeError(
            f"{kind.__name__} does not define {', '.join(missing)}; windows.{base.__name__} describes each method"
        )
    makers = _FAMILIES[base]
    word = window_class.kind
    if not isinstance(word, str) or not word.isidentifier() or not word.islower() or word in UNITS:
        raise ValueError(
            f"the kind of a window must be a word in lower case such as 'half_month', and not a unit of time; "
            f"{kind.__name__} has {shown(word)}"
        )
    registered: Any = makers.get(word, kind)
    # Classes are compared by name, because running a cell of a notebook again creates a new class with the same name,
    # which replaces the earlier one.
    if (registered.__module__, registered.__qualname__) != (kind.__module__, kind.__qualname__):
        raise ValueError(
            f"the kind {word!r} is taken by {registered.__module__}.{registered.__qualname__}; choose another word"
        )
    makers[word] = kind
    return kind


def unregister(kind: type[Any]) -> None:
    """Remove a registered kind of window.

    Parameters
    ----------
    kind : subclass of TimeWindow or of windows.ordered.OrderedWindow

    Raises
    ------
    KeyError
        If the kind is not registered.
    """
    for makers in _FAMILIES.values():
        for word, registered in makers.items():
            if registered is kind:
                del makers[word]
                return
    raise KeyError(f"{shown(kind)} is not registered; pass a class that was registered before")


def window_constructors(base: type[Any], name: str = "") -> Mapping[str, Callable[..., Any]]:
    """Return a mapping from the first word of a window's text to the function that creates this kind of window, for the
    family of the class ``base``. Unless ``name`` is already registered, the kinds of other packages are loaded first.
    """
    makers = _FAMILIES[base]
    if name not in makers:
        _load_entry_points()
    return makers


@cache
def _load_entry_points() -> None:
    """Register the kinds of windows of other packages."""
    load_group(GROUP, "window", register)
