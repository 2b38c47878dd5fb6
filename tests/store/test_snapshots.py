"""The parts of a snapshot that have windows in a range, compared with the parts that are found one by one."""

from __future__ import annotations

import os
import random

import pytest

from tiltframe.ranges import EVER
from tiltframe.store.log.snapshot import Part, Snapshot

pytestmark = pytest.mark.store

SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))


def test_pieces_are_the_parts_that_have_windows_in_the_range():
    draws = random.Random(SEED)
    for _ in range(200):
        parts = []
        for number in range(draws.randrange(12)):
            first = draws.randrange(-20, 20)
            last = first + draws.randrange(10)
            parts.append(Part(draws.choice(["1m", "1h"]), first, last, rows=1, name=str(number)))
        snapshot = Snapshot(1, {}, tuple(parts), {})
        low = draws.choice([EVER[0], draws.randrange(-25, 25)])
        high = draws.choice([EVER[1], draws.randrange(-25, 35)])
        for level in ("1m", "1h", "1d"):
            expected = []
            for part in parts:
                starts = [at for at in range(part.first_start, part.last_start + 1) if low <= at < high]
                if part.level == level and starts:
                    expected.append((part, (starts[0], starts[-1] + 1)))
            assert snapshot.pieces(level, (low, high)) == expected, (SEED, parts, low, high)
