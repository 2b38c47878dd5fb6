"""Accessors of functions: methods that compute one value per state, in addition to the result of the function.

>>> import aggr, pyarrow as pa, pyarrow.compute as pc
>>> from dataclasses import dataclass
>>> from aggr.extend import GREATEST, LEAST, PlainState, accessor
>>> @dataclass(frozen=True)
... class Spread(aggr.Function):
...     name, keeps, returns, guarantee = "spread", "least and greatest value", "the input's type", "exact"
...     own_state = PlainState("spread", {"low": LEAST, "high": GREATEST})
...     def finish_states(self, states):
...         return pc.subtract(states.field("high"), states.field("low"))
...     @accessor(pa.bool_())
...     def covers(self, states, value):
...         return pc.and_(pc.less_equal(states.field("low"), value), pc.greater_equal(states.field("high"), value))
>>> accessor_methods(Spread)["covers"].parameter
'value'
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import pyarrow as pa

from aggr.arguments import shown
from aggr.arrow.normalize import with_nulls
from aggr.function import Function
from aggr.state_checks import checked

Method = TypeVar("Method", bound=Callable[..., pa.Array])

_MARK = "_accessor_result_type"
# The names that no accessor may have, because the names of other SQL functions end with them, such as aggr_NAME_state.
_RESERVED_NAMES = ("state", "merge", "finish", "list")


@dataclass(frozen=True)
class AccessorMethod:
    """An accessor that a function declares.

    Parameters
    ----------
    name : str
        The name of the method.
    result_type : pa.DataType
        The type of the values that it returns.
    parameter : str or None
        The name of the accessor's parameter after the states, or None if there is no such parameter.
    is_optional : bool
        True if the parameter has a default, or if there is no parameter.
    """

    name: str
    result_type: pa.DataType
    parameter: str | None
    is_optional: bool


def accessor(result_type: pa.DataType) -> Callable[[Method], Method]:
    """Declare a method of a function as an accessor, which computes one value per state.

    Parameters
    ----------
    result_type : pa.DataType
        The type of the values.

    Returns
    -------
    callable
        A decorator for a method ``(self, states)`` or ``(self, states, value)``. The method receives ``states`` as a
        struct array without nulls, whose states have already been checked. It returns an array of ``result_type`` with
        one value per state. The accessor is called ``aggr_FUNCTION_METHOD(states, value)`` in SQL. It can also be
        called by `spark_udaf.states.read_accessor` on Spark, and by `aggr.tables.accessors.read_accessor` in Python.

    Raises
    ------
    TypeError
        If ``result_type`` is not an Arrow type.

    Examples
    --------
    See the docstring of the module `aggr.accessor`.
    """
    if not isinstance(result_type, pa.DataType):
        raise TypeError(f"accessor takes the Arrow type of its values, such as pa.bool_(); got {shown(result_type)}")

    def declare(method: Method) -> Method:
        setattr(method, _MARK, result_type)
        return method

    return declare


@cache
def accessor_methods(function: type[Function]) -> dict[str, AccessorMethod]:
    """Return the accessors that a function declares, by name.

    Raises
    ------
    ValueError
        If an accessor has a reserved name, or more than one parameter after the states.
    """
    methods: dict[str, AccessorMethod] = {}
    for name in dir(function):
        method = inspect.getattr_static(function, name)
        result_type = getattr(method, _MARK, None)
        if result_type is not None:
            methods[name] = _accessor_method(function, method, result_type)
    return methods


def _accessor_method(function: type[Function], method: Any, result_type: pa.DataType) -> AccessorMethod:
    """Return the description of the accessor ``method`` of ``function``, which returns values of ``result_type``.

    Raise ``ValueError`` for a reserved name, or for more than one parameter after the states.
    """
    name = method.__name__
    if name in _RESERVED_NAMES:
        raise ValueError(
            f"{function.__name__} has an accessor {name!r}; choose a name other than {', '.join(_RESERVED_NAMES)}"
        )
    parameters = list(inspect.signature(method).parameters.values())[2:]
    if len(parameters) > 1 or any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        raise ValueError(
            f"the accessor {name!r} of {function.__name__} has {len(parameters)} parameters after the states: "
            f"{', '.join(map(str, parameters))}; declare one or none"
        )
    if not parameters:
        return AccessorMethod(name, result_type, parameter=None, is_optional=True)
    is_optional = parameters[0].default is not inspect.Parameter.empty
    return AccessorMethod(name, result_type, parameter=parameters[0].name, is_optional=is_optional)


def call_declared_accessor(
    function: Function, method: AccessorMethod, states: pa.Array, arguments: tuple[Any, ...]
) -> pa.Array:
    """Return the values of an accessor that a function declares.

    Parameters
    ----------
    function : Function
    method : AccessorMethod
        One of `accessor_methods` of the function's class.
    states : column of states, shape (n,)
    arguments : tuple
        The argument of the accessor, or an empty tuple.

    Returns
    -------
    array of the declared type, shape (n,)
        One value per state, null if the state is null.

    Raises
    ------
    TypeError
        If the number of arguments is wrong, or if the method does not return one value of the declared type per state.
    """
    required_count = 0 if method.is_optional else 1
    allowed_count = 0 if method.parameter is None else 1
    if not required_count <= len(arguments) <= allowed_count:
        raise TypeError(
            f"the accessor {method.name} takes these arguments after the states: {method.parameter or 'none'}; got "
            f"{len(arguments)} arguments"
        )
    column = checked(function, states).states
    valid_states = column.drop_null()
    values = getattr(function, method.name)(valid_states, *arguments)
    if not isinstance(values, pa.Array) or values.type != method.result_type or len(values) != len(valid_states):
        returned = f"{len(values)} values of {values.type}" if isinstance(values, pa.Array) else shown(values)
        raise TypeError(
            f"the accessor {method.name!r} of {function.name} must return {len(valid_states)} values of "
            f"{method.result_type}, one per state; it returned {returned}"
        )
    return with_nulls(values, column.is_valid())
