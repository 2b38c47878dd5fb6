"""The functions of tiltframe next to those of other packages, on one core, measured by `aggr.bench`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

import aggr
from aggr.bench import Report, bench, draw
from aggr.bench.costs import PARTS
from aggr.bench.peers import counterparts, installed
from aggr.bench.report import OURS
from aggr.measure import Measure
from benchmarks.costs import Cost, costs_of, operation_and_library, reduce_only_library
from benchmarks.quantiles import EXTREME_QUANTILES, QUANTILES

ROWS_PER_GROUP = 555
ROWS_A_STATE = 800  # the number of rows in each state that is merged
ONE_GROUP = "one group"
MANY = "many groups"
STATES = "ns a state"
DISTRIBUTIONS = ("lognormal", "pareto", "uniform")
SEVEN = ("count", "min", "max", "sum", "avg", "var", "stdev")
# the worst case for merging states of dds: no two values are in adjacent buckets
SCATTERED = "over 600 decades"


@dataclass(frozen=True)
class Errors:
    """The largest relative errors of a sketch, one for each of `EXTREME_QUANTILES`, on one distribution."""

    # The name of the sketch.
    what: str
    # The name of the library.
    who: str
    distribution: str
    errors: tuple[float, ...]


@dataclass(frozen=True)
class Bytes:
    """The bytes of a state of a sketch, with ``rows`` values of a distribution."""

    # The name of the sketch.
    what: str
    # The name of the library.
    who: str
    distribution: str
    rows: int
    bytes: int


def simple_costs(rows: int, rounds: int) -> list[Cost]:
    """Return the costs of each simple aggregate in nanoseconds per row, for one group and for many groups. Raise
    ``AssertionError`` if a result of tiltframe is not the double nearest to the exact result.
    """
    costs = []
    for name in SEVEN:
        measure = getattr(aggr, name)("x")
        peers = [str(peer) for peer in counterparts(measure)]
        report = _report(measure, peers, rows, rounds)
        if any(error.worst_relative for error in report.errors if error.by == OURS):
            raise AssertionError(f"{measure} differs from the exact result: {report.errors}")
        costs += [Cost(name, cost.who, cost.case, cost.ns) for cost in reduce_and_answers(report, rows)]
    return costs


def sketch_reports(rows: int, rounds: int) -> list[Report]:
    """Return two reports of sketches of quantiles: of dds next to other packages, and of hdr next to DuckDB."""
    fractions = ", ".join(map(str, EXTREME_QUANTILES))
    texts = [
        f"duckdb:approx_quantile(x, [{fractions}])",
        f"clickhouse:quantilesDD(0.01, {fractions})(x)",
        f"clickhouse:quantilesTDigest({fractions})(x)",
        "ddsketch:ddsketch",
        "hdrhistogram:hdrhistogram(digits=2)",
        "datasketches:kll",
        "datasketches:tdigest",
        "datasketches:req",
    ]
    dds = aggr.dds("x", EXTREME_QUANTILES)
    hdr = aggr.hdr("x", EXTREME_QUANTILES, digits=2, unit=0.01)
    return [_report(dds, installed(texts), rows, rounds), _report(hdr, installed(texts[:1]), rows, rounds)]


def only_ours(report: Report) -> Report:
    """Return a report without the figures of other packages."""
    return replace(
        report,
        timings=[timing for timing in report.timings if timing.by == OURS],
        sizes=[size for size in report.sizes if size.by == OURS],
        errors=[error for error in report.errors if error.by == OURS],
    )


def _report(measure: Measure, peers: Sequence[str], rows: int, rounds: int) -> Report:
    return bench(
        measure,
        against=peers,
        rows=rows,
        groups=(1, rows // ROWS_PER_GROUP),
        distributions=DISTRIBUTIONS,
        rounds=rounds,
        memory=False,
        cpu_time=True,
    )


def reduce_and_answers(report: Report, rows: int) -> list[Cost]:
    """Return two kinds of costs in a report: of reducing rows, and from rows to results. `reduce_only_library` gives
    the library names of the first kind.
    """
    cases = {1: ONE_GROUP, rows // ROWS_PER_GROUP: MANY}
    reduce_costs = [Cost(c.what, reduce_only_library(c.who), c.case, c.ns) for c in costs_of(report, "reduce", cases)]
    return reduce_costs + costs_of(report, "answers", cases)


def merge_costs(groups: int, rounds: int) -> list[Cost]:
    """Return the costs of merging states of `ROWS_A_STATE` rows, in nanoseconds per state. `PARTS` states are merged
    into one.
    """
    rows = groups * PARTS * ROWS_A_STATE
    rng = np.random.default_rng(3)
    # The values lie in 200 buckets that are not adjacent.
    decades = rng.choice(10.0 ** rng.uniform(-300.0, 300.0, 200), rows)
    texts = ["ddsketch:ddsketch", "hdrhistogram:hdrhistogram(digits=2)"]
    texts += ["datasketches:kll", "datasketches:tdigest", "datasketches:req"]
    dds = aggr.dds("x", QUANTILES)
    values = draw("lognormal", rows, seed=3)
    cases = [
        ("dds", dds, values, installed(texts)),
        ("dds of Pareto", dds, draw("pareto", rows, seed=3), ()),
        (f"dds {SCATTERED}", dds, decades, ()),
        ("hdr", aggr.hdr("x", QUANTILES, digits=2, unit=0.01), values, ()),
        *((name, getattr(aggr, name)("x"), values, ()) for name in SEVEN),
    ]
    costs = []
    for name, measure, column, peers in cases:
        table = pa.table({"x": column})
        report = bench(measure, against=peers, data=table, groups=(groups,), rounds=rounds, memory=False, cpu_time=True)
        if not all(report.keeps_bits.values()):
            raise AssertionError(f"{measure}: merged states have other bits than the states of all rows")
        costs += [
            Cost(name if cost.who == OURS else cost.what, cost.who, cost.case, cost.ns)
            for cost in costs_of(report, "merge", {groups: STATES})
        ]
    return costs


def errors_of(reports: Sequence[Report]) -> list[Errors]:
    """Return the largest relative errors of each sketch in reports, by distribution."""
    worst: dict[tuple[str, str, str], list[float]] = {}
    for report in reports:
        for error in report.errors:
            key = (*operation_and_library(error.measure, error.by), error.distribution)
            worst.setdefault(key, []).append(error.worst_relative)
    return [
        Errors(operation, library, distribution, tuple(errors))
        for (operation, library, distribution), errors in worst.items()
    ]


def bytes_of(reports: Sequence[Report]) -> list[Bytes]:
    """Return the bytes of a state of each sketch in reports, by the number of rows."""
    return [
        Bytes(*operation_and_library(size.measure, size.by), DISTRIBUTIONS[0], size.rows, size.bytes)
        for report in reports
        for size in report.sizes
        if size.bytes is not None and size.rows > 1
    ]
