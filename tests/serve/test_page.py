"""The page of the server: it loads no files from elsewhere, and shows the answers of the store in a real browser."""

from __future__ import annotations

import html
import json
import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

import tiltframe.serve
from tests.serve.servers import RUN, rows, settled

pytestmark = [pytest.mark.store, pytest.mark.slow]

PAGE = Path(tiltframe.serve.__file__).parent / "page"
FILES = [str(file.relative_to(PAGE)) for file in PAGE.rglob("*.*")]
QUOTED = 'c"d'
VIEWS = {
    "quantiles": "?store=web&measure=latency&from=2024-05-01T10:30:00Z&to=2024-05-01T11:30:00Z",
    "by a key, of null": "?store=orders&measure=n&by=host&key.host=null",
    "a key of quotes": f"?store=orders&measure=latency&column=latency_p99&key.host={quote(json.dumps(QUOTED))}",
    "numbers beyond doubles": "?store=web&measure=bytes",
}


@pytest.mark.parametrize("path", ["/", *(f"/page/{name}" for name in FILES), "/api"])
def test_files_are_there_and_lead_nowhere_else(server_and_stores, path):
    answer = server_and_stores[0].ask(path)
    assert answer.status == 200
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    text = answer.body.decode()
    assert set(re.findall(r"(?:src|href)=\"?(https?:[^\s\"]*|//[^\s\"]*)", text)) == set()
    assert not re.search(r"url\(|@import|importScripts|fetch\(['\"]http", text)
    if path == "/page/vendor/uplot-licence.txt":
        assert text.startswith("The MIT License")
    if path == "/page/vendor/lit-html-licence.txt":
        assert text.startswith("BSD 3-Clause License")


def rendered(tab, server, view):
    """Load a view in a browser, and return what is on the page then."""
    tab.goto(f"http://{server.host}:{server.port}/{view}")
    settled(tab)
    return tab.content()


def inner(page, name):
    return html.unescape(re.search(rf'id="{name}"[^>]*>(.*?)</', without_markers(page), re.S)[1])


def without_markers(page):
    """Return the page without the comments by which its templates are updated."""
    return re.sub(r"<!--.*?-->", "", page, flags=re.S)


@pytest.mark.long
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_the_table_and_the_copied_queries_are_what_the_store_answers(server_and_stores, tab, view):
    server, stores = server_and_stores
    page = rendered(tab, server, view)
    name = re.search("store=([a-z]+)", view)[1]
    status = re.fullmatch(r"Windows of (\w+): (\d+), each from its start.*", inner(page, "status"))
    assert status, inner(page, "status")
    assert "<canvas" in page
    plain = without_markers(page)
    caption = re.search(r"<caption>(\d+) rows", plain) or re.search(r"of (\d+) rows", plain)

    expected = run_python(inner(page, "python"), stores[name])
    assert expected.num_rows == int(caption[1]) > 0
    assert (set(expected["level"].to_pylist()), len(expected["window_start"].unique())) == ({status[1]}, int(status[2]))
    first = re.search(r"<table>.*?<tbody>.*?<th[^>]*>([^<]*)", plain, re.S)[1]
    shown = expected["window_start"].to_pylist()[-min(500, expected.num_rows)]
    assert first == f"{shown:%Y-%m-%d %H:%M:%S} UTC"

    if name == "web":
        words = shlex.split(inner(page, "command"))
        assert words[:3] == ["tiltframe", "query", "web"]
        command = [sys.executable, "-c", RUN, "query", stores[name].uri, *words[3:], "--format", "json"]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert printed.count("\n") == expected.num_rows
    address = shlex.split(inner(page, "curl"))[-1]
    answered = server.ask(address.partition(f":{server.port}")[2]).json()["rows"]
    assert len(answered) == expected.num_rows
    assert_promql_gives(server, inner(page, "promql"), inner(page, "promql-note"), expected)


def assert_promql_gives(server, text, note, expected):
    """Ask each line of a PromQL text at the ends of windows: a column of the table each."""
    columns = [name for name in expected.column_names if re.search(r"_p\d+$|^n$|^bytes$", name)]
    if len(text.splitlines()) == 1:  # of a measure of two quantiles, the last is asked for
        columns = columns[-1:]
    labels = ["host"] if "host" in expected.column_names else []
    starts, window_ends = (expected[name].to_pylist() for name in ("window_start", "window_end"))
    step = int((window_ends[0] - starts[0]).total_seconds())
    assert f"step {step // 3600}h" in note if step % 3600 == 0 else f"step {step // 60}m" in note
    for column, query in zip(columns, text.splitlines(), strict=True):
        words = {"query": query, "start": window_ends[0].timestamp(), "end": window_ends[-1].timestamp(), "step": step}
        answer = server.ask(f"/api/v1/query_range?{urlencode(words)}").json()
        values = {
            (series["metric"].get("host"), at): float(value)
            for series in answer["data"]["result"]
            for at, value in series["values"]
        }
        hosts = expected["host"].to_pylist() if labels else [None] * len(window_ends)
        numbers = map(float, expected[column].to_pylist())
        assert values == dict(
            zip(zip(hosts, [end.timestamp() for end in window_ends], strict=True), numbers, strict=True)
        )


