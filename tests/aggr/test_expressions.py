"""Keys and inputs that are expressions, and keys that are the elements of a list."""

from __future__ import annotations

import json
import math
import pickle
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr import each
from aggr.arrow.bit_equality import digest
from aggr.sql.inputs import columns_in, is_column
from aggr.tables.keys import keyed, keys_from_json
from tiltframe import FrameStore, OrderedFrame, RunningAggregation, TiltFrame, finish, ordered_rollup, rollup, running
from tiltframe.cli.app import main
from tiltframe.text.measures import keys_from, measure_from

KEYS = {"route": "lower(route)", "tag": "each(tags)", "place": "each(places)", "big": "price > 1"}
MEASURES = {
    "rows": aggr.count(),
    "revenue": aggr.sum("price * quantity"),
    "dearest": aggr.arg_max("upper(route)", by="price * quantity"),
    "mean": aggr.weighted_avg("price", weight="quantity + 1"),
    "late": aggr.count(where="quantity > 2"),
    "sold": aggr.count(weight="quantity + 1"),
}


def table(rows=300, seed=3):
    rng = np.random.default_rng(seed)

    def lists(values):
        return [None if rng.random() < 0.1 else rng.choice(values, rng.integers(0, 4)).tolist() for _ in range(rows)]

    return pa.table(
        {
            "ts": pa.array(rng.integers(-5000, 5000, rows)),
            "route": [None if r == 4 else "/" + "aAbB"[r] for r in rng.integers(0, 5, rows)],
            "price": rng.integers(0, 20, rows) / 7,
            "quantity": pa.array([None if q == 9 else int(q) for q in rng.integers(0, 10, rows)]),
            "tags": pa.array(lists(["x", "y", None]), pa.list_(pa.string())),
            "places": pa.array(lists([1, 2]), pa.list_(pa.int64())),
        }
    )


def naive_groups(rows, size):
    """Find the rows of each window and keys, one by one."""
    groups = defaultdict(list)
    for row in rows.to_pylist():
        for tag in row["tags"] or ():
            for place in row["places"] or ():
                route = None if row["route"] is None else row["route"].lower()
                groups[row["ts"] // size, route, tag, place, row["price"] > 1].append(row)
    return groups


def naive_results(rows):
    rows_with_quantity = [row for row in rows if row["quantity"] is not None]
    named = [
        (row["price"] * row["quantity"], row["route"].upper()) for row in rows_with_quantity if row["route"] is not None
    ]
    revenue = [row["price"] * row["quantity"] for row in rows_with_quantity]
    weights = sum(row["quantity"] + 1 for row in rows_with_quantity)
    return {
        "rows": len(rows),
        "revenue": math.fsum(revenue) if revenue else None,
        "dearest": max(named)[1] if named else None,
        "mean": float(sum(Fraction(row["price"]) * (row["quantity"] + 1) for row in rows_with_quantity) / weights)
        if rows_with_quantity
        else None,
        "late": sum(row["quantity"] > 2 for row in rows_with_quantity),
        "sold": weights,
    }


@pytest.mark.parametrize("level", ["1s", "hopping(2s, 1s)"])
def test_a_naive_evaluator_agrees(level):
    rows = table()
    frame = TiltFrame([level], "ts", MEASURES, KEYS)
    result = finish(rollup(rows, frame), frame).to_pylist()
    expected = naive_groups(rows, 1000)
    if level != "1s":  # windows of two seconds, known by the second that they begin with
        expected, seconds = defaultdict(list), expected
        for (second, *keys), rows_of_group in seconds.items():
            for start in (second - 1, second):
                expected[start, *keys] += rows_of_group
    assert len(result) == len(expected) > 50
    for row in result:
        start = row["window_start"].timestamp()
        named = naive_results(expected[int(start), row["route"], row["tag"], row["place"], row["big"]])
        assert {name: row[name] for name in named} == named, row


def test_a_session_is_of_an_element():
    rows = pa.table({"ts": [0, 1000, 2500, 4000], "tags": [["a", "b"], ["a"], ["b", "a"], ["b"]]})
    frame = TiltFrame(["session(2s)"], "ts", {"n": aggr.count()}, {"tag": each("tags")})
    result = finish(rollup(rows, frame), frame)
    assert sorted(zip(result["tag"].to_pylist(), result["n"].to_pylist(), strict=True)) == [
        ("a", 3),
        ("b", 1),
        ("b", 2),
    ]


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.list_(pa.int64()), pa.large_list(pa.int64()), pa.list_(pa.int64(), 2)),
        *([pa.list_view(pa.int64()), pa.large_list_view(pa.int64())] if hasattr(pa, "list_view") else []),
    ],
    ids=str,
)
def test_lists_of_every_kind(kind):
    lists = [[1, 2], None, [3, 3], [None, 4]]
    column = pa.chunked_array([pa.array([[9, 9], *lists], kind).slice(1, 2), pa.array(lists, kind).slice(2)])
    rows = pa.table({"n": range(4), "lists": column})
    result = keyed(rows, {"k": "each(lists)"}, ["n"])
    assert result.rows["n"].to_pylist() == [0, 0, 2, 2, 3, 3]
    assert result.keys["k"].to_pylist() == [1, 2, 3, 3, None, 4]
    assert result.rows.column_names == ["n"]


