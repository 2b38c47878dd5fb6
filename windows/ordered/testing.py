"""The laws of ordered windows, as checks for new kinds of windows.

`check` raises `LawBroken`, which names the law, if a window breaks a law.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from aggr.arguments import checked_type, checked_whole
from aggr.testing.harness import LawBroken, check_laws, require
from windows.ordered.contract import Carry, Condition, Input, OrderedWindow, Ranges, Rows
from windows.ordered.ticks import Tick

__all__ = ["LAWS", "LawBroken", "check"]

Oracle = Callable[[NDArray[np.int64], dict[Input, NDArray[np.int64]]], list[tuple[int, int, int]]]


@dataclass(frozen=True)
class Case:
    """The arguments of a law: a window, random rows, and the ranges and the carry that the window returns if all rows
    are one batch. ``cuts`` has several ways to split the rows into batches: arrays of the indices at which batches
    begin. ``oracle`` is an independent implementation of the window, or None.
    """

    window: OrderedWindow
    rows: Rows
    ranges: Ranges
    carry: Carry
    cuts: Sequence[NDArray[np.int64]]
    oracle: Oracle | None


def in_order(case: Case) -> None:
    """The bounds of a key's ranges do not decrease, a range contains only rows up to the row that triggers it, and
    ranges are sorted by the rows that trigger them.
    """
    rows = case.rows
    ranges = case.ranges
    is_same = np.diff(ranges.key) == 0
    require(bool((np.diff(ranges.row) >= 0).all()), "the results are not in the order of their rows")
    require(bool((ranges.last >= ranges.first).all()), "a range ends before it begins")
    for places in (ranges.first, ranges.last):
        require(bool((np.diff(places)[is_same] >= 0).all()), "the ranges of a key are not in ascending order")
    rows_up_to_trigger = ranges.row - rows.heads[ranges.key] + 1
    require(bool((ranges.last <= rows_up_to_trigger).all()), "a range contains rows after the row that triggers it")


def any_split(case: Case) -> None:
    """The ranges and the last carry do not depend on how the rows are split into batches."""
    for cuts in case.cuts:
        parts, after = _run_in_batches(case.window, case.rows, np.unique(cuts))
        require(
            parts == _as_tuples(case.ranges, case.rows),
            f"rows that are split into batches at {cuts} return different ranges",
        )
        is_same = all(np.array_equal(a, b) for a, b in zip(after[:3], case.carry[:3], strict=True))
        require(is_same, f"rows that are split into batches at {cuts} return a different carry")


def agrees(case: Case) -> None:
    """The ranges of each key equal those of the oracle, if an oracle was passed."""
    if case.oracle is None:
        return
    expected: list[tuple[int, ...]] = []
    for key, (head, length) in enumerate(zip(case.rows.heads, case.rows.lengths, strict=True)):
        inputs = {read: column[head : head + length] for read, column in case.rows.inputs.items()}
        outputs = case.oracle(case.rows.times[head : head + length], inputs)
        expected += [(key, first, last, row) for first, last, row in outputs]
    require(
        _as_tuples(case.ranges, case.rows) == expected,
        "the ranges differ from those of the oracle, the independent implementation",
    )


LAWS: tuple[Callable[[Case], None], ...] = (in_order, any_split, agrees)


def check(window: OrderedWindow, oracle: Oracle | None = None, rounds: int = 20, seed: int = 0) -> None:
    """Check an ordered window against all laws, with random rows: few keys, keys without rows, many equal times, and
    times before 1970.

    Parameters
    ----------
    window : OrderedWindow
    oracle : callable, optional
        An independent implementation of the window: a function of the times of one key, and a dict with the array of
        each input. It returns a list with one tuple for each output: the first row, the row after the last one, and the
        row that triggers the output.
    rounds, seed : int
        The number of random sets of rows, and the seed of the random numbers.

    Raises
    ------
    LawBroken
        If the window breaks a law; the message names the law and the reason.
    """
    checked_type(window, OrderedWindow, "the window", ", such as windows.ordered.count(3)")  # type: ignore[type-abstract]
    rng = np.random.default_rng(checked_whole(seed, "seed"))
    for _ in range(checked_whole(rounds, "rounds")):
        rows = _random_rows(window, rng)
        n = len(rows.times)
        cuts = (np.arange(n + 1), rng.integers(0, n + 1, 3), np.array([], np.int64))
        case = Case(window, rows, *window.ranges(rows, window.start(len(rows.heads))), cuts, oracle)
        check_laws(str(window), LAWS, partial(replace, case))


def _random_rows(window: OrderedWindow, rng: np.random.Generator) -> Rows:
    """Return random rows of one to four keys, with random values of the inputs that the window needs."""
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


def _run_in_batches(
    window: OrderedWindow, rows: Rows, cuts: NDArray[np.int64]
) -> tuple[Sequence[tuple[int, ...]], Carry]:
    """Return the ranges of all batches as tuples, and the last carry, after the rows are passed to the window in
    batches, which are divided at the indices ``cuts``.
    """
    carry = window.start(len(rows.heads))
    intervals = []
    keys = rows.keys
    bounds = np.unique([0, *cuts, len(rows.times)])
    for low, high in pairwise(bounds.tolist()):
        lengths = np.bincount(keys[low:high], minlength=len(rows.heads))
        heads = np.cumsum(lengths) - lengths
        inputs = {read: column[low:high] for read, column in rows.inputs.items()}
        batch = Rows(heads, lengths, rows.times[low:high], inputs)
        ranges, after = window.ranges(batch, carry)
        starts = carry.open_starts[_indices(ranges.key, ranges.first, carry)]
        is_open_start = (starts == ranges.first) | (ranges.first >= carry.position[ranges.key])
        require(
            bool(is_open_start.all()),
            "a range begins before the batch, at a row that is not in open_starts of the carry",
        )
        intervals += _as_tuples(ranges, batch, carry.position)
        carry = after
    return intervals, carry


def _indices(key: NDArray[np.int64], first: NDArray[np.int64], carry: Carry) -> NDArray[np.int64]:
    """For each range, return an index into ``carry.open_starts``, which contains positions at which ranges of each key
    may begin. It is the index of the last position of the range's key that is not after the first row of the range. If
    the key has no such position, return the index of the first position of the key.
    """
    base = np.cumsum(carry.counts) - carry.counts
    indices = [
        base[k]
        + max(int(np.searchsorted(carry.open_starts[base[k] : base[k] + carry.counts[k]], f, side="right")) - 1, 0)
        for k, f in zip(key, first, strict=True)
    ]
    return np.minimum(np.array(indices, np.int64), len(carry.open_starts) - 1)


def _as_tuples(ranges: Ranges, rows: Rows, before: NDArray[np.int64] | None = None) -> list[tuple[int, ...]]:
    """Return one tuple per range: the key, the first row, the row after the last one, and the row that triggers the
    range. Rows are counted from the first row of the key in the first batch.
    """
    position = ranges.row - rows.heads[ranges.key] + (0 if before is None else before[ranges.key])
    return list(zip(*(c.tolist() for c in (ranges.key, ranges.first, ranges.last, position)), strict=True))
