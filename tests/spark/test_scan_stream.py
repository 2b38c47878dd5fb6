"""su.scan_parquet_stream: its tasks read new files, and give the rows of Spark's own reader."""

from __future__ import annotations

import datetime as dt
import os
import warnings
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as fs
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aggr
from aggr.arrow.bit_equality import same_bits
from spark_udaf.streaming.scan_stream import ArrivingFiles, _locate_folder, share_of
from tiltframe import FrameStore, TiltFrame, rollup

FRAME = TiltFrame(
    ["10s", "1m"], "ts", {"n": aggr.count(), "x": aggr.sum("x"), "d": aggr.dds("x", [0.5])}, ["host", "shelf"]
)
BEGIN = 1_714_543_200_000_000
ONE_FILE = {"maxFilesPerTrigger": "1"}


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.lists(st.integers(1, 1000), min_size=1, max_size=9)), max_size=9),
    st.integers(1, 9),
)
def test_every_row_group_is_in_one_share(files, shares):
    lengths, groups = [length for length, _ in files], [sizes for _, sizes in files]
    result = [
        (at, group)
        for share in range(shares)
        for at, chosen in share_of(lengths, groups.__getitem__, share, shares)
        for group in (range(len(groups[at])) if chosen is None else chosen)
    ]
    assert sorted(result) == [(at, group) for at, sizes in enumerate(groups) for group in range(len(sizes))]


@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 8))
def test_shares_are_even(files, groups, shares):
    """No share has more than its part of the row groups, and one at each of its ends."""
    every = [share_of([10**6] * files, lambda at: [1] * groups, share, shares) for share in range(shares)]
    sizes = [sum(groups if chosen is None else len(chosen) for _, chosen in share) for share in every]
    assert max(sizes) <= files * groups / shares + 1


def arriving(folder: Path, files: int = 4, rows: int = 400) -> pa.Table:
    """Let files arrive in folders by shelf, each in row groups, later ones in order; some rows are late."""
    rng = np.random.default_rng(files)
    tables = []
    for number in range(files):
        seconds = number * 20 + rng.exponential(8, rows) * rng.choice([1, -1, -4], rows, p=[0.8, 0.1, 0.1])
        table = pa.table(
            {
                "ts": pa.array(BEGIN + (seconds * 1e6).astype(np.int64)).cast(pa.timestamp("us", "UTC")),
                "host": rng.choice(["a", "b", "c"], rows),
                "x": rng.lognormal(0, 1, rows),
                "other": [[1]] * rows,
            }
        )
        shelf = folder / f"shelf={number % 2}"
        shelf.mkdir(parents=True, exist_ok=True)
        path = shelf / f"{number}.parquet"
        pq.write_table(table, path, row_group_size=90)
        os.utime(path, (number + 1, number + 1))
        tables.append(table.append_column("shelf", pa.array([number % 2] * rows, pa.int32())))
    return pa.concat_tables(tables)


def emitted_of(emitted, checkpoint: Path) -> dict[int, list[tuple]]:
    """Run a query over what is there; list what each batch emitted."""
    batches: dict[int, list[tuple]] = {}

    def take(batch, number: int) -> None:
        rows = [tuple(row) for row in batch.collect()]
        batches[number] = sorted(rows, key=repr)

    writer = emitted.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(take)
    writer.trigger(availableNow=True).start().awaitTermination()
    return batches


