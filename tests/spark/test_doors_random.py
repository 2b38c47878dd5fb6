"""Random DataFrames in agg(), su.sql, su.group_by, su.aggregate and totals give the results of Spark's aggregates."""

from __future__ import annotations

import datetime as dt
import os
import random
from decimal import Decimal

import pytest

import aggr

pytestmark = [pytest.mark.spark, pytest.mark.long]

SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))
TRIALS = int(os.environ.get("TRIALS", "4"))
NAMES = ["x", "A b", "key 0", "shard", "a.b", "nothing", "rows", "x`y", "level 2", "ü"]
VALUES = {  # Spark type -> values, and the suffix of its functions in SQL
    "bigint": ([0, 1, -7, 2**53 + 1, -(2**40), None], "_bigint"),
    "int": ([0, 5, -5, 2**31 - 1, None], "_bigint"),
    "double": ([0.5, -2.25, 1024.0, None], ""),
    "float": ([0.5, -2.25, None], ""),
    "decimal(12,2)": ([Decimal("0.10"), Decimal("-3.33"), Decimal("99999.99"), None], None),
}
KEYS = {
    "string": ["a", "A", "", "ü", None],
    "int": [1, 2, None],
    "boolean": [True, False, None],
    "date": [dt.date(2024, 2, 29), dt.date(1969, 12, 31), None],
    "decimal(5,1)": [Decimal("0.5"), Decimal("1.0"), None],
}


def draw(rng: random.Random, spark):
    """Draw rows of two keys and a value, in partitions of no, one or many rows."""
    key, other, column = rng.sample(NAMES, 3)
    key_type, other_type = rng.choice(list(KEYS)), rng.choice(list(KEYS))
    dtype = rng.choice(list(VALUES))
    count = rng.choice([0, 1, 3, 40])
    pools = (KEYS[key_type], KEYS[other_type], VALUES[dtype][0])
    rows = [tuple(rng.choice(pool) for pool in pools) for _ in range(count)]
    schema = f"{quoted(key)} {key_type}, {quoted(other)} {other_type}, {quoted(column)} {dtype}"
    return spark.createDataFrame(rows, schema).repartition(rng.choice([1, 2, 7, 50])), key, other, column, dtype


def quoted(name: str) -> str:
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def rows_of(answer) -> list[str]:
    """Write rows as text; numbers of different types that are equal are one."""
    return sorted(str([_plain(value) for value in row]) for row in answer.collect())


def _plain(value):
    return value if value is None or isinstance(value, str | bool | dt.date) else Decimal(value).normalize()


@pytest.mark.parametrize("trial", range(TRIALS))
def test_doors(spark, trial):
    from pyspark.sql import functions as F

    import spark_udaf as su
    from spark_udaf import functions as A

    rng = random.Random(SEED + trial)
    df, key, other, column, dtype = draw(rng, spark)
    keys = rng.choice([[], [key], [key, other]])
    by, x = [F.col(quoted(name)) for name in keys], quoted(column)
    plain = [F.count("*").alias("n"), F.sum(x).alias("s"), F.min(x).alias("lo"), F.max(x).alias("hi")]
    expected = rows_of(df.groupBy(*by).agg(*plain))
    types = A.of(df)
    ours = [
        A.count().alias("n"),
        *(getattr(types, f)(x).alias(n) for f, n in (("sum", "s"), ("min", "lo"), ("max", "hi"))),
    ]
    measures = {"n": aggr.count(), "s": aggr.sum(x), "lo": aggr.min(x), "hi": aggr.max(x)}
    message = f"seed {SEED + trial}: {keys} {column} {dtype} of {df.count()} rows"
    assert rows_of(df.groupBy(*by).agg(*ours)) == expected, f"agg, {message}"
    assert rows_of(su.group_by(df, *by).agg(*ours)) == expected, f"group_by, {message}"
    assert rows_of(su.group_by(df, *by).agg(ours[0], plain[1], *ours[2:])) == expected, f"with Spark's, {message}"
    states = su.aggregate(df, keys, measures)
    finished = su.finish(su.merge(states, keys), measures)
    assert rows_of(finished.select(*by, "n", "s", "lo", "hi")) == expected, f"aggregate, {message}"
    if keys:
        totals = rows_of(df.cube(*by).agg(*plain))
        assert rows_of(su.group_by(df).cube(*by).agg(*ours)) == totals, f"cube, {message}"
    suffix = VALUES[dtype][1]
    if suffix is not None:
        df.createOrReplaceTempView("doors")
        grouping = f"GROUP BY {', '.join(map(quoted, keys))}" * bool(keys)
        calls = ", ".join(f"aggr_{name}{suffix}({x})" for name in ("sum", "min", "max"))
        query = f"SELECT {''.join(quoted(name) + ', ' for name in keys)}aggr_count(*), {calls} FROM doors {grouping}"
        assert rows_of(su.sql(spark, query)) == expected, f"SQL, {message}"
