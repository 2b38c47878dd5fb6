"""Warming: compile the loops of functions in advance, for example while an image is built or a worker starts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import pyarrow as pa

from aggr.compiling.jit import cache_folders, compile_at_first_call
from aggr.function import Function
from aggr.function_inputs import EVENT_TIME
from aggr.groups.groups import Groups
from aggr.registry import get, names

_ROWS = 64
_GROUPS = 4


def warm(functions: Sequence[str] | None = None) -> list[str]:
    """Compile and cache the loops of functions: reduce, merge and finish a few values of each kind.

    ``functions`` are the names of functions; by default, the loops of all registered functions are compiled. The result
    is a list of the folders with the compiled code, which other processes of the same user or image can use.

    >>> folders = warm(["count"])
    """
    function_names = names() if functions is None else functions
    instances = [get(name)() for name in function_names]
    reduced_states = []
    # The first samples compile the loops that most jobs need. The loops that compute results are compiled last.
    for values in _samples():
        for function in instances:
            try:
                function.check_input(_input(function, values).type)
                with compile_at_first_call():
                    reduced_states.append((function, _states(function, _input(function, values))))
            except (TypeError, ValueError, OverflowError):
                continue  # The function rejects this sample: hdr, for example, rejects negative numbers.
    for function, states in reduced_states:
        # A function may reduce without a parameter that its results need: funnel, for example, needs steps.
        with compile_at_first_call(), suppress(TypeError, ValueError, OverflowError):
            function.finish(states)
    return cache_folders()


def _samples() -> list[pa.Array]:
    """Return arrays of numbers that together need every loop: floats of one sign and of both signs, integers, and
    numbers of similar and of very different magnitudes.
    """
    similar = np.geomspace(1.0, 100.0, _ROWS)
    distant = np.geomspace(1e-200, 1e200, _ROWS)
    integers = np.arange(_ROWS)
    return [
        pa.array(values)
        for values in (similar, np.where(integers % 2, similar, -similar), distant, integers, integers << 40)
    ]


def _input(function: Function, values: pa.Array) -> pa.Array:
    """Return the input of a function as one array, in which ``values`` are the first input.

    For a function with further inputs, the array is a struct. Its further fields contain event times or ones.
    """
    if len(function.inputs) == 1:
        return values
    times = pa.array(np.arange(_ROWS)).cast(pa.timestamp("us", "UTC"))
    further_columns = [times if name == EVENT_TIME else pa.array(np.ones(_ROWS)) for name in function.inputs[1:]]
    return pa.StructArray.from_arrays([values, *further_columns], names=list(function.inputs))


def _states(function: Function, values: pa.Array) -> pa.Array:
    """Return a column with the states of ``values`` in a few large groups, followed by one merged state. The values are
    also reduced in many small groups, for which other loops are used.
    """
    function.reduce(values, Groups(np.arange(_ROWS) // 2, _ROWS // 2))
    states = function.reduce(values, Groups(np.arange(_ROWS) % _GROUPS, _GROUPS))
    merged = function.merge(pa.concat_arrays([states, states]), Groups.single(2 * _GROUPS))
    return pa.concat_arrays([states, merged])
