"""`tiltframe.explain`: states and bytes predicted from a sample agree with those that the rows produce."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import aggr
from tests.command_line import call
from tiltframe import FrameStore, TiltFrame, explain, rollup

BEGIN, DAY = 1_700_006_400_000_000, 86_400_000_000  # a midnight, microseconds
MEASURES = {"n": aggr.count(), "bytes": aggr.sum("x"), "size": aggr.avg("x"), "p": aggr.dds("x"), "most": aggr.max("x")}


def rows_of_a_day(count: int, keys: int, seed: int, skewed: bool) -> pa.Table:
    """Rows in the order of their times, of keys that are alike, or of which few have most."""
    draws = np.random.default_rng(seed)
    key = (keys * draws.random(count) ** (3 if skewed else 1)).astype(int)
    names = pa.array([f"host-{i:05}" for i in range(keys)])
    times = pa.array(np.sort(draws.integers(0, DAY, count)) + BEGIN, pa.timestamp("us", "UTC"))
    return pa.table({"ts": times, "x": np.round(draws.lognormal(3, 1, count), 3), "k": names.take(pa.array(key))})


# each value once: how rows are drawn and how they are skewed act on different estimates
@pytest.mark.parametrize(("drawn", "skewed"), [("at random", True), ("an hour", False)])
@pytest.mark.long
def test_states_and_bytes_are_those_that_a_day_then_takes(skewed, drawn, tmp_path):
    frame = TiltFrame(["10s", "1m", "10m", "1h"], "ts", MEASURES, ["k"])
    rows = rows_of_a_day(800_000, 200, 3, skewed)
    chosen = np.random.default_rng(4).random(rows.num_rows) < 0.1
    sample = rows.filter(pa.array(chosen)) if drawn == "at random" else rows.slice(370_000, rows.num_rows // 24)
    capacity = explain(sample, frame, rows.num_rows, 200, {"10s": "2d"})
    store = FrameStore(str(tmp_path / "s"), frame)
    store.append(rollup(rows, frame), "w", 0)
    for level, level_in_store in zip(capacity.levels, store.inspect().levels, strict=True):
        assert level.states_per_day == pytest.approx(level_in_store.rows, rel=0.05), level
        assert level.bytes_per_day == pytest.approx(level_in_store.bytes, rel=0.35 if level.extrapolated else 0.2), (
            level
        )
    total = sum(level.bytes for level in store.inspect().levels)
    assert capacity.bytes_per_day == pytest.approx(total, rel=0.2)
    assert capacity.levels[0].retained_states == 2 * capacity.levels[0].states_per_day
    assert capacity.levels[1].retained_states == 365 * capacity.levels[1].states_per_day


@pytest.mark.slow
@pytest.mark.long
def test_files_are_those_of_as_many_commits_as_there_are(tmp_path):
    frame = TiltFrame(["10s", "1m", "1h"], "ts", MEASURES, ["k"])
    rows = rows_of_a_day(100_000, 20, 9, False)
    store = FrameStore(str(tmp_path / "s"), frame)
    times = rows["ts"].cast(pa.int64()).to_numpy()
    for quarter in range(4):
        chosen = (times - BEGIN) // (DAY // 4) == quarter
        store.append(rollup(rows.filter(pa.array(chosen)), frame), "w", quarter)
    files = sum(level.parts for level in store.inspect().levels)
    assert explain(rows, frame, commits_per_day=4).files_per_day == files == 4 * (6 + 1 + 1)


@pytest.mark.long
@pytest.mark.slow
def test_large_commits_write_a_file_for_each_table_of_a_task():
    from spark_udaf.plan.two_phase import MAX_STATE_BYTES

    frame = TiltFrame(["1m", "1h"], "ts", MEASURES, ["k"])
    rows = rows_of_a_day(200_000, 10, 5, False)
    few, many = (explain(rows, frame, 20_000 * keys, keys) for keys in (10, 10_000))
    minutes = rollup(rows, TiltFrame(["1m"], "ts", MEASURES, ["k"])).drop_columns("level").nbytes
    assert few.files_per_day == 2
    assert many.files_per_day == pytest.approx(2 * 1000 * minutes / MAX_STATE_BYTES, rel=0.03)


@pytest.mark.slow
@pytest.mark.long
def test_more_keys_are_like_those_of_the_sample():
    frame = TiltFrame(["1m", "1h"], "ts", MEASURES, ["k"])
    capacity = explain(rows_of_a_day(40_000, 10, 5, False), frame, 4_000_000, 1000)
    counted = rollup(rows_of_a_day(4_000_000, 1000, 6, False), frame).group_by("level").aggregate([([], "count_all")])
    for row, level in zip(counted.to_pylist(), capacity.levels, strict=True):
        assert level.states_per_day == pytest.approx(row["count_all"], rel=0.05), level


def test_other_keys_have_as_many_rows_as_those_of_the_sample():
    """The rate that follows from the sample is that of all keys, with more keys and with fewer."""
    frame = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}, ["k"])
    rows = rows_of_a_day(1000, 10, 5, False)
    alone = explain(rows, frame)
    for keys in (1000, 5):
        capacity = explain(rows, frame, keys=keys)
        assert capacity.rows_per_day == alone.rows_per_day * keys / 10
        assert capacity.levels[0].states_per_day == pytest.approx(alone.levels[0].states_per_day * keys / 10)


@pytest.mark.slow
def test_without_more_the_sample_is_what_comes():
    frame = TiltFrame(["1m", "1h"], "ts", MEASURES, ["k"])
    rows = rows_of_a_day(100_000, 50, 7, False)
    capacity = explain(rows, frame)
    assert capacity.rows_per_day == pytest.approx(100_000, rel=0.01)
    assert capacity.keys == 50
    assert capacity.core_seconds_per_day > 0
    assert [level.extrapolated for level in capacity.levels] == [False, False]
    assert capacity.levels[0].states_per_day == pytest.approx(
        rollup(rows, TiltFrame(["1m"], "ts", MEASURES, ["k"])).num_rows, rel=0.01
    )


@pytest.mark.parametrize("times", [[0], [0, 1_000, 2_000], [0, 0]])
def test_a_sample_with_one_session_is_refused(times):
    rows = pa.table({"ts": pa.array(times, pa.timestamp("ms", "UTC")), "k": ["a"] * len(times)})
    sessions = TiltFrame(["session(30m)"], "ts", {"n": aggr.count()}, ["k"])
    with pytest.raises(ValueError, match=r"(pass|longer)"):
        explain(rows, sessions)


def test_sessions_and_the_window_of_all_times():
    rows = rows_of_a_day(50_000, 20, 8, False)
    sessions = TiltFrame(["session(1m)"], "ts", {"n": aggr.count()}, ["k"])
    assert explain(rows, sessions).levels[0].states_per_day == pytest.approx(rollup(rows, sessions).num_rows, rel=0.02)
    all_times = explain(rows, TiltFrame(["1h", "all"], "ts", {"n": aggr.count()}, ["k"])).levels[1]
    assert (all_times.states_per_day, all_times.retained_states) == (0, 20)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"rows_per_day": 0}, "rows_per_day must be a number above 0; got 0"),
        ({"keys": "many"}, "keys must be a number above 0; got 'many'"),
        ({"retention": {"1d": "1d"}}, "no level '1d'"),
    ],
)
def test_wrong_numbers_are_refused(more, message):
    with pytest.raises(ValueError, match=message):
        explain(pa.table({"ts": [0, 60_000]}), TiltFrame(["1m"], "ts", {"n": aggr.count()}), **more)


def test_a_sample_without_a_rate_is_refused():
    frame = TiltFrame(["1m"], "ts", {"n": aggr.count()})
    for sample in ({"ts": [5, 5]}, {"ts": pa.array([], pa.int64())}):
        with pytest.raises(ValueError, match="rows at two or more different times"):
            explain(pa.table(sample), frame)


@pytest.mark.slow
def test_the_command_says_it_as_a_table_and_as_json(tmp_path, capfd):
    pq.write_table(rows_of_a_day(20_000, 10, 9, False), tmp_path / "sample.parquet")
    command = ["explain", str(tmp_path / "sample.parquet"), "--time", "ts", "--key", "k", "--measure", "p=dds(x)"]
    command += ["--levels", "1m,1h", "--rows-per-day", "2e6", "--key-count", "1000"]
    _, output, _ = call(capfd, *command)
    assert output.startswith("2,000,000 rows a day of 1,000 keys: ")
    assert [line.split()[0] for line in output.splitlines()[2:]] == ["level", "1m", "1h"]
    described = json.loads(call(capfd, *command, "--format", "json")[1])
    assert described["levels"][0]["bytes_per_state"].keys() == {"window and keys", "p"}
    status, _, errors = call(capfd, *command, "--retention", "1d=1d")
    assert (status, errors) == (2, "tiltframe: the frame has no level '1d'; it has 1m, 1h\n")


def test_a_struct_as_a_key_costs_as_much_as_its_fields():
    hosts, racks = [f"h{i % 7}" for i in range(5000)], [i % 3 for i in range(5000)]
    tags = [{"host": host, "in": {"rack": rack}} for host, rack in zip(hosts, racks, strict=True)]
    rows = pa.table({"ts": range(0, 5_000_000, 1000), "tags": tags, "host": hosts, "rack": racks})
    predicted = [
        explain(rows, TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}, keys)) for keys in (["tags"], ["host", "rack"])
    ]
    assert predicted[0].keys == predicted[1].keys == 21
    of_struct, of_fields = (capacity.levels[0].bytes_per_day for capacity in predicted)
    assert of_struct == pytest.approx(of_fields, rel=0.1)
