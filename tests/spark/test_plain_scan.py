"""DataFrames that only read files: a scan of the same files has the same rows, and other DataFrames are rejected by
name.
"""

from __future__ import annotations

import datetime as dt
import logging
import math
import os
import random
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import StorageLevel

import aggr
import spark_udaf as su
from tiltframe import TiltFrame

SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))
TRIALS = int(os.environ.get("TRIALS", 40))

VALUES = {  # of each column: what is in the rows, and what conditions compare with, in Spark's SQL
    "host": (["a", "b", "", "Ä", None], ["'a'", "'b'", "''", "'Ä'", "'zz'"]),
    "x": (
        [1.5, -0.0, 0.0, math.nan, math.inf, -math.inf, None],
        ["1.5D", "0D", "-0D", "double('inf')", "double('-inf')", "7D", "double('nan')"],
    ),
    "f": ([0.5, math.nan, -2.0, None], ["float(0.5)", "float(-2)", "0.1D"]),
    "id": ([1, 2, -3, 2**62, None], ["1", "2", "-3", "4611686018427387904", "1.5", "9"]),
    "money": ([Decimal("1.10"), Decimal("-2.00"), None], ["1.10", "-2", "0.001", "5"]),
    "ok": ([True, False, None], ["true", "false"]),
    "on": ([dt.date(2024, 5, 1), dt.date(1969, 12, 31), None], ["date'2024-05-01'", "'1969-12-31'", "'2030-01-01'"]),
    "ts": (
        [dt.datetime(2024, 5, 1, 10, tzinfo=dt.UTC), dt.datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=dt.UTC)],
        ["timestamp'2024-05-01 10:00:00Z'", "timestamp'1970-01-01 00:00:00Z'"],
    ),
    "day": ([1, 2, 3], ["1", "2", "7"]),  # of the folders
}
TYPES = {
    "host": pa.string(),
    "x": pa.float64(),
    "f": pa.float32(),
    "id": pa.int64(),
    "money": pa.decimal128(10, 2),
    "ok": pa.bool_(),
    "on": pa.date32(),
    "ts": pa.timestamp("ms", "UTC"),
}
ROWS = 600
PUSHED = "spark.sql.parquet.filterPushdown"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    draws, path = random.Random(5), tmp_path_factory.mktemp("plain") / "with a space"
    for day in VALUES["day"][0]:
        (path / f"day={day}").mkdir(parents=True)
        columns = {name: pa.array([draws.choice(VALUES[name][0]) for _ in range(ROWS)], TYPES[name]) for name in TYPES}
        columns["row"] = pa.array(range(day * ROWS, (day + 1) * ROWS))
        pq.write_table(pa.table(columns), path / f"day={day}" / "part.parquet", row_group_size=100)
    return str(path)


def drawn(draws: random.Random, depth: int = 0) -> str:
    kind = draws.random()
    if depth < 3 and kind < 0.45:
        parts = [drawn(draws, depth + 1) for _ in range(draws.choice([1, 2, 2, 3]))]
        joined = f" {draws.choice(['AND', 'OR'])} ".join(f"({part})" for part in parts)
        return f"NOT ({joined})" if draws.random() < 0.3 else joined
    name = draws.choice(list(VALUES))
    values = VALUES[name][1]
    if kind < 0.55:
        return f"{name} IS {draws.choice(['', 'NOT '])}NULL"
    if kind < 0.7:
        return f"{name} {draws.choice(['', 'NOT '])}IN ({', '.join(draws.choices(values, k=draws.choice([1, 3, 14])))})"
    if name == "ok" and kind < 0.8:
        return name
    sides = [name, draws.choice(values)]
    draws.shuffle(sides)
    return f" {draws.choice(['=', '<>', '<', '<=', '>', '>='])} ".join(sides)


