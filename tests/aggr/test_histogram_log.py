"""Histogram logs, compared with the reader and the writer of the package hdrhistogram, also for coarse histograms."""

from __future__ import annotations

import base64
import struct
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader, HistogramLogWriter

import aggr
from aggr import Groups, Hdr
from aggr.interchange.hdr_v2 import from_hdr_v2, to_hdr_v2
from aggr.interchange.histogram_log import read_histogram_log, write_histogram_log
from tiltframe import FrameStore, TiltFrame, finish, rollup_states

PERCENTILES = [1.0, 14.5, 50.0, 90.0, 99.0, 99.9, 100.0]
QUANTILES = tuple(round(p / 100, 10) for p in PERCENTILES)


def theirs_of(values, lowest, digits):
    histogram = HdrHistogram(lowest, max(2 * lowest, int(values.max(initial=2))), digits)
    for value in values.tolist():
        assert histogram.record_value(value)
    return histogram


def check_reads(state, histogram, digits):
    """What the histogram says of itself is what the state says, down to one of its units for min and mean."""
    result = Hdr(QUANTILES, digits).finish(state)[0].as_py()
    if not histogram.get_total_count():
        assert result is None
        return
    unit = 1 << histogram.unit_magnitude
    expected = histogram.get_percentile_to_value_dict(PERCENTILES)
    assert list(result["quantiles"].values()) == [expected[p] for p in PERCENTILES]
    assert (result["count"], result["max"]) == (histogram.get_total_count(), histogram.get_max_value())
    assert histogram.values_are_equivalent(result["min"], histogram.get_min_value())
    assert abs(result["mean"] - histogram.get_mean_value()) <= unit


@pytest.mark.parametrize("digits", [1, 2, 3])
@pytest.mark.parametrize("lowest", [1, 2, 3, 1000, 20_000, 2**20, 2**33 + 1])
def test_any_lowest_discernible_value(lowest, digits):
    rng = np.random.default_rng(lowest % 1000)
    lists = [
        (rng.lognormal(2, 2, 200) * lowest).astype(np.int64),
        rng.integers(0, 3 * lowest, 50),
        np.array([0, lowest - 1, lowest, 2 * lowest, 2**40]),
        np.zeros(0, np.int64),
    ]
    histograms = [theirs_of(values, lowest, digits) for values in lists]
    states = from_hdr_v2(pa.array([histogram.encode().decode() for histogram in histograms]), Hdr(digits=digits))
    assert states.type == Hdr(digits=digits).state_type(pa.int64())
    for row, histogram in enumerate(histograms):
        check_reads(states.slice(row, 1), histogram, digits)
        again = HdrHistogram.decode(to_hdr_v2(states.slice(row, 1), Hdr(digits=digits))[0].as_py())
        assert again.get_percentile_to_value_dict(PERCENTILES) == histogram.get_percentile_to_value_dict(PERCENTILES)
    merged = Hdr(digits=digits).merge(states, Groups.single(len(lists)))
    check_reads(merged, theirs_of(np.concatenate(lists), lowest, digits), digits)


@pytest.mark.parametrize("lowest", [2, 1000, 20_000])
def test_coarse_buckets_are_made_of_whole_ones(lowest):
    """Merged with finer histograms, a coarse one keeps its counts between the same limits."""
    coarse, fine = (HdrHistogram(histogram, 2**40, 2) for histogram in (lowest, 1))
    for value in np.random.default_rng(1).integers(0, 2**24, 500).tolist():
        low, high = coarse.get_lowest_equivalent_value(value), coarse.get_highest_equivalent_value(value)
        assert low <= fine.get_lowest_equivalent_value(value) <= fine.get_highest_equivalent_value(value) <= high


def package_log(path, histograms, start=1441753532.57, base=None, tags=()):
    with open(path, "w") as file:
        writer = HistogramLogWriter(file)
        writer.output_comment("[Logged with jHiccup version 2.0.7]")
        writer.output_log_format_version()
        writer.log.write(f"#[StartTime: {start:.3f} (seconds since epoch), Tue Sep 08 16:05:32 PDT 2015]\n")
        if base is not None:
            writer.output_base_time(base * 1000)
        writer.output_legend()
        for i, histogram in enumerate(histograms):
            if i < len(tags) and tags[i]:
                file.write(f"Tag={tags[i]},")
            writer.output_interval_histogram(histogram, 0.127 + 1.5 * i, 1.127 + 1.5 * i)


def intervals_of(path):
    reader = HistogramLogReader(path, HdrHistogram(1, 2**40, 2))
    while (histogram := reader.get_next_interval_histogram(absolute=True)) is not None:
        yield histogram
    reader.close()


