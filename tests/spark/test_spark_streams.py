"""A stream into a store: each micro-batch is a commit, and is counted once if it runs again."""

from __future__ import annotations

import importlib.metadata
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

import aggr
import tiltframe.cli as cli
from spark_udaf.streaming.progress import recorded_ids
from tests import engines
from tests.engines import STORE_FRAME, digests_of_store
from tiltframe import FrameStore, StoreError, TiltFrame, rollup

pytestmark = pytest.mark.spark

FILES, ROWS = 4, 500
KILLS = int(os.environ.get("KILLS", "1"))  # KILLS=15 makes 30 kills
DRIVER = """
import pathlib, sys
from tests import engines
from tests.spark.test_spark_streams import Stream
with engines.session("classic") as spark:
    query = Stream(spark, pathlib.Path(sys.argv[1])).start(compact_every=3)
    print("started", flush=True)
    query.awaitTermination()
"""
LEVELS = [level.name for level in STORE_FRAME.levels]


@dataclass(frozen=True)
class Stream:
    """A folder that files arrive in, one a batch, and a store."""

    spark: Any
    folder: Path

    @cached_property
    def store(self) -> FrameStore:
        return FrameStore(self.folder / "store", STORE_FRAME)

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def arrive(self, name: str, rows: pa.Table) -> None:
        (self.folder / "rows").mkdir(exist_ok=True)
        pq.write_table(rows, self.folder / "rows" / f"{name}.parquet")

    def start(self, store: FrameStore | None = None, **options: Any) -> Any:
        import spark_udaf as su

        path = str(self.folder / "rows")
        schema = self.spark.read.parquet(path).schema
        stream = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(path)
        settings = {"name": "hosts", "checkpoint": self.checkpoint, "trigger": "available_now", **options}
        return su.stream_into(stream, store or self.store, **settings)

    def run(self, store: FrameStore | None = None, **options: Any) -> Any:
        query = self.start(store, **options)
        query.awaitTermination()
        return query

    def holds(self, rows: pa.Table) -> bool:
        """Say whether the store has the bits of a batch rollup of the same rows, under any numbers of commits."""
        batch_store = FrameStore(self.folder / "whole", STORE_FRAME)
        batch_store.append(rollup(rows, STORE_FRAME), "once", 0)
        same = digests_of_store(FrameStore(self.store.uri)) == digests_of_store(batch_store)
        shutil.rmtree(self.folder / "whole")
        return same


@pytest.fixture
def stream(spark, tmp_path):
    new_stream = Stream(spark, tmp_path)
    for at in range(FILES):
        new_stream.arrive(str(at), engines.rows(FILES * ROWS).slice(at * ROWS, ROWS))
    return new_stream


@pytest.mark.slow
@pytest.mark.long
def test_a_registered_function_is_known_in_the_tasks_of_a_stream(spark, tmp_path):
    """The function is of this module's body, so that workers cannot import it by name."""
    import spark_udaf as su

    @dataclass(frozen=True)
    class LeastOfMine(aggr.Min):
        name = "least_of_mine"

    aggr.register(LeastOfMine)
    try:
        frame = TiltFrame(["1m"], "ts", {"low": aggr.caller("least_of_mine")("x")})
        (tmp_path / "rows").mkdir()
        times = pa.array([1_714_543_200_000_000, 1_714_543_201_000_000], pa.timestamp("us", "UTC"))
        pq.write_table(pa.table({"ts": times, "x": [5, 3]}), tmp_path / "rows" / "a.parquet")
        store = FrameStore(tmp_path / "store", frame)
        rows = spark.readStream.schema("ts timestamp, x bigint").parquet(str(tmp_path / "rows"))
        stream = rows.withWatermark("ts", "90 seconds")
        query = su.stream_into(stream, store, name="s", checkpoint=tmp_path / "checkpoint", trigger="available_now")
        query.awaitTermination()
        assert store.query("1m").column("low").to_pylist() == [3]
        assert store.inspect().watermarks == {"s": 1_714_543_200_000_000 - 90_000_000}
    finally:
        aggr.unregister("least_of_mine")


