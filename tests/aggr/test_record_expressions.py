"""Records, JSON and differences of times in expressions, compared with DuckDB and the standard library."""

import json
import random
from datetime import datetime, timedelta

import duckdb
import pyarrow as pa
import pytest

from aggr.sql import evaluate

UNITS = ["microsecond", "ms", "s", "minute", "hour", "day", "month", "quarter", "year"]


def random_times(seed: int, rows: int = 400) -> pa.Array:
    chance = random.Random(seed)
    origin = datetime(1970, 1, 1)
    spans = [10**3, 10**6, 10**9, 10**12, 2 * 10**15]
    times = [
        origin + timedelta(microseconds=chance.choice([-1, 1]) * chance.randrange(chance.choice(spans)))
        for _ in range(rows)
    ]
    return pa.array([None if chance.random() < 0.05 else time for time in times], pa.timestamp("us"))


def test_differences_of_times_equal_duckdb():
    rows = pa.table({"a": random_times(1), "b": random_times(2)})
    connection = duckdb.connect()
    connection.register("rows", rows)
    for expression in [*(f"date_diff('{unit}', a, b)" for unit in UNITS), "extract(epoch from a)"]:
        expected = connection.sql(f"SELECT {expression} FROM rows").fetchall()
        assert evaluate(expression, rows).to_pylist() == [value for (value,) in expected], expression


def test_weeks_begin_on_monday():
    """DuckDB truncates weeks before 1970 towards 1970; here each Monday counts."""
    rows = pa.table({"a": random_times(1), "b": random_times(2)})
    weeks = [[t and (t.date().toordinal() - 1) // 7 for t in rows[name].to_pylist()] for name in ("a", "b")]
    expected = [None if None in pair else pair[1] - pair[0] for pair in zip(*weeks, strict=True)]
    assert evaluate("date_diff('week', a, b)", rows).to_pylist() == expected


def test_epoch_ms_rounds_towards_the_past():
    times = random_times(3)
    milliseconds = evaluate("epoch_ms(a)", pa.table({"a": times})).to_pylist()
    assert milliseconds == [
        None if time is None else (time - datetime(1970, 1, 1)) // timedelta(milliseconds=1)
        for time in times.to_pylist()
    ]
    assert evaluate("unix_millis(a)", pa.table({"a": times})).to_pylist() == milliseconds


def test_days_are_those_of_the_zone():
    times = pa.array([datetime(2024, 3, 30, 22, 30), datetime(2024, 3, 30, 23, 30)], pa.timestamp("us", "UTC"))
    rows = pa.table({"a": times.take(pa.array([0])), "b": times.take(pa.array([1]))})
    assert evaluate("date_diff('day', a, b)", rows).to_pylist() == [0]
    assert evaluate("date_diff('day', a, b)", rows, "Europe/Berlin").to_pylist() == [1]


def test_an_unknown_unit_lists_the_units():
    with pytest.raises(ValueError, match=r"the unit of date_diff must be one of nanosecond, .*; got 'parsec'"):
        evaluate("date_diff('parsec', a, a)", pa.table({"a": random_times(1)}))


def random_value(chance: random.Random) -> str:
    return "".join(chance.choice('ab"\\\n\t\x01é€😀/') for _ in range(chance.randrange(6)))


def test_json_reads_back():
    chance = random.Random(4)
    values = [
        chance.choice(
            [
                None,
                {
                    "t": random_value(chance),
                    "x": chance.choice([None, 1.0, -2.5e-9, 1e300]),
                    "l": [[1, None], None, []],
                },
            ]
        )
        for _ in range(200)
    ]
    rows = pa.table({"v": values, "n": [1] * 200})
    written = evaluate("to_json(v)", rows).to_pylist()
    assert [None if text is None else json.loads(text) for text in written] == values
    both = evaluate("to_json(n, v)", rows).to_pylist()
    assert [json.loads(text) for text in both] == [{"n": 1, "v": value} for value in values]
    maps = pa.array([[("a", 1), ('"', None)], [], None], pa.map_(pa.string(), pa.int64()))
    assert evaluate("to_json(m)", pa.table({"m": maps})).to_pylist() == ['{"a":1,"\\"":null}', "{}", None]


def test_json_of_floats_and_slices():
    values = pa.array([[9.0], [float("nan"), 1.0], None, [float("inf")]])
    assert evaluate("to_json(x)", pa.table({"x": values.slice(1)})).to_pylist() == ["[null,1.0]", None, "[null]"]


def test_records_equal_duckdb():
    """Maps of random keys: the value of a key, keys and values; the same entries as structs."""
    chance = random.Random(5)
    names = ["1", "01", "a", "b b"]
    maps = [
        None
        if chance.random() < 0.1
        else [(name, chance.choice([None, chance.randrange(9)])) for name in chance.sample(names, chance.randrange(5))]
        for _ in range(300)
    ]
    rows = pa.table(
        {
            "m": pa.array(maps, pa.map_(pa.string(), pa.int64())),
            "k": [chance.choice([*names, "missing", None]) for _ in maps],
        }
    ).slice(7)
    connection = duckdb.connect()
    connection.register("rows", rows)
    for expression in ["m[k]", "m['01']", "map_keys(m)", "map_values(m)"]:
        expected = connection.sql(f"SELECT {expression} FROM rows").fetchall()
        assert evaluate(expression, rows).to_pylist() == [value for (value,) in expected], expression
    structs = pa.array(
        [None if m is None else dict(m) for m in maps], pa.struct([(name, pa.int64()) for name in names])
    )
    by_struct = evaluate("s[k]", pa.table({"s": structs.slice(7), "k": rows["k"]})).to_pylist()
    assert by_struct == evaluate("m[k]", rows).to_pylist()


def test_fields_of_lists_of_structs():
    lists = pa.array([[{"p": 1}, {"p": None}], None, []])
    assert evaluate("l.p", pa.table({"l": lists.slice(0, 3)})).to_pylist() == [[1, None], None, []]
    assert evaluate("struct(l, 2 AS two).two", pa.table({"l": lists})).to_pylist() == [2, 2, 2]
    nested = pa.table({"m": [{"a": {"x": 1}}, {"a": {"x": 2}}], "k": ["a", "b"]})
    assert evaluate("m[k]['x']", nested).to_pylist() == evaluate("m[k].x", nested).to_pylist() == [1, None]
