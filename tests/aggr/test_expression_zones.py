"""Expressions with times of a zone, compared with DuckDB and zoneinfo, also where the clock changes."""

from __future__ import annotations

import datetime as dt
import os
import random
from collections import Counter
from zoneinfo import ZoneInfo

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import aggr
from aggr import sql
from aggr.sql.zones import STEPS_PER_SECOND, from_local, to_local
from aggr.time_zones import zone_of
from tiltframe import FrameStore, ReadOptions, TiltFrame, finish, rollup
from tiltframe.store.testing import MemoryBackend
from tiltframe.streaming import OpenWindows

SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))
UTC = dt.UTC
INSTANT = pa.timestamp("us", "UTC")
ZONES = [  # on both sides of the equator, with half hours and quarters, some of which skip midnights
    *("UTC", "Europe/Berlin", "America/New_York", "America/St_Johns", "Asia/Kathmandu", "Asia/Kolkata"),
    *("Australia/Lord_Howe", "Pacific/Auckland", "America/Sao_Paulo", "Asia/Beirut", "Africa/Casablanca"),
]
CHANGES = [(2024, 3, 31), (2024, 10, 27), (2024, 3, 10), (2024, 11, 3), (2024, 4, 6), (2024, 10, 5), (2017, 10, 15)]
PARTS = ("year", "quarter", "month", "day", "hour", "minute", "second", "dow", "isodow")


def drawn(draws: random.Random, n: int = 200) -> list[dt.datetime]:
    """Draw instants around changes of clocks."""
    return [
        dt.datetime(*draws.choice(CHANGES), tzinfo=UTC) + dt.timedelta(seconds=draws.randrange(-86_400, 2 * 86_400))
        for _ in range(n)
    ]


def by_duckdb(text: str, rows: pa.Table, zone: str) -> list[object]:
    with duckdb.connect() as connection:
        connection.execute(f"SET TimeZone = '{zone}'")
        connection.register("given", rows.cast(pa.schema([("ts", INSTANT)])))
        return [row[0] for row in connection.execute(f"SELECT {text} FROM given").fetchall()]


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("zone", ZONES)
def test_parts_dates_and_comparisons_are_those_of_duckdb(zone, unit):
    draws = random.Random(SEED)
    rows = pa.table({"ts": pa.array([*drawn(draws), None], INSTANT).cast(pa.timestamp(unit, "UTC"))})
    days = [dt.date(*draws.choice(CHANGES)) + dt.timedelta(days=draws.randrange(-1, 2)) for _ in range(3)]
    texts = [f"extract({part} from ts)" for part in PARTS] + ["CAST(ts AS DATE)"]
    texts += [f"ts >= CAST('{day}' AS DATE)" for day in days]
    texts += [f"ts < '{day} {draws.randrange(24):02}:{draws.randrange(60):02}:00+02:00'" for day in days]
    texts += [f"CAST(ts AS DATE) = CAST('{day}' AS DATE) AND hour(ts) BETWEEN 1 AND 3" for day in days]
    for text in texts:
        assert sql.evaluate(text, rows, zone).to_pylist() == by_duckdb(text, rows, zone), (SEED, zone, text)


