"""`tiltframe bench --spark`: all interfaces are measured, bytes equal Spark's metrics, and mistakes are
reported early.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import aggr
from aggr.bench import Report, as_text
from aggr.bench.plots import plot

SMALL = {"rows": 2000, "groups": (1, 20), "rounds": 1}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench") / "rows"
    folder.mkdir()
    rng = np.random.default_rng(1)
    for number in range(2):
        times = pa.array(np.arange(1000) * 7_200_000 + number, pa.timestamp("us", "UTC"))
        table = {"ts": times, "host": [f"h{i % 3}" for i in range(1000)], "ms": rng.lognormal(3, 1, 1000)}
        pq.write_table(pa.table(table), folder / f"{number}.parquet")
    return folder


def ways(report, **case):
    return [
        timing.by for timing in report.timings if all(getattr(timing, name) == value for name, value in case.items())
    ]


@pytest.fixture(scope="module")
def report(spark):
    from spark_udaf.bench import bench

    steps = []
    report = bench(spark, aggr.dds("x", [0.5, 0.99]), skewed=True, progress=lambda *step: steps.append(step), **SMALL)
    assert [step[:2] for step in steps] == [(place, 6) for place in range(7)]
    return report


OWN = ["su.rollup of files", "su.rollup", "su.group_by", "A.dds", "SQL"]


@pytest.mark.long
def test_every_way_is_measured_on_every_case(report):
    spark_function = "spark:percentile_approx(x, array(0.5, 0.99))"
    for groups, keys in ((1, "even"), (20, "even"), (20, "skewed")):
        assert ways(report, groups=groups, keys=keys) == [*OWN, spark_function]
    assert len(report.timings) == len(report.traffic) == 18
    assert all(timing.ns > 0 and timing.rows == 2000 for timing in report.timings)
    assert report.keeps_bits == {"dds('x', quantiles=[0.5, 0.99])": True}
    assert report.is_complete


@pytest.mark.long
def test_states_are_shuffled_in_place_of_rows(report):
    """By Spark's own metrics: lists of values are shuffled in full, states of one group are not."""
    moved = {traffic.by: traffic for traffic in report.traffic if (traffic.groups, traffic.keys) == (1, "even")}
    assert moved["A.dds"].shuffle_bytes > 2000 * 6  # doubles that hardly compress
    assert moved["su.group_by"].shuffle_bytes > 0
    assert all(traffic.spill_bytes == 0 for traffic in report.traffic)
    if sys.platform == "linux":
        assert all(traffic.worker_bytes > 20e6 for traffic in report.traffic if ":" not in traffic.by)
    assert all(traffic.worker_bytes is None for traffic in report.traffic if ":" in traffic.by)


@pytest.mark.long
def test_a_report_is_read_back_written_as_a_table_and_drawn(report, tmp_path):
    assert Report.from_json(report.to_json()) == report
    slower = json.loads(report.to_json())
    slower["timings"][0]["ns"] *= 2
    changes = Report.from_json(json.dumps(slower)).changes_since(report)
    assert [(timing.by, timing.keys, round(ratio, 6)) for timing, ratio in changes] == [
        ("su.rollup of files", "even", 2)
    ]
    lines = as_text(report, report).splitlines()
    assert lines[0].startswith("jobs on Spark")
    assert sum("skewed" in line for line in lines) == 6
    pytest.importorskip("matplotlib")
    plot(report, tmp_path / "figures.png")
    assert (tmp_path / "figures.png").stat().st_size > 10_000


