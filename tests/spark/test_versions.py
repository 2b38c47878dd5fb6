"""Tests that every supported version of Spark must pass: `make test-spark-versions` runs this file on 3.5, 4.0 and 4.1.

`TESTS` at the end lists the tests for each row of the table in docs/how-to/clusters.md.
"""

from __future__ import annotations

import datetime as dt
import inspect
import json
import math
import os
import pickle
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

import aggr
import spark_udaf as su
from aggr.tables.by_key import key_column, reduce_by
from aggr.tables.state_plan import plan_state_columns
from spark_udaf import functions as A
from spark_udaf.versions import features, same_version
from spark_udaf.versions.arrow_tables import collect_arrow
from spark_udaf.versions.arrow_types import UnsupportedType, from_arrow_type, to_arrow_type
from spark_udaf.versions.json_values import array_from_json, array_to_json
from spark_udaf.versions.single_values import values_of_single_lists
from spark_udaf.versions.type_names import parse_type_name
from tests import engines, same_bits
from tests.golden import make as golden
from tiltframe import FrameStore, OrderedFrame

BIG = 2**53 + 1  # not a double
NAN = float("nan")
START = dt.datetime(2013, 11, 3, 5, 30, tzinfo=dt.UTC)  # 01:30 in New York, an hour before the clock goes back

SPARK_TYPES = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "decimal(21,2)": pa.decimal128(21, 2),
    "array<bigint>": pa.list_(pa.field("element", pa.int64())),
    "struct<a:int,b:array<struct<c:decimal(5,1),d:string>>>": pa.struct(
        [
            ("a", pa.int32()),
            (
                "b",
                pa.list_(pa.field("element", pa.struct([("c", pa.decimal128(5, 1)), ("d", pa.string())]))),
            ),
        ]
    ),
}


@pytest.mark.parametrize("name", SPARK_TYPES)
def test_types_go_both_ways_and_have_sparks_names(name):
    dtype = SPARK_TYPES[name]
    kind = from_arrow_type(dtype)
    assert kind.simpleString() == name
    assert to_arrow_type(kind) == dtype == parse_type_name(name)


def test_types_are_those_of_newer_pysparks():
    from pyspark.sql.pandas import types as internal

    for dtype in SPARK_TYPES.values():
        assert internal.from_arrow_type(dtype, prefer_timestamp_ntz=True) == from_arrow_type(dtype)


def test_types_that_the_other_side_lacks_are_refused():
    with pytest.raises(UnsupportedType, match=r"^Spark has no type for uint64"):
        from_arrow_type(pa.uint64())
    with pytest.raises(UnsupportedType, match=r"^Spark cannot send the type interval year to month to Python"):
        to_arrow_type(T.YearMonthIntervalType())
    with pytest.raises(TypeError, match=r"^a function on this version of PySpark cannot read .* map<string,int>"):
        parse_type_name("map<string,int>")


VALUES = [
    (pa.float64(), [1.5, None, NAN, math.inf, -math.inf, -0.0, 5e-324, 1 / 3]),
    (pa.int64(), [BIG, None, -(2**63), 2**63 - 1]),
    (pa.decimal128(21, 2), [None, "1.10", "-9999999999999999999.99"]),
    (pa.binary(), [b"", None, bytes(range(256))]),
    (pa.string(), ["", None, 'a"\\\n\0é😀']),
    (pa.timestamp("us", "UTC"), [START, None, dt.datetime(1, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=1)]),
    (pa.duration("us"), [dt.timedelta(days=-3, microseconds=1), None, dt.timedelta(microseconds=-1)]),
    (pa.date32(), [dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]),
    (pa.struct([("a", pa.float64()), ("b", pa.list_(pa.int64()))]), [{"a": NAN, "b": [BIG, None]}, None, {"a": None}]),
]


@pytest.mark.parametrize(("dtype", "values"), VALUES, ids=lambda value: str(value)[:20])
def test_values_survive_as_text(dtype, values):
    array = pa.array(values, pa.string()).cast(dtype) if pa.types.is_decimal(dtype) else pa.array(values, dtype)
    padded = pa.concat_arrays([array[:1], array])[1:]  # a slice
    texts = array_to_json(padded)
    assert [repr(v) for v in array_from_json(texts, dtype).to_pylist()] == [repr(v) for v in array.to_pylist()]
    assert all(isinstance(json.loads(text), dict) for text in texts)


