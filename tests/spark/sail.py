"""Sail gives the bits of local code for the jobs of `tests.engines`, and features without support are rejected by name.

python tests/spark/sail.py    in an environment with the extras sail, delta and sketches, and without Java
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import aggr  # noqa: E402
import spark_udaf as su  # noqa: E402
from spark_udaf.sail import sail_session  # noqa: E402
from tests import engines, same_bits  # noqa: E402
from tiltframe import FrameStore, TiltFrame, rollup  # noqa: E402


def run_engine(*words: str) -> list[tuple[str, Any]]:
    """Run the jobs of all engines."""
    command = [sys.executable, "-m", "tests.engines", "sail", *words]
    path = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(command, env=path, capture_output=True, text=True, check=False, timeout=600)
    answers = [
        line.split(" ", 1) for line in done.stdout.splitlines() if line.startswith(("digests", "others", "store"))
    ]
    assert done.returncode == 0, done.stderr[-3000:]
    return [(kind, json.loads(text)) for kind, text in answers]


def refused(what: Callable[[], Any]) -> None:
    """Check that a job is refused before it starts."""
    sentence = ""
    try:
        what()
    except ValueError as error:
        sentence = str(error)
    assert "cannot run on Sail" in sentence, sentence


def check_jobs(folder: Path) -> None:
    """Compare batch jobs with local code."""
    file, table = folder / "rows.parquet", engines.rows()
    pq.write_table(table, file)
    in_order = engines.local_digests(pq.read_table(engines.write_in_order(str(file))))
    digests = [engines.local_digests(table)] * 2
    expected = [
        *(("digests", digest) for digest in [*digests, in_order]),
        ("others", engines.local_results_of_other_ways(table)),
    ]
    assert run_engine(str(file), "1", "5") == expected


def check_stores(folder: Path) -> None:
    """Compare stores that jobs fill with one that local code fills."""
    file, table = folder / "fewer.parquet", engines.rows(6000)
    pq.write_table(table, file, row_group_size=1500)
    local = FrameStore(folder / "local", engines.STORE_FRAME)
    local.append(rollup(table, engines.STORE_FRAME), "w", 1)
    ((_, answer),) = run_engine(str(file), "store", str(folder))
    assert answer["new"] == [True, True, True, False]
    assert answer["stores"] == dict.fromkeys(["rows", "files", "states"], engines.digests_of_store(local))


def check_bits(folder: Path) -> None:
    """Compare the digests of this engine with those of all versions of Spark."""
    with sail_session() as spark:
        differences = same_bits.differences(same_bits.digests_of_engine(spark, folder, "sail"), "sail")
    assert differences == [], differences


def check_refusals() -> None:
    """Ask for what Sail cannot run."""
    frame = TiltFrame(["1m"], "timestamp", {"n": aggr.count()})
    with sail_session() as spark:
        rows, stream = spark.range(3).selectExpr("id", "now() AS timestamp"), spark.readStream.format("rate").load()
        refused(lambda: su.read(spark, "nowhere", per="1m"))
        refused(lambda: su.running(rows, {"n": aggr.sum("id")}, "count(2)", time="timestamp"))
        refused(lambda: su.stream(stream, frame))
        refused(lambda: su.scan_parquet_stream(spark, "nowhere"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        check_jobs(Path(folder))
        check_stores(Path(folder))
        (Path(folder) / "bits").mkdir()
        check_bits(Path(folder) / "bits")
    check_refusals()
    print("Sail: the bits of local code, and what it cannot run is refused")
