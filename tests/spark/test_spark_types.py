"""Every type of Spark as key, time and value, through a rollup and a store, compared with Spark's own groupBy."""

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

import aggr
from tiltframe import FrameStore, TiltFrame

pytestmark = pytest.mark.spark

ROWS = 600
DAY = 86_400_000_000


def drawn(choices: list, kind: pa.DataType, seed: int) -> pa.Array:
    """Draw a column of few values, null among them."""
    rng = random.Random(seed)
    return pa.array([rng.choice([*choices, None]) for _ in range(ROWS)], kind)


MICROS = [-62_135_596_800_000_000 + DAY, -1, 0, 1, -DAY, 951_782_400_000_000, 253_402_300_799_999_999 - DAY]
COLUMNS = {
    "byte": ([-128, 0, 127], pa.int8()),
    "short": ([-32768, 1, 32767], pa.int16()),
    "int": ([-(2**31), 2, 2**31 - 1], pa.int32()),
    "long": ([-(2**63), 2**53, 2**53 + 1, 2**63 - 1], pa.int64()),
    "float": ([float(np.float32(0.1)), math.nan, 0.0, -0.0, math.inf], pa.float32()),
    "double": ([0.1, math.nan, 0.0, -0.0, -math.inf, 5e-324, 1e308], pa.float64()),
    "decimal": ([Decimal("9" * 28 + "." + "9" * 10), Decimal("-0.0000000001"), Decimal(0)], pa.decimal128(38, 10)),
    "small": ([Decimal("1.50"), Decimal("-2.25")], pa.decimal128(5, 2)),
    "string": (["", "a", "A", "ä", "a ", "a\0b", "𝄞", "null"], pa.string()),
    "binary": ([b"", b"\0", b"\xff", b"a"], pa.binary()),
    "boolean": ([True, False], pa.bool_()),
    "date": ([-719_162, -1, 0, 19_000], pa.date32()),
    "timestamp": (MICROS, pa.timestamp("us", "UTC")),
    "ntz": (MICROS, pa.timestamp("us")),
    "interval": ([-1, 0, DAY, -3 * DAY + 1], pa.duration("us")),
}
NUMBERS = ["byte", "short", "int", "small", "decimal"]


def rows() -> pa.Table:
    """Draw rows of all types, at times around 1970."""
    rng = np.random.default_rng(3)
    times = pa.array(rng.integers(-3 * DAY, 3 * DAY, ROWS))
    columns = {name: drawn(choices, kind, seed) for seed, (name, (choices, kind)) in enumerate(COLUMNS.items())}
    return pa.table({"ts": times.cast(pa.timestamp("us", "UTC")), **columns})


def frame_of(spark, table: pa.Table):
    """Make a DataFrame in which timestamps without a zone stay so, which is not Spark's default."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return spark.createDataFrame(table, from_arrow_schema(table.schema, prefer_timestamp_ntz=True))


@pytest.fixture(scope="module")
def df(spark):
    df = frame_of(spark, rows()).repartition(3).cache()
    assert {df.schema[name].dataType.typeName() for name in ("timestamp", "ntz")} == {"timestamp", "timestamp_ntz"}
    return df


def comparable(value):
    """Make values comparable as bits are: NaN is itself; both zeros stay apart."""
    return (repr(value), type(value).__name__) if isinstance(value, float) else value


def grouped(spark, df, key: str, values: list[str]) -> dict:
    """Ask Spark itself."""
    from pyspark.sql import functions as F

    columns = [F.count(F.lit(1)).alias("n")]
    for name in values:
        columns += [F.min(name).alias(f"lo {name}"), F.max(name).alias(f"hi {name}"), F.count(name).alias(f"n {name}")]
    return by_key(df.groupBy(key).agg(*columns).toArrow(), key)


def by_key(table: pa.Table, key: str) -> dict:
    names = [name for name in table.column_names if name not in (key, "level", "window_start", "window_end", "partial")]
    columns = [table.column(name).to_pylist() for name in names]
    rows = zip(*columns, strict=True)
    return {
        comparable(k): {name: comparable(v) for name, v in zip(names, row, strict=True)}
        for k, row in zip(table.column(key).to_pylist(), rows, strict=True)
    }


# Of min and max, Spark takes both zeros for one, and returns either; ours tells them apart.
VALUES = [name for name in COLUMNS if name not in ("float", "double")]


def measures(values: list[str]) -> dict:
    all_measures = {"n": aggr.count()}
    for name in values:
        all_measures |= {f"lo {name}": aggr.min(name), f"hi {name}": aggr.max(name), f"n {name}": aggr.count(name)}
    return all_measures


@pytest.mark.parametrize("key", COLUMNS)
def test_keys_are_those_of_spark(key, spark, df):
    import spark_udaf as su

    rows_by_key = by_key(su.finish(su.aggregate(df, [key], {"n": aggr.count()}), {"n": aggr.count()}).toArrow(), key)
    assert rows_by_key == grouped(spark, df, key, [])


def test_values_are_those_of_spark(spark, df):
    import spark_udaf as su

    query_measures_from = measures(VALUES)
    results = su.finish(su.aggregate(df, ["boolean"], query_measures_from), query_measures_from).toArrow()
    expected = grouped(spark, df, "boolean", VALUES)
    assert by_key(results.select(["boolean", *query_measures_from]), "boolean") == expected


def test_sums_are_those_of_spark(spark, df):
    """Of a decimal with 38 digits Spark's sum is null if it overflows; those of fewer digits are compared."""
    from pyspark.sql import functions as F

    import spark_udaf as su

    names = [name for name in NUMBERS if name != "decimal"]
    measures = {name: aggr.sum(name) for name in names}
    results = su.finish(su.aggregate(df, ["date"], measures), measures).toArrow()
    expected = df.groupBy("date").agg(*[F.sum(name).alias(name) for name in names]).toArrow()
    assert by_key(results, "date") == by_key(expected, "date")