def test_lists_of_one_are_values():
    assert values_of_single_lists(pa.array([[1], [], None, [BIG]])).to_pylist() == [1, None, None, BIG]
    with pytest.raises(TypeError, match=r"^the column contains lists; use explode to aggregate their elements"):
        values_of_single_lists(pa.array([[1, 2]]))


def test_a_missing_feature_is_one_sentence(monkeypatch):
    import pyspark

    monkeypatch.setattr(pyspark, "__version__", "3.5.9")
    with pytest.raises(ValueError, match=r"^su\.x needs PySpark 4\.1 or newer, and this is 3\.5\.9; use su\.y$"):
        features.refuse("su.x", "4.1", "use su.y")


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    file = tmp_path_factory.mktemp("rows") / "rows.parquet"
    table = engines.rows(2000)
    pq.write_table(table, file)
    return table, str(file)


@pytest.fixture(scope="module")
def odd(spark):
    """Return rows with null, NaN and whole numbers that are not doubles, and with a clock time that occurs twice."""
    values = [
        ("a", 1.5, BIG, START, "x"),
        ("a", NAN, None, START + dt.timedelta(hours=1), "y"),
        ("a", None, BIG + 2, START + dt.timedelta(minutes=30), None),
        ("b", None, 3, START, "z"),
        ("c", None, None, None, None),
    ]
    schema = "k string, x double, i bigint, ts timestamp, w string"
    df = spark.createDataFrame(values, schema)
    df.createOrReplaceTempView("odd")
    return df


@pytest.mark.long
@pytest.mark.slow
def test_rollup_of_four_levels_has_the_same_bits(spark, rows):
    table, file = rows
    states = su.rollup(spark.read.parquet(file).repartition(3), engines.FRAME)
    results = su.finish(states, engines.FRAME)
    assert engines.digests(collect_arrow(states), collect_arrow(results)) == engines.local_digests(table)


@pytest.mark.long
@pytest.mark.slow
def test_bits_are_those_of_all_versions(spark, tmp_path):
    """States of every function, a rollup of four levels, `su.group_by`, SQL and stores have the stored digests."""
    assert same_bits.differences(same_bits.digests_of_engine(spark, tmp_path)) == []


@pytest.mark.long
@pytest.mark.slow
def test_bits_are_the_same_over_spark_connect(tmp_path):
    if not features.has_connect_server():
        pytest.skip("this PySpark has no server of Spark Connect")
    command = [sys.executable, "-m", "tests.same_bits", "connect", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    printed = [line.partition(" ")[2] for line in done.stdout.splitlines() if line.startswith("digests ")]
    assert printed, done.stderr[-3000:]
    assert same_bits.differences(json.loads(printed[0])) == []


@pytest.mark.slow
def test_workers_keep_the_memory_that_arrow_frees(spark):
    @same_version.TaskFunction
    def settings(batches):
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"setting": [os.environ.get("MIMALLOC_PURGE_DELAY")]})

    assert [row.setting for row in spark.range(1).mapInArrow(settings, "setting string").collect()] == ["10000"]


def test_files_aggregate_and_merge(spark, rows):
    table, file = rows
    scan = su.scan_parquet(spark, file, rows_per_task=700)
    fine = su.aggregate(scan, ["host", "shelf"], engines.OTHER_MEASURES)
    results = collect_arrow(su.finish(su.merge(fine, ["host"]), engines.OTHER_MEASURES)).sort_by("host")
    states = reduce_by(table, {"host": key_column(table["host"])}, plan_state_columns(engines.OTHER_MEASURES)).sort_by(
        "host"
    )
    for name, measure in engines.OTHER_MEASURES.items():
        assert list(map(repr, results[name].to_pylist())) == list(
            map(repr, measure.function.finish(states[name].combine_chunks()).to_pylist())
        )


@pytest.mark.slow
def test_states_of_every_function_are_those_of_earlier_releases(spark, tmp_path):
    """Earlier releases have written the files, with other libraries and without Spark.

    Each case has a column of its own, because measures of the same column may share a state.
    """
    cases = {
        name.replace("-", "_"): case for name, case in golden.CASES.items() if not pa.types.is_struct(case[1].type)
    }
    columns = {name: values for name, (_, values) in cases.items()}
    measures = {name: aggr.Measure(function, name) for name, (function, _) in cases.items()}
    pq.write_table(pa.table({"k": golden.IDS.ids, **columns}), tmp_path / "rows.parquet")
    df = spark.read.parquet(str(tmp_path / "rows.parquet")).repartition(3)
    states = collect_arrow(su.aggregate(df, ["k"], measures)).sort_by("k")
    assert len(measures) > 30
    for name in measures:
        (*_, file) = sorted(Path(golden.__file__).parent.glob(f"v*/{name.replace('_', '?')}.arrow"))
        expected = pa.ipc.open_file(file).read_all().column("states").take(states.column("k").combine_chunks())
        assert repr(states.column(name).to_pylist()) == repr(expected.to_pylist()), name


