"""tiltframe stream: dates in files are days in the zone of the windows, also for the watermark."""

from __future__ import annotations

import datetime as dt
import json
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.command_line import call

DAYS = [dt.date(2024, 10, day) for day in (1, 2, 3)]


@pytest.mark.parametrize("zone", ["America/New_York", "Pacific/Kiritimati", "UTC"])
def test_the_watermark_of_dates_is_the_day_in_the_zone_of_the_windows(zone, tmp_path, capfd):
    folder = tmp_path / "in"
    folder.mkdir()
    options = ["--time", "d", "--measure", "n=count()", "--levels", "1d", "--timezone", zone, "--once"]
    options += ["--state", str(tmp_path / "state")]
    emitted = []
    for day in DAYS:
        pq.write_table(pa.table({"d": [day]}), folder / f"{day}.parquet")
        status, out, err = call(capfd, "stream", str(folder), *options)
        assert (status, err) == (0, "")
        emitted.append([dt.datetime.fromisoformat(json.loads(line)["window_start"]) for line in out.splitlines()])
    starts = [dt.datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)) for day in DAYS]
    assert emitted == [[], starts[:1], starts[1:2]]


def test_a_late_date_is_reported_as_its_day_in_the_zone(tmp_path, capfd):
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(pa.table({"d": DAYS}), folder / "a.parquet")
    options = ["--time", "d", "--measure", "n=count()", "--levels", "1d", "--timezone", "Asia/Tokyo", "--once"]
    options += ["--state", str(tmp_path / "state")]
    call(capfd, "stream", str(folder), *options)
    pq.write_table(pa.table({"d": DAYS[:1]}), folder / "b.parquet")
    status, _, err = call(capfd, "stream", str(folder), *options)
    assert status == 0
    assert "a row with the time 2024-09-30T15:00:00Z came late, behind the watermark 2024-10-02T15:00:00Z" in err
