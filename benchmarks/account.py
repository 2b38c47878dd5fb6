"""Print the seconds of each stage and task of a Spark job that rolls up files to results, from Spark's event log.

python -m benchmarks.account [--rows 20000000] [--out FILE]
"""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aggr.bench.timing import circumstances

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.data_sets import DataSet

RUNS = 3  # only the last run is reported, because earlier runs start workers and compile loops
PYTHON_METRICS = "data sent to Python workers", "data returned from Python workers"


@click.command()
@click.option("--rows", default=20_000_000, help="The number of rows, in 36,000 windows of the finest level.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures to this JSON file.")
def main(rows: int, out: Path | None) -> None:
    """Roll up files to the results of nine functions at four levels. Print the seconds of each stage and of its tasks,
    and the bytes that the stage moves.
    """
    from benchmarks.data_sets import INTEGER_KEYS, TEXTS

    stages = {data_set.name: costs_of_stages(logged_events(data_set, rows)) for data_set in (TEXTS, INTEGER_KEYS)}
    for name, stages_of_data_set in stages.items():
        click.echo(name)
        for stage in stages_of_data_set:
            seconds = ", ".join(f"{s:.2f}" for s in stage["task seconds"])
            byte_texts = ", ".join(f"{name} {size / 2**20:.1f} MiB" for name, size in stage["bytes"].items() if size)
            click.echo(f"  {stage['name']}: {stage['seconds']:.2f} s, tasks of {seconds} s; {byte_texts}")
    if out is not None:
        out.write_text(json.dumps({**circumstances(("pyspark", "pyarrow")), "rows": rows, "stages": stages}, indent=1))


def logged_events(data_set: DataSet, rows: int) -> list[dict[str, Any]]:
    """Run the job that rolls up files `RUNS` times in a new Spark session, and return the events in Spark's event log
    as dicts.
    """
    import spark_udaf as su
    from benchmarks.jobs import LEVELS, frame, run_and_discard, write_rows
    from spark_udaf.plan.session import local_session

    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder) / "rows"
        logs = Path(folder) / "log"
        logs.mkdir()
        write_rows(files, rows, 36_000, data_set)
        settings = {
            "spark.sql.shuffle.partitions": "4",
            "spark.driver.memory": "4g",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": logs.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
        }
        spark = local_session("account", settings)
        for _ in range(RUNS):
            scan = su.scan_parquet(spark, str(files))
            run_and_discard(su.finish(su.rollup(scan, frame(LEVELS, data_set)), frame(LEVELS, data_set)))
        spark.stop()
        (log,) = (path for path in logs.rglob("*") if path.is_file())
        return [json.loads(line) for line in log.read_text().splitlines()]


def costs_of_stages(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one dict for each stage of the last query in an event log, in the order of the stages. The dict contains
    the name of the stage, its elapsed ``seconds``, the ascending ``task seconds``, and ``bytes``: a dict from a kind,
    such as "shuffle read", to a number of bytes.
    """
    # The ids of the stages of each query, by the id of the query. Adaptive execution starts several jobs for one query,
    # and the stages of all its jobs are collected.
    queries: dict[str, list[int]] = defaultdict(list)
    stages: dict[int, dict[str, Any]] = {}
    tasks: dict[int, list[float]] = defaultdict(list)
    bytes_of_stages: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for event in events:
        if event["Event"] == "SparkListenerJobStart":
            queries[event["Properties"]["spark.sql.execution.id"]] += event["Stage IDs"]
        elif event["Event"] == "SparkListenerStageCompleted":
            stages[event["Stage Info"]["Stage ID"]] = event["Stage Info"]
        elif event["Event"] == "SparkListenerTaskEnd":
            info = event["Task Info"]
            metrics = event.get("Task Metrics") or {}
            stage = event["Stage ID"]
            tasks[stage].append((info["Finish Time"] - info["Launch Time"]) / 1000)
            bytes_of_stages[stage]["shuffle written"] += metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"]
            bytes_of_stages[stage]["shuffle read"] += sum(
                metrics["Shuffle Read Metrics"][f"{source} Bytes Read"] for source in ("Remote", "Local")
            )
            for accumulable in info["Accumulables"]:
                if accumulable.get("Name") in PYTHON_METRICS:
                    bytes_of_stages[stage][accumulable["Name"]] += int(accumulable["Update"])
    return [
        {
            "name": f"stage {number}",
            "seconds": (stages[stage]["Completion Time"] - stages[stage]["Submission Time"]) / 1000,
            "task seconds": sorted(tasks[stage]),
            "bytes": dict(bytes_of_stages[stage]),
        }
        for number, stage in enumerate(sorted({stage for stage in list(queries.values())[-1] if stage in stages}))
    ]


if __name__ == "__main__":
    main()