@pytest.mark.slow
def test_group_by_and_agg_keep_null_nan_and_big_numbers(odd):
    by_plan = su.group_by(odd, "k").agg(s=aggr.sum("i"), m=aggr.max("x"), n=aggr.count("x"), f=aggr.last("w", by="ts"))
    calls = [
        A.sum("i", type="bigint").alias("s"),
        A.max("x", type="double").alias("m"),
        A.count("x").alias("n"),
        A.last("w", by="ts", type="string").alias("f"),
    ]
    expected = [("a", 2 * BIG + 2, NAN, 2, "y"), ("b", 3, None, 0, "z"), ("c", None, None, 0, None)]
    for df in (by_plan, odd.groupBy("k").agg(*calls)):
        assert repr([tuple(row) for row in df.orderBy("k").collect()]) == repr(expected)


@pytest.mark.slow
def test_group_by_has_totals_next_to_aggregates_of_spark(odd):
    answers = su.group_by(odd).rollup("k").agg(A.count("x").alias("n"), F.max("i").alias("m"))
    expected = {(None, 2, BIG + 2), ("a", 2, BIG + 2), ("b", 0, 3), ("c", 0, None)}
    assert {tuple(row) for row in answers.collect()} == expected


@pytest.mark.slow
def test_large_groups_or_a_refusal(odd):
    if not features.has_iterating_aggregate():
        with pytest.raises(ValueError, match=r"^groups='large' needs PySpark 4\.2 or newer.*use su\.group_by"):
            A.sum("i", type="bigint", groups="large")
        return
    answers = odd.groupBy("k").agg(A.sum("i", type="bigint", groups="large").alias("s"))
    assert dict(answers.collect()) == {"a": 2 * BIG + 2, "b": 3, "c": None}


@pytest.mark.slow
def test_agg_gives_records_times_and_weights(odd):
    answers = odd.groupBy("k").agg(
        A.dds("x", [0.5]).alias("d"),
        A.max("ts", type="timestamp").alias("t"),
        A.sum("i", weight=F.lit(2), type="bigint").alias("w"),
    )
    records = collect_arrow(answers.orderBy("k")).to_pylist()
    assert [row["d"] and row["d"]["count"] for row in records] == [1, None, None]
    assert [row["t"] for row in records] == [START + dt.timedelta(hours=1), START, None]
    assert [row["w"] for row in records] == [4 * BIG + 4, 6, None]


@pytest.fixture
def with_older_workers(spark, tmp_path, monkeypatch):
    """Start workers that have an older tiltframe installed than the driver, as on a cluster with another image."""
    older = tmp_path / "tiltframe-0.0.9.dist-info"
    older.mkdir()
    (older / "METADATA").write_text("Metadata-Version: 2.1\nName: tiltframe\nVersion: 0.0.9\n")
    python = tmp_path / "python"  # looks for packages in the current folder first
    python.write_text(
        f'#!/bin/sh\ncd {tmp_path} && exec {sys.executable} "$@"\n'
    )  # Python looks into this folder first
    python.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))


@pytest.mark.long
@pytest.mark.slow
def test_workers_with_another_version_are_one_sentence(spark, odd, tmp_path, with_older_workers):
    store = FrameStore(tmp_path / "store", engines.STORE_FRAME)
    store.append(engines.rollup(engines.rows(10), engines.STORE_FRAME), "w", 1)
    installed = version("tiltframe")
    sentence = rf"the driver has tiltframe {installed}, and this worker has 0\.0\.9; install the same version"
    jobs = {
        "rows": lambda: su.aggregate(odd, ["k"], {"n": aggr.count("x")}),
        "agg": lambda: odd.groupBy("k").agg(A.sum("i", type="bigint")),
        "over": lambda: odd.select(A.sum("i", type="bigint").over(Window.partitionBy("k"))),
        "SQL": lambda: su.register(spark, "count") and spark.sql("SELECT aggr_count(i) FROM odd WHERE k = 'b'"),
    }
    if features.has_session_sources() or not features.has_data_source():  # 4.0 and 4.1 start another Python for sources
        jobs["store"] = lambda: su.read(spark.newSession(), store.uri, per="1h")
    for name, make in jobs.items():
        with pytest.raises(Exception, match=sentence) as raised:
            make().collect()
        assert name in ("rows", "store") or str(raised.value).startswith("the driver has")


