"""The laws of ordered windows, to check a window of one's own by.

split · any split of the rows into batches gives the same ranges and the same carry
order · ranges do not go back within a key, lie within the rows so far, and keys and rows ascend
marks · a later range begins at an open start of the carry, or within its batch
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from windows.ordered.contract import Carry, Condition, Input, OrderedWindow, Ranges, Rows
from windows.ordered.ticks import Tick

Naive = Callable[[NDArray[np.int64], dict[Input, NDArray[np.int64]]], list[tuple[int, int, int]]]


def check(window: OrderedWindow, naive: Naive | None = None, seed: int = 0, trials: int = 20) -> None:
    """Check an ordered window over random rows: few keys and many equal times, keys without rows, times before 1970.

    Parameters
    ----------
    window : OrderedWindow
    naive : callable, optional
        The window once more, in a few plain lines: takes the times of one key and an array for each input, and returns
        the first row, the last one (exclusive) and the row that brings it about for each output.
    seed, trials : int
        Of the random rows.

    Raises
    ------
    AssertionError
        If a law is broken; it says which.
    """
    rng = np.random.default_rng(seed)
    for _ in range(trials):
        rows = _random_rows(window, rng)
        whole, carry = window.ranges(rows, window.start(len(rows.heads)))
        _check_order(window, rows, whole)
        for cuts in (np.arange(len(rows.times) + 1), rng.integers(0, len(rows.times) + 1, 3), np.array([], np.int64)):
            parts, after = _in_batches(window, rows, np.unique(cuts))
            assert parts == _listed(whole, rows), f"{window}: batches cut at {cuts} give other ranges"
            same = all(np.array_equal(a, b) for a, b in zip(after[:3], carry[:3], strict=True))
            assert same, f"{window}: batches cut at {cuts} leave another carry"
        if naive is not None:
            wanted = []
            for key, (head, length) in enumerate(zip(rows.heads, rows.lengths, strict=True)):
                inputs = {read: column[head : head + length] for read, column in rows.inputs.items()}
                outputs = naive(rows.times[head : head + length], inputs)
                wanted += [(key, first, last, row) for first, last, row in outputs]
            assert _listed(whole, rows) == wanted, f"{window}: a naive evaluator finds other ranges"


def _random_rows(window: OrderedWindow, rng: np.random.Generator) -> Rows:
    lengths = rng.integers(0, [3, 9, 40][int(rng.integers(3))], int(rng.integers(1, 5)))
    heads = np.cumsum(lengths) - lengths
    steps = rng.integers(0, int(rng.integers(1, 30)), int(lengths.sum())) * 1_000_000
    times = np.concatenate([np.cumsum(steps[h : h + n]) for h, n in zip(heads, lengths, strict=True)]) - 60_000_000
    share = rng.choice([0.05, 0.3, 0.9])
    inputs = {
        read: rng.random(len(times)) < share if isinstance(read, (Condition, Tick)) else rng.integers(0, 9, len(times))
        for read in window.reads
    }
    return Rows(heads, lengths, times, inputs)


def _in_batches(window: OrderedWindow, rows: Rows, cuts: NDArray[np.int64]) -> tuple[Sequence[tuple[int, ...]], Carry]:
    """Give the rows in batches, a batch being the rows of all keys whose place in the whole lies between two cuts."""
    carry, found, keys = window.start(len(rows.heads)), [], rows.keys
    bounds = np.unique([0, *cuts, len(rows.times)])
    for low, high in pairwise(bounds.tolist()):
        lengths = np.bincount(keys[low:high], minlength=len(rows.heads))
        heads = np.cumsum(lengths) - lengths
        inputs = {read: column[low:high] for read, column in rows.inputs.items()}
        batch = Rows(heads, lengths, rows.times[low:high], inputs)
        ranges, after = window.ranges(batch, carry)
        starts = carry.open_starts[_indices(ranges.key, ranges.first, carry)]
        known = (starts == ranges.first) | (ranges.first >= carry.position[ranges.key])
        assert known.all(), f"{window}: a range begins where no open start is"
        found += _listed(ranges, batch, carry.position)
        carry = after
    return found, carry


def _indices(key: NDArray[np.int64], first: NDArray[np.int64], carry: Carry) -> NDArray[np.int64]:
    """Find the last open start of each range's key that is not behind its first row."""
    base = np.cumsum(carry.counts) - carry.counts
    found = [
        base[k]
        + max(int(np.searchsorted(carry.open_starts[base[k] : base[k] + carry.counts[k]], f, side="right")) - 1, 0)
        for k, f in zip(key, first, strict=True)
    ]
    return np.minimum(np.array(found, np.int64), len(carry.open_starts) - 1)


def _listed(ranges: Ranges, rows: Rows, before: NDArray[np.int64] | None = None) -> list[tuple[int, ...]]:
    """List outputs with the place of their row in its key."""
    place = ranges.row - rows.heads[ranges.key] + (0 if before is None else before[ranges.key])
    return list(zip(*(c.tolist() for c in (ranges.key, ranges.first, ranges.last, place)), strict=True))


def _check_order(window: OrderedWindow, rows: Rows, ranges: Ranges) -> None:
    same = np.diff(ranges.key) == 0
    assert (np.diff(ranges.row) >= 0).all(), f"{window}: outputs are not in the order of their rows"
    assert (ranges.last >= ranges.first).all(), f"{window}: a range ends before it begins"
    for places in (ranges.first, ranges.last):
        assert (np.diff(places)[same] >= 0).all(), f"{window}: ranges go back within a key"
    until = ranges.row - rows.heads[ranges.key] + 1
    assert (ranges.last <= until).all(), f"{window}: a range reaches beyond the row that brings it about"
