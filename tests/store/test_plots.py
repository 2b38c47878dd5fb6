"""Plots of a store: colours, line styles, legends, labels, and windows in which the data begin or end."""

from __future__ import annotations

import matplotlib
import numpy as np
import pyarrow as pa
import pytest
from matplotlib import pyplot

import aggr
from tiltframe import FrameStore, TiltFrame, rollup
from tiltframe.store.testing import MemoryBackend

pytestmark = pytest.mark.store

DAY, HOUR = 86_400_000, 3_600_000
BEGIN = 1_714_521_600_000  # 2024-05-01T00:00:00Z


@pytest.fixture(autouse=True)
def figures():
    matplotlib.use("Agg")
    yield
    pyplot.close("all")


def store_of(times, keys=None, levels=("1h", "1d"), **measures):
    """Return a store of rows at times after 2024-05-01, in milliseconds; x has 1, 2, 3 …"""
    frame = TiltFrame(list(levels), "ts", measures or {"n": aggr.count()}, [] if keys is None else ["host"])
    rows = {"ts": [BEGIN + at for at in times], "x": np.arange(1.0, len(times) + 1)}
    rows |= {} if keys is None else {"host": keys}
    store = FrameStore(MemoryBackend("plots"), frame)
    store.append(rollup(pa.table(rows), frame), "me", 1)
    return store


def incomplete_hours(axes):
    """Return the hours after 2024-05-01 at which a dotted step begins."""
    begin = np.datetime64("2024-05-01")
    dotted = [line for line in axes.get_lines() if line.get_linestyle() == ":"]
    points = [point for line in dotted for point in zip(*line.get_data(), strict=True)]
    return sorted({int((at - begin) / np.timedelta64(1, "h")) for at, value in points if np.isfinite(value)})


def legend_texts(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_a_key_has_a_colour_and_a_quantile_a_line_style():
    store = store_of(
        [i * HOUR for i in range(48)], ["a", "b"] * 24, n=aggr.count(), ms=aggr.dds("x", [0.5, 0.9]), half="n / 2"
    )
    axes = store.plot("ms", keys=["host"], per="1d")
    lines = {line.get_label(): line for line in axes.get_lines()}
    assert set(lines) == {f"ms_{p} per 1d {host}" for p in ("p50", "p90") for host in "ab"}
    colors = {(label[-1], line.get_color()) for label, line in lines.items()}
    styles = {(label[3:6], line.get_linestyle()) for label, line in lines.items()}
    assert len(colors) == len({color for _, color in colors}) == 2
    assert len(styles) == len({style for _, style in styles}) == 2
    assert legend_texts(axes) == ["a", "b", "p50", "p90"]
    assert axes.get_legend().get_title().get_text() == "host"
    assert store.plot("n", per="1d").get_legend() is None
    assert store.plot("half", per="1d").get_ylabel() == "half = n / 2 per 1d"


def test_the_legend_is_outside_of_the_axes_and_inside_of_the_figure():
    store = store_of([0, DAY], ["a", "b"])
    for own in (None, pyplot.subplots()[1]):
        axes = store.plot("n", keys=["host"], per="1d", ax=own)
        axes.figure.canvas.draw()
        legend = axes.get_legend().get_window_extent()
        assert legend.x0 >= axes.get_window_extent().x1
        assert legend.x1 <= axes.figure.bbox.x1 + 1


def test_amounts_begin_at_0_and_other_measures_do_not():
    times = [i * HOUR for i in range(48)]
    store = store_of(
        times, n=aggr.count(), total=aggr.sum("x"), debt=aggr.sum("-x"), both=aggr.sum("x - 24"), mean=aggr.avg("x")
    )
    limits = {name: store.plot(name, per="1d").get_ylim() for name in store.frame.measures}
    assert limits["n"][0] == limits["total"][0] == limits["debt"][1] == 0
    assert limits["both"][0] < 0 < limits["both"][1]
    assert limits["mean"][0] > 0


def test_the_axis_of_values_names_the_unit_or_the_column():
    store = store_of([0, DAY], ms=aggr.dds("x", [0.5]), n=aggr.count())
    assert store.plot("ms", per="1d").get_ylabel() == "ms: dds(x) per 1d"
    assert store.plot("ms", per="1d", unit="ms").get_ylabel() == "ms (ms) per 1d"
    assert store.plot("n", per=["1h", "1d"]).get_ylabel() == "n: count()"
    assert store.plot("n", per="1d", within="2024-05", timezone="UTC").get_xlabel() == "time (UTC)"


def test_only_lines_that_can_be_distinguished_are_drawn_and_the_legend_says_so():
    hosts = [f"h{i:02}" for i in range(12) for _ in range(1 + i)]
    store = store_of([0] * len(hosts), hosts, n=aggr.count(), ms=aggr.dds("x", [0.5]))
    axes = store.plot("n", keys=["host"], per="1d")
    assert axes.get_legend().get_title().get_text() == "host\nthe 10 largest of 12 keys"
    assert [text for text in legend_texts(axes) if text != "incomplete"] == [f"h{i:02}" for i in range(2, 12)]
    axes = store.plot("ms", [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99], per="1d")
    assert axes.get_legend().get_title().get_text() == "without p10, p50, p90"
    assert [text for text in legend_texts(axes) if text != "incomplete"] == ["p1", "p25", "p75", "p99"]


def test_windows_in_which_the_data_begin_or_end_are_dotted():
    hours = [i * HOUR for i in range(10, 60)]  # from 10:00 on the first day to 12:00 on the third
    axes = store_of(hours).plot("n", per="1d")
    assert incomplete_hours(axes) == [0, 48, 72]  # the last step is drawn to its end
    assert "incomplete" in legend_texts(axes)
    assert incomplete_hours(store_of(hours).plot("n", per="1h")) == []
    complete = store_of([i * HOUR for i in range(72)]).plot("n", per="1d")
    assert incomplete_hours(complete) == []


def test_gaps_that_repeat_do_not_cut_off_a_window():
    hours = [day * DAY + hour * HOUR for day in range(5) for hour in range(6, 22)]
    assert incomplete_hours(store_of(hours).plot("n", per="1d")) == []
    hours = [at for at in hours if not at < 15 * HOUR]  # the first day begins later than the others
    assert incomplete_hours(store_of(hours).plot("n", per="1d")) == [0]


def test_months_are_cut_off_by_days_and_a_range_inside_the_data_is_not():
    store = store_of([i * DAY for i in range(10, 80)], levels=("1d", "1mo"))  # from 11 May to 19 July
    assert incomplete_hours(store.plot("n", per="1mo")) == [0, 61 * 24, 92 * 24]
    assert incomplete_hours(store.plot("n", per="1mo", within="2024-06")) == []


def test_durations_are_plotted_in_seconds():
    frame = TiltFrame(["1d"], "ts", {"longest": aggr.max("took")})
    rows = pa.table({"ts": [BEGIN], "took": pa.array([1_500_000], pa.duration("us"))})
    store = FrameStore(MemoryBackend("durations"), frame)
    store.append(rollup(rows, frame), "me", 1)
    axes = store.plot("longest", per="1d")
    assert axes.get_ylabel() == "longest (s) per 1d"
    assert np.nanmax(axes.get_lines()[0].get_ydata()) == 1.5


@pytest.mark.parametrize("options", [{"within": "2030"}, {"where": "host = 'c'"}])
def test_a_plot_of_no_rows_is_empty(options):
    axes = store_of([0, HOUR], ["a", "b"]).plot("n", **options)
    assert not axes.get_lines()
    assert axes.get_ylabel()
