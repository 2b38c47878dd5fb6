"""Queries in another zone than the store's: windows follow the clock of this zone, and are merged from levels
that fit.
"""

from __future__ import annotations

import datetime as dt
import os
import random
from collections import Counter
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

import aggr
from tiltframe import FrameStore, TiltFrame, rollup
from tiltframe.store.testing import MemoryBackend
from windows import window

SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))
UTC = dt.UTC
MEASURES = {"n": aggr.count(), "total": aggr.sum("x")}
SPANS = [  # over changes of clocks, in the north and in the south
    (dt.datetime(2024, 3, 28, tzinfo=UTC), 6),
    (dt.datetime(2024, 10, 25, tzinfo=UTC), 5),
    (dt.datetime(2024, 4, 4, tzinfo=UTC), 5),
    (dt.datetime(2023, 12, 30, tzinfo=UTC), 4),
]


def store_of(times: list[dt.datetime], levels: list[str], timezone: str = "UTC") -> FrameStore:
    frame = TiltFrame(levels, "ts", MEASURES, timezone=timezone)
    rows = pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC")), "x": pa.array(range(len(times)), pa.int64())})
    store = FrameStore(MemoryBackend(f"zones {random.random()}"), frame)
    store.append(rollup(rows, frame), "w", 1)
    return store


def local_start(at: dt.datetime, per: str, zone: ZoneInfo) -> dt.datetime:
    """The start of a window by the zone's own clock, found by walking it, in UTC."""
    local = at.astimezone(zone)
    day = local.date()
    if per == "1w":
        day -= dt.timedelta(days=day.weekday())
    elif per == "1mo":
        day = day.replace(day=1)
    return dt.datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)


@pytest.mark.parametrize(
    ("zone", "levels"),
    [
        ("Europe/Berlin", ["1m", "1h", "1d"]),
        ("America/New_York", ["1m", "1h"]),
        ("Asia/Kathmandu", ["1m", "15m", "1h", "1d"]),
        ("Australia/Lord_Howe", ["10m", "30m", "1h"]),
        ("Asia/Kolkata", ["30m", "1d"]),
        ("Pacific/Auckland", ["1h", "1d", "1mo"]),
    ],
)
def test_days_weeks_and_months_are_the_zones_own(zone, levels):
    draws = random.Random(SEED)
    begin, days = draws.choice(SPANS)
    times = [begin + dt.timedelta(seconds=draws.randrange(days * 86_400)) for _ in range(600)]
    store = store_of(times, levels)
    for per in ("1d", "1w", "1mo"):
        counted = Counter(local_start(at, per, ZoneInfo(zone)) for at in times)
        sums = Counter()
        for number, at in enumerate(times):
            sums[local_start(at, per, ZoneInfo(zone))] += number
        result = store.query(per, timezone=zone)
        starts = result["window_start"].to_pylist()
        assert result.schema.field("window_start").type == pa.timestamp("us", zone)
        assert dict(zip(starts, result["n"].to_pylist(), strict=True)) == counted, (SEED, per)
        assert dict(zip(starts, result["total"].to_pylist(), strict=True)) == sums, (SEED, per)
        assert all((at.hour, at.minute) == (0, 0) for at in starts)


def test_a_day_of_25_hours_has_the_rows_of_25_hours():
    begin = dt.datetime(2024, 10, 25, tzinfo=UTC)
    store = store_of([begin + dt.timedelta(minutes=i) for i in range(4 * 24 * 60)], ["1h", "1d"])
    result = store.query("1d", ("2024-10-26", "2024-10-28"), timezone="Europe/Berlin").to_pylist()
    assert [(row["window_start"].isoformat(), row["n"]) for row in result] == [
        ("2024-10-26T00:00:00+02:00", 24 * 60),
        ("2024-10-27T00:00:00+02:00", 25 * 60),
    ]


def test_what_no_level_makes_up_is_refused():
    store = store_of([dt.datetime(2024, 5, 1, tzinfo=UTC)], ["1h", "1d"])
    with pytest.raises(
        ValueError, match=r"1d in Asia/Kathmandu does not consist of whole windows of a level .* UTC are 1h, 1d"
    ):
        store.query("1d", timezone="Asia/Kathmandu")
    with pytest.raises(ValueError, match="1d in Europe/Berlin does not consist of"):
        store_of([dt.datetime(2024, 5, 1, tzinfo=UTC)], ["1d"]).query("1d", timezone="Europe/Berlin")


