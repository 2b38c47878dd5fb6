"""Windows under a second, zones with a fixed offset, and ranges of levels, compared with manually computed numbers."""

from __future__ import annotations

import datetime as dt
import json

import pyarrow as pa
import pytest

import aggr
from aggr import sql
from tests.command_line import call
from tiltframe import FrameStore, TiltFrame, finish, rollup
from windows import read_window, read_windows, text_of

MILLIS = [-501, -500, -1, 0, 249, 250, 499, 500, 1200]
EVENTS = pa.table({"ts": pa.array(MILLIS, pa.int64()).cast(pa.timestamp("ms", "UTC"))})
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def counts(results: pa.Table, level: str) -> dict[int, int]:
    """Return the number of events by the start of the window, in milliseconds."""
    rows = [row for row in results.to_pylist() if row["level"] == level]
    return {(row["window_start"] - EPOCH) // dt.timedelta(milliseconds=1): row["n"] for row in rows}


def by_floor(size: int) -> dict[int, int]:
    starts = [at // size * size for at in MILLIS]
    return {start: starts.count(start) for start in sorted(set(starts))}


def test_levels_under_a_second_nest_and_survive_a_store(tmp_path):
    frame = TiltFrame(["250ms", "500ms", "1s", "1m"], "ts", {"n": aggr.count()})
    rolled = rollup(EVENTS, frame)
    results = finish(rolled, frame)
    expected = {size: by_floor(millis) for size, millis in (("250ms", 250), ("500ms", 500), ("1s", 1000))}
    assert {size: counts(results, size) for size in expected} == expected
    store = FrameStore(str(tmp_path / "store"), frame)
    store.append(rolled, writer="w", commit=1)
    store.compact()
    store.evolve(TiltFrame(["250ms", "500ms", "1s", "1m", "1h"], "ts", {"n": aggr.count()}))
    reopened = FrameStore(store.uri)
    assert {size: counts(reopened.query(size), size) for size in expected} == expected
    assert counts(reopened.query("1500ms"), "1500ms") == by_floor(1500)
    assert counts(reopened.query("1h"), "1h") == by_floor(3_600_000)
    last = reopened.query("500ms", within="-500ms", now="1970-01-01T00:00:00.5Z")
    assert counts(last, "500ms") == {0: 4}
    hops = reopened.query("hopping(1s, 500ms)", within="1970-01-01T00:00:00Z,")
    assert counts(hops, "hopping(1s, 500ms)") == {0: 5, 500: 2, 1000: 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1.5 s", "'1.5 s' is '1500ms'$"),
        ("0.25s", "'0.25s' is '250ms'$"),
        ("0ms", "one of us, ms, s, m, h, d, w, mo, q, y"),
    ],
)
def test_fractions_of_a_unit_are_refused_with_the_size_in_whole_units(text, message):
    with pytest.raises(ValueError, match=message):
        read_window(text)


def test_levels_that_cut_each_other_are_refused():
    with pytest.raises(ValueError, match="1s does not consist of whole windows of 300ms"):
        TiltFrame(["300ms", "1s"], "ts", {"n": aggr.count()})


def test_command_line_has_windows_under_a_second_in_a_range_of_levels_and_an_offset(tmp_path, capfd):
    events = tmp_path / "e.jsonl"
    events.write_text("".join(json.dumps({"ts": f"1970-01-01T00:00:00.{n:03}Z"}) + "\n" for n in (0, 499, 500)))
    frame = ("--time", "ts", "--measure", "n=count()", "--levels", "500ms,sec ... min", "--timezone", "+0530")
    status, _, message = call(capfd, "rollup", events, *frame, "--store", tmp_path / "store")
    assert status == 0, message
    per = ("--per", "500ms", "--per", "1s", "--per", "1m")
    _, lines, _ = call(capfd, "query", tmp_path / "store", *per, "--timezone", "+05:30", "--format", "json")
    rows = [json.loads(line) for line in lines.splitlines()]
    assert [(row["level"], row["window_start"], row["n"]) for row in rows] == [
        ("500ms", "1970-01-01T05:30:00+05:30", 2),
        ("500ms", "1970-01-01T05:30:00.500000+05:30", 1),
        ("1s", "1970-01-01T05:30:00+05:30", 3),
        ("1m", "1970-01-01T05:30:00+05:30", 3),
    ]
    _, table, _ = call(capfd, "query", tmp_path / "store", "--per", "500ms", "--timezone", "UTC")
    assert "1970-01-01 00:00:00.500" in table


@pytest.mark.parametrize("text", ["+05:30", "+0530", "+5:30"])
def test_a_zone_with_a_fixed_offset_is_one_zone_however_it_is_written(text, tmp_path):
    frame = TiltFrame("sec ... year", "ts", {"n": aggr.count()}, timezone=text)
    assert frame == TiltFrame(["1s", "1m", "1h", "1d", "1mo", "1y"], "ts", {"n": aggr.count()}, timezone="+05:30")
    # Siddhi's document: an event of 2014-02-20 00:00 +05:30 lies in that day, which is the 19th in UTC
    event = pa.table({"ts": [dt.datetime(2014, 2, 19, 18, 30, tzinfo=dt.UTC)]})
    store = FrameStore(str(tmp_path / "store"), frame)
    store.append(rollup(event, frame), writer="w", commit=1)
    reopened = FrameStore(store.uri)
    assert reopened.frame.timezone == "+05:30"
    [row] = reopened.query("1d", within="2014-02-20").to_pylist()
    assert row["window_start"].isoformat() == "2014-02-20T00:00:00+05:30"
    assert reopened.query("1d", within="2014-02-19", timezone=text).num_rows == 0


@pytest.mark.skipif(int(pa.__version__.split(".")[0]) < 21, reason="pyarrow 20 finds no zone for an offset")
def test_at_time_zone_takes_an_offset():
    at = pa.table({"ts": pa.array([0], pa.timestamp("us", "UTC"))})
    assert sql.rows_where(
        "hour(ts AT TIME ZONE '+0530') = 5 AND minute(ts AT TIME ZONE '+05:30') = 30", at
    ).tolist() == [True]


@pytest.mark.parametrize(
    ("zone", "message"),
    [
        ("+19:00", "an offset is hours and minutes from -18:00 to \\+18:00"),
        ("05:30", "an offset needs a sign, such as '\\+05:30'"),
        ("Europe/Pari", "did you mean 'Europe/Paris'"),
    ],
)
def test_offsets_that_do_not_exist_are_refused(zone, message):
    with pytest.raises(ValueError, match=message):
        read_window("1d", zone)


@pytest.mark.parametrize("text", ["year ... sec", "10s ... 1h", "1s ... 1w", "1s ... 1m ... 1h"])
def test_ranges_of_levels_have_single_units_from_fine_to_coarse(text):
    with pytest.raises(ValueError, match="as a range of levels; write two different levels, the finer one first"):
        read_windows(text)


def test_the_text_of_a_window_under_a_second_reads_back():
    for text in ("250ms", "hopping(1s, 300ms)", "tumbling(1s, offset=250ms)", "125us"):
        assert text_of(read_window(text)) == text
