"""Backfills of the past in ranges, killed at any time, next to writers of new rows: each range is counted once."""

from __future__ import annotations

import datetime as dt
import os
import random
import time
from itertools import pairwise

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from aggr.arrow.bit_equality import digest
from tests.command_line import call
from tests.crash_processes import BEGIN, FRAME, CrashProcesses, append, backfill, last_number, rows
from tiltframe import FrameStore, rollup

pytestmark = [pytest.mark.store, pytest.mark.slow]
KILLS = int(os.environ.get("TRIALS", "12"))  # random moments; test_interleavings.py crashes at each call
HOUR = 3_600_000
PAST = BEGIN - 24 * HOUR


def past(folder, hours=10):
    """Rows of some hours before the live ones, in files that overlap; the second file is CSV, with fractions late."""
    draws = random.Random(3)
    times = sorted(PAST + draws.randrange(hours * HOUR) for _ in range(3000))
    table = pa.table({"ts": times, "x": [draws.choice([1.0, 1e16, -1e16]) for _ in times], "k": ["p"] * len(times)})
    pq.write_table(table.slice(0, 1100), folder / "a.parquet")
    full_hours = table.slice(1100, 1000)
    pacsv.write_csv(full_hours.set_column(1, "x", full_hours["x"].cast(pa.int64())), folder / "b.csv")
    pq.write_table(table.slice(2100).take(pa.array(draws.sample(range(900), 900))), folder / "c.parquet")
    return table


def same(store, table):
    """Compare results with those of a store that got all rows at once, to the bit."""
    at_once = rollup(table, FRAME)
    other = FrameStore(f"{store.uri} whole", FRAME)
    other.append(at_once, "w", 0)
    for level in FRAME.levels:
        tables = [each_store.query(level.name, now="2030-01-01") for each_store in (store, other)]
        assert [digest(column) for column in tables[0].columns] == [digest(column) for column in tables[1].columns]


@pytest.mark.long
@pytest.mark.parametrize("newest_first", [False, True])
def test_files_come_range_by_range(tmp_path, newest_first):
    (tmp_path / "in").mkdir()
    table = past(tmp_path / "in")
    store, seen = FrameStore(tmp_path / "s", FRAME), []

    def progress(done, range_count):
        starts = FrameStore(tmp_path / "s").query("10m", keys=[])["window_start"].to_pylist()
        seen.append((done, range_count, starts[0 if newest_first else -1]))

    assert store.backfill(tmp_path / "in", "2h", newest_first=newest_first, progress=progress) == 5
    assert [(done, range_count) for done, range_count, _ in seen] == [(i, 5) for i in range(1, 6)]
    assert [start for *_, start in seen] == sorted((start for *_, start in seen), reverse=newest_first)
    same(store, table)
    assert store.backfill(tmp_path / "in", "2h", newest_first=newest_first) == 0
    for other in ({"chunk": "1h"}, {"newest_first": not newest_first}, {"within": "2024"}):
        with pytest.raises(ValueError, match=rf"was begun with another value of {next(iter(other))}, so its ranges"):
            store.backfill(tmp_path / "in", **{"chunk": "2h", "newest_first": newest_first, **other})
    pq.write_table(table.slice(0, 5), tmp_path / "in" / "d.parquet")
    with pytest.raises(ValueError, match="was begun with another value of files"):
        store.backfill(tmp_path / "in", "2h", newest_first=newest_first)


def test_a_function_gives_the_rows_of_a_range(tmp_path):
    (tmp_path / "in").mkdir()
    table = past(tmp_path / "in")
    times, calls, broken = table["ts"].to_numpy(), [], [True]

    def read_range(start, end):
        calls.append((start, end))
        if len(calls) == 4 and broken.pop():
            raise OSError("the database is gone")
        low, high = (int(at.timestamp() * 1000) for at in (start, end))
        return table.filter(pa.array((times >= low) & (times < high)))

    store = FrameStore(tmp_path / "s", FRAME)
    begin = dt.datetime.fromtimestamp(PAST / 1000, dt.UTC)
    options = {"within": (begin + dt.timedelta(minutes=5), begin + dt.timedelta(hours=10)), "writer": "archive"}
    with pytest.raises(OSError, match="gone"):
        store.backfill(read_range, "90m", **options)
    assert store.last_commit("archive") == 2
    store.backfill(read_range, "90m", **options)
    assert (calls[0][0], calls[3], calls[-1][1]) == (options["within"][0], calls[4], options["within"][1])
    assert all(earlier[1] == other[0] for earlier, other in pairwise(calls[4:]))
    same(store, table.filter(pa.array(times >= PAST + 300_000)))
    with pytest.raises(ValueError, match="include times outside"):
        store.backfill(lambda start, end: table, "1h", within=options["within"], writer="other")
    with pytest.raises(ValueError, match="needs writer= and a range with both ends"):
        store.backfill(read_range, "1h")
    with pytest.raises(ValueError, match="cannot read"):
        store.backfill(read_range, "hopping(1h, 10m)", **options | {"writer": "b"})


