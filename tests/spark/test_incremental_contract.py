"""Functions as incremental aggregators (zero, reduce, merge, finish and a buffer schema), an interface that Spark plans
for Python.

No release of Spark has this interface yet. Its buffers are rows with a Spark schema, so here states are converted to
Python values between all calls.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr import Function, Groups
from spark_udaf.versions.arrow_types import from_arrow_type, to_arrow_type

VALUES = np.random.default_rng(5).integers(1, 1000, 3000).astype(np.float64)
PARTITIONS = np.array_split(VALUES, [700, 700, 2500])  # the second one has no rows
ROWS_PER_BATCH = 256
ASCENDING = sorted(VALUES.tolist())
MEDIAN = ASCENDING[(len(ASCENDING) - 1) // 2]

ANSWERS: dict[str, Any] = {
    "count": len(VALUES),
    "sum": math.fsum(VALUES),
    "min": ASCENDING[0],
    "max": ASCENDING[-1],
    "avg": pytest.approx(statistics.fmean(VALUES), rel=1e-15),
    "var": pytest.approx(statistics.variance(VALUES.tolist()), rel=1e-14),
    "stdev": pytest.approx(statistics.stdev(VALUES.tolist()), rel=1e-14),
    "dds": pytest.approx(MEDIAN, rel=0.0101),
    "hdr": pytest.approx(MEDIAN, rel=0.01),
}


class Incremental:
    """One group of a function as an incremental aggregator of Spark."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.state_type = function.state_type(pa.float64())
        self.buffer_schema = from_arrow_type(self.state_type)

    def zero(self) -> Any:
        return self._buffer(self.function.zero(1, pa.float64()))

    def reduce(self, buffer: Any, values: np.ndarray) -> Any:
        batch = self.function.reduce(pa.array(values), Groups.single(len(values)))
        return self.merge(buffer, self._buffer(batch))

    def merge(self, buffer: Any, other: Any) -> Any:
        states = pa.array([buffer, other], to_arrow_type(self.buffer_schema))
        return self._buffer(self.function.merge(states, Groups.single(2)))

    def finish(self, buffer: Any) -> Any:
        return self.function.finish(pa.array([buffer], to_arrow_type(self.buffer_schema)))[0].as_py()

    def _buffer(self, states: pa.Array) -> Any:
        (buffer,) = states.to_pylist()
        return buffer


def aggregate(make: Callable[[], Incremental], backwards: bool) -> Any:
    buffers = []
    for values in PARTITIONS:
        task = make()
        buffer = task.zero()
        for start in range(0, len(values), ROWS_PER_BATCH):
            buffer = task.reduce(buffer, values[start : start + ROWS_PER_BATCH])
        buffers.append(buffer)
    final = make()
    buffer = final.zero()
    for other in reversed(buffers) if backwards else buffers:
        buffer = final.merge(buffer, other)
    return final.finish(buffer)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("name", ANSWERS)
def test_functions_are_incremental_aggregators(name, backwards):
    answer = aggregate(lambda: Incremental(aggr.get(name)()), backwards)
    value = answer["quantiles"]["0.5"] if isinstance(answer, dict) else answer
    assert value == ANSWERS[name]
