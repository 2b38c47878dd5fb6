"""Finishing: nanoseconds a state, from a column of states to its results, function by function.

python -m benchmarks.finishing [STATES]
"""

from __future__ import annotations

import sys
from functools import partial

import numpy as np
import pyarrow as pa

import aggr
from aggr.function import Function
from aggr.kernels.groups import Groups
from benchmarks.costs import Cost, show_grid
from benchmarks.timing import alternate, one_core

QUANTILES = (0.5, 0.9, 0.99, 0.999)
ROWS_A_STATE = 500
STATES = "ns a state"


def finishing(states: int, rounds: int) -> list[Cost]:
    """Time how results are read from states of `ROWS_A_STATE` values each."""
    values = pa.array(np.random.default_rng(3).lognormal(3.0, 1.0, states * ROWS_A_STATE))
    groups = Groups(np.repeat(np.arange(states), ROWS_A_STATE), states)
    functions: list[Function] = [
        *(aggr.get(name)() for name in ("count", "min", "max", "sum", "avg", "var", "stdev")),
        aggr.Dds(QUANTILES),
        aggr.Hdr(QUANTILES, 3, 0.001),
    ]
    calls = [partial(function.finish, function.reduce(values, groups)) for function in functions]
    for call in calls:
        call()  # compiles
    seconds = alternate(calls, rounds)
    return [Cost(f.name, "tiltframe", STATES, s / states * 1e9) for f, s in zip(functions, seconds, strict=True)]


if __name__ == "__main__":
    one_core()
    show_grid("finishing, ns a state", finishing(int(sys.argv[1]) if sys.argv[1:] else 20_000, 7), "tiltframe")