@pytest.mark.parametrize(("start", "base"), [(1441753532.57, None), (1441753532.57, 1441753000.25), (0.5, None)])
def test_their_log_is_a_table_of_states(tmp_path, start, base):
    """As jHiccup writes it: a lowest discernible value of 20000, times from a start or a base, or absolute; tags."""
    rng = np.random.default_rng(5)
    histograms = [theirs_of((rng.lognormal(12, 1, n)).astype(np.int64), 20_000, 2) for n in (50, 1, 200)]
    path = str(tmp_path / "x.hlog")
    package_log(path, histograms, start, base, ["A", None, "B"])
    table = read_histogram_log(path, Hdr(digits=2))
    intervals = list(intervals_of(path))
    assert table.num_rows == len(intervals) == 3
    for row, histogram in enumerate(intervals):
        check_reads(table["histogram"].combine_chunks().slice(row, 1), histogram, 2)
        at = {name: table[name][row].cast(pa.timestamp("us")).cast(pa.int64()).as_py() for name in ("start", "end")}
        assert at["start"] / 1000 == pytest.approx(histogram.get_start_time_stamp(), abs=0.002)
        assert at["end"] / 1000 == pytest.approx(histogram.get_end_time_stamp(), abs=0.002)
        assert table["tag"][row].as_py() == histogram.get_tag()
    offset = base if base is not None else (start if start > 1e9 else 0)
    first = round((offset + 0.127) * 1e6)
    assert table["start"].cast(pa.int64()).to_pylist() == [first + 1_500_000 * i for i in range(3)]


def test_our_log_is_read_by_their_reader(tmp_path):
    path, function = str(tmp_path / "x.hlog"), Hdr(digits=3)
    states = function.reduce(pa.array([3, 5, 123_456_789]), Groups.of([0, 0, 2], 3))
    at = pa.array([1700000000_123456, 1700000001_000000, 1700000000_000001], pa.timestamp("us", "UTC"))
    end_times = pa.array([1700000001_123456, 1700000001_000000, 1700000009_999999], pa.timestamp("us", "UTC"))
    table = pa.table({"start": at, "end": end_times, "tag": ["get", None, "put"], "histogram": states})
    write_histogram_log(path, table, function)
    intervals = list(intervals_of(path))
    assert [histogram.get_tag() for histogram in intervals] == ["get", None, "put"]
    assert [histogram.get_total_count() for histogram in intervals] == [2, 0, 1]
    assert intervals[0].get_start_time_stamp() == pytest.approx(1700000000123.456, abs=0.002)
    assert intervals[2].get_end_time_stamp() == pytest.approx(1700000009999.999, abs=0.002)
    assert intervals[2].values_are_equivalent(intervals[2].get_max_value(), 123_456_789)
    again = read_histogram_log(path, function)
    assert again.select(["start", "end", "tag"]).equals(table.select(["start", "end", "tag"]))
    for name in ("buckets", "nan"):
        assert again["histogram"].combine_chunks().field(name).equals(states.field(name))
    assert ",123.457,HIST" in (tmp_path / "x.hlog").read_text().splitlines()[-1]
    empty = table.slice(0, 0)
    write_histogram_log(path, empty, function)
    assert read_histogram_log(path, function).num_rows == 0


def test_a_log_goes_into_a_store(tmp_path):
    """Interval states climb levels by time and tag, and are queried by either rank rule."""
    rng = np.random.default_rng(6)
    drawn = [rng.integers(0, 2**28, 100) for _ in range(4)]
    path = str(tmp_path / "x.hlog")
    package_log(path, [theirs_of(values, 20_000, 2) for values in drawn], tags=["A", "B", "A", "A"])
    frame = TiltFrame(["1s", "1h"], "start", {"histogram": aggr.hdr("pause", QUANTILES, digits=2)}, ["tag"])
    states = rollup_states(read_histogram_log(path, Hdr(digits=2)), frame)
    store = FrameStore(str(tmp_path / "store"), frame)
    store.append(states, "log", 1)
    java = {"p": aggr.hdr("pause", [0.995], digits=2, method="inverted_cdf"), "q": aggr.hdr("pause", [0.995], digits=2)}
    rows_by_tag = {row["tag"]: row for row in store.query(per="1h", measures=java).to_pylist()}
    for tag, parts in (("A", [0, 2, 3]), ("B", [1])):
        histogram = theirs_of(np.concatenate([drawn[i] for i in parts]), 20_000, 2)
        assert rows_by_tag[tag]["q"]["quantiles"]["0.995"] == histogram.get_value_at_percentile(99.5)
        ordered = np.sort(np.concatenate([drawn[i] for i in parts]))
        assert rows_by_tag[tag]["p"]["quantiles"]["0.995"] == histogram.get_highest_equivalent_value(
            int(ordered[int(np.ceil(0.995 * len(ordered))) - 1])
        )
    hours = finish(states, frame)
    assert hours.filter(pa.compute.equal(hours["level"], "1h")).num_rows == 2


