"""At the end of a bounded input, every window is emitted once with its final result, for every policy and level."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from itertools import pairwise

import pytest

SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))
POLICIES = [
    *(
        "after_close",
        "after_close(delay=10s)",
        "periodic(1m)",
        "on_update",
        "after_count(7)",
        "after_close(timeout=1h)",
    ),
    *("on_update(mode=changelog)", "periodic(1s, mode=changelog)"),
]
# a delay has no effect for windows that never close, and is refused
CASES = [(policy, "all") for policy in POLICIES if "delay" not in policy]
CASES += [(policy, "10s,1m,all") for policy in POLICIES]
CASES += [("after_key_expire(1m)", "all"), ("after_close", "session(20s)"), ("periodic(1m)", "10s,hopping(1m, 30s)")]


def stamp(second: int) -> str:
    return f"2024-05-01T10:{second // 60:02}:{second % 60:02}Z"


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "levels"), CASES)
@pytest.mark.long
def test_all_of_a_bounded_input_is_emitted_once(policy, levels, forked):
    draws = random.Random(SEED)
    rows = sorted((draws.randrange(300), draws.choice("abc")) for _ in range(60))
    lines = "".join(json.dumps({"ts": stamp(second), "k": key}) + "\n" for second, key in rows)
    options = ["--time", "ts", "--key", "k", "--measure", "n=count()", "--levels", levels, "--emit", policy]
    status, output, errors = forked.run(["stream", *options], text=lines)
    assert status == 0, errors
    emitted = [json.loads(line) for line in output.splitlines()]
    stands: dict[tuple, list[int]] = {}
    for row in emitted:
        window = (row["level"], row["window_start"], row["k"])
        if row.get("change", 1) == 1:
            stands.setdefault(window, []).append(row["n"])
        else:
            assert stands[window].pop() == row["n"], SEED
    if "session" not in levels and "hopping" not in levels:
        for level in levels.split(","):
            length = {"10s": 10, "1m": 60, "all": 10**6}[level]
            counted = Counter((second // length, key) for second, key in rows)
            counts_by_window = {(start, key): counts for (name, start, key), counts in stands.items() if name == level}
            assert sorted(counts[-1] for counts in counts_by_window.values()) == sorted(counted.values()), (SEED, level)
            assert len(counts_by_window) == len(counted), (SEED, level)
    for counts in stands.values():  # no emission repeats the one before
        assert all(a != b for a, b in pairwise(counts)), SEED
        assert len(counts) == 1 or "changelog" not in policy
    last = {row["k"]: row["n"] for row in emitted if row["level"] == "all"}
    if "all" in levels:
        assert last == Counter(key for _, key in rows), SEED