@pytest.mark.long
def test_rows_of_ones_own_by_window_and_key(spark, files):
    from spark_udaf.bench import bench

    measure = aggr.max("ms")
    report = bench(
        spark, measure, data=files, keys=["host"], time="ts", levels=["1h", "1d"], rounds=1, against="spark:max(ms)"
    )
    assert ways(report) == ["su.rollup of files", "su.rollup", "su.group_by", "A.max", "SQL", "spark:max(ms)"]
    assert {timing.groups for timing in report.timings} == {6}  # two hours of three hosts
    assert {timing.keys for timing in report.timings} == {"host"}
    assert report.keeps_bits == {"max('ms')": True}
    without_time = bench(spark, measure, data=spark.read.parquet(str(files)), groups=[5], rounds=1, against=())
    assert ways(without_time) == ["su.aggregate of files", "su.aggregate", "su.group_by", "A.max", "SQL"]


@pytest.mark.long
def test_a_benchmark_leaves_nothing_behind(spark, tmp_path):
    from spark_udaf.bench import bench

    spark.sparkContext.setJobGroup("mine", "my jobs")
    try:
        for _ in range(2):  # in the same folder
            bench(spark, aggr.max("x"), rows=1000, groups=[3, 3], rounds=1, against=(), folder=tmp_path)
        assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") == "mine"
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    assert list(tmp_path.iterdir()) == []
    assert not spark.catalog.tableExists("tiltframe_bench_rows")
    with pytest.raises(ValueError, match="folder must be an existing folder on this machine"):
        bench(spark, aggr.max("x"), folder="s3://bucket/rows")


@pytest.mark.long
def test_a_way_that_a_function_does_not_have_is_left_out_with_the_reason(spark):
    from spark_udaf.bench import bench

    report = bench(spark, aggr.per("x", of={"n": aggr.count()}, max=5000), against=(), **{**SMALL, "groups": (3,)})
    assert ways(report) == ["su.rollup of files", "su.rollup", "su.group_by", "A.per"]
    assert [note.partition(":")[0] for note in report.notes] == ["SQL"]
    assert "left out: SQL: " in as_text(report)


MISTAKES = [
    ({"measures": aggr.avg("ms"), "keys": ["hosts"]}, "the data has no column 'hosts'"),
    ({"measures": aggr.avg("mss")}, "mss"),
    ({"measures": aggr.avg("host")}, "host"),
    ({"measures": []}, "there is no measure to benchmark"),
    ({"measures": aggr.avg("ms"), "against": "duckdb:avg(ms)"}, "compared only with Spark's own functions"),
    ({"measures": aggr.avg("ms"), "against": "spark:nothing(ms)"}, "Spark cannot evaluate 'nothing"),
    ({"measures": aggr.avg("ms"), "against": "spark:avg(ms"}, "Spark cannot evaluate 'avg"),
    ({"measures": aggr.avg("ms"), "time": "ts", "levels": ["1mo"]}, "needs a fixed length; got 1mo"),
    ({"measures": aggr.avg("ms"), "groups": [0]}, "a number of groups"),
    ({"measures": aggr.avg("ms"), "rounds": 0}, "rounds"),
    ({"measures": aggr.avg("ms"), "distribution": "gauss"}, "unknown distribution 'gauss'"),
    ({"measures": aggr.avg("ms"), "data": None, "keys": ["host"]}, "keys and time name columns of data"),
    ({"measures": aggr.avg("ms"), "data": None, "rows": 10, "groups": [11]}, "more groups than rows"),
]


@pytest.mark.parametrize(("request_", "message"), MISTAKES)
def test_mistakes_are_told_before_a_job_starts(request_, message, spark, files):
    from spark_udaf.bench import bench

    data = spark.read.parquet(str(files))
    before = len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))
    arguments = {"data": data, "groups": [3], "rounds": 1, **request_}
    with pytest.raises((TypeError, ValueError), match=message):
        bench(spark, arguments.pop("measures"), **arguments)
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup(None)) == before


def command(*arguments):
    return [sys.executable, "-m", "tiltframe.cli", "bench", "--spark", *map(str, arguments)]


def run(*arguments):
    done = subprocess.run(command(*arguments), capture_output=True, text=True, check=False, timeout=300)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.long
