"""Ordered windows: the public laws, a naive evaluator for each kind, their text, and rejected arguments."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from windows import ordered
from windows.ordered import Condition, Rows, Weight
from windows.ordered.contract import EVERY_ROW, Ranges
from windows.ordered.kinds.count import Count
from windows.ordered.testing import LawBroken, check

SECOND = 1_000_000


def naive_count(n):
    return lambda times, inputs: [(i - n + 1, i + 1, i) for i in range(len(times)) if (i + 1) % n == 0]


def naive_weight(n):
    def outputs(times, inputs):
        outputs_so_far, opened, total = [], 0, 0
        for i, weight in enumerate(inputs[Weight("w")]):
            total += int(weight)
            if total >= n:
                outputs_so_far.append((opened, i + 1, i))
                opened, total = i + 1, total - n
        return outputs_so_far

    return outputs


def naive_interval(length):
    def outputs(times, inputs):
        outputs_so_far, opened = [], 0
        for i, time in enumerate(times):
            if time - times[opened] >= length:
                outputs_so_far.append((opened, i, i))
                opened = i
        return outputs_so_far

    return outputs


def naive_emit_when(include):
    def outputs(times, inputs):
        outputs_so_far, opened = [], 0
        for i, true in enumerate(inputs[Condition("c")]):
            if true and i + include > opened:
                outputs_so_far.append((opened, i + include, i))
                opened = i + include
        return outputs_so_far

    return outputs


def naive_session(gap, longest=None, start=None, end=None, bounds="[]"):
    def outputs(times, inputs):
        outputs_so_far, opened, i = [], None, 0
        while i < len(times):
            if opened is not None:
                late = times[i] - times[i - 1] > gap or (longest is not None and times[i] - times[opened] >= longest)
                over = end is not None and inputs[Condition(end)][i] and not late
                if late or over:
                    skip = start is not None and bounds[0] == "("
                    last = i + (over and bounds[1] == "]")
                    if last > opened + skip:
                        outputs_so_far.append((opened + skip, last, i))
                    opened = None
                    if over and bounds[1] == "]":
                        i += 1
                        continue
            if opened is None and (start is None or inputs[Condition(start)][i]):
                opened = i
            i += 1
        return outputs_so_far

    return outputs


def naive_sliding(n, *reads):
    def outputs(times, inputs):
        outputs_so_far, begins = [], [0]
        for i in range(len(times)):
            outputs_so_far.append((begins[max(len(begins) - n, 0)], i + 1, i))
            if any(inputs[read][i] for read in reads):
                begins.append(i + 1)
        return outputs_so_far

    return outputs


HOURLY = ordered.hourly()
CASES = [
    *((ordered.count(n), naive_count(n)) for n in (1, 2, 3, 7)),
    *((ordered.weighted_count(n, "w"), naive_weight(n)) for n in (1, 3, 10, 30)),
    *((ordered.interval(f"{n}s"), naive_interval(n * SECOND)) for n in (1, 10, 60)),
    *((ordered.emit_when("c", include), naive_emit_when(include)) for include in (True, False)),
    *((ordered.session(f"{n}s"), naive_session(n * SECOND)) for n in (1, 10, 25)),
    (ordered.session("10s", max="15s"), naive_session(10 * SECOND, 15 * SECOND)),
    *(
        (
            ordered.session("20s", longest, start, end, bounds),
            naive_session(20 * SECOND, 40 * SECOND if longest else None, start, end, bounds),
        )
        for longest in (None, "40s")
        for start in (None, "a")
        for end in (None, "b", "a")
        for bounds in ("[]", "[)", "(]", "()")
    ),
    (ordered.running(), naive_sliding(1)),
    (ordered.since("c"), naive_sliding(1, Condition("c"))),
    (ordered.since(HOURLY), naive_sliding(1, HOURLY)),
    (ordered.since("c", HOURLY), naive_sliding(1, Condition("c"), HOURLY)),
    *((ordered.sliding(n, "c"), naive_sliding(n, Condition("c"))) for n in (1, 2, 5)),
    (ordered.sliding(3, HOURLY), naive_sliding(3, HOURLY)),
    (ordered.sliding(4), naive_sliding(4, EVERY_ROW)),
]


@pytest.mark.parametrize(("window", "naive"), CASES, ids=[str(window) for window, _ in CASES])
def test_the_laws_and_a_naive_evaluator(window, naive):
    check(window, naive)
    assert ordered.read_ordered(str(window)) == window


class Forgetful(Count):
    """A count that begins again with every batch."""

    def ranges(self, rows, carry):
        return super().ranges(rows, carry._replace(position=carry.position * 0))


class Late(Count):
    """A count whose ranges reach beyond the row that closes them."""

    def ranges(self, rows, carry):
        ranges, after = super().ranges(rows, carry)
        return Ranges(ranges.key, ranges.first + 1, ranges.last + 1, ranges.row), after


class Unopened(Count):
    """A count that says of no key where its open range begins."""

    def ranges(self, rows, carry):
        ranges, after = super().ranges(rows, carry)
        return ranges, after._replace(open_starts=after.position)


@pytest.mark.parametrize(
    ("window", "law"), [(Forgetful(3), "any_split"), (Late(3), "in_order"), (Unopened(3), "any_split")]
)
def test_broken_windows_break_the_laws(window, law):
    with pytest.raises(LawBroken, match=rf"count\(3\) breaks the law '{law}'"):
        check(window)


def test_an_oracle_that_disagrees_is_heard():
    with pytest.raises(LawBroken, match="'agrees'"):
        check(ordered.count(3), naive_count(4))


@pytest.mark.long
@pytest.mark.slow
def test_laws_hold_without_asserts():
    code = (
        "from windows.ordered.testing import check; from tests.windows.test_ordered_windows import Late; check(Late(3))"
    )
    done = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True, check=False)
    assert "LawBroken: count(3) breaks the law 'in_order'" in done.stderr


def test_no_rows_at_all():
    none = np.zeros(0, np.int64)
    for window, _ in CASES:
        inputs = {read: none if isinstance(read, Weight) else none.astype(bool) for read in window.reads}
        ranges, carry = window.ranges(Rows(none, none, none, inputs), window.start(0))
        assert len(ranges.key) == len(carry.open_starts) == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ordered.count(0), "from 1 to .*; got 0"),
        (lambda: ordered.count(2.0), "got 2.0"),
        (lambda: ordered.count(True), "got True"),
        (lambda: ordered.weighted_count(0, "w"), "from 1 to .*; got 0"),
        (lambda: ordered.weighted_count(3, ""), "name of a column"),
        (lambda: ordered.interval("0s"), "at least one microsecond"),
        (lambda: ordered.interval("-3s"), "cannot read the length"),
        (lambda: ordered.interval("1mo"), "no fixed length"),
        (lambda: ordered.session("-30m"), "cannot read the gap"),
        (lambda: ordered.session("30m", max="0s"), "at least one microsecond"),
        (lambda: ordered.session("30m", bounds="[["), r"one of \[\], \[\)"),
        (lambda: ordered.session("30m", start=""), "condition must be text in SQL"),
        (lambda: ordered.emit_when(""), "condition must be text in SQL"),
        (lambda: ordered.emit_when("a", include="yes"), "True or False"),
        (lambda: ordered.since(), "needs a condition or a tick"),
        (lambda: ordered.since("a", "b"), "one condition and one tick"),
        (lambda: ordered.since(5), "condition must be text in SQL"),
        (lambda: ordered.sliding(0), "from 1 to .*; got 0"),
        (lambda: ordered.sliding("a"), "from 1 to .*; got 'a'"),
        (lambda: ordered.daily(), "needs the time zone"),
        (lambda: ordered.monthly(), "needs the time zone"),
        (lambda: ordered.yearly(), "needs the time zone"),
        (lambda: ordered.daily("Europe/Pariss"), "did you mean 'Europe/Paris'"),
        (lambda: ordered.read_ordered("tumbling('1h')"), "cannot read"),
        (lambda: ordered.read_ordered("count(0)"), "from 1 to .*; got 0"),
        (lambda: ordered.read_ordered("count(1, 2, 3)"), "cannot read"),
        (lambda: ordered.read_ordered("count(__import__('os'))"), "cannot read"),
        (lambda: ordered.read_ordered("count("), "cannot read"),
        (lambda: ordered.read_tick("fortnightly()"), "cannot read"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_ticks_follow_the_clock():
    day = np.datetime64("2024-03-30", "us").astype(np.int64)
    instants = ordered.daily("Europe/Paris").instants(int(day), int(day) + 3 * 86_400 * SECOND)
    expected = np.array(["2024-03-30T23:00", "2024-03-31T22:00", "2024-04-01T22:00"], "datetime64[us]")
    assert instants.astype("datetime64[us]").tolist() == expected.tolist()
    years = ordered.yearly("UTC").instants(-(10**15), 0)
    assert years[-2:].astype("datetime64[us]").tolist() == np.array(["1969", "1970"], "datetime64[us]").tolist()


def test_a_long_chain_of_cuts_takes_no_longer_than_its_rows():
    times = np.arange(300_000) * SECOND
    rows = Rows(np.array([0]), np.array([len(times)]), times, {})
    ranges, _ = ordered.interval("2s").ranges(rows, ordered.interval("2s").start(1))
    assert len(ranges.row) == 149_999