GOOD = "0.126,1.007,1.933," + to_hdr_v2(Hdr().reduce(pa.array([5]), Groups.single(1)), Hdr())[0].as_py()
BAD_LINES = {
    "no interval": ("what?", r"line 2 of .*: the line of an interval must .*; got 'what\?'"),
    "too few fields": ("0.1,1.0,abc", "the line of an interval must"),
    "too many fields": (GOOD + ",1", "the line of an interval must"),
    "no number": (GOOD.replace("0.126", "soon"), "StartTimestamp must be a number of seconds; got 'soon'"),
    "no finite number": (GOOD.replace("1.007", "NaN"), "Interval_Length must be a number of seconds"),
    "a number too large": (GOOD.replace("0.126", "1e999999999"), "must be a number of seconds"),
    "a negative length": (GOOD.replace("1.007", "-1"), "Interval_Length must not be negative; got -1"),
    "no histogram": ("0.126,1.007,1.933,HIST", "line 2 of .*unknown cookie|line 2 of .*base64"),
    "a start that is none": ("#[StartTime: now (seconds since epoch)]", "the StartTime must be a number"),
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_bad_lines_are_refused_by_number(name, tmp_path):
    line, message = BAD_LINES[name]
    (tmp_path / "x.hlog").write_text(f"#comment\n{line}\n\n{GOOD}\n")
    with pytest.raises(ValueError, match=message):
        read_histogram_log(tmp_path / "x.hlog", Hdr())


def intervals(**changes):
    states = Hdr().reduce(pa.array([5]), Groups.single(1))
    at = pa.array([1_000_000], pa.timestamp("us", "UTC"))
    return pa.table({"start": at, "end": at, "tag": ["A"], "histogram": states} | changes)


BAD_TABLES = {
    "no start": (intervals().drop_columns(["start"]), "there is no 'start'"),
    "a null": (intervals(end=pa.nulls(1, pa.timestamp("us"))), "'end' of intervals must not have nulls; got 1"),
    "numbers": (intervals(start=pa.array([1])), "'start' of intervals must have timestamps; got int64; cast it"),
    "an end before": (
        intervals(end=pa.array([0], pa.timestamp("us"))),
        "row 0 ends before it starts: its start is 1000000, and its end 0, in microseconds since 1970; exchange",
    ),
    "a comma in a tag": (intervals(tag=["a,b"]), "a tag must be text without commas"),
    "a tag of a number": (intervals(tag=[5]), "a tag must be text"),
    "no states": (intervals(histogram=pa.array([1])), "these are not states of hdr"),
    "no table": (5, "intervals must be"),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_bad_intervals_are_refused_before_anything_is_written(name, tmp_path):
    table, message = BAD_TABLES[name]
    with pytest.raises((ValueError, TypeError), match=message):
        write_histogram_log(tmp_path / "x.hlog", table, Hdr())
    assert not (tmp_path / "x.hlog").exists()


def test_a_log_that_cannot_be_written_leaves_the_file(tmp_path):
    """The disk is full, as a limit of the size of files makes it."""
    path = tmp_path / "x.hlog"
    path.write_text("the log of yesterday")
    script = f"""
import resource, signal
import pyarrow as pa
from aggr import Groups, Hdr
from aggr.interchange.histogram_log import write_histogram_log
states = Hdr().reduce(pa.array([5] * 1000), Groups.each(1000))
at = pa.array([1_000_000] * 1000, pa.timestamp("us", "UTC"))
table = pa.table({{"start": at, "end": at, "histogram": states}})
# Loops are compiled now: they are saved to files too.
write_histogram_log({str(tmp_path.with_name("compiled.hlog"))!r}, table, Hdr())
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_histogram_log({str(path)!r}, table, Hdr())
except ValueError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "the histogram log cannot be written" in done.stdout
    assert path.read_text() == "the log of yesterday"
    assert [file.name for file in tmp_path.iterdir()] == ["x.hlog"]


def test_a_log_keeps_its_permissions_and_its_link(tmp_path):
    path = tmp_path / "x.hlog"
    path.write_text("")
    path.chmod(0o640)
    (tmp_path / "link.hlog").symlink_to(path)
    write_histogram_log(tmp_path / "link.hlog", intervals(), Hdr())
    assert (tmp_path / "link.hlog").is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert read_histogram_log(path, Hdr()).num_rows == 1


@pytest.mark.parametrize(
    ("cookie", "name"),
    [
        (0x1C849389, "compressed histogram of version V0"),
        (0x1C849388, "histogram of version V0"),
        (0x1C849342, "compressed histogram of version V1"),
        (0x1C849311, "histogram of version V1"),
        (0x0C72124F, "compressed histogram of doubles"),
        (0x12345678, "unknown cookie 0x12345678"),
    ],
)
def test_histograms_that_are_not_read_are_named(cookie, name, tmp_path):
    text = base64.b64encode(struct.pack(">II", cookie, 0) + b"\0" * 40).decode()
    (tmp_path / "x.hlog").write_text(f"0.126,1.007,1.933,{text}\n")
    with pytest.raises(ValueError, match=f"line 1 of .*{name}.*V2"):
        read_histogram_log(tmp_path / "x.hlog", Hdr())
