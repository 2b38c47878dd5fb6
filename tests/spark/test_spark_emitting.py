"""su.stream: the windows that real queries on Spark emit.

A query takes seconds, so only a few cases are tested by default. STREAM_CASES=all tests every policy and every case of
streams.json. tests/streaming/test_stream_shards.py tests all of them without a JVM.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

import aggr
import tiltframe.cli as cli
from tests.conftest import conformance
from tests.spark_queries import SteppedQuery
from tests.streaming.test_open_windows import SCALE, compare, frame_of, policies_of
from tests.streaming.test_stream_laws import assert_same, by_window, events, standing
from tiltframe import TiltFrame, rollup

pytestmark = [pytest.mark.spark, pytest.mark.slow]

INSTANT = pa.timestamp("us", "UTC")
CASE_SCHEMA = pa.schema([("key", pa.string()), ("time", INSTANT), ("value", pa.float64()), ("told", INSTANT)])
EVERY = os.environ.get("STREAM_CASES") == "all"
FEW_CASES = ("beam-sessions-late-bridge",)


@pytest.fixture
def arrived(tmp_path) -> Path:
    """A folder with three files; in the last, an event is an hour late."""
    start = 1_714_543_200_000_000
    for number, events_ in enumerate([{1: "a", 2: "b", 61: "a"}, {3700: "a", 3800: "a"}, {5: "b"}]):
        times = pa.array([start + s * 1_000_000 for s in events_]).cast(pa.timestamp("us", "UTC"))
        (tmp_path / "in").mkdir(exist_ok=True)
        path = tmp_path / "in" / f"{number}.parquet"
        pq.write_table(pa.table({"ts": times, "host": events_.values(), "ms": [2.0] * len(times)}), path)
        os.utime(path, (number + 1, number + 1))
    return tmp_path / "in"


OF_COMMAND = ["--time", "ts", "--key", "host", "--measure", "n=count()", "--levels", "1m,1h"]
SOURCE = ["--spark", "--format", "parquet", "--option", "maxFilesPerTrigger=1", "--once"]


@pytest.mark.long
def test_the_command_prints_what_is_emitted(spark, arrived, tmp_path, capfd):
    """Of a source of Spark's; the late event counts in its hour, which is open, and not in its minute."""
    cli.main(["stream", str(arrived), *SOURCE, *OF_COMMAND, "--state", str(tmp_path / "checkpoint")])
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines() if line.startswith("{")]
    result = sorted((r["level"], r["window_start"][11:16], r["host"], r["n"], r["reason"]) for r in rows)
    assert result == [
        ("1h", "06:00", "a", 2, "close"),
        ("1h", "06:00", "b", 2, "close"),
        ("1m", "06:00", "a", 1, "close"),
        ("1m", "06:00", "b", 1, "close"),
        ("1m", "06:01", "a", 1, "close"),
        ("1m", "07:01", "a", 1, "close"),
    ]


@pytest.mark.long
def test_the_command_reports_late_rows(spark, arrived, tmp_path, capfd):
    """The event that is an hour late belongs to no open window of a minute, and there are no coarser levels."""
    minutes = [{"1m,1h": "1m"}.get(word, word) for word in OF_COMMAND]
    cli.main(["stream", str(arrived), *SOURCE, *minutes, "--state", str(tmp_path / "checkpoint")])
    err = " ".join(capfd.readouterr().err.split())
    assert "tiltframe: warning: rows behind the watermark arrived late and are dropped; use --disorder TIME" in err
    assert "tiltframe: 1 late rows were dropped since the stream began" in err


@pytest.mark.long
def test_only_rows_that_the_command_asks_for_count(spark, arrived, capfd):
    cli.main(["stream", str(arrived), *SOURCE, *OF_COMMAND, "--emit", "on_update", "--where", "host = 'b'"])
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines() if line.startswith("{")]
    last = {(row["level"], row["host"]): row["n"] for row in sorted(rows, key=lambda row: row["revision"])}
    assert last == {("1m", "b"): 2, ("1h", "b"): 2}