@pytest.mark.long
def test_the_same_rows_are_chosen(spark, folder):
    print("seed", SEED)
    draws, scans = random.Random(SEED), 0
    df = spark.read.parquet(folder)
    for _ in range(TRIALS):
        condition = drawn(draws)
        chosen = df.where(condition)
        if draws.random() < 0.5:
            chosen = chosen.select("row", "ts").where("row >= 0")
        try:
            scan = su.scan_of(chosen)
        except ValueError:
            continue
        scans += 1
        table = scan.dataset.to_table(columns=["row"], filter=scan.filters)
        with every_row_group(spark):
            spark_rows = sorted(row[0] for row in chosen.select("row").collect())
        assert sorted(table["row"].to_pylist()) == spark_rows, condition
    assert scans > TRIALS / 4


@contextmanager
def every_row_group(spark):
    """Have Spark skip no row groups by statistics: these know of no NaN, which is above all, and it loses some."""
    spark.conf.set(PUSHED, "false")
    try:
        yield
    finally:
        spark.conf.unset(PUSHED)


def test_rows_that_are_nan_are_chosen_where_spark_skips_them(spark, tmp_path):
    pq.write_table(pa.table({"x": [-2.0, 0.5, math.nan]}), tmp_path / "part.parquet")
    chosen = spark.read.parquet(str(tmp_path)).where("x > 0.5")
    scan = su.scan_of(chosen)
    with every_row_group(spark):
        assert chosen.select("x").count() == 1
    assert scan.dataset.to_table(filter=scan.filters).num_rows == 1


@pytest.mark.long
def test_states_are_the_same_and_the_log_says_which_way(spark, folder, caplog, tmp_path):
    measures = {"n": aggr.count(), "x": aggr.sum("f"), "latency": aggr.dds("f", [0.5])}
    frame = TiltFrame(["1m", "1h"], "ts", measures, ["host"])
    df = spark.read.parquet(folder).where("day >= 2 AND f < 1 AND ts IS NOT NULL").select("ts", "host", "f")
    with caplog.at_level(logging.INFO, "spark_udaf"):
        assert same(su.rollup(df, frame, scan="auto"), su.rollup(df, frame))
        assert same(su.aggregate(df, ["host"], measures, scan="auto"), su.aggregate(df, ["host"], measures))
        assert same(su.rollup(df.where("f * 2 < 1"), frame, scan="auto"), su.rollup(df.where("f * 2 < 1"), frame))
    messages = [record.getMessage() for record in caplog.records if record.name == "spark_udaf"]
    assert [line.split(":")[1].split("(")[0].strip() for line in messages] == [
        "tasks read ParquetScan",
        "tasks read ParquetScan",
        "the rows of the DataFrame pass through the JVM",
    ]
    with pytest.raises(ValueError, match="'host'"):  # it is not selected, though it is in the files
        su.rollup(df.select("ts", "f"), frame, scan="auto")
    with pytest.raises(ValueError, match="scan must be 'auto' or None; got 'yes'"):
        su.rollup(df, frame, scan="yes")


def same(first, other):
    order = [name for name in first.columns if name in ("level", "window_start", "host")]
    return first.orderBy(order).toArrow().equals(other.orderBy(order).toArrow())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda df: df.limit(5), "has a GlobalLimit"),
        (lambda df: df.selectExpr("row", "x * 2 AS x"), "has a Project"),
        (lambda df: df.selectExpr("row AS number"), "has a Project"),
        (lambda df: df.union(df), "has a Union"),
        (lambda df: df.distinct(), "has a Aggregate"),
        (lambda df: df.sample(0.5), "has a Sample"),
        (lambda df: df.repartition(3), "has a Repartition"),
        (lambda df: df.where("row + 1 > 5"), "the condition .* is not supported"),
        (lambda df: df.where("host LIKE '%a%'"), "the condition .* is not supported"),
        (lambda df: df.where("rand() > 0.5"), "the condition .* is not supported"),
        (lambda df: df.where("x > double('nan')"), "with NaN"),
        (lambda df: df.where("x <=> 1.5D"), "the condition .* is not supported"),
        (lambda df: df.where("HOST = 'a' AND ID IS NULL"), "a condition uses the column '(HOST|ID)'"),
    ],
)
def test_what_is_no_plain_scan_is_refused_by_name(spark, folder, change, reason):
    with pytest.raises(ValueError, match=reason):
        su.scan_of(change(spark.read.parquet(folder)))


