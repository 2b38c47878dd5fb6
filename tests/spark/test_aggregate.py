"""States by key on Spark: aggregate, merge, finish, accessors, files that workers read, and data of unusual shape."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as fs
import pyarrow.parquet as pq
import pytest

import aggr
from aggr.arrow.bit_equality import digest, same_bits
from aggr.tables.by_key import key_column, reduce_by
from aggr.tables.state_plan import plan_state_columns
from tests import engines
from tiltframe import TiltFrame, rollup

pytestmark = pytest.mark.spark

MEASURES = {
    "n": aggr.count(),
    "d": aggr.dds("x", [0.5, 0.99]),
    "h": aggr.hdr("i", [0.5], where="i >= 0"),
    "sd": aggr.stdev("i"),
    "mean": aggr.avg("i"),
    "last": aggr.last("word", by="ts"),
    "lo": aggr.min("price"),
}
BY = ["host", "shelf"]


def local(rows: pa.Table, by: list[str]) -> pa.Table:
    """Reduce the rows at once, by the local engine."""
    return reduce_by(rows, {name: key_column(rows[name]) for name in by}, plan_state_columns(MEASURES))


def same(actual: pa.Table, expected: pa.Table, by: list[str]) -> bool:
    actual = actual.sort_by([(name, "ascending") for name in by]) if by else actual
    return actual.column_names == expected.column_names and all(
        digest(actual[name]) == digest(expected[name]) for name in expected.column_names
    )


@pytest.fixture(scope="module")
def rows():
    return engines.rows(5000)


@pytest.fixture(scope="module")
def df(spark, rows):
    return spark.createDataFrame(rows).repartition(5)


@pytest.mark.long
@pytest.mark.parametrize("by", [BY, ["host"], []])
def test_aggregate_and_merge_have_the_bits_of_the_rows(by, df, rows):
    import spark_udaf as su

    assert same(su.aggregate(df, by, MEASURES).toArrow(), local(rows, by), by)
    assert same(su.merge(su.aggregate(df, BY, MEASURES), by).toArrow(), local(rows, by), by)


@pytest.mark.long
def test_stored_states_merge_on(spark, df, rows, tmp_path):
    """Half of the rows today, half tomorrow, both through Parquet, with states that are null among them."""
    import spark_udaf as su

    for number, half in enumerate(("i % 2 = 0", "i % 2 <> 0")):
        su.aggregate(df.where(half), BY, MEASURES).write.parquet(str(tmp_path / str(number)))
    both = spark.read.parquet(str(tmp_path / "0")).unionByName(spark.read.parquet(str(tmp_path / "1")))
    holes = both.union(spark.createDataFrame([], both.schema)).union(
        both.limit(1).selectExpr("host", "shelf", *[f"if(false, {c}, null) AS {c}" for c in both.columns[2:]])
    )
    assert same(su.merge(holes, ["host"]).toArrow(), local(rows, ["host"]), ["host"])


def test_rolled_up_states_merge_to_any_key(df, rows):
    import spark_udaf as su

    frame = TiltFrame(["1h", "1d"], "ts", MEASURES, BY)
    merged = su.merge(su.rollup(df, frame).where("level = '1d'"), ["host"])
    assert same(merged.toArrow(), local(rows, ["host"]), ["host"])


@pytest.mark.long
def test_finish_and_accessors_read_states(df, rows):
    import spark_udaf as su

    states = su.aggregate(df, ["host"], MEASURES)
    results = su.finish(states, MEASURES | {"d": aggr.dds("x", [0.25])}).toArrow().sort_by("host").to_pylist()
    expressions = [
        su.states.quantile("d", 0.25),
        su.states.quantile("h", 1),
        su.states.rank("h", 1e12),
        su.states.mean("sd"),
        su.states.stdev("sd", 0),
    ]
    read = states.select(
        "host", *expressions, su.states.count("n"), su.states.count("d"), su.states.stdev("h"), su.states.rank("d", 0.0)
    )
    for row, expected in zip(sorted(read.collect(), key=lambda r: (r[0] is None, r[0] or "")), results, strict=True):
        part = rows.filter(rows["host"].is_null() if row[0] is None else pc.equal(rows["host"], row[0]))
        i, x = part["i"].to_numpy(), part["x"].drop_null().to_numpy()
        numbers = x[~np.isnan(x)]
        assert row[1] == expected["d"]["quantiles"]["0.25"]
        assert row[2] == pytest.approx(i.max(), rel=1e-3)
        assert row[3] == 1.0
        assert row[4] == expected["mean"]
        assert row[5] == pytest.approx(i.std(), rel=1e-12)
        assert row[6] == len(part)
        assert row[7] == len(numbers)
        assert row[8] == pytest.approx(i[i >= 0].std(ddof=1), rel=1e-2)
        assert row[9] == (numbers <= 0).mean()


def test_accessors_add_no_exchange(df, capsys):
    import spark_udaf as su

    states = su.aggregate(df, ["host"], MEASURES)
    plans = []
    for frame in (
        states,
        su.finish(states, MEASURES),
        states.select(su.states.quantile("d", 0.5), su.states.mean("sd")),
    ):
        frame.explain()
        plans.append(capsys.readouterr().out.count("Exchange "))
    assert plans[0] == plans[1] == plans[2]


@pytest.mark.long
def test_interchange_columns(df):
    import spark_udaf as su

    finite = aggr.dds("x", where="x > -1e300 AND x < 1e300")
    states = su.aggregate(df, ["host"], {"d": finite, "h": aggr.hdr("i", where="i >= 0")}).localCheckpoint()
    converted = states.select("*", su.to_dds_proto("d").alias("p"), su.to_hdr_v2("h").alias("t"))
    back = converted.select("d", "h", su.from_dds_proto("p", mins="d.min").alias("d2"), su.from_hdr_v2("t").alias("h2"))
    for row in back.collect():
        assert row.d.positive == row.d2.positive
        assert row.d.negative == row.d2.negative
        assert row.h.buckets == row.h2.buckets
    with pytest.raises(Exception, match="these are states of dds, not of hdr"):
        states.select(su.to_hdr_v2("d")).collect()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda su, df: su.aggregate(df, "host", MEASURES),
            ValueError,
            "by must be a list of column names",
        ),
        (lambda su, df: su.aggregate(df, ["hst"], MEASURES), ValueError, "no column 'hst'; did you mean 'host'"),
        (
            lambda su, df: su.aggregate(df, ["host", "host"], MEASURES),
            ValueError,
            "the argument by contains a column twice",
        ),
        (lambda su, df: su.aggregate(df, ["host"], {}), ValueError, "measures must name at least one"),
        (lambda su, df: su.aggregate(df, ["host"], {"a": 3}), ValueError, "the measure 'a' must be made by aggr"),
        (
            lambda su, df: su.aggregate(df, ["host"], {"host": aggr.count()}),
            ValueError,
            "'host' is used twice among keys and measures",
        ),
        (
            lambda su, df: su.aggregate(df, ["host"], {"f": aggr.first("x")}),
            ValueError,
            "needs event times",
        ),
        (lambda su, df: su.aggregate(df, ["host"], {"s": aggr.sum("word")}), TypeError, "cannot take a column of type"),
        (lambda su, df: su.aggregate(3, ["host"], MEASURES), TypeError, "expected a Spark DataFrame"),
        (lambda su, df: su.merge(df, ["host"]), ValueError, "contain no states to merge"),
        (lambda su, df: su.finish(df, MEASURES), ValueError, "these are not states of n"),
        (lambda su, df: su.states.quantile("d", 2), ValueError, "a quantile must be"),
        (lambda su, df: su.states.rank("d", math.nan), ValueError, "rank needs a number"),
        (lambda su, df: su.states.stdev("d", -1), ValueError, "ddof must be"),
        (
            lambda su, df: su.scan_parquet(df.sparkSession, "/nowhere/at/all"),
            FileNotFoundError,
            "there is no file or folder /nowhere/at/all",
        ),
        (lambda su, df: su.scan_parquet(df.sparkSession, []), ValueError, "name at least one file"),
        (lambda su, df: su.scan_parquet(df.sparkSession, "x", rows_per_task=0), ValueError, "rows_per_task must be"),
    ],
)
def test_mistakes_are_told_before_any_job(call, error, message, df):
    import spark_udaf as su

    with pytest.raises(error, match=message):
        call(su, df)


@pytest.mark.long
def test_an_accessor_that_does_not_fit_names_those_that_do(df):
    import spark_udaf as su

    with pytest.raises(Exception, match="states of var have no quantile; they have mean, stdev, count"):
        su.aggregate(df, ["host"], MEASURES).select(su.states.quantile("sd", 0.5)).collect()


@pytest.fixture(scope="module")
def folder(rows, tmp_path_factory):
    """The rows in folders by shelf, several files and row groups, one file without a column that comes late."""
    base = tmp_path_factory.mktemp("rows")
    for number, part in enumerate((rows.slice(0, 2000), rows.slice(2000))):
        ds.write_dataset(
            part if number else part.append_column("late", pa.array([1.5] * len(part))),
            base,
            format="parquet",
            partitioning=["shelf"],
            partitioning_flavor="hive",
            basename_template=f"part-{number}-{{i}}.parquet",
            max_rows_per_group=300,
            existing_data_behavior="overwrite_or_ignore",
        )
    (base / "_SUCCESS").write_text("")
    (base / "_temporary").mkdir()
    (base / "_temporary" / "half.parquet").write_text("not a file yet")
    return base


@pytest.mark.parametrize("rows_per_task", [1, 700, 10**6])
@pytest.mark.long
def test_files_read_in_the_workers_give_the_same_bits(spark, rows, folder, rows_per_task):
    import spark_udaf as su

    scan = su.scan_parquet(spark, str(folder), rows_per_task=rows_per_task)
    rows = rows.set_column(rows.column_names.index("shelf"), "shelf", rows["shelf"].cast(pa.int32()))
    assert same(su.aggregate(scan, BY, MEASURES).toArrow(), local(rows, BY), BY)
    expected, order = rollup(rows, engines.FRAME), engines.ORDER
    states = su.rollup(scan, engines.FRAME).toArrow().sort_by(order)
    assert all(digest(states[c]) == digest(expected.sort_by(order)[c]) for c in expected.column_names)
    groups = sum(len(piece.groups) for task in scan.tasks for piece in task)
    assert len(scan.tasks) == {1: groups, 10**6: 1}.get(rows_per_task, len(scan.tasks))
    assert "parquet" in repr(scan).lower()


@pytest.mark.parametrize("filters", [[("shelf", "=", 1), ("host", "in", ["a", "b"])], pc.field("i") > 900_000])
def test_filters_leave_out_rows_folders_and_row_groups(spark, rows, folder, filters):
    import spark_udaf as su

    scan = su.scan_parquet(spark, [str(folder / "shelf=0"), str(folder / "shelf=1")], filters=filters)
    expression = filters if isinstance(filters, pc.Expression) else pq.filters_to_expression(filters)
    chosen_rows = rows.filter((pc.field("shelf") < 2) & expression)
    result = su.aggregate(scan, ["host"], MEASURES).toArrow()
    assert same(result, local(chosen_rows, ["host"]), ["host"])
    everything = su.scan_parquet(spark, str(folder))
    if isinstance(filters, list):
        assert len({p.path for t in scan.tasks for p in t}) < len({p.path for t in everything.tasks for p in t})


def test_a_row_group_that_cannot_match_is_not_read(spark, tmp_path):
    import spark_udaf as su

    pq.write_table(pa.table({"x": np.arange(10_000)}), tmp_path / "x.parquet", row_group_size=1000)
    scan = su.scan_parquet(spark, str(tmp_path), filters=[("x", ">=", 8500)])
    assert [piece.groups for task in scan.tasks for piece in task] == [[8, 9]]
    assert su.aggregate(scan, [], {"n": aggr.count()}).select(su.states.count("n")).first()[0] == 1500


@pytest.mark.long
def test_columns_that_come_late_and_stores_by_uri(spark, rows, folder):
    import spark_udaf as su

    late = su.aggregate(su.scan_parquet(spark, folder.as_uri()), [], {"n": aggr.count("late")})
    assert late.select(su.states.count("n")).first()[0] == 2000
    inside = fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())
    of_one_shelf = su.aggregate(su.scan_parquet(spark, "shelf=2", filesystem=inside), [], {"n": aggr.count()})
    assert of_one_shelf.select(su.states.count("n")).first()[0] == pc.sum(pc.equal(rows["shelf"], 2)).as_py()


def test_what_cannot_be_scanned_is_told_in_a_sentence(spark, folder, tmp_path):
    import spark_udaf as su

    (tmp_path / "bad.parquet").write_text("no parquet at all")
    with pytest.raises(ValueError, match=r"cannot scan .*bad\.parquet"):
        su.scan_parquet(spark, str(tmp_path / "bad.parquet"))
    (tmp_path / "none").mkdir()
    with pytest.raises(FileNotFoundError, match="there are no files in"):
        su.scan_parquet(spark, str(tmp_path / "none"))
    with pytest.raises(ValueError, match="nope"):
        su.scan_parquet(spark, str(folder), filters=[("nope", "=", 1)])


@pytest.mark.long
def test_a_scan_without_rows_has_no_windows(spark, folder):
    import spark_udaf as su

    scan = su.scan_parquet(spark, str(folder), filters=[("i", ">", 10**9)])
    assert su.rollup(scan, engines.FRAME).count() == 0
    assert su.aggregate(scan, ["i"], MEASURES).count() == 0
    counted = {"n": aggr.count(), "total": aggr.sum("i")}  # without keys, no rows are one group, as in Spark
    assert su.finish(su.aggregate(scan, [], counted), counted).toArrow().to_pylist() == [{"n": 0, "total": None}]


SHAPES = {
    "many keys": lambda spark: spark.range(300_000).selectExpr("id AS k", "CAST(id AS double) AS x"),
    "one key with most": lambda spark: spark.range(300_000).selectExpr(
        "CASE WHEN id % 10 < 9 THEN 0 ELSE id END AS k", "CAST(id AS double) AS x"
    ),
    "empty": lambda spark: spark.range(0).selectExpr("id AS k", "CAST(id AS double) AS x"),
    "one partition": lambda spark: spark.range(0, 50_000, 1, 1).selectExpr("id % 7 AS k", "CAST(id AS double) AS x"),
    "many partitions": lambda spark: spark.range(0, 50_000, 1, 200).selectExpr(
        "id % 7 AS k", "CAST(id AS double) AS x"
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.long
def test_hard_shapes(shape, spark):
    """Against Spark's own aggregates, whose sums of whole numbers are exact."""
    from pyspark.sql import functions as F

    import spark_udaf as su

    df = SHAPES[shape](spark)
    states = su.aggregate(df, ["k"], {"s": aggr.sum("x"), "d": aggr.dds("x")})
    results = su.finish(states, {"s": aggr.sum("x"), "d": aggr.dds("x", [1.0])}).select("k", "s", "d.count", "d.max")
    expected = (
        df.coalesce(4).groupBy("k").agg(F.sum("x").alias("s"), F.count("x").alias("count"), F.max("x").alias("max"))
    )
    actual, expected = (frame.toArrow().sort_by("k") for frame in (results, expected))
    assert actual.num_rows == expected.num_rows
    assert all(same_bits(actual[c], expected[c]) for c in expected.column_names)


def test_a_key_may_be_the_name_of_a_folder(spark, tmp_path):
    import spark_udaf as su

    rows = pa.table({"host": ["a", "b", "a", None], "x": [1.0, 2.0, 3.0, 4.0]})
    ds.write_dataset(rows, tmp_path, format="parquet", partitioning=["host"], partitioning_flavor="hive")
    states = su.aggregate(su.scan_parquet(spark, str(tmp_path)), ["host"], {"s": aggr.sum("x")})
    results = su.finish(states, {"s": aggr.sum("x")}).toArrow().to_pylist()
    assert {row["host"]: row["s"] for row in results} == {"a": 4.0, "b": 2.0, None: 4.0}