SCHEMA = "ts timestamp, host string, x double, other array<bigint>, shelf int"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("late", ["drop", "true_window", "drop(10s)"])
@pytest.mark.long
def test_files_give_what_a_dataframe_of_them_gives(spark, tmp_path, late):
    """Batch by batch: the same windows close by the same watermark, with the same bits and the same late rows."""
    import spark_udaf as su

    folder = tmp_path / "a b%20=c"  # a path that no one may decode
    arriving(folder)
    df = spark.readStream.schema(SCHEMA).options(**ONE_FILE).parquet(str(folder)).withWatermark("ts", "5 seconds")
    scan = su.scan_parquet_stream(spark, folder, watermark="5s", options=ONE_FILE)
    assert "ParquetStream(" in repr(scan)
    assert scan.schema.names == ["ts", "host", "x", "other", "shelf"], "names above the folder are no columns"
    emitted = [
        emitted_of(su.stream(source, FRAME, late=late, dropped=True, shards=2), tmp_path / name)
        for name, source in (("df", df), ("scan", scan))
    ]
    assert emitted[0] == emitted[1]
    assert len(emitted[0]) >= 4
    reasons = {row[-3] for batch in emitted[0].values() for row in batch}
    assert reasons == {"close"} | {"drop": {"dropped"}, "true_window": {"late"}}.get(late, {"late", "dropped"})


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_the_watermark_of_dates_is_the_day_in_the_zone_of_the_windows(spark, tmp_path, zone):
    """A day closes with the first date after it, and not with a date of its own, west of UTC as well."""
    import spark_udaf as su

    folder = tmp_path / "in"
    folder.mkdir()
    days = [dt.date(2024, 10, day) for day in (1, 2, 4)]
    for number, day in enumerate(days):
        pq.write_table(pa.table({"d": [day]}), folder / f"{number}.parquet")
        os.utime(folder / f"{number}.parquet", (number + 1, number + 1))
    scan = su.scan_parquet_stream(spark, folder, watermark="0s", options=ONE_FILE)
    frame = TiltFrame(["6h"], "d", {"n": aggr.count()}, timezone=zone)
    emitted = su.stream(scan, frame, shards=1)
    batches = emitted_of(emitted.select("window_start", "reason"), tmp_path / "checkpoint")
    starts = [[row[0].astimezone(ZoneInfo(zone)).replace(tzinfo=None) for row in batch] for batch in batches.values()]
    closed = [start for batch in starts for start in batch]
    assert closed == [dt.datetime(day.year, day.month, day.day) for day in days[:2]]


@pytest.mark.spark
def test_only_paths_pass_through_the_jvm(spark, tmp_path):
    """Spark reads nothing of the files but their names and lengths."""
    import spark_udaf as su

    arriving(tmp_path / "in")
    query = su.scan_parquet_stream(spark, tmp_path / "in").paths().writeStream.format("noop").trigger(availableNow=True)
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    query.awaitTermination()
    plan = query._jsq.explainInternal(True)
    assert "ReadSchema: struct<path:string,length:bigint>" in plan


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
def test_what_is_there_once_the_windows_have_closed_is_the_rollup(spark, tmp_path):
    """Filters by folder and by value, columns that come late, texts and files that are not ours next to them."""
    import spark_udaf as su

    folder = tmp_path / "in"
    rows = arriving(folder, 3)
    (folder / "_SUCCESS").write_text("")
    (folder / "shelf=0" / ".hidden.parquet").write_text("not a file yet")
    scan = su.scan_parquet_stream(spark, folder, filters=[("shelf", "=", 1), ("host", "in", ["a", "b"])], tasks=3)
    emitted = su.stream(scan, FRAME, emit="on_update", late="true_window", states=True, shards=1)
    writer = emitted.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    tables: list[pa.Table] = []
    writer = writer.foreachBatch(lambda batch, _: tables.append(batch.toArrow()))
    writer.trigger(availableNow=True).start().awaitTermination()
    chosen_rows = rows.filter((ds.field("shelf") == 1) & ds.field("host").isin(["a", "b"])).drop_columns(["other"])
    expected = rollup(chosen_rows, FRAME).sort_by([(n, "ascending") for n in ("level", "window_start", "host")])
    result = pa.concat_tables(tables).sort_by([(n, "ascending") for n in ("level", "window_start", "host")])
    assert result.num_rows == expected.num_rows
    assert all(same_bits(result[name], expected[name].cast(result[name].type)) for name in ("n", "x", "d"))


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.slow
def test_a_store_has_each_file_once_over_restarts(spark, tmp_path):
    import spark_udaf as su

    folder = tmp_path / "in"
    first = arriving(folder, 2)
    store = FrameStore(tmp_path / "store", FRAME)

    def run() -> None:
        scan = su.scan_parquet_stream(spark, folder, options=ONE_FILE)
        query = su.stream_into(scan, store, name="s", checkpoint=tmp_path / "checkpoint", trigger="available_now")
        query.awaitTermination()

    run()
    assert sum(store.query("1m").column("n").to_pylist()) == len(first)
    pq.write_table(
        pa.table({"ts": [BEGIN], "host": ["a"]}).cast(
            pa.schema([("ts", pa.timestamp("us", "UTC")), ("host", pa.string())])
        ),
        folder / "shelf=1" / "narrow.parquet",
    )  # without a column that the others have
    run()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run()
    more = pa.table(
        {"ts": pa.array([BEGIN]).cast(pa.timestamp("us", "UTC")), "host": ["a"], "shelf": pa.array([1], pa.int32())}
    )
    rows = pa.concat_tables([first.drop_columns(["other"]), more], promote_options="default")
    expected = rollup(rows, FRAME)
    result = store.states("1m").sort_by([("window_start", "ascending"), ("host", "ascending"), ("shelf", "ascending")])
    expected = expected.filter(ds.field("level") == "1m").sort_by(
        [("window_start", "ascending"), ("host", "ascending"), ("shelf", "ascending")]
    )
    assert all(same_bits(result[name], expected[name].cast(result[name].type)) for name in ("n", "x", "d"))


