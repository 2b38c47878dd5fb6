"""The call of any registered function, by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aggr import calls
from aggr.measure import Measure
from aggr.registry import get


def caller(name: str) -> Callable[..., Measure]:
    """Find the call of a function by its name, also of one that was registered from outside.

    Parameters
    ----------
    name : str
        Of a registered function; others raise as in `aggr.get`.

    Returns
    -------
    callable of (column, the function's parameters, where=None) that makes a measure

    Examples
    --------
    >>> caller("var")("bytes", 0)
    var('bytes', ddof=0)
    """
    function = get(name)
    own: Callable[..., Measure] | None = getattr(calls, name, None)
    if own is not None:
        return own

    def call(column: str, *parameters: Any, where: str | None = None, **named: Any) -> Measure:
        return Measure(function(*parameters, **named), column, where)

    return call
