"""States beyond a memory limit are written to runs on disk: the store has the same bits, and a failure leaves
no files.
"""

from __future__ import annotations

import datetime as dt
import os
import random
import tempfile
import weakref
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

import aggr
import tiltframe.spilled_states as spilled_states
from aggr.arrow.bit_equality import same_bits
from aggr.tables import partial_aggregation
from tiltframe import FrameStore, TiltFrame, rollup
from tiltframe.cli import main
from tiltframe.level_chain import join_levels
from tiltframe.spilled_states import spill_states
from tiltframe.store.testing import MemoryBackend

SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))
START = 1_700_000_000_000  # milliseconds
MEASURES = {"n": aggr.count(), "total": aggr.sum("x"), "p": aggr.dds("x", quantiles=[0.5]), "last": aggr.last("x")}
CHAINS = [["10s", "1m", "1h"], ["1m", "1d"], ["15m", "1h", "1mo"], ["1s"], ["30s", "1w"]]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Merge, write and read a few states at a time."""
    monkeypatch.setattr(partial_aggregation, "_FIRST_ROWS", 100)
    monkeypatch.setattr(partial_aggregation, "REDUCE_ROWS", 100)
    monkeypatch.setattr(partial_aggregation, "_MAX_REDUCE_ROWS", 100)
    monkeypatch.setattr(partial_aggregation, "_MERGE_BYTES", 1)
    monkeypatch.setattr(spilled_states, "_BLOCK_BYTES", 4000)


def drawn(draws: random.Random, rows: int, days: int) -> pa.Table:
    """Draw rows in order of time, in no order, or in runs that overlap."""
    times = [START + draws.randrange(days * 86_400_000) for _ in range(rows)]
    order = draws.choice(["sorted", "shuffled", "runs"])
    if order == "sorted":
        times.sort()
    elif order == "runs":
        times = sorted(times, key=lambda at: (draws.randrange(3), at))
    hosts = [draws.choice(["a", "b", None]) for _ in times]
    values = [draws.choice([draws.uniform(-1e9, 1e9), 0.1, -0.0, 1e300, None]) for _ in times]
    return pa.table(
        {"ts": pa.array(times, pa.timestamp("ms", "UTC")), "host": hosts, "x": pa.array(values, pa.float64())}
    )


def in_batches(rows: pa.Table, frame: TiltFrame, size: int):
    read = rows.select(list(frame.columns_in(rows.column_names)))
    yield pa.RecordBatch.from_pylist([], read.schema)
    yield from read.to_batches(max_chunksize=size)


@pytest.mark.slow
@pytest.mark.parametrize("trial", range(int(os.environ.get("TILTFRAME_TRIALS", 6))))
def test_slices_have_the_bits_of_a_rollup_in_memory(trial, monkeypatch):
    draws = random.Random(SEED + trial)
    monkeypatch.setattr(spilled_states, "_RUNS_IN_MEMORY", [0, 12, 1000][trial % 3])
    zone = draws.choice(["UTC", "Asia/Kathmandu"])
    frame = TiltFrame(draws.choice(CHAINS), "ts", MEASURES, draws.choice([[], ["host"]]), zone)
    rows = drawn(draws, draws.choice([1, 500, 3000]), draws.choice([1, 40]))
    unsplit = rollup(rows, frame)
    batches = in_batches(rows, frame, draws.choice([50, 1000]))
    with spill_states(batches, frame, draws.choice([1, 20_000, 1 << 40])) as slices:
        by_level = {level.name: [] for level in frame.levels}
        for level, states in slices.levels():
            by_level[level.name].append(states)
        result = join_levels([(level, pa.concat_tables(by_level[level.name])) for level in frame.levels], frame)
        again = sum(states.num_rows for states, _ in slices.finest())
    assert result.num_rows == unsplit.num_rows, SEED + trial
    assert result.column_names == unsplit.column_names
    for name in unsplit.column_names:
        assert same_bits(result.column(name), unsplit.column(name)), (SEED + trial, name)
    assert again == unsplit.filter(pa.compute.equal(unsplit.column("level"), frame.levels[0].name)).num_rows


@pytest.mark.slow
def test_runs_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    frame = TiltFrame(["1s"], "ts", MEASURES)
    rows = drawn(random.Random(SEED), 2000, 1)
    with spill_states(in_batches(rows, frame, 100), frame, 1):
        assert any(tmp_path.iterdir())
    assert not any(tmp_path.iterdir())
    timeless = rows.slice(0, 1).set_column(0, "ts", pa.nulls(1, rows.schema.field("ts").type))
    broken = pa.concat_tables([rows, timeless])
    with pytest.raises(ValueError, match="no event time"), spill_states(in_batches(broken, frame, 100), frame, 1):
        pass
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("runs_in_memory", [0, 4, 1 << 20])
def test_runs_stay_in_memory_up_to_a_limit_and_are_all_written_beyond_it(runs_in_memory, monkeypatch):
    merge, write = spilled_states.merge_panes, spilled_states._write
    runs, sizes, live_runs = list[weakref.ref](), list[int](), list[int]()

    def merged(states, frame):
        run = merge(states, frame)
        runs.append(weakref.ref(run))
        sizes.append(run.nbytes)
        return run

    def written(states, run):
        live_runs.append(sum(reference() is not None for reference in runs))
        return write(states, run)

    monkeypatch.setattr(spilled_states, "_RUNS_IN_MEMORY", runs_in_memory)
    monkeypatch.setattr(spilled_states, "merge_panes", merged)
    monkeypatch.setattr(spilled_states, "_write", written)
    frame = TiltFrame(["1s"], "ts", MEASURES, ["host"])
    with spill_states(in_batches(drawn(random.Random(SEED), 2000, 1), frame, 100), frame, 20_000) as slices:
        assert len(slices.runs) == len(runs) > 10
        beyond_limit = (number for number in range(1, len(sizes) + 1) if sum(sizes[:number]) > runs_in_memory * 20_000)
        first_written = next(beyond_limit, None)
        assert (first_written is None) == (runs_in_memory == 1 << 20)
        if first_written is None:
            assert not live_runs
        else:
            assert live_runs == [*range(first_written, 0, -1), *[1] * (len(runs) - first_written)]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("max_bytes", [1, 30_000, 1 << 40])
def test_a_store_counts_the_rows_of_a_commit_once_whatever_was_held(max_bytes, monkeypatch):
    draws = random.Random(SEED)
    frame = TiltFrame(["1m", "1h", "1d"], "ts", {"n": aggr.count()}, ["host"])
    rows = drawn(draws, 3000, 3)
    store = FrameStore(MemoryBackend(f"spilled {random.random()}"), frame)
    assert store.append_rows(rows, "w", 1, max_bytes=max_bytes)
    assert not store.append_rows(rows, "w", 1, max_bytes=random.choice([1, 1 << 40]))
    assert not store.append(rollup(rows, frame), "w", 1)
    with pytest.raises(Exception, match="contains other states"):
        store.append_rows(rows.slice(1), "w", 1, max_bytes=max_bytes)
    for level, seconds in (("1m", 60), ("1h", 3600), ("1d", 86_400)):
        counted = Counter(
            (int(at.timestamp()) // seconds * seconds, host)
            for at, host in zip(rows["ts"].to_pylist(), rows["host"].to_pylist(), strict=True)
        )
        result = store.query(level).to_pylist()
        assert {(int(r["window_start"].timestamp()), r["host"]): r["n"] for r in result} == counted, SEED
        assert len(result) == len(counted)


class Full(MemoryBackend):
    """A disk that is full when so many parts are on it."""

    def write(self, level, states):
        if len(self.tables.rows) >= 3:
            raise OSError(28, "No space left on device")
        return super().write(level, states)


@pytest.mark.slow
def test_what_was_written_before_a_disk_was_full_is_removed():
    backend = Full(f"full {random.random()}")
    store = FrameStore(backend, TiltFrame(["1m", "1h", "1d"], "ts", {"n": aggr.count()}))
    with pytest.raises(OSError, match="No space"):
        store.append_rows(drawn(random.Random(SEED), 3000, 30), "w", 1, max_bytes=1)
    assert not backend.tables.rows


@pytest.mark.store
def test_no_file_is_left_where_a_folder_cannot_be_written(tmp_path, monkeypatch, capsys):
    import tiltframe.store.backends.delta.files as files

    rows = drawn(random.Random(SEED), 2000, 30)
    pacsv.write_csv(rows, tmp_path / "rows.csv")
    written, real = [], files.split_into_row_groups

    def split_into_row_groups(*arguments):
        written.append(arguments)
        if len(written) == 3:
            raise OSError(28, "No space left on device")
        return real(*arguments)

    monkeypatch.setattr(files, "split_into_row_groups", split_into_row_groups)
    monkeypatch.chdir(tmp_path)
    arguments = ["rollup", "rows.csv", "--time", "ts", "--measure", "n=count()", "--levels", "1h,1d", "--store", "st"]
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code
    assert "No space left" in capsys.readouterr().err
    assert not list(Path("st").rglob("bucket=*/*"))
    monkeypatch.setattr(files, "split_into_row_groups", real)
    main(arguments)
    assert FrameStore("st").query()["n"].to_pylist() == [2000]


def test_results_come_by_slices_of_one_moment(monkeypatch):
    import tiltframe.store.query.merging as merging

    monkeypatch.setattr(merging, "ROWS_AT_ONCE", 200)
    frame = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count(), "p": aggr.max("x")}, ["host"])
    rows = drawn(random.Random(SEED), 3000, 20)
    store = FrameStore(MemoryBackend(f"slices {random.random()}"), frame)
    for number, half in enumerate((rows.slice(0, 1500), rows.slice(1500))):
        store.append_rows(half, "w", number)
    times = [at.replace(second=0, microsecond=0) for at in rows["ts"].to_pylist()]
    counted = Counter(times)
    slices = list(store.query_slices("1m", keys=[], measures=["n"]))
    assert len(slices) > 5
    counts = [(r["window_start"], r["n"]) for table in slices for r in table.to_pylist()]
    assert counts == sorted(counted.items()), SEED
    limited = store.query("1m", keys=[], limit=7)["window_start"].to_pylist()
    assert limited == sorted(counted)[:7]
    highest_counts = store.query("1m", keys=[], order_by="n desc", limit=3)["n"].to_pylist()
    assert highest_counts == sorted(counted.values(), reverse=True)[:3]
    days = Counter(at.date() for at in times)
    counts = store.query("1d", keys=[])
    assert {r["window_start"].date(): r["n"] for r in counts.to_pylist()} == days, SEED
    assert store.query(keys=[])["n"].to_pylist() == [3000]
    moments = [dt.datetime(2023, 11, 16, tzinfo=dt.UTC), dt.datetime(2023, 11, 20, 5, tzinfo=dt.UTC)]
    inside = {at: n for at, n in counted.items() if moments[0] <= at < moments[1]}
    results = store.query("1m", moments, keys=[], having="n >= 1")
    assert dict(zip(results["window_start"].to_pylist(), results["n"].to_pylist(), strict=True)) == inside


def test_slices_that_were_begun_do_not_see_what_comes_later(monkeypatch):
    import tiltframe.store.query.merging as merging

    monkeypatch.setattr(merging, "ROWS_AT_ONCE", 50)
    frame = TiltFrame(["1m"], "ts", {"n": aggr.count()})
    rows = drawn(random.Random(SEED), 1000, 20)
    store = FrameStore(MemoryBackend(f"moment {random.random()}"), frame)
    store.append_rows(rows, "w", 1)
    slices = store.query_slices("1m")
    begun = [next(slices), next(slices)]
    store.append_rows(rows, "w", 2)
    store.compact(before="2999-01-01")  # what was to be read is in other parts since
    all_slices = pa.concat_tables([*begun, *slices])
    assert all_slices["window_start"].to_pylist() == sorted(
        {at.replace(second=0, microsecond=0) for at in rows["ts"].to_pylist()}
    )