@pytest.mark.parametrize(("options", "shards"), [([], 2), (["--shards", "3"], 3)])
@pytest.mark.long
def test_the_command_shuffles_by_the_cores_and_as_its_checkpoint_does(spark, arrived, tmp_path, capfd, options, shards):
    """Spark's default is 200 tasks in every batch; rows without a time have that of their arrival."""
    name, folder = "spark.sql.shuffle.partitions", tmp_path / "checkpoint"
    before = spark.conf.get(name)
    of_arrival = [{"ts": "came"}.get(word, word) for word in OF_COMMAND]
    command = ["stream", str(arrived), *SOURCE, *of_arrival, "--arrival", "--state", str(folder)]
    command += ["--emit", "on_update"]
    try:
        spark.conf.unset(name)
        begun = time.time()
        cli.main([*command, *options])
        spark.conf.set(name, "7")  # the checkpoint's own number stays
        (arrived / "more.parquet").write_bytes((arrived / "0.parquet").read_bytes())
        cli.main(command)
    finally:
        spark.conf.set(name, before)
    # The offsets of each batch record its settings. The folders of states are not counted, because Spark does not
    # create that of a shard without keys, and the shard of a key depends on the hour.
    batches = [path.read_text().splitlines() for path in (folder / "offsets").iterdir() if path.name.isdigit()]
    assert len(batches) >= 2
    assert {json.loads(lines[1])["conf"][name] for lines in batches} == {str(shards)}
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines() if line.startswith("{")]
    for row in rows:
        assert begun - 3600 <= dt.datetime.fromisoformat(row["window_start"]).timestamp() <= time.time()
    last = {(row["level"], row["window_start"], row["host"]): row["n"] for row in rows}
    assert sum(n for (level, _, _), n in last.items() if level == "1h") == 6 + 3


def test_progress_before_the_first_batch_is_of_no_rows(spark, arrived, tmp_path):
    import spark_udaf as su

    (tmp_path / "empty").mkdir()
    rows = spark.readStream.schema("ts timestamp, host string").parquet(str(tmp_path / "empty"))
    frame = TiltFrame(["1m"], "ts", {"n": aggr.count()}, ["host"])
    query = su.stream(rows, frame, emit="on_update", shards=1).writeStream.format("noop").start()
    try:
        assert (su.progress(query).rows, su.progress(query).watermark) == (0, None)
    finally:
        query.stop()
    other = spark.readStream.schema("ts timestamp").parquet(str(arrived)).writeStream.format("noop")
    other = other.trigger(availableNow=True).start()
    other.awaitTermination()
    with pytest.raises(ValueError, match="progress needs a query"):
        su.progress(other)