@dataclass
class FailsAfterCommit:
    """A store whose process dies between its own commit of a batch and the stream's."""

    store: FrameStore
    batch: int

    def __call__(self, *arguments: Any, **named: Any) -> bool:
        from spark_udaf.store.write import rollup_batch_into

        added = rollup_batch_into(*arguments, **named)
        if named["commit"] == self.batch:
            raise OSError("the power went out")
        return added


@pytest.mark.slow
@pytest.mark.long
def test_a_stream_is_in_the_store_once_over_failures_restarts_and_late_rows(stream, monkeypatch):
    import spark_udaf as su

    rows = engines.rows(FILES * ROWS)
    with monkeypatch.context() as patched:
        patched.setattr("spark_udaf.streaming.stream_into.rollup_batch_into", FailsAfterCommit(stream.store, 2))
        with pytest.raises(StreamingQueryException, match="the power went out"):
            stream.run(compact_every=None)
    query = stream.run(compact_every=None)  # batch 2 is in the store, and Spark runs it again
    assert [batch["observedMetrics"]["tiltframe"]["rows"] for batch in query.recentProgress] == [ROWS] * 2
    assert query.name == "hosts"
    state = su.progress(query)
    assert (state.writer, state.batch) == (f"hosts {query.id}", FILES - 1)
    assert state.waiting_parts.keys() == set(LEVELS)
    assert all(count >= FILES for count in state.waiting_parts.values())
    assert state.as_dict()["batch"] == FILES - 1
    assert stream.holds(rows)

    late = engines.rows(100, seed=1)  # of the same three days: windows that are long over
    stream.arrive("late", late)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stream.run(FrameStore(stream.store.uri), compact_every=1)
    assert stream.holds(pa.concat_tables([rows, late]))
    assert stream.store.last_commit(state.writer) == FILES
    assert set(su.progress(query).waiting_parts.values()) == {0}


@pytest.mark.slow
@pytest.mark.long
def test_a_new_checkpoint_is_a_new_writer_and_says_so(stream):
    import spark_udaf as su

    rows = engines.rows(FILES * ROWS)
    first = stream.run()
    shutil.rmtree(stream.checkpoint)
    with pytest.warns(UserWarning, match=f"by the writer 'hosts {first.id}', but .* starts again as 'hosts"):
        second = stream.run(compact_every=FILES)
    assert second.id != first.id
    assert stream.holds(pa.concat_tables([rows, rows]))
    with warnings.catch_warnings():  # to go on is no new beginning, whichever of the two it is
        warnings.simplefilter("error")
        stream.run()
    states = [su.progress(query) for query in (first, second)]
    assert [state.writer for state in states] == [f"hosts {query.id}" for query in (first, second)]
    assert [state.batch for state in states] == [FILES - 1, FILES - 1]
    assert stream.holds(pa.concat_tables([rows, rows]))


@pytest.mark.slow
@pytest.mark.parametrize("changed", ["store", "name"])
@pytest.mark.long
def test_batches_that_the_store_has_not_are_missed(stream, changed):
    """A checkpoint says that batches are done: in another store, or under another name, they are not there."""
    stream.run()
    stream.arrive("more", engines.rows(50, seed=2))
    other = FrameStore(stream.folder / "other", STORE_FRAME) if changed == "store" else stream.store
    before = None if changed == "store" else digests_of_store(stream.store)
    name = "hosts" if changed == "store" else "guests"
    expected = (
        rf"records that the batches before {FILES} are done, but the store .* has no batches of the writer '{name} "
    )
    with pytest.raises(StreamingQueryException, match=expected):
        stream.run(other, name=name)
    assert recorded_ids(other, name) == []
    assert before is None or digests_of_store(stream.store) == before


def test_rows_that_the_store_cannot_take_start_nothing(stream):
    frame_rows = engines.rows(10)
    wider = frame_rows.set_column(frame_rows.column_names.index("price"), "price", frame_rows["i"])
    stream.store.append(rollup(wider, STORE_FRAME), "w", 1)
    with pytest.raises(StoreError, match="money"):
        stream.run()
    assert not stream.checkpoint.exists()
    assert not stream.spark.streams.active


def killed_driver(folder: Path, after: float) -> int:
    """Start a driver with a JVM of its own, and kill both some seconds after its query has started."""
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        assert any(line == "started\n" for line in process.stdout)
        time.sleep(after)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()
    return process.wait()


