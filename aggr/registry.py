"""The registry: every function by its name, those of other distributions among them.

A distribution brings functions by entry points of the group ``aggr.functions``::

    [project.entry-points."aggr.functions"]
    geomean = "aggr_geomean:Geomean"
"""

from __future__ import annotations

import difflib
import warnings
from functools import cache
from importlib.metadata import entry_points

from aggr.function import Function

GROUP = "aggr.functions"
_FUNCTIONS: dict[str, type[Function]] = {}


def register(function: type[Function]) -> type[Function]:
    """Add a function under its name; also a class decorator.

    Raises ``ValueError`` if the name is taken by another class or is no identifier.
    """
    name = getattr(function, "name", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"a function's name must be a word such as 'geomean'; {function.__name__} has {name!r}")
    if _FUNCTIONS.setdefault(name, function) is not function:
        taken = _FUNCTIONS[name]
        raise ValueError(f"the name {name!r} is taken by {taken.__module__}.{taken.__qualname__}; choose another")
    return function


def unregister(name: str) -> None:
    """Take a function out again; unknown names raise as in `get`."""
    del _FUNCTIONS[get(name).name]


def get(name: str) -> type[Function]:
    """Return the function of a name; raises ``KeyError`` with the nearest names for an unknown one.

    >>> get("dds").guarantee
    'quantiles within α·|x| of the true one; the rest exact'
    """
    _load_others()
    if name not in _FUNCTIONS:
        near = difflib.get_close_matches(name, _FUNCTIONS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names())}"
        raise UnknownFunction(f"there is no function {name!r}; {hint}")
    return _FUNCTIONS[name]


def names() -> list[str]:
    """Return the names of all functions, sorted."""
    _load_others()
    return sorted(_FUNCTIONS)


@cache
def _load_others() -> None:
    """Register the functions of other distributions, once, when the first is asked for; warn of those that fail."""
    for point in entry_points(group=GROUP):
        try:
            function = point.load()
            if not (isinstance(function, type) and issubclass(function, Function)):
                raise TypeError(f"{function!r} is no subclass of aggr.Function")
            register(function)
        except Exception as error:  # another's code: whatever it raises must not take ours along
            whose = point.dist.name if point.dist else "an unknown distribution"
            warnings.warn(f"the function {point.name!r} of {whose} is left out: {error}", RuntimeWarning, stacklevel=3)


class UnknownFunction(KeyError):
    """No function has this name."""

    def __str__(self) -> str:
        """Say it plainly, without the quotes of a KeyError."""
        return str(self.args[0])