@pytest.mark.parametrize("is_files_first", [False, True])
def test_a_writer_of_files_is_refused_for_a_function_and_the_reverse(is_files_first, tmp_path):
    (tmp_path / "in").mkdir()
    table = past(tmp_path / "in")
    times = table["ts"].to_numpy()

    def read_range(start, end):
        low, high = (int(at.timestamp() * 1000) for at in (start, end))
        return table.filter(pa.array((times >= low) & (times < high)))

    begin = dt.datetime.fromtimestamp(PAST / 1000, dt.UTC)
    options = {"within": (begin, begin + dt.timedelta(hours=10)), "writer": "w"}
    first, second = (tmp_path / "in", read_range) if is_files_first else (read_range, tmp_path / "in")
    store = FrameStore(tmp_path / "s", FRAME)
    store.backfill(first, "2h", **options)
    with pytest.raises(ValueError, match="was begun with another value of files"):
        store.backfill(second, "2h", **options)
    same(store, table)


def test_the_command_goes_on_and_notes_its_files(tmp_path, capfd):
    (tmp_path / "in").mkdir()
    table = past(tmp_path / "in")
    store, frame = (
        str(tmp_path / "s"),
        ["--time", "ts", "--key", "k", "--measure", "n=count()", "--measure", "s=sum(x)"],
    )
    arguments = ["backfill", str(tmp_path / "in"), *frame, "--levels", "10s,1m,10m", "--store", store, "--chunk", "4h"]
    status, out, err = call(capfd, *arguments, "--plan")
    assert (status, len(out.splitlines())) == (0, 3), err
    status, _, err = call(capfd, *arguments)
    assert (status, "3 of 3 ranges added now" in err) == (0, True), err
    assert call(capfd, *arguments, "--plan")[1] == ""
    same(FrameStore(store), table)
    status, _, err = call(capfd, "rollup", *arguments[1:-2])
    assert (status, "nothing new" in err) == (0, True), err
    status, _, err = call(capfd, *arguments[:-1], "1h")
    assert (status, "was begun with another value of chunk" in err) == (2, True)
    other = [str(tmp_path / "t") if argument == store else argument for argument in arguments]
    assert call(capfd, "rollup", *other[1:-2])[0] == 0
    status, _, err = call(capfd, *other)
    assert (status, "would be counted twice" in err) == (2, True)


@pytest.mark.long
def test_kills_lose_no_range_and_count_none_twice(tmp_path):
    (tmp_path / "in").mkdir()
    table, path = past(tmp_path / "in"), str(tmp_path / "s")
    chance, processes = random.Random(int(os.environ.get("SEED", "7"))), CrashProcesses(tmp_path)
    FrameStore(path, FRAME).append(rollup(rows("w", 0), FRAME), "w", 0)
    acknowledged = 0
    for turn in range(KILLS):
        live = processes.start(append.__name__, path)
        filling = processes.start(backfill.__name__, path, str(tmp_path / "in"))
        if turn % 3:  # it is at work
            processes.wait(filling)
        time.sleep(chance.random() * 0.2)
        acknowledged = max([acknowledged, *processes.kill(filling)])
        processes.kill(live)
        store = FrameStore(path)
        last = store.last_commit(str((tmp_path / "in").resolve()))
        assert (last or 0) + 1 >= acknowledged
    processes.close()
    assert acknowledged, "no range was ever added"
    print(f"\n{KILLS} kills; {acknowledged} ranges acknowledged")
    store.backfill(tmp_path / "in", "10m", newest_first=True)
    same(
        store,
        pa.concat_tables(
            [table, *(rows("w", number).select(table.column_names) for number in range(last_number(store, "w") + 1))]
        ),
    )