def objects_for_tasks():
    """Return objects that Spark pickles for tasks: a reader of the data source, and processors of states."""
    objects = []
    if features.has_data_source():
        from spark_udaf.store.data_source import TiltframeReader

        objects.append(TiltframeReader("a query", pa.schema([]), 5))
    if features.has_state():
        from spark_udaf.streaming.pandas_shards import PandasShardWindows
        from spark_udaf.streaming.shards import ShardWindows

        job = SimpleNamespace(levels=["1m"])
        objects += [processor(job, "ProcessingTime") for processor in (ShardWindows, PandasShardWindows)]
    return objects


def test_readers_and_processors_of_another_version_are_one_sentence(monkeypatch):
    for sent in objects_for_tasks():
        loaded = pickle.loads(pickle.dumps(sent))
        assert type(loaded) is type(sent)
        assert loaded.__dict__.keys() == sent.__dict__.keys()
        with monkeypatch.context() as patch:
            patch.setattr(same_version, "installed_version", lambda: "0.0.9")
            older = pickle.dumps(sent)
        with pytest.raises(ValueError, match=r"^the driver has tiltframe 0\.0\.9, and this worker has "):
            pickle.loads(older)


@pytest.mark.slow
def test_over_windows(odd):
    by_key = Window.partitionBy("k")
    answers = odd.select(
        "k",
        A.sum("i", type="bigint").over(by_key).alias("s"),
        A.max("x", type="double").over(by_key).alias("m"),
        A.last("i", by="ts", type="bigint").over(by_key).alias("l"),
        A.dds("x", [0.5]).over(by_key).getField("count").alias("n"),
    )
    expected = {("a", 2 * BIG + 2, "nan", BIG + 2, 1), ("b", 3, "None", 3, None), ("c", None, "None", None, None)}
    assert {(k, s, repr(m), last, n) for k, s, m, last, n in answers.collect()} == expected


@pytest.fixture(scope="module")
def sql(spark, odd):
    su.register(spark)
    return lambda query: [tuple(row) for row in spark.sql(query).collect()]


@pytest.mark.slow
def test_all_functions_are_registered_by_one_call_to_the_jvm(spark, monkeypatch):
    import spark_udaf as su

    registered_one_by_one = []
    register = type(spark.udf).register

    def recorded(registration, name, *arguments):
        registered_one_by_one.append(name)
        return register(registration, name, *arguments)

    monkeypatch.setattr(type(spark.udf), "register", recorded)
    session = spark.newSession()  # in which no function is registered yet
    names = su.register(session)
    rows = session.sql("SHOW USER FUNCTIONS LIKE 'aggr_*'").collect()
    assert len(registered_one_by_one) == 1
    assert sorted(row[0] for row in rows) == names
    assert len(names) > 1000


def test_sql_keeps_null_nan_and_big_numbers(sql):
    x, i = "array_compact(array(x))", "array_compact(array(i))"
    query = f"""SELECT k, aggr_sum_bigint({i}), aggr_count({x}), aggr_max_string(w), aggr_last_bigint({i}, ts)
                FROM odd WHERE k = 'b' OR w IS NULL OR w = 'x' GROUP BY k ORDER BY k"""
    assert sql(query) == [("a", 2 * BIG + 2, 1, "x", BIG + 2), ("b", 3, 0, "z", 3), ("c", None, 0, None, None)]


@pytest.mark.slow
def test_sql_states_merges_and_records(sql):
    states = "SELECT k, aggr_dds_state(array_compact(array(x))) s FROM odd GROUP BY k"
    merged = f"SELECT aggr_dds_merge(s) s FROM ({states})"
    read = (
        f"SELECT aggr_dds_quantile(s, 0.5D), aggr_dds_count(s), aggr_dds_finish(s, array(0.5D)).count FROM ({merged})"
    )
    ((median, seen, count),) = sql(read)
    assert abs(median / 1.5 - 1) <= 0.01
    assert (seen, count) == (1, 1)


