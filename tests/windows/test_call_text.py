"""The grammar of calls, with random texts: written calls can be read again, and unreadable texts raise one short
message.
"""

from __future__ import annotations

import os
import random
import string

import pytest

from aggr.call_text import read_call, read_value, split, write_call, write_value
from tiltframe.streaming import AfterCount, AfterKeyExpire, Buffer, Drop, OnUpdate, Periodic, read_emit, read_late
from tiltframe.text.measures import measure_from
from windows import hopping, ordered, read_window, read_windows, session, window

TRIALS = int(os.environ.get("TRIALS", "300"))
SEED = int(os.environ.get("SEED", "28"))
ZONES = ("UTC", "Europe/Paris", "Asia/Kathmandu")
UNITS = ("s", "m", "h", "d", "w", "mo", "q", "y")
OFFSETS = (None, "1us", "900ms")
FIXED = ("us", "ms", "s", "m", "h", "d")
CONDITIONS = (
    "n > 5",
    "k = 'it''s'",
    'name = "a"',
    "a,b",
    "x IN (1, 2)",
    "true",
    "5",
    "a = 5",
    "s LIKE '%\\_'",
    "ü > 1\n",
)


@pytest.fixture
def draw(request):
    print(f"seed {SEED}")
    return random.Random(f"{SEED} {request.node.name}")


def length(draw: random.Random, units: tuple[str, ...] = FIXED) -> str:
    return f"{draw.randrange(1, 400)}{draw.choice(units)}"


def time_window(draw: random.Random):
    zone = draw.choice(ZONES)
    kind = draw.randrange(4)
    if kind == 0:
        return session(length(draw))
    if kind == 1:
        unit, size = draw.choice(("s", "m", "h", "d", "mo")), draw.randrange(2, 30)
        return hopping(
            f"{size}{unit}", f"{draw.randrange(1, size + 1)}{unit}", zone, draw.choice((None, "1us", "900ms"))
        )
    return window(length(draw, UNITS), zone, draw.choice((None, "1us", "900ms")))


def ordered_window(draw: random.Random):
    condition, more = draw.choice(CONDITIONS), draw.choice((None, *CONDITIONS))
    tick = draw.choice((ordered.hourly(), ordered.daily("Europe/Paris"), ordered.weekly("UTC")))
    resets = draw.choice(((condition,), (tick,), (condition, tick)))
    return draw.choice(
        (
            lambda: ordered.count(draw.randrange(1, 9)),
            lambda: ordered.weighted_count(draw.randrange(1, 9), draw.choice(CONDITIONS)),
            lambda: ordered.interval(length(draw)),
            lambda: ordered.session(
                length(draw), draw.choice((None, length(draw))), more, condition, draw.choice(("[]", "(]"))
            ),
            lambda: ordered.emit_when(condition, draw.random() < 0.5),
            lambda: ordered.since(*resets, min_rows=draw.randrange(3)),
            lambda: ordered.sliding(draw.randrange(3, 9), *resets, min_rows=draw.randrange(3)),
            lambda: ordered.running(min_rows=draw.randrange(3)),
        )
    )()


def policy(draw: random.Random):
    having = draw.choice((None, "n > 5", "k = 'it''s'", "n > 5 AND k = 'a,b'"))
    return draw.choice(
        (
            lambda: Periodic(length(draw), draw.random() < 0.5, having=having),
            lambda: OnUpdate(length(draw), mode=draw.choice(("changelog", "discarding")), latest=draw.random() < 0.5),
            lambda: AfterCount(draw.randrange(1, 9), having=having),
            lambda: AfterKeyExpire(
                length(draw), maxspan=length(draw), only=True, span_of=draw.choice((None, "my, column"))
            ),
        )
    )()


def test_windows_and_policies_read_back(draw):
    for _ in range(TRIALS):
        window = time_window(draw)
        assert read_window(window.name, window.timezone or "UTC") == window
        assert read_ordered_twice(ordered_window(draw))
        emit, late = policy(draw), draw.choice((Drop(length(draw)), Buffer(draw.randrange(9), "drop")))
        assert read_emit(str(emit)) == emit
        assert read_late(str(late)) == late


def read_ordered_twice(windows_of_text) -> bool:
    return (
        ordered.read_ordered(str(windows_of_text)) == windows_of_text == ordered.read_ordered(f"  {windows_of_text} ")
    )


def test_lists_of_windows_read_back(draw):
    for _ in range(TRIALS // 10):
        windows = [time_window(draw) for _ in range(draw.randrange(1, 5))]
        assert [w.name for w in read_windows(", ".join(w.name for w in windows))] == [w.name for w in windows]


def value(draw: random.Random, depth: int = 2):
    if depth and draw.random() < 0.3:
        return [value(draw, depth - 1) for _ in range(draw.randrange(4))]
    text = "".join(draw.choice("abzA_059 .,=()[]{}'\"\\\n\tü=") for _ in range(draw.randrange(9)))
    return draw.choice((text, draw.randrange(-9, 9), draw.random(), True, False, None, *CONDITIONS))


def test_values_read_back(draw):
    for _ in range(TRIALS * 5):
        values = {name: value(draw) for name in draw.sample(("a", "having", "x_1"), draw.randrange(4))}
        text = write_call("call", values)
        call = read_call(text, allows_bare_name=True)
        assert call is not None, text
        assert {key: read_value(argument) for key, argument in call.arguments} == values, text
        parts = [value(draw) for _ in range(draw.randrange(1, 4))]
        assert [read_value(part) for part in split(",".join(map(write_value, parts)))] == parts


@pytest.mark.parametrize(
    ("quoted", "bare"), [("session('30m')", "session(30m)"), ("session(gap='30m')", 'session("30m")')]
)
def test_no_family_is_told_by_quotes(quoted, bare):
    assert read_window(quoted) == read_window(bare) == session("30m")
    assert ordered.read_ordered(quoted) == ordered.read_ordered(bare) == ordered.session("30m")


READERS = {
    "window": (read_window, ("1h", "hopping(1h, 10m, offset=5m)", "session(30m)", "tumbling(1d, offset=6h)", "all")),
    "windows": (read_windows, ("10s,hopping(1h, 10m),1d",)),
    "ordered": (ordered.read_ordered, ("since('n > 5', daily('UTC'))", "session('30m', max='8h')", "count(100)")),
    "tick": (ordered.read_tick, ("daily('Europe/Paris')", "hourly()")),
    "emit": (read_emit, ("periodic(1m, repeat, having='n > 300')", "after_count(5)")),
    "late": (read_late, ("buffer(3, older=drop)", "drop(5m)")),
    "measure": (measure_from, ("dds(ms, quantiles=[0.5, 0.99])", "sum(price * n, where='a > 1')", "count()")),
}


@pytest.mark.slow
@pytest.mark.parametrize("family", READERS)
def test_what_cannot_be_read_is_one_sentence(family, draw):
    read, seeds = READERS[family]
    refused = 0
    for _ in range(TRIALS):
        text = list(draw.choice(seeds))
        for _ in range(draw.randrange(1, 4)):
            at = draw.randrange(len(text) + 1)
            text[at : at + draw.randrange(3)] = draw.choice(
                ("", draw.choice(string.printable), *"(',=[９\0", "x" * 400, "[" * 2000, "lambda: 1")
            )
        try:
            read("".join(text))
        except (ValueError, KeyError) as error:
            refused += 1
            message = str(error)
            assert len(message) <= 320, message
            assert "\n" not in message, message
    assert refused > TRIALS // 10
