"""Columns on Spark: any names, other columns of any type, reserved names, and levels that contain the same rows."""

from __future__ import annotations

import pytest

import aggr
import spark_udaf as su
from spark_udaf.plan.errors import unwrapped_task_errors
from tiltframe import FrameStore, TiltFrame
from tiltframe.names import RESERVED
from tiltframe.ranges import EVER
from tiltframe.store import Query
from tiltframe.store.query.plan import plan_queries

ODD = ["a.b", "x.y", "t.s", "q`z", "sp ace", "ünï", "Case", "case", "window_start", "``"]


@pytest.fixture(scope="module")
def odd(spark):
    """A hundred rows under names that Spark reads as something else."""
    rows = spark.sql(
        "SELECT 'h' || id % 3, CAST(id AS double), timestamp_millis(id * 1000), id, id % 2, 2, id % 5, id % 7, 9, 10 "
        "FROM range(100)"
    )
    return rows.toDF(*ODD)


FRAME = TiltFrame(
    ["1m", "1h"],
    "t.s",
    {
        "m.n": aggr.sum("x.y", where="`x.y` > 3 AND `a.b` <> 'h1'"),
        "d`d": aggr.dds("q`z"),
        "l ä": aggr.last("sp ace"),
        "both": aggr.sum("Case"),
        "other": aggr.sum("case"),
        "start": aggr.max("window_start"),
        "``": aggr.max("``"),
    },
    ["a.b", "ünï"],
)


def expected() -> dict[str, tuple]:
    """Answer in plain Python, by host, for the hour that all rows are in."""
    answers = {}
    for host in range(3):
        ids = [i for i in range(100) if i % 3 == host]
        values = [float(i) for i in ids if i > 3 and host != 1]
        answers[f"h{host}"] = (
            sum(values) if values else None,
            ids[-1] % 2,
            sum(i % 5 for i in ids),
            sum(i % 7 for i in ids),
        )
    return answers


def hours(results) -> dict[str, tuple]:
    table = results.toArrow()
    names = ["level", "a.b", "m.n", "l ä", "both", "other", "start", "``"]
    rows = zip(*(table.column(name).to_pylist() for name in names), strict=True)
    values_by_hour = {}
    for level, host, *values, start, tick in rows:
        if level == "1h":
            assert (start, tick) == (9, 10)
            values_by_hour[host] = tuple(values)
    return values_by_hour


@pytest.mark.spark
@pytest.mark.long
def test_columns_may_be_called_anything(spark, odd, tmp_path):

    states = su.rollup(odd, FRAME)
    assert hours(su.finish(states, FRAME)) == expected()
    plain = odd.select("`a.b`", "`x.y`", "`t.s`").toDF("a.b", "x.y", "t.s")
    few = {"m.n": aggr.sum("x.y")}
    plain.write.parquet(str(tmp_path / "rows"))
    scan = su.scan_parquet(spark, str(tmp_path / "rows"))
    expected_values = {f"h{h}": float(sum(i for i in range(100) if i % 3 == h)) for h in range(3)}
    for source in (plain, scan):
        merged = su.merge(su.aggregate(source, ["a.b", "t.s"], few), ["a.b"])
        assert {r["a.b"]: r["m.n"] for r in su.finish(merged, few).toArrow().to_pylist()} == expected_values
        assert sorted(r[0] for r in merged.select(su.states.mean("`m.n`")).collect()) == [49.0, 49.5, 50.0]


@pytest.mark.spark
@pytest.mark.long
def test_stores_and_functions_take_any_name(spark, odd, tmp_path):
    from spark_udaf import functions as A

    keys = TiltFrame(["1m", "1h"], "t.s", {"m.n": aggr.sum("x.y")}, ["a.b", "q`z"])
    store = FrameStore(tmp_path / "s", keys)
    assert su.rollup_into(odd, store, "w", 1)
    assert su.append(su.rollup(odd, keys), store, "v", 1)
    read = su.read(spark, store.uri, per="1h", where="`a.b` = 'h1'", keys=["a.b"])
    assert read.where("`m.n` > 0").toArrow().column("m.n").to_pylist() == [2.0 * sum(range(1, 100, 3))]
    assert odd.agg(A.of(odd).sum("`x.y`")).first()[0] == 4950.0
    assert odd.agg(A.max("`q``z`", type="bigint", where="`x.y` < 50")).first()[0] == 49


