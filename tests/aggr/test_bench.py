"""`aggr.bench`: its figures, compared with independent computations, and the arguments that it rejects."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr import bench
from aggr.bench.exact import errors_of, exact_of
from aggr.bench.exact_statistics import STATISTICS
from aggr.bench.peers import counterparts, read_peer
from aggr.extend import COUNT, EVENT_TIME, SUMMABLE, TIMES, ExactSums, State, SumsState
from benchmarks.by_fractions import exact_pair_statistic, exact_statistic

SMALL = {"rows": 2000, "groups": (1, 7), "rounds": 1, "memory": False}


@pytest.fixture(autouse=True)
def few_values(monkeypatch):
    """Compare errors on few values, because exact results in fractions take a second per 100,000 values."""
    monkeypatch.setattr("aggr.bench.run.ERROR_ROWS", 500)


@dataclass(frozen=True)
class MeanCube(ExactSums):
    """Take the mean of the cubes of a column."""

    name = "mean_cube"
    keeps = "exact sum of cubes, count"
    returns = "float64"
    own_state = SumsState("mean_cube", {"cubes": "value·value·value"})

    def result(self, sums):
        return sums["cubes"].over(sums.n)

    def exact(self, rows):
        return float(sum(Fraction(x) ** 3 for x in rows.to_pylist()) / len(rows))


@dataclass(frozen=True)
class ScaledSum(ExactSums):
    """Take the sum of the products of a column with another column. Event times are the second of its three inputs."""

    name = "scaled_sum"
    keeps = "exact sum of products, count"
    returns = "float64"
    inputs = ("value", EVENT_TIME, "scale")
    takes: ClassVar = {"value": SUMMABLE, EVENT_TIME: TIMES, "scale": SUMMABLE}
    own_state = SumsState(
        "scaled_sum",
        {"products": "value·scale"},
        units={"value": "unit", "scale": "scale_unit"},
        special={"special": "value·scale"},
    )

    def result(self, sums):
        return sums["products"].over_integers(np.ones_like(sums.counts))

    def exact(self, rows):
        return float(sum(Fraction(row["value"]) * Fraction(row["scale"]) for row in rows.to_pylist()))


@dataclass(frozen=True)
class OneTooMany(State):
    name = "rows_seen"

    @property
    def fields(self):
        return {"count": COUNT}

    def reduce_values(self, values):
        return {"count": pa.array(np.bincount(values.groups.ids, minlength=values.groups.n) + 1)}


@dataclass(frozen=True)
class RowsSeen(aggr.Function):
    """Count rows, and wrongly add one for each state that is merged."""

    name = "rows_seen"
    keeps = "count"
    returns = "int64"
    guarantee = "none"

    own_state = OneTooMany()

    def finish_states(self, states):
        return states.field("count")


@pytest.mark.parametrize(
    "call",
    [
        aggr.dds("x", [0.5, 0.99]),
        aggr.sum("x", weight="n"),
        aggr.corr("y", x="x"),
        aggr.count(),
        aggr.count(where="x > 20"),
        aggr.first("x"),
        aggr.bool_and("ok"),
        aggr.mode("word"),
        aggr.collect("x", max=10_000),
        aggr.arg_max("x", by="y"),
    ],
    ids=str,
)
def test_any_function_is_measured_in_all_stages(call):
    report = bench.bench(call, against=(), **SMALL)
    stages = [(timing.stage, timing.groups) for timing in report.timings]
    assert stages == [(stage, n) for n in (1, 7) for stage in ("reduce", "merge", "finish", "answers")]
    assert all(timing.ns > 0 for timing in report.timings)
    assert report.keeps_bits == {repr(call): True}
    assert [size.rows for size in report.sizes] == [1, 100]
    assert all(size.bytes for size in report.sizes)


def test_a_function_of_ones_own_is_compared_with_the_exact_result_that_it_declares():
    measure = aggr.Measure(MeanCube(), "x")
    (error,) = bench.bench(measure, against=(), **SMALL).errors
    assert (error.by, error.worst_relative, error.worst_rank) == ("tiltframe", 0.0, None)


def test_errors_are_measured_if_event_times_are_not_the_last_input():
    measure = aggr.Measure(ScaledSum(), "x", others=(None, "y"))
    (error,) = bench.bench(measure, against=(), **SMALL).errors
    assert (error.by, error.worst_relative) == ("tiltframe", 0.0)


def test_states_that_change_when_they_are_merged_are_reported():
    report = bench.bench(aggr.Measure(RowsSeen(), "x"), against=(), **SMALL)
    assert report.keeps_bits == {"rows_seen('x')": False}
    assert "NO" in bench.as_text(report)


def test_errors_of_quantiles_are_those_of_a_naive_computation():
    values = bench.draw("lognormal", 500, seed=3)
    exact = exact_of(aggr.Hdr((0.5, 0.9)))(pa.array(values))
    ordered = sorted(values)
    assert exact == {"0.5": (ordered[249], ordered[250]), "0.9": (ordered[449], ordered[450])}
    high = exact["0.9"][1]
    result = {"quantiles": {"0.5": exact["0.5"][0], "0.9": high * 1.25}}
    half, tail = errors_of([result], [exact], [np.sort(values)])
    assert (half.worst_relative, half.worst_rank) == (0.0, 0.0)
    assert math.isclose(tail.worst_relative, 0.25)
    assert math.isclose(tail.worst_rank, sum(value < high * 1.25 for value in values) / 500 - 0.9)


@pytest.mark.parametrize("name", ["sum", "avg", "var", "stdev", "min", "max", "count"])
def test_exact_functions_have_no_error_on_any_distribution(name):
    report = bench.bench(getattr(aggr, name)("x"), against=(), distributions=bench.DISTRIBUTIONS[:3], **SMALL)
    assert {error.distribution for error in report.errors} == set(bench.DISTRIBUTIONS[:3])
    assert all(error.worst_relative == 0 for error in report.errors), report.errors


def test_errors_of_a_weighted_measure_are_those_of_repeated_rows():
    rows = pa.table({"ms": [1.0, 2.0, 3.0, 4.0, 100.0] * 40, "n": [1, 1, 1, 1, 50] * 40})
    measures = [aggr.dds("ms", [0.5], weight="n"), aggr.sum("ms", weight="n")]
    report = bench.bench(measures, data=rows, rounds=1, against=[], memory=False)
    assert len(report.errors) == 2
    assert all(error.worst_relative <= 0.01 for error in report.errors)
    huge = pa.table({"ms": rows["ms"], "n": pa.array([10**12] * 200)})  # too many to be repeated
    assert bench.bench(measures[0], data=huge, rounds=1, against=[], memory=False).errors == []


def test_errors_of_data_with_nulls_and_nan():
    runs_of_nulls = pa.table({"ms": pa.array([None] * 30_000 + [1.0, 2.0] * 10_000)})
    (error,) = bench.bench(aggr.avg("ms"), data=runs_of_nulls, rounds=1, against=[], memory=False).errors
    assert error.worst_relative == 0
    with_nan = pa.table({"ms": [math.nan, *range(300)]})  # the mean is NaN, whose relative error is undefined
    assert bench.bench(aggr.avg("ms"), data=with_nan, rounds=1, against=[], memory=False).errors == []


def test_a_function_that_refuses_the_rows_has_no_errors_and_no_bytes_there():
    report = bench.bench(aggr.count_distinct("x", max=50), against=(), rows=100, groups=(10,), rounds=1, memory=False)
    assert [(size.rows, size.bytes is None) for size in report.sizes] == [(1, False), (100, True)]
    assert report.errors == []


@pytest.mark.parametrize(
    ("measure", "peers"),
    [
        (
            aggr.dds("x", [0.5, 0.9]),
            ["duckdb:quantile_cont(x, [0.5, 0.9])", "datasketches:kll(k=400)", "ddsketch:ddsketch"],
        ),
        (aggr.avg("x"), ["duckdb:avg(x)", "polars:avg(x)"]),
        (aggr.sum("x"), ["numpy:sum(x)"]),
        (aggr.count("x"), ["numpy:count(x)"]),
        (aggr.dds("x", [0.5, 0.9]), ["datasketches:req", "datasketches:tdigest", "hdrhistogram:hdrhistogram"]),
        (aggr.approx_count_distinct("x"), ["datasketches:theta(lg_k=14)", "datasketches:hll"]),
    ],
    ids=str,
)
def test_peers_give_results_of_the_same_rows(measure, peers):
    data = pa.table({"x": bench.draw("normal", 1000)})
    report = bench.bench(measure, against=peers, data=data, groups=(3,), rounds=1, memory=False)
    assert [timing.by for timing in report.timings if timing.stage == "answers"] == ["tiltframe", *peers]
    worst = {error.by: error.worst_relative for error in report.errors}
    assert set(worst) == {"tiltframe", *peers}
    assert max(worst.values()) < 0.1


def test_clickhouse_gives_results_of_the_same_rows():
    pytest.importorskip("chdb", reason="chdb is only in the environment of the benchmarks")
    data = pa.table({"x": bench.draw("normal", 1000)})
    peer = "clickhouse:quantilesDD(0.01, 0.5, 0.9)(x)"
    report = bench.bench(aggr.dds("x", [0.5, 0.9]), against=peer, data=data, groups=(3,), rounds=1, memory=False)
    assert max(error.worst_relative for error in report.errors if error.by == peer) < 0.02
    with pytest.raises(ValueError, match="ClickHouse cannot evaluate 'mean_cube"):
        bench.bench(aggr.avg("x"), against="clickhouse:mean_cube(x)", **SMALL)


@pytest.mark.parametrize(
    "peer",
    ["datasketches:kll", "datasketches:req", "datasketches:tdigest", "ddsketch:ddsketch", "hdrhistogram:hdrhistogram"],
)
def test_sketches_of_other_packages_are_merged_from_unchanged_parts(peer):
    values = bench.draw("lognormal", 4000, seed=5)
    sketch = read_peer(peer, aggr.dds("x", [0.5, 0.9]))
    parts = [sketch.build(np.array(part)) for part in np.split(values, 8)]
    before = [sketch.read(part) for part in parts]
    merged = sketch.read(sketch.merged(parts))
    assert np.allclose(merged, np.quantile(values, [0.5, 0.9]), rtol=0.1)
    assert [sketch.read(part) for part in parts] == before
    assert np.allclose(sketch.read(sketch.merged(parts)), merged, rtol=0.1)


@pytest.mark.parametrize("peer", ["datasketches:theta", "datasketches:hll"])
def test_sketches_of_distinct_values_are_merged(peer):
    sketch = read_peer(peer, aggr.hll("x"))
    parts = [sketch.build(np.arange(start, start + 600)) for start in range(0, 4000, 500)]
    assert math.isclose(sketch.read(sketch.merged(parts)), 4100, rel_tol=0.05)


def test_sketches_of_other_packages_are_measured_in_all_stages():
    report = bench.bench(aggr.dds("x", [0.5]), against="datasketches:kll", **SMALL)
    stages = {(t.stage, t.unit) for t in report.timings if t.by == "datasketches:kll" and t.groups == 7}
    assert stages == {("reduce", "row"), ("merge", "state"), ("finish", "state"), ("answers", "row")}


def test_slow_packages_receive_whole_groups(monkeypatch):
    monkeypatch.setattr("aggr.bench.peers.ddsketch.DDSketch.row_limit", 500)
    report = bench.bench(aggr.dds("x", [0.5]), against="ddsketch:ddsketch", **{**SMALL, "groups": (1, 8)})
    rows = {t.groups: t.rows for t in report.timings if t.by == "ddsketch:ddsketch" and t.stage == "answers"}
    ids = np.random.default_rng(1).integers(0, 8, 2000)  # the groups that the seed gives
    assert rows == {1: 500, 8: int((ids < 2).sum())}


def test_checked_states_are_not_checked_again(monkeypatch):
    checks = []
    monkeypatch.setattr("aggr.function.check_states", lambda *_, **__: checks.append(1))

    def count_checks(checked_states):
        checks.clear()
        request = {**SMALL, "groups": (1,)}
        bench.bench(aggr.max("x"), against=(), checked_states=checked_states, **request)
        return len(checks)

    assert count_checks(False) == count_checks(True) + 2  # finish runs once untimed, and once timed


def test_cpu_time_does_not_contain_waiting():
    calls = []

    def wait():
        calls.append(0)
        time.sleep(0.05)

    (elapsed,) = bench.alternate([wait], rounds=2)
    (cpu,) = bench.alternate([wait], rounds=2, clock=time.process_time)
    assert len(calls) == 2 * (2 + 1)  # the first run is not timed
    assert cpu < 0.04 < elapsed
    report = bench.bench(aggr.max("x"), against=(), cpu_time=True, **SMALL)
    assert report.about["clock"] == "CPU time"


def test_cpu_time_of_other_processes_is_refused(monkeypatch):
    monkeypatch.setattr("aggr.bench.peers.duckdb.DuckDB.is_in_process", False)
    with pytest.raises(ValueError, match=r"duckdb:max\(x\) runs in another process"):
        bench.bench(aggr.max("x"), against="duckdb:max(x)", cpu_time=True, **SMALL)


def test_counterparts_of_built_in_functions_are_found():
    assert "duckdb:approx_quantile(ms, [0.5])" in map(str, counterparts(aggr.dds("ms", [0.5])))
    assert counterparts(aggr.dds("ms", [0.5], where="ms > 1")) == []
    assert counterparts(aggr.funnel("page", ["view"])) == []


def test_data_of_ones_own_and_seeds():
    data = pa.table({"x": [1.0, 2.0, 4.0], "unused": ["a", "b", "c"]})
    first, second = (
        bench.bench(aggr.max("x"), against=(), data=data, groups=(1, 5), rounds=1, memory=False) for _ in "ab"
    )
    assert [t.groups for t in first.timings] == [1] * 4  # five groups of three rows are left out
    assert [s.bytes for s in first.sizes] == [s.bytes for s in second.sizes]
    assert bench.draw("bimodal", 9, seed=2).tolist() == bench.draw("bimodal", 9, seed=2).tolist()


def test_a_report_is_read_back_and_compared():
    report = bench.bench(aggr.max("x"), against=(), **SMALL)
    again = bench.Report.from_json(report.to_json())
    assert again == report
    slower = json.loads(report.to_json())
    slower["timings"][0]["ns"] *= 2
    changes = bench.Report.from_json(json.dumps(slower)).changes_since(report)
    assert [(timing.stage, round(ratio, 6)) for timing, ratio in changes] == [("reduce", 2.0)]
    assert "new / earlier" in bench.as_text(again, bench.Report.from_json(json.dumps(slower)))


def test_an_interrupt_keeps_the_figures_so_far():
    def interrupt(done, total, step):
        if done == 1:
            raise KeyboardInterrupt

    report = bench.bench(aggr.max("x"), against=(), progress=interrupt, **SMALL)
    assert not report.is_complete
    assert report.sizes
    assert not report.timings
    assert "not complete" in bench.as_text(report)


@pytest.mark.long
@pytest.mark.slow
def test_memory_is_measured_in_a_process_of_its_own():
    report = bench.bench(aggr.collect("x", max=500_000), against=(), rows=200_000, groups=(1,), rounds=1)
    (memory,) = report.memory
    assert memory.bytes is None or memory.bytes > 200_000 * 8  # the state contains all values


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"against": ["duckdb"]}, "write NAME:EXPRESSION"),
        ({"against": ["duck:avg(x)"]}, "unknown peer 'duck'"),
        ({"against": ["numpy:avg(x)"]}, r"write numpy:sum\(COLUMN\)"),
        ({"against": ["numpy:sum(y)"]}, "no column 'y'"),
        ({"against": ["duckdb:nothing(x)"]}, "DuckDB cannot evaluate"),
        ({"against": ["polars:nothing(x)"]}, "Polars cannot evaluate"),
        ({"against": ["datasketches:kll"]}, "compare it with a measure that returns quantiles"),
        ({"against": ["datasketches:klm"]}, "unknown sketch 'klm'"),
        ({"distributions": ["gauss"]}, "unknown distribution 'gauss'"),
        ({"groups": [0]}, "a number of groups"),
        ({"groups": [10_000]}, "more groups than rows"),
        ({"rounds": 0}, "rounds"),
        ({"data": pa.table({"y": [1]})}, "x"),
        ({"data": pa.table({"x": pa.array([], pa.float64())})}, "no rows"),
        ({"data": pa.table({"x": ["a"]})}, "avg"),
    ],
    ids=str,
)
def test_wrong_requests_are_refused_before_anything_is_measured(change, message):
    steps = []
    with pytest.raises((ValueError, TypeError), match=message):
        bench.bench(aggr.avg("x"), **{**SMALL, "against": (), "progress": lambda *step: steps.append(step), **change})
    assert steps == []


def test_text_that_is_not_a_report_is_refused():
    for text in ("", "[]", "{}", '{"format": 0}', '{"format": 1, "timings": [{"ns": 1}]}'):
        with pytest.raises(ValueError, match="pass a file written by --out"):
            bench.Report.from_json(text)


def test_a_peer_says_which_package_is_missing(monkeypatch):
    from aggr.bench.peers.duckdb import DuckDB

    monkeypatch.setattr(DuckDB, "package", "not_there")
    with pytest.raises(ValueError, match=r"pip install 'tiltframe\[bench\]'"):
        read_peer("duckdb:avg(x)", aggr.avg("x"))
    assert all(peer.name != "duckdb" for peer in counterparts(aggr.avg("x")))


NUMBERS = [1.5, 2.0, 2.0, 8.25, -3.0, 0.5]
PAIRS = [{"y": y, "x": x} for y, x in zip(NUMBERS, [4.0, 1.0, 1.0, 0.25, 7.0, 2.5], strict=True)]


@pytest.mark.parametrize(
    ("function", "values", "expected"),
    [
        *((aggr.get(name)(), PAIRS, name) for name in ("covar", "corr", "slope", "intercept", "r2")),
        *(
            (aggr.get(name)(sample=sample), NUMBERS, name)
            for name in ("skewness", "kurtosis")
            for sample in (False, True)
        ),
        (aggr.get("entropy")(), ["a", "a", "b", "b"], 1.0),
        (aggr.get("geometric_mean")(), [1.0, 4.0, 16.0], 4.0),
        (aggr.get("harmonic_mean")(), [1.0, 4.0, 4.0], 2.0),
        (aggr.get("rms")(), [1.0, 7.0], 5.0),
        (aggr.get("sum_of_squares")(), [1.0, 7.0], 50.0),
        (aggr.get("range")(), NUMBERS, 11.25),
        (aggr.get("sum_distinct")(), [2, 2, 3], 5.0),
        (aggr.get("avg_distinct")(), [2, 2, 3], 2.5),
        (aggr.get("bit_and")(), [6, 3], 2.0),
        (aggr.get("bit_or")(), [6, 3], 7.0),
        (aggr.get("bit_xor")(), [6, 3], 5.0),
        (aggr.get("bool_and")(), [True, False], 0.0),
        (aggr.get("bool_or")(), [True, False], 1.0),
        (aggr.get("weighted_avg")(), [{"value": 1.0, "weight": 3.0}, {"value": 5.0, "weight": 1.0}], 2.0),
        (aggr.get("first")(), [{"value": 1.0, "time": 9}, {"value": 5.0, "time": 3}], 5.0),
        (aggr.get("last")(), [{"value": 1.0, "time": 9}, {"value": 5.0, "time": 3}], 1.0),
        (aggr.get("resets")(), [{"value": v, "time": t} for t, v in enumerate([1.0, 3.0, 2.0, 4.0, 0.0])], 2.0),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_exact_statistics_are_those_of_other_computations(function, values, expected):
    if function.name in ("covar", "corr", "slope", "intercept", "r2"):
        expected = exact_pair_statistic(function.name, [pair["y"] for pair in values], [pair["x"] for pair in values])
    elif function.name in ("skewness", "kurtosis"):
        expected = exact_statistic(function.name, values, function.sample)
    (interval,) = exact_of(function)(pa.array(values)).values()
    assert interval == (expected, expected)


def test_every_exact_statistic_is_tested():
    marks = test_exact_statistics_are_those_of_other_computations.pytestmark
    assert {function.name for function, _, _ in marks[0].args[1]} == set(STATISTICS)
