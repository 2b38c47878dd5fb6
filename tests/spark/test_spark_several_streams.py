"""Several streams in one query of Spark: chains and unions with separate commit numbers, and rows with wrong times."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pyarrow as pa
import pytest

import aggr
from tiltframe import TiltFrame

pytestmark = [pytest.mark.spark, pytest.mark.slow]

BEGIN = dt.datetime(2024, 5, 1, 6, tzinfo=dt.UTC)


def arrived(spark, folder: Path, *seconds: float):
    folder.mkdir()
    rows = [{"ts": (BEGIN + dt.timedelta(seconds=s)).isoformat(), "x": x} for x, s in enumerate(seconds, 1)]
    (folder / "1.json").write_text("\n".join(map(json.dumps, rows)))
    return spark.readStream.schema("ts timestamp, x int").json(str(folder)).withWatermark("ts", "0 seconds")


def run(emitted, folder: Path):
    rows = []
    writer = emitted.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
    query = writer.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
    query.awaitTermination()
    return rows, query


@pytest.mark.long
def test_streams_are_united_and_have_names(spark, tmp_path):
    import spark_udaf as su

    rows = arrived(spark, tmp_path / "in", 1, 2, 11)
    counts = TiltFrame(["10s"], "ts", {"v": aggr.count()})
    sums = TiltFrame(["10s"], "ts", {"v": aggr.sum("x")})
    both = su.stream(rows, counts, emit="on_update", name="counts").unionByName(
        su.stream(rows, sums, emit="on_update", name="sums")
    )
    results, query = run(both, tmp_path / "checkpoint")
    assert sorted(row.v for row in results) == [1, 2, 3, 3]
    assert (su.progress(query, name="counts").rows, su.progress(query, name="sums").emitted_rows) == (3, 2)
    with pytest.raises(ValueError, match="several streams, counts, sums"):
        su.progress(query)
    with pytest.raises(ValueError, match="no stream 'sum'; did you mean"):
        su.progress(query, name="sum")


@pytest.mark.long
def test_unnamed_streams_are_united(spark, tmp_path):
    import spark_udaf as su

    rows, frame = arrived(spark, tmp_path / "in", 1, 2, 11), TiltFrame(["10s"], "ts", {"n": aggr.count()})
    both = (
        su.stream(rows, frame, emit="on_update").select("n").union(su.stream(rows, frame, emit="on_update").select("n"))
    )
    results, _ = run(both, tmp_path / "checkpoint")
    assert sorted(row.n for row in results) == [1, 1, 2, 2]


def test_a_row_of_a_wrong_clock_fails_its_task():
    from spark_udaf.streaming.stream import _check_not_ahead

    frame = TiltFrame(["10s"], "ts", {"n": aggr.count()})
    now = dt.datetime.now(dt.UTC)
    batches = [pa.record_batch({"ts": [now]}), pa.record_batch({"ts": [now, now + dt.timedelta(hours=2)]})]
    assert list(_check_not_ahead(iter(batches), frame, "3h")) == batches
    assert list(_check_not_ahead(iter(batches), frame, "none")) == batches
    checked = _check_not_ahead(iter(batches), frame, "1h")
    assert next(checked) == batches[0]
    with pytest.raises(ValueError, match="ahead of the clock by more than ahead='1h'"):
        next(checked)
