"""Twelve tasks of an on-call engineer on the page, each done by a script in at most five actions."""

from __future__ import annotations

import re
import shlex
import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

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


def legend(tab):
    """Return the rows of the legend: name -> the numbers in it."""
    lines = {}
    for row in tab.locator("#results .legend tbody tr").all():
        name = row.locator("th").inner_text().strip()
        lines[name] = [cell.inner_text().replace(",", "") for cell in row.locator("td").all()]
    return lines


def open_card(tab, address, measure):
    """Open the overview and the panel of a measure: one action."""
    tab.goto(address)
    summarized(tab)
    tab.locator(".store[aria-label='Store shop'] .card", has_text=measure).first.click()
    settled(tab)


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


def test_the_host_with_the_worst_p99_last_night(shop, tab):
    address, events, _ = shop
    open_card(tab, address, "latency")
    choose(tab, "Range", "night")
    split_by_host(tab)
    low, high = last_night()
    assert shown_range(tab) == [low, high]
    worst = {host: lower_p99([ms for _, ms in rows]) for host, rows in per_host(events, low, high).items()}
    lines = legend(tab)
    assert len(lines) == 10 < len(worst)
    first, numbers = next(iter(lines.items()))
    # the page compares quantiles of sketches, which may differ by 1 % each
    assert worst[first] == pytest.approx(max(worst.values()), rel=0.0202)
    assert float(numbers[1]) == pytest.approx(worst[first], rel=0.0101)  # the accuracy of the sketch


def test_yesterday_compared_with_a_week_before(shop, tab):
    address, events, _ = shop
    open_card(tab, address, "requests")
    choose(tab, "Range", "yesterday")
    choose(tab, "Compare with", "week")
    today = midnight()
    now, before = (
        sum(map(len, per_host(events, today - days * 86_400, today - (days - 1) * 86_400).values())) for days in (1, 8)
    )
    _, in_range, earlier, change = legend(tab)["requests"]
    assert (float(in_range), float(earlier)) == (float(f"{now:.5g}"), float(f"{before:.5g}"))
    assert float(change.removesuffix(" %")) == pytest.approx((now / before - 1) * 100, abs=0.06)


def test_when_errors_began(shop, tab):
    address, events, _ = shop
    open_card(tab, address, "errors")
    tab.locator("#from").fill(f"{datetime.fromtimestamp(midnight() - 46_800, UTC):%Y-%m-%d %H:%M}")
    tab.locator("#to").fill(f"{datetime.fromtimestamp(midnight() - 39_600, UTC):%Y-%m-%d %H:%M}")
    tab.locator("#above").fill("0")
    tab.locator("#above").press("Enter")
    tab.get_by_text("Above 0 first").wait_for()
    began = min(at for at, _, status, _ in events if status == 500) // 60 * 60
    assert f"Above 0 first from {datetime.fromtimestamp(began, UTC):%Y-%m-%d %H:%M:00} UTC" in settled(tab)


def test_a_shared_link_shows_the_same(shop, tab):
    address, _, _ = shop
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_card(tab, address, "requests")
    choose(tab, "Range", "-6h")
    split_by_host(tab)
    lines, status = legend(tab), settled(tab)
    tab.get_by_role("button", name="Share").click()
    tab.get_by_text("The link is copied.").wait_for()
    link = tab.evaluate("navigator.clipboard.readText()")
    assert "range" not in link
    with tab.context.expect_page() as opened:
        tab.evaluate("link => void window.open(link)", link)
    other = opened.value
    assert settled(other) == status
    assert legend(other) == lines


def test_the_host_with_the_highest_share_of_errors(shop, tab):
    address, events, _ = shop
    open_card(tab, address, "errors")
    choose(tab, "As", "over:requests")
    split_by_host(tab)
    choose(tab, "Range", "yesterday")
    hosts = per_host(events, midnight() - 86_400, midnight())
    shares = {host: sum(status == 500 for status, _ in rows) / len(rows) for host, rows in hosts.items()}
    first, numbers = next(iter(legend(tab).items()))
    assert shares[first] == max(shares.values()) > 0
    assert float(numbers[1]) == pytest.approx(shares[first], rel=1e-4)


