"""Spark and frame stores: jobs write the states of a local rollup, and tables have the results of queries."""

from __future__ import annotations

import pickle
import subprocess
import sys
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import aggr
import spark_udaf as su
from aggr.arrow.bit_equality import same_bits
from aggr.arrow.normalize import one_array
from spark_udaf.plan.errors import unwrapped_task_errors
from spark_udaf.store.data_source import TiltframeReader, TiltframeSource
from spark_udaf.store.options import from_options, to_options
from tests import engines
from tests.engines import STORE_FRAME, digests_of_store
from tiltframe import FrameStore, Query, StoreError, TiltFrame, rollup
from tiltframe.store import CommitConflict, Expired
from tiltframe.store.backends.stored_types import stored
from tiltframe.store.closed_windows import ClosedWindows

pytestmark = pytest.mark.store


@pytest.fixture(scope="module")
def rows():
    return engines.rows(6000)


@pytest.fixture(scope="module")
def local(rows, tmp_path_factory):
    """The store as local code fills it, in two commits."""
    store = FrameStore(tmp_path_factory.mktemp("local"), STORE_FRAME)
    store.append(rollup(rows.slice(0, 4000), STORE_FRAME), "w", 1)
    store.append(rollup(rows.slice(4000), STORE_FRAME), "w", 2)
    return store


@pytest.fixture(scope="module")
def local_digests(local):
    return digests_of_store(local)


@pytest.mark.long
@pytest.mark.spark
def test_expired_ranges_are_warned_of_as_a_query_warns(spark, tmp_path):
    frame = TiltFrame(["1h", "1d"], "ts", {"n": aggr.count()})
    store = FrameStore(tmp_path / "s", frame, retention={"1h": "3d"})
    store.append_rows(pa.table({"ts": [hour * 3_600_000 for hour in range(240)]}), "w", 1)
    store.expire(now="1970-01-11T00:00:00Z")
    for query in ({"per": "1h", "within": ("1970-01-01", "1970-01-03")}, {"per": "5h"}):
        with pytest.warns(Expired, match="1h has windows only from 1970-01-08") as by_spark:
            result = su.read(spark, store.uri, **query).sort("window_start").toPandas()
        with pytest.warns(Expired) as by_query:
            expected = store.query(**query).to_pandas()
        assert [str(warning.message) for warning in by_spark] == [str(warning.message) for warning in by_query]
        assert by_spark[0].filename == __file__
        assert result[["n", "partial"]].to_dict("list") == expected[["n", "partial"]].to_dict("list")
    assert result["partial"].tolist()[:2] == [True, False]  # its first window begins before the third day
    with pytest.warns(Expired):
        su.read_states(spark, store.uri, per="1h")


