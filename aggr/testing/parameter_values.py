"""Parameter values that laws try instead of a function's own values."""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

from aggr.function import Function

Parameters = Mapping[str, Sequence[Any]]


def variants(function: Function, name: str, parameters: Parameters) -> list[tuple[Any, Function]]:
    """Return copies of the function with other values of a parameter.

    Parameters
    ----------
    function : Function
    name : str
        The name of a parameter.
    parameters : name -> values
        Values from the author of the function. Each value must be allowed.

    Returns
    -------
    list of (value, function)
        The values are the author's values, and guesses that the function accepts.

    Raises
    ------
    TypeError, ValueError
        If the function rejects a value of the author.
    """
    from_author = [(value, replace(function, **{name: value})) for value in parameters.get(name, ())]
    guesses = []
    for value in _guesses(function, name):
        with suppress(Exception):  # the function may reject a guess
            guesses.append((value, replace(function, **{name: value})))
    return [(value, other) for value, other in from_author + guesses if other != function]


def check_parameters(function: Function, parameters: Parameters) -> None:
    """Raise ``ValueError`` if no other value can be tried for a parameter that affects only results.

    Parameters
    ----------
    function : Function
    parameters : name -> values
        Values from the author of the function.

    Raises
    ------
    ValueError
        If there is no value to try, or ``parameters`` has an unknown name. Numbers, flags and values of
        ``typing.Literal`` are guessed. Other values, such as texts and tuples, must come from the author, because a
        guess might have the same effect as the function's own value, so that the law would not test anything.
    """
    names = [parameter.name for parameter in fields(function) if parameter.init]
    for unknown in sorted(set(parameters) - set(names)):
        raise ValueError(f"{function.name} has no parameter {unknown!r}; it has {', '.join(names) or 'none'}")
    for name in names:
        if name in function.own_state.parameters or name in function.own_state.optional_parameters:
            continue
        can_guess = isinstance(getattr(function, name), int | float) or bool(_literal_values(function, name))
        tried_variants = variants(function, name, parameters)
        if not tried_variants or not (can_guess or parameters.get(name)):
            raise ValueError(
                f"the check needs a value of the parameter {name!r} of {function.name} that differs from "
                f"{getattr(function, name)!r}, and cannot guess one; pass some: check(…, parameters={{{name!r}: […]}})"
            )


def _guesses(function: Function, name: str) -> list[Any]:
    value = getattr(function, name)
    if literals := _literal_values(function, name):
        return literals
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value + 1, value * 2, value / 2, 0, 1]
    if isinstance(value, tuple) and all(isinstance(part, int | float) for part in value):
        return [value[:1], tuple(part + 1 for part in value), (0.25, 0.75)]
    return [None, "a", 1, 0.5, True] if value is None or isinstance(value, str) else []


def _literal_values(function: Function, name: str) -> list[Any]:
    """Return the values of a parameter that is annotated with ``typing.Literal``, or [] for other annotations."""
    try:
        hint = typing.get_type_hints(type(function)).get(name)
    except (NameError, TypeError):  # the annotation uses names that exist only for a type checker
        return []
    return list(typing.get_args(hint)) if typing.get_origin(hint) is typing.Literal else []
