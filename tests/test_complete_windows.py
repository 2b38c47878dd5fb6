"""Complete windows: what a task finishes by itself, and what goes on, is together what all rows give, bit for bit."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aggr
import spark_udaf as su
from aggr.kernels.digest import same_bits
from spark_udaf.jobs.complete_windows import CompleteWindows
from spark_udaf.jobs.parquet_files import NO_SPAN, span_of
from spark_udaf.jobs.two_phase import plan_of
from tiltframe import TiltFrame, finish, rollup
from tiltframe.frame import END, LEVEL, START
from tiltframe.level_chain import joined, partial_states

SECOND = 1_000_000
BEGIN = 1_711_846_800_000_000  # 2024-03-31 01:00 UTC, when clocks in Paris are put forward
MEASURES = {
    "n": aggr.count(),
    "sum": aggr.sum("x"),
    "var": aggr.var("x"),
    "dds": aggr.dds("x", [0.5]),
    "last": aggr.last("x", by="ts"),
}
LEVELS = st.sampled_from([["10s"], ["10s", "1m", "10m", "1h"], ["30m", "1d", "1mo"], ["7s", "21s"]])
ORDER = [(name, "ascending") for name in (LEVEL, START, "host")]


def random_rows(rng, n, spread):
    times = BEGIN + rng.integers(-spread, spread, n)
    hosts = pa.array(rng.choice(["a", "b", "c"], n))
    return pa.table({"ts": pa.array(times).cast(pa.timestamp("us", "UTC")), "host": hosts, "x": rng.lognormal(3, 1, n)})


def tasks_of(rng, rows, tasks, late):
    """Cut rows in the order of time, some of which are ``late``, into tasks; some of these may have none."""
    order = np.argsort(rows.column("ts").to_numpy().astype(np.int64) + rng.integers(0, late + 1, len(rows)))
    cuts = np.sort(rng.integers(0, len(rows) + 1, tasks - 1))
    return [rows.take(pa.array(part)) for part in np.split(order, cuts)]


def spans_of(parts):
    times = [part.column("ts").cast(pa.int64()).to_numpy() for part in parts]
    return np.array([(t.min(), t.max()) if len(t) else NO_SPAN for t in times], np.int64)


def states_of(part, frame):
    return pa.concat_tables(
        partial_states(part.to_batches(max_chunksize=37) or [pa.RecordBatch.from_pylist([], part.schema)], frame)
    )


def windows_of(levels):
    """List the windows of each level, as instants."""
    for level, states in levels:
        for row in states.select([START, END]).cast(pa.schema([(START, pa.int64()), (END, pa.int64())])).to_pylist():
            yield level.name, row[START], row[END]


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 10**6),
    LEVELS,
    st.integers(1, 6),
    st.sampled_from([0, 5, 4000]),
    st.sampled_from(["UTC", "Europe/Paris"]),
)
def test_split_and_merged_it_is_the_rollup(seed, levels, tasks, late, zone):
    rng = np.random.default_rng(seed)
    spread = int(rng.choice([20, 4000, 90_000])) * SECOND
    rows = random_rows(rng, int(rng.integers(1, 400)), spread)
    frame = TiltFrame(levels, "ts", MEASURES, ["host"], timezone=zone)
    parts = tasks_of(rng, rows, tasks, late * SECOND)
    complete = CompleteWindows(frame, spans_of(parts))
    found, going, carried = [], [], defaultdict(list)
    for task, part in enumerate(parts):
        states = states_of(part, frame)
        done, others, above = complete.split(task, states) or ([], states, {})
        elsewhere = [t for other in parts if other is not part for t in other.column("ts").cast(pa.int64()).to_pylist()]
        for _, start, end in windows_of(done):
            assert not any(start <= t < end for t in elsewhere)
        found += done
        going.append(others)
        for place, table in above.items():
            carried[place].append(table)
    found += complete.merge(pa.concat_tables(going), {at: pa.concat_tables(some) for at, some in carried.items()})
    got, wanted = joined(found, frame).sort_by(ORDER), rollup(rows, frame).sort_by(ORDER)
    assert got.select([LEVEL, START, END, "host"]).equals(wanted.select([LEVEL, START, END, "host"]))
    for column in frame.states:
        assert same_bits(got.column(column.name), wanted.column(column.name))


def test_each_window_that_no_other_span_touches_is_complete():
    """Of rows in order, all windows but those that a cut goes through; the last task has no rows."""
    frame = TiltFrame(["10s", "1m"], "ts", {"n": aggr.count()})
    times = BEGIN + np.arange(0, 300 * SECOND, SECOND)
    table = pa.table({"ts": pa.array(times).cast(pa.timestamp("us", "UTC"))})
    parts = [table.slice(0, 95), table.slice(95, 145), table.slice(240), table.slice(300)]  # 95 s is within a window
    complete = CompleteWindows(frame, spans_of(parts))
    for task, (tens, minutes) in enumerate([(9, 1), (14, 2), (6, 1)]):
        levels, others, carried = complete.split(task, states_of(parts[task], frame))
        assert [table.num_rows for _, table in levels] == [tens, minutes]
        assert others.num_rows == (0 if task == 2 else 1)
        assert sum(table.num_rows for table in carried.values()) == tens - 6 * minutes


def test_rows_beyond_what_statistics_say_are_refused():
    frame = TiltFrame(["10s", "1m"], "ts", {"n": aggr.count()})
    rows = pa.table({"ts": pa.array([BEGIN, BEGIN + 60 * SECOND]).cast(pa.timestamp("us", "UTC"))})
    for wrong in ([BEGIN, BEGIN + SECOND], [BEGIN + 10 * SECOND, BEGIN + 60 * SECOND]):
        complete = CompleteWindows(frame, np.array([wrong, [0, 1]]))
        with pytest.raises(
            ValueError, match=r"the statistics of 'ts' in its row groups do not hold; write the file anew"
        ):
            complete.split(0, states_of(rows, frame))


INSTANTS = st.datetimes(dt.datetime(1905, 1, 1), dt.datetime(2100, 1, 1))


@settings(deadline=None, max_examples=40)
@given(st.lists(INSTANTS, max_size=20), st.sampled_from(["ms", "us", "ns"]), st.sampled_from(["UTC", None]), st.data())
def test_spans_by_statistics(tmp_path_factory, moments, unit, zone, data):
    times = [
        round((moment - dt.datetime(1970, 1, 1)).total_seconds() * {"ms": 1e3, "us": 1e6, "ns": 1e9}[unit])
        for moment in moments
    ]
    file = tmp_path_factory.mktemp("span") / "rows.parquet"
    rows = pa.table(
        {"x": pa.array([1.0] * len(times)), "ts": pa.array(times, pa.int64()).cast(pa.timestamp(unit, zone))}
    )
    pq.write_table(rows, file, row_group_size=7)
    metadata = pq.read_metadata(file)
    groups = data.draw(st.sets(st.integers(0, metadata.num_row_groups - 1))) if metadata.num_row_groups else set()
    chosen = [t for group in groups for t in times[7 * group : 7 * group + 7]]
    micros = [{"ms": t * 1000, "us": t, "ns": t // 1000}[unit] for t in chosen]
    assert span_of(metadata, sorted(groups), "ts") == ((min(micros), max(micros)) if micros else NO_SPAN)


def test_no_span_where_none_is_told(tmp_path):
    """Without statistics, of text, of whole numbers, and of a column that is not there."""
    file = tmp_path / "rows.parquet"
    moment = pa.array([BEGIN]).cast(pa.timestamp("us", "UTC"))
    pq.write_table(
        pa.table({"bare": moment, "text": ["2024-05-01"], "whole": [3]}), file, write_statistics=["text", "whole"]
    )
    for name in ("bare", "text", "whole", "absent"):
        assert span_of(pq.read_metadata(file), [0], name) is None


def written(folder, rows, files, row_group_size=500):
    folder.mkdir()
    cuts = np.linspace(0, len(rows), files + 1).astype(int)
    for number, (start, end) in enumerate(pairwise(cuts)):
        pq.write_table(rows.slice(start, end - start), folder / f"{number}.parquet", row_group_size=row_group_size)
    return str(folder)


@pytest.mark.spark
@pytest.mark.parametrize("late", [0, 300, 10**6])
def test_answers_of_files(spark, tmp_path, late):
    """In the order of time, nearly so, and in none: the same answers, and the same from a DataFrame."""
    rng = np.random.default_rng(late)
    rows = pa.concat_tables(tasks_of(rng, random_rows(rng, 8000, 5400 * SECOND), 1, late * SECOND))
    frame = TiltFrame(["10s", "1m", "10m", "1h"], "ts", MEASURES, ["host"])
    scan = su.scan_parquet(spark, written(tmp_path / "rows", rows, 5), rows_per_task=2000)
    answers = su.finish(su.rollup(scan, frame), frame)
    plan = plan_of(answers)
    assert plan.complete is not None
    assert plan.finished
    got = answers.toArrow().sort_by(ORDER)
    wanted = answers_of(rows, frame)
    assert got.cast(wanted.schema).equals(wanted)
    df = su.finish(su.rollup(spark.read.parquet(str(tmp_path / "rows")), frame), frame).toArrow().sort_by(ORDER)
    assert df.equals(got)
    flat = su.finish(su.rollup(scan, frame), frame, flat=True).toArrow()
    assert flat.num_rows == wanted.num_rows


def answers_of(rows, frame):
    return finish(rollup(rows, frame), frame).sort_by(ORDER)


@pytest.mark.spark
def test_filters_and_tasks_without_rows(spark, tmp_path):
    rows = random_rows(np.random.default_rng(1), 4000, 3600 * SECOND).sort_by("ts")
    frame = TiltFrame(["10s", "1h"], "ts", {"n": aggr.count()}, ["host"])
    folder = written(tmp_path / "rows", rows, 4)
    for filters in ([("host", "=", "a")], [("ts", ">=", dt.datetime(2024, 3, 31, 1, tzinfo=dt.UTC))], [("x", "<", 0)]):
        scan = su.scan_parquet(spark, folder, filters=filters, rows_per_task=500)
        got = su.finish(su.rollup(scan, frame), frame).toArrow().sort_by(ORDER)
        wanted = answers_of(rows.filter(pq.filters_to_expression(filters)), frame)
        assert got.cast(wanted.schema).equals(wanted)


@pytest.mark.spark
def test_what_no_task_can_finish_is_left_to_the_shuffle(spark, tmp_path):
    """Windows that overlap, times without statistics, and states that nobody reads."""
    rows = random_rows(np.random.default_rng(2), 2000, 3600 * SECOND).sort_by("ts")
    scan = su.scan_parquet(spark, written(tmp_path / "rows", rows, 3), rows_per_task=500)
    hopping = TiltFrame(["hopping(1m, 10s)"], "ts", {"n": aggr.count()}, ["host"])
    assert plan_of(su.rollup(scan, hopping)).complete is None
    tumbling = TiltFrame(["10s", "1m"], "ts", {"n": aggr.count()}, ["host"])
    assert not plan_of(su.rollup(scan, tumbling)).finished
    texts = rows.set_column(0, "ts", rows.column("ts").cast(pa.string()))
    scan = su.scan_parquet(spark, written(tmp_path / "texts", texts, 3), rows_per_task=500)
    assert scan.spans("ts") is None
    got = su.finish(su.rollup(scan, tumbling), tumbling).toArrow().sort_by(ORDER)
    wanted = answers_of(rows, tumbling)
    assert got.cast(wanted.schema).equals(wanted)
