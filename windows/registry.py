"""The registry of the kinds of time windows, by the first word of their text. It includes those of other packages.

A package adds kinds by entry points in the group ``tiltframe.windows``::

    [project.entry-points."tiltframe.windows"]
    half_month = "payroll:HalfMonth"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from aggr.arguments import shown
from aggr.duration import UNITS
from aggr.entry_points import load_group
from windows.contract import TimeWindow
from windows.kinds.all_time import AllTime
from windows.kinds.hopping import hopping
from windows.kinds.session import session
from windows.kinds.tumbling import window

GROUP = "tiltframe.windows"
_KINDS: dict[str, Callable[..., TimeWindow]] = {
    "tumbling": window, "hopping": hopping, "session": session, "all": AllTime,
}  # fmt: skip


def register(kind: type[TimeWindow]) -> type[TimeWindow]:
    """Register a kind of window, so that it can be read from text.

    Parameters
    ----------
    kind : subclass of TimeWindow
        A frozen dataclass whose fields are numbers, booleans, texts or tuples. In text, a tuple is written as a list.
        If there is a field ``timezone``, it receives the time zone of the frame.

    Returns
    -------
    The class itself, so that `register` can be used as a decorator

    Raises
    ------
    TypeError
        If ``kind`` is not a subclass of `TimeWindow`, or lacks one of its methods.
    ValueError
        If its `TimeWindow.kind` is not a word in lower case, is a unit of time, or is registered for another class.

    Examples
    --------
    >>> register(int)
    Traceback (most recent call last):
    TypeError: register takes a subclass of windows.TimeWindow; got the class int
    """
    if not (isinstance(kind, type) and issubclass(kind, TimeWindow)):
        raise TypeError(f"register takes a subclass of windows.TimeWindow; got {shown(kind)}")
    if missing := sorted(kind.__abstractmethods__):
        raise TypeError(
            f"{kind.__name__} does not define {', '.join(missing)}; windows.TimeWindow describes each method"
        )
    word = kind.kind
    if not isinstance(word, str) or not word.isidentifier() or not word.islower() or word in UNITS:
        raise ValueError(
            f"the kind of a window must be a word in lower case such as 'half_month', and not a unit of time; "
            f"{kind.__name__} has {shown(word)}"
        )
    registered = _KINDS.get(word, kind)
    # compare names, because running a notebook's cell again creates a new class
    if (registered.__module__, registered.__qualname__) != (kind.__module__, kind.__qualname__):
        raise ValueError(
            f"the kind {word!r} is taken by {registered.__module__}.{registered.__qualname__}; choose another word"
        )
    _KINDS[word] = kind
    return kind


def unregister(kind: type[TimeWindow]) -> None:
    """Remove a registered kind of window.

    Parameters
    ----------
    kind : subclass of TimeWindow

    Raises
    ------
    KeyError
        If the kind is not registered.
    """
    words = [word for word, registered in _KINDS.items() if registered is kind]
    if not words:
        raise KeyError(f"{shown(kind)} is not registered; pass a class that was registered before")
    del _KINDS[words[0]]


def kinds(name: str = "") -> Mapping[str, Callable[..., TimeWindow]]:
    """Return a mapping from the first word of a window's text to the function that creates this kind of window. Unless
    ``name`` is already registered, the kinds of other packages are loaded first.
    """
    if name not in _KINDS:
        _load_others()
    return _KINDS


@cache
def _load_others() -> None:
    """Register the kinds of windows of other packages."""
    load_group(GROUP, "window", register)
