"""Laws of a function's declarations: parameters, versions, weights, and the subtraction of states."""

from __future__ import annotations

import copy
import pickle
from contextlib import suppress
from dataclasses import fields
from functools import partial

import numpy as np
import pyarrow as pa

from aggr.fields import CannotSubtract
from aggr.groups.groups import Groups
from aggr.parameters import example_value
from aggr.state_checks import FUNCTION, VERSION
from aggr.testing.cases import Case, require_refusal, require_same_bits
from aggr.testing.harness import require
from aggr.testing.other_process import is_importable
from aggr.testing.parameter_values import variants


def refusal(case: Case) -> None:
    """Merging raises an error for states with other parameters, states of another function, and columns of other types.
    Finishing raises an error for states that name another function.
    """
    states = case.states
    n = case.groups.n
    for name, dtype in case.function.own_state.parameters.items():
        other_value = None if case.function.own_state.parameter(name) is not None else example_value(dtype)
        if pa.types.is_null(dtype):  # null is the only value of this type, so no other value can be tried
            continue
        other_values = pa.repeat(pa.scalar(other_value, dtype), n)
        fields = {f.name: states.field(f.name) for f in states.type} | {name: other_values}
        changed_states = pa.StructArray.from_arrays(list(fields.values()), names=list(fields))
        require_refusal(partial(case.merge, changed_states), f"states with another value of {name}")
    renamed_fields = {f.name: states.field(f.name) for f in states.type} | {
        FUNCTION: pa.array(["another"] * n, pa.string())
    }
    if n:
        other_states = pa.StructArray.from_arrays(list(renamed_fields.values()), names=list(renamed_fields))
        require_refusal(partial(case.merge, other_states), "states that name another function")
        require_refusal(partial(case.function.finish, other_states), "states that name another function")
    unknown_states = pa.StructArray.from_arrays([pa.array([1] * n)], names=["strange"])
    require_refusal(partial(case.merge, unknown_states), "states of another function")


def versions(case: Case) -> None:
    """Merging and finishing raise an error for states of a later version, and for states of earlier versions that the
    function cannot read.
    """
    states = case.states
    version = case.function.own_state.version
    unsupported = set(range(1, version)) - set(case.function.own_state.versions)
    refused_versions = [version + 1, *unsupported] if len(states) else []
    for other in refused_versions:
        fields = {f.name: states.field(f.name) for f in states.type}
        fields[VERSION] = pa.array([other] * len(states), fields[VERSION].type)
        states_of_other_version = pa.StructArray.from_arrays(list(fields.values()), names=list(fields))
        require_refusal(partial(case.merge, states_of_other_version), f"states of version {other}")
        require_refusal(partial(case.function.finish, states_of_other_version), f"states of version {other}")


def reading_parameters(case: Case) -> None:
    """A parameter of the function that is not a parameter of its state does not change any state."""
    shaping = {*case.function.own_state.parameters, *case.function.own_state.optional_parameters}
    for parameter in fields(case.function):
        if not parameter.init or parameter.name in shaping:
            continue
        values_from_author = list(case.parameters.get(parameter.name, ()))
        for value, other in variants(case.function, parameter.name, case.parameters):
            context = f"with {parameter.name}={value!r}, which is not a parameter of the state"
            try:
                states = other.reduce(case.values, case.groups)
            except Exception:
                if value in values_from_author:
                    raise
                continue  # the function does not accept the guessed value
            require_same_bits(states, case.states, context)


def state_parameters(case: Case) -> None:
    """Functions with different values of a parameter that is stored in the state have different states."""
    own_state = case.function.own_state
    for name in {*own_state.parameters, *own_state.optional_parameters} & {
        f.name for f in fields(case.function) if f.init
    }:
        for value, other in variants(case.function, name, case.parameters):
            try:
                state = other.own_state
            except (TypeError, ValueError):
                continue  # the function accepts the guessed value, but cannot create a state with it
            require(
                state != own_state,
                f"with {name}={value!r}, own_state is the same as with {name}={getattr(case.function, name)!r}, "
                f"although {name!r} is a parameter of the state; pass the value of the function in own_state",
            )


def copies(case: Case) -> None:
    """A deep copy of the function, and a pickled copy, such as Spark sends to its workers, are equal to the function.

    Functions with other values of the parameters are also copied.
    """
    functions = [case.function]
    for parameter in fields(case.function):
        if parameter.init:
            functions += [variant for _, variant in variants(case.function, parameter.name, case.parameters)]
    for function in functions:
        duplicates = [("deepcopy", copy.deepcopy(function))]
        if is_importable(function):
            duplicates.append(("pickle", pickle.loads(pickle.dumps(function))))
        for method, duplicate in duplicates:
            require(
                duplicate == function, f"a copy by {method} of {function!r} is {duplicate!r}, which is not equal to it"
            )


def weights(case: Case) -> None:
    """A row of weight n has the same effect as n rows. A row of weight 0 or null has no effect."""
    if not case.function.takes_weights:
        return
    counts = case.rng.integers(0, 4, len(case.values))
    rows = np.repeat(np.arange(len(counts)), counts)
    repeated = case.function.reduce(case.values.take(pa.array(rows)), Groups(case.groups.ids[rows], case.groups.n))
    missing = pa.array(counts, mask=(counts == 0) & (case.rng.random(len(counts)) < 0.5))
    require_same_bits(case.function.reduce(case.values, case.groups, missing), repeated)
    large_weights = case.rng.integers(1, 2**40, len(case.values))
    part = large_weights // 3
    with suppress(OverflowError):
        reduced = case.function.reduce(case.values, case.groups, pa.array(large_weights))
        pieces = [
            case.function.reduce(case.values, case.groups, pa.array(weights))
            for weights in (part, large_weights - part)
        ]
        require_same_bits(case.merge(pa.concat_arrays(pieces)), reduced, "weights up to 2^40")


def subtraction(case: Case) -> None:
    """Subtracting states from a merge gives the remaining states, or raises `CannotSubtract`."""
    if not case.function.own_state.counted_by:
        return
    n = case.groups.n
    parts = case.parts(2)
    first_states = parts.slice(0, n)
    second_states = parts.slice(n)
    merged = case.merge(parts)
    zero = case.function.zero(n, case.values.type)
    require_same_bits(case.function.subtract(merged, zero), merged, "after subtracting states of no rows")
    require_same_bits(case.function.subtract(merged, merged), zero, "after subtracting all rows")
    for group in range(n):  # one group at a time, because only some of the groups may raise `CannotSubtract`
        row = slice(group, group + 1)
        with suppress(CannotSubtract):
            require_same_bits(case.function.subtract(merged[row], second_states[row]), first_states[row])
