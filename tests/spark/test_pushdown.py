"""Push-down: what Spark is going to filter leaves less to read, and changes nothing of the answer."""

# ruff: noqa: F811
from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

import spark_udaf as su
from aggr.predicate import rows_where
from spark_udaf.store.options import from_options, to_options
from spark_udaf.store.pushdown import condition
from spark_udaf.store.source import PushingReader
from tests.spark.test_spark_store import answered, local, rows, same  # noqa: F401

START = ("window_start",)


def at(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


def pushing(store, per, rows_per_task=100, **asked) -> PushingReader:
    options = to_options(store.uri, None, None, None, per=per, rows_per_task=rows_per_task, pushdown=True, **asked)
    return PushingReader(from_options(options), from_options(options).schema)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("filters", "low", "high"),
    [
        ([EqualTo(START, at("2013-11-03T05:00"))], "2013-11-03T05:00", "2013-11-03T05:00"),
        ([In(START, (at("2013-11-03T05:00"), at("2013-11-03T07:00"), None))], "2013-11-03T05:00", "2013-11-03T07:00"),
        ([GreaterThan(START, at("2013-11-04T00:00"))], "2013-11-04T00:01", None),
        ([GreaterThanOrEqual(START, at("2013-11-04T00:00"))], "2013-11-04T00:00", None),
        ([LessThan(START, at("2013-11-03T00:00"))], None, "2013-11-02T23:59"),
        ([LessThanOrEqual(START, at("2013-11-03T00:00"))], None, "2013-11-03T00:00"),
        ([Not(EqualTo(START, at("2013-11-03T05:00"))), IsNotNull(START)], None, None),
    ],
)
def test_bounds_on_windows_narrow_what_is_read(filters, low, high, local):
    given = pushing(local, "1m")
    assert given.pushFilters(filters) is filters  # Spark evaluates them too
    starts = local.query("1m").column("window_start")
    keep = pc.and_(pc.greater_equal(starts, at(low or "1970-01-01")), pc.less_equal(starts, at(high or "2100-01-01")))
    assert same(answered(given), local.query("1m").filter(keep))
    whole = pushing(local, "all")
    whole.pushFilters(filters)
    assert same(answered(whole), local.query("all"))  # it has but one window
    filled = pushing(local, "1h", fill=True)
    filled.pushFilters([*filters, EqualTo(("host",), "a")])
    assert same(answered(filled), local.query("1h", fill=True))


@pytest.mark.parametrize(
    ("filters", "where"),
    [
        ([EqualTo(("host",), "a"), GreaterThan(("shelf",), 0)], "host = 'a' AND shelf > 0"),
        ([IsNull(("host",))], "host IS NULL"),
        ([EqualNullSafe(("host",), None)], "host IS NULL"),
        ([IsNotNull(("host",)), Not(In(("shelf",), (0, 2)))], "host IS NOT NULL AND shelf = 1"),
        ([In(("host",), ("a", None, "c"))], "host = 'a' OR host = 'c'"),
        ([Not(EqualTo(("host",), "b"))], "host <> 'b'"),
        ([LessThan(("host",), "b")], "host < 'b'"),
        ([EqualTo(("rows",), 1), EqualTo(("level",), "1h"), EqualTo(("host",), 1)], None),
        ([Not(In(("host",), ("a", None))), Not(EqualNullSafe(("host",), "a"))], None),
        ([In(("shelf",), tuple(range(-150, 150)))], None),
    ],
)
def test_filters_on_keys_become_conditions(filters, where, local):
    given = pushing(local, "1h", where="shelf >= 0")
    given.pushFilters(filters)
    assert same(answered(given), local.query("1h", where=where))
    assert (given.query.plan.where == "shelf >= 0") == (where is None)


def test_values_stay_data():
    texts = ["", "it's", "\\", "\\'", "a\\%b", '"', "`", "\n", "--", "/*", "x' OR 'a' = 'a", "\x00", "ä", "' --"]
    names = ["host", "a b", "a`b", "a.b", "ORDER"]
    for name in names:
        table = pa.table({name: [*texts, None]})
        for i, text in enumerate(texts):
            found = rows_where(condition(EqualTo((name,), text), {name: pa.string()}), table)
            assert np.flatnonzero(found).tolist() == [i]
    days = pa.table({"day": pa.array([dt.date(2024, 5, 1), None])})
    assert rows_where(condition(EqualTo(("day",), dt.date(2024, 5, 1)), {"day": pa.date32()}), days).tolist()[0]
    numbers = pa.table({"n": [-(2**63), 2**63 - 1, -1]})
    for i, n in enumerate(numbers.column("n").to_pylist()):
        assert np.flatnonzero(rows_where(condition(EqualTo(("n",), n), {"n": pa.int64()}), numbers)).tolist() == [i]


@pytest.mark.spark
def test_filters_reach_the_store_through_spark(spark, local):
    read = su.read(spark, local.uri, per="1h", rows_per_task=50, pushdown=True)
    asked = "host = 'a' AND shelf > 0 AND window_start >= timestamp'2013-11-03 00:00:00Z'"
    found = read.where(asked)
    wanted = local.query("1h", where="host = 'a' AND shelf > 0", within=("2013-11-03T00:00Z", "2030-01-01"))
    assert found.count() == wanted.num_rows > 0
    options = f"path '{local.uri}', per '1h', pushdown 'true'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW pushed USING tiltframe OPTIONS ({options})")
    assert spark.sql(f"SELECT count(*) FROM pushed WHERE {asked}").first()[0] == wanted.num_rows
