"""Resources that a job used: shuffled and spilled bytes from Spark's metrics, and the memory of the largest Python
worker.

Spark's metrics are available in classic Spark. Memory is available if the workers run on this machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from spark_udaf.versions.java_objects import java_context_of, process_id, python_context_of

# A text that occurs in the command line of every Python worker. The command line is ``python -m pyspark.daemon``, or it
# contains the value of the setting ``spark.python.daemon.module``, such as ``spark_udaf.daemon``.
_WORKER = b".daemon"
_PROCESSES = Path("/proc")
_GROUP_PROPERTIES = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


@dataclass(frozen=True)
class JobResources:
    """The resources that one run of a job used. Bytes that cannot be measured are None.

    Parameters
    ----------
    seconds : float
        The time to plan and to run the job.
    shuffle_bytes : int or None
        The bytes that tasks wrote for other tasks.
    spill_bytes : int or None
        The bytes that Spark wrote to disk because they did not fit into memory.
    worker_bytes : int or None
        The peak of resident memory of the largest Python worker, including its libraries.
    """

    seconds: float
    shuffle_bytes: int | None
    spill_bytes: int | None
    worker_bytes: int | None


def run_and_measure(spark: SparkSession, plan: Callable[[], DataFrame]) -> JobResources:
    """Plan a job, run it, discard its results, and return the resources that it used.

    Parameters
    ----------
    spark : SparkSession
    plan : callable that returns a DataFrame

    Returns
    -------
    JobResources
    """
    scheduler = python_context_of(spark)
    reset_worker_peaks(spark)
    group = f"tiltframe bench {uuid4()}"
    begin = time.perf_counter()
    with _job_group(scheduler, group):
        discard(plan())
    seconds = time.perf_counter() - begin
    if scheduler is None:
        return JobResources(seconds, shuffle_bytes=None, spill_bytes=None, worker_bytes=None)
    stages = list(_stages(scheduler, java_context_of(spark), group))
    return JobResources(
        seconds,
        shuffle_bytes=sum(int(stage.shuffleWriteBytes()) for stage in stages),
        spill_bytes=sum(int(stage.diskBytesSpilled()) for stage in stages),
        worker_bytes=largest_worker(spark),
    )


@contextmanager
def _job_group(scheduler: Any | None, group: str) -> Iterator[None]:
    """A context manager: Spark's jobs that start in the block belong to the job group ``group``. At the end of the
    block, the job properties of the caller are restored.

    ``scheduler`` is PySpark's ``SparkContext``. Without it, as on Spark Connect, do nothing.
    """
    if scheduler is None:
        yield
        return
    previous_properties = {name: scheduler.getLocalProperty(name) for name in _GROUP_PROPERTIES}
    scheduler.setJobGroup(group, "tiltframe bench", interruptOnCancel=True)
    try:
        yield
    finally:
        for name, value in previous_properties.items():
            scheduler.setLocalProperty(name, value)


def discard(df: DataFrame) -> None:
    """Run a job for all columns of a DataFrame, and discard the rows."""
    df.write.format("noop").mode("overwrite").save()


def reset_worker_peaks(spark: SparkSession) -> None:
    """Reset the recorded peak memory of the session's Python workers to their present memory."""
    for worker in _workers(spark):
        _reset_peak(worker)


def largest_worker(spark: SparkSession) -> int | None:
    """Return the highest peak of resident memory of the session's Python workers, in bytes.

    Return None if the workers do not run on this machine, or if this machine does not run Linux.
    """
    return max((_peak(worker) for worker in _workers(spark)), default=None)


def _stages(scheduler: Any, java_context: Any, group: str) -> Iterator[Any]:
    """Yield Spark's metrics for each stage of a job group."""
    # Spark may report the metrics of a job some time after the job has returned its results.
    java_context.listenerBus().waitUntilEmpty()
    tracker = scheduler.statusTracker()
    numbers = {
        int(stage)
        for job in tracker.getJobIdsForGroup(group)
        if (info := tracker.getJobInfo(job)) is not None
        for stage in info.stageIds
    }
    for number in sorted(numbers):
        yield java_context.statusStore().lastStageAttempt(number)


def _workers(spark: SparkSession) -> list[Path]:
    """Return the folders in /proc of the session's Python workers on this machine. The list is empty
    except on Linux.
    """
    root = process_id(spark)
    if root is None or not (_PROCESSES / "self" / "clear_refs").exists():
        return []
    parents: dict[int, list[int]] = {}
    for process in _PROCESSES.glob("[0-9]*"):
        try:
            after_name = (process / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # the process has ended in the meantime
            continue
        parents.setdefault(int(after_name[1]), []).append(int(process.name))
    unvisited = [root]
    descendants = []
    while unvisited:
        children = parents.get(unvisited.pop(), [])
        unvisited += children
        descendants += children
    return [path for path in (_PROCESSES / str(number) for number in descendants) if _is_worker(path)]


def _is_worker(process: Path) -> bool:
    try:
        return _WORKER in (process / "cmdline").read_bytes()
    except OSError:
        return False


def _reset_peak(process: Path) -> None:
    try:
        (process / "clear_refs").write_text("5")
    except OSError:
        return


def _peak(process: Path) -> int:
    """Return the peak of a process's resident memory in bytes, or 0 if the process has ended."""
    try:
        lines = (process / "status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)