def test_files_of_an_object_store_are_found_by_the_name_of_the_bucket(tmp_path):
    """Spark calls a folder s3a://bucket/in, and pyarrow bucket/in; here a folder stands for the store."""
    (tmp_path / "bucket" / "in").mkdir(parents=True)
    store = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    for path in ("s3://bucket/in", "s3a://bucket/in/"):
        folder, folder_path, _ = _locate_folder(path, store)
        arriving = ArrivingFiles(
            folder=folder,
            folder_path=folder_path,
            filesystem=store,
            schema=pa.schema([]),
            filters=None,
            partitioning="hive",
        )
        assert folder.rstrip("/") == "s3a://bucket/in"
        assert arriving.path_of("s3a://bucket/in/shelf=1/a b%20.parquet") == "bucket/in/shelf=1/a b%20.parquet"
    with pytest.raises(FileNotFoundError, match="the folder s3://bucket/nowhere does not exist"):
        _locate_folder("s3://bucket/nowhere", store)


@pytest.mark.spark
def test_what_cannot_be_scanned_is_told_at_once(spark, tmp_path):
    import spark_udaf as su

    folder = tmp_path / "in"
    (tmp_path / "none").mkdir()
    arriving(folder)
    for arguments, error, message in [
        ({"folder": tmp_path / "nowhere"}, FileNotFoundError, "does not exist"),
        ({"folder": tmp_path / "none"}, ValueError, "the schema cannot be read, because .*; pass schema="),
        ({"folder": f"{folder}/*"}, ValueError, "folder must be one folder, without wildcards"),
        ({"folder": 3}, TypeError, "paths must be"),
        ({"watermark": "soon"}, ValueError, "watermark"),
        ({"filters": [("nope", "=", 1)]}, ValueError, "nope"),
        ({"schema": "ts timestamp"}, ValueError, "schema must be a pyarrow"),
        ({"partitioning": 3}, ValueError, "partitioning must be 'hive'"),
        ({"partitioning": ds.HivePartitioning.discover()}, ValueError, "cannot be sent to tasks"),
        ({"options": 3}, ValueError, "options must be a dict"),
        ({"tasks": 0}, ValueError, "tasks must be a whole number"),
    ]:
        with pytest.raises(error, match=message):
            su.scan_parquet_stream(spark, **{"folder": folder, **arguments})
    with pytest.raises(TypeError, match="expected a SparkSession"):
        su.scan_parquet_stream(3, folder)
    scan = su.scan_parquet_stream(spark, folder)
    with pytest.raises(ValueError, match="watermark='10s' to su"):
        su.stream(scan, FRAME)
    with pytest.raises(ValueError, match="'nothing'"):
        su.stream(scan, TiltFrame(["10s"], "ts", {"n": aggr.sum("nothing")}), emit="on_update")
