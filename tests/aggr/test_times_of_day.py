"""Times of day in conditions, compared with DuckDB and, for nanoseconds, with whole numbers."""

from __future__ import annotations

import operator
import random

import pyarrow as pa
import pytest

from aggr.sql import rows_where

STEPS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}  # the number of steps per second of each unit
TYPES = [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]
CONDITIONS = [
    *(f"k {sign} '{{}}'" for sign in ("=", "<>", "<", "<=", ">", ">=")),
    "'{}' > k",
    "NOT k < '{}'",
    "k IN ('{}', '01:00:00')",
    "k BETWEEN '03:00:00' AND '{}'",
]


def text_of(value: int, unit: str) -> str:
    """Return the text of a time of day that is ``value`` steps after midnight."""
    seconds, fraction = divmod(value, STEPS[unit])
    digits = f".{fraction:0{len(str(STEPS[unit])) - 1}}" if fraction else ""
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{digits}"


def drawn(dtype: pa.DataType, seed: int) -> tuple[pa.Table, list[int]]:
    draws = random.Random(seed)
    values = [draws.randrange(86_400 * STEPS[dtype.unit]) for _ in range(100)]
    return pa.table({"k": pa.array([*values, None], dtype)}), draws.sample(values, 8)


@pytest.mark.parametrize("dtype", TYPES[:3], ids=str)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions_agree_with_duckdb(condition, dtype):
    duckdb = pytest.importorskip("duckdb")
    table, values = drawn(dtype, seed=1)
    with duckdb.connect() as connection:
        connection.register("rows", table)
        for value in values:
            where = condition.format(text_of(value, dtype.unit))
            expected = connection.sql(f"SELECT coalesce({where}, false) FROM rows").fetchall()
            assert rows_where(where, table, "UTC").tolist() == [row[0] for row in expected], where


@pytest.mark.parametrize("sign", ["=", "<>", "<", "<=", ">", ">="])
def test_nanoseconds(sign):
    compare = {"=": "eq", "<>": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}[sign]
    table, values = drawn(pa.time64("ns"), seed=2)
    numbers = table["k"].cast(pa.int64()).to_pylist()
    for value in values:
        expected = [number is not None and getattr(operator, compare)(number, value) for number in numbers]
        assert rows_where(f"k {sign} '{text_of(value, 'ns')}'", table, "UTC").tolist() == expected


@pytest.mark.parametrize(
    ("text", "seconds"), [("12:30", 45_000), ("1:05", 3_900), (" 00:00:00 ", 0), ("23:59:59", 86_399)]
)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_forms(text, seconds, dtype):
    table = pa.table({"k": pa.array([seconds * STEPS[dtype.unit], 1], dtype)})
    assert rows_where(f"k = '{text}'", table, "UTC").tolist() == [True, False]


@pytest.mark.parametrize(
    "text", ["24:00:00", "12:60", "12:30:60", "1:2:3", "", "x", "12:30:00.1234567891", "-1:00", "１２:00", "12:30Z"]
)
def test_other_texts_are_refused(text):
    table = pa.table({"k": pa.array([0], pa.time64("us"))})
    with pytest.raises(ValueError, match="is not a time of day; write a time such as '12:30:00'"):
        rows_where(f"k = '{text}'", table, "UTC")
