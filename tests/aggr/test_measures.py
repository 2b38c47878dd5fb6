"""Measures, conditions, the registry of functions, and measures as text."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

import pyarrow as pa
import pytest

import aggr
import aggr.state
from aggr.arrow.bit_equality import same_bits
from aggr.fields import ADD
from aggr.groups.groups import Groups
from aggr.sql import columns_of, rows_where
from tiltframe.text.measures import measure_from, measures_from

TABLE = pa.table(
    {
        "status": pa.array([200, 503, None, 404]),
        "host": ["a", "b", None, "it's"],
        "ts": pa.array([0, 1, 2, 3]).cast(pa.timestamp("s", "UTC")),
        "day": pa.array([0, 1, 2, 3], pa.int32()).cast(pa.date32()),
        "two words": [1.5, 2.5, -3.5, None],
        "ok": [True, False, None, True],
    }
)


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("status >= 500", [1]),
        ("status <> 200", [1, 3]),
        ("NOT status = 200", [1, 3]),
        ("status IS NULL", [2]),
        ("status IS NOT NULL AND host IS NOT NULL", [0, 1, 3]),
        ("host = 'a' OR status = 404", [0, 3]),
        ("host IN ('a', 'b')", [0, 1]),
        ("host NOT IN ('a')", [1, 3]),
        ("host = 'it''s'", [3]),
        ("host LIKE '%''_'", [3]),
        ("status BETWEEN 200 AND 404", [0, 3]),
        ("ts >= '1970-01-01 00:00:02'", [2, 3]),
        ("day = '1970-01-02'", [1]),
        ("`two words` < 0", [2]),
        ("`two words` = -3.5", [2]),
        ("`two words` * 2 + 1 > 5", [1]),
        ("status / 2 = 100", [0]),
        ("ok", [0, 3]),
        ("NOT ok", [1]),
        ("ok = false", [1]),
        ("true", [0, 1, 2, 3]),
        ("null", []),
        ("status > 100 AND null", []),
        ("(status = 200 OR status = 503) AND host = 'b'", [1]),
    ],
)
def test_conditions(condition, rows):
    assert rows_where(condition, TABLE).nonzero()[0].tolist() == rows


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("status >=", "cannot read the condition"),
        ("nope = 1", "names the column 'nope', which does not exist"),
        ("host > 5", "cannot compute|cannot compare"),
        ("status + 1", "must be true or false"),
        ("soundex(host) = 'A'", "cannot use"),
        ("status IN (SELECT 1)", "cannot use"),
        ("", "cannot read the condition"),
    ],
)
def test_a_bad_condition_is_one_clear_error(condition, message):
    with pytest.raises(ValueError, match=message):
        rows_where(condition, TABLE)


def test_conditions_name_their_columns():
    assert columns_of("a > 1 AND `b c` = 'x' OR a IS NULL") == ("a", "b c")
    assert columns_of(None) == ()


def test_where_filters_one_measure():
    groups = Groups.of([0, 0, 1, 1], 2)
    measure = aggr.count(where="status >= 404")
    assert measure.function.finish(measure.reduce(TABLE, groups)).to_pylist() == [1, 1]
    last = aggr.last("host", by="ts", where="status < 500")
    assert last.function.finish(last.reduce(TABLE, groups)).to_pylist() == ["a", "it's"]


def test_an_error_names_the_measure():
    with pytest.raises(ValueError, match=r"hdr\('two words'\): hdr accepts only numbers of at least 0"):
        aggr.hdr("two words").reduce(TABLE, Groups.single(4))


def test_measures_without_a_column_or_a_bad_condition_fail_when_made():
    with pytest.raises(ValueError, match="sum needs a column"):
        aggr.Measure(aggr.Sum(), None)
    with pytest.raises(ValueError, match="cannot read the condition"):
        aggr.sum("x", where="a >")


MEASURES = [
    aggr.count(),
    aggr.count("x", where="y > 1"),
    aggr.min("x"),
    aggr.max("x"),
    aggr.sum("x"),
    aggr.avg("x"),
    aggr.var("x", ddof=0),
    aggr.stdev("x"),
    aggr.dds("x", [0.1], relative_accuracy=0.05, max_bins=100),
    aggr.hdr("x", [0.1], digits=2, unit=0.5, where="y = 'a'"),
    aggr.first("x", by="t"),
    aggr.last("x"),
]


@pytest.mark.parametrize("measure", MEASURES, ids=repr)
def test_repr_reads_back_and_so_does_the_description(measure):
    assert measure_from(repr(measure)) == measure
    assert aggr.from_description(measure.describe()) == measure


@pytest.mark.parametrize(
    ("text", "measure"),
    [
        ("count()", aggr.count()),
        ("sum(bytes)", aggr.sum("bytes")),
        (" sum( 'two words' ) ", aggr.sum("two words")),
        ("dds(latency_ms, quantiles=[0.5, 0.99])", aggr.dds("latency_ms", [0.5, 0.99])),
        ("hdr(x, [0.5], 2)", aggr.hdr("x", [0.5], 2)),
        ('count(where="status >= 500")', aggr.count(where="status >= 500")),
        ("first(x, by=t)", aggr.first("x", by="t")),
        ("sum(column=x)", aggr.sum("x")),
    ],
)
def test_calls(text, measure):
    assert measure_from(text) == measure


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("count", "write a call"),
        ("count(", "write a call"),
        ("1 + 1", "write a call"),
        ("os.system('x')", "write a call"),
        ("sum(__import__('os'))", "cannot read"),
        ("sum()", "missing a required argument: 'column'; sum takes column, dtype, where="),
        ("sum(x, y)", "dtype must be .* got 'y'"),
        ("dds(x, acuracy=1)", "no parameter 'acuracy'; dds takes column, quantiles"),
        ("dds(x, **y)", r"quantiles must be a list of numbers .* got '\*\*y'"),
        ("hdr(x, digits=9)", "digits must be"),
        ("dds(x, quantiles=[1.5])", "from 0 to 1; got 1.5"),
    ],
)
def test_a_bad_call_is_one_clear_error(text, message):
    with pytest.raises(ValueError, match=message):
        measure_from(text)


def test_an_unknown_function_gets_a_suggestion():
    with pytest.raises(KeyError, match="did you mean 'stdev'"):
        measure_from("stdeb(x)")
    with pytest.raises(KeyError, match="there are any_value, approx_count_distinct, arg_max, arg_min, avg, avg_dist"):
        aggr.get("zzz")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["a=count()", "a=sum(x)"], "is used twice"), (["count()"], "NAME=CALL"), (["a b=count()"], "NAME=CALL")],
)
def test_bad_named_measures(arguments, message):
    with pytest.raises(ValueError, match=message):
        measures_from(arguments)


def test_names_are_taken_once():
    @dataclass(frozen=True)
    class Duplicate(aggr.Count):
        name = "count"

    with pytest.raises(ValueError, match=r"'count' is already used by aggr\.functions\.count\.Count"):
        aggr.register(Duplicate)
    Duplicate.name = "not a word"
    with pytest.raises(ValueError, match="must be a word"):
        aggr.register(Duplicate)


def test_a_registered_function_is_found_everywhere():
    @dataclass(frozen=True)
    class Rows(aggr.Count):
        name = "rows"

    aggr.register(Rows)
    try:
        assert aggr.register(Rows) is Rows  # twice the same is no mistake
        assert "rows" in aggr.names()
        assert measure_from("rows(x, where='x > 1')") == aggr.Measure(Rows(), "x", "x > 1")
    finally:
        aggr.unregister("rows")
    assert "rows" not in aggr.names()


def test_groups_are_checked():
    with pytest.raises(ValueError, match="below the number of groups, 2; got ids from 0 to 5"):
        Groups.of([0, 5], 2)
    with pytest.raises(ValueError, match="got 2 values and 1 group ids"):
        aggr.Count().reduce(pa.array([1, 2]), Groups.single(1))


def test_states_of_a_newer_version_are_refused():
    states = aggr.Count().reduce(pa.array([1]), Groups.single(1))
    fields = [pa.array(["count"]), pa.array([9], pa.int8()), states.field("count")]
    newer = pa.StructArray.from_arrays(fields, names=["function", "version", "count"])
    with pytest.raises(ValueError, match=r"version 9.*upgrade"):
        aggr.Count().finish(newer)
    with pytest.raises(ValueError, match="not states of count"):
        aggr.Count().merge(pa.array([1]), Groups.single(1))


def test_dates_and_times_come_back_as_they_went():
    values = pa.array([dt.date(2024, 1, 2), None, dt.date(1969, 1, 1)])
    function = aggr.Min()
    assert function.finish(function.reduce(values, Groups.single(3))).to_pylist() == [dt.date(1969, 1, 1)]


def test_counts_are_exact_beyond_doubles_and_never_wrap():
    groups = Groups.of([0, 0, 1], 2)
    assert ADD.merge(pa.array([2**60 + 1, 2, 2**62]), groups).to_pylist() == [2**60 + 3, 2**62]
    with pytest.raises(OverflowError, match="exceeds int64"):
        ADD.merge(pa.array([2**62, 2**62, 0]), groups)


def test_more_rows_than_are_reduced_at_once(monkeypatch):
    values, groups = pa.array([1.5, None, 1e300, 3.0, -1e300, 7.0, 0.1]), Groups.of([0, 1, 0, 1, 0, 2, 0], 3)
    for function in (aggr.Count(), aggr.Max(), aggr.Stdev(), aggr.Dds()):
        monkeypatch.setattr(aggr.state, "_MAX_ROWS", 1 << 28)
        unsplit = function.reduce(values, groups)
        monkeypatch.setattr(aggr.state, "_MAX_ROWS", 2)
        assert same_bits(function.reduce(values, groups), unsplit)