@pytest.mark.long
@pytest.mark.spark
def test_names_that_differ_only_by_case_are_refused(spark, odd):
    from pyspark.sql import functions as F

    own_result, spark_result = {"Case": aggr.count()}, {"Case": F.count("*"), "n": aggr.count()}
    plain = spark.range(7).toDF("case")  # Spark itself cannot group by a name that two columns have
    refusal = r"^the names 'case' and 'Case' of keys and measures differ only by case, .*; rename one$"
    for result in (own_result, spark_result):
        with pytest.raises(ValueError, match=r"^Spark does not distinguish the names 'case' and 'Case'; rename one$"):
            su.group_by(plain, "case").agg(**result)
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        for calculate in (su.aggregate, lambda df, keys, measures: su.group_by(df, *keys).agg(**measures)):
            with pytest.raises(ValueError, match=refusal):
                calculate(plain, ["case"], own_result)
        both = su.group_by(plain, "case").agg(**spark_result)
        assert (both.columns, both.count()) == (["case", "Case", "n"], 7)
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    with pytest.raises(ValueError, match=refusal):
        su.aggregate(odd, ["case"], own_result)
    with pytest.raises(ValueError, match=refusal):
        TiltFrame(["1h"], "t.s", own_result, ["case"])
    twice = odd.select("`x.y`", "`x.y`")
    with pytest.raises(ValueError, match=r"^the DataFrame has 2 columns called 'x\.y'; rename all but one"):
        su.aggregate(twice, [], {"s": aggr.sum("x.y")})
    assert su.aggregate(odd.select("`x.y`", "`x.y`", "`a.b`"), ["a.b"], {"n": aggr.count()}).count() == 3


UNREADABLE = {
    "interval year to month": "INTERVAL '1-2' YEAR TO MONTH",
    "interval": "make_interval(1, 2, 3)",
    "struct<a:interval year>": "named_struct('a', INTERVAL '1' YEAR)",
    "array<interval>": "array(make_interval(1))",
}


@pytest.mark.spark
@pytest.mark.long
def test_columns_that_nobody_reads_do_not_matter(spark, tmp_path):

    beside = ", ".join(f"{text} AS u{i}" for i, text in enumerate(UNREADABLE.values()))
    df = spark.sql(
        f"""SELECT id % 2 AS k, CAST(id AS double) AS x, timestamp_millis(id) AS ts, {beside},
            parse_json('1') AS v, map('a', 1) AS m, time'12:00:00' AS t, CAST('a' AS char(3)) AS c FROM range(10)"""
    )
    frame = TiltFrame(["1m"], "ts", {"s": aggr.sum("x")}, ["k"])
    states = su.rollup(df, frame)
    assert sorted(su.finish(states, frame).toArrow().column("s").to_pylist()) == [20.0, 25.0]
    wider = states.selectExpr("*", "INTERVAL '1' YEAR AS ym")
    assert su.finish(wider, frame).count() == 2
    assert su.merge(wider, []).select(su.states.mean("s")).first()[0] == 4.5
    store = FrameStore(tmp_path / "s", frame)
    assert su.append(wider, store, "w", 1)
    assert su.rollup_into(df, store, "v", 1)
    assert su.finish(su.aggregate(df, [], {"n": aggr.count("v"), "m": aggr.count("m")}), {"n": aggr.count("v")}).count()
    for i, kind in enumerate(UNREADABLE):
        with pytest.raises(
            TypeError, match=f"^the column 'u{i}' has the type {kind}, which Spark cannot send to Python"
        ):
            su.aggregate(df, [], {"n": aggr.count(f"u{i}")})
    with pytest.raises(TypeError, match=r"^the column 'ym' has the type interval year"):
        su.finish(wider, {"s": aggr.sum("x")})