@pytest.mark.slow
@pytest.mark.long
def test_kill_9_of_the_driver_loses_nothing_and_counts_nothing_twice(stream):
    chance, files = random.Random(KILLS), FILES
    for _ in range(2 * KILLS):
        for _ in range(3):
            stream.arrive(str(files), engines.rows(ROWS, seed=files))
            files += 1
        assert killed_driver(stream.folder, chance.random() * 6) == -signal.SIGKILL
    query = stream.run(compact_every=3)
    rows = [engines.rows(FILES * ROWS), *(engines.rows(ROWS, seed=seed) for seed in range(FILES, files))]
    assert stream.holds(pa.concat_tables(rows))
    writer = f"hosts {query.id}"
    before = stream.store.last_commit(writer)
    # A batch has one file, or two if a driver was killed after Spark had listed a file and before it logged the batch.
    assert before >= files - 1 - 2 * KILLS
    stream.run()
    assert stream.store.last_commit(writer) == before
    assert stream.holds(pa.concat_tables(rows))


@pytest.fixture
def installed(monkeypatch):
    """Have the entry point as pyproject.toml says it, whenever the package was installed."""
    group, entry_points = "tiltframe.streams", importlib.metadata.entry_points
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    point = importlib.metadata.EntryPoint("spark", project["entry-points"][group]["spark"], group)

    def entry_points_of(**selection):
        return [point] if selection.get("group") == group else entry_points(**selection)

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points_of)


COMMAND = "stream --spark --key host --measure n=count() --levels 1m,1h"


@pytest.mark.long
@pytest.mark.slow
def test_the_command_streams_any_source_into_a_store(stream, installed):
    cli.main(
        [
            *COMMAND.split(),
            *("--time", "ts"),
            *f"{stream.folder}/rows --format parquet --option maxFilesPerTrigger=2 --once".split(),
            *f"--store {stream.folder}/counts --state {stream.folder}/counted".split(),
        ]
    )
    store = FrameStore(stream.folder / "counts")
    assert sum(store.query("1h", keys=[]).column("n").to_pylist()) == FILES * ROWS
    assert any(store.last_commit(f"parquet {id}") == 1 for id in recorded_ids(store, "parquet"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "pass --format, such as kafka"),
        ("--format rate --store s", "needs a folder for Spark's checkpoint; pass --state FOLDER"),
        ("--format rate --stream s", "--stream cannot be used with --spark without --store"),
        ("--format rate --dropped s", "--dropped cannot be used with --spark without --store"),
        ("--format rate --type host=text", "the source reads the files, so use an option of the source"),
        ("--format rate --delimiter ;", "--delimiter applies only to files that tiltframe reads itself"),
        ("--format rate --skip-rows 2", "--skip-rows applies only to files that tiltframe reads itself"),
        ("--format rate --thousands ,", "--thousands applies only to files that tiltframe reads itself"),
        ("--format rate --null - --where host='a'", "--null applies only to files that tiltframe reads itself"),
        ("--format rate --time ts=value/2", "with --spark, --time must be the name of a column of the source"),
        ("--format rate --emit periodic(1m) --once", "--once would not end with --emit periodic(1m)"),
        ("--format rate --emit never", "never"),
        ("--format rate --store s --state c --disorder 5s", "--disorder cannot be used with --spark and --store"),
        ("--format rate --store s --state c --option rows", "cannot read --option 'rows'; write KEY=VALUE"),
    ],
)
def test_what_the_command_cannot_stream(options, message, installed, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        cli.main([*COMMAND.split(), *["--time", "ts"] * ("--time" not in options), *options.split()])
    assert message in capsys.readouterr().err


@pytest.mark.spark
def test_only_the_watermark_of_the_event_times_counts(spark, tmp_path):
    from spark_udaf.streaming.stream import stream_source

    rows = spark.readStream.schema("ts timestamp, arrived timestamp").parquet(str(tmp_path))
    source = stream_source(rows.withWatermark("arrived", "10 seconds"), "")
    assert (source.has_watermark, source.delay_of("ts"), source.delay_of("arrived")) == (True, None, 10_000_000)
