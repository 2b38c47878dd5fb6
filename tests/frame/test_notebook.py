"""Representations in notebooks: HTML of frames, results, states, reports and stores; plots; DataFrames."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ElementTree
from types import SimpleNamespace

import matplotlib
import numpy as np
import pyarrow as pa
import pytest

import aggr
import tiltframe
from tiltframe import FrameStore, TiltFrame, finish, rollup, show, to_pandas
from tiltframe.cli.output import print_table

FRAME = TiltFrame(
    ["1m", "1h"], "ts", {"n": aggr.count(), "ms": aggr.dds("ms", [0.5, 0.99]), "who": aggr.last("host")}, ["host"]
)
ROWS = pa.table(
    {
        "ts": [60_000 * i for i in range(240)],
        "host": ["<b>&"[: i % 4] for i in range(240)],
        "ms": [float(i) for i in range(240)],
    }
)
STATES = rollup(ROWS, FRAME)


@pytest.fixture
def store(tmp_path):
    store = FrameStore(tmp_path / "store", FRAME)
    store.append(STATES, "test", 1)
    return store


def test_everything_is_well_formed_html(store):
    for shown in (FRAME, show(STATES), show(finish(STATES, FRAME)), store, store.inspect()):
        html = ElementTree.fromstring(f"<div>{shown._repr_html_()}</div>")
        assert html.find(".//tr") is not None, type(shown)
    html = show(finish(STATES, FRAME))._repr_html_()
    assert "<th>ms_p99</th>" in html
    assert "&lt;b&gt;" in html
    assert f"and {STATES.num_rows - 20:,} more rows" in html


def test_a_report_is_short(store):
    assert repr(store.inspect()) == f"Report({store.uri!r}; 1m: 240 windows, 240 rows, 1h: 4 windows, 16 rows)"


def test_pandas_gets_plain_columns():
    flat = to_pandas(finish(STATES, FRAME))
    assert flat["ms_count"].sum() == 480
    assert set(flat.columns) >= {"n", "ms_p50", "ms_p99", "who"}
    assert "ms" in to_pandas(finish(STATES, FRAME), flat=False).columns
    assert show(finish(STATES, FRAME)).to_pandas().equals(flat)


@pytest.mark.slow
def test_a_plot_shows_what_a_query_gives(store):
    matplotlib.use("Agg")
    axes = store.plot("ms", [0.25, 0.9], per=["1h", "1m"], where="host = ''")
    lines = {line.get_label(): line for line in axes.get_lines()}
    assert set(lines) == {f"ms_{p} per {level}" for p in ("p25", "p90") for level in ("1h", "1m")}
    new = {"ms": aggr.dds("ms", [0.25, 0.9])}
    for level in ("1h", "1m"):
        results = store.query(level, measures=new, keys=[], where="host = ''", flat=True)
        line = lines[f"ms_p90 per {level}"]
        drawn = dict(zip(line.get_xdata().tolist()[::-1], line.get_ydata().tolist()[::-1], strict=True))
        starts = [at.replace(tzinfo=None) for at in results.column("window_start").to_pylist()]
        assert [drawn[at] for at in starts] == results.column("ms_p90").to_pylist()
    assert lines["ms_p90 per 1m"].get_alpha() != lines["ms_p90 per 1h"].get_alpha()
    assert [line.get_label() for line in store.plot("n", points=5).get_lines()] == ["n per 1h"]
    with pytest.raises(ValueError, match="no measure 'mss'"):
        store.plot("mss")
    with pytest.raises(ValueError, match="does not have quantiles"):
        store.plot("n", [0.5])
    matplotlib.pyplot.close("all")


@pytest.mark.slow
def test_a_plot_breaks_at_gaps_marks_what_is_incomplete_and_has_a_line_a_key(tmp_path):
    matplotlib.use("Agg")
    frame = TiltFrame(["1h"], "ts", {"n": aggr.count()}, ["code"], timezone="Europe/Berlin")
    hours = [(0, 200), (1, 200), (1, 500), (4, 200), (5, 200)]  # after midnight UTC on 2024-05-01
    rows = pa.table({"ts": [1714521600_000 + at * 3600_000 for at, _ in hours], "code": [code for _, code in hours]})
    store = FrameStore(tmp_path / "plotted", frame)
    store.append(rollup(rows, frame), "test", 1)
    axes = store.plot("n", per="1h", keys=["code"], now="2024-05-01T05:30Z")
    lines = {line.get_label(): line for line in axes.get_lines()}
    assert set(lines) == {"n per 1h 200", "n per 1h 500", "_incomplete"}  # a whole number is a key here
    points = list(zip(*(lines["n per 1h 200"].get_data()), strict=True))
    hour = [int((at - np.datetime64("2024-05-01")) / np.timedelta64(1, "h")) for at, _ in points]
    assert hour == [0, 1, 2, 2, 4, 5, 6, 6]
    assert [str(value) for _, value in points] == ["1.0", "1.0", "1.0", "nan", "1.0", "nan", "nan", "nan"]
    assert np.nansum(lines["_incomplete"].get_ydata()) == 2.0  # from five to six
    assert axes.get_xlabel() == "time (Europe/Berlin)"
    axes.figure.set_size_inches(4, 3)  # however small it is
    axes.figure.canvas.draw()
    boxes = [label.get_window_extent() for label in axes.get_xticklabels() if label.get_text()]
    assert len(boxes) >= 2
    assert not any(box.overlaps(other) for i, box in enumerate(boxes) for other in boxes[:i])
    matplotlib.pyplot.close("all")


def test_a_notebook_shows_tables_once_it_is_told(store):
    shown_by = {}  # as much of IPython's shell as is asked for
    html = SimpleNamespace(for_type=shown_by.__setitem__)
    tiltframe.load_ipython_extension(SimpleNamespace(display_formatter=SimpleNamespace(formatters={"text/html": html})))
    html = shown_by[pa.Table](store.query("1h"))
    assert html == show(store.query("1h"))._repr_html_()
    assert ElementTree.fromstring(f"<div>{html}</div>").find(".//th").text == "level"


def test_a_store_is_made_at_once_where_the_rows_are_known(tmp_path):
    new_store = FrameStore(tmp_path / "new", FRAME, row_schema=ROWS.schema)
    assert FrameStore(new_store.uri).query("1h").num_rows == 0
    assert FrameStore(new_store.uri, FRAME, row_schema=ROWS.schema).append(STATES, "test", 1)
    with pytest.raises(ValueError, match="does not exist yet; its first commit creates it, and so does FrameStore"):
        FrameStore(tmp_path / "later", FRAME).query("1h")


def test_notebooks_and_the_command_line_write_numbers_alike():
    columns = {"n": [1_234_567, None], "x": [1234.5678, 0.000123456], "level": ["1m"] * 2}
    starts = {"window_start": pa.array([0, 1], pa.timestamp("us", "UTC"))}
    out = io.StringIO()
    print_table(pa.table(columns | starts), out)
    cells = [cell.text for cell in ElementTree.fromstring(show(pa.table(columns))._repr_html_()).iter("td")]
    assert cells == ["1,234,567", "1,234.57", "1m", "·", "0.000123", "1m"]
    assert [cell for cell in cells if cell not in out.getvalue() and cell != "1m"] == []


def test_results_by_key_are_small_tables():
    rows = pa.table({"ts": [0] * 23, "host": [f"h{i % 12:02}" for i in range(23)], "ms": [float(i) for i in range(23)]})
    by_host = aggr.per("host", {"n": aggr.count(), "ms": aggr.exact_quantiles("ms", [0.5])})
    frame = TiltFrame(["1m"], "ts", {"by_host": by_host})
    results = finish(rollup(rows, frame), frame)
    (inner,) = ElementTree.fromstring(f"<div>{show(results)._repr_html_()}</div>").iterfind(".//td/table")
    lines = [[cell.text for cell in row] for row in inner.iter("tr")]
    assert lines[0] == ["key", "ms_0.5", "n"]
    assert lines[1:] == [[f"h{i:02}", f"{i:.2f}", "2"] for i in range(10)]
    out = io.StringIO()
    print_table(results, out)
    assert [line.split()[-3:] for line in out.getvalue().splitlines() if " h0" in line] == lines[1:]
    assert "and 2 more" in out.getvalue()
    assert "and 2 more" in show(results)._repr_html_()
