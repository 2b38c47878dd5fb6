"""Random DataFrames in agg(), su.sql, su.group_by, su.aggregate, su.rollup, scans of files and totals give the results
of Spark's own aggregates. Several DataFrames are evaluated in one job.
"""

from __future__ import annotations

import datetime as dt
import os
import random
from collections import defaultdict
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import aggr
from tests import engines
from tiltframe import TiltFrame

pytestmark = [pytest.mark.spark, pytest.mark.long]

SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))
TRIALS = int(os.environ.get("TRIALS", "24"))
TOGETHER = 8  # DataFrames in one job
NAMES = ["x", "A b", "key 0", "shard", "a.b", "nothing", "rows", "x`y", "level 2", "ü", "count", "ts 2"]
START = dt.datetime(2024, 3, 31, tzinfo=dt.UTC)
MOMENTS = [
    START,
    START + dt.timedelta(hours=1, microseconds=1),
    dt.datetime(1969, 12, 31, 23, tzinfo=dt.UTC),
    None,
]
LOCAL = [None if moment is None else moment.replace(tzinfo=None) for moment in MOMENTS]
# Spark type: the Arrow type in files, values, and the suffix of its functions in SQL, or None if it has no sum in SQL
VALUES = {
    "bigint": (pa.int64(), [0, 1, -7, 2**53 + 1, -(2**40), None], "_bigint"),
    "int": (pa.int32(), [0, 5, -5, 2**31 - 1, None], "_bigint"),
    "smallint": (pa.int16(), [0, 5, -(2**15), 2**15 - 1, None], "_bigint"),
    "double": (pa.float64(), [0.5, -2.25, 1024.0, 2.0**40, None], ""),
    "float": (pa.float32(), [0.5, -2.25, None], ""),
    "decimal(12,2)": (pa.decimal128(12, 2), [*map(Decimal, ("0.10", "-3.33", "99999.99")), None], None),
    "string": (pa.string(), ["a", "B", "", "ü", None], None),
    "date": (pa.date32(), [dt.date(2024, 2, 29), dt.date(1969, 12, 31), None], None),
    "timestamp": (pa.timestamp("us", "UTC"), MOMENTS, None),
    "timestamp_ntz": (pa.timestamp("us"), LOCAL, None),
    "boolean": (pa.bool_(), [True, False, None], None),
}
NUMBERS = ["bigint", "int", "smallint", "double", "float", "decimal(12,2)"]
KEYS = {
    **{name: VALUES[name][:2] for name in ("string", "int", "boolean", "date", "timestamp", "timestamp_ntz")},
    "decimal(5,1)": (pa.decimal128(5, 1), [Decimal("0.5"), Decimal("1.0"), None]),
    "double": (pa.float64(), [0.0, -0.0, float("nan"), 1.5, None]),
    "binary": (pa.binary(), [b"", b"\0\x7f", b"a", None]),
    "struct<a:int,b:string>": (
        pa.struct({"a": pa.int32(), "b": pa.string()}),
        [{"a": 1, "b": "p"}, {"a": None, "b": "p"}, {"a": 1, "b": None}, {"a": None, "b": None}, None],
    ),
    "struct<a:struct<b:double>,c:date>": (
        pa.struct({"a": pa.struct({"b": pa.float64()}), "c": pa.date32()}),
        [
            *({"a": {"b": number}, "c": dt.date(2024, 2, 29)} for number in (0.0, -0.0, float("nan"), None)),
            {"a": None, "c": None},
            None,
        ],
    ),
}


@dataclass(frozen=True)
class Case:
    """A DataFrame, the names of its keys, and the name and the type of its values."""

    df: Any
    keys: list[str]
    column: str
    dtype: str
    label: str

    @property
    def has_sum(self) -> bool:
        return self.dtype in NUMBERS


def draw(rng: random.Random, spark, folder: Path) -> Case:
    """Draw rows of two keys, a value and a time. They are read from files, or from memory in partitions of no, one or
    many rows.
    """
    key, other, column = rng.sample(NAMES, 3)
    types = {key: rng.choice(list(KEYS)), other: rng.choice(list(KEYS)), column: rng.choice(list(VALUES))}
    pools = [KEYS[types[key]], KEYS[types[other]], VALUES[types[column]][:2], (pa.timestamp("us", "UTC"), [START])]
    schema = pa.schema(zip([*types, "ts"], [pool[0] for pool in pools], strict=True))
    parts = [rng.choice([0, 1, 3, 40]) for _ in range(rng.randint(1, 3))]
    tables = [
        pa.table([pa.array(rng.choices(values, k=count), dtype) for dtype, values in pools], schema=schema)
        for count in parts
    ]
    declared = ", ".join(f"{quoted(name)} {dtype}" for name, dtype in {**types, "ts": "timestamp"}.items())
    if rng.random() < 0.5:
        folder.mkdir()
        for number, table in enumerate(tables):
            pq.write_table(table, folder / f"{number}.parquet", row_group_size=rng.choice([1, 7, 100]))
        df = spark.read.schema(declared).parquet(str(folder))
    else:
        rows = [tuple(row.values()) for table in tables for row in table.to_pylist()]
        df = spark.createDataFrame(rows, declared).repartition(rng.choice([1, 2, 3]))
    keys = rng.choice([[], [key], [key, other]])
    label = f"{keys} of {declared}, {parts} rows"
    return Case(df, keys, column, dtype=types[column], label=label)


