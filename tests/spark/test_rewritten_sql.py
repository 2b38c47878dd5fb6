"""su.sql and Spark: random queries of a table have the same answers from a store, or are rejected by name."""

from __future__ import annotations

import datetime as dt
import os
import random
import re
from decimal import Decimal

import pytest

import aggr
from tiltframe import FrameStore, TiltFrame

pytestmark = [pytest.mark.spark, pytest.mark.slow]
SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))
CASES = int(os.environ.get("TRIALS", "30"))
BEGIN = dt.datetime(2024, 4, 30, 20, tzinfo=dt.UTC)
COLUMNS = {
    "i": "BIGINT",
    "small": "SMALLINT",
    "x": "DOUBLE",
    "price": "DECIMAL(12, 2)",
    "word": "STRING",
    "day": "DATE",
}
FRAME = TiltFrame(
    ["10m", "1h", "1d"],
    "ts",
    {"n": aggr.count()}
    | {f"n_{name}": aggr.count(name) for name in ("i", "x", "word")}
    | {f"sum_{name}": aggr.sum(name) for name in ("i", "small", "x", "price")}
    | {f"{call}_{name}": getattr(aggr, call)(name) for name in COLUMNS for call in ("min", "max")},
    ["host", "shelf"],
)


@pytest.fixture(scope="module")
def store(spark, tmp_path_factory):
    """A table of rows in Spark, and a store of the same."""
    draws = random.Random(3)
    rows = [
        (
            BEGIN + dt.timedelta(seconds=draws.randrange(40 * 3600)),
            draws.choice(["a", "b", "it's", None]),
            draws.choice([1, 2, None]),
            draws.choice([None, draws.randrange(-(2**40), 2**40)]),
            draws.randrange(-300, 300),
            draws.choice([None, float("nan"), float("-inf"), draws.uniform(-5, 5)]),
            draws.choice([None, Decimal(draws.randrange(-(10**9), 10**9)) / 100]),
            draws.choice(["", "é", "z", None, "Z"]),
            dt.date(2024, 1, draws.randrange(1, 30)),
        )
        for _ in range(800)
    ]
    schema = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    table = spark.createDataFrame(rows, f"ts TIMESTAMP, host STRING, shelf INT, {schema}").coalesce(2).cache()
    table.createOrReplaceTempView("requests")
    new_store = FrameStore(tmp_path_factory.mktemp("store") / "s", FRAME)
    new_store.append_rows(table.toArrow(), "w", 1)
    yield new_store
    spark.conf.set("spark.sql.session.timeZone", zone)


WINDOWS = [
    "window(ts, '1 hour')",
    "date_trunc('hour', ts)",
    "date_trunc('DAY', ts)",
    "window(ts, '20 minutes')",
    "date_trunc('week', ts)",
]
AGGREGATES = [
    "count(*)",
    "count(1)",
    "count(i)",
    "sum(i)",
    "sum(price)",
    "sum(small)",
    "min(x)",
    "max(word)",
    "max(day)",
    "min(small)",
    "max(price)",
]
ODD = [
    "avg(x)",
    "sum(x)",
    "count(DISTINCT i)",
    "approx_count_distinct(i)",
    "sum(i + 1)",
    "percentile(x, 0.5)",
    "count(*) FILTER (WHERE i > 1)",
    "max(host)",
    "first(i)",
    "sum(count(*)) OVER ()",
    "round(sum(i))",
    "count(shelf)",
]
KEY_CONDITIONS = [
    "host = 'a'",
    "host IN ('a', 'b')",
    "shelf > 1",
    "shelf IS NULL",
    "NOT host = 'a' OR shelf = 2",
    "shelf BETWEEN 1 AND 1",
    "requests.host <> 'b'",
]
TIMES = ["ts >= '2024-05-01'", "ts < TIMESTAMP '2024-05-02 00:00:00'", "ts >= DATE '2024-05-01'"]
ODD_CONDITIONS = [
    "i > 0",
    "ts > '2024-05-01'",
    "ts >= '2024-05-01 00:07:00'",
    "upper(host) = 'A'",
    "hour(ts) = 3",
    "host = word",
]


def drawn(draws):
    """Draw a query; most of the time one that is rewritten."""
    odd = draws.random() < 0.3
    groups = draws.sample(["host", "shelf"], draws.randrange(3)) + draws.sample(
        WINDOWS[: 5 if odd else 4], draws.randrange(2)
    )
    aggregates = draws.sample(AGGREGATES, draws.randrange(1, 4)) + (
        [draws.choice(ODD)] if odd and draws.random() < 0.5 else []
    )
    chosen = [*draws.sample(groups, draws.randrange(len(groups) + 1)), *aggregates]
    if draws.random() < 0.3:
        chosen.append(f"{aggregates[0]} {draws.choice(['=', '<>'])} {aggregates[0]}")
    if draws.random() < 0.3:
        chosen.append("sum(i) / count(i)")
    if any(group.startswith("window") for group in groups) and draws.random() < 0.5:
        chosen.append("window.start")
    conditions = draws.sample(KEY_CONDITIONS, draws.randrange(3)) + draws.sample(TIMES[:2], draws.randrange(3))
    if odd and draws.random() < 0.4:
        conditions.append(draws.choice(ODD_CONDITIONS))
    named = [f"{expression} AS c{at}" if draws.random() < 0.3 else expression for at, expression in enumerate(chosen)]
    text = f"SELECT {', '.join(named)} FROM requests"
    text += (
        f" WHERE {' AND '.join(f'({condition})' if ' OR ' in condition else condition for condition in conditions)}"
        if conditions
        else ""
    )
    if groups:
        text += f" GROUP BY {', '.join(groups)}"
        if draws.random() < 0.3:
            text += f" HAVING {draws.choice(['count(*) > 3', 'sum(i) > 0 AND max(price) IS NOT NULL'])}"
        if draws.random() < 0.3:
            text += " ORDER BY 1 DESC"
    return text