WARNING = """
import sys
from tests import engines
with engines.session("classic") as spark:
    for warn in ("false", "true"):
        print("warn", warn, file=sys.stderr, flush=True)
        read = spark.read.format("tiltframe").option("per", "1h").option("warn", warn).load(sys.argv[1])
        assert read.count() == 72
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
def test_the_format_warns_of_expired_ranges_on_standard_error(tmp_path):
    """The JVM of a process of its own, whose standard error can be read."""
    frame = TiltFrame(["1h", "1d"], "ts", {"n": aggr.count()})
    store = FrameStore(tmp_path / "s", frame, retention={"1h": "3d"})
    store.append_rows(pa.table({"ts": [hour * 3_600_000 for hour in range(240)]}), "w", 1)
    store.expire(now="1970-01-11T00:00:00Z")
    command = [sys.executable, "-c", WARNING, store.uri]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr[-2000:]
    without, _, with_warning = completed.stderr.partition("warn true")
    assert "1h has windows only from" not in without
    assert "Expired: 1h has windows only from 1970-01-08" in with_warning


@pytest.mark.long
@pytest.mark.spark
def test_jobs_replace_and_retract_as_local_code_does(spark, tmp_path):
    frame = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count(), "s": aggr.sum("x")}, ["k"])
    data = pa.table(
        {"ts": [at * 60_000 for at in range(240)], "x": [at % 9 + 0.1 for at in range(240)], "k": ["a", "b"] * 120}
    )
    stores = [FrameStore(tmp_path / name, frame) for name in ("spark", "local")]
    for store in stores:
        store.append(rollup(data, frame), "w", 1)
    within = ("1970-01-01T01:00Z", "1970-01-01T02:00Z")
    new, removed = rollup(data.slice(70, 20), frame), rollup(data.slice(150, 60), frame)
    su.replace(spark.createDataFrame(new).repartition(3), stores[0], within, recorded={"day": 1})
    stores[1].replace(new, within)
    assert stores[0].recorded(["day"]) == {"day": 1}
    assert su.retract(spark.createDataFrame(removed).repartition(3), stores[0], "eraser", 1)
    assert not su.retract(spark.createDataFrame(removed), stores[0], "eraser", 1)
    assert stores[1].retract(removed, "eraser", 1)
    for per in ("1m", "1h"):
        actual, expected = (store.query(per, order_by=["window_start", "k"]) for store in stores)
        assert actual == expected
    with pytest.raises(ValueError, match="outside the range"):
        su.replace(spark.createDataFrame(removed), stores[0], within)
    assert stores[0].verify().problems == ()


@pytest.mark.spark
@pytest.mark.long
def test_jobs_write_what_local_code_would(spark, rows, local_digests, tmp_path):
    df = spark.createDataFrame(rows).repartition(3)
    store = FrameStore(tmp_path / "s", STORE_FRAME)
    assert su.rollup_into(df.limit(0), store, "nothing", 7)
    assert store.last_commit("nothing") == 7
    assert su.rollup_into(df, store, "w", 1, {"file": 1})
    assert digests_of_store(store) == local_digests
    assert store.recorded(["file"]) == {"file": 1}
    finer = FrameStore(tmp_path / "finer", STORE_FRAME)
    pq.write_table(rollup(rows, STORE_FRAME), tmp_path / "states.parquet")
    scan = su.scan_parquet(spark, str(tmp_path / "states.parquet"), filters=[("level", "=", "1m")])
    assert su.append(scan, finer, "w", 1)  # what is coarser is made of it
    assert digests_of_store(finer) == local_digests
    with pytest.raises(StoreError, match="recorded values differ from those that this commit expects"):
        store.append(rollup(rows, STORE_FRAME), "v", 1, {"file": 1})
    assert digests_of_store(store) == local_digests


@pytest.mark.spark
@pytest.mark.long
def test_a_commit_that_is_there_is_compared_and_nothing_is_written(spark, rows, local_digests, tmp_path):
    store = FrameStore(tmp_path / "s", STORE_FRAME)
    states = rollup(rows, STORE_FRAME)
    transaction = pickle.loads(pickle.dumps(store.begin("w", 5, states.schema)))
    assert transaction.commit([transaction.write(states)])
    df = spark.createDataFrame(rows)
    files = set((tmp_path / "s").rglob("*.parquet"))
    assert su.rollup_into(df.repartition(3), store, "w", 5) is False
    assert su.append(su.rollup(df, STORE_FRAME), store, "w", 5) is False
    with pytest.raises(CommitConflict, match="already contains other states for the writer 'w' and the number 5"):
        su.rollup_into(df.limit(5000), store, "w", 5)
    with pytest.raises(CommitConflict, match="already contains other states for the writer 'w' and the number 5"):
        su.append(su.rollup(df.limit(5000), STORE_FRAME), store, "w", 5)
    with pytest.raises(CommitConflict, match="the number 4 with these states is not among its last 64"):
        su.rollup_into(df, store, "w", 4)
    assert set((tmp_path / "s").rglob("*.parquet")) == files
    assert store.append(states, "w", 5) is False
    assert digests_of_store(store) == local_digests
    assert store.manifest.schema.names == ["window_start", "host", "shelf", *STORE_FRAME.measures]


@pytest.mark.spark
@pytest.mark.long
def test_states_of_another_frame_are_refused_wherever_they_come_from(spark, rows, tmp_path):
    """A DataFrame's columns say what frame states are of, also after select, filter, union and Parquet."""
    df = spark.createDataFrame(rows.slice(0, 300))
    store = FrameStore(tmp_path / "s", STORE_FRAME)
    changed = {**STORE_FRAME.measures, "rows": aggr.count(where="i > 5")}
    other = TiltFrame(
        [level.name for level in STORE_FRAME.levels], "ts", changed, STORE_FRAME.keys, STORE_FRAME.timezone
    )
    states = su.rollup(df, other)
    states.write.parquet(str(tmp_path / "parquet"))
    pq.write_table(rollup(rows.slice(0, 300), other), tmp_path / "local.parquet")
    for travelled in (
        states,
        states.filter("level = '1m'").select("*"),
        states.unionByName(states),
        spark.read.parquet(str(tmp_path / "parquet")),
        su.scan_parquet(spark, str(tmp_path / "local.parquet")),
    ):
        with pytest.raises(
            ValueError, match=r"'rows' is count\(\) in the frame and count\(where='i > 5'\) in the states"
        ):
            su.append(travelled, store, "w", 1)
    with pytest.raises(ValueError, match=r"not states of this frame: 'rows' is count\(\) in the frame"):
        su.finish(states, STORE_FRAME)
    own_states = su.rollup(df, STORE_FRAME)
    for damaged, message in (
        (own_states.withColumn("level", F.lit("2h")), "the frame has no level '2h'"),
        (
            own_states.withColumn("window_start", F.col("window_start") + F.expr("interval 1 second")),
            "no window of 1m in Ame",
        ),
        (
            own_states.filter("level <> '1m' OR window_start < '2013-11-03'"),
            "differ from the merged states of 1m|are missing",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            su.append(damaged, store, "w", 1)
    assert store.last_commit("w") is None
    assert su.append(own_states.unionByName(own_states), store, "w", 1)
    assert store.append(pa.concat_tables([rollup(rows.slice(0, 300), STORE_FRAME)] * 2), "w", 1) is False


@pytest.mark.long
@pytest.mark.spark
def test_a_job_does_not_commit_what_cannot_be_read(spark, tmp_path):
    frame = TiltFrame(["1m", "1h"], "ts", {"s": aggr.sum("x")}, ["k"])
    df = spark.createDataFrame([(0, 2**62, "a"), (61_000, 2**62, "a"), (0, 1, "b")], "ts long, x long, k string")
    store = FrameStore(tmp_path / "s", frame)
    for write, data in ((su.rollup_into, df), (su.append, su.rollup(df, frame))):
        with pytest.raises(OverflowError, match=rf"level='1h', .* k='a': the sum {2**63} does not fit into int64"):
            write(data, store, "w", 1)
    assert store.last_commit("w") is None


@pytest.mark.spark
def test_what_cannot_be_written_is_refused_before_a_job(spark, rows, local, tmp_path):
    df = spark.createDataFrame(rows.slice(0, 5))
    states = su.rollup(df, STORE_FRAME)
    with pytest.raises(TypeError, match=r"expected a store, such as tiltframe\.FrameStore"):
        su.append(states, str(tmp_path), "w", 1)
    with pytest.raises(ValueError, match="does not begin with 'tiltframe:'"):
        su.append(states, local, "tiltframe:expired", 1)
    with pytest.raises(ValueError, match="a commit number, which grows with every commit, must be a whole number"):
        su.rollup_into(df, local, "w", -1)
    with pytest.raises(ValueError, match="not states of this frame"):
        su.append(df, local, "v", 1)
    with pytest.raises(TypeError, match="expected a Spark DataFrame"):
        su.append(rollup(rows, STORE_FRAME), local, "v", 1)
    with pytest.raises(ValueError, match="no column 'price'"):
        su.rollup_into(df.drop("price"), local, "v", 1)
    with pytest.raises(StoreError, match=r"contains states of decimal.* in 'money'; got states of double"):
        su.rollup_into(df.withColumn("price", df.price.cast("double")), local, "v", 1)
    assert local.last_commit("v") is None


@pytest.mark.spark
@pytest.mark.long
def test_what_fails_in_a_task_is_one_sentence(spark, rows, tmp_path):
    df = spark.createDataFrame(rows.slice(0, 50))
    store = FrameStore(tmp_path / "s", STORE_FRAME)
    store.ensure_created(rollup(rows, STORE_FRAME).schema)
    (tmp_path / "s" / "tiltframe" / "level=1h").touch()
    with pytest.raises(StoreError, match=r"the store .* cannot be read or written: .*level=1h") as caught:
        su.rollup_into(df, store, "w", 1)
    assert len(str(caught.value).splitlines()) == 1
    (tmp_path / "s" / "tiltframe" / "level=1h").unlink()
    assert store.last_commit("w") is None
    hdr = TiltFrame(["1h"], "ts", {"p": aggr.hdr("i", digits=2)})
    with pytest.raises(ValueError, match=r"^hdr\('i', digits=2\): hdr accepts only numbers of at least 0"):
        su.rollup_into(df.selectExpr("ts", "-abs(i) - 1 AS i"), FrameStore(tmp_path / "hdr", hdr), "w", 1)


def reader(store: FrameStore, per: str | None, rows_per_task: int = 100, **query_options) -> TiltframeReader:
    options = to_options(store.uri, Query(per, **query_options), None, rows_per_task=rows_per_task)
    query, rows = from_options(options)
    return TiltframeReader(query, query.schema, rows)


def answered(table_reader: TiltframeReader) -> pa.Table:
    batches = [batch for partition in table_reader.partitions() for batch in table_reader.read(partition)]
    return pa.Table.from_batches(batches, table_reader.schema)


def in_utc(table: pa.Table) -> pa.Table:
    """Show the same instants as Spark's DataFrames do."""
    fields = [pa.field(f.name, pa.timestamp("us", "UTC")) if pa.types.is_timestamp(f.type) else f for f in table.schema]
    return table.cast(pa.schema(fields))


def as_stored(table: pa.Table) -> pa.Table:
    """Convert a table to the types in which Spark receives results."""
    return pa.table([stored(one_array(column)) for column in table.columns], names=table.column_names)


def same(actual: pa.Table, expected: pa.Table) -> bool:
    return actual.schema == expected.schema and all(same_bits(actual[c], expected[c]) for c in expected.column_names)


HOURS = "2013-11-03,2013-11-03T18:00"
QUESTIONS = {
    "level": {"per": "1h"},
    "finest": {"per": "1m"},
    "within": {"per": "1m", "within": HOURS},
    "between levels": {"per": "6h"},
    "coarser than a bucket": {"per": "1y"},
    "hopping": {"per": "hopping(2h, 30m)"},
    "hopping within": {"per": "hopping(2h, 30m)", "within": HOURS},
    "where": {"per": "1h", "where": "host = 'a' OR shelf IS NULL"},
    "keys": {"per": "1h", "keys": ["host"]},
    "no keys": {"per": "1h", "keys": []},
    "all": {"per": "all"},
    "all within": {"per": "all", "within": HOURS},
    "filled": {"per": "1h", "fill": True, "keys": ["host"]},
    "measures": {"per": "1h", "measures": ["rows"]},
    "new measures": {"per": "1h", "measures": {"q": aggr.dds("x", [0.25]), "n": aggr.count()}},
    "another zone": {"per": "1d", "timezone": "Asia/Kathmandu"},
    "another zone within": {"per": "1h", "timezone": "Europe/Berlin", "within": HOURS},
    "points": {"per": None, "points": 40},
    "points within": {"per": None, "points": 40, "within": HOURS, "keys": []},
}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_slices_together_are_the_query(question, local):
    table_reader = reader(local, **question, now="2013-11-04T12:00Z")
    assert same(answered(table_reader), as_stored(local.query(**question, now="2013-11-04T12:00Z")))


def test_slices_are_whole_buckets_of_about_so_many_rows(local):
    minutes = reader(local, "1m")
    slices = [partition.time_range for partition in minutes.partitions()]
    assert len(slices) == 4  # buckets of a day in UTC; New York's three days touch four
    assert all(low % 86_400_000_000 == 0 for low, _ in slices[1:])
    assert all(a[1] == b[0] for a, b in pairwise(slices))
    assert [len(reader(local, "1m", rows).partitions()) for rows in (4000, 100_000)] == [2, 1]
    assert len(reader(local, "1d").partitions()) == 1
    assert len(reader(local, "1m", within=HOURS).partitions()) == 1
    assert len(reader(local, "all").partitions()) == len(reader(local, "1m", fill=True).partitions()) == 1


@pytest.mark.long
def test_windows_outside_of_what_was_planned_are_read_too(rows, tmp_path):
    """Spark plans a view once."""
    store = FrameStore(tmp_path / "s", STORE_FRAME)
    store.ensure_created(STORE_FRAME.states_schema(rows.schema))
    empty, partitions = reader(store, "1h"), reader(store, "1h").partitions()
    assert list(empty.read(partitions[0])) == []
    store.append(rollup(rows, STORE_FRAME), "w", 1)
    assert same(pa.Table.from_batches(empty.read(partitions[0])), as_stored(store.query("1h")))
    planned, hopping = reader(store, "1h"), reader(store, "hopping(2h, 30m)")
    before = [(table_reader, table_reader.partitions()) for table_reader in (planned, hopping)]
    for days in (-400, 400):
        times = pc.add(rows["ts"], pa.scalar(days * 86_400_000_000, pa.duration("us")))
        store.append(rollup(rows.set_column(0, "ts", times), STORE_FRAME), "w", 500 + days)
    for table_reader, partitions in before:
        result = pa.Table.from_batches(
            [batch for p in partitions for batch in table_reader.read(p)], table_reader.schema
        )
        assert same(result, as_stored(store.query(table_reader.query.plan.window)))


def test_types_that_spark_lacks_are_as_the_store_keeps_them(tmp_path):
    frame = TiltFrame(["1h"], "ts", {"most": aggr.max("u"), "late": aggr.max("t")}, ["k"])
    data = pa.table(
        {
            "ts": [0, 1],
            "k": pa.array([2**64 - 1, None], pa.uint64()),
            "u": pa.array([1, 200], pa.uint8()),
            "t": pa.array([1, 2], pa.time64("us")),
        }
    )
    store = FrameStore(tmp_path / "s", frame)
    store.append(rollup(data, frame), "w", 1)
    options = to_options(store.uri, Query("1h"), None)
    source = TiltframeSource(options)
    schema = source.schema()
    assert [field.dataType.simpleString() for field in schema][3:6] == ["decimal(20,0)", "smallint", "bigint"]
    from pyspark.sql.pandas.types import to_arrow_schema

    table_reader = source.reader(schema)
    assert table_reader.schema == to_arrow_schema(schema, timezone="UTC")
    assert answered(table_reader).column("k").to_pylist() == [2**64 - 1, None]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {},
            "the option per is missing; set it to the window of the results: 1m, 1h, 1d, a whole multiple",
        ),
        ({"per": "1h", "limit": "3"}, "unknown option 'limit'; the options are path, per, within, where, keys"),
        ({"per": "1s"}, "1s does not consist of whole windows of a level"),
        ({"per": "1h", "fill": "maybe"}, "fill must be True or False, or one of"),
        ({"per": "1h", "keys": '["host"'}, "as JSON"),
        ({"per": "1h", "rows_per_task": "0"}, "rows_per_task must be a whole number of at least 1"),
        ({"per": "1h", "name": "other"}, "is called 'frame', not 'other'"),
    ],
)
def test_options_that_cannot_be_are_refused(options, message, local):
    with pytest.raises(ValueError, match=message):
        from_options({"path": local.uri, **options})


