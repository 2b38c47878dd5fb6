"""A function of another distribution can be used everywhere: registry, calls, frames, command line, Spark and SQL."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "aggr_geomean"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Build and install the example, as a user would, into a folder of its own."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    copy = [sys.executable, "-c", f"import shutil; shutil.copytree({str(EXAMPLE)!r}, {str(source / 'copy')!r})"]
    subprocess.run(copy, check=True)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--target", str(target)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source / "copy")], check=True)
    return os.environ | {"PYTHONPATH": str(target)}


def run(code: str, environment: dict[str, str]) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.long
@pytest.mark.slow
def test_calls_and_frames_know_it(installed):
    code = """
import aggr, pyarrow as pa
from tiltframe import TiltFrame, finish, rollup
assert {"geomean", "prefix"} <= set(aggr.names()), aggr.names()
frame = TiltFrame(["1s", "1m"], "ts", {"g": aggr.geomean("x"), "p": aggr.prefix("s")})
rows = pa.table({"ts": [0, 1500], "x": [2.0, 8.0], "s": ["/var/a", "/var/b"]})
print(finish(rollup(rows, frame), frame).filter(pa.compute.field("level") == "1m").select(["g", "p"]).to_pylist())
"""
    assert "[{'g': 4.0, 'p': '/var/'}]" in run(code, installed).replace("3.9999999999999996", "4.0")


@pytest.mark.slow
@pytest.mark.long
def test_the_command_line_knows_it(installed, tmp_path):
    (tmp_path / "rows.csv").write_text("ts,x\n2024-01-01T00:00:00,2\n2024-01-01T00:00:30,8\n")
    cli = [sys.executable, "-m", "tiltframe.cli"]
    listed = subprocess.run([*cli, "functions"], capture_output=True, text=True, env=installed, check=True).stdout
    assert "geomean" in listed
    assert "prefix" in listed
    store = str(tmp_path / "store")
    rollup_command = [
        *cli,
        "rollup",
        str(tmp_path / "rows.csv"),
        "--time",
        "ts",
        "--measure",
        "g=geomean(x)",
        "--levels",
        "1m",
    ]
    subprocess.run([*rollup_command, "--store", store], check=True, env=installed, capture_output=True)
    query_command = [*cli, "query", store, "--per", "1m", "--format", "json"]
    out = subprocess.run(query_command, check=True, env=installed, capture_output=True, text=True).stdout
    assert '"g":4.0' in out.replace(" ", "").replace("3.9999999999999996", "4.0")


@pytest.mark.spark
@pytest.mark.long
def test_spark_and_sql_know_it(installed):
    code = """
import aggr, math
import spark_udaf as su
from spark_udaf import functions as A
from tests.engines import session
with session("classic") as spark:
    df = spark.createDataFrame([("a", 2.0, "xy"), ("a", 8.0, "xz"), ("b", 5.0, "q")], "k string, x double, s string")
    assert "geomean" in dir(A)
    rows = df.groupBy("k").agg(A.geomean("x"), A.prefix("s")).orderBy("k").collect()
    assert math.isclose(rows[0][1], 4.0) and rows[0][2] == "x" and rows[1][2] == "q", rows
    su.register(spark)
    df.createOrReplaceTempView("rows")
    states = "(SELECT k, aggr_geomean_state(x) s FROM rows GROUP BY k)"
    asked = f"SELECT aggr_geomean_finish(aggr_geomean_merge(s)) FROM {states}"
    assert math.isclose(spark.sql(asked).first()[0], 80 ** (1 / 3))
    assert spark.sql("SELECT aggr_prefix(s) FROM rows").first()[0] == ""
    prefixes = "(SELECT k, aggr_prefix_state(s) s FROM rows GROUP BY k)"
    starts = f"SELECT k, aggr_prefix_starts_with(s, 'x') FROM {prefixes} ORDER BY k"
    assert [tuple(row) for row in spark.sql(starts).collect()] == [("a", True), ("b", False)]
    of_states = su.aggregate(df, ["k"], {"p": aggr.prefix("s")}).orderBy("k")
    read = of_states.select(su.states.read_accessor("p", "starts_with", "q"))
    assert [row[0] for row in read.collect()] == [False, True]
    measures = {"g": aggr.geomean("x"), "p": aggr.prefix("s")}
    states = su.aggregate(df, ["k"], measures)
    assert math.isclose(su.finish(su.merge(states, []), measures).first().g, 80 ** (1 / 3))
