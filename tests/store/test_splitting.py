"""Ranges of parts are read in groups that have no window in common, and a part is divided only if it is large."""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime
from itertools import pairwise

import pytest

import aggr
from tiltframe import TiltFrame
from tiltframe.store.backends.protocol import Part
from tiltframe.store.query.merging import split_by_windows

pytestmark = pytest.mark.store
SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))
SECOND = 1_000_000
LEVELS = {"10s": 10, "1m": 60, "7m": 420, "1h": 3600, "1mo": None}  # the seconds of a window


def window_start(level: str, micros: int) -> int:
    """Return the start of the window that contains a time, in microseconds."""
    seconds = LEVELS[level]
    if seconds is not None:
        return micros // (seconds * SECOND) * seconds * SECOND
    first_day = datetime.fromtimestamp(micros // SECOND, UTC).replace(day=1, hour=0, minute=0, second=0)
    return int(first_day.timestamp()) * SECOND


def random_parts(random_: random.Random, period: int) -> list[tuple[Part, tuple[int, int]]]:
    """Parts that follow each other, overlap or lie apart, each with a range inside it."""
    parts = []
    at = random_.randrange(10**9) * SECOND
    for number in range(random_.randrange(1, 25)):
        windows = random_.randrange(1, 50)
        first = at // period * period
        last = first + (windows - 1) * period
        part = Part("x", first, last_start=last, rows=random_.randrange(1, 400), bytes=9, name=f"p{number}")
        low = random_.randrange(first, last + 1)
        span = (first, last + 1) if random_.random() < 0.7 else (low, random_.randrange(low + 1, last + 2))
        parts.append((part, span))
        at = random_.choice([last + period, at, last - period * random_.randrange(9), last + period * 50])
    return random_.sample(parts, len(parts))


@pytest.mark.parametrize("trial", range(300))
def test_groups_of_ranges(trial):
    random_ = random.Random(f"{SEED} {trial}")
    print(f"TILTFRAME_SEED={SEED}")
    level = random_.choice(list(LEVELS))
    window = TiltFrame([level], "ts", {"n": aggr.count()}).levels[0]
    part_ranges = random_parts(random_, random_.choice([10, 60]) * SECOND)
    rows_at_once = random_.choice([1, 50, 500, 5000])
    groups = list(split_by_windows(part_ranges, window, rows_at_once))

    pieces = {}
    for part, span in (piece for group in groups for piece in group):
        pieces.setdefault(part.name, []).append(span)
    assert pieces.keys() == {part.name for part, _ in part_ranges}
    for part, (low, high) in part_ranges:
        spans = sorted(pieces[part.name])
        assert spans[0][0] == low
        assert spans[-1][1] == high
        assert all(before[1] == after[0] for before, after in pairwise(spans))

    windows_by_group = []
    for group in groups:
        edges = [window_start(level, at) for _, (low, high) in group for at in (low, high - 1)]
        windows_by_group.append((min(edges), max(edges)))
    assert all(before[1] < after[0] for before, after in pairwise(windows_by_group))

    for group in groups:
        for part, span in group:
            if span not in [complete_range for other, complete_range in part_ranges if other is part]:
                assert rows_of_connected(part, part_ranges, level) > 2 * rows_at_once

    complete = {(part.name, span) for part, span in part_ranges}
    for before, after in pairwise(groups):
        pieces_of_both = [*before, *after]
        if all((part.name, span) in complete for part, span in pieces_of_both):
            assert sum(part.rows for part, _ in pieces_of_both) > rows_at_once


def rows_of_connected(part, part_ranges, level) -> int:
    """Return the number of rows of all parts that are connected with a part by common windows, also indirectly."""
    windows = {
        other.name: (other.rows, window_start(level, low), window_start(level, high - 1))
        for other, (low, high) in part_ranges
    }
    connected = {part.name}
    to_visit = [part.name]
    while to_visit:
        _, first, last = windows[to_visit.pop()]
        more = {name for name, (_, low, high) in windows.items() if low <= last and first <= high} - connected
        connected |= more
        to_visit += more
    return sum(windows[name][0] for name in connected)