def test_promql_is_given_of_merges_alone(server_and_stores, tab):
    page = rendered(tab, server_and_stores[0], "?store=web&measure=latency&column=latency_p99&as=over:bytes")
    assert (inner(page, "promql"), inner(page, "promql-note")) == ("", "— has no merge of latency_p99_per_bytes")


def run_python(text, store):
    """Run the copied Python on a store that is opened already."""
    lines = [line for line in text.splitlines() if not line.startswith("store = ")]
    names = {"store": store}
    exec("\n".join(lines[:-1]), names)
    return eval(lines[-1], names)


@pytest.mark.parametrize(("compare", "by", "windows"), [("period", 900, 15), ("day", 86400, 0)])
def test_an_earlier_range_stands_beside(server_and_stores, tab, compare, by, windows):
    server, stores = server_and_stores
    view = "?store=web&measure=n&by=host&from=2024-05-01T11:00:00Z&to=2024-05-01T11:15:00Z"
    page = rendered(tab, server, f"{view}&compare={compare}")
    ending = "15m earlier." if windows else "which has no windows."
    assert inner(page, "status").endswith(f" Dashed: the previous {compare}, {ending}")
    head, *windows_shown = table_of(page)
    assert head == ["start", "host", "n", f"n, previous {compare}"]
    start = datetime(2024, 5, 1, 11, tzinfo=UTC)
    expected = {}
    for column, moved in (("n", 0), ("previous", by)):
        within = f"{start - timedelta(seconds=moved):%FT%TZ},{start + timedelta(seconds=900 - moved):%FT%TZ}"
        for row in stores["web"].query("1m", within=within, measures=["n"]).to_pylist():
            at = row["window_start"] + timedelta(seconds=moved)
            expected.setdefault((f"{at:%F %T} UTC", row["host"] or "(none)"), {})[column] = str(row["n"])
    cells = {key: [row.get("n", "·"), row.get("previous", "·")] for key, row in expected.items()}
    assert {(time.removesuffix(" …"), host): values for time, host, *values in windows_shown} == cells
    assert len({at for (at, _), values in cells.items() if values[1] != "·"}) == windows
    assert tab.locator(".legend tbody tr").count() == 2 * 4  # four hosts now and before


def table_of(page):
    """Read the cells of the page's table, row by row."""
    table = re.search(r"<table>(.*?)</table>", without_markers(page), re.S)[1]
    rows = re.findall(r"<tr.*?</tr>", table, re.S)
    return [[html.unescape(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S)] for row in rows]


@pytest.mark.parametrize("host", [None, "a"])
def test_a_heat_map_counts_the_rows_of_each_range_of_values(server_and_stores, tab, host):
    chosen = "" if host is None else f"&key.host={quote(json.dumps(host))}"
    page = rendered(tab, server_and_stores[0], f"?store=web&measure=latency&drawn=heat{chosen}")
    assert re.search('id="colours"[^>]*>Rows:<span>', without_markers(page))
    head, *windows = table_of(page)
    ranges = [tuple(map(float, text.split(" – "))) for text in head[1:]]
    values = {}
    for row in rows().to_pylist():
        if host in (None, row["host"]):
            values.setdefault(f"{row['ts']:%Y-%m-%d %H:%M:00} UTC", []).append(row["ms"])
    assert [time for time, *_ in windows] == list(values)
    assert re.match(f"Windows of 1m: {len(values)}, .* The stronger the colour, the more rows", inner(page, "status"))
    off = 1.03  # a bucket of the sketch is 2 % wide, and in the range that has its middle
    for time, *counts in windows:
        assert sum(map(int, counts)) == len(values[time])
        for (low, high), count in zip(ranges, map(int, counts), strict=True):
            fewest, highest = (sum(low * by < v < high / by for v in values[time]) for by in (off, 1 / off))
            assert fewest <= count <= highest


def test_a_measure_without_buckets_is_drawn_as_lines(server_and_stores, tab):
    page = rendered(tab, server_and_stores[0], "?store=web&measure=n&drawn=heat")
    assert table_of(page)[0] == ["start", "n"]
    assert tab.get_by_label("Drawn as").is_disabled()


def test_what_cannot_be_shown_is_said(server_and_stores, tab):
    server = server_and_stores[0]
    page = rendered(tab, server, "?store=web&from=x")
    assert "cannot read 'x' as a time" in inner(page, "status")
    page = rendered(tab, server, "?store=web&range=-1h")
    assert inner(page, "status").startswith(
        "There are no windows in this range; the store has 2024-05-01 10:00:00 UTC to"
    )