def test_requests_per_second(shop, tab):
    address, events, _ = shop
    open_card(tab, address, "requests")
    choose(tab, "As", "rate")
    choose(tab, "Range", "yesterday")
    count = sum(map(len, per_host(events, midnight() - 86_400, midnight()).values()))
    assert float(legend(tab)["requests"][1]) == pytest.approx(count / 86_400, rel=1e-4)


def test_a_marked_range_shows_finer_windows(shop, tab):
    address, _, _ = shop
    open_card(tab, address, "errors")
    assert "Windows of 1h" in choose(tab, "Range", "-7d")
    chart = tab.locator("#chart .u-over").bounding_box()
    tab.mouse.move(chart["x"] + chart["width"] * 0.5, chart["y"] + 50)
    tab.mouse.down()
    tab.mouse.move(chart["x"] + chart["width"] * 0.51, chart["y"] + 50, steps=4)
    tab.mouse.up()
    tab.wait_for_url("**from=**")
    assert "Windows of 1m" in settled(tab)


def test_one_host_alone(shop, tab):
    address, events, _ = shop
    open_card(tab, address, "requests")
    choose(tab, "Range", "yesterday")
    tab.get_by_text("Filters").click()
    tab.locator("#filters option[value='\"cat\"']").wait_for(state="attached")
    tab.locator("#filters select").select_option("cat")
    settled(tab)
    count = len(per_host(events, midnight() - 86_400, midnight())["cat"])
    assert float(legend(tab)["requests"][1]) == count


def test_the_distribution_of_a_night(shop, tab):
    address, events, _ = shop
    open_card(tab, address, "latency")
    choose(tab, "Range", "night")
    choose(tab, "Drawn as", "heat")
    low, high = last_night()
    cells = tab.locator("#numbers tbody td").all_text_contents()
    assert sum(int(text.replace(",", "")) for text in cells) == sum(map(len, per_host(events, low, high).values()))


def test_two_metrics_in_one_address(shop, tab):
    address, _, _ = shop
    open_card(tab, address, "latency")
    tab.get_by_role("button", name="Add a panel").click()
    tab.locator("#results-2:not(.busy)").wait_for()
    tab.locator("#measure-2").select_option("errors")
    tab.wait_for_url("**2.measure=errors**")
    tab.locator("#results-2:not(.busy)").wait_for()
    assert [text.strip() for text in tab.locator(".panel h2").all_inner_texts()] == ["latency", "errors"]
    assert tab.locator("canvas").count() == 2


def test_a_wrong_clock_does_not_stretch_the_first_view(shop, tab):
    address, events, _ = shop
    tab.goto(f"{address}?store=clock&measure=requests")
    assert "probably because of a wrong clock" in settled(tab)
    low, high = shown_range(tab)
    assert high - low <= timedelta(days=1, hours=1).total_seconds()
    assert low < events[-1][0] < high + 3600


def test_more_lines_than_anyone_reads_are_drawn_on_request_only(shop, tab):
    tab.goto(f"{shop[0]}?store=many&measure=requests&by=host&lines=all")
    assert settled(tab) == "Choose how many lines to draw."
    assert "more than 1,000 lines of host" in tab.locator(".state").inner_text()
    tab.get_by_role("button", name="Draw the greatest 10").click()
    tab.locator("canvas").wait_for()
    assert len(legend(tab)) == 10


def test_new_rows_appear_without_a_reload(shop, tab):
    address, events, store = shop
    tab.goto(f"{address}?store=shop&measure=requests&range=all")
    settled(tab)
    total = len(events)
    store.append_rows(table([(events[-1][0], "ant", 200, 1.0)] * 500), "later", 1)
    expected = f"{float(f'{total + 500:.5g}'):,.0f}"
    tab.locator(".legend .total", has_text=re.compile(f"^{re.escape(expected)}$")).wait_for(timeout=15_000)
    assert shlex.split(tab.locator("#curl").text_content())[-1].startswith(f"{address}v1/query?store=shop")
