"""Fields of structs and values of maps as keys, inputs and in conditions give the results of plain columns."""

from __future__ import annotations

import json

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import aggr
from aggr.sql import bounds, evaluate, rows_where, to_expression
from tiltframe import OrderedFrame, TiltFrame, finish, finish_ordered, ordered_rollup, rollup, running

HTTP = pa.struct(
    [("status", pa.int32()), ("took", pa.struct([("ms", pa.float64())])), ("verbs", pa.list_(pa.string()))]
)
ROWS = [
    {"ts": i * 700, "http": http, "labels": labels}
    for i, (http, labels) in enumerate(
        [
            ({"status": 200, "took": {"ms": 1.5}, "verbs": ["GET"]}, [("env", "prod"), ("n", "1")]),
            ({"status": 500, "took": None, "verbs": ["PUT", "GET"]}, [("env", "test")]),
            (None, None),
            ({"status": None, "took": {"ms": None}, "verbs": None}, []),
            ({"status": 503, "took": {"ms": 7.25}, "verbs": []}, [("env", None), ("n", "2")]),
            ({"status": 200, "took": {"ms": 2.0}, "verbs": ["GET", "GET"]}, [("n", "3"), ("env", "prod")]),
        ]
    )
]
NESTED = pa.Table.from_pylist(
    ROWS, pa.schema([("ts", pa.int64()), ("http", HTTP), ("labels", pa.map_(pa.string(), pa.string()))])
)
FLAT = pa.table(
    {
        "ts": NESTED["ts"],
        "status": pa.array([(r["http"] or {}).get("status") for r in ROWS], pa.int32()),
        "ms": pa.array([((r["http"] or {}).get("took") or {}).get("ms") for r in ROWS], pa.float64()),
        "verbs": pa.array([(r["http"] or {}).get("verbs") for r in ROWS], pa.list_(pa.string())),
        "env": pa.array([dict(r["labels"] or ()).get("env") for r in ROWS], pa.string()),
    }
)


def frame(status, ms, verbs, env):
    return TiltFrame(
        ["1s", "1m"],
        "ts",
        {
            "n": aggr.count(where=f"{status} >= 500"),
            "total": aggr.sum(ms),
            "twice": aggr.max(f"{ms} * 2"),
            "last": aggr.last(status),
        },
        {"status": status, "env": f"coalesce({env}, 'none')", "verb": f"each({verbs})"},
    )


OF_FIELDS = frame("http.status", "http.took.ms", "http.verbs", "labels['env']")
OF_COLUMNS = frame("status", "ms", "verbs", "env")


def test_a_rollup_by_fields_is_one_by_columns():
    result = finish(rollup(NESTED, OF_FIELDS), OF_FIELDS).to_pylist()
    assert result == finish(rollup(FLAT, OF_COLUMNS), OF_COLUMNS).to_pylist()
    assert len(result) > 4


def test_values_are_those_of_duckdb():
    nested = NESTED
    for text in ("http.status", "http.took.ms", "http['took']['ms'] + 1", "labels['env']", "labels['gone']"):
        expected = [x for (x,) in duckdb.sql(f"SELECT {text} x FROM nested").fetchall()]
        assert evaluate(text, nested).to_pylist() == expected, text
    assert rows_where("http.status >= 500 AND labels['env'] = 'test'", nested).tolist() == [False, True, *[False] * 4]
    result = ds.dataset(nested).to_table(filter=to_expression("http.status = 200 AND http.took.ms < 2", nested.schema))
    assert result.column("ts").to_pylist() == [0]
    assert bounds("http.status = 200 AND ts = 0", nested.schema).keys() == {"ts"}


def test_a_key_in_a_list_of_names_is_a_field_where_no_column_has_its_name():
    by_name = TiltFrame(["1m"], "ts", {"n": aggr.count()}, ["http.status"])
    by_column = TiltFrame(["1m"], "ts", {"n": aggr.count()}, ["status"])
    result = finish(rollup(NESTED, by_name), by_name)
    result = result.rename_columns([name.replace("http.status", "status") for name in result.column_names])
    assert result.to_pylist() == finish(rollup(FLAT, by_column), by_column).to_pylist()
    both = NESTED.append_column("http.status", pa.array(range(6)))
    assert rollup(both, by_name).column("http.status").to_pylist() == list(range(6))


def test_windows_in_order_read_fields():
    query = {"n": aggr.count(), "ms": aggr.sum("http.took.ms")}
    result = running(NESTED, query, "emit_when('http.status = 200')", time="ts", keys=["http.status"])
    assert result.column("ms").to_pylist() == [1.5, 2.0]
    ordered = OrderedFrame(["emit_when('http.status >= 500')"], "ts", {"n": aggr.count()})
    assert finish_ordered(ordered_rollup(NESTED, ordered), ordered).column("n").to_pylist() == [2, 3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("http.statis", "there is no field 'statis'; did you mean 'status'"),
        ("ts.a", "'a' cannot be a field, because a value of type int64 has no fields"),
        ("htp.status", "no column 'htp.status'"),
    ],
)
def test_what_is_no_field_is_named(text, message):
    with pytest.raises(ValueError, match=message):
        rollup(NESTED, TiltFrame(["1m"], "ts", {"n": aggr.max(text)}))


def test_json_files_have_fields(tmp_path):
    lines = [{**row, "labels": dict(row["labels"] or ())} for row in ROWS]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = finish(rollup(tmp_path / "a.jsonl", OF_FIELDS), OF_FIELDS)
    assert result.to_pylist() == finish(rollup(FLAT, OF_COLUMNS), OF_COLUMNS).to_pylist()


@pytest.mark.long
@pytest.mark.spark
def test_spark_rolls_up_by_fields(spark, tmp_path):
    import pyarrow.parquet as pq

    import spark_udaf as su

    expected = finish(rollup(FLAT, OF_COLUMNS), OF_COLUMNS).to_pylist()
    rows = spark.createDataFrame(NESTED)
    pq.write_table(NESTED, tmp_path / "a.parquet")
    for data in (rows, su.scan_parquet(spark, str(tmp_path / "a.parquet"))):
        result = su.finish(su.rollup(data, OF_FIELDS), OF_FIELDS).toArrow().to_pylist()
        assert sorted(map(repr, result)) == sorted(map(repr, expected))
    total = {"ms": aggr.sum("http.took.ms", where="labels['env'] = 'prod'")}
    states = su.aggregate(rows, ["http.status"], total)
    result = {row["http.status"]: row["ms"] for row in su.finish(states, total).toArrow().to_pylist()}
    assert result == {200: 3.5, 500: None, 503: None, None: None}
