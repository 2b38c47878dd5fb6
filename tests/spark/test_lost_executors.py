"""Executors killed in each stage, tasks run twice, and drivers killed at each point of a commit give the same bits,
counted once.

By default, a few points are tested; with TRIALS in the environment, all of them, which takes some minutes.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from aggr.arrow.bit_equality import digest
from tests import engines
from tests.engines import ORDER, digests_of_store
from tests.spark.disturbances import FRAME, IN_A_TASK, POINTS
from tiltframe import FrameStore, rollup

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
CLUSTER = "local-cluster[2,1,1024]"
EVERY = "TRIALS" in os.environ  # each moment, and not a few
AFTER_IT = ["the log has the commit", "the head is noted"]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Rows in the order of time, whose windows most tasks have to themselves, for four tasks."""
    path = str(tmp_path_factory.mktemp("rows") / "rows.parquet")
    pq.write_table(engines.rows(6000), path)
    return engines.write_in_order(path)


@pytest.fixture(scope="module")
def local_digests(file, tmp_path_factory):
    """What local code gives: the states, and what a store holds."""
    states = rollup(pq.read_table(file), FRAME).sort_by(ORDER)
    store = FrameStore(tmp_path_factory.mktemp("local"), FRAME)
    store.append(states, "w", 1)
    return {
        "states": {name: digest(states.column(name)) for name in states.column_names},
        "store": digests_of_store(store),
    }


def disturbed(master, file, folder, *runs):
    """Do runs in a driver of its own; return what came of each, and the ends of all tasks."""
    command = [sys.executable, "-m", "tests.spark.disturbances", "executors", master, file, str(folder), *runs]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=ENVIRONMENT, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    digests_of_runs = [json.loads(line[4:]) for line in done.stdout.splitlines() if line.startswith("run ")]
    assert [run for run, _ in digests_of_runs] == list(runs)
    (log,) = Path(folder).glob("app-*")
    events = [json.loads(line) for line in log.read_text().splitlines()]
    return digests_of_runs, [event for event in events if event["Event"] == "SparkListenerTaskEnd"]


def stages_of(folder, what):
    """The stages in which it was noted that something has happened."""
    return {int(mark.name.split("-")[1]) for mark in Path(folder).glob(f"{what}-*")}


LOST = ["store,1,kill,end"]
if EVERY:
    LOST = [f"{what},{stage},kill,{at}" for what in ("states", "store") for stage in (0, 1) for at in (0, 1, "end")]


@pytest.mark.long
def test_executors_killed_in_each_stage_change_no_bit(file, local_digests, tmp_path):
    digests_of_runs, tasks = disturbed(CLUSTER, file, tmp_path, *LOST)
    for run, digests in digests_of_runs:
        assert digests == local_digests[run.split(",")[0]], run
    lost = {
        (task["Stage ID"], task["Task Info"]["Partition ID"]) for task in tasks if reason(task) == "ExecutorLostFailure"
    }
    killed = [stages_of(tmp_path / str(number), "first") for number in range(len(LOST))]
    assert all(len(stages) == 1 and {(stage, 0) for stage in stages} <= lost for stages in killed)
    assert "FetchFailed" in map(reason, tasks)  # what a killed executor had shuffled was computed again


def reason(task):
    return task["Task End Reason"]["Reason"]


@contextmanager
def two_hosts(folder: Path) -> Iterator[str]:
    """A cluster of two workers at addresses of their own: a task runs twice on two hosts only."""
    import pyspark

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    master, spark_class = f"spark://127.0.0.1:{port}", Path(pyspark.__file__).parent / "bin" / "spark-class"
    words = {"Master": ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]}
    for number in (2, 3):
        words[f"Worker {number}"] = [master, "--host", f"127.0.0.{number}", "--cores", "1", "--memory", "1g"]
        words[f"Worker {number}"] += ["--webui-port", "0", "--work-dir", str(folder / "work")]
    environment = ENVIRONMENT | {"SPARK_DAEMON_MEMORY": "256m", "SPARK_HOME": str(spark_class.parents[1])}
    with ExitStack() as running:
        output = running.enter_context((folder / "said").open("w"))
        for name, arguments in words.items():
            kind = name.split()[0]
            command = [spark_class, f"org.apache.spark.deploy.{kind.lower()}.{kind}", *arguments]
            process = subprocess.Popen(command, stdout=output, stderr=output, env=environment, start_new_session=True)
            running.callback(process.wait)
            running.callback(os.killpg, process.pid, signal.SIGTERM)
        yield master


TWICE = ["store,1,twin,end"]
if EVERY:
    TWICE = ["states,0,twin,end", "states,1,twin,0", "store,0,twin,end", "store,1,twin,0", *TWICE]


@pytest.mark.long
def test_tasks_that_run_twice_count_once(file, local_digests, tmp_path):
    """The first attempt of a task waits until another has done, and written, the same."""
    with two_hosts(tmp_path) as master:
        (tmp_path / "log").mkdir()
        digests_of_runs, tasks = disturbed(master, file, tmp_path / "log", *TWICE)
    for number, (run, digests) in enumerate(digests_of_runs):
        assert digests == local_digests[run.split(",")[0]], run
        (stage,) = stages_of(tmp_path / "log" / str(number), "again")
        assert [t for t in tasks if t["Stage ID"] == stage and t["Task Info"]["Speculative"]], run
    store = FrameStore(tmp_path / "log" / f"store-{len(TWICE) - 1}")
    assert store.backend.vacuum(0) > 0  # what the other attempt had written
    assert digests_of_store(store) == local_digests["store"]


def drive(file, place, *point):
    """Roll up into a store in a driver of its own; return its exit status."""
    command = [sys.executable, "-m", "tests.spark.disturbances", "driver", "classic", file, str(place), *point]
    driver = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=ROOT,
        env=ENVIRONMENT,
        start_new_session=True,
        text=True,
    )
    output, _ = driver.communicate()
    assert driver.returncode == (-signal.SIGKILL if point else 0), output[-3000:]


CHAINS = {"in a task": [IN_A_TASK]}
if EVERY:  # in each chain every driver comes to its point: a store is made once, and so is a commit
    CHAINS["from the first"] = [*list(POINTS)[:2], IN_A_TASK, *list(POINTS)[3:6]]
    CHAINS["others"] = ["there is a store", "the head is noted"]
    CHAINS["after it"] = ["the log has the commit"]


@pytest.mark.parametrize("points", CHAINS.values(), ids=CHAINS)
@pytest.mark.long
def test_drivers_killed_at_each_point_of_a_commit_lose_nothing(points, file, local_digests, tmp_path):
    """Each driver goes on in the store that the last one left, and the last is left to its end."""
    for point in points:
        drive(file, tmp_path / "s", point)
        last_commit = FrameStore(tmp_path / "s", FRAME).last_commit("w")
        assert last_commit == (1 if point in AFTER_IT else None), point
        assert last_commit is None or digests_of_store(FrameStore(tmp_path / "s")) == local_digests["store"], point
    drive(file, tmp_path / "s")
    store = FrameStore(tmp_path / "s")
    assert digests_of_store(store) == local_digests["store"]
    assert store.backend.vacuum(0) > 0 or IN_A_TASK not in points  # what the killed one's tasks had written
    assert digests_of_store(store) == local_digests["store"]
