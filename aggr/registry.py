"""The registry: all functions by name, including those that entry points declare.

A distribution adds functions through entry points of the group ``aggr.functions``::

    [project.entry-points."aggr.functions"]
    geomean = "aggr_geomean:Geomean"
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from keyword import iskeyword

from aggr.accessor import accessor_methods
from aggr.arguments import checked_name, nearest, shown
from aggr.entry_points import load_group
from aggr.function import Function, column_keywords
from aggr.function_inputs import WEIGHT, keyword
from aggr.state_checks import FUNCTION, VERSION

GROUP = "aggr.functions"
_FUNCTIONS: dict[str, type[Function]] = {}
_QUANTILES = (
    "quantile quantiles percentile percentiles percentile_approx approx_percentile percentile_cont approxquantile"
)
_DISTINCT = "nunique n_unique countdistinct distinct approx_distinct theta_sketch_agg hll_sketch_agg"
# Names of functions in other tools, in lower case, each with the function to use here.
_NAMES_IN_OTHER_TOOLS = {
    **dict.fromkeys(_QUANTILES.split(), "dds(x, quantiles=[0.9, 0.99]), or hdr"),
    **dict.fromkeys(_DISTINCT.split(), "count_distinct(x), which is exact, or approx_count_distinct(x)"),
    "median": "dds(x, quantiles=[0.5])",
}


def register(function: type[Function]) -> type[Function]:
    """Register a function under its name and its aliases. Can be used as a class decorator.

    Parameters
    ----------
    function : subclass of Function

    Returns
    -------
    The class itself.

    Raises
    ------
    TypeError
        If ``function`` is not a subclass of `aggr.Function`, or lacks a method that `aggr.Function` requires.
    ValueError
        If the name, or an alias, is not an identifier or belongs to another class; if the function cannot be created
        without arguments; if a parameter or a field of the state has a reserved name; or if a parameter of the state is
        not a parameter of the function. Every parameter needs a default, because stored states are recognized by a
        function that is created without arguments.

    Examples
    --------
    >>> register(int)
    Traceback (most recent call last):
    TypeError: register takes a subclass of aggr.Function; got the class int
    """
    if not (isinstance(function, type) and issubclass(function, Function)):
        raise TypeError(f"register takes a subclass of aggr.Function; got {shown(function)}")
    words = [getattr(function, "name", None), *function.__dict__.get("aliases", ())]
    for word in words:
        if not isinstance(word, str) or not word.isidentifier() or iskeyword(word) or word.startswith("_"):
            raise ValueError(
                f"the name of a function must be a word such as 'geomean'; the class {function.__name__} has the name "
                f"{word!r}"
            )
        owner = _FUNCTIONS.get(word, function)
        # Classes are compared by name, because running a cell of a notebook again defines a new class with the same
        # name, which replaces the earlier one.
        if (owner.__module__, owner.__qualname__) != (function.__module__, function.__qualname__):
            raise ValueError(
                f"the name {word!r} is already used by {owner.__module__}.{owner.__qualname__}; choose another"
            )
    _check(words[0], function)
    _add_names(function)
    return function


def _add_names(function: type[Function]) -> None:
    words = [function.name, *function.__dict__.get("aliases", ())]
    _FUNCTIONS.update(dict.fromkeys(words, function))


def register_own(*functions: type[Function]) -> None:
    """Register functions of this distribution without the checks of `register`.

    The checks create Arrow values. This would import pandas, and programs would start more slowly. Tests make the
    checks instead.
    """
    for function in functions:
        _add_names(function)


def _check(name: str, function: type[Function]) -> None:
    """Raise an error for an invalid function. Without this check, it would fail later, during a computation."""
    if missing := sorted(getattr(function, "__abstractmethods__", ())):
        raise TypeError(
            f"{function.__name__} does not define {', '.join(missing)}; the documentation of aggr.Function describes "
            "each of them"
        )
    if missing := [
        word for word in ("keeps", "returns", "guarantee") if not isinstance(getattr(function, word, None), str)
    ]:
        raise ValueError(
            f"{name} needs the attribute {missing[0]!r}, a short description for users; got "
            f"{getattr(function, missing[0], None)!r}"
        )
    parameters = [f.name for f in fields(function)]
    if clashes := {"column", "where", FUNCTION, VERSION, *column_keywords(function)} & set(parameters):
        raise ValueError(f"{name} has a parameter {clashes.pop()!r}, which is a reserved name; choose another")
    _check_inputs(name, function)
    accessor_methods(function)  # raises an error for accessors with a reserved name or too many parameters
    if function.takes_weights and WEIGHT in function.inputs:
        raise ValueError(
            f"{name} takes weights, so none of its inputs can be called {WEIGHT!r}; choose another name for this input"
        )
    try:
        instance = function()
    except Exception as error:  # code of other packages may raise any error; the message names the function
        raise ValueError(
            f"{name} cannot be created without arguments ({error}); give each parameter a default"
        ) from None
    _check_state(name, instance)


def _check_state(name: str, function: Function) -> None:
    """Raise an error if the state of a function cannot be stored, or has the name of another state."""
    try:
        state = function.own_state
        fields_of_state = list(state.fields)
        state.parameter_columns(0)
        state_name = state.name
    except Exception as error:
        raise ValueError(f"{name} cannot describe its states: {error}; correct its own_state") from None
    if clashes := {FUNCTION, VERSION, *state.parameters} & set(fields_of_state):
        raise ValueError(f"{name} has a field {clashes.pop()!r} in its state, which is a reserved name; choose another")
    if state_name != name and state_name in _FUNCTIONS:
        registered_state = _FUNCTIONS[state_name]().own_state
        if type(registered_state) is not type(state) or list(registered_state.fields) != fields_of_state:
            raise ValueError(
                f"the state of {name} is called {state_name!r}, which is the name of another state; use the state of "
                f"{state_name} itself, or choose another name"
            )


def _check_inputs(name: str, function: type[Function]) -> None:
    """Raise ``ValueError`` unless all inputs are valid identifiers, and no two have the same keyword."""
    if not function.inputs or not all(isinstance(role, str) and role.isidentifier() for role in function.inputs):
        raise ValueError(f"{name} needs inputs that are words, such as ('value',); got {shown(function.inputs)}")
    words = ["column", *map(keyword, function.inputs[1:])]
    words.append("where")
    if clash := next((word for word in words if words.count(word) > 1), None):
        raise ValueError(
            f"{name} has inputs {shown(function.inputs)}, and two arguments of its calls would be called {clash!r}; "
            "choose other names. Calls have the arguments 'column' and 'where', and pass an input 'time' as 'by'"
        )


def unregister(name: str | type[Function]) -> None:
    """Remove a function from the registry, with its aliases.

    Parameters
    ----------
    name : str, or a registered class
        The name of the function, or an alias.

    Raises
    ------
    KeyError, ValueError
        For the same reasons as `get`.
    """
    removed = get(name.name if isinstance(name, type) and issubclass(name, Function) else name)
    for word in [word for word, function in _FUNCTIONS.items() if function is removed]:
        del _FUNCTIONS[word]


def get(name: str) -> type[Function]:
    """Return a function by its name.

    Parameters
    ----------
    name : str
        The name of the function, or an alias.

    Returns
    -------
    subclass of Function

    Raises
    ------
    UnknownFunction
        If there is no such function. It is a ``KeyError``, and suggests the most similar name.
    ValueError
        If ``name`` is not text.

    Examples
    --------
    >>> get("dds").guarantee
    'quantiles have a relative error of at most α; the other fields are exact'
    """
    # Entry points are loaded only for other names, because loading them takes a twentieth of a second. They cannot
    # replace functions that are registered.
    if checked_name(name, "a function") not in _FUNCTIONS:
        _load_entry_points()
    if name not in _FUNCTIONS:
        replacement = _NAMES_IN_OTHER_TOOLS.get(name.lower())
        hint = f"write {replacement}" if replacement else nearest(name, names())
        raise UnknownFunction(f"there is no function {shown(name)}; {hint}")
    return _FUNCTIONS[name]


def names() -> list[str]:
    """Return the names of all functions, sorted; aliases are left out."""
    _load_entry_points()
    return sorted({function.name for function in _FUNCTIONS.values()})


def functions() -> tuple[type[Function], ...]:
    """Return all functions, sorted by name; aliases are left out."""
    return tuple(_FUNCTIONS[name] for name in names())


def aliases() -> dict[str, str]:
    """Return all aliases, each with the name of its function.

    >>> aliases()["mean"]
    'avg'
    """
    _load_entry_points()
    return {word: function.name for word, function in _FUNCTIONS.items() if word != function.name}


def class_names() -> list[str]:
    """Return the names of the classes of all functions, such as ``'Rate'``."""
    _load_entry_points()
    return sorted({function.__name__ for function in _FUNCTIONS.values()})


def class_named(name: str) -> type[Function] | None:
    """Return the function whose class is called ``name``, or None.

    >>> class_named("Dds").name, class_named("DDS")
    ('dds', None)
    """
    _load_entry_points()
    return next((function for function in _FUNCTIONS.values() if function.__name__ == name), None)


@cache
def _load_entry_points() -> None:
    """Register the functions that entry points declare. This happens once per process, when functions are first looked
    up. A warning is issued for each function that cannot be loaded.
    """
    load_group(GROUP, "function", register, register_tested=register_own)


class UnknownFunction(KeyError):
    """Raised for a name under which no function is registered."""

    def __str__(self) -> str:
        """Return the message without the quotes that a KeyError adds."""
        return str(self.args[0])