@pytest.mark.slow
@pytest.mark.parametrize("zone", ZONES)
def test_truncated_times_and_literals_are_those_of_zoneinfo(zone):
    draws, info = random.Random(SEED), ZoneInfo(zone)
    times = drawn(draws, 60)
    rows = pa.table({"ts": pa.array(times, INSTANT)})

    def first(local: dt.datetime) -> dt.datetime:
        """Walk to the first instant at which the clock shows a local time or a later one."""
        at = local.replace(tzinfo=UTC) - dt.timedelta(hours=16)
        for step in (3600, 60, 1):
            while (at + dt.timedelta(seconds=step)).astimezone(info).replace(tzinfo=None) < local:
                at += dt.timedelta(seconds=step)
        return at + dt.timedelta(seconds=1)

    local = [at.astimezone(info).replace(tzinfo=None) for at in times]
    midnight = [time.replace(hour=0, minute=0, second=0) for time in local]
    starts = {
        "day": midnight,
        "month": [time.replace(day=1) for time in midnight],
        "week": [time - dt.timedelta(days=time.weekday()) for time in midnight],
    }
    for unit, unit_starts in starts.items():
        expected = [first(start) for start in unit_starts]
        assert sql.evaluate(f"date_trunc('{unit}', ts)", rows, zone).to_pylist() == expected, (SEED, unit)
    for unit, fields in (("hour", {"minute": 0, "second": 0}), ("minute", {"second": 0})):
        result = sql.evaluate(f"date_trunc('{unit}', ts)", rows, zone).to_pylist()
        shown = [at.astimezone(info).replace(tzinfo=None) for at in result]
        begun = [first(time.replace(**fields)) for time in local]  # later where the clock leaves the time out
        assert shown == [at.astimezone(info).replace(tzinfo=None) for at in begun], (SEED, unit)
        assert all(at <= time < at + dt.timedelta(minutes=90) for at, time in zip(result, times, strict=True)), SEED
    for day in draws.sample(midnight, 5):
        since = day + dt.timedelta(hours=2, minutes=30)
        for text in (f"ts >= '{since}'", f"ts >= TIMESTAMP '{since}'"):
            expected = [at >= first(since) for at in times]
            assert sql.evaluate(text, rows, zone).to_pylist() == expected, (SEED, text)
        text = f"ts < DATE '{day.date()}' + INTERVAL '6' HOUR"
        expected = [at < first(day + dt.timedelta(hours=6)) for at in times]
        assert sql.evaluate(text, rows, zone).to_pylist() == expected, (SEED, text)


@pytest.mark.parametrize("zone", ZONES)
def test_a_zone_may_be_an_argument(zone):
    rows = pa.table({"ts": pa.array(drawn(random.Random(SEED)), INSTANT)})
    for part in PARTS:
        expected = by_duckdb(f"extract({part} from ts)", rows, zone)
        for text in (f"{part}(ts, '{zone}')", f"{part}(ts AT TIME ZONE '{zone}')"):
            for other in ("UTC", "Asia/Tokyo"):
                assert sql.evaluate(text, rows, other).to_pylist() == expected, (SEED, text)
    expected = by_duckdb("date_trunc('day', ts)", rows, zone)
    assert sql.evaluate(f"date_trunc('day', ts, '{zone}')", rows).to_pylist() == expected, SEED


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hour(ts, 'Europe/Berln')", "there is no time zone 'Europe/Berln'; did you mean 'Europe/Berlin'"),
        ("hour(ts, n)", "must be a constant"),
        ("hour(n, 'Europe/Berlin')", "AT TIME ZONE needs a time; got int64"),
        ("dow(n)", "dow needs a time or a date; got int64"),
        ("dow()", "cannot read the expression"),
        ("hour(ts, 'UTC', 'UTC')", "cannot read the expression"),
        ("dayofweek(ts)", "cannot use 'DAYOFWEEK"),
    ],
)
def test_what_is_no_zone_or_no_time_is_refused(text, message):
    rows = pa.table({"ts": pa.array([], INSTANT), "n": pa.array([], pa.int64())})
    with pytest.raises(ValueError, match=message) as error:
        sql.evaluate(text, rows)
    assert len(str(error.value)) <= 300


@pytest.mark.parametrize("dtype", [INSTANT, pa.timestamp("us"), pa.timestamp("ms", "Asia/Tokyo")])
def test_the_type_of_a_value_does_not_depend_on_the_zone(dtype):
    rows = pa.table({"ts": pa.array([0], dtype)})
    for text in ("date_trunc('day', ts)", "ts + INTERVAL '1' DAY", "hour(ts)", "CAST(ts AS DATE)"):
        values = sql.evaluate(text, rows, "Europe/Berlin")
        assert values.type == sql.value_type(text, rows.schema) == sql.evaluate(text, rows).type


