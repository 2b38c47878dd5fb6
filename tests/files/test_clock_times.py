"""Times without a zone are read in a stated zone, in the same way by every interface. Dates stay days."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import sys
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import aggr
from aggr import sql
from tests.command_line import call
from tiltframe import FrameStore, ReadOptions, TiltFrame, finish, rollup
from tiltframe.cli.stream_sources import InputLines

UTC = dt.UTC
TRIALS = int(os.environ.get("TRIALS", "20"))
SEED = int(os.environ.get("SEED", random.randrange(2**32)))
ZONES = ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "Pacific/Apia"]


def frame_in(zone, level="1h"):
    return TiltFrame([level], "ts", {"n": aggr.count()}, timezone=zone)


def starts(data, frame, clock=None, **options):
    return finish(rollup(data, frame, ReadOptions(clock=clock, **options)), frame)["window_start"].to_pylist()


def instant(local, zone):
    """Find the earlier instant at which a clock shows a time, or the one at which it skips it."""
    at = local.replace(tzinfo=ZoneInfo(zone), fold=0).astimezone(UTC)
    if at.astimezone(ZoneInfo(zone)).replace(tzinfo=None) == local:
        return at
    low = at.replace(second=0) - dt.timedelta(hours=26)  # clocks change at whole minutes
    shift = low.astimezone(ZoneInfo(zone)).utcoffset()
    while low.astimezone(ZoneInfo(zone)).utcoffset() == shift:
        low += dt.timedelta(minutes=1)
    return low


def doors(local, folder, frame, clock, monkeypatch):
    """Yield the starts of windows of one clock time by each door."""
    text = local.isoformat(sep=" ")
    (folder / "a.csv").write_text(f"ts\n{text}\n")
    (folder / "a.jsonl").write_text(json.dumps({"ts": text}) + "\n")
    naive = pa.table({"ts": pa.array([local], pa.timestamp("us"))})
    pq.write_table(naive, folder / "a.parquet")
    for name in ("a.csv", "a.jsonl", "a.parquet"):
        yield name, starts(folder / name, frame, clock)
    yield "Arrow", starts(naive, frame, clock)
    yield "Arrow text", starts(pa.table({"ts": [text]}), frame, clock)
    yield "format", starts(folder / "a.csv", frame, clock, time_format="%Y-%m-%d %H:%M:%S")
    yield "expression", starts(folder / "a.csv", frame, clock, time="ts || ''")
    with (folder / "a.jsonl").open("rb") as lines, monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", lines)
        (arrived,) = [r for r in InputLines(frame, lambda rows: None, ReadOptions(clock=clock)).batches([]) if r.rows]
    yield "standard input", starts(arrived.rows, frame)


def test_clock_times_at_every_door(tmp_path, monkeypatch):
    print("seed", SEED)
    draws = random.Random(SEED)
    for _ in range(TRIALS):
        zone = draws.choice(ZONES)
        day = draws.choice([dt.datetime(2024, 3, 31), dt.datetime(2024, 10, 27), dt.datetime(2023, 1, 1)])
        local = day + dt.timedelta(seconds=draws.randrange(86400))
        start = instant(local, zone)
        frame = TiltFrame(["1s"], "ts", {"n": aggr.count()}, timezone=zone)
        for door, results in doors(local, tmp_path, frame, zone, monkeypatch):
            # aware times of a doubled hour in two zones are never equal in Python (PEP 495), so both are in UTC
            assert [at.astimezone(dt.UTC) for at in results] == [start], (door, local, zone)
            assert str(results[0].tzinfo) == zone  # pyarrow 20 returns zones of pytz


def test_without_a_clock_it_is_asked_for(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("ts\n2024-07-01 00:30:00\n")
    berlin = frame_in("Europe/Berlin")
    for data in (
        "a.csv",
        pa.table({"ts": pa.array([dt.datetime(2024, 7, 1)])}),
        pa.table({"ts": ["2024-07-01 00:30"]}),
    ):
        with pytest.raises(ValueError, match="--clock Europe/Berlin or --clock UTC"):
            rollup(data, berlin)
    options = [
        "--time",
        "ts",
        "--measure",
        "n=count()",
        "--levels",
        "1d",
        "--timezone",
        "Europe/Berlin",
        "--store",
        "s",
    ]
    status, _, err = call(capfd, "rollup", "a.csv", *options)
    assert status == 2
    assert "--clock Europe/Berlin" in err
    assert call(capfd, "rollup", "a.csv", *options, "--clock", "Europe/Berlin")[0] == 0
    assert [str(at) for at in FrameStore("s").query("1d")["window_start"].to_pylist()] == ["2024-07-01 00:00:00+02:00"]


def test_instants_need_no_clock(tmp_path):
    (tmp_path / "a.csv").write_text("ts\n2024-07-01T00:30:00Z\n2024-07-01T02:30:00+02:00\n")
    assert starts(tmp_path / "a.csv", frame_in("Europe/Berlin")) == [dt.datetime(2024, 7, 1, tzinfo=UTC)]
    assert starts(tmp_path / "a.csv", frame_in("Europe/Berlin"), "Asia/Tokyo") == [dt.datetime(2024, 7, 1, tzinfo=UTC)]


@pytest.mark.parametrize("zone", ["UTC", *ZONES])
def test_a_date_is_its_own_day_in_any_zone(zone, tmp_path):
    days = [dt.date(2024, 10, 1) + dt.timedelta(days=n) for n in range(60)]
    frame = frame_in(zone, "1d")
    (tmp_path / "a.csv").write_text("ts\n" + "".join(f"{day}\n" for day in days))
    (tmp_path / "b.csv").write_text("ts\n" + "".join(f"{day:%d.%m.%Y}\n" for day in days))
    table = pa.table({"ts": pa.array(days, pa.date32())})
    pq.write_table(table, tmp_path / "a.parquet")
    for data in (table, tmp_path / "a.csv", tmp_path / "a.parquet", pa.table({"ts": [str(day) for day in days]})):
        assert [at.date() for at in starts(data, frame)] == days
    assert [at.date() for at in starts(tmp_path / "b.csv", frame, time_format="%d.%m.%Y")] == days


def test_seconds_and_dates_as_whole_numbers_are_refused_until_declared():
    for number, kind in ((1_714_557_600, "seconds"), (20240501, "text")):
        rows = pa.table({"ts": [number]})
        with pytest.raises(ValueError, match=rf"ReadOptions\(types={{'ts': '{kind}'}}\)"):
            rollup(rows, frame_in("UTC"))
    rows = pa.table({"ts": [1_714_557_600]})
    assert starts(rows, frame_in("UTC"), types={"ts": "seconds"}) == [dt.datetime(2024, 5, 1, 10, tzinfo=UTC)]
    assert starts(rows, frame_in("UTC"), types={"ts": "milliseconds"}) == [dt.datetime(1970, 1, 20, 20, tzinfo=UTC)]


def test_at_time_zone_of_a_column_without_a_zone():
    """As DuckDB and PostgreSQL: the instant at which that clock shows the time."""
    import duckdb

    local = [dt.datetime(2024, 7, 1, 0, 30), dt.datetime(2024, 1, 1, 12), dt.datetime(2024, 10, 27, 1, 59)]
    rows = pa.table({"ts": pa.array(local, pa.timestamp("us"))})
    connection = duckdb.connect()
    connection.execute("SET TimeZone='UTC'")
    expected = connection.execute("SELECT epoch_us(ts AT TIME ZONE 'Europe/Berlin') FROM rows").fetchall()
    for zone in ("UTC", "America/New_York"):
        ours = sql.evaluate("ts AT TIME ZONE 'Europe/Berlin'", rows, zone)
        assert ours.cast(pa.int64()).to_pylist() == [micros for (micros,) in expected]


def test_months_and_years_are_times(tmp_path):
    (tmp_path / "a.csv").write_text("ts\n2024-02\n2024-03\n")
    frame = frame_in("Europe/Berlin", "1mo")
    assert [at.date() for at in starts(tmp_path / "a.csv", frame, time_format="%Y-%m")] == [
        dt.date(2024, 2, 1),
        dt.date(2024, 3, 1),
    ]


def test_days_for_a_sheet_of_excel():
    """What docs/dataframes.md does: the sheet has the days of the frame's clock."""
    frame = frame_in("Europe/Berlin", "1d")
    sheet = pa.table({"ts": pa.array([dt.datetime(2023, 1, 1, 0, 30)])}).to_pandas()
    results = finish(rollup(sheet, frame, ReadOptions(clock="Europe/Berlin")), frame, flat=True).to_pandas()
    assert results["window_start"].dt.tz_localize(None).tolist() == [dt.datetime(2023, 1, 1)]
