"""Ticks over a given range: the last period of a batch has a result, and every key has ticks in the complete range."""

from __future__ import annotations

import datetime as dt
import random

import pyarrow as pa
import pytest

import aggr
from tiltframe import RunningAggregation, running
from windows import ordered

YEARS = ordered.yearly("UTC")


def rows_of(*rows):
    times = [dt.datetime(*date, tzinfo=dt.UTC) for _, date, _ in rows]
    return pa.table({"k": [key for key, *_ in rows], "ts": times, "n": [n for *_, n in rows]})


def by_tick(table, measure="n"):
    return [(row["k"], row["ts"].year, row[measure]) for row in table.to_pylist()]


def test_yearly_sums_of_kaskadas_example():
    # the example of Kaskada's documents: 7 in 2012, 13 in 2018, and 4 in 2019
    rows = rows_of(
        ("a", (2012, 3, 1), 5), ("a", (2012, 9, 1), 2), ("a", (2018, 5, 5), 13), ("a", (2019, 2, 2), 4)
    )  # fmt: skip
    options = {"window": ordered.since(YEARS), "time": "ts", "keys": ["k"], "emit": "ticks"}
    sums = running(rows, {"n": aggr.sum("n")}, until="next", fill="zero", **options)
    assert [(year, n) for _, year, n in by_tick(sums)] == list(
        zip(range(2013, 2021), [7, 0, 0, 0, 0, 0, 13, 4], strict=True)
    )
    without_fill = running(rows, {"n": aggr.sum("n")}, until="2020-01-01", **options)
    assert [n for *_, n in by_tick(without_fill)] == [7, None, None, None, None, None, 13, 4]
    assert len(running(rows, {"n": aggr.sum("n")}, **options)) == 7


def test_all_keys_have_ticks_for_the_range_of_the_data():
    # Kaskada: ticks of several entities begin and end with the data of all
    rows = rows_of(("a", (2012, 3, 1), 1), ("a", (2012, 4, 1), 1), ("a", (2014, 2, 1), 1), ("b", (2013, 2, 1), 1))
    counts = running(
        rows,
        {"n": aggr.count()},
        ordered.since(YEARS),
        time="ts",
        keys=["k"],
        emit="ticks",
        until="next",
        fill="zero",
    )
    assert by_tick(counts) == [
        ("a", 2013, 2), ("a", 2014, 0), ("a", 2015, 1), ("b", 2013, 0), ("b", 2014, 1), ("b", 2015, 0),
    ]  # fmt: skip


def naive(rows, instants):
    """Sum the rows of each key between two ticks, for all ticks from the first row on."""
    first = min(row["ts"] for row in rows)
    ticks = [at for at in instants if at >= first]
    last = next(at for at in ticks if at >= max(row["ts"] for row in rows))
    expected = []
    for key in sorted({row["k"] for row in rows}):
        before = None
        for at in (at for at in ticks if at <= last):
            in_period = [row for row in rows if row["ts"] <= at and (before is None or row["ts"] > before)]
            own = [row["n"] for row in in_period if row["k"] == key]
            expected.append((key, at, sum(own)))
            before = at
    return expected


@pytest.mark.parametrize("seed", range(30))
def test_random_rows_in_any_batches(seed):
    draws = random.Random(seed)
    start = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    instants = [start + dt.timedelta(days=day) for day in range(60)]
    times = sorted(start + dt.timedelta(hours=draws.randrange(1, 40 * 24)) for _ in range(draws.randrange(1, 30)))
    rows = [{"k": draws.choice("abc"), "ts": at, "n": draws.randrange(9)} for at in times]
    options = {"time": "ts", "keys": ["k"], "emit": "ticks", "until": "next", "fill": "zero"}
    measures, window = {"n": aggr.sum("n")}, ordered.since(ordered.daily("UTC"))
    table = pa.Table.from_pylist(rows)
    whole = running(table, measures, window, **options)
    assert [(row["k"], row["ts"], row["n"]) for row in whole.to_pylist()] == naive(rows, instants)
    cut = draws.randrange(len(rows) + 1)
    aggregation = RunningAggregation(measures, window, **options)
    parts = [aggregation.add(table.slice(0, cut)), aggregation.finish(table.slice(cut))]
    in_parts = pa.concat_tables(parts).sort_by([("k", "ascending"), ("ts", "ascending")])
    assert in_parts.equals(whole)


def test_a_row_before_the_range_is_refused():
    aggregation = RunningAggregation(
        {"n": aggr.count()}, ordered.since(YEARS), time="ts", keys=["k"], emit="ticks", fill="zero"
    )
    aggregation.add(rows_of(("a", (2014, 3, 1), 1)))
    with pytest.raises(ValueError, match=r"but a later batch has a row at .*; sort all rows by time"):
        aggregation.add(rows_of(("b", (2012, 3, 1), 1)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"until": "later"}, "until must be 'next', or the time of the last tick: .*later"),
        ({"fill": "null"}, "fill must be None or 'zero'; got 'null'"),
        ({"fill": "zero", "window": "running()"}, "fill applies only to results at ticks; pass ticks=hourly()"),
        ({"until": "next", "window": "sliding(3)"}, "until applies only to results at ticks"),
    ],
)
def test_mistakes(options, message):
    with pytest.raises(ValueError, match=message):
        RunningAggregation({"n": aggr.count()}, **({"window": ordered.since(YEARS)} | options), time="ts")