def quoted(name: str) -> str:
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def rows_of(frames) -> list[list[str]]:
    """Compute many DataFrames in one job: the rows of each as text, sorted."""
    from pyspark.sql import functions as F

    if not frames:
        return []
    labelled = [
        frame.select(F.lit(place).alias("place"), F.struct("*").cast("string").alias("row"))
        for place, frame in enumerate(frames)
    ]
    rows_by_place = defaultdict(list)
    for place, text in reduce(lambda a, b: a.union(b), labelled).collect():
        rows_by_place[place].append(text)
    return [sorted(rows_by_place[place]) for place in range(len(frames))]


def spark_calls(case: Case) -> list:
    from pyspark.sql import functions as F

    x = quoted(case.column)
    calls = [F.count("*").alias("n"), F.count(x).alias("c"), F.min(x).alias("lo"), F.max(x).alias("hi")]
    return [*calls, F.sum(x).alias("s")] if case.has_sum else calls


def our_calls(case: Case) -> list:
    from spark_udaf import functions as A

    types, x = A.of(case.df), quoted(case.column)
    calls = [A.count().alias("n"), A.count(x).alias("c"), types.min(x).alias("lo"), types.max(x).alias("hi")]
    return [*calls, types.sum(x).alias("s")] if case.has_sum else calls


def measures_of(case: Case) -> dict[str, aggr.Measure]:
    x = quoted(case.column)
    measures = {"n": aggr.count(), "c": aggr.count(x), "lo": aggr.min(x), "hi": aggr.max(x)}
    return {**measures, **({"s": aggr.sum(x)} if case.has_sum else {})}


def by(case: Case) -> list:
    from pyspark.sql import functions as F

    return [F.col(quoted(name)) for name in case.keys]


def aggregated(case: Case):
    import spark_udaf as su

    measures = measures_of(case)
    finished = su.finish(su.merge(su.aggregate(case.df, case.keys, measures), case.keys), measures)
    return finished.select(*by(case), *measures)


def rolled_up(case: Case):
    import spark_udaf as su

    frame = TiltFrame(["1h", "all"], "ts", measures_of(case), keys={name: quoted(name) for name in case.keys})
    finished = su.finish(su.rollup(case.df, frame), frame)
    return finished.where("level = 'all'").select(*by(case), *frame.measures)


def by_sql(case: Case, view: str):
    import spark_udaf as su

    case.df.createOrReplaceTempView(view)
    grouping = f"GROUP BY {', '.join(map(quoted, case.keys))}" * bool(case.keys)
    x, suffix = quoted(case.column), VALUES[case.dtype][2]
    calls = ", ".join(f"aggr_{name}{suffix}({x})" for name in ("min", "max", "sum"))
    names = "".join(quoted(name) + ", " for name in case.keys)
    return su.sql(case.df.sparkSession, f"SELECT {names}aggr_count(*), aggr_count({x}), {calls} FROM {view} {grouping}")


def compare_all_doors(spark, folder: Path, seed: int) -> None:
    """Compare `TOGETHER` random DataFrames in all forms."""
    import spark_udaf as su

    rng = random.Random(seed)
    cases = [draw(rng, spark, folder / str(place)) for place in range(TOGETHER)]
    expected = rows_of([case.df.groupBy(*by(case)).agg(*spark_calls(case)) for case in cases])

    def compare(form, answers, compared=cases):
        """Assert that the rows of each DataFrame are as expected, in one job for all."""
        for case, rows in zip(compared, rows_of(answers), strict=True):
            assert rows == expected[cases.index(case)], f"{form}, seed {seed}: {case.label}"

    compare("agg", [case.df.groupBy(*by(case)).agg(*our_calls(case)) for case in cases])
    compare("group_by", [su.group_by(case.df, *by(case)).agg(*our_calls(case)) for case in cases])
    mixed = [[*our_calls(case)[:2], *spark_calls(case)[2:]] for case in cases]
    answers = [su.group_by(case.df, *by(case)).agg(*calls) for case, calls in zip(cases, mixed, strict=True)]
    compare("with Spark's", answers)
    compare("aggregate", [aggregated(case) for case in cases])
    # if there are no rows, a rollup has no results, and Spark's aggregate without keys has one
    of_frames = [case for case in cases if case.keys]
    compare("rollup", [rolled_up(case) for case in of_frames], of_frames)
    in_sql = [case for case in cases if VALUES[case.dtype][2] is not None]
    compare("SQL", [by_sql(case, f"doors_{place}") for place, case in enumerate(in_sql)], in_sql)
    with_keys = [case for case in cases if case.keys]
    expected = {
        cases.index(case): rows
        for case, rows in zip(
            with_keys, rows_of([case.df.cube(*by(case)).agg(*spark_calls(case)) for case in with_keys]), strict=True
        )
    }
    compare("cube", [su.group_by(case.df).cube(*by(case)).agg(*our_calls(case)) for case in with_keys], with_keys)


@pytest.fixture(scope="module")
def small_jobs(spark):
    with engines.settings(spark, engines.SMALL_JOBS):
        yield


@pytest.mark.parametrize("trial", range(-(-TRIALS // TOGETHER)))
def test_doors(spark, small_jobs, trial, tmp_path):
    compare_all_doors(spark, tmp_path, SEED + trial)
