"""Identification: find the function of the states in a column, from their type and contents."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

from aggr.arrow import compute as pc
from aggr.arrow.normalize import normalize
from aggr.function import Function
from aggr.groups.groups import type_name
from aggr.parameters import distinct_values, frozen
from aggr.registry import functions, get, names
from aggr.state_checks import FUNCTION, VERSION, checked


def function_of(states: pa.Array | pa.ChunkedArray) -> Function:
    """Return the function that merges and reads the states in a column, with the parameters of the states.

    Parameters that affect only results have their defaults. If several functions share a state, the simpler one is
    returned: sum rather than avg, var rather than stdev. If all states in the column are null, the result is the first
    function, in the order of names, whose states have the column's type. Raises ``TypeError`` if no registered function
    has states of this type, and ``ValueError`` if the states belong to several functions or have different parameters.

    >>> from aggr import Dds, Groups
    >>> function_of(Dds((0.9,), 0.02).reduce(pa.array([1.0]), Groups.single(1)))
    Dds(quantiles=(0.5, 0.9, 0.99), method='lower', relative_accuracy=0.02, max_bins=None)
    """
    if not isinstance(states, pa.Array | pa.ChunkedArray):
        raise TypeError(f"states must be an Arrow column; got {type_name(states)}")
    states = normalize(states)
    function = _function_named_in(states) or class_of(states.type)
    if function is None:
        raise unknown_state_type_error(states.type)
    rows = states.drop_null()
    state = function().own_state
    optional = {name: t for name, t in state.optional_parameters.items() if states.type.get_field_index(name) >= 0}
    types = {**state.parameters, **optional}
    parameters = {name: distinct_values(name, rows.field(name), dtype).to_pylist() for name, dtype in types.items()}
    for name, values in parameters.items():
        if len(values) > 1:
            raise ValueError(
                f"states of {function.name} with {name}={values[0]} and {name}={values[1]} cannot be merged; "
                f"use the same value of {name!r} everywhere"
            )
    return function(**{name: frozen(values[0]) for name, values in parameters.items() if values})


def unknown_state_type_error(dtype: pa.DataType) -> TypeError:
    """Return the error for a column whose type is not the type of the states of a registered function."""
    if not pa.types.is_struct(dtype) or dtype.get_field_index(FUNCTION) < 0:
        return TypeError(f"no registered function has states of type {dtype}; pass states, not values or results")
    return TypeError(
        f"no registered function has states of type {dtype}; the registered functions are {', '.join(names())}"
    )


def _function_named_in(states: pa.Array) -> type[Function] | None:
    """Return the function whose name the states contain.

    Return None if all states are null, or if no registered function has states of this type.
    Raise ``ValueError`` if the states contain several names, and ``TypeError`` if the function is not registered.
    """
    if class_of(states.type) is None:
        return None
    function_names = pc.unique(states.drop_null().field(FUNCTION)).to_pylist()
    if len(function_names) > 1:
        raise ValueError(
            f"states of {function_names[0]} and states of {function_names[1]} cannot be merged; merge only "
            "states of the same function"
        )
    if function_names and function_names[0] not in names():
        raise TypeError(
            f"these are states of {function_names[0]!r}, which is not registered here; import or install the package "
            f"that registers it; the registered functions are {', '.join(names())}"
        )
    return get(function_names[0]) if function_names else None


def class_of(dtype: pa.DataType) -> type[Function] | None:
    """Return the first registered function, in the order of names, whose states have this type, or None.

    Several functions can have states of the same type; only the states themselves contain the name of their function.
    """
    return _class_among(functions(), dtype) if pa.types.is_struct(dtype) else None


@lru_cache(maxsize=256)  # cached, because a query looks up the same types many times
def _class_among(registered: tuple[type[Function], ...], dtype: pa.DataType) -> type[Function] | None:
    fields = frozenset(f.name for f in dtype)
    functions_with_fields = [function for function in registered if _has_layout(function, fields)]
    if not functions_with_fields:
        return None
    owners = (function for function in functions_with_fields if _owns_state_type(function, dtype))
    return next(owners, functions_with_fields[0])


def states_in(schema: pa.Schema) -> list[str]:
    """Return the names of the columns with states of a registered function."""
    return [f.name for f in schema if class_of(f.type) is not None]


@lru_cache(maxsize=256)
def _owns_state_type(function: type[Function], dtype: pa.DataType) -> bool:
    """Return whether a column of the type ``dtype`` is valid for the states of ``function``, and ``function`` does not
    use the state of another function.
    """
    try:
        checked(function(), pa.array([], dtype))
    except (ValueError, TypeError):
        return False
    return function.name == function().own_state.name


def _has_layout(function: type[Function], fields: frozenset[str]) -> bool:
    """Return whether a struct has the fields of a function's states, with or without the optional parameters."""
    required, optional = _fields_of(function)
    return required <= fields <= required | optional


@lru_cache(maxsize=256)
def _fields_of(function: type[Function]) -> tuple[frozenset[str], frozenset[str]]:
    """Return two sets of names: the fields that all states of a function have, and the fields that only some of its
    states have.
    """
    state = function().own_state
    optional = frozenset({*state.optional_parameters, *state.optional_fields})
    return frozenset({FUNCTION, VERSION, *state.parameters, *state.fields}), optional
