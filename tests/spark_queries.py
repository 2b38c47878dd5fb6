"""Run a streaming query of Spark step by step: write rows to a folder, set the clock, and return the emitted rows."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

START = 1_000_000_000  # the clock when a query starts, in milliseconds since 1970; a multiple of all periods
MAX_SECONDS = 300  # the time limit for a batch


@dataclass
class SteppedQuery:
    """A streaming query whose batches and clock are controlled by a test.

    PySpark has no argument for the clock of a query. The query is therefore started by a call of the JVM, in the same
    way as by Spark's writer.

    Parameters
    ----------
    spark : SparkSession, classic
    folder : Path
    schema : the schema of the rows
    plan : a function that receives the streaming DataFrame of the rows, and returns the DataFrame to be emitted
    """

    spark: Any
    folder: Path
    schema: pa.Schema
    plan: Callable[[Any], Any]
    files: int = 0
    query: Any = None
    seen: int = 0
    sink: Any = field(init=False)
    clock: Any = field(init=False)

    def __post_init__(self) -> None:
        """Create the sink and the clock, which remain after the query is restarted."""
        jvm = self.spark._jvm
        self.sink = jvm.org.apache.spark.sql.execution.streaming.sources.MemorySink()
        self.clock = jvm.org.apache.spark.util.ManualClock(START)
        (self.folder / "rows").mkdir(parents=True)

    def start(self) -> None:
        """Start the query, or continue it from its checkpoint."""
        from pyspark.sql import functions as F
        from pyspark.sql.streaming.query import StreamingQuery

        schema = self.spark.createDataFrame(self.schema.empty_table()).schema
        rows = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(self.folder / "rows"))
        output = self.plan(rows)
        output = output.select(
            F.to_json(F.struct(*[F.col(f"`{name}`") for name in output.columns]), {"timeZone": "UTC"}).alias("row")
        )
        jvm, no_value = self.spark._jvm, self.spark._jvm.scala.Option.empty()
        streams = jvm.org.apache.spark.sql.streaming
        manager = self.spark._jsparkSession.sessionState().streamingQueryManager()
        arguments = (
            no_value,
            no_value,
            jvm.scala.Option.apply(str(self.folder / "checkpoint")),
            output._jdf,
            jvm.PythonUtils.toScalaMap({}),
            self.sink,
            streams.OutputMode.Append(),
            False,
            True,
            streams.Trigger.ProcessingTime(0),
            self.clock,
            no_value,
            no_value,
        )
        java_query = manager.startQuery(*arguments)
        self.query = StreamingQuery(java_query)

    def stop(self) -> None:
        """Stop the query, which can be started again."""
        self.query.stop()

    def arrive(self, rows: pa.Table) -> None:
        """Write rows as one batch, and wait until the query has processed them and set the clock."""
        self.files += 1
        path = self.folder / f"{self.files}.parquet"
        pq.write_table(rows.cast(self.schema), path)
        os.utime(path, (self.files, self.files))  # Spark reads files in the order of their times
        path.rename(self.folder / "rows" / path.name)
        # A batch that the clock starts may end before Spark finds the first file.
        self._wait(lambda progress: (progress["sources"][0]["endOffset"] or {}).get("logOffset") == self.files - 1)
        self.tell()

    def tell(self, millis: int = 0) -> None:
        """Set the clock to ``millis`` milliseconds after `START`, or at least one millisecond further than before, and
        wait for the batch at this time.
        """
        now = max(START + millis, self.clock.getTimeMillis() + 1)
        self.clock.setTime(now)
        watermark = np.datetime_as_string(np.datetime64(now, "ms")) + "Z"
        self._wait(lambda last: last["timestamp"] >= watermark)

    def _wait(self, is_done: Callable[[dict], bool]) -> None:
        """Wait until ``is_done`` returns true for the progress of the last batch, or Spark waits for more data."""
        end = time.monotonic() + MAX_SECONDS
        while time.monotonic() < end:
            if self.query.exception() is not None:
                raise self.query.exception()
            last = self.progress()
            if last is not None and is_done(last):
                return
            time.sleep(0.02)
            if last is not None and self._is_idle():
                return
        raise TimeoutError(f"the query has not settled in {MAX_SECONDS} s: {self.query.status}")

    def _is_idle(self) -> bool:
        """Return whether Spark has processed all files and waits for more."""
        folder = self.folder / "checkpoint" / "sources" / "0"
        commits = len([f for f in folder.glob("[0-9]*") if not f.name.endswith(".crc")])
        return commits >= self.files and self.query.status["message"].startswith("Waiting for data")

    def progress(self) -> dict | None:
        """Return Spark's progress of the last batch. It is read from the JVM, because PySpark cannot read the progress
        of a query whose clock does not advance.
        """
        last = self.query._jsq.lastProgress()
        return None if last is None else json.loads(last.json())

    def numbers(self) -> dict[str, int]:
        """Return the latest metrics of the stream, combined over its shards."""
        batches = [json.loads(progress.json())["observedMetrics"] for progress in self.query._jsq.recentProgress()]
        numbers_of_shards = [numbers for batch in batches for numbers in batch.values() if "late_rows" in numbers]
        return [numbers for numbers in numbers_of_shards if numbers["rows"] is not None][-1]

    def emitted(self) -> list[dict]:
        """Return the rows that were emitted since the last call."""
        data = self.sink.allData()
        rows = [json.loads(data.apply(index).getString(0)) for index in range(self.seen, data.size())]
        self.seen = data.size()
        return rows