def answer(frame):
    return sorted(repr(tuple(row)) for row in frame.collect())


@pytest.mark.long
def test_random_queries_are_answered_alike_or_refused(spark, store):
    import spark_udaf as su

    draws, answered, refused = random.Random(SEED), 0, []
    for _ in range(CASES):
        query = drawn(draws)
        try:
            rewritten = su.sql(query, store)
        except ValueError as error:
            refused.append((query, str(error)))
            continue
        spoken = spark.sql(query)
        assert rewritten.dtypes == spoken.dtypes, (SEED, query)
        assert answer(rewritten) == answer(spoken), (SEED, query)
        answered += 1
    print(f"\nseed {SEED}: {answered} of {CASES} answered", *refused, sep="\n")
    assert all(len(message) <= 300 for _, message in refused)
    assert answered > CASES // 3


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("SELECT avg(x) FROM requests", "AVG(x)"),
        ("SELECT sum(x) FROM requests", "SUM(x) adds doubles"),
        ("SELECT count(DISTINCT i) FROM requests", "COUNT(DISTINCT i)"),
        ("SELECT word, count(*) FROM requests GROUP BY word", "the group word"),
        ("SELECT count(*) FROM requests GROUP BY date_trunc('quarter', ts)", "the group"),
        ("SELECT count(*) FROM requests GROUP BY window(ts, '1 hour', '10 minutes')", "the group"),
        ("SELECT count(*) FROM requests GROUP BY window(ts, '7 minutes')", "7m does not consist of whole windows"),
        ("SELECT count(*) FROM requests WHERE i > 0", "the condition i > 0"),
        ("SELECT count(*) FROM requests WHERE shelf = '1'", "a key with a value of another type"),
        ("SELECT count(*) FROM requests WHERE host IN ('a', 1)", "a key with a value of another type"),
        ("SELECT count(*) FROM requests WHERE shelf < 1.5", "a key with a value of another type"),
        ("SELECT count(*) FROM requests WHERE shelf < 9223372036854775808", "a key with a value of another type"),
        ("SELECT count(*) FROM requests WHERE ts > '2024-05-01'", "the condition ts > '2024-05-01'"),
        (
            "SELECT count(*) FROM requests WHERE ts >= '2024-05-01 00:05:00'",
            "does not coincide with the start of a window of 10m",
        ),
        ("SELECT count(*) FROM requests WHERE ts < '2024-05-01 01:00:00' GROUP BY date_trunc('day', ts)", "of 1d"),
        ("SELECT count(*) FROM requests GROUP BY CUBE(host, shelf)", "CUBE"),
        ("SELECT DISTINCT count(*) FROM requests GROUP BY host", "distinct"),
        ("SELECT count(*) FROM requests UNION ALL SELECT 1", "not a single SELECT"),
        ("SELECT count(*) FROM (SELECT * FROM requests)", "a query inside the query"),
        ("SELECT count(*) FROM requests a JOIN requests b ON a.host = b.host", "joins"),
        ("SELECT upper(host), count(*) FROM requests GROUP BY host", "UPPER(host)"),
        ("SELECT host AS word, count(*) FROM requests GROUP BY host", "the alias word"),
        ("SELECT min(shelf) FROM requests", "MIN(shelf) is not a measure of the store"),
        ("SELECT count(*) FROM requests HAVING count(*) > 1", "HAVING COUNT(*) > 1 cannot be answered"),
        ("SELECT count(*) AS n FROM requests HAVING n > 1", "HAVING n > 1 cannot be answered from a store without"),
        ("SELECT host, sum(i) OVER (PARTITION BY host) FROM requests", "host is neither in GROUP BY"),
    ],
)
def test_what_is_refused_is_named(store, query, named):
    import spark_udaf as su

    with pytest.raises(ValueError, match=re.escape(named)) as refused:
        su.sql(query, store)
    assert len(str(refused.value)) <= 300


@pytest.mark.long
def test_what_stands_for_itself(spark, store, tmp_path):
    import spark_udaf as su

    for query in (
        "SELECT date_trunc('hour', ts) AS h, host, count(*) AS n FROM requests GROUP BY 1, host HAVING n > 5",
        "SELECT window.end, count(*) FROM requests r WHERE r.host = 'a' GROUP BY window(ts, '1 hour') ORDER BY 1",
        "SELECT Host, Max(I) - min(i) FROM requests GROUP BY HOST",
        "SELECT count(*), sum(i), max(word) FROM requests WHERE host = 'nobody'",
        "SELECT host FROM requests GROUP BY host",
        "SELECT count(*) FROM requests",
    ):
        assert su.sql(query, store).dtypes == spark.sql(query).dtypes
        assert answer(su.sql(query, store)) == answer(spark.sql(query)), query
    berlin = TiltFrame(["1h"], "ts", {"n": aggr.count()}, ["host"], "Europe/Berlin")
    other = FrameStore(tmp_path / "berlin", berlin)
    other.append_rows(spark.table("requests").toArrow(), "w", 1)
    with pytest.raises(ValueError, match="agree only in UTC"):
        su.sql("SELECT count(*) FROM requests", other)
    short = FrameStore(tmp_path / "short", FRAME, retention={"10m": "1h"})
    short.append_rows(spark.table("requests").toArrow(), "w", 1)
    short.expire(now="2024-05-10")
    with pytest.raises(ValueError, match="the range is not completely in the store"):
        su.sql("SELECT count(*) FROM requests GROUP BY window(ts, '10 minutes')", short)