def test_a_null_list_over_elements_has_none():
    offsets, values = pa.array([0, 2, 4], pa.int32()), pa.array([1, 2, 3, 4])
    lists = pa.ListArray.from_arrays(offsets, values, mask=pa.array([True, False]))
    assert keyed(pa.table({"lists": lists}), {"k": "each(lists)"}, ()).keys["k"].to_pylist() == [3, 4]


ODD = ["a-b", "lower(x)", "a b", "a.b", "price *", "1", "true", "each(tags)", "é", "a", "b", "tags"]


def test_what_is_a_column_is_that_column():
    for name in ODD:
        if name not in ("a-b",):
            assert columns_in(name, ODD) == (name,)
            frame = TiltFrame(["all"], "ts", {"n": aggr.sum(name)}, {"k": name})
            rows = pa.table({"ts": [0], **{other: [2] for other in ODD if other not in ("a-b",)}})
            assert finish(rollup(rows, frame), frame).select(["k", "n"]).to_pylist() == [{"k": 2, "n": 2}], name


def test_what_could_be_meant_either_way_is_refused_with_both_ways_to_write_it():
    for names in (ODD, ["a-b", "a", "b"]):
        with pytest.raises(ValueError, match=r"'a-b' is the name of a column, .* expression of a and b; write `a-b`"):
            columns_in("a-b", names)
    rows = pa.table({"a-b": [100], "a": [5], "b": [3], "c d": [7]})
    for text, value in (("`a-b`", 100), ("(a-b)", 2), ("c d", 7), ("`c d` + 1", 8), ("a - b", 2)):
        frame = aggr.sum(text)
        states = frame.reduce(rows, aggr.Groups.single(1))
        assert frame.function.finish(states).to_pylist() == [value], text
    assert not is_column("a-b", ["a", "b"])


def test_columns_are_pruned_to():
    frame = TiltFrame(["1s"], "ts", MEASURES, KEYS)
    columns = [*table().column_names, "more", "lower(more)"]
    assert set(frame.columns_in(columns)) == set(table().column_names)
    pruned_frame = TiltFrame(["1s"], "ts", {"n": aggr.sum("a.b * `c d`", where="e > 0")}, {"k": "each(f)"})
    assert pruned_frame.columns_in(["ts", "a", "a.b", "c d", "e", "f", "g"]) == ("ts", "f", "a.b", "c d", "e")


