"""All views of the page in a real browser, by mouse and by keyboard, in the light and the dark theme, checked by
axe-core.

The store has events of the last forty days until now, so that the newest windows are open. With SCREENSHOTS=FOLDER, a
picture of each view is saved.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from datetime import datetime

import pyarrow as pa
import pytest
from axe_playwright_python.sync_playwright import Axe

import aggr
from tests.serve.servers import make_store, serving, settled, summarized
from tiltframe import TiltFrame

pytestmark = [pytest.mark.store, pytest.mark.slow]

DAYS, EVERY = 40, 900  # s between rows
FRAME = TiltFrame(
    ["1m", "1h", "1d"], "ts", {"requests": aggr.count(), "latency": aggr.dds("ms", [0.5, 0.99])}, ["host"]
)
SECONDS = {"1m": 60, "1h": 3600, "1d": 86_400}
WIDTHS = {1440: 900, 1024: 768, 390: 844}  # pixels: width and height of the window
VIEWS = {
    "overview": "",
    "hosts": "?store=shop&measure=latency&by=host",
    "heat map": "?store=shop&measure=latency&drawn=heat",
    "compared": "?store=shop&measure=latency&compare=week",
    "lines": "?store=shop&range=-7d&2.store=shop&2.measure=latency",
    "nothing": "?store=shop&from=2001-01-01&to=2001-01-02",
    "an error": "?store=shop&from=x",
    "the API": "api",
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A server of the store, and the times of its rows, s."""
    folder = tmp_path_factory.mktemp("walk")
    end = int(time.time())
    # The last day of the rows must not end during the tests, so shortly before midnight UTC it is tomorrow.
    next_midnight = end - end % 86_400 + 86_400
    if next_midnight - end < 3_600:
        end = next_midnight + 60
    times = list(range(end - DAYS * 86_400, end, EVERY))
    data = pa.table(
        {
            "ts": pa.array([at * 1000 for at in times], pa.timestamp("ms", "UTC")),
            "host": [("a", "b")[at // EVERY % 2] for at in times],
            "ms": [float(at % 97 + 1) for at in times],
        }
    )
    make_store(folder / "shop", frame=FRAME, data=data)
    with serving(folder, folder / "shop") as server:
        yield f"http://{server.host}:{server.port}/", times


def look(tab, name):
    """Save what is seen, if that is wanted."""
    if folder := os.environ.get("SCREENSHOTS"):
        tab.screenshot(path=f"{folder}/{name}.png", full_page=True)


def windows_of(tab, times):
    """Read the level, and check that the windows that are said are those that have rows in the range of the address."""
    status = settled(tab)
    level, count = re.match(r"Windows of (\w+): (\d+),", status).groups()
    matches = [re.search(rf"[?&]{word}=([^&]*)", tab.url) for word in ("from", "to")]
    limits = [datetime.fromisoformat(match[1].replace("%3A", ":")).timestamp() for match in matches if match]
    low, high = limits or (0, float("inf"))
    length = SECONDS[level]
    starts = {at // length * length for at in times}
    assert int(count) == sum(low <= start < high for start in starts)
    return level, status


@pytest.mark.long
def test_by_mouse(shop, tab):
    address, times = shop
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab.goto(address)
    summarized(tab)
    tab.locator(".card", has_text="requests").click()
    settled(tab)
    tab.get_by_role("button", name="All").click()
    level, status = windows_of(tab, times)
    assert level == "1d"
    assert re.search("[12] of them partial: not over yet", status)
    assert re.search(r" …$", tab.locator("#numbers tbody tr").last.locator("th").text_content())

    tab.get_by_label("Measure").select_option("latency")
    windows_of(tab, times)
    assert "measure=latency" in tab.url
    for finer in ("1d", "1h"):
        tab.get_by_role("button", name="Zoom in").click()
        assert windows_of(tab, times)[0] == finer
    tab.get_by_role("button", name="Earlier").click()
    earlier = windows_of(tab, times), tab.url
    chart = tab.locator("#chart .u-over").bounding_box()
    middle = chart["y"] + chart["height"] / 2
    tab.mouse.move(chart["x"] + chart["width"] * 0.5, middle)
    tab.mouse.down()
    tab.mouse.move(chart["x"] + chart["width"] * 0.51, middle, steps=5)
    tab.mouse.up()
    tab.wait_for_url(lambda url: url != earlier[1])
    assert windows_of(tab, times)[0] == "1m"
    look(tab, "marked")
    shown = tab.locator("#numbers").text_content(), settled(tab)
    tab.reload()
    assert (settled(tab), tab.locator("#numbers").text_content()) == (shown[1], shown[0])

    tab.go_back()
    tab.wait_for_url(earlier[1])
    assert windows_of(tab, times) == earlier[0]
    for _ in range(3):
        tab.get_by_role("button", name="Zoom out").click()
        level, _ = windows_of(tab, times)
    assert level == "1d"
    tab.get_by_role("button", name="All").click()
    assert "from" not in tab.url

    tab.get_by_text("Filters").click()
    tab.locator("#filters select").select_option("a")
    settled(tab)
    tab.get_by_label("Range", exact=True).select_option("last 7 days")
    tab.get_by_label("Compare with").select_option("previous day")
    assert "Dashed: the previous day, 1d earlier." in settled(tab)
    tab.get_by_text("This query in Python").click()
    copied = {}
    for name in ("Python", "command", "curl", "PromQL"):
        tab.get_by_role("button", name=f"Copy {name}").click()
        tab.get_by_text(f"Copied: {name}.").wait_for()
        copied[name] = tab.evaluate("navigator.clipboard.readText()")
    assert "where=\"host = 'a'\"" in copied["Python"]
    assert copied["command"].startswith("tiltframe query 'shop'")
    assert copied["curl"].startswith(f"curl -s '{address}v1/query?")
    assert 'latency{store="shop", host="a"}' in copied["PromQL"]
    look(tab, "compared by mouse")

    tab.get_by_label("Drawn as").select_option("heat map")
    assert "The stronger the colour, the more rows" in settled(tab)
    assert tab.locator("#colours").is_visible()


@pytest.mark.long
def test_by_keyboard(shop, tab):
    address, times = shop
    tab.goto(f"{address}?store=shop&range=all")
    assert windows_of(tab, times)[0] == "1d"
    seen = Counter()
    active = "document.activeElement.id || document.activeElement.textContent"
    for _ in range(60):
        tab.keyboard.press("Tab")
        seen[name := tab.evaluate(active)] += 1
        outlined = "getComputedStyle(document.activeElement).outlineStyle"
        assert name.startswith("tiltframe") or tab.evaluate(outlined) != "none", name
        if name == "measure":
            tab.keyboard.press("ArrowDown")
            tab.wait_for_url("**measure=latency**")
            settled(tab)
            assert tab.evaluate(active) == "measure"  # not lost while the form is written again
        if name == "chart":
            assert "Open “Numbers” below" in tab.locator("#chart").get_attribute("aria-label")
            for key, level in (("+", "1d"), ("+", "1h"), ("-", "1d"), ("0", "1d"), ("ArrowLeft", "1d")):
                before = tab.url
                tab.keyboard.press(key)
                tab.wait_for_url(lambda url, before=before: url != before)
                assert windows_of(tab, times)[0] == level
            look(tab, "by keyboard")
        if name in ("Filters", "Numbers"):
            tab.keyboard.press("Enter")
        if name.startswith("This query"):
            tab.keyboard.press("Enter")
            assert tab.locator("#python").is_visible()
        if name == "Copy PromQL":
            break
    assert {"store", "measure", "column", "drawn", "host", "range", "compare", "from", "to", "chart", "numbers"} <= set(
        seen
    )
    assert {"Refresh", "Live", "Share"} <= set(seen)
    assert {"Zoom in", "Zoom out", "All", "Copy Python", "Copy command", "Copy curl", "Copy PromQL"} <= set(seen)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.long
def test_every_view_in_every_width_and_theme(shop, browser, width, scheme):
    """All six combinations take about 45 seconds on two idle cores."""
    viewport = {"width": width, "height": WIDTHS[width]}
    with browser.new_context(viewport=viewport, color_scheme=scheme) as window:
        tab = window.new_page()
        for name, view in VIEWS.items():
            tab.goto(shop[0] + view)
            if name == "overview":
                summarized(tab)
            elif name != "the API":
                settled(tab)
                look(tab, f"{width} {scheme} {name}")
                if width == 390:
                    assert_chart_is_first(tab)
                    for legend in tab.locator(".lines").all():
                        assert legend.evaluate("legend => legend.scrollWidth <= legend.clientWidth"), name
                if name == "heat map":  # a cell has a row here
                    shades = tab.locator("#colours i").evaluate_all("shades => shades.map((i) => i.style.opacity)")
                    assert shades == ["0.8"]
                for fold in tab.locator("summary").all():
                    fold.click()
            violations = Axe().run(tab).response["violations"]
            assert [
                (violation["id"], [node["target"] for node in violation["nodes"]]) for violation in violations
            ] == [], name
            look(tab, f"{width} {scheme} {name}, open")
            assert tab.evaluate("document.documentElement.scrollWidth") <= width, name
        paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (max(map(int, re.findall(r"\d+", paper)[:3])) < 64) == (scheme == "dark")


def assert_chart_is_first(tab):
    """Check that the results of the first panel are above its options and the time tools, and begin on the first
    screen.
    """
    top = {
        name: tab.locator(name).first.bounding_box()["y"]
        for name in (".results", ".options", ".time")
        if tab.locator(name).count()
    }
    assert top[".results"] == min(top.values())
    assert top[".results"] < WIDTHS[390] / 3
