"""Expressions as keys and inputs, and the elements of lists, on Spark: the same bits as locally."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

import aggr
from aggr.arrow.bit_equality import digest
from aggr.tables.by_key import reduce_by
from aggr.tables.keys import keyed
from aggr.tables.state_plan import plan_state_columns
from tests.aggr.test_expressions import KEYS, MEASURES, table
from tiltframe import FrameStore, OrderedFrame, TiltFrame, ordered_rollup, rollup, running

pytestmark = pytest.mark.spark

NAMES = ("level", "window_start", *KEYS, "ts", "rows", "quantity")


def bits(table):
    table = table.sort_by([(name, "ascending") for name in NAMES if name in table.column_names]).combine_chunks()
    return {name: digest(table.column(name)) for name in table.column_names if name != "ts"}


@pytest.mark.parametrize("partitions", [1, 17])
@pytest.mark.long
def test_the_same_bits_as_locally(spark, partitions, tmp_path):
    import spark_udaf as su

    rows = table()
    df = spark.createDataFrame(rows).selectExpr("*", "make_ym_interval(1, 2) odd").repartition(partitions)
    frame = TiltFrame(["1s", "1m"], "ts", MEASURES, KEYS)
    expected = rollup(rows, frame)
    assert bits(su.rollup(df, frame).toArrow().cast(expected.schema)) == bits(expected)
    pq.write_table(rows, tmp_path / "rows.parquet", row_group_size=100)
    scan = su.scan_parquet(spark, tmp_path, rows_per_task=300 // partitions)
    assert bits(su.rollup(scan, frame).toArrow().cast(expected.schema)) == bits(expected)

    states = plan_state_columns(MEASURES)
    rows_of_keys, _, keys = keyed(rows, KEYS, rows.column_names)
    grouped = reduce_by(rows_of_keys, keys, states)
    for source in (df, scan):
        assert bits(su.aggregate(source, KEYS, MEASURES).toArrow().cast(grouped.schema)) == bits(grouped)
    windows = su.aggregate(df, {"tag": "each(tags)"}, MEASURES, "session(1s)", "ts").toArrow()
    session = TiltFrame(["session(1s)"], "ts", MEASURES, {"tag": "each(tags)"})
    assert bits(windows) == bits(rollup(rows, session).drop_columns(["level"]).cast(windows.schema))

    for window, emit in (("running()", "rows"), ("sliding(3)", "rows"), ("count(4)", "final")):
        options = {"time": "ts", "keys": KEYS, "order": ["quantity", "price", "route"], "emit": emit}
        local = running(rows, MEASURES, window, **options)
        result = su.running(df.drop("odd"), MEASURES, window, **options).toArrow()
        assert result.column_names == local.column_names
        names = ["rows", "revenue", "mean", "late", "dearest", *KEYS]
        assert bits(result.select(names)) == bits(local.select(names)), window
    chain = OrderedFrame(["count(2)", "count(3)"], "ts", MEASURES, KEYS, ["quantity", "price", "route"])
    local = ordered_rollup(rows, chain)
    assert bits(su.ordered_rollup(df, chain).toArrow().cast(local.schema)) == bits(local)

    store = FrameStore(str(tmp_path / f"store{partitions}"), frame)
    assert su.rollup_into(df, store, "test", 1)
    assert bits(store.states("1m")) == bits(_level(expected, "1m"))


def _level(states, name):
    import pyarrow.compute as pc

    return states.filter(pc.equal(states.column("level"), name))


def test_what_does_not_fit_is_refused_before_a_job(spark):
    import spark_udaf as su

    df = spark.createDataFrame([("a", 1, 2)], ["s", "ts", "n"])
    with pytest.raises(ValueError, match="no column 'm', which 'n \\* m' uses"):
        su.aggregate(df, ["s"], {"x": aggr.sum("n * m")})
    with pytest.raises(TypeError, match=r"each needs a column of lists, .* the column 's' has type string"):
        su.aggregate(df, {"k": "each(s)"}, {"x": aggr.count()})
    with pytest.raises(ValueError, match="lower needs text"):
        su.running(df, {"x": aggr.count()}, time="ts", keys={"k": "lower(n)"})
