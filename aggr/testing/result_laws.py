"""Laws of values that are computed from states in other ways than by `finish`: accessors, and results at the edges of
windows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from aggr.accessor import AccessorMethod, accessor_methods, call_declared_accessor
from aggr.arrow.bit_equality import digest
from aggr.function_inputs import EVENT_TIME
from aggr.groups.groups import Groups
from aggr.neighbours import Neighbours
from aggr.testing.cases import Case, require_same_bits
from aggr.testing.harness import LawBroken, require

# arguments with which an accessor is called, in addition to two values of the rows
_ARGUMENTS = (0.5, 1, "a")
# the number of windows between the first and the last event time of a case
_WINDOWS = 4
# Only event times that are nearer to 1970 than this number of microseconds are used, so that the ends of windows are
# 64-bit integers.
_LATEST_TIME = 1 << 60


def accessors(case: Case) -> None:
    """The value of an accessor depends only on one state and the argument, and reading it does not change the state."""
    for method in accessor_methods(type(case.function)).values():
        for arguments in _arguments_of(method, case.values):
            _check_accessor(case, method, arguments)


def _arguments_of(method: AccessorMethod, values: pa.Array) -> Iterator[tuple[Any, ...]]:
    """Yield arguments to try with an accessor: none if it needs none, and candidates that it may reject."""
    if method.is_optional:
        yield ()
    if method.parameter is not None:
        yield from ((argument,) for argument in (*values.drop_null()[:2].to_pylist(), *_ARGUMENTS))


def _check_accessor(case: Case, method: AccessorMethod, arguments: tuple[Any, ...]) -> None:
    states = case.states
    before = digest(states)
    # Called directly first, because `call_declared_accessor` also raises TypeError for values of another type.
    try:
        getattr(case.function, method.name)(states, *arguments)
    except (TypeError, ValueError, ArithmeticError, NotImplementedError):
        if arguments:  # an argument that the accessor does not take
            return
        raise
    call = f"{method.name}({', '.join(map(repr, arguments))})"
    try:
        values = call_declared_accessor(case.function, method, states, arguments)
    except TypeError as error:
        raise LawBroken(str(error)) from None
    require(digest(states) == before, f"the accessor {call} changed a state; it must not write into its argument")
    for group in range(case.groups.n):
        alone = call_declared_accessor(case.function, method, states.slice(group, 1), arguments)
        require_same_bits(alone, values.slice(group, 1), f"the accessor {call} of a state alone")


def edges(case: Case) -> None:
    """With neighbours, the result of a window depends only on the windows of the same key, in any order of states."""
    if not case.function.reads_neighbours or EVENT_TIME not in case.function.inputs:
        return
    rows = case.function.grouped(case.values, case.groups)
    times = rows.array.field(EVENT_TIME).cast(pa.timestamp("us"), safe=False).cast(pa.int64())
    has_time = rows.array.is_valid().to_numpy(zero_copy_only=False) & times.is_valid().to_numpy(zero_copy_only=False)
    times = times.fill_null(0).to_numpy()
    used = np.flatnonzero(has_time & (times > -_LATEST_TIME) & (times < _LATEST_TIME))
    if not len(used):
        return
    times = times[used]
    length = int(times.max() - times.min()) // _WINDOWS + 1
    # one window per row: its key, and its number
    windows = np.stack([rows.groups.ids[used], times // length], axis=1)
    unique_windows, ids = np.unique(windows, axis=0, return_inverse=True)
    window_groups = Groups(ids.reshape(-1).astype(np.intp), len(unique_windows))
    states = case.function.reduce(rows.array.take(pa.array(used)), window_groups)
    starts = unique_windows[:, 1] * length
    neighbours = Neighbours(
        Groups(unique_windows[:, 0].astype(np.intp), case.groups.n), starts, starts + length, longest=2 * length
    )
    _check_neighbours(case, states, neighbours)


def _check_neighbours(case: Case, states: pa.StructArray, neighbours: Neighbours) -> None:
    """Finish states with neighbours, and require the same results for each key alone and in another order."""
    before = digest(states)
    results = case.function.finish(states, neighbours)
    require(digest(states) == before, "finish_with_neighbours changed a state; it must not write into its arguments")
    for key in np.unique(neighbours.keys.ids):
        is_of_key = neighbours.keys.ids == key
        mask = pa.array(is_of_key)
        alone = case.function.finish(states.filter(mask), neighbours.filter(is_of_key))
        require_same_bits(alone, results.filter(mask), "the results of the windows of a key alone")
    order = case.rng.permutation(len(states))
    keys = Groups(neighbours.keys.ids[order], neighbours.keys.n)
    reordered = Neighbours(keys, neighbours.starts[order], neighbours.ends[order], neighbours.longest)
    indices = pa.array(order)
    require_same_bits(
        case.function.finish(states.take(indices), reordered), results.take(indices), "windows in another order"
    )
