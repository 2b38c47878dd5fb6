"""Twelve tasks of an on-call engineer on the page, each done by a script in at most five actions.

Each task starts with an empty tab. Loading a page, a click, a filled field, a pressed key, a chosen option and a range
marked by the mouse are an action each.
"""

from __future__ import annotations

import re
import shlex
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from playwright.sync_api import Keyboard, Locator, Mouse, Page

import aggr
from tests.serve.servers import make_store, serving, settled, summarized
from tiltframe import TiltFrame

pytestmark = [pytest.mark.store, pytest.mark.slow, pytest.mark.long]

DAYS, EVERY = 10, 120  # seconds between the rows of a host
HOSTS = ["ant", "bee", "cat", "dog"] + [f"unit-{i:02}" for i in range(10)]
MEASURES = {
    "requests": aggr.count(),
    "errors": aggr.count(where="status >= 500"),
    "latency": aggr.dds("ms", [0.5, 0.99]),
}


def midnight():
    """Return the start of this day in UTC, in seconds."""
    return int(datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0).timestamp())


def make_rows():
    """Return rows (time, host, status, milliseconds): dog is slow last night, and bee fails since yesterday noon."""
    end = int(time.time()) // 60 * 60
    today = midnight()
    result = []
    for at in range(today - DAYS * 86_400, end, EVERY):
        for i, host in enumerate(HOSTS):
            if (at // EVERY + i) % (i + 2) == 0:
                continue  # so that the hosts have different numbers of requests
            is_slow = host == "dog" and today - 7200 <= at < today + 21_600
            fails = host == "bee" and at >= today - 43_200 and at // EVERY % 3 == 0
            result.append((at, host, 500 if fails else 200, float(at // EVERY * 7 % 97 + 1) * (9 if is_slow else 1)))
    return result


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A server of a store of several days, and of one with a wrong clock; its address and the rows."""
    folder = tmp_path_factory.mktemp("tasks")
    events = make_rows()
    store = make_store(
        folder / "shop", frame=TiltFrame(["1m", "1h", "1d"], "ts", MEASURES, ["host"]), data=table(events)
    )
    late = [*events[-2000:], (events[-1][0] + 67 * 365 * 86_400, "ant", 200, 1.0)]
    make_store(folder / "clock", frame=TiltFrame(["1m", "1h", "1d"], "ts", MEASURES, ["host"]), data=table(late))
    many = [(events[-1][0], f"user-{i}", 200, 1.0) for i in range(1500)]
    make_store(folder / "many", frame=TiltFrame(["1m", "1h"], "ts", MEASURES, ["host"]), data=table(many))
    with serving(folder, folder / "shop", folder / "clock", folder / "many") as server:
        yield f"http://{server.host}:{server.port}/", events, store


def table(events):
    times, hosts, statuses, values = zip(*events, strict=True)
    ts = pa.array([at * 1000 for at in times], pa.timestamp("ms", "UTC"))
    return pa.table({"ts": ts, "host": hosts, "status": statuses, "ms": values})


def lower_p99(values):
    """Return the value of the lower rank, as dds defines quantiles."""
    return sorted(values)[int(0.99 * (len(values) - 1))]


def per_host(events, low, high):
    """Return the rows of each host in a range of times."""
    hosts = defaultdict(list)
    for at, host, status, ms in events:
        if low <= at < high:
            hosts[host].append((status, ms))
    return hosts


class Counted:
    """A tab, or a part of it, whose actions are counted."""

    ACTIONS = ("goto", "click", "dblclick", "fill", "press", "type", "select_option", "check", "down", "reload")
    MOST = 5

    def __init__(self, part: Page | Locator | Mouse | Keyboard, actions: list[str]) -> None:
        self._part = part
        self._actions = actions

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._part, name)
        return self._counted(name, member) if callable(member) else self._wrapped(member)

    def _counted(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if name in self.ACTIONS:
                self._actions.append(f"{name} {args}")
                assert len(self._actions) <= self.MOST, self._actions
            return self._wrapped(method(*args, **options))

        return call

    def _wrapped(self, part: Any) -> Any:
        return Counted(part, self._actions) if isinstance(part, Locator | Mouse | Keyboard) else part


@pytest.fixture
def engineer(tab):
    """An empty tab, in which at most five actions are possible."""
    return Counted(tab, [])


def test_the_sixth_action_fails(shop, engineer):
    for _ in range(Counted.MOST):
        engineer.goto(f"{shop[0]}api")
    with pytest.raises(AssertionError, match="goto"):
        engineer.locator("a").first.click()


def legend(tab):
    """Return the rows of the legend: name -> the numbers in it."""
    lines = {}
    for row in tab.locator("#results .legend tbody tr").all():
        name = row.locator("th").inner_text().strip()
        lines[name] = [cell.inner_text().replace(",", "") for cell in row.locator("td").all()]
    return lines


def open_card(tab, address, measure, store="shop"):
    """Open the overview and the panel of a measure, and return the sentences of the panel: two actions."""
    tab.goto(address)
    summarized(tab)
    tab.locator(f".store[aria-label='Store {store}'] .card", has_text=measure).first.click()
    return settled(tab)


def choose(tab, label, value):
    tab.get_by_label(label, exact=True).first.select_option(value)
    return settled(tab)


def shown_range(tab):
    """Return the range that is shown, in seconds."""
    times = [tab.locator(name).input_value() for name in ("#from", "#to")]
    return [datetime.strptime(text, "%Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC).timestamp() for text in times]


def split_by_host(tab):
    tab.get_by_role("button", name="host", exact=True).click()
    return settled(tab)


def last_night():
    today = midnight()
    end = today + 21_600
    if time.time() < end:
        end -= 86_400
    return end - 28_800, end


def test_the_host_with_the_worst_p99_last_night(shop, engineer):
    address, events, _ = shop
    open_card(engineer, address, "latency")
    choose(engineer, "Range", "night")
    split_by_host(engineer)
    low, high = last_night()
    assert shown_range(engineer) == [low, high]
    worst = {host: lower_p99([ms for _, ms in rows]) for host, rows in per_host(events, low, high).items()}
    lines = legend(engineer)
    assert len(lines) == 10 < len(worst)
    first, numbers = next(iter(lines.items()))
    # the page compares quantiles of sketches, which may differ by 1 % each
    assert worst[first] == pytest.approx(max(worst.values()), rel=0.0202)
    assert float(numbers[1]) == pytest.approx(worst[first], rel=0.0101)  # the accuracy of the sketch


def test_yesterday_compared_with_a_week_before(shop, engineer):
    address, events, _ = shop
    open_card(engineer, address, "requests")
    choose(engineer, "Range", "yesterday")
    choose(engineer, "Compare with", "week")
    today = midnight()
    now, before = (
        sum(map(len, per_host(events, today - days * 86_400, today - (days - 1) * 86_400).values())) for days in (1, 8)
    )
    _, in_range, earlier, change = legend(engineer)["requests"]
    assert (float(in_range), float(earlier)) == (float(f"{now:.5g}"), float(f"{before:.5g}"))
    assert float(change.removesuffix(" %")) == pytest.approx((now / before - 1) * 100, abs=0.06)


def test_when_errors_began(shop, engineer):
    address, events, _ = shop
    open_card(engineer, address, "errors")
    choose(engineer, "Range", "yesterday")
    engineer.locator("#above").fill("0")
    engineer.get_by_role("button", name="Show when it began").click()
    engineer.wait_for_url("**from=**")
    began = min(at for at, _, status, _ in events if status == 500) // 60 * 60
    assert f"Above 0 first from {datetime.fromtimestamp(began, UTC):%Y-%m-%d %H:%M:00} UTC" in settled(engineer)


def test_a_shared_link_shows_the_same(shop, engineer):
    address, _, _ = shop
    engineer.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_card(engineer, address, "requests")
    choose(engineer, "Range", "-6h")
    split_by_host(engineer)
    lines, status = legend(engineer), settled(engineer)
    engineer.get_by_role("button", name="Share").click()
    engineer.get_by_text("The link is copied.").wait_for()
    link = engineer.evaluate("navigator.clipboard.readText()")
    assert "range" not in link
    with engineer.context.expect_page() as opened:
        engineer.evaluate("link => void window.open(link)", link)
    other = opened.value
    assert settled(other) == status
    assert legend(other) == lines


def test_the_host_with_the_highest_share_of_errors(shop, engineer):
    address, events, _ = shop
    open_card(engineer, address, "errors")
    choose(engineer, "As", "over:requests")
    split_by_host(engineer)
    choose(engineer, "Range", "yesterday")
    hosts = per_host(events, midnight() - 86_400, midnight())
    shares = {host: sum(status == 500 for status, _ in rows) / len(rows) for host, rows in hosts.items()}
    first, numbers = next(iter(legend(engineer).items()))
    assert shares[first] == max(shares.values()) > 0
    assert float(numbers[1]) == pytest.approx(shares[first], rel=1e-4)


def test_requests_per_second(shop, engineer):
    address, events, _ = shop
    open_card(engineer, address, "requests")
    choose(engineer, "As", "rate")
    choose(engineer, "Range", "yesterday")
    count = sum(map(len, per_host(events, midnight() - 86_400, midnight()).values()))
    assert float(legend(engineer)["requests"][1]) == pytest.approx(count / 86_400, rel=1e-4)


def test_a_marked_range_shows_finer_windows(shop, engineer):
    address, _, _ = shop
    open_card(engineer, address, "errors")
    assert "Windows of 1h" in choose(engineer, "Range", "-7d")
    chart = engineer.locator("#chart .u-over").bounding_box()
    engineer.mouse.move(chart["x"] + chart["width"] * 0.5, chart["y"] + 50)
    engineer.mouse.down()
    engineer.mouse.move(chart["x"] + chart["width"] * 0.51, chart["y"] + 50, steps=4)
    engineer.mouse.up()
    engineer.wait_for_url("**from=**")
    assert "Windows of 1m" in settled(engineer)


def test_one_host_alone(shop, engineer):
    address, events, _ = shop
    open_card(engineer, address, "requests")
    choose(engineer, "Range", "yesterday")
    engineer.get_by_text("Filters").click()
    engineer.locator("#filters option[value='\"cat\"']").wait_for(state="attached")
    engineer.locator("#filters select").select_option("cat")
    settled(engineer)
    count = len(per_host(events, midnight() - 86_400, midnight())["cat"])
    assert float(legend(engineer)["requests"][1]) == count


def test_the_distribution_of_a_night(shop, engineer):
    address, events, _ = shop
    open_card(engineer, address, "latency")
    choose(engineer, "Range", "night")
    choose(engineer, "Drawn as", "heat")
    low, high = last_night()
    cells = engineer.locator("#numbers tbody td").all_text_contents()
    assert sum(int(text.replace(",", "")) for text in cells) == sum(map(len, per_host(events, low, high).values()))


def test_two_metrics_in_one_address(shop, engineer):
    address, _, _ = shop
    open_card(engineer, address, "latency")
    engineer.get_by_role("button", name="Add a panel").click()
    engineer.locator("#results-2:not(.busy)").wait_for()
    engineer.locator("#measure-2").select_option("errors")
    engineer.wait_for_url("**2.measure=errors**")
    engineer.locator("#results-2:not(.busy)").wait_for()
    assert [text.strip() for text in engineer.locator(".panel h2").all_inner_texts()] == ["latency", "errors"]
    assert engineer.locator("canvas").count() == 2


def test_a_wrong_clock_does_not_stretch_the_first_view(shop, engineer):
    address, events, _ = shop
    assert "probably because of a wrong clock" in open_card(engineer, address, "requests", store="clock")
    low, high = shown_range(engineer)
    assert high - low <= timedelta(days=1, hours=1).total_seconds()
    assert low < events[-1][0] < high + 3600


def test_more_lines_than_anyone_reads_are_drawn_on_request_only(shop, engineer):
    open_card(engineer, shop[0], "requests", store="many")
    split_by_host(engineer)
    assert choose(engineer, "Lines", "all") == "Choose how many lines to draw."
    assert "more than 1,000 lines of host" in engineer.locator(".state").inner_text()
    engineer.get_by_role("button", name="Draw the greatest 10").click()
    engineer.locator("canvas").wait_for()
    assert len(legend(engineer)) == 10


def test_new_rows_appear_without_a_reload(shop, engineer):
    address, events, store = shop
    open_card(engineer, address, "requests")
    choose(engineer, "Range", "all")
    total = len(events)
    store.append_rows(table([(events[-1][0], "ant", 200, 1.0)] * 500), "later", 1)
    expected = f"{float(f'{total + 500:.5g}'):,.0f}"
    engineer.locator(".legend .total", has_text=re.compile(f"^{re.escape(expected)}$")).wait_for(timeout=15_000)
    assert shlex.split(engineer.locator("#curl").text_content())[-1].startswith(f"{address}v1/query?store=shop")
