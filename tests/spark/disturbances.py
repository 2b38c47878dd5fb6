"""A driver of Spark with disturbances: tasks kill their executor or wait for a second attempt, or the driver is killed.

python -m tests.spark.disturbances executors MASTER FILE FOLDER RUN…    "run", name and digests of each
python -m tests.spark.disturbances driver KIND FILE FOLDER [POINT]      a rollup into a store, killed at a point

A run is ``states|store,STAGE,kill|twin,AT``: a rollup to states or into a store. The first attempt of the first task of
the stage, 0 or 1, is disturbed after it has yielded AT batches, or all of them if AT is ``end``. The runs ``states``
and ``store`` are not disturbed.
"""

from __future__ import annotations

import inspect
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark import TaskContext
from pyspark.sql.classic.dataframe import DataFrame

import aggr
from aggr.arrow.bit_equality import digest
from tests.engines import ORDER, digests_of_store, session
from tiltframe import FrameStore, TiltFrame
from tiltframe.store.backends.delta.backend import DeltaBackend

Batches = Iterator[pa.RecordBatch]
Task = Callable[[Batches], Batches]
Around = Callable[[Task, int], Task]
EXECUTOR = "CoarseGrainedExecutorBackend"
PATIENCE = 240  # seconds
FRAME = TiltFrame(
    ["1m", "1h", "1d"],
    "ts",
    {"n": aggr.count(), "mean": aggr.avg("x"), "d": aggr.dds("x", [0.5]), "first": aggr.first("word")},
    ["host", "shelf"],
)
IN_A_TASK = "a task has written"
POINTS = {  # of a commit, in their order; a task that has written lies between the third and the fourth
    "before there is a store": (DeltaBackend, "create", False),
    "its log has begun": (DeltaTable, "create", True),
    "there is a store": (DeltaBackend, "create", True),
    "all tasks have written": (DeltaBackend, "commit", False),
    "what is recorded is written": (DeltaTable, "create_write_transaction", False),
    "the log has the commit": (DeltaTable, "create_write_transaction", True),
    "the head is noted": (DeltaBackend, "commit", True),
}


@dataclass(frozen=True)
class Disturbance:
    """What befalls the first attempt of a task, noted in a folder that all processes see."""

    folder: str
    stage: int
    kind: str
    at: int | None

    @classmethod
    def read(cls, folder: str, stage: str, kind: str, at: str) -> Disturbance:
        """Read it from a run."""
        return cls(folder, int(stage), kind, None if at == "end" else int(at))

    def around(self, function: Task, stage: int) -> Task:
        """Wrap what the tasks of a stage do."""

        def task(batches: Batches) -> Batches:
            context = TaskContext.get()
            assert context is not None
            if stage != self.stage or context.partitionId():
                yield from function(batches)
                return
            first = self.note("first", context.stageId())
            row_count = 0
            for batch in function(batches):
                if first and row_count == self.at:
                    self.strike()
                yield batch
                row_count += 1
            if first and (self.at is None or self.at >= row_count):
                self.strike()
            if not first:
                self.note("again", context.stageId())

        return task

    def note(self, what: str, stage: int) -> bool:
        """Note that something has happened, and in which stage; say whether it is the first time."""
        try:
            os.mkdir(f"{self.folder}/{what}-{stage}")
        except FileExistsError:
            return False
        return True

    def strike(self) -> None:
        """Kill the executor of this task, or wait until another attempt has done all of it."""
        if self.kind == "kill":
            os.kill(executor_of(os.getpid()), signal.SIGKILL)
            return
        until = time.monotonic() + PATIENCE
        while not list(Path(self.folder).glob("again-*")) and time.monotonic() < until:
            time.sleep(0.02)


def executor_of(process: int) -> int:
    """Find the executor among the ancestors of a process."""
    while process > 1:
        if EXECUTOR in Path(f"/proc/{process}/cmdline").read_text():
            return process
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    raise AssertionError("no executor runs this")


def settings(master: str, folder: str) -> dict[str, str]:
    """Say where to run, with an event log."""
    return {
        "spark.master": master,
        "spark.log.level": "OFF",  # what happens to executors is wanted here
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": Path(folder).as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.speculation": str(master.startswith("spark:")).lower(),
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.1",
    }


def executors(master: str, file: str, folder: str, *runs: str) -> None:
    """Run one after the other in one session, and tell what came of each."""
    with session("cluster", settings(master, folder)) as spark:
        for number, run in enumerate(runs):
            what, *disturbed = run.split(",")
            wait_for_both(spark)
            marks = Path(folder, str(number))
            marks.mkdir()
            with every_stage(Disturbance.read(str(marks), *disturbed).around if disturbed else as_it_is):
                digests = rolled_up(spark, file, f"{folder}/store-{number}" if what == "store" else None)
            print("run", json.dumps([run, digests]), flush=True)


def driver(kind: str, file: str, folder: str, point: str | None = None) -> None:
    """Roll up into a store in one commit; at the point, kill this process and its JVM."""
    with session(kind) as spark:
        if point in POINTS:
            killed_at(*POINTS[point])
        with every_stage(killing(os.getpgid(0)) if point == IN_A_TASK else as_it_is):
            rolled_up(spark, file, folder)


def rolled_up(spark: Any, file: str, place: str | None) -> dict[str, str]:
    """Roll up a file, into a store if there is a place for one, and digest the states."""
    import spark_udaf as su

    scan = su.scan_parquet(spark, file, rows_per_task=1500)
    if place is None:
        states = su.rollup(scan, FRAME).toArrow().sort_by(ORDER)
        return {name: digest(states.column(name)) for name in states.column_names}
    su.rollup_into(scan, FrameStore(place, FRAME), "w", 1)
    return digests_of_store(FrameStore(place))


@contextmanager
def every_stage(around: Around) -> Iterator[None]:
    """Wrap what the tasks of each stage do, which is given by its number."""
    without, stages = DataFrame.mapInArrow, count()
    DataFrame.mapInArrow = lambda df, task, *arguments: without(df, around(task, next(stages)), *arguments)
    try:
        yield
    finally:
        DataFrame.mapInArrow = without


def as_it_is(task: Task, stage: int) -> Task:
    """Disturb nothing."""
    return task


def killing(group: int) -> Around:
    """Have the first task of the second stage that has given something kill a group of processes."""

    def around(function: Task, stage: int) -> Task:
        def task(batches: Batches) -> Batches:
            for batch in function(batches):
                os.killpg(group, signal.SIGKILL)
                yield batch

        return task if stage else function

    return around


def killed_at(owner: type, name: str, after: bool) -> None:
    """Kill this process and its JVM before or after the first call of a method."""
    method = getattr(owner, name)

    def call(*arguments: Any, **named: Any) -> None:
        if after:
            method(*arguments, **named)
        os.killpg(0, signal.SIGKILL)

    setattr(owner, name, staticmethod(call) if inspect.ismethod(method) else call)


def wait_for_both(spark: Any) -> None:
    """Wait until there are two executors, one that was killed started again."""
    until = time.monotonic() + PATIENCE
    while spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() < 3:
        assert time.monotonic() < until, "an executor is missing"
        time.sleep(0.05)


if __name__ == "__main__":
    {"executors": executors, "driver": driver}[sys.argv[1]](*sys.argv[2:])