def test_the_command_measures_a_table_on_a_local_cluster(files, tmp_path):
    out = tmp_path / "figures.json"
    table = f"parquet.`{files}`"
    status, printed, errors = run(
        "max(ms)", "--table", table, "--key", "host", "--rounds", 1, "--master", "local-cluster[1,1,1024]",
        "--conf", "spark.sql.shuffle.partitions=2", "--out", out, "--format", "json",
    )  # fmt: skip
    assert status == 0, errors
    report = Report.from_json(out.read_text())
    assert Report.from_json(printed) == report
    assert report.about["master"] == "local-cluster[1,1,1024]"
    assert report.about["shuffle partitions"] == "2"
    assert ways(report) == ["su.aggregate", "su.group_by", "A.max", "SQL", "spark:max(ms)"]
    workers = {traffic.by: traffic.worker_bytes for traffic in report.traffic}
    assert workers["su.group_by"] is None or workers["su.group_by"] > 20e6


@pytest.mark.long
def test_ctrl_c_writes_the_figures_so_far(tmp_path):
    out = tmp_path / "figures.json"
    options = ["--rows", "2e4", "--rounds", "500", "--groups", "1", "--against", "none"]
    arguments = command("max(x)", *options, "--out", out)
    for seconds in (40, 120):  # until the first figures were measured in this time
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(seconds)
        os.kill(process.pid, signal.SIGINT)
        printed, errors = process.communicate(timeout=120)
        assert process.returncode == 130, errors
        if out.exists():
            break
    assert "the figures so far were written" in errors
    assert not Report.from_json(out.read_text()).is_complete
    assert "interrupted" in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["max(x)", "--memory"], "--memory cannot be used with --spark"),
        (
            ["max(x)", "--data", "a.parquet", "--table", "t"],
            "--data and --table cannot be used together; pass one of them",
        ),
        (["max(x)", "--key", "host"], "pass --data or --table as well"),
        (["max(x)", "--conf", "cores"], "cannot read --conf 'cores'"),
        (["max(x)", "--against", "duckdb:max(x)"], "compared only with Spark's own functions"),
        (["max(x)", "--distribution", "normal", "--distribution", "pareto"], "pass one --distribution"),
        (["max(nothing)", "--data", "FILES"], "nothing"),
        (["max(ms)", "--data", "FILES", "--key", "hosts"], "the data has no column 'hosts'"),
    ],
)
def test_mistakes_on_the_command_line_are_told_before_spark_starts(arguments, message, files, forked):
    arguments = [str(files) if argument == "FILES" else argument for argument in arguments]
    status, _, errors = forked.run(["bench", "--spark", *arguments])
    assert status == 2
    assert message in errors
    assert len(errors.splitlines()) == 1


def test_options_of_spark_need_spark(forked):
    status, _, errors = forked.run(["bench", "max(x)", "--master", "local[1]"])
    assert status == 2
    assert "--master needs --spark; pass --spark as well" in errors


@pytest.mark.long
def test_functions_of_spark_are_peers_of_the_local_benchmark(spark):
    data = pa.table({"x": np.arange(1.0, 2001.0)})
    peers = ["spark:percentile_approx(x, array(0.5, 0.9))", "spark:percentile(x, array(0.5, 0.9))"]
    before = dict(spark.conf.getAll)
    report = aggr.bench.bench(aggr.dds("x", [0.5, 0.9]), against=peers, data=data, groups=(3,), rounds=1, memory=False)
    assert dict(spark.conf.getAll) == before  # the session of the process keeps its settings
    worst = {by: max(e.worst_relative for e in report.errors if e.by == by) for by in ("tiltframe", *peers)}
    assert worst[peers[1]] == 0  # Spark's exact percentile lies between the two neighbouring ranks
    assert worst[peers[0]] < 0.01
    with pytest.raises(ValueError, match="Spark cannot evaluate 'nothing"):
        aggr.bench.bench(aggr.avg("x"), against="spark:nothing(x)", data=data, groups=(1,), rounds=1, memory=False)