@pytest.mark.slow
def test_sql_states_have_the_type_of_the_table(spark, sql):
    states = spark.sql("SELECT aggr_dds_state(array_compact(array(x))) AS s FROM odd")
    assert states.schema["s"].dataType.typeName() == ("struct" if features.has_arrow_udf() else "binary")
    assert states.count() == 1


@pytest.mark.slow
def test_sql_over_lists_next_to_aggregates_of_spark(spark, odd):
    odd.createOrReplaceTempView("odd")
    query = """
        SELECT k, aggr_sum_bigint(i) AS s, max(i) AS m, aggr_count(*) AS n, aggr_sum_bigint(DISTINCT i) AS d,
               aggr_sum_bigint(i) FILTER (WHERE i > 3) AS f
        FROM odd GROUP BY k ORDER BY k"""
    expected = [("a", 2 * BIG + 2, BIG + 2, 3, 2 * BIG + 2, 2 * BIG + 2), ("b", 3, 3, 1, 3, None)]
    expected.append(("c", None, None, 1, None, None))
    assert [tuple(row) for row in su.sql(spark, query).collect()] == expected


@pytest.mark.slow
def test_sql_never_confuses_null_with_nan(sql):
    if features.has_arrow_udf():
        assert repr(sql("SELECT aggr_max(x), aggr_sum_bigint(i) FROM odd WHERE k = 'a'")) == repr([(NAN, 2 * BIG + 2)])
        return
    for call in ("aggr_count(x)", "aggr_sum_bigint(i)"):
        with pytest.raises(Exception, match=r"the column contains null or NaN.*write array_compact\(array\(x\)\)"):
            sql(f"SELECT {call} FROM odd WHERE k = 'a'")
    with pytest.raises(Exception, match=r"aggr_max: the result is NaN"):
        sql("SELECT aggr_max(array_compact(array(x))) FROM odd")
    with pytest.raises(Exception, match=r"aggr_dds, whose result is a record.* needs PySpark 4\.1.*aggr_dds_finish"):
        sql("SELECT aggr_dds(i).quantiles['0.5'] FROM odd WHERE i = 3")


@pytest.mark.long
@pytest.mark.slow
def test_accessors_and_set_operations(spark, rows):
    table, file = rows
    measures = {"d": aggr.dds("price", [0.5]), "c": aggr.approx_count_distinct("i", k=64), "v": aggr.var("price")}
    states = su.aggregate(spark.read.parquet(file), ["host"], measures)
    selected = states.select(
        "host",
        su.states.quantile("d", 0.5).alias("q"),
        su.states.mean("v").alias("m"),
        su.states.jaccard("c", "c").alias("j"),
        su.states.union("c", "c").alias("u"),
    )
    answers = collect_arrow(selected).sort_by("host")
    local = reduce_by(table, {"host": key_column(table["host"])}, plan_state_columns(measures)).sort_by("host")
    medians = measures["d"].function.finish(local["d"].combine_chunks()).field("quantiles").field("0.5")
    assert list(map(repr, answers["q"].to_pylist())) == list(map(repr, medians.to_pylist()))
    assert answers["j"].to_pylist() == [1.0] * len(answers)
    assert answers["u"].to_pylist() == local["c"].to_pylist()
    pytest.importorskip("ddsketch")
    d = su.from_dds_proto(su.to_dds_proto("d", keys="lower"), mins="d.min", maxs="d.max", keys="lower")
    again = collect_arrow(states.select("host", su.states.quantile(d, 0.5).alias("q"))).sort_by("host")
    assert again["q"].to_pylist() == answers["q"].to_pylist()


@pytest.mark.long
@pytest.mark.slow
def test_a_store_is_written_and_read(spark, rows, tmp_path):
    table, file = rows
    store = FrameStore(tmp_path / "store", engines.STORE_FRAME)
    assert su.rollup_into(spark.read.parquet(file).repartition(3), store, "w", 1)
    assert not su.rollup_into(spark.read.parquet(file), store, "w", 1)
    other = FrameStore(tmp_path / "local", engines.STORE_FRAME)
    other.append(engines.rollup(table, engines.STORE_FRAME), "w", 1)
    assert engines.digests_of_store(store) == engines.digests_of_store(other)
    df = su.read(spark, store.uri, per="1h", where="host = 'a'", rows_per_task=100)
    results = collect_arrow(df).sort_by(engines.ORDER)
    query = store.query("1h", where="host = 'a'").sort_by(engines.ORDER)
    assert {c: engines.digest(results[c]) for c in query.column_names} == {
        c: engines.digest(query[c]) for c in query.column_names
    }
    states = su.read_states(spark, store.uri, per="1m")
    third = FrameStore(tmp_path / "third", engines.STORE_FRAME)
    assert su.append(states, third, "w", 1)
    assert engines.digests_of_store(third)["1d d"] == engines.digests_of_store(store)["1d d"]