@pytest.mark.parametrize("naive", [False, True])
@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu", "America/New_York"])
def test_keys_and_conditions_of_rows_follow_the_frames_zone(zone, naive):
    info, times = ZoneInfo(zone), drawn(random.Random(SEED), 500)
    measures = {"n": aggr.count(), "night": aggr.count(where="hour(ts) < 6"), "minutes": aggr.sum("minute(ts)")}
    frame = TiltFrame(["1d"], "ts", measures, keys={"hour": "hour(ts)", "day": "dow(ts)"}, timezone=zone)
    column = pa.array(times, INSTANT)
    rows = pa.table({"ts": column.cast(pa.timestamp("us")) if naive else column})
    counted, night, minutes = Counter(), Counter(), Counter()
    for at in times:
        local = at.astimezone(info)
        key = (local.date(), local.hour, (local.weekday() + 1) % 7)
        counted[key] += 1
        night[key] += local.hour < 6
        minutes[key] += local.minute
    windows, instants = OpenWindows(frame), pa.table({"ts": column})
    for part in (instants.slice(0, 200), instants.slice(200)):
        windows.add_rows(part)
    reading = ReadOptions(clock="UTC" if naive else None)
    for results in (finish(rollup(rows, frame, reading), frame), windows.results(windows.close())):
        got = results.to_pylist()
        keys = [(row["window_start"].astimezone(info).date(), row["hour"], row["day"]) for row in got]
        for name, expected in (("n", counted), ("night", night), ("minutes", minutes)):
            assert dict(zip(keys, [row[name] for row in got], strict=True)) == expected, (SEED, name)


@pytest.mark.slow
@pytest.mark.parametrize("frame_zone", ["UTC", "Europe/Berlin"])
@pytest.mark.parametrize("query_zone", [None, "Europe/Berlin", "Asia/Kathmandu", "Australia/Lord_Howe"])
def test_conditions_and_orders_of_results_follow_the_zone_that_is_asked_for(frame_zone, query_zone):
    draws, info = random.Random(SEED), ZoneInfo(query_zone or frame_zone)
    frame = TiltFrame(["15m", "1h"], "ts", {"n": aggr.count()}, {"at": "date_trunc('day', ts)"}, timezone=frame_zone)
    store = FrameStore(MemoryBackend(f"zones {random.random()}"), frame)
    store.append(rollup(pa.table({"ts": pa.array(drawn(draws, 300), INSTANT)}), frame), "w", 1)
    every = store.query("15m", timezone=query_zone).to_pylist()
    local = [row["window_start"].astimezone(info) for row in every]
    both = list(zip(every, local, strict=True))
    hours = [row for row, at in both if at.hour in (2, 9)]
    assert store.query("15m", having="hour(window_start) IN (2, 9)", timezone=query_zone).to_pylist() == hours, SEED
    sundays = [row for row, at in both if at.weekday() == 6]
    assert store.query("15m", having="dow(window_start) = 0", timezone=query_zone).to_pylist() == sundays, SEED
    ordered = sorted(both, key=lambda row: (-row[1].hour, row[1].astimezone(UTC)))
    result = store.query("15m", order_by=["hour(window_start) desc", "window_start"], timezone=query_zone).to_pylist()
    assert [row["window_start"] for row in result] == [row["window_start"] for row, _ in ordered], SEED
    day = draws.choice(local).date()
    since = dt.datetime(day.year, day.month, day.day, tzinfo=info).astimezone(UTC)
    recent = [row for row in every if row["at"].astimezone(UTC) >= since]
    assert store.query("15m", where=f"at >= '{day}'", timezone=query_zone).to_pylist() == recent, SEED
    recent = [row for row in every if row["at"].astimezone(info).hour == 0]
    assert store.query("15m", where="hour(at) = 0", timezone=query_zone).to_pylist() == recent, SEED


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", ZONES)
def test_times_of_other_centuries_are_those_of_zoneinfo(zone, unit):
    """Also after 2037, up to which the files of time zones list each change of the clock, and before 1901. Nanoseconds
    cannot represent the years 1 and 9999.
    """
    draws = random.Random(SEED)
    years = [1700, 1850, 1900, 2037, 2038, 2060, 2101, *([1, 9999] if unit != "ns" else [])]
    moments = [
        dt.datetime(draws.choice(years), draws.randrange(1, 13), draws.randrange(2, 29), tzinfo=UTC)
        + dt.timedelta(seconds=draws.randrange(86_400))
        for _ in range(200)
    ]
    info = ZoneInfo(zone)
    local = [moment.astimezone(info) for moment in moments]
    rows = pa.table({"ts": pa.array([*moments, None], INSTANT).cast(pa.timestamp(unit, "UTC"))})
    for part in ("year", "month", "day", "hour", "minute", "second"):
        expected = [getattr(moment, part) for moment in local]
        assert sql.evaluate(f"{part}(ts)", rows, zone).to_pylist() == [*expected, None], (SEED, part)
    assert sql.evaluate("CAST(ts AS DATE)", rows, zone).to_pylist() == [*(moment.date() for moment in local), None]
    days = sql.evaluate("date_trunc('day', ts)", rows, zone).cast(pa.timestamp("us", "UTC")).to_pylist()
    first_instants = [dt.datetime(moment.year, moment.month, moment.day, tzinfo=info) for moment in local]
    assert days == [*(first.astimezone(UTC) for first in first_instants), None], SEED