@pytest.mark.parametrize("within", [None, ("2024-05-01", "2024-05-02")])
def test_hours_that_lie_otherwise_all_year_are_refused_before_anything_is_read(within):
    store = store_of([dt.datetime(2024, 5, 1, tzinfo=UTC)], ["1h"])
    with pytest.raises(ValueError, match="1h in Asia/Kathmandu does not consist of"):
        store.query("1h", within, timezone="Asia/Kathmandu")


def test_states_from_when_the_clock_was_set_otherwise_are_refused_and_not_cut():
    """Until 1972 Monrovia was 44 minutes and a half behind UTC: hours of UTC lie across its days."""
    times = [dt.datetime(1971, 6, 1, tzinfo=UTC) + dt.timedelta(minutes=i) for i in range(3000)]
    times += [dt.datetime(1995, 6, 1, tzinfo=UTC)]
    store = store_of(times, ["1h"])
    with pytest.raises(ValueError, match=r"does not consist of|overlaps two windows of 1d in Africa/Monrovia"):
        store.query("1d", timezone="Africa/Monrovia")
    later = store.query("1d", ("1990-01-01", "2000-01-01"), timezone="Africa/Monrovia")
    assert later["n"].to_pylist() == [1]


def test_states_from_before_the_years_that_are_looked_at_are_refused_as_they_are_read():
    """Until 1911 Paris was 9 minutes and 21 seconds ahead of UTC: 23:00 UTC lies in two of its days, 22:00 does not."""
    for hour, refused in ((22, False), (23, True)):
        store = store_of([dt.datetime(1900, 1, 1, hour, tzinfo=UTC), dt.datetime(1995, 6, 1, tzinfo=UTC)], ["1h"])
        if refused:
            message = r"1h that starts at 1900-01-01T23:00:00.* overlaps two windows of 1d in Europe/Paris"
            with pytest.raises(ValueError, match=message):
                store.query("1d", timezone="Europe/Paris")
        else:
            assert store.query("1d", timezone="Europe/Paris")["n"].to_pylist() == [1, 1]


def test_hours_and_windows_of_the_stores_zone_stay():
    begin = dt.datetime(2024, 3, 31, tzinfo=UTC)
    store = store_of([begin + dt.timedelta(minutes=i) for i in range(300)], ["1m", "1h", "1d"])
    plain, zoned = (store.query("1h", timezone=zone) for zone in (None, "Europe/Berlin"))
    assert plain["n"].to_pylist() == zoned["n"].to_pylist()
    assert plain["window_start"].to_pylist() == zoned["window_start"].to_pylist()
    utc = store.query(window("1d"), timezone="Europe/Berlin")
    assert [at.isoformat() for at in utc["window_start"].to_pylist()] == ["2024-03-31T01:00:00+01:00"]


@pytest.mark.store
def test_the_command_line_labels_days_of_the_zone(tmp_path, capfd):
    from tiltframe.cli import main

    frame = TiltFrame(["1h", "1d"], "ts", {"n": aggr.count()})
    begin = dt.datetime(2024, 10, 25, tzinfo=UTC)
    times = [begin + dt.timedelta(minutes=10 * i) for i in range(4 * 144)]
    FrameStore(str(tmp_path / "s"), frame).append(
        rollup(pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC"))}), frame), "w", 1
    )
    main(["query", str(tmp_path / "s"), "--per", "1d", "--timezone", "Europe/Berlin"])
    lines = [line.split() for line in capfd.readouterr().out.splitlines()]
    assert ["2024-10-27", "150"] in [line[:2] for line in lines]
    with pytest.raises(SystemExit):
        main(["query", str(tmp_path / "s"), "--per", "1d", "--timezone", "Asia/Kathmandu"])
    assert "1d in Asia/Kathmandu does not consist of" in capfd.readouterr().err


def test_days_that_are_not_the_zones_are_not_labelled_by_a_date_alone(capfd):
    from tiltframe.cli.output import print_table

    store = store_of([dt.datetime(2024, 5, 1, 12, tzinfo=UTC)], ["1h", "1d"])
    print_table(store.query(window("1d"), timezone="Europe/Berlin"))
    assert "2024-05-01 02:00" in capfd.readouterr().out