@pytest.mark.long
def test_a_store_gives_back_every_type(spark, df, tmp_path):
    """Through rollup_into, the files of a store, and the data source: keys, least and greatest values."""
    import spark_udaf as su

    frame = TiltFrame(["1d"], "ts", measures(VALUES), ["boolean", "date", "double", "string", "timestamp", "ntz"])
    store = FrameStore(tmp_path / "s", frame)
    assert su.rollup_into(df, store, "w", 1)
    for key in frame.keys:
        stored = su.read(spark, store.uri, per="all", keys=[key]).toArrow()
        expected = grouped(spark, df, key, VALUES)
        result = by_key(stored, key)
        assert result.keys() == expected.keys()
        for key_value, row in expected.items():
            for name in ("lo interval", "hi interval"):
                row[name] = None if row[name] is None else row[name] // dt.timedelta(microseconds=1)
            assert result[key_value] == row, key_value


TIMES = {
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "date": pa.date32(),
    "bigint": pa.int64(),
    "string": pa.string(),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", TIMES)
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_times_fall_into_their_windows_whatever_the_session(kind, zone, spark, tmp_path):
    """Before 1970 as after it. Times without a zone are UTC: the zone of the session says how Spark shows times."""
    import spark_udaf as su

    micros = [-62_000_000_000_000_001, -DAY - 1, -DAY, -1, 0, 1, DAY - 1, DAY, 1_383_460_200_000_000]
    if kind == "date":
        micros = [at // DAY * DAY for at in micros]
    if kind == "bigint":
        micros = [at // 1000 * 1000 for at in micros]
    moments = pa.array(micros).cast(pa.timestamp("us"))
    column = {
        "timestamp": moments.cast(pa.timestamp("us", "UTC")),
        "timestamp_ntz": moments,
        "date": moments.cast(pa.date32()),
        "bigint": pa.array([at // 1000 for at in micros]),
        "string": moments.cast(pa.string()),
    }[kind]
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        df = frame_of(spark, pa.table({"ts": column}))
        assert df.schema["ts"].dataType.simpleString() == kind
        frame = TiltFrame(["1h", "1d"], "ts", {"n": aggr.count()})
        store = FrameStore(tmp_path / "s", frame)
        assert su.rollup_into(df, store, "w", 1)
        rolled = su.finish(su.rollup(df, frame), frame).toArrow()
        for level, size in (("1h", DAY // 24), ("1d", DAY)):
            starts = [at // size * size for at in micros]
            expected = {at: starts.count(at) for at in starts}
            at_level = rolled.filter(pa.compute.equal(rolled["level"], level))
            for result in (at_level, su.read(spark, store.uri, per=level).toArrow()):
                window_starts = result["window_start"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
                assert dict(zip(window_starts, result["n"].to_pylist(), strict=True)) == expected
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
