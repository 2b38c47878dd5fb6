"""Windows whose rows are read by a single task are merged into coarser levels before the shuffle, with the
same bits.
"""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import aggr
from spark_udaf.plan.exclusive_times import exclusive_times, time_bounds_of
from spark_udaf.plan.shard_messages import Content, read_message, spread_messages
from spark_udaf.plan.shards import choose_shuffle_keys
from tiltframe import TiltFrame, finish, rollup
from tiltframe.event_time import event_times
from tiltframe.level_chain import climb, climb_within, join_levels
from tiltframe.merged_windows import merge_panes
from tiltframe.reducing import reduce_rows

SECOND = 1_000_000


@pytest.mark.parametrize("seed", range(200))
def test_no_other_task_has_rows_there_and_more_would_meet_one(seed):
    rng = np.random.default_rng(seed)
    low = rng.integers(0, 40, rng.integers(1, 7))
    spans = [(int(a), int(a + n)) for a, n in zip(low, rng.integers(0, 12, len(low)), strict=True)]
    for number, exclusive in enumerate(exclusive_times(spans)):
        times_of_others = {t for other, (a, b) in enumerate(spans) for t in range(a, b + 1) if other != number}
        first_time = spans[number][0]
        if exclusive is None:
            assert first_time in times_of_others
            continue
        start, end = exclusive
        assert start <= spans[number][1]
        assert end > first_time
        inside = range(max(start, -1), min(end, 60))
        assert not times_of_others & set(inside)
        assert start - 1 in times_of_others or not any(t < start for t in times_of_others)
        assert end in times_of_others or not any(t >= end for t in times_of_others)