print("all there")
"""
    assert "all there" in run(code, installed)


@pytest.mark.slow
def test_a_broken_distribution_is_named_and_left_out(installed, tmp_path):
    folder = tmp_path / "aggr_broken-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: aggr-broken\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[aggr.functions]\nbroken = aggr_not_there:Broken\nint = builtins:int\n")
    environment = installed | {"PYTHONPATH": os.pathsep.join([installed["PYTHONPATH"], str(tmp_path)])}
    code = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import aggr
    assert "geomean" in aggr.names() and "broken" not in aggr.names()
for warning in caught: print(warning.message)
"""
    said = run(code, environment)
    assert "'broken' of aggr-broken cannot be loaded, and is not available: No module named 'aggr_not_there'" in said
    assert (
        "the function 'int' of aggr-broken cannot be loaded, and is not available: register takes a subclass of "
        "aggr.Function; got the class int" in said
    )


def test_a_function_of_the_notebook_travels_with_its_frame():
    """A frame is pickled with its functions themselves, not by names that another process may not know."""
    import pickle

    import aggr
    from tiltframe import TiltFrame

    frame = TiltFrame(["1s"], "ts", {"v": aggr.var("x", 0)}, ["k"], "Europe/Paris")
    aggr.unregister("var")
    try:
        again = pickle.loads(pickle.dumps(frame))
    finally:
        aggr.register(aggr.Var)
    assert again == frame
    assert again.states[0].measure == frame.states[0].measure


@pytest.mark.store
def test_a_store_of_a_function_that_is_not_installed_says_so(tmp_path, capfd):
    """Nothing calls it damaged, in Python and on the command line, and it opens once the function is there."""
    from dataclasses import dataclass

    import pyarrow as pa

    import aggr
    from tiltframe import FrameStore, StoreError, TiltFrame, rollup
    from tiltframe.cli import main

    @dataclass(frozen=True)
    class Smallest(aggr.Min):
        name = "least_of_mine"

    aggr.register(Smallest)
    frame = TiltFrame(["1m"], "ts", {"low": aggr.caller("least_of_mine")("x")})
    FrameStore(str(tmp_path / "s"), frame).append(rollup(pa.table({"ts": [0], "x": [1]}), frame), "w", 1)
    aggr.unregister("least_of_mine")
    message = "a function that is not installed here: the measure 'low': there is no function 'least_of_mine'; install"
    with pytest.raises(StoreError, match=message) as error:
        FrameStore(str(tmp_path / "s"))
    assert "damaged" not in str(error.value)
    for command in ("query", "inspect", "check"):
        with pytest.raises(SystemExit):
            main([command, str(tmp_path / "s"), *(["--per", "1m"] if command == "query" else [])])
        assert message in capfd.readouterr().err
    aggr.register(Smallest)
    try:
        assert FrameStore(str(tmp_path / "s")).query("1m")["low"].to_pylist() == [1]
    finally:
        aggr.unregister("least_of_mine")


@pytest.mark.store
def test_a_store_whose_function_refuses_its_parameters_now_is_not_called_damaged(tmp_path):
    from dataclasses import dataclass

    import pyarrow as pa

    import aggr
    from tiltframe import FrameStore, StoreError, TiltFrame, rollup

    @dataclass(frozen=True)
    class Smallest(aggr.Min):
        name = "least_of_mine"
        floor: int = 0

    @dataclass(frozen=True)
    class Strict(Smallest):
        def __post_init__(self):
            if self.floor > 5:
                raise ValueError(f"floor must be at most 5; got {self.floor}")

    aggr.register(Smallest)
    frame = TiltFrame(["1m"], "ts", {"low": aggr.caller("least_of_mine")("x", floor=7)})
    FrameStore(str(tmp_path / "s"), frame).append(rollup(pa.table({"ts": [0], "x": [1]}), frame), "w", 1)
    aggr.unregister("least_of_mine")
    aggr.register(Strict)
    try:
        with pytest.raises(StoreError, match=r"its frame cannot be created here: .*floor must be at most 5"):
            FrameStore(str(tmp_path / "s"))
    finally:
        aggr.unregister("least_of_mine")