def test_the_text_is_part_of_the_frame():
    frame = TiltFrame(["1s"], "ts", MEASURES, KEYS)
    again = TiltFrame.from_dict(json.loads(json.dumps(frame.describe())))
    assert again == frame == pickle.loads(pickle.dumps(frame))
    assert (hash(again), repr(again), list(again.keys)) == (hash(frame), repr(frame), list(KEYS))
    plain = TiltFrame(["1s"], "ts", MEASURES, {"route": "route", "h": "host"})
    assert plain.describe()["keys"] == ["route", {"h": "host"}]
    assert TiltFrame(["1s"], "ts", MEASURES, {"host": "host"}) == TiltFrame(["1s"], "ts", MEASURES, ["host"])
    other = TiltFrame(["1s"], "ts", MEASURES, KEYS | {"route": "upper(route)"})
    assert "upper(route)" in frame.difference(other)
    with pytest.raises(ValueError, match=r"keys is .*lower.* in the frame and .*upper.* in the states"):
        finish(rollup(table(), other), frame)
    spaced = TiltFrame(["1s"], "ts", {"revenue": aggr.sum("price*quantity")})
    with pytest.raises(ValueError, match=r"'price \* quantity'\) in the frame and sum\('price\*quantity'\) in the sta"):
        finish(rollup(table(), spaced), TiltFrame(["1s"], "ts", {"revenue": aggr.sum("price * quantity")}))
    for described in (5, None, [5], [{"a": "b", "c": "d"}], [{}], ["a", "a"], ["a", {"a": "b"}], [{"a": 5}]):
        with pytest.raises(ValueError, match="key"):
            TiltFrame.from_dict({**frame.describe(), "keys": described})
    assert keys_from_json(["a", {"b": "c"}]) == {"a": "a", "b": "c"}


@pytest.mark.slow
def test_a_store_keeps_them_and_names_the_difference(tmp_path):
    rows, frame = table(), TiltFrame(["1s", "1m"], "ts", MEASURES, KEYS)
    store = FrameStore(str(tmp_path / "store"), frame)
    for part in (rows.slice(0, 100), rows.slice(100)):
        store.append(rollup(part, frame), "test", part.num_rows)
    result = FrameStore(str(tmp_path / "store")).query("1m", where="route = '/a' AND tag = 'x'")
    expected = finish(rollup(rows, frame), frame)
    expected = [row for row in expected.to_pylist() if (row["level"], row["route"], row["tag"]) == ("1m", "/a", "x")]
    assert [row["revenue"] for row in result.to_pylist()] == [row["revenue"] for row in expected]
    with pytest.raises(ValueError, match=r"keys is .*upper\(route\).* here and .*lower\(route\)"):
        FrameStore(str(tmp_path / "store"), TiltFrame(["1s", "1m"], "ts", MEASURES, KEYS | {"route": "upper(route)"}))


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 7])
@pytest.mark.parametrize("window", ["running()", "sliding(3)", "since('quantity > 8')"])
def test_batches_of_rows_in_order_give_the_same_bits(window, size):
    rows = table(120).sort_by("ts")
    unsplit = running(rows, MEASURES, window, time="ts", keys=KEYS)
    aggregation = RunningAggregation(MEASURES, window, time="ts", keys=KEYS)
    parts = [aggregation.add(rows.slice(at, size)) for at in range(0, rows.num_rows, size)]
    by = [(name, "ascending") for name in ("route", "tag", "place", "big", "ts", "rows", "revenue")]
    joined = pa.concat_tables([*parts, aggregation.finish()]).combine_chunks()
    assert joined.num_rows == unsplit.num_rows > 100
    for name in ("rows", "revenue", "mean", "late"):
        assert digest(joined.sort_by(by)[name]) == digest(unsplit.sort_by(by)[name])


