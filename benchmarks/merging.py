"""Nanoseconds per state to merge ten states into one, for functions of tiltframe and sketches of other packages."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import aggr
from aggr.arrow.bit_equality import same_bits
from aggr.bench.timing import Call, alternate
from aggr.function import Function
from aggr.groups.groups import Groups
from aggr.histograms.column import Histograms
from benchmarks import sketches
from benchmarks.costs import Cost
from benchmarks.engines import SEVEN
from benchmarks.samples import Floats
from benchmarks.sketches import Sketch

FAN_IN = 10  # the number of states that are merged into one
ROWS_A_STATE = 800
SLOW_SHARE = 50  # packages that add rows to a sketch one by one are slow; they are measured with a 50th of the states
STATES = "ns a state"
SCATTERED = "over 600 decades"  # the worst case, in which no two buckets are adjacent


def merging(states: int, rounds: int) -> list[Cost]:
    """Return the costs of merging states of tiltframe and sketches of other packages, in nanoseconds per state.

    The states of tiltframe are columns that are merged into a new column. Other packages merge objects into new
    objects.
    """
    rng = np.random.default_rng(3)
    values = rng.lognormal(3.0, 1.0, states * ROWS_A_STATE)
    timed: list[tuple[str, str, Call, int]] = []
    for name, function, x in _functions(values, rng):
        column = function.reduce(pa.array(x), Groups(np.repeat(np.arange(states), ROWS_A_STATE), states))
        groups = Groups(np.arange(states) // FAN_IN, -(-states // FAN_IN))
        _check(function, column, x)
        timed.append((_described(name, column), "tiltframe", partial(_afresh, function, column, groups), states))
    for sketch in sketches.other_sketches():
        few = max(2 * FAN_IN, states // SLOW_SHARE) if sketch.row_at_a_time else states
        built = [sketch.build(part) for part in values[: few * ROWS_A_STATE].reshape(few, ROWS_A_STATE)]
        timed.append((sketch.name, sketch.package, partial(_merge_all, sketch, built), few))
    seconds = alternate([call for _, _, call, _ in timed], rounds)
    return [Cost(name, who, STATES, s / n * 1e9) for (name, who, _, n), s in zip(timed, seconds, strict=True)]


def _functions(values: Floats, rng: np.random.Generator) -> list[tuple[str, Function, Floats]]:
    """Return the cases of tiltframe: a name, a function, and the values from which its states are computed."""
    heavy = rng.pareto(1.1, len(values)) + 1.0
    decades = 10.0 ** rng.uniform(-300.0, 300.0, len(values))
    few = np.repeat(decades[:: ROWS_A_STATE // 200], ROWS_A_STATE // 200)  # 200 buckets that are not adjacent
    return [
        ("dds", aggr.Dds(), values),
        ("dds of Pareto", aggr.Dds(), heavy),
        (f"dds {SCATTERED}", aggr.Dds(), few),
        ("hdr", sketches.hdr().function, values),
        *((name, getattr(aggr, name)("x").function, values) for name in SEVEN),
    ]


def _described(name: str, column: pa.StructArray) -> str:
    """Return the text for a case: its name and, if its states have buckets, the mean number of buckets and the mean
    number of bytes per state.
    """
    field = next((column.field(f) for f in ("positive", "buckets") if column.type.get_field_index(f) >= 0), None)
    if field is None:
        return name
    buckets = len(Histograms.from_arrow(field).keys) / len(column)
    return f"{name}, {buckets:.0f} buckets, {column.nbytes / len(column):.0f} bytes"


def _check(function: Function, column: pa.StructArray, values: Floats) -> None:
    """Raise ``AssertionError`` unless merged states have the same bits as states that are computed from the rows."""
    n = 10
    states = column[: n * FAN_IN]
    merged = function.merge(states, Groups(np.repeat(np.arange(n), FAN_IN), n))
    rows = Groups(np.repeat(np.arange(n), FAN_IN * ROWS_A_STATE), n)
    if not same_bits(merged, function.reduce(pa.array(values[: len(rows)]), rows)):
        raise AssertionError(f"{function.name}: merged states differ from those of the merged rows")


def _merge_all(sketch: Sketch, built: list[Any]) -> None:
    """Merge every `FAN_IN` consecutive sketches into one sketch."""
    for start in range(0, len(built), FAN_IN):
        sketch.merge(built[start : start + FAN_IN])


def _afresh(function: Function, column: pa.Array, groups: Groups) -> None:
    """Merge states with a copy of the groups, which has no cached values of an earlier call."""
    function.merge(column, Groups(groups.ids, groups.n))
