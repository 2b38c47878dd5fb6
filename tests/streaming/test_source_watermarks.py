"""The watermark of several sources, compared with a naive evaluation and the documented rules of Flink."""

from __future__ import annotations

import random

import pytest

from tiltframe.streaming import SourceWatermarks

IDLE = 10_000_000


def naive(events: list[tuple], names: str, now: int) -> int | None:
    """Return the minimum over the active sources; the maximum of all if all are idle or ended."""
    at = {name: [w for kind, n, w, _ in events if (kind, n) == ("row", name)] for name in names}
    last = {name: max([t for kind, n, _, t in events if (kind, n) == ("row", name)], default=0) for name in names}
    ended = {n for kind, n, _, _ in events if kind == "end"}
    active = [name for name in names if name not in ended and now - last[name] < IDLE]
    if not active:
        return max((max(marks) for marks in at.values() if marks), default=None)
    return None if any(not at[name] for name in active) else min(max(at[name]) for name in active)


@pytest.mark.parametrize("seed", range(20))
def test_combined_is_the_naive_minimum_and_never_decreases(seed):
    draws, events, now, before = random.Random(seed), [], 0, None
    sources = SourceWatermarks("abc", idle="10s")
    assert sources.combined(0) is None
    for _ in range(60):
        now += draws.choice([0, 1, 4, 9]) * 1_000_000
        kind = "end" if draws.random() < 0.02 else "row"
        name, watermark = draws.choice("abc"), draws.randrange(1_000) * 1_000
        events.append((kind, name, watermark, now))
        if kind == "row":
            sources.advance(name, watermark, now)
        else:
            sources.end(name)
        latest = naive(events, "abc", now)
        before = latest if before is None else max(before, before if latest is None else latest)
        assert sources.combined(now) == before, (seed, events)


@pytest.mark.parametrize(
    ("names", "idle", "message"),
    [
        ([], None, "got none"),
        ("aa", None, "got 'a' twice"),
        ("ab", "soon", "^idle must be a duration such as 1m"),
        ("ab", "0s", "0s"),
    ],
)
def test_wrong_arguments(names, idle, message):
    with pytest.raises(ValueError, match=message):
        SourceWatermarks(names, idle=idle)


def test_an_unknown_source():
    with pytest.raises(ValueError, match="'c' is not a source of this stream"):
        SourceWatermarks("ab").advance("c", 1, 1)