def test_a_store_is_found_by_its_whole_path_wherever_a_task_runs(local, tmp_path, monkeypatch):
    import pickle

    monkeypatch.chdir(tmp_path)
    store = FrameStore("here", STORE_FRAME)
    assert pickle.loads(pickle.dumps(store)).uri == str(tmp_path / "here")
    assert pickle.loads(pickle.dumps(store.backend)).uri == str(tmp_path / "here")
    assert to_options("here", Query(), {"REGION": "eu"})["path"] == str(tmp_path / "here")
    assert to_options("s3://b/p", Query(), {"REGION": "eu"}) == {"path": "s3://b/p", "storage.REGION": "eu"}


def test_new_measures_of_several_inputs_are_options(local):
    measures = {name: STORE_FRAME.measures[name] for name in ("peak", "mean", "first")}
    options = to_options(local.uri, Query("1h", measures=measures), None)
    assert from_options(options)[0].plan.measures == {name: (name, measure) for name, measure in measures.items()}
    with pytest.raises(ValueError, match="the description of arg_max cannot have the key 'weight'; there are function"):
        from_options(options | {"measures": '{"q": {"function": "arg_max", "column": "word", "weight": "i"}}'})


@pytest.mark.spark
def test_windows_that_a_stream_keeps_open_are_left_out(spark, tmp_path):
    store = FrameStore(tmp_path, TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}))
    stream = ClosedWindows(store, "docs")
    stream.add_rows(pa.table({"ts": [0, 60_000, 3_600_000]}))
    stream.advance(3_660_000_000)
    assert stream.commit()
    starts = [row.window_start.timestamp() for row in su.read(spark, store.uri, "1h", closed=True).collect()]
    assert starts == [0]
    assert su.read(spark, store.uri, "1h").count() == 2