def test_running_by_expressions_agrees_with_a_naive_evaluator():
    rows = table(100)
    result = running(rows, {"n": aggr.count(), "s": aggr.sum("quantity * 2")}, time="ts", keys=KEYS).to_pylist()
    groups, expected = defaultdict(list), []
    for row in sorted(rows.to_pylist(), key=lambda row: row["ts"]):
        for tag in row["tags"] or ():
            for place in row["places"] or ():
                route = None if row["route"] is None else row["route"].lower()
                rows_of_group = groups[route, tag, place, row["price"] > 1]
                rows_of_group.append(row["quantity"])
                doubled = [2 * q for q in rows_of_group if q is not None]
                expected.append((route, tag, place, row["ts"], len(rows_of_group), sum(doubled) if doubled else None))
    actual = [(row["route"], row["tag"], row["place"], row["ts"], row["n"], row["s"]) for row in result]
    assert sorted(actual, key=str) == sorted(expected, key=str)
    assert list(result[0]) == ["ts", "route", "price", "quantity", "tags", "places", "tag", "place", "big", "n", "s"]


def test_a_chain_and_ticks_by_an_element():
    rows = pa.table({"ts": [0, 1, 2, 90_000], "tags": [["a", "b"], ["a"], ["b", "a"], ["a", "a"]], "n": [1, 2, 4, 8]})
    frame = OrderedFrame(["count(2)"], "ts", {"s": aggr.sum("n + 1")}, {"tag": "each(tags)"})
    assert "tag=each(tags)" in repr(frame)
    from tiltframe import finish_ordered

    result = finish_ordered(ordered_rollup(rows, frame), frame)
    assert result.select(["tag", "s"]).to_pydict() == {"tag": ["a", "a", "b"], "s": [5, 14, 7]}
    ticks = running(rows, {"s": aggr.sum("n")}, time="ts", keys={"tag": "each(tags)"}, ticks="minutely()", emit="ticks")
    assert ticks.select(["tag", "s"]).to_pydict() == {"tag": ["a", "a", "b", "b"], "s": [1, 7, 1, 5]}


LINES = [
    '{"ts": "2024-05-01T10:00:00Z", "route": "/A", "price": 1.5, "quantity": 2, "tags": ["x", "y"]}',
    '{"ts": "2024-05-01T10:00:01Z", "route": "/a", "price": 2.0, "quantity": 3, "tags": []}',
    '{"ts": "2024-05-01T10:00:02Z", "route": "/b", "price": 4.0, "quantity": 1, "tags": ["x"]}',
]


def test_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.jsonl").write_text("\n".join(LINES) + "\n")
    arguments = ["rollup", "in.jsonl", "--time", "ts", "--levels", "1m", "--measure", "rev=sum(price * quantity)"]
    main([*arguments, "--key", "route=lower(route)", "--store", "routes"])
    main([*arguments, "--key", "tag=each(tags)", "--measure", "big=count(price > 1)", "--store", "tags"])
    main(["query", "routes", "--per", "1m", "--format", "json"])
    main(["query", "tags", "--per", "1m", "--format", "json", "--where", "tag = 'x'"])
    result = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row.get("route"), row.get("tag"), row["rev"]) for row in result] == [
        *(("/a", None, 9.0), ("/b", None, 4.0)),
        (None, "x", 7.0),
    ]


def test_calls_and_keys_as_people_type_them():
    assert measure_from("sum(price * quantity)") == aggr.sum("price * quantity")
    assert measure_from("weighted_avg(a / 2, weight=quantity + 1)") == aggr.weighted_avg("a / 2", "quantity + 1")
    assert measure_from("last(lower(a.b), by=coalesce(at, ts))") == aggr.last("lower(a.b)", by="coalesce(at, ts)")
    assert measure_from("sum('CASE WHEN a THEN 1 END')") == aggr.sum("CASE WHEN a THEN 1 END")
    assert keys_from(["host", "big=a >= 5", "tag=each(tags)"]) == {"host": "host", "big": "a >= 5", "tag": "each(tags)"}
    assert (each("tags"), each("my tags"), each("a`b")) == ("each(tags)", "each(`my tags`)", "each(`a``b`)")
    for wrong in ("=", "a=", "=b", "a= "):
        with pytest.raises(ValueError, match=r"cannot read .* as a key"):
            keys_from([wrong])


