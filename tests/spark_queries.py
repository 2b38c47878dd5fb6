"""Run a real streaming query step by step: write rows to a folder, set the clock, and return the rows emitted since."""

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

START = 1_000_000_000  # milliseconds, of the clock when a query begins; a multiple of all periods
PATIENCE = 300  # seconds


@dataclass
class SteppedQuery:
    """A streaming query whose batches and clock a test holds in its hands.

    Spark's own tests set the clock of a query; Python has no argument for it, so the query is started as Spark's
    writer does it.

    Parameters
    ----------
    spark : SparkSession, classic
    folder : Path
    schema : of the rows that arrive
    plan : the streaming DataFrame of the rows -> what is emitted
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
        """Make the sink and the clock; both outlive restarts."""
        jvm = self.spark._jvm
        self.sink = jvm.org.apache.spark.sql.execution.streaming.sources.MemorySink()
        self.clock = jvm.org.apache.spark.util.ManualClock(START)
        (self.folder / "rows").mkdir(parents=True)

    def start(self) -> None:
        """Start the query, or go on from its checkpoint."""
        from pyspark.sql import functions as F
        from pyspark.sql.streaming.query import StreamingQuery

        schema = self.spark.createDataFrame(self.schema.empty_table()).schema
        rows = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(self.folder / "rows"))
        out = self.plan(rows)
        out = out.select(
            F.to_json(F.struct(*[F.col(f"`{name}`") for name in out.columns]), {"timeZone": "UTC"}).alias("row")
        )
        jvm, none = self.spark._jvm, self.spark._jvm.scala.Option.empty()
        streams = jvm.org.apache.spark.sql.streaming
        manager = self.spark._jsparkSession.sessionState().streamingQueryManager()
        started = manager.startQuery(
            none, none, jvm.scala.Option.apply(str(self.folder / "checkpoint")), out._jdf,
            jvm.PythonUtils.toScalaMap({}), self.sink, streams.OutputMode.Append(), False, True,
            streams.Trigger.ProcessingTime(0), self.clock, none, none,
        )  # fmt: skip
        self.query = StreamingQuery(started)

    def stop(self) -> None:
        """Stop the query; it may be started again."""
        self.query.stop()

    def arrive(self, rows: pa.Table) -> None:
        """Let rows arrive, one batch, and wait until nothing is left to do."""
        self.files += 1
        path = self.folder / f"{self.files}.parquet"
        pq.write_table(rows.cast(self.schema), path)
        os.utime(path, (self.files, self.files))  # files are taken in this order
        path.rename(self.folder / "rows" / path.name)
        # a batch by the clock may end before any file has been seen
        self._wait(lambda progress: (progress["sources"][0]["endOffset"] or {}).get("logOffset") == self.files - 1)
        self.tell()

    def tell(self, millis: int = 0) -> None:
        """Set the clock, counted from `START`, a millisecond on at least, and wait for what is done at that time."""
        now = max(START + millis, self.clock.getTimeMillis() + 1)
        self.clock.setTime(now)
        watermark = np.datetime_as_string(np.datetime64(now, "ms")) + "Z"
        self._wait(lambda last: last["timestamp"] >= watermark)

    def _wait(self, done: Callable[[dict], bool]) -> None:
        """Wait until a batch is done, or Spark has no more to do."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if self.query.exception() is not None:
                raise self.query.exception()
            last = self.progress()
            if last is not None and done(last):
                return
            time.sleep(0.02)
            if last is not None and self._idle():
                return
        raise TimeoutError(f"the query has not settled in {PATIENCE} s: {self.query.status}")

    def _idle(self) -> bool:
        """Say whether all files are taken and done, and Spark waits for more."""
        folder = self.folder / "checkpoint" / "sources" / "0"
        commits = len([f for f in folder.glob("[0-9]*") if not f.name.endswith(".crc")])
        return commits >= self.files and self.query.status["message"].startswith("Waiting for data")

    def progress(self) -> dict | None:
        """Give Spark's own numbers of the last batch; PySpark cannot read those of a clock that stands still."""
        last = self.query._jsq.lastProgress()
        return None if last is None else json.loads(last.json())

    def numbers(self) -> dict[str, int]:
        """Give the numbers that all shards told last, put together."""
        batches = [json.loads(progress.json())["observedMetrics"] for progress in self.query._jsq.recentProgress()]
        observed = [numbers for batch in batches for numbers in batch.values() if "late_rows" in numbers]
        return [numbers for numbers in observed if numbers["rows"] is not None][-1]

    def emitted(self) -> list[dict]:
        """Give what was emitted since the last call."""
        data = self.sink.allData()
        rows = [json.loads(data.apply(at).getString(0)) for at in range(self.seen, data.size())]
        self.seen = data.size()
        return rows