@pytest.mark.long
@pytest.mark.slow
def test_plain_scans_backfills_and_warming(spark, rows, tmp_path):
    table, file = rows
    su.warm(spark, ["count"], tasks=2)
    df = spark.read.parquet(file)
    measures = {"n": aggr.count(), "s": aggr.sum("price")}
    by_host = [su.aggregate(df, ["host"], measures, scan=scan) for scan in ("auto", None)]
    states = [collect_arrow(answers).sort_by("host") for answers in by_host]
    assert states[0].equals(states[1])
    assert su.scan_of(df.where("shelf = 1")) is not None
    store = FrameStore(tmp_path / "store", engines.STORE_FRAME)
    assert su.backfill(df, store, "archive", "1d") == 3  # days in New York
    other = FrameStore(tmp_path / "local", engines.STORE_FRAME)
    other.append(engines.rollup(table, engines.STORE_FRAME), "w", 1)
    assert engines.digests_of_store(store) == engines.digests_of_store(other)


@pytest.mark.long
@pytest.mark.slow
def test_stores_are_corrected(spark, tmp_path):
    frame = engines.TiltFrame(["1m", "1h"], "ts", {"n": aggr.count(), "s": aggr.sum("x")}, ["k"])
    data = pa.table(
        {"ts": [at * 60_000 for at in range(240)], "x": [at % 9 + 0.1 for at in range(240)], "k": ["a", "b"] * 120}
    )
    stores = [FrameStore(tmp_path / name, frame) for name in ("spark", "local")]
    for store in stores:
        store.append(engines.rollup(data, frame), "w", 1)
    within = ("1970-01-01T01:00Z", "1970-01-01T02:00Z")
    new, removed = (engines.rollup(data.slice(begin, rows), frame) for begin, rows in ((70, 20), (150, 60)))
    for name, states in (("new", new), ("removed", removed)):
        pq.write_table(states, tmp_path / f"{name}.parquet")
    read = spark.read.parquet
    su.replace(read(str(tmp_path / "new.parquet")).repartition(2), stores[0], within)
    stores[1].replace(new, within)
    assert su.retract(read(str(tmp_path / "removed.parquet")).repartition(2), stores[0], "eraser", 1)
    assert stores[1].retract(removed, "eraser", 1)
    for per in ("1m", "1h"):
        actual, expected = (store.query(per, order_by=["window_start", "k"]) for store in stores)
        assert actual == expected


@pytest.mark.slow
def test_the_data_source(spark, tmp_path, rows):
    store = FrameStore(tmp_path / "store", engines.STORE_FRAME)
    store.append(engines.rollup(rows[0], engines.STORE_FRAME), "w", 1)
    su.register(spark)
    if features.has_data_source():
        hours = spark.read.format("tiltframe").option("per", "1h").load(store.uri)
        assert hours.count() == store.query("1h").num_rows
    else:
        assert not hasattr(su, "TiltframeSource")
        with pytest.raises(Exception, match="tiltframe"):
            spark.read.format("tiltframe").option("per", "1h").load(store.uri)


@pytest.mark.slow
def test_running_windows(odd):
    frame = OrderedFrame(["count(2)"], "ts", {"n": aggr.count(), "s": aggr.sum("i")}, ["k"])
    answers = su.ordered_rollup(odd.where("k = 'a'"), frame)
    (row,) = answers.collect()
    limbs = enumerate(row["s"]["sum"]["limbs"])
    assert sum(limb << (32 * place) for place, limb in limbs) == 2 * BIG + 2
    sums = su.running(odd.where("k = 'a'"), {"s": aggr.sum("i")}, time="ts", keys=["k"])
    assert [row["s"] for row in sums.orderBy("ts").collect()] == [BIG, 2 * BIG + 2, 2 * BIG + 2]


