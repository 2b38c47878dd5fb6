"""The call of any registered function, by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from inspect import Parameter, Signature
from typing import Any

from aggr import calls
from aggr.function import EVENT_TIME, WEIGHT, Function, keyword
from aggr.measure import Measure
from aggr.parameters import default_of, typed
from aggr.registry import get


def caller(name: str) -> Callable[..., Measure]:
    """Find the call of a function by its name, also of one that was registered from outside.

    Parameters
    ----------
    name : str
        Of a registered function, or an alias.

    Returns
    -------
    callable of (column, the function's parameters, where=None) that makes a measure
        Of a function of several inputs also the columns of the further ones, by their names; the event time by ``by``;
        of a function that takes weights, ``weight``.
        Parameters that are decimals or times are taken as text as well.

    Raises
    ------
    UnknownFunction, ValueError
        As `aggr.get` does. The call raises ``TypeError`` for arguments that the function does not take, and
        ``ValueError`` for values that it does not allow.

    Examples
    --------
    >>> caller("var")("bytes", 0)
    var('bytes', ddof=0)
    """
    function = get(name)
    own: Callable[..., Measure] | None = getattr(calls, name, None)
    if function.__module__.startswith("aggr.") and own:
        return own
    signature = _signature(function)

    def call(*positional: Any, **named: Any) -> Measure:
        try:
            given = signature.bind(*positional, **named).arguments
        except TypeError as error:
            raise TypeError(f"{name}: {error}; it takes {', '.join(signature.parameters)}") from None
        parameters = {part: given.pop(part) for part in _parameters(function) if part in given}
        for part in parameters.keys() & function.state_parameters.keys():
            parameters[part] = typed(part, parameters[part], function.state_parameters[part])
        others = tuple(given.pop(keyword(role), None) for role in function.inputs[1:])
        return Measure(function(**parameters), others=others, **given)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = function.__doc__
    call.__dict__["__signature__"] = signature
    return call


def _parameters(function: type[Function]) -> list[str]:
    return [f.name for f in fields(function) if f.init]


def _signature(function: type[Function]) -> Signature:
    """Write the signature of a call: the column, the function's own parameters, its further inputs, ``where``."""
    own = [
        Parameter(f.name, Parameter.POSITIONAL_OR_KEYWORD, default=default_of(f)) for f in fields(function) if f.init
    ]
    more = [
        Parameter(keyword(role), Parameter.KEYWORD_ONLY, default=None if role == EVENT_TIME else Parameter.empty)
        for role in function.inputs[1:]
    ]
    optional = ["where", WEIGHT] if function.takes_weights() else ["where"]
    more += [Parameter(word, Parameter.KEYWORD_ONLY, default=None) for word in optional]
    return Signature([Parameter("column", Parameter.POSITIONAL_OR_KEYWORD), *own, *more])