ROWS = pa.schema([("ts", pa.int64()), ("a", pa.int64()), ("s", pa.string()), ("l", pa.list_(pa.int64()))])


@pytest.mark.parametrize(
    ("keys", "measure", "message"),
    [
        ([], aggr.sum("a *"), r"n: the data has no column 'a \*'.*cannot read the expression"),
        ([], aggr.sum("a * c"), r"n: the data has no column 'c', which 'a \* c' uses"),
        ([], aggr.sum("`c`"), "n: the data has no column 'c'; there are"),
        ([], aggr.sum("lower(s)"), "sum cannot take a column of type string"),
        ([], aggr.sum("a + s"), r"cannot compute the expression 'a \+ s': \+ needs numbers; got text"),
        ([], aggr.sum("frobnicate(a)"), "an expression cannot use"),
        ([], aggr.arg_max("a", by="b - 1"), "no column 'b', which 'b - 1' uses"),
        ([], aggr.last("a", by="lower(a)"), "lower needs text; got int64"),
        ([], aggr.weighted_avg("a", weight="s || 'x'"), "weight|string"),
        ([], aggr.sum("each(l)"), "an expression cannot use"),
        ({"k": "lower(a)"}, aggr.count(), "lower needs text; got int64"),
        ({"k": "lower(b)"}, aggr.count(), r"no column 'b', which 'lower\(b\)' uses"),
        ({"k": "lower("}, aggr.count(), r"no column 'lower\('.*cannot read the expression"),
        (["lower(s)"], aggr.count(), r"no column 'lower\(s\)'"),
        (["l"], aggr.count(), r"key 'l' has type list.*each\(l\) takes their elements"),
        ({"k": "l"}, aggr.count(), r"has type list.*each\(l\) takes their elements"),
        ({"k": "each(s)"}, aggr.count(), "each needs a column of lists, .* the column 's' has type string"),
        ({"k": "each(b)"}, aggr.count(), "no column 'b'"),
        ({"k": "each(a + 1)"}, aggr.count(), "each needs a column of lists, .* the column .a . 1. has type int64"),
        ({"k": "each()"}, aggr.count(), "each|expression"),
        ({"k": "lower(each(l))"}, aggr.count(), "an expression cannot use"),
    ],
)
def test_what_does_not_fit_is_refused_when_the_columns_are_known(keys, measure, message):
    frame = TiltFrame(["1s"], "ts", {"n": measure}, keys)
    for refuse in (lambda: frame.check(ROWS), lambda: rollup(ROWS.empty_table(), frame)):
        with pytest.raises((ValueError, TypeError), match=message):
            refuse()
    with pytest.raises((ValueError, TypeError), match=message):
        running(ROWS.empty_table(), {"n": measure}, time="ts", keys=keys)


def test_a_number_too_large_is_an_error_and_dividing_by_nothing_null():
    rows = pa.table({"ts": [0, 0], "a": [2**62, 0], "b": [4, 0]})
    product = TiltFrame(["1s"], "ts", {"n": aggr.sum("a * b")})
    with pytest.raises(ValueError, match="an intermediate result is too large for its type"):
        rollup(rows, product)
    ratio = TiltFrame(["1s"], "ts", {"n": aggr.count("a / b")})
    assert finish(rollup(rows, ratio), ratio)["n"].to_pylist() == [1]
    where = TiltFrame(["1s"], "ts", {"n": aggr.sum("a * b", where="a < 5")})  # of the rows that are asked for alone
    assert finish(rollup(rows, where), where)["n"].to_pylist() == [0]
