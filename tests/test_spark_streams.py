"""A stream into a store: a micro-batch is a commit, and one that is run again counts once."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

from tests import engines
from tests.engines import KEPT, kept
from tiltframe import FrameStore, rollup

pytestmark = pytest.mark.spark

FILES, ROWS = 4, 500
FAILS_AT = 2


def test_a_batch_that_is_run_again_counts_once(spark, tmp_path):
    """The process dies between the store's commit and the stream's: Spark runs the same batch again, by its number."""
    import spark_udaf as su

    rows = engines.rows(FILES * ROWS)
    folder, checkpoint = tmp_path / "rows", str(tmp_path / "checkpoint")
    folder.mkdir()
    for at in range(FILES):
        pq.write_table(rows.slice(at * ROWS, ROWS), folder / f"{at}.parquet")
    store = FrameStore(tmp_path / "store", KEPT)
    added: list[tuple[int, bool]] = []

    def into(batch, number: int) -> None:
        added.append((number, su.rollup_into(batch, store, "hosts", number)))
        if len(added) == FAILS_AT + 1:
            raise OSError("the power went out")

    def run() -> None:
        stream = spark.readStream.schema(spark.read.parquet(str(folder)).schema).option("maxFilesPerTrigger", 1)
        writer = stream.parquet(str(folder)).writeStream.option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).foreachBatch(into).start().awaitTermination()

    with pytest.raises(StreamingQueryException, match="the power went out"):
        run()
    run()
    assert added == [(0, True), (1, True), (2, True), (2, False), (3, True)]
    assert store.numbers(["hosts"]) == {"hosts": FILES - 1}
    whole = FrameStore(tmp_path / "whole", KEPT)
    whole.append(rollup(rows, KEPT), "once", 0)
    assert kept(store) == kept(whole)
