"""The page shows pushed changes, polls if the server has no place for a listener, and its address contains hidden lines
and whether changes are shown.
"""

from __future__ import annotations

import http.client
import re
from contextlib import ExitStack
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

import aggr
from tests.serve.servers import make_store, serving, settled
from tiltframe import TiltFrame

pytestmark = [pytest.mark.store, pytest.mark.slow, pytest.mark.long]

FRAME = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}, ["host"], timezone="Europe/Berlin")
HOSTS = ["ant", "bee", "cat"]
VIEW = "?store=web&measure=n&range=all"
HIDE = "document.isHidden = true; document.dispatchEvent(new Event('visibilitychange'))"
SHOW = "document.isHidden = false; document.dispatchEvent(new Event('visibilitychange'))"


def table(count):
    times = pa.array([1_714_557_600_000 + 60_000 * i for i in range(count)], pa.timestamp("ms", "UTC"))
    return pa.table({"ts": times, "host": [HOSTS[i % 3] for i in range(count)]})


@pytest.fixture
def web(tmp_path):
    """A server of a store of 90 rows; the server, its address and the store."""
    store = make_store(tmp_path / "web", frame=FRAME, data=table(90))
    with serving(tmp_path, tmp_path / "web") as server:
        yield server, f"http://{server.host}:{server.port}/", store


@pytest.fixture
def requests(tab):
    """The paths of all requests of a tab, in order."""
    paths = []
    tab.on("request", lambda request: paths.append(urlsplit(request.url).path))
    return paths


def wait_for_total(tab, total):
    tab.locator(".legend .total", has_text=re.compile(f"^{total}$")).wait_for(timeout=15_000)


def test_changes_are_pushed_over_one_connection_while_the_page_is_visible(web, tab, requests):
    _, address, store = web
    tab.add_init_script("Object.defineProperty(document, 'hidden', {get: () => Boolean(document.isHidden)})")
    with tab.expect_request("**/v1/stores/web/changes?*", timeout=15_000):
        tab.goto(address + VIEW)
    wait_for_total(tab, 90)
    requests.clear()
    for number, total in ((2, 93), (3, 96)):
        store.append_rows(table(3), "test", number)
        wait_for_total(tab, total)
    assert requests.count("/v1/query") <= 6  # windows and totals of the two changes, and of one that followed
    assert {"/v1/stores", "/v1/stores/web/changes"}.isdisjoint(requests)

    with tab.expect_event("requestfailed", lambda request: "/changes" in request.url):
        tab.evaluate(HIDE)
    requests.clear()
    store.append_rows(table(3), "test", 4)
    tab.wait_for_timeout(4000)
    assert requests == []
    with tab.expect_request("**/v1/stores/web/changes?*"):
        tab.evaluate(SHOW)
    wait_for_total(tab, 99)


def test_the_page_polls_if_the_server_has_no_place_for_a_listener(web, tab, requests):
    server, address, store = web
    with ExitStack() as listeners:
        for _ in range(32):
            connection = http.client.HTTPConnection(server.host, server.port, timeout=20)
            listeners.callback(connection.close)
            connection.request("GET", "/v1/stores/web/changes")
            assert connection.getresponse().status == 200
        with tab.expect_response("**/v1/stores/web/changes?*", timeout=15_000) as refused:
            tab.goto(address + VIEW)
        assert refused.value.status == 503
        wait_for_total(tab, 90)
        requests.clear()
        store.append_rows(table(3), "test", 2)
        wait_for_total(tab, 93)
        tab.wait_for_timeout(4000)
        assert "/v1/stores" in requests
        assert "/v1/stores/web/changes" not in requests  # the page waits before it asks for a place again


def test_two_tabs_use_one_connection(web, tab):
    _, address, store = web
    other = tab.context.new_page()
    with tab.expect_request("**/v1/stores/web/changes?*", timeout=15_000):
        tab.goto(address + VIEW)
    paths = []
    other.on("request", lambda request: paths.append(urlsplit(request.url).path))
    other.goto(address + VIEW)
    wait_for_total(other, 90)
    store.append_rows(table(3), "test", 2)
    wait_for_total(tab, 93)
    wait_for_total(other, 93)
    assert "/v1/stores/web/changes" not in paths


def test_an_address_without_live_shows_no_changes(web, tab, requests):
    _, address, store = web
    tab.goto(f"{address}{VIEW}&live=off")
    wait_for_total(tab, 90)
    live = tab.get_by_role("button", name="Live")
    assert live.get_attribute("aria-pressed") == "false"
    store.append_rows(table(3), "test", 2)
    tab.wait_for_timeout(5000)
    assert "/v1/stores/web/changes" not in requests
    wait_for_total(tab, 90)
    live.click()
    assert "live" not in tab.url
    wait_for_total(tab, 93)


def test_hidden_lines_are_in_the_address_and_stay_hidden(web, tab):
    _, address, store = web
    tab.goto(f"{address}{VIEW}&by=host")
    settled(tab)
    tab.locator(".line", has_text="bee").click()
    assert "hide=" in tab.url
    store.append_rows(table(2), "test", 2)  # ant and bee have more rows than cat now
    tab.locator(".legend .total", has_text="31").first.wait_for(timeout=15_000)
    other = tab.context.new_page()
    other.goto(tab.url)
    settled(other)
    for window in (tab, other):
        assert [text.strip() for text in window.locator(".legend .off th").all_inner_texts()] == ["bee"]
    other.locator(".line", has_text="bee").click()
    assert "hide=" not in other.url
    tab.get_by_label("Measure").focus()
    tab.locator("#by button", has_text="host").click()
    tab.wait_for_url(lambda url: "hide=" not in url)


def test_warnings_have_times_as_the_page_writes_them(web, tab):
    _, address, store = web
    evolved = TiltFrame(
        ["1m", "1h"], "ts", {"n": aggr.count(), "size": aggr.sum("size")}, ["host"], timezone="Europe/Berlin"
    )
    store.evolve(evolved, table(1).schema.append(pa.field("size", pa.int64())))
    tab.goto(f"{address}?store=web&measure=size&range=all")
    added = re.search("size was added at (.*), and is null in earlier windows", settled(tab))
    assert added
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\+0[12]:00", added[1])
