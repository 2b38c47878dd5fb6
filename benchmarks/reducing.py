"""Nanoseconds per row to reduce values to sketches or simple aggregates, for one group and for many groups.

DuckDB, Polars, chdb and "tiltframe" group a table by an integer key and compute the results. "tiltframe, reduce" only
reduces the rows of known groups to states. Packages of sketches receive one array per group, and compute no results.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from aggr.bench.timing import Call, alternate
from aggr.groups.groups import Groups
from benchmarks import checks, engines, samples, sketches
from benchmarks.costs import Cost
from benchmarks.engines import ALL_SEVEN, SEVEN
from benchmarks.samples import QUANTILES, Floats
from benchmarks.sketches import Sketch

ROWS_A_GROUP = 555
SLOW_SHARE = 20  # packages that need a Python call per row are slow; they are measured with a 20th of the rows
ONE_GROUP, MANY = "one group", "many groups"
REDUCE, ANSWERS = "tiltframe, reduce", "tiltframe"


def sample(rows: int) -> pa.Table:
    """Return a table of ``rows`` lognormal values in random groups of about `ROWS_A_GROUP` rows."""
    g = np.random.default_rng(7).integers(0, max(1, rows // ROWS_A_GROUP), rows)
    return pa.table({"g": g, "x": samples.draw("lognormal", rows)})


def known_groups(table: pa.Table, grouped: bool) -> Groups:
    """Return the groups of a table by its column ``g``, or one group of all rows if ``grouped`` is false."""
    ids = table.column("g").to_numpy()
    return Groups(ids, int(ids.max()) + 1) if grouped else Groups.single(len(ids))


def simple(table: pa.Table, rounds: int) -> list[Cost]:
    """Return the costs of each simple aggregate, and of all seven together, in nanoseconds per row. Each engine is
    measured with one group and with many groups.
    """
    ours, peers = engines.Ours(table), engines.engines(table)
    costs = []
    for grouped, case in ((False, ONE_GROUP), (True, MANY)):
        groups = known_groups(table, grouped)
        checks.simple([(e.name, e.ask(ALL_SEVEN, grouped)) for e in (ours, *peers)], in_arrays(table, groups))
        for question in (*SEVEN, ALL_SEVEN):
            calls: dict[str, Call] = {
                REDUCE: partial(ours.reduce, question, groups),
                **{engine.name: partial(engine.ask, question, grouped) for engine in (ours, *peers)},
            }
            seconds = alternate(list(calls.values()), rounds)
            costs += [Cost(question, who, case, s / len(table) * 1e9) for who, s in zip(calls, seconds, strict=True)]
    return costs


def quantiles(table: pa.Table, rounds: int) -> list[Cost]:
    """Return the costs of all sketches of quantiles, and of the exact quantiles of Polars, in nanoseconds per row. Each
    is measured with one group and with many groups.
    """
    ours, peers = engines.Ours(table), engines.engines(table)
    costs = []
    for grouped, case in ((False, ONE_GROUP), (True, MANY)):
        groups = known_groups(table, grouped)
        arrays = in_arrays(table, groups)
        timed: list[tuple[str, str, Call, int]] = [
            (name, REDUCE, partial(ours.reduce, name, groups), len(table)) for name in ours.sketches
        ]
        for engine in (ours, *peers):
            for name, promise in engine.sketches.items():
                checks.quantiles(f"{engine.name} {name}", promise, engine.ask(name, grouped), arrays)
                timed.append((name, engine.name, partial(engine.ask, name, grouped), len(table)))
        for sketch in sketches.other_sketches():
            few = first_arrays(arrays, sketch)
            estimates = sketch.quantiles(sketch.build(few[0]), QUANTILES)
            checks.promised(sketch.name, sketch.promise, estimates, np.sort(few[0]))
            timed.append((sketch.name, sketch.package, partial(build_all, sketch, few), sum(map(len, few))))
        seconds = alternate([call for _, _, call, _ in timed], rounds)
        costs += [Cost(name, who, case, s / n * 1e9) for (name, who, _, n), s in zip(timed, seconds, strict=True)]
    return costs


def in_arrays(table: pa.Table, groups: Groups) -> list[Floats]:
    """Return the values of the column ``x``, in one array per group."""
    order = np.argsort(groups.ids, kind="stable")
    return np.split(table.column("x").to_numpy()[order], np.cumsum(groups.counts())[:-1])


def first_arrays(arrays: Sequence[Floats], sketch: Sketch) -> Sequence[Floats]:
    """Return the arrays that ``sketch`` receives, one per group. A package that needs a Python call per row receives
    only the share 1 / `SLOW_SHARE` of the rows: the arrays of the first groups or, if there is one group, the beginning
    of its array.
    """
    if not sketch.row_at_a_time:
        return arrays
    if len(arrays) == 1:
        return [arrays[0][: len(arrays[0]) // SLOW_SHARE]]
    return arrays[: max(1, len(arrays) // SLOW_SHARE)]


def build_all(sketch: Sketch, arrays: Sequence[Floats]) -> None:
    """Build the sketch of every array."""
    for values in arrays:
        sketch.build(values)