@pytest.mark.parametrize("name", [*RESERVED, "Level", "PARTIAL"])
def test_our_names_are_no_keys_and_no_measures(name):
    sentence = rf"^the name '{name}' is reserved, as are level, .*; choose another name for the key or measure"
    with pytest.raises(ValueError, match=sentence):
        TiltFrame(["1h"], "ts", {"n": aggr.count()}, [name])
    with pytest.raises(ValueError, match=sentence):
        TiltFrame(["1h"], "ts", {name: aggr.count()})
    frame = TiltFrame(["1h"], "ts", {"n": aggr.count()}, ["k"])
    with pytest.raises(ValueError, match=sentence):
        plan_queries(frame, Query(measures={name: aggr.count()}), within=EVER, requested_windows=["1h"], now=0)
    with pytest.raises(ValueError, match=r"^the name 'k' is used twice among keys and measures; rename one"):
        plan_queries(frame, Query(measures={"k": aggr.count()}), within=EVER, requested_windows=["1h"], now=0)


def test_our_names_are_no_measures_on_the_command_line(tmp_path):
    from click.testing import CliRunner

    from tiltframe.cli.app import cli

    rows = tmp_path / "rows.csv"
    rows.write_text("ts,k\n0,a\n")
    store = str(tmp_path / "s")
    frame = ["--levels", "1h", "--time", "ts", "--key", "k", "--measure", "n=count()"]
    done = CliRunner().invoke(cli, ["rollup", str(rows), "--store", store, *frame])
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(cli, ["query", store, "--per", "1h", "--measure", "partial=count()"])
    assert done.exit_code != 0
    assert "the name 'partial' is reserved" in f"{done.output}{done.exception}"


@pytest.mark.spark
def test_aggregate_refuses_our_names_and_those_given_twice(spark, odd):

    with pytest.raises(ValueError, match=r"^the name 'window_start' is reserved"):
        su.aggregate(odd, ["window_start"], {"n": aggr.count()})
    shared = {"n": aggr.count("x.y"), "a.b": aggr.avg("x.y")}  # one column of states, two measures
    with pytest.raises(ValueError, match=r"^the name 'a\.b' is used twice among keys and measures"):
        su.aggregate(odd, ["a.b"], shared)
    states = su.aggregate(odd, ["a.b"], {"n": aggr.count("x.y"), "mean": aggr.avg("x.y")})
    with pytest.raises(ValueError, match=r"^the DataFrame of states already has a column 'a\.b'"):
        su.finish(states, shared)


@pytest.mark.spark
@pytest.mark.long
def test_levels_of_a_frame_are_not_added_together(spark, odd):

    frame = TiltFrame(["1m", "1h", "1d"], "t.s", {"n": aggr.count()}, ["a.b"])
    states = su.rollup(odd, frame)
    for by in (["a.b"], [], ["window_start"]):
        with (
            pytest.raises(ValueError, match=r"^these are states of the levels .*1d and 1h.*, which contain the same"),
            unwrapped_task_errors(),
        ):
            su.merge(states, by).toArrow()
    apart = su.finish(su.merge(states, ["level"]), {"n": aggr.count()}).toArrow()
    assert dict(zip(apart["level"].to_pylist(), apart["n"].to_pylist(), strict=True)) == {
        "1m": 100,
        "1h": 100,
        "1d": 100,
    }
    merged = su.merge(states.where("level = '1m'"), [])
    assert merged.select(su.states.count("n")).collect() == [(100,)]
    assert merged.columns == ["n"]


@pytest.mark.long
def test_rows_are_counted_where_no_column_is_read(spark):
    rows = spark.range(10)
    assert su.aggregate(rows, [], {"n": aggr.count()}).first().n["count"] == rows.count()
    assert su.group_by(rows).agg(n=aggr.count()).first().n == rows.count()