def test_other_readings_are_refused_by_name(spark, folder, tmp_path):
    def refused(df, reason):
        with pytest.raises(ValueError, match=reason):
            su.scan_of(df)

    refused(spark.read.option("int96RebaseMode", "LEGACY").parquet(folder), "the option int96rebasemode")
    refused(spark.read.option("recursiveFileLookup", "true").parquet(folder), "the column 'day' is missing in Spark")
    refused(spark.read.parquet(f"{folder}/day=1"), "the column 'day' is missing in Spark")
    refused(spark.read.schema("row INT, day INT").parquet(folder), "the column '.*' is missing in Spark, but")
    refused(spark.range(5), "has a Range")
    spark.read.parquet(folder).write.json(str(tmp_path / "json"))
    refused(spark.read.schema("row BIGINT").json(str(tmp_path / "json")), "does not read Parquet")
    for places in (
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ):  # on disk, in memory, outside of the heap
        cached = spark.read.parquet(folder).where("id = 1").persist(StorageLevel(*places, deserialized=False))
        refused(cached, "the DataFrame is cached")
        cached.unpersist()
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        refused(spark.read.parquet(folder), "ignoreMissingFiles of the session is not false")
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")
    with pytest.raises(TypeError, match="expected a Spark DataFrame"):
        su.scan_of(folder)
    assert su.scan_of(spark.read.option("basePath", folder).parquet(f"{folder}/day=1")).dataset.count_rows() == ROWS


def test_files_that_come_later_are_not_read(spark, tmp_path):
    """As by Spark, which lists files once."""
    pq.write_table(pa.table({"row": [1]}), tmp_path / "a.parquet")
    df = spark.read.parquet(str(tmp_path))
    pq.write_table(pa.table({"row": [2]}), tmp_path / "b.parquet")
    assert [Path(file).name for file in su.scan_of(df).dataset.files] == ["a.parquet"]


@pytest.mark.long
def test_times_of_int96_are_the_instants_of_the_dataframe(spark, tmp_path):
    """Spark's default for times; Arrow alone reads them as times without a zone."""
    frame = TiltFrame(["1m"], "ts", {"n": aggr.count(), "latest": aggr.max("ts")})
    rows = spark.sql("SELECT timestamp_micros(1714557600000000 + id * 1000000) AS ts FROM range(100)")
    rows.write.parquet(str(tmp_path / "flat"))
    (file, *_) = (tmp_path / "flat").glob("*.parquet")
    assert pq.ParquetFile(file).schema.column(0).physical_type == "INT96"
    read = spark.read.parquet(str(tmp_path / "flat"))
    results = [
        su.finish(su.rollup(scan, frame), frame).toArrow().sort_by("window_start")
        for scan in (read, su.scan_parquet(spark, str(tmp_path / "flat")), su.scan_of(read))
    ]
    assert results[0]["n"].to_pylist() == [60, 40]
    assert results[1].equals(results[0])
    assert results[2].equals(results[0])
    rows.selectExpr("ts", "named_struct('inner', ts) AS s").write.parquet(str(tmp_path / "nested"))
    with pytest.raises(ValueError, match=r"INT96 inside the column 's\.inner'"):
        su.rollup(su.scan_parquet(spark, str(tmp_path / "nested")), frame).collect()


@pytest.mark.parametrize("name", ["ünï", "é x", "日本", "a b", "a+b"])
def test_folders_with_any_letters_are_scanned(spark, name, tmp_path):
    for part in ("é x", "ü"):
        path = tmp_path / name / f"q={part}"
        path.mkdir(parents=True)
        pq.write_table(pa.table({"x": [1.0, 2.0]}), path / "a.parquet")
    expected = {("é x", 3.0), ("ü", 3.0)}
    measures = {"s": aggr.sum("x")}
    df = spark.read.parquet(str(tmp_path / name))
    uri = f"file://{tmp_path}/{name}".replace(" ", "%20")
    for scan in (su.scan_of(df), su.scan_parquet(spark, str(tmp_path / name)), su.scan_parquet(spark, uri)):
        rows = su.finish(su.aggregate(scan, ["q"], measures), measures).collect()
        assert {(row.q, row.s) for row in rows} == expected
