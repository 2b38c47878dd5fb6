"""Results in two phases: group_by, results computed where states are merged, shuffled rows, and even shards."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr.arrow.bit_equality import digest
from aggr.tables.by_key import key_column, reduce_by
from aggr.tables.state_plan import plan_state_columns
from tests import engines
from tiltframe import TiltFrame, finish, rollup

SEVEN = {
    "n": aggr.count(),
    "d": aggr.dds("x", [0.5, 0.99]),
    "h": aggr.hdr("i", [0.5], where="i >= 0"),
    "s": aggr.sum("i"),
    "word": aggr.last("word", by="ts"),
    "lo": aggr.min("price"),
}


@pytest.fixture(scope="module")
def rows():
    """Few groups in the first half, a group of its own for nearly every row of the second."""
    table = engines.rows(6000)
    spread = np.where(np.arange(6000) < 3000, np.arange(6000) % 7, np.arange(6000) % 2900)
    return table.append_column("k", pa.array(spread))


@pytest.fixture(scope="module")
def df(spark, rows):
    return spark.createDataFrame(rows).coalesce(1).union(spark.createDataFrame(rows.slice(3000)))


def ordered(table: pa.Table, *by: str) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in by])


def digests(table: pa.Table) -> dict[str, str]:
    return {name: digest(table[name]) for name in table.column_names}


@pytest.mark.long
@pytest.mark.spark
def test_rows_that_travel_give_the_same_bits(df, rows):
    import spark_udaf as su

    both = pa.concat_tables([rows, rows.slice(3000)])
    for by in (["k"], ["k", "host"]):
        result = ordered(su.aggregate(df, by, SEVEN).toArrow(), *by)
        expected = reduce_by(both, {name: key_column(both[name]) for name in by}, plan_state_columns(SEVEN))
        assert digests(result) == digests(expected)
    frame = TiltFrame(["1m", "1h", "1d"], "ts", SEVEN, ["k", "host"])
    order = ("level", "window_start", "k", "host")
    states = su.rollup(df, frame)
    assert digests(ordered(states.toArrow(), *order)) == digests(ordered(rollup(both, frame), *order))
    expected = ordered(finish(rollup(both, frame), frame), *order)
    assert digests(ordered(su.finish(states, frame).toArrow(), *order)) == digests(expected)


@pytest.mark.long
@pytest.mark.spark
def test_finish_crosses_to_python_once_less(df, capsys):
    import spark_udaf as su

    def crossings(frame_of_spark):
        frame_of_spark.explain()
        return capsys.readouterr().out.count("MapInArrow")

    frame = TiltFrame(["1h", "1d"], "ts", SEVEN, ["host"])
    for states, measures in ((su.rollup(df, frame), frame), (su.aggregate(df, ["host"], SEVEN), SEVEN)):
        assert crossings(su.finish(states, measures)) == crossings(states) == 2
        assert crossings(su.finish(states.where("host = 'a'"), measures)) == 3
        cached = states.cache()
        once = su.finish(cached, measures)
        once.explain()
        assert "InMemoryTableScan" in capsys.readouterr().out
        cached.unpersist()


@pytest.mark.spark
def test_shards_are_spread_evenly_by_the_hash_of_spark(spark):
    from pyspark.sql import functions as F

    from spark_udaf.plan.shards import choose_shuffle_keys

    for shards, partitions in ((64, 4), (66, 3), (200, 200), (70, 7), (64, 1)):
        numbers = choose_shuffle_keys(shards, partitions)
        assert len(set(numbers.tolist())) == shards
        numbered = spark.createDataFrame(pa.table({"n": pa.array(numbers, pa.int32())})).coalesce(1)
        places = [row[0] for row in numbered.select(F.pmod(F.hash("n"), F.lit(partitions))).collect()]
        assert places == (np.arange(shards) % partitions).tolist()


def test_a_stream_of_batches_goes_over_from_states_to_rows_and_back():
    from aggr.tables.partial_aggregation import adaptive_states

    spread, dense = pa.table({"k": range(1000)}), pa.table({"k": [1] * 1000})

    def run(tables):
        batches = [batch for table in tables for batch in table.to_batches()]
        return list(adaptive_states(batches, reduce, lambda t: t, None, lambda t: len(set(t["k"].to_pylist()))))

    def reduce(table):
        return table.group_by("k").aggregate([])

    import aggr.tables.partial_aggregation as module

    before = module.REDUCE_ROWS, module._MAX_REDUCE_ROWS
    module.REDUCE_ROWS = module._MAX_REDUCE_ROWS = 1000
    try:
        output = run([spread, *[dense] * 8, spread, spread])
    finally:
        module.REDUCE_ROWS, module._MAX_REDUCE_ROWS = before
    # seven are taken to be like the first; the tenth is reduced, for the ninth had few groups; the last is looked at
    assert [(reduced, table.num_rows) for reduced, table in output] == [*[(False, 1000)] * 9, (True, 1001)]


@pytest.mark.spark
@pytest.mark.long
def test_group_by_answers_as_spark_does(df):
    from pyspark.sql import functions as F

    import spark_udaf as su
    from spark_udaf import functions as A

    keys = ("shelf", F.window("ts", "1 day"), F.upper("host").alias("HOST"))
    results = su.group_by(df, *keys).agg(
        aggr.count(),
        aggr.max("ts"),
        A.min(F.concat("word", F.lit("!")), type="string").alias("least"),
        A.count(where=F.col("i") > 5).alias("some"),
        tenth=aggr.sum("i * 10"),
        big=aggr.sum("i", where="i > 500000"),
        far=aggr.max("abs(i)"),
        having="some > 20 AND window.start < timestamp'2100-01-01'",
    )
    assert results.columns == ["shelf", "window", "HOST", "count()", "max(ts)", "least", "some", "tenth", "big", "far"]
    spark_results = df.groupBy(*keys).agg(
        F.count(F.lit(1)), F.max("ts"), F.min(F.concat("word", F.lit("!"))), F.count_if(F.col("i") > 5).alias("some"),
        F.sum(F.col("i") * 10), F.sum(F.when(F.col("i") > 500000, F.col("i"))), F.max(F.abs("i")),
    ).where("some > 20")  # fmt: skip
    assert sorted(map(str, map(tuple, results.collect()))) == sorted(map(str, map(tuple, spark_results.collect())))
    everything = su.group_by(df).agg(n=A.count(), d=A.dds("x", [0.5])).first()
    assert (everything.n, everything.d) == df.agg(A.count(), A.dds("x", [0.5])).first()[:]


@pytest.mark.spark
def test_a_key_is_repeated_and_aggregated_as_in_spark(df):
    from pyspark.sql import functions as F

    import spark_udaf as su

    keys = ("host", "host", F.upper("host").alias("upper"))
    answers = su.group_by(df, *keys).agg(aggr.count("host"), aggr.max("host", where="host > 'a'"))
    expected = df.groupBy(*keys).agg(F.count("host"), F.max(F.when(F.col("host") > "a", F.col("host"))))
    assert answers.columns == ["host", "host", "upper", "count(host)", "max(host)"]
    assert set(map(tuple, answers.collect())) == set(map(tuple, expected.collect()))


MISTAKES = {
    "su.group_by(df, 'host').agg()": (ValueError, "agg needs at least one call"),
    "su.group_by(df, 'host').agg(1)": (
        TypeError,
        "agg accepts calls of aggr, of spark_udaf.functions and Spark's own aggregates",
    ),
    "su.group_by(df, 'host').agg(aggr.count(), aggr.count())": (ValueError, "two results are called 'count\\(\\)'"),
    "su.group_by(df, 'host').agg(host=aggr.count())": (ValueError, "'host' is used twice among keys and results"),
    "su.group_by(df, 'host').agg(aggr.sum('word'))": (TypeError, "sum cannot take a column of type string"),
    "su.group_by(df, 3)": (TypeError, "expected Columns, names of columns or expressions in SQL; got 3"),
    "su.group_by(3, 'host')": (TypeError, "expected a Spark DataFrame; got int"),
}


@pytest.mark.spark
@pytest.mark.parametrize("call", MISTAKES)
def test_mistakes_are_told_at_once(call, df):
    from pyspark.sql import functions as F

    import spark_udaf as su

    error, message = MISTAKES[call]
    with pytest.raises(error, match=message):
        eval(call, {"su": su, "df": df, "F": F, "aggr": aggr})