@pytest.mark.spark
def test_a_store_is_a_table(spark, local):
    read = su.read(spark, local.uri, "1h", keys=["host"], measures=["rows", "d"], rows_per_task=1000)
    query = local.query("1h", keys=["host"], measures=["rows", "d"])
    assert same(read.toArrow(), in_utc(query))
    hosts = [read.where(f"host = '{host}'").count() for host in "abc"]  # one scan must not touch another
    assert hosts == [query.filter(pc.equal(query["host"], host)).num_rows for host in "abc"]
    assert read.count() == query.num_rows
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW days USING tiltframe OPTIONS (path '{local.uri}', per '1d', keys '')")
    result = [row[0] for row in spark.sql("SELECT rows FROM days ORDER BY window_start").collect()]
    assert result == local.query("1d", keys=[])["rows"].to_pylist()
    with pytest.raises(ValueError, match=r"^unknown option 'limit'"), unwrapped_task_errors():
        spark.read.format("tiltframe").option("LIMIT", "1").load(local.uri)
    with pytest.raises(StoreError, match=r"^there is no store /nowhere"):
        su.read(spark, "/nowhere", "1h")


@pytest.mark.spark
@pytest.mark.long
def test_tasks_write_into_postgresql_and_read_it(spark, rows, local_digests, postgres):
    store = FrameStore(postgres, STORE_FRAME, name="web")
    df = spark.createDataFrame(rows.select(STORE_FRAME.columns_in(rows.column_names))).repartition(3)
    assert su.rollup_into(df, store, "w", 1)
    assert not su.rollup_into(df, store, "w", 1)
    assert digests_of_store(FrameStore(postgres)) == local_digests
    read = su.read(spark, postgres, per="1d", keys=[]).toArrow().sort_by("window_start")
    assert same(read, in_utc(store.query("1d", keys=[])))