@pytest.mark.long
@pytest.mark.slow
def test_streams_into_a_store(spark, rows, tmp_path):
    table, file = rows
    (tmp_path / "in").mkdir()
    source = spark.readStream.schema(spark.read.parquet(file).schema).parquet(str(tmp_path / "in"))
    pq.write_table(table, tmp_path / "in" / "1.parquet")
    store = FrameStore(tmp_path / "store", engines.STORE_FRAME)
    query = su.stream_into(source, store, name="q", checkpoint=str(tmp_path / "c"), trigger="available_now")
    query.awaitTermination(120)
    other = FrameStore(tmp_path / "local", engines.STORE_FRAME)
    other.append(engines.rollup(table, engines.STORE_FRAME), "w", 1)
    assert engines.digests_of_store(store) == engines.digests_of_store(other)


@pytest.mark.long
@pytest.mark.slow
def test_streams_of_windows(spark, tmp_path):
    """A window is emitted by a batch with rows, by a timer in a batch without rows, and again after a late row."""
    frame = engines.TiltFrame(["1m", "1h"], "ts", {"n": aggr.count(), "s": aggr.sum("i")}, ["k"])
    (tmp_path / "in").mkdir()
    start = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
    tables = []
    for number, seconds in enumerate([[0, 59, 60], [130], [200], [20, 7300]]):
        times = pa.array([start + dt.timedelta(seconds=s) for s in seconds], pa.timestamp("us", "UTC"))
        tables.append(pa.table({"ts": times, "k": ["a"] * len(seconds), "i": [BIG] * len(seconds)}))
        pq.write_table(tables[-1], tmp_path / "in" / f"{number}.parquet")
        os.utime(tmp_path / "in" / f"{number}.parquet", (number + 1, number + 1))
    source = spark.readStream.schema("ts timestamp, k string, i bigint").option("maxFilesPerTrigger", 1)
    df = source.parquet(str(tmp_path / "in")).withWatermark("ts", "10 seconds")
    if not features.has_state():
        with pytest.raises(ValueError, match=r"^su\.stream needs PySpark 4\.0 or newer.* with su\.stream_into"):
            su.stream(df, frame)
        return
    emitted = []
    writer = su.stream(df, frame, late="drop(2h)", shards=2).writeStream
    writer = writer.foreachBatch(lambda batch, number: emitted.extend(collect_arrow(batch).to_pylist()))
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    query.awaitTermination(300)
    assert query.exception() is None
    results = engines.finish(engines.rollup(pa.concat_tables(tables), frame), frame).to_pylist()
    latest = {(row["level"], row["window_start"]): (row["n"], row["s"]) for row in emitted}
    expected = {(row["level"], row["window_start"]): (row["n"], row["s"]) for row in results}
    closed = {key: answer for key, answer in expected.items() if key[1] < start + dt.timedelta(hours=2)}
    assert latest == closed
    assert max(row["revision"] for row in emitted) == 1


def test_arrow_tables_are_exact(odd):
    answers = collect_arrow(odd)
    assert answers.column("i").to_pylist() == [BIG, None, BIG + 2, 3, None]
    assert repr(answers.column("x").to_pylist()) == repr([1.5, NAN, None, None, None])
    assert answers.schema.field("ts").type == pa.timestamp("us", "UTC")
    assert np.array_equal(answers.column("ts").is_null().to_numpy(), [False] * 4 + [True])


@pytest.mark.slow
def test_joins_of_rows_with_a_store(spark, tmp_path):
    frame = engines.TiltFrame(["1m", "1h"], "ts", {"n": aggr.count(), "s": aggr.sum("x")}, ["k"])
    data = pa.table({"ts": [0, 60_000, 3_600_000], "x": [1.5, 2.5, 4.0], "k": ["a", "a", "b"]})
    store = FrameStore(tmp_path / "store", frame)
    store.append(engines.rollup(data, frame), "w", 1)
    rows = spark.createDataFrame([("a", 0, 3_600_000), ("b", 0, 3_600_000)], "k string, lo bigint, hi bigint")
    joined = su.join(rows, store, on="k = k", within=("lo", "hi"), per="1h")
    assert [(row["k"], row["n"], row["s"]) for row in joined.orderBy("k").collect()] == [
        ("a", 2, 4.0),
        ("b", None, None),
    ]