def test_a_watermark_needs_timestamps(spark, arrived, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    of_text = [{"ts": "host"}.get(word, word) for word in OF_COMMAND]
    with pytest.raises(SystemExit):
        cli.main(["stream", str(arrived), "--spark", *of_text, "--format", "parquet"])
    assert "'host' is of type string" in " ".join(capsys.readouterr().err.split())
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.long
def test_what_is_dropped_is_emitted(spark, arrived, tmp_path):
    import spark_udaf as su

    frame = TiltFrame(["1m"], "ts", {"n": aggr.count(), "ms": aggr.sum("ms")}, ["host"])
    rows = spark.readStream.schema("ts timestamp, host string, ms double").option("maxFilesPerTrigger", 1)
    df = rows.parquet(str(arrived)).withWatermark("ts", "1 second")
    emitted, batches = su.stream(df, frame, dropped=True, shards=2), []
    writer = emitted.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer = writer.foreachBatch(lambda batch, _: batches.extend(batch.where("reason = 'dropped'").collect()))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    assert [(row.host, row.n, row.ms, row.level) for row in batches] == [("b", 1, 2.0, "1m")]
    assert su.progress(query).late_rows == 1


def rows_of_case(rows: list[dict], begin: int = 0) -> pa.Table:
    """Make rows of a case, whose units are seconds from ``begin`` on."""
    columns = {name: [row.get(name) for row in rows] for name in CASE_SCHEMA.names}
    for name in ("time", "told"):
        columns[name] = [None if at is None else int((at + begin) * SCALE) for at in columns[name]]
    return pa.table(columns, CASE_SCHEMA)


def watermark(at: float, begin: int = 0) -> pa.Table:
    """Make a row that tells a watermark, and is no event."""
    return rows_of_case([{"time": 0, "told": at}], begin)


def stepped(spark, folder, frame, emit, late, **options) -> SteppedQuery:
    """Start a query that is told its watermark by a column of its own."""
    import spark_udaf as su

    def plan(df):
        marked = df.withWatermark("told", "0 seconds").where("key IS NOT NULL OR told IS NULL")
        return su.stream(marked, frame, emit=emit, late=late, shards=2, **options)

    query = SteppedQuery(spark, folder, CASE_SCHEMA, plan)
    query.start()
    return query


@conformance("streams.json", lambda case: EVERY or case.get("name", case.get("id")) in FEW_CASES)
@pytest.mark.long
def test_cases(spark, tmp_path, case):
    """What other engines emit, Spark emits by a real query, two shards and restarts included."""
    window = case["window"]
    begin = 10**6 * math.lcm(window.get("size", 1), window.get("hop", 1))  # Spark knows no watermark before 1970
    query = stepped(spark, tmp_path, frame_of(case), *policies_of(case))
    late = 0
    for step in case["steps"]:
        ((kind, value),) = step.items()
        if kind == "input":
            query.arrive(rows_of_case(value, begin))
        elif kind == "watermark":
            query.arrive(watermark(value, begin))
        elif kind == "time":
            query.tell(value * 1000)
        elif kind == "restart":
            query.stop()
            query.start()
        elif kind == "expect":
            compare(case, "emitted", value, [moved(row, begin) for row in query.emitted()])
        else:
            late += len(value)
            assert query.numbers()["late_rows"] == late
    assert query.emitted() == []
    query.stop()


def moved(row: dict, begin: int) -> dict:
    """Read an emitted row as the cases write it."""
    for name in ("window_start", "window_end"):
        if name in row:
            row[name] = dt.datetime.fromisoformat(row[name]) - dt.timedelta(seconds=begin)
        else:
            row[name] = None
    return row


STEPS = [
    rows_of_case([{"key": "a", "time": 1}, {"key": "a", "time": 2}, {"key": "b", "time": 3}]),
    5_000,
    rows_of_case([{"key": "a", "time": 4}]),
    10_000,
    watermark(12),
    rows_of_case([{"key": "a", "time": 5}]),
]
POLICIES = {
    "after_close": ["", "", "", "", "a3 close 0, b1 close 0", "a4 late 1"],
    "after_close(delay=3s)": ["", "", "", "", "", ""],
    "after_close(timeout=8s)": ["", "", "", "b1 timeout 0", "a3 close 0", "a4 late 1"],
    "periodic(5s)": ["", "a2 period 0 open, b1 period 0 open", "", "a3 period 1 open", "", "a4 late 2"],
    "periodic(5s, repeat, having='n > 1')": ["", "a2 period 0 open", "", "a3 period 1 open", "", "a4 late 2"],
    "on_update": ["a2 update 0 open, b1 update 0 open", "", "a3 update 1 open", "", "", "a4 late 2"],
    "on_update(batch=6s)": [
        "a2 update 0 open, b1 update 0 open", "", "", "a3 update 1 open", "", "a4 late 2",
    ],
    "on_update(mode=changelog)": [
        "a2 update 0 open 1, b1 update 0 open 1", "", "a2 update 0 open -1, a3 update 1 open 1", "", "",
        "a3 late 1 -1, a4 late 2 1",
    ],
    "after_count(2, mode=discarding)": ["a2 count 0 open", "", "", "", "a1 close 1, b1 close 0", "a1 late 2"],
    "after_key_expire(8s, maxspan=2s)": ["", "", "", "b1 expired 0", "", ""],
}  # fmt: skip


FEW = ["after_close(timeout=8s)", "on_update(mode=changelog)", "after_key_expire(8s, maxspan=2s)"]


@pytest.mark.parametrize("text", POLICIES if EVERY else FEW)
@pytest.mark.long
def test_policies(spark, tmp_path, text):
    """What is emitted after each step, by a clock and a watermark that are told; and nothing else."""
    levels = ["all"] if text.startswith("after_key") else ["10s"]
    frame = TiltFrame(levels, "time", {"n": aggr.count()}, ["key"])
    query, got = stepped(spark, tmp_path, frame, text, "drop(20s)"), []
    for step in STEPS:
        if isinstance(step, int):
            query.tell(step)
        else:
            query.arrive(step)
        rows = [
            f"{r['key']}{r['n']} {r['reason']} {r['revision']}{' open' * r['partial']}"
            + (f" {r['change']}" if "change" in r else "")
            for r in query.emitted()
        ]
        got.append(", ".join(sorted(rows, key=lambda row: row[0])))
    query.stop()
    assert got == POLICIES[text]


FRAME = TiltFrame(
    ["5s", "20s", "1m"],
    "ts",
    {"rows": aggr.count(), "total": aggr.sum("x"), "sketch": aggr.dds("x"), "last": aggr.last("i")},
    ["k"],
)


class Stream:
    """Rows that arrive in a folder, and what a query over them has written into another."""

    def __init__(self, spark, folder) -> None:
        self.spark, self.folder, self.files = spark, folder, 0
        (folder / "rows").mkdir(parents=True)

    def arrive(self, rows: pa.Table) -> None:
        self.files += 1
        path = self.folder / "rows" / f"{self.files}.parquet"
        pq.write_table(rows, path)
        os.utime(path, (self.files, self.files))

    def run(self, frame: TiltFrame = FRAME, late: str = "true_window", **options):
        import spark_udaf as su

        path = str(self.folder / "rows")
        rows = self.spark.readStream.schema(self.spark.read.parquet(path).schema).option("maxFilesPerTrigger", 1)
        emitted = su.stream(rows.parquet(path).withWatermark("ts", "3 seconds"), frame, late=late, **options)
        writer = emitted.writeStream.option("checkpointLocation", str(self.folder / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(self.folder / "out"))
        query.awaitTermination()
        return query

    def emitted(self, schema: pa.Schema) -> pa.Table:
        """Read what the sink has, in the order of its batches; columns of the schema get its types."""
        log = self.folder / "out" / "_spark_metadata"
        batches = sorted((int(f.name), f) for f in log.iterdir() if f.name.isdigit())
        entries = [json.loads(line) for _, f in batches for line in f.read_text().splitlines()[1:]]
        options = {"coerce_int96_timestamp_unit": "us"}  # Spark writes timestamps so
        tables = [pq.read_table(entry["path"].removeprefix("file://"), **options) for entry in entries]
        emitted = pa.concat_tables([table for table in tables if table.num_rows])
        for at, name in enumerate(schema.names):  # Parquet has moments without a zone
            emitted = emitted.set_column(at, name, emitted.column(name).cast(schema.field(name).type))
        return emitted


@pytest.mark.parametrize("shards", [1, 3] if EVERY else [3])
@pytest.mark.long
def test_stream_is_batch(spark, tmp_path, shards):
    """Bit for bit, whatever the batches and shards, over a restart, with a measure that begins there."""
    import spark_udaf as su

    rng = np.random.default_rng(shards)
    rows = events(rng, 3000)
    parts = [rows.slice(start, 1000) for start in (0, 1000, 2000)]
    stream = Stream(spark, tmp_path)
    stream.arrive(parts[0])
    stream.run(shards=shards, states=True)
    stream.arrive(parts[1])
    stream.arrive(parts[2])
    query = stream.run(shards=shards, states=True)
    end = rows.slice(0, 1).set_column(0, "ts", pa.array([10**15], INSTANT))
    stream.arrive(end)  # closes all windows but its own
    stream.run(shards=shards, states=True)
    unsplit = by_window(rollup(rows, FRAME))
    assert_same(standing(FRAME, stream.emitted(unsplit.schema), "accumulating"), unsplit)
    progress = su.progress(query)
    assert (progress.rows, progress.late_rows) == (3000, 0)
    assert 0 < progress.watermark_us < 10**15
    assert progress.watermark < dt.datetime.fromtimestamp(10**9, dt.UTC)
    assert sum(progress.open_windows.values()) + sum(progress.kept_windows.values()) == unsplit.num_rows


@pytest.mark.long
def test_another_stream_is_refused_with_the_difference_named(spark, tmp_path):
    import spark_udaf as su

    rows = events(np.random.default_rng(0), 50)
    stream = Stream(spark, tmp_path)
    stream.arrive(rows)
    stream.run(shards=2)
    other_streams = {
        "has 2 shards of keys, and this stream has 3; pass shards=2": {"shards": 3},
        "levels is": {"shards": 2, "frame": TiltFrame(["5s", "1m"], "ts", FRAME.measures, ["k"])},
    }
    for message, options in other_streams.items():
        stream.arrive(rows)
        with pytest.raises(StreamingQueryException, match=message):
            stream.run(**options)
    more = TiltFrame(FRAME.levels, "ts", {**FRAME.measures, "most": aggr.max("i")}, ["k"])
    query = stream.run(more, shards=2, max_keys=1, beyond="drop")
    progress = su.progress(query)
    assert (progress.rows, progress.refused_rows) == (3 * 50, 0)  # these keys were there before
    stream.arrive(rows)
    coarser = TiltFrame([*FRAME.levels, "1h"], "ts", more.measures, ["k"])
    assert su.progress(stream.run(coarser, shards=2)).rows == 4 * 50


def test_what_cannot_be_streamed_is_refused_at_once(spark, tmp_path):
    import spark_udaf as su

    batch = spark.createDataFrame(events(np.random.default_rng(0), 5))
    batch.write.parquet(str(tmp_path / "rows"))
    rows = spark.readStream.schema(batch.schema).parquet(str(tmp_path / "rows"))
    marked = rows.withWatermark("ts", "1 second")
    for message, (df, options) in {
        "this DataFrame is not a stream; su.rollup": (batch, {}),
        "expected a streaming DataFrame": (events(np.random.default_rng(0), 5), {}),
        "after_close needs a watermark, which this stream does not have": (rows, {}),
        r"periodic\(every=1m, clock=event\) needs a watermark": (rows, {"emit": "periodic(1m, clock=event)"}),
        "cannot read 'at_close' as emit policy": (marked, {"emit": "at_close"}),
        "shards must be a whole number from 1": (marked, {"shards": 0}),
        "max_keys must be a whole number of at least 1": (marked, {"max_keys": 0}),
        "states must be true or false|states": (marked, {"states": 1}),
    }.items():
        with pytest.raises((ValueError, TypeError), match=message):
            su.stream(df, FRAME, **options)
    with pytest.raises(ValueError, match="no column 'time'"):
        su.stream(marked, TiltFrame(["1m"], "time", {"n": aggr.count()}))
    with pytest.raises(ValueError, match="progress needs a query"):
        su.progress(rows)
    assert su.stream(rows, FRAME, emit="on_update").isStreaming
