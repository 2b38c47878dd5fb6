"""Sessions, hopping windows and offsets on Spark, compared with Spark's ``session_window`` and ``window``."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr.arrow.bit_equality import same_bits
from tests.frame.test_frame_windows import MEASURES, events
from tiltframe import TiltFrame, finish, rollup

pytestmark = pytest.mark.spark


def spark_rows(df, window, keys):
    from pyspark.sql import functions as F

    counted = df.groupBy(window.alias("w"), *keys).agg(F.count("*"), F.sum("i"), F.min("x"), F.max("x"))
    rows = counted.select(
        F.unix_micros("w.start"), F.unix_micros("w.end"), *keys, "count(1)", "sum(i)", "min(x)", "max(x)"
    )
    return sorted((tuple(row) for row in rows.collect()), key=str)


def our_rows(results, keys):
    starts, window_ends = (results[name].cast(pa.int64()).to_pylist() for name in ("window_start", "window_end"))
    columns = [results[name].to_pylist() for name in (*keys, "rows", "whole", "lo", "hi")]
    return sorted(zip(starts, window_ends, *columns, strict=True), key=str)


def times(case):
    """Rows with ties, gaps of just the size, and a microsecond more; disorder, and late rows that bridge sessions."""
    rng = np.random.default_rng(case)
    second = 1_000_000
    steps = rng.choice([0, 1, 5 * second, 10 * second - 1, 10 * second, 10 * second + 1, 40 * second], 600)
    start = rng.integers(-(10**14), 17 * 10**14)
    at = start + np.cumsum(steps)
    return events(600, case).set_column(0, "ts", pa.array(rng.permutation(at)).cast(pa.timestamp("us", "UTC")))


def windows_of(name):
    from pyspark.sql import functions as F

    return {
        "session(10s)": F.session_window("ts", "10 seconds"),
        "hopping(1m, 20s)": F.window("ts", "1 minute", "20 seconds"),
        "hopping(1m, 25s)": F.window("ts", "1 minute", "25 seconds"),
        "hopping(1m, 25s, offset=7s)": F.window("ts", "1 minute", "25 seconds", "7 seconds"),
        "tumbling(1m, offset=13s)": F.window("ts", "1 minute", "1 minute", "13 seconds"),
        "tumbling(1d, offset=6h)": F.window("ts", "1 day", "1 day", "6 hours"),
    }[name]


NAMES = [
    "session(10s)", "hopping(1m, 20s)", "hopping(1m, 25s)", "hopping(1m, 25s, offset=7s)", "tumbling(1m, offset=13s)",
    "tumbling(1d, offset=6h)",
]  # fmt: skip


@pytest.mark.parametrize("keys", [["host"], []], ids=["keys", "no keys"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.long
def test_windows_are_those_of_spark(spark, name, keys):
    import spark_udaf as su

    frame = TiltFrame([name], "ts", MEASURES, keys)
    table = pa.concat_tables([times(case) for case in (1, 2)])
    df = spark.createDataFrame(table)
    expected = spark_rows(df, windows_of(name), keys)
    local = rollup(table, frame)
    assert our_rows(finish(local, frame), keys) == expected
    order = ["window_start", *keys]
    for partitions in (1, 7):
        states = su.rollup(df.repartition(partitions), frame).toArrow()
        states = states.sort_by([(key, "ascending") for key in order])
        assert all(
            same_bits(states[c], local.sort_by([(k, "ascending") for k in order])[c]) for c in local.column_names
        )
    states = su.aggregate(df, keys, MEASURES, window=name, time="ts")
    assert states.columns == local.column_names[1:]
    assert our_rows(_finished(states, frame), keys) == expected


def _finished(states, frame):
    table = states.toArrow()
    return finish(table.add_column(0, "level", pa.repeat(pa.scalar(frame.levels[0].name), table.num_rows)), frame)


def test_chains_with_hopping_windows_and_the_whole(spark):
    import spark_udaf as su

    frame = TiltFrame(["20s", "hopping(1m, 20s)", "10m", "all"], "ts", MEASURES, ["host"])
    table = times(3)
    local = rollup(table, frame)
    states = su.rollup(spark.createDataFrame(table).repartition(5), frame).toArrow()
    order = [(name, "ascending") for name in ("level", "window_start", "host")]
    assert states.num_rows == local.num_rows
    assert all(same_bits(states.sort_by(order)[c], local.sort_by(order)[c]) for c in local.column_names)
    whole_range = finish(local, frame).filter(pa.compute.equal(local["level"], "all"))
    assert whole_range["window_start"].null_count == whole_range["window_end"].null_count == whole_range.num_rows == 3
    assert sum(whole_range["rows"].to_pylist()) == table.num_rows


def test_a_window_and_its_time_go_together(spark):
    import spark_udaf as su

    df = spark.createDataFrame(pa.table({"ts": [dt.datetime(2024, 1, 1)], "k": ["a"]}))
    for options in ({"window": "1h"}, {"time": "ts"}):
        with pytest.raises(ValueError, match="window and time must be passed together"):
            su.aggregate(df, ["k"], {"n": aggr.count()}, **options)
    with pytest.raises(ValueError, match="cannot read the gap"):
        su.aggregate(df, ["k"], {"n": aggr.count()}, window="session(0.5h)", time="ts")
    with pytest.raises(ValueError, match="no column 'at'"):
        su.aggregate(df, ["k"], {"n": aggr.count()}, window="1h", time="at")
