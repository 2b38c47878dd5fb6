"""Any address shows a chart or a sentence, filters select the same rows in every view, and heat maps draw windows of
different lengths.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from datetime import UTC, datetime
from urllib.parse import quote, urlencode
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

import aggr
from tests.serve.servers import make_store, serving, settled
from tiltframe import TiltFrame

pytestmark = [pytest.mark.store, pytest.mark.slow]

BERLIN = ZoneInfo("Europe/Berlin")
FIRST = int(datetime(2024, 2, 20, tzinfo=UTC).timestamp())
HOURS = 24 * 60
SIZES = [1.0, 0.5, 1e-05, 1e16, float("inf")]
EVENTS = [(FIRST + hour * 3600, SIZES[hour % 5], hour % 3, float(hour % 97 + 1)) for hour in range(HOURS)]
YEARS = int(datetime(2021, 2, 1, 12, tzinfo=UTC).timestamp())
EVENTS_OF_YEARS = [(YEARS + half_day * 43_200, 1.0, 1, float(half_day % 97 + 1)) for half_day in range(2 * 1000)]
MEASURES = {"latency": aggr.dds("ms", [0.5, 0.99]), "requests": aggr.count()}
WORDS = {  # hostile values of each word of an address
    "store": ["nowhere", "__proto__", "berlin"],
    "measure": ["nothing", "constructor", "latency"],
    "column": ["nothing", "latency_p50", "toString"],
    "as": ["rate", "over:nothing", "over:requests", "toString"],
    "drawn": ["heat", "toString"],
    "by": ["size", "code", "nothing", ""],
    "lines": ["all", "0", "-5", "1e99", "Infinity", "x", "2.5"],
    "above": ["x", "1e999", "-1", "0x10"],
    "where": ["code = 1", "code =", "'", "1", "no_such = 1", "code IN (1", "x" * 3000],
    "key.size": ["1.0", "abc", "{}", "[1]", '"', "", "null", "true", "1 OR 1 = 1", "9" * 400],
    "key.code": ["1", "abc", '"abc"', "{", "1e400", "-"],
    "key.other": ["1"],
    "range": ["-1h", "all", "night", "nothing", "-99999999999999d", "-0h", "__proto__"],
    "from": ["x", "2024-03-01", "0000-00-00", "9999-99-99", "2024-03-01T00:00:00+99:99", "-271821-04-20"],
    "to": ["x", "2024-03-02", "0001-01-01", "9999-12-31 23:59:59"],
    "compare": ["week", "toString", "__proto__", "period"],
    "2.measure": ["requests", "nothing"],
    "99.store": ["berlin"],
    "0.x": ["", "é\U0001f600\u202e"],
}
ALONE = [f"?{quote(word)}={quote(value)}" for word, values in WORDS.items() for value in values]
BROKEN = [
    "?key.size=%",
    "?%E0%A4%A",
    "?=&&=&?",
    "?by&by&lines",
    "?where=" + "y" * 30_000,
    "?store=berlin#" + "z" * 9000,
]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("addresses")
    stores = [("berlin", "Europe/Berlin", EVENTS), ("months", "UTC", EVENTS_OF_YEARS)]
    for name, zone, events in stores:
        times, sizes, codes, values = zip(*events, strict=True)
        ts = pa.array([at * 1000 for at in times], pa.timestamp("ms", "UTC"))
        data = pa.table({"ts": ts, "size": sizes, "code": codes, "ms": values})
        frame = TiltFrame(["1h", "1d", "1mo"], "ts", MEASURES, ["size", "code"], timezone=zone)
        make_store(folder / name, frame=frame, data=data)
    with serving(folder, folder / "berlin", folder / "months") as server:
        yield f"http://{server.host}:{server.port}/"


def shown_by(tab, address):
    """Open an address, and return the sentences of its panels, or the overview."""
    tab.goto(address)
    tab.locator("#status:not(:empty), #overview[aria-busy=false], .state .wrong").first.wait_for()
    if tab.locator("#overview").count():
        return tab.locator("#overview").inner_text()
    for panel in range(1, tab.locator(".panel").count() + 1):
        number = "" if panel == 1 else f"-{panel}"
        tab.locator(f"#results{number}:not(.busy)").wait_for()
        sentence = tab.locator(f"#status{number}").inner_text()
        assert tab.locator(f"#results{number} canvas, #results{number} .state").count() == 1, sentence
        assert len(sentence) > 20, sentence
        assert not re.search("Invalid|undefined|is not a function|Cannot read prop|Unexpected|toISOString", sentence), (
            sentence
        )
    return settled(tab)


def random_addresses(count):
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    draw = random.Random(seed)
    for _ in range(count):
        words = draw.sample(list(WORDS), draw.randint(2, 7))
        yield "?" + urlencode([(word, draw.choice(WORDS[word])) for word in words])


@pytest.mark.parametrize(
    "addresses",
    [
        pytest.param(lambda: ALONE, id="a word alone", marks=pytest.mark.long),
        pytest.param(lambda: BROKEN, id="broken"),
        pytest.param(lambda: random_addresses(40), id="random", marks=pytest.mark.long),
    ],
)
def test_any_address_shows_a_chart_or_a_sentence(address, tab, addresses):
    for search in addresses():
        print(search[:300], "->", shown_by(tab, address + search)[:200])


@pytest.mark.parametrize(
    ("search", "sentence"),
    [
        ("?store=nowhere", "There is no store 'nowhere'; there are: berlin, months."),
        ("?measure=errors", "There is no measure 'errors'; there are: latency, requests."),
        ("?by=host", "There is no key 'host'; there are: size, code."),
        ("?key.host=1", "There is no key 'host'; there are: size, code."),
        ("?measure=requests&as=over:errors", "There is no result 'errors'; there are: "),
        ("?measure=latency&drawn=heat&where=code+%3D+1", "A heat map cannot be restricted by a typed condition; "),
    ],
)
def test_a_sentence_names_what_cannot_be_shown(address, tab, search, sentence):
    assert shown_by(tab, address + search).startswith(sentence)
    assert tab.locator("canvas").count() == 0
    tab.get_by_role("link", name="All stores").click()
    tab.locator(".card").first.wait_for()


@pytest.mark.parametrize("size", SIZES)
def test_a_filter_of_a_float_selects_the_same_rows_in_both_views(address, tab, size):
    chosen = f"?measure=latency&range=all&key.size={quote(json.dumps(size))}"
    shown_by(tab, f"{address}{chosen}&column=latency_count")
    count = sum(event[1] == size for event in EVENTS)
    assert tab.locator(".legend .total").inner_text() == str(count)
    shown_by(tab, f"{address}{chosen}&drawn=heat")
    assert sum(counts_of_windows(tab).values()) == count


def counts_of_windows(tab):
    """Return the number of rows of each window in the table of a heat map, by its start."""
    counts = Counter()
    for row in tab.locator("#numbers tbody tr").all():
        texts = row.locator("td").all_text_contents()
        counts[row.locator("th").text_content()] = sum(int(text.replace(",", "")) for text in texts if text != "·")
    return counts


@pytest.mark.parametrize(
    ("store", "zone", "level", "events"), [("berlin", BERLIN, "1d", EVENTS), ("months", UTC, "1mo", EVENTS_OF_YEARS)]
)
def test_a_heat_map_draws_windows_of_different_lengths(address, tab, store, zone, level, events):
    """The days include one of 23 hours, and the months have 28 to 31 days."""
    tab.set_viewport_size({"width": 420, "height": 900})
    sentence = shown_by(tab, f"{address}?store={store}&measure=latency&drawn=heat&range=all")
    expected = Counter()
    for at, *_ in events:
        start = datetime.fromtimestamp(at, zone).replace(hour=0, **({"day": 1} if level == "1mo" else {}))
        offset = "UTC" if zone is UTC else f"UTC+{start.utcoffset().seconds // 3600:02}:00"
        expected[f"{start:%F} 00:00:00 {offset}"] += 1
    assert sentence.startswith(f"Windows of {level}: {len(expected)}, each from its start")
    assert counts_of_windows(tab) == expected