OUTER_OFFSETS = {"UTC": (0, 0), "+05:30": (19_800, 19_800), "Europe/Paris": (561, 3600)}  # first and last, in seconds


@pytest.mark.parametrize("has_near_times", [False, True])
@pytest.mark.parametrize("stray", [2**62, -(2**62), 10**18, -(10**18)])
@pytest.mark.parametrize("unit", ["s", "ms", "us"])
@pytest.mark.parametrize("zone", OUTER_OFFSETS)
def test_a_stray_time_is_shifted_as_by_arrow_and_does_not_affect_other_times(zone, unit, stray, has_near_times):
    """A stray time, for example of a wrong unit, may lie beyond the year 9999, and beyond int64 in microseconds."""
    moments = drawn(random.Random(SEED), 50) if has_near_times else []
    near_times = pa.array(moments, INSTANT).cast(pa.timestamp(unit, zone))
    instants = pa.concat_arrays([near_times, pa.array([stray], near_times.type)])
    shift = OUTER_OFFSETS[zone][stray > 0] * STEPS_PER_SECOND[unit]
    local = to_local(instants)
    near_local = [moment.astimezone(zone_of(zone)).replace(tzinfo=None) for moment in moments]
    assert local[:-1].cast(pa.timestamp("us")).to_pylist() == near_local, SEED
    assert local[-1].value == stray + shift
    assert local[-1] == to_local(instants[-1]) == pc.local_timestamp(instants[-1])
    again = from_local(pa.concat_arrays([local[:-1], pa.array([stray], local.type)]), zone)
    assert to_local(again)[:-1] == local[:-1], SEED
    assert again[-1].value == stray - shift
    assert again[-1] == pc.assume_timezone(pa.scalar(stray, local.type), zone)


@pytest.mark.parametrize("zone", ["UTC", "Etc/UTC", "+00:00"])
def test_times_of_a_zone_without_an_offset_are_not_copied(zone):
    instants = pa.array([2**62, None], pa.timestamp("s", zone))
    local = to_local(instants)
    assert local.buffers()[1].address == instants.buffers()[1].address
    assert from_local(local, zone) == instants
    assert from_local(local, zone).buffers()[1].address == instants.buffers()[1].address


def test_a_filter_of_files_has_no_changes_of_the_offset_after_2037():
    """Only Arrow can evaluate filters of files. `rows_where` has the changes."""
    condition = "hour(ts, 'Europe/Paris') = 0"
    for year, hour_of_filter in ((2036, 22), (2040, 23)):
        rows = pa.table({"ts": pa.array([dt.datetime(year, 7, 1, hour, tzinfo=UTC) for hour in range(24)], INSTANT)})
        filtered = ds.dataset(rows).to_table(filter=sql.to_expression(condition, rows.schema))
        assert [at.hour for at in filtered["ts"].to_pylist()] == [hour_of_filter], year
        assert sql.rows_where(condition, rows).nonzero()[0].tolist() == [22], year