TIMES = [dt.datetime(1969, 12, 31, 23, 59, 59, 998500), dt.datetime(2024, 5, 1), dt.datetime(1970, 1, 1, 0, 0, 7)]
TYPES = {
    **{unit: pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")},
    **{f"{unit}, zone": pa.timestamp(unit, "Asia/Tokyo") for unit in ("s", "ms", "us", "ns")},
    "date": pa.date32(),
    "date of 64 bits": pa.date64(),
}


def fragment(tmp_path, table, **options):
    pq.write_table(table, tmp_path / "rows.parquet", **options)
    (only_fragment,) = ds.dataset(tmp_path / "rows.parquet").get_fragments()
    return only_fragment


def column(dtype):
    units = {"s": 1, "ms": 1000, "us": SECOND, "ns": 1000 * SECOND}
    seconds = [(t - dt.datetime(1970, 1, 1)).total_seconds() for t in TIMES]
    if pa.types.is_timestamp(dtype):
        return pa.array([int(np.floor(s * units[dtype.unit])) for s in seconds]).cast(dtype)
    return pa.array([t.date() for t in TIMES]).cast(dtype)


@pytest.mark.parametrize("name", TYPES)
def test_statistics_tell_the_least_and_the_greatest_time(tmp_path, name):
    times = column(TYPES[name])
    table = pa.table({"part": [{"a": 1, "b": 2}] * 3, "ts": times, "x": [1, 2, 3]})
    file = fragment(tmp_path, table)
    expected = event_times(ds.dataset(file.path).to_table()["ts"], "ts")
    read_as = file.physical_schema.field("ts").type
    assert time_bounds_of([(file, 0)], "ts", read_as) == (expected.min(), expected.max())
    assert time_bounds_of([(file, 0)], "part", pa.int64()) is None
    assert time_bounds_of([(file, 0)], "absent", read_as) is None


def test_whole_numbers_are_milliseconds_and_groups_are_united(tmp_path):
    file = fragment(tmp_path, pa.table({"ts": [5, 7, 9, -1, 4, 3]}), row_group_size=2)
    assert [time_bounds_of([(file, g)], "ts", pa.int64()) for g in range(3)] == [
        (5000, 7000),
        (-1000, 9000),
        (3000, 4000),
    ]
    assert time_bounds_of([(file, 0), (file, 2)], "ts", pa.int64()) == (3000, 7000)


def test_one_group_of_which_nothing_is_known_leaves_all_unknown(tmp_path):
    files = []
    for number, has_statistics in enumerate((True, False, True)):
        (tmp_path / str(number)).mkdir()
        files.append(fragment(tmp_path / str(number), pa.table({"ts": [number, 9]}), write_statistics=has_statistics))
    assert time_bounds_of([(files[0], 0), (files[2], 0)], "ts", pa.int64()) == (0, 9000)
    assert time_bounds_of([(file, 0) for file in files], "ts", pa.int64()) is None


UNTOLD = {
    "no statistics": (pa.array([1, 2]), {"write_statistics": False}),
    "texts": (pa.array(["2024-05-01", "2024-05-02"]), {}),
    "96 bits": (pa.array([1, 2]).cast(pa.timestamp("us")), {"use_deprecated_int96_timestamps": True}),
    "floats": (pa.array([1.0, 2.0]), {}),
    "beyond what Python knows": (pa.array([1, 2**62]).cast(pa.timestamp("ms")), {}),
    "beyond microseconds": (pa.array([1, 2**62]), {}),
    "nothing but nulls": (pa.array([None, None], pa.timestamp("us")), {}),
}


@pytest.mark.parametrize("name", UNTOLD)
def test_where_nothing_is_told_nothing_is_known(tmp_path, name):
    times, options = UNTOLD[name]
    file = fragment(tmp_path, pa.table({"ts": times}), **options)
    assert time_bounds_of([(file, 0)], "ts", file.physical_schema.field("ts").type) is None


NINE = {name: getattr(aggr, name)("x") for name in ("count", "min", "max", "sum", "avg", "var", "stdev")}
MEASURES = NINE | {"dds": aggr.dds("x", [0.5, 0.99]), "hdr": aggr.hdr("x", [0.5], unit=0.01), "first": aggr.first("x")}
FRAMES = {
    "seconds to an hour": TiltFrame(["10s", "1m", "10m", "1h"], "ts", MEASURES, ["host"]),
    "one level": TiltFrame(["1m"], "ts", MEASURES, ["host"]),
    "a clock that is put forward": TiltFrame(["15m", "1h", "1d"], "ts", MEASURES, ["host"], "Europe/Berlin"),
    "no keys": TiltFrame(["1s", "1m"], "ts", MEASURES),
}


def rows(n, seed, hours=30):
    rng = np.random.default_rng(seed)
    begin = 1_711_800_000 * SECOND  # 2024-03-30 12:00, the day before the clock is put forward in Berlin
    return pa.table(
        {
            "ts": pa.array(np.sort(begin + rng.integers(0, hours * 3600, n) * SECOND)).cast(pa.timestamp("us", "UTC")),
            "host": pa.array(rng.choice(["a", "b", None], n)),
            "x": rng.lognormal(3, 1, n),
        }
    )


def spans(tables):
    times = [table["ts"].cast(pa.int64()).to_numpy() for table in tables]
    return [(int(t.min()), int(t.max())) for t in times]


def climbed(tables, frame):
    """Climb within what each table alone has, then with what is left; each window comes once."""
    finished, left = [], [[] for _ in frame.levels]
    for table, alone in zip(tables, exclusive_times(spans(tables)), strict=True):
        states = merge_panes(reduce_rows(table, frame), frame)
        finished_and_rest = climb_within(states, frame, *(alone or (0, 0)))
        finished.append(join_levels(finished_and_rest[0], frame))
        for states, remaining in zip(left, finished_and_rest[1], strict=True):
            states.append(remaining)
    finest, *coarser = map(pa.concat_tables, left)
    late = join_levels(climb(merge_panes(finest, frame), frame, coarser), frame)
    return finished, late


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
@pytest.mark.parametrize("seed", range(6))
def test_climbing_before_and_after_gives_the_same_states(frame, seed):
    rng, all_rows = np.random.default_rng(seed), rows(3000, seed, hours=[1, 3, 30][seed % 3])
    cuts = np.sort(rng.choice(np.arange(1, 3000), 4, replace=False))
    tables = [all_rows.slice(a, b - a) for a, b in zip([0, *cuts], [*cuts, 3000], strict=True)]
    if seed % 2:  # two tasks of the same times, and one of none but its own
        both = tables[1].num_rows // 2
        tables[1:2] = [tables[1].take(np.arange(half, tables[1].num_rows, 2)) for half in (0, 1)] if both else []
    finished, late = climbed(tables, frame)
    order = [("level", "ascending"), ("window_start", "ascending"), *((key, "ascending") for key in frame.keys)]
    all_states = pa.concat_tables([*finished, late]).combine_chunks().sort_by(order)
    assert all_states.equals(rollup(pa.concat_tables(tables), frame).combine_chunks().sort_by(order))
    early = sum(table.num_rows for table in finished)
    assert early > all_states.num_rows / 3 or seed != 2  # thirty hours in five tasks, one after the other
    assert early < all_states.num_rows


@pytest.mark.parametrize(("rows", "partitions"), [(0, 2), (1, 3), (10, 1), (2001, 2), (4000, 2), (9999, 3)])
def test_results_are_spread_evenly_over_partitions(rows, partitions):
    numbers = choose_shuffle_keys(4 * partitions, partitions)
    table = pa.table({"x": np.arange(rows)})
    batches = spread_messages(table, numbers, partitions, 2000)
    messages = [batch.slice(at, 1) for batch in batches for at in range(batch.num_rows)]
    read = [read_message(message["message"][0].as_buffer(), table.schema) for message in messages]
    assert pa.Table.from_batches(read, table.schema) == table
    assert all(batch.num_rows <= 2000 for batch in read)
    assert all(message["content"].to_pylist() == [Content.RESULTS] for message in messages)
    place = {int(number): at % partitions for at, number in enumerate(numbers)}  # as `choose_shuffle_keys` promises
    counts = np.zeros(partitions, np.int64)
    for message, batch in zip(messages, read, strict=True):
        counts[place[message["shard"][0].as_py()]] += batch.num_rows
    assert counts.max() - counts.min() <= rows / partitions / 2 or rows < partitions


SPARK = pytest.mark.spark


@pytest.fixture(scope="module")
def in_order(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    all_rows = rows(12_000, 7, hours=1)
    for number in range(3):
        pq.write_table(all_rows.slice(4000 * number, 4000), folder / f"{number}.parquet", row_group_size=1000)
    return folder, all_rows


def tables(answers, number):
    """Reduce what one task reads, here, as the job does it there."""
    from spark_udaf.plan.parquet_files import Selection
    from spark_udaf.plan.two_phase import plan_of

    plan = plan_of(answers)
    scan = plan.source
    selection = Selection(scan.schema, plan.columns, plan.keys, scan.filters, scan.dataset.filesystem)
    return list(plan.reduce(selection.rows(scan.tasks[number]), number))


def contents(answers, number):
    return [(content.name, table.num_rows) for content, table in tables(answers, number)]


ORDER = [("level", "ascending"), ("window_start", "ascending"), ("host", "ascending")]


@SPARK
@pytest.mark.parametrize("tasks", [1, 2, 5])
@pytest.mark.long
def test_tasks_of_files_in_order_finish_their_windows(spark, in_order, tasks):
    import spark_udaf as su

    (folder, all_rows), frame = in_order, FRAMES["seconds to an hour"]
    scan = su.scan_parquet(spark, folder, rows_per_task=-(-12_000 // tasks))
    states = su.rollup(scan, frame)
    answers = su.finish(states, frame)
    expected = rollup(all_rows, frame)
    assert states.toArrow().sort_by(ORDER) == expected.sort_by(ORDER).cast(states.toArrow().schema)
    assert answers.toArrow().sort_by(ORDER) == finish(expected, frame).sort_by(ORDER).cast(answers.toArrow().schema)
    for number in range(tasks):
        (results, early), (left, late) = contents(answers, number)
        assert (results, left) == ("RESULTS", "STATES")
        assert (late == 0) == (tasks == 1)
        assert late < early / 3


@pytest.mark.long
@SPARK
def test_what_meets_others_is_shuffled(spark, in_order, tmp_path):
    import spark_udaf as su

    folder, all_rows = in_order
    frame = FRAMES["seconds to an hour"]
    for number, half in enumerate((0, 1)):  # both files have rows of all times
        pq.write_table(all_rows.take(np.arange(half, 12_000, 2)), tmp_path / f"{number}.parquet")
    answers = su.finish(su.rollup(su.scan_parquet(spark, tmp_path, rows_per_task=6000), frame), frame)
    assert {content for content, _ in contents(answers, 0)} == {"STATES"}
    assert answers.toArrow().num_rows == rollup(all_rows, frame).num_rows
    hopping = TiltFrame(["10s", "hopping(1m, 30s)"], "ts", MEASURES, ["host"])
    answers = su.finish(su.rollup(su.scan_parquet(spark, folder, rows_per_task=6000), hopping), hopping)
    assert {content for content, _ in contents(answers, 0)} == {"STATES"}


@pytest.mark.long
@SPARK
def test_rows_that_travel_meet_the_states_of_other_tasks(spark, tmp_path):
    import spark_udaf as su

    frame = FRAMES["seconds to an hour"]
    all_rows = pa.concat_tables([rows(5000, 1, hours=1), rows(6000, 2, hours=30)]).sort_by("ts")
    pq.write_table(all_rows, tmp_path / "rows.parquet", row_group_size=500)
    answers = su.finish(su.rollup(su.scan_parquet(spark, tmp_path, rows_per_task=5500), frame), frame)
    assert [[content for content, _ in contents(answers, n)] for n in range(2)] == [["RESULTS", "STATES"], ["ROWS"]]
    result = answers.toArrow().sort_by(ORDER)
    assert result == finish(rollup(all_rows, frame), frame).sort_by(ORDER).cast(result.schema)


@SPARK
@pytest.mark.parametrize("full", [(), (0,), (1,), (0, 1)])
def test_what_a_task_cannot_hold_is_shuffled(spark, in_order, monkeypatch, full):
    import spark_udaf as su
    from aggr.tables import partial_aggregation
    from spark_udaf.batch import rollup as module
    from spark_udaf.plan.two_phase import plan_of

    folder, all_rows = in_order
    monkeypatch.setattr(partial_aggregation, "REDUCE_ROWS", 1000)
    monkeypatch.setattr(partial_aggregation, "_MAX_REDUCE_ROWS", 1000)
    monkeypatch.setattr(partial_aggregation, "_FIRST_ROWS", 1000)
    frame = FRAMES["seconds to an hour"]
    states = su.rollup(su.scan_parquet(spark, folder, rows_per_task=6000), frame)
    plan, results, left = plan_of(states), [], []
    for number in range(2):
        limit = 1 if number in full else 1 << 26
        monkeypatch.setattr(partial_aggregation, "_MERGE_BYTES", limit)
        monkeypatch.setattr(module, "MAX_STATE_BYTES", limit)
        states_of_task = tables(states, number)
        kinds = [content.name for content, _ in states_of_task]
        assert kinds == (["STATES"] * len(states_of_task) if number in full else ["RESULTS", "STATES"])
        assert len(states_of_task) > 1
        for content, table in states_of_task:
            (results if content is Content.RESULTS else left).append(table)
    merged = plan.merge(
        pa.concat_tables([table.select(plan.partial_schema.names).cast(plan.partial_schema) for table in left])
    )
    every = pa.concat_tables([*results, merged]).combine_chunks().sort_by(ORDER)
    assert every.equals(rollup(all_rows, frame).combine_chunks().sort_by(ORDER))


@SPARK
def test_filters_keys_and_windows_of_other_jobs(spark, in_order):
    import spark_udaf as su

    folder, all_rows = in_order
    scan = su.scan_parquet(spark, folder, filters=[("host", "=", "a")], rows_per_task=5000)
    frame = FRAMES["seconds to an hour"]
    rows_of_host = all_rows.filter(pa.compute.equal(all_rows["host"], "a"))
    answers = su.finish(su.rollup(scan, frame), frame).toArrow().sort_by(ORDER)
    assert answers == finish(rollup(rows_of_host, frame), frame).sort_by(ORDER).cast(answers.schema)
    measures = {"n": aggr.count(), "dds": aggr.dds("x", [0.5])}
    by_hour = su.finish(su.aggregate(scan, ["host"], measures, window="1h", time="ts"), measures).toArrow()
    hours = TiltFrame(["1h"], "ts", measures, ["host"])
    expected = finish(rollup(rows_of_host, hours), hours).drop_columns(["level"])
    assert by_hour.sort_by(ORDER[1:]) == expected.sort_by(ORDER[1:]).cast(by_hour.schema)


@SPARK
def test_a_store_is_written_after_the_shuffle_alone(spark, in_order, tmp_path):
    import spark_udaf as su
    from tiltframe import FrameStore

    folder, all_rows = in_order
    frame = FRAMES["seconds to an hour"]
    stores = [FrameStore(str(tmp_path / name), frame) for name in ("files", "rows")]
    su.rollup_into(su.scan_parquet(spark, folder, rows_per_task=6000), stores[0], writer="w", commit=1)
    stores[1].append(rollup(all_rows, frame), "w", 1)
    for level in frame.levels:
        actual, expected = (store.states(level.name).sort_by(ORDER[1:]) for store in stores)
        assert actual.equals(expected)
