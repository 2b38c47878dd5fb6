"""The benchmarks run, check their results and write their files. Their speed is not tested; `make bench`
measures it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import aggr
from benchmarks import querying, storing
from benchmarks.account import costs_of_stages
from benchmarks.pictures import PICTURES, write_pictures
from benchmarks.stream_claims import events
from benchmarks.stream_crashes import StreamRuns, count_wrong_rows, crashes
from tiltframe import FrameStore, TiltFrame


@pytest.mark.spark
@pytest.mark.parametrize(("part", "options"), [("peers", []), ("spark_answers", ["--answers"])])
@pytest.mark.long
def test_figures_of_a_quick_run_can_be_plotted(part, options, tmp_path):
    out = tmp_path / f"{part}.json"
    command = [sys.executable, "-m", f"benchmarks.{part.partition('_')[0]}", "--quick", *options, "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert out.exists(), done.stderr[-2000:]
    figures = json.loads(out.read_text())
    assert figures["commit"]
    assert figures["machine"]
    assert {line["verdict"] for line in figures["must_hold"]} <= {"not judged", "not installed"}
    assert done.returncode == 0, done.stderr[-2000:]
    expected = [picture.name for picture in PICTURES if picture.figures == out.name]
    assert [file.name for file in write_pictures(tmp_path)] == expected != []


def test_wrong_results_of_a_side_fail_the_benchmark_of_writing(tmp_path):
    storing.write_day(tmp_path / "day", storing.RunSize(rows=4800, keys=3, rounds=1))
    _, _, program = storing.duckdb_command(tmp_path / "day", tmp_path)
    exec(program, {})
    storing.check("DuckDB", partial(storing.read_duckdb, tmp_path), tmp_path / "day")
    for name in storing.RESULTS:

        def wrong(level, name=name):
            results = storing.read_duckdb(tmp_path, level)
            at = results.schema.get_field_index(name)
            return results.set_column(at, name, pc.multiply(results[name].cast(pa.float64()), 1.1))

        with pytest.raises(ValueError, match=f"{'medians' if name == 'median' else name} of .* differ"):
            storing.check("DuckDB", wrong, tmp_path / "day")
    with pytest.raises(ValueError, match="the windows or keys of 1m differ"):
        storing.check("DuckDB", lambda level: storing.read_duckdb(tmp_path, level).slice(1), tmp_path / "day")


class _Results(querying.System):
    """A system that returns fixed results."""

    def __init__(self, **changed):
        self._table = pa.table({"t": [0, 60], "host": ["a", "b"], "n": [1, 2], "avg": [0.5, 2.0]} | changed)

    def ask(self, panel):
        return self._table.set_column(0, "t", self._table["t"].cast(pa.timestamp("s", "UTC")))


def test_wrong_results_of_a_system_fail_the_benchmark_of_queries():
    panel, right = querying.Panel("1m", 1, None, ["n", "avg"]), _Results()
    assert querying.check({"one": right, "other": _Results(avg=[0.5, 2.0 + 1e-12])}, [panel]) == 2
    for name, values in {"t": [0, 61], "host": ["a", "c"], "n": [1, 3], "avg": [0.5, 2.1]}.items():
        with pytest.raises(ValueError, match=f"one and other: .* the columns {name} differ"):
            querying.check({"one": right, "other": _Results(**{name: values})}, [panel])


@pytest.mark.long
def test_a_killed_stream_of_the_benchmark_counts_each_row_once():
    figures, limits = crashes((events(second, 1_000) for second in range(600)), kills=1)
    assert figures["kills"] == 1
    assert figures["rows"] == 600_000
    assert [line.got for line in limits if line.most == 0] == [0]


@pytest.mark.slow
@pytest.mark.parametrize("kill_after", [None, 0.1])
def test_the_benchmark_of_crashes_ends_if_the_stream_fails(kill_after, tmp_path):
    runs = StreamRuns(tmp_path / "missing", tmp_path)
    with pytest.raises(AssertionError, match="the stream failed with status 2"):
        runs.run(kill_after)


def test_the_benchmark_of_crashes_counts_wrong_rows(tmp_path):
    measures = {"n": aggr.count(), "total": aggr.sum("k")}
    store = FrameStore(tmp_path, TiltFrame(["10s", "1m", "10m", "1h"], "ts", measures, ["k"]))
    store.append_rows(events(0, 100), "w", 1)
    total = int(pc.sum(events(0, 100)["k"]).as_py())
    assert count_wrong_rows(tmp_path, (100, total)) == 0
    assert count_wrong_rows(tmp_path, (101, total)) == 4  # one row is lost at each of four levels
    assert count_wrong_rows(tmp_path, (100, total + 1)) == 4


def _started(query, *stages):
    return {
        "Event": "SparkListenerJobStart",
        "Properties": {"spark.sql.execution.id": query},
        "Stage IDs": list(stages),
    }


def _task(stage, begin, end, written=0, read=(0, 0), sent=0):
    moved = {"Remote Bytes Read": read[0], "Local Bytes Read": read[1]}
    return {
        "Event": "SparkListenerTaskEnd",
        "Stage ID": stage,
        "Task Info": {
            "Launch Time": begin,
            "Finish Time": end,
            "Accumulables": [
                {"Name": "data sent to Python workers", "Update": str(sent)},
                {"Name": "rows", "Update": 9},
            ],
        },
        "Task Metrics": {"Shuffle Write Metrics": {"Shuffle Bytes Written": written}, "Shuffle Read Metrics": moved},
    }


def _completed(stage, begin, end):
    info = {"Stage ID": stage, "Submission Time": begin, "Completion Time": end}
    return {"Event": "SparkListenerStageCompleted", "Stage Info": info}


def test_the_account_is_of_the_last_query_whose_jobs_run_a_stage_each():
    events = [
        *(_started("1", 0), _task(0, 0, 9000, written=5), _completed(0, 0, 9000)),
        *(_started("2", 1), _task(1, 10_000, 12_500, written=7), _task(1, 10_000, 11_000, written=4)),
        _completed(1, 10_000, 12_600),
        *(_started("2", 2, 3), _task(3, 13_000, 14_000, read=(8, 3), sent=11), _completed(3, 12_900, 14_100)),
    ]  # stage 2 was skipped
    first, second = costs_of_stages(events)
    assert (first["seconds"], first["task seconds"]) == (2.6, [1.0, 2.5])
    assert (second["seconds"], second["task seconds"]) == (1.2, [1.0])
    assert first["bytes"]["shuffle written"] == second["bytes"]["shuffle read"] == 11
    assert second["bytes"]["data sent to Python workers"] == 11