@pytest.mark.long
@pytest.mark.slow
def test_arriving_files_are_read_by_tasks(spark, rows, tmp_path):
    table, _ = rows
    (tmp_path / "in").mkdir()
    pq.write_table(table, tmp_path / "in" / "1.parquet")
    arriving = su.scan_parquet_stream(spark, str(tmp_path / "in"))
    store = FrameStore(tmp_path / "store", engines.STORE_FRAME)
    query = su.stream_into(arriving, store, name="q", checkpoint=str(tmp_path / "c"), trigger="available_now")
    query.awaitTermination(120)
    other = FrameStore(tmp_path / "local", engines.STORE_FRAME)
    other.append(engines.rollup(table, engines.STORE_FRAME), "w", 1)
    assert engines.digests_of_store(store) == engines.digests_of_store(other)


ALWAYS = "on all versions"
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "clusters.md"
# Each row of the page's table by the names in its first cell, or by its text: what decides about its cells, and tests.
TESTS = {
    "rollup finish aggregate merge group_by scan_parquet scan ordered_rollup running warm": (
        ALWAYS,
        test_rollup_of_four_levels_has_the_same_bits,
        test_files_aggregate_and_merge,
        test_group_by_and_agg_keep_null_nan_and_big_numbers,
        test_plain_scans_backfills_and_warming,
        test_running_windows,
    ),
    "group_by su.sql": (
        ALWAYS,
        test_group_by_has_totals_next_to_aggregates_of_spark,
        test_sql_over_lists_next_to_aggregates_of_spark,
    ),
    "agg over su.states.quantile": (
        ALWAYS,
        test_group_by_and_agg_keep_null_nan_and_big_numbers,
        test_agg_gives_records_times_and_weights,
        test_over_windows,
        test_accessors_and_set_operations,
    ),
    "SQL: functions of a column without nulls and NaN": (ALWAYS, test_sql_keeps_null_nan_and_big_numbers),
    "SQL: functions of a column with nulls or NaN": (
        features.has_arrow_udf,
        test_sql_keeps_null_nan_and_big_numbers,
        test_sql_never_confuses_null_with_nan,
    ),
    "aggr_dds": (
        features.has_arrow_udf,
        test_sql_states_merges_and_records,
        test_sql_never_confuses_null_with_nan,
    ),
    "SQL: states": (features.has_arrow_udf, test_sql_states_have_the_type_of_the_table),
    "groups": (features.has_iterating_aggregate, test_large_groups_or_a_refusal),
    "rollup_into append replace retract backfill read read_states join": (
        ALWAYS,
        test_a_store_is_written_and_read,
        test_plain_scans_backfills_and_warming,
        test_stores_are_corrected,
        test_joins_of_rows_with_a_store,
    ),
    "spark.read.format": (features.has_data_source, test_the_data_source),
    "stream_into scan_parquet_stream": (ALWAYS, test_streams_into_a_store, test_arriving_files_are_read_by_tasks),
    "stream": (features.has_state, test_streams_of_windows),
}


def rows_of_the_table():
    """Return the cells of each row of the page's table by its names, and the versions of the columns."""
    section = PAGE.read_text().partition("## Versions of Spark")[2].partition("\n## ")[0]
    lines = section.splitlines()
    heads, _, *body = [line.strip("| ").split(" | ") for line in lines if line.startswith("|")]
    named = {}
    for first, *cells in body:
        names = [re.match(r"[\w.]+", name)[0] for name in re.findall(r"`([^`]+)`", first)]
        named[" ".join(dict.fromkeys(names)) or first] = cells
    return named, heads


def test_each_row_of_the_table_has_tests_that_call_it():
    named, _ = rows_of_the_table()
    assert list(named) == list(TESTS)
    for row, (_, *tests) in TESTS.items():
        source = "".join(map(inspect.getsource, tests))
        for name in row.split() if ":" not in row else ():
            assert re.search(rf"\b{re.escape(name)}\b", source), f"no test of the row calls {name}"


def test_each_cell_of_the_table_is_what_this_version_does():
    """Each test above asserts the feature, or its refusal, by the same function of `features`."""
    named, heads = rows_of_the_table()
    here = tuple(map(int, version("pyspark").split(".")[:2]))
    columns = [tuple(map(int, head.split()[0].split("."))) for head in heads]
    (place,) = [at for at, oldest in enumerate(columns) if oldest <= here][-1:]
    for row, (decides, *_) in TESTS.items():
        cell = named[row][place]
        has = decides is ALWAYS or decides()
        assert has == (cell in ("yes", "structs")), f"{row}: the table says {cell}"
