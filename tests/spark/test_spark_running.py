"""Running results on Spark have the local bits for all partitions; keys are sent to workers in batches."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr.arrow.bit_equality import digest
from tiltframe import OrderedFrame, ordered_rollup, running
from windows import ordered

pytestmark = pytest.mark.spark

MEASURES = {"total": aggr.sum("x"), "p": aggr.dds("x", [0.5]), "newest": aggr.last("n"), "rows": aggr.count()}


@pytest.fixture(scope="module")
def table():
    rng, n = np.random.default_rng(2), 3000
    day = 86_400_000_000
    return pa.table(
        {
            "key": pa.array([None if k == 5 else f"k{k}" for k in rng.integers(0, 6, n)]),
            "ts": pa.array(rng.integers(-2 * day, 3 * day, n) // 60_000_000 * 60_000_000, pa.timestamp("us", "UTC")),
            "n": pa.array(np.arange(n)),
            "x": pa.array(rng.normal(size=n)),
        }
    )


def bits(table):
    by = [(name, "ascending") for name in ("level", "key", "ts", "n", "tick") if name in table.column_names]
    table = table.sort_by(by).combine_chunks()
    table = table.set_column(table.column_names.index("ts"), "ts", table.column("ts").cast(pa.timestamp("us", "UTC")))
    return {name: digest(table.column(name)) for name in table.column_names}


@pytest.mark.parametrize("partitions", [1, 17])
@pytest.mark.long
def test_the_same_bits_as_locally(spark, table, partitions):
    import spark_udaf as su

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "200")  # every key comes in several batches
    df = spark.createDataFrame(table).repartition(partitions)
    for window, emit, more in (
        (ordered.running(), "rows", {}),
        (ordered.since("x > 2", ordered.daily("Asia/Tokyo")), "rows", {}),
        (ordered.since(ordered.hourly()), "ticks", {"until": "next", "fill": "zero"}),
        (ordered.sliding(2, ordered.hourly()), "final", {}),
        (ordered.count(7), "final", {}),
    ):
        options = {"time": "ts", "keys": ["key"], "order": ["n"], "emit": emit, **more}
        expected = running(table, MEASURES, window, **options)
        result = su.running(df, MEASURES, window, **options).toArrow()
        assert expected.num_rows > 0
        assert bits(result) == bits(expected), (str(window), emit)
    frame = OrderedFrame(["count(4)", "interval('6h')"], "ts", MEASURES, ["key"], ["n"])
    assert bits(su.ordered_rollup(df, frame).toArrow()) == bits(ordered_rollup(table, frame))
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def test_text_with_offsets_is_put_in_the_order_of_time(spark):
    import spark_udaf as su

    rows = [("2024-01-01T09:00:00+09:00", 1), ("2024-01-01T01:00:00Z", 2), ("2024-01-01T02:30:00+03:00", 4)]
    df = spark.createDataFrame(rows, ["at", "n"])
    result = su.running(df, {"total": aggr.sum("n")}, time="at").toArrow().to_pydict()
    assert (result["n"], result["total"]) == ([4, 1, 2], [4, 5, 7])


def test_what_does_not_fit_is_refused_before_a_job(spark):
    import spark_udaf as su

    df = spark.createDataFrame([("a", 1, 2)], ["key", "ts", "n"])
    with pytest.raises(ValueError, match="no column 'm'"):
        su.running(df, {"s": aggr.sum("m")}, time="ts")
    with pytest.raises(ValueError, match="cannot read '1h'"):
        su.running(df, {"s": aggr.sum("n")}, "1h", time="ts")
    with pytest.raises(ValueError, match="no column 'm'"):
        su.ordered_rollup(df, OrderedFrame(["count(2)"], "ts", {"s": aggr.sum("m")}))
