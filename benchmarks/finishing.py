"""Nanoseconds per state to compute results from a column of states, for each function.

Queries, rollups and jobs do not check states that they have merged themselves. They check all other states before they
compute results. Both cases are measured.

python -m benchmarks.finishing [STATES]
"""

from __future__ import annotations

import sys
from functools import partial

import numpy as np
import pyarrow as pa

import aggr
from aggr.bench.timing import alternate, one_core
from aggr.function import Function
from aggr.groups.groups import Groups
from aggr.state_checks import mark_as_checked
from benchmarks.costs import Cost, show_grid

QUANTILES = (0.5, 0.9, 0.99, 0.999)
ROWS_A_STATE = 500
STATES = "ns a state"


def finishing(states: int, rounds: int) -> tuple[list[Cost], list[Cost]]:
    """Return the costs of computing results from states of `ROWS_A_STATE` values, in nanoseconds per state, one cost
    per function. The first list is for states that are already checked, and the second for states that are checked in
    the call.
    """
    values = pa.array(np.random.default_rng(3).lognormal(3.0, 1.0, states * ROWS_A_STATE))
    groups = Groups(np.repeat(np.arange(states), ROWS_A_STATE), states)
    functions: list[Function] = [
        *(aggr.get(name)() for name in ("count", "min", "max", "sum", "avg", "var", "stdev")),
        aggr.Dds(QUANTILES),
        aggr.Hdr(QUANTILES, 3, 0.001),
    ]
    all_states = [function.reduce(values, groups) for function in functions]
    own = [
        partial(function.finish, mark_as_checked(column))
        for function, column in zip(functions, all_states, strict=True)
    ]
    outside = [partial(function.finish, column) for function, column in zip(functions, all_states, strict=True)]
    for call in own + outside:
        call()  # The first call compiles loops. It is not measured.
    seconds = alternate(own + outside, rounds)
    costs = [
        Cost(f.name, "tiltframe", STATES, s / states * 1e9) for f, s in zip([*functions] * 2, seconds, strict=True)
    ]
    return costs[: len(functions)], costs[len(functions) :]


if __name__ == "__main__":
    one_core()
    count = int(sys.argv[1]) if sys.argv[1:] else 20_000
    for title, costs in zip(("checked states", "states that are checked first"), finishing(count, 7), strict=True):
        show_grid(f"results of {title}, ns per state", costs, "tiltframe")
