"""Structs as keys: all doors give the groups of a naive evaluation, in which a null struct is a group of its own."""

from __future__ import annotations

import datetime as dt
import json
import math
import random
import subprocess
import sys
from collections import defaultdict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import aggr
from aggr import each
from aggr.arrow.bit_equality import same_bits
from tiltframe import FrameStore, OrderedFrame, ReadOptions, TiltFrame, finish, finish_ordered, ordered_rollup, rollup
from tiltframe.store import OtherFrame, StoreError
from tiltframe.store.testing import MemoryBackend
from tiltframe.streaming import OpenWindows

TAGS = pa.struct([("host", pa.string()), ("at", pa.struct([("row", pa.int64()), ("load", pa.float64())]))])
ROWS = pa.schema([("ts", pa.int64()), ("tags", TAGS), ("x", pa.int64())])
FRAME = TiltFrame(["1s", "1m"], "ts", {"n": aggr.count(), "total": aggr.sum("x")}, ["tags"])
LENGTHS = {"1s": 1000, "1m": 60_000}
NAN = float("nan")


def random_rows(seed: int, count: int = 400) -> list[dict]:
    draws = random.Random(seed)

    def place():
        return {"row": draws.choice([1, 2, None]), "load": draws.choice([0.0, -0.0, 1.5, NAN, -NAN, None])}

    def tags():
        return {"host": draws.choice(["a", "b", "", None]), "at": draws.choice([None, place(), place()])}

    return [
        {"ts": draws.randrange(90_000), "tags": draws.choice([None, tags(), tags(), tags()]), "x": draws.randrange(9)}
        for _ in range(count)
    ]


def table_of(rows: list[dict]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=ROWS)


def plain(value):
    """A value that compares as a key: equal structs are equal tuples, all NaN are equal, and so are both zeros."""
    if isinstance(value, dict):
        return tuple((name, plain(field)) for name, field in value.items())
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def naive(rows: list[dict], of_key=lambda tags: tags) -> dict[tuple, tuple[int, int]]:
    groups = defaultdict(list)
    for level, length in LENGTHS.items():
        for row in rows:
            groups[level, row["ts"] // length * length, plain(of_key(row["tags"]))].append(row["x"])
    return {group: (len(xs), sum(xs)) for group, xs in groups.items()}


def counts_of(results: pa.Table, key: str = "tags") -> dict[tuple, tuple[int, int]]:
    rows = results.to_pylist()
    groups = {
        (row["level"], int(row["window_start"].timestamp() * 1000), plain(row[key])): (row["n"], row["total"])
        for row in rows
    }
    assert len(groups) == len(rows), "a group has several rows"
    return groups


def queried(store: FrameStore, **options) -> pa.Table:
    return pa.concat_tables([store.query(per=level, **options) for level in LENGTHS])


@pytest.mark.parametrize("seed", range(5))
def test_groups_of_a_rollup(seed):
    rows = random_rows(seed)
    states = rollup(table_of(rows), FRAME)
    assert states.schema.field("tags").type == TAGS
    assert counts_of(finish(states, FRAME)) == naive(rows)


def test_states_do_not_depend_on_batches_and_order():
    rows = random_rows(7)
    states = rollup(table_of(rows), FRAME)
    random.Random(1).shuffle(rows)
    batches = table_of(rows).to_batches(max_chunksize=23)
    in_parts = rollup(pa.RecordBatchReader.from_batches(ROWS, batches), FRAME)
    for name in states.column_names:
        assert same_bits(states.column(name), in_parts.column(name)), name


def test_the_order_of_groups_is_that_of_the_fields_with_null_last():
    tags = [{"a": 2, "b": None}, None, {"a": None, "b": 1}, {"a": 1, "b": 2}, {"a": 1, "b": 1}, {"a": None, "b": None}]
    rows = pa.table({"ts": [0] * len(tags), "tags": tags})
    frame = TiltFrame(["1s"], "ts", {"n": aggr.count()}, ["tags"])
    results = finish(rollup(rows, frame), frame)
    ordered = [(1, 1), (1, 2), (2, None), (None, 1), (None, None)]
    assert results["tags"].to_pylist() == [*({"a": a, "b": b} for a, b in ordered), None]


def test_a_struct_that_an_expression_computes_and_structs_of_a_list():
    rows = pa.table({"ts": [0, 1, 2], "h": ["x", "x", "y"], "list": [[{"c": 1}, {"c": 2}], [{"c": 1}], None]})
    frame = TiltFrame(["1s"], "ts", {"n": aggr.count()}, {"k": "struct(lower(h) AS host)", "e": each("list")})
    results = finish(rollup(rows, frame), frame)
    assert results.select(["k", "e", "n"]).to_pylist() == [
        {"k": {"host": "x"}, "e": {"c": 1}, "n": 2},
        {"k": {"host": "x"}, "e": {"c": 2}, "n": 1},
    ]


def test_measures_and_expressions_read_the_fields():
    measures = {"n": aggr.count(where="tags.host = 'a'"), "text": "concat(tags.host, '!')"}
    frame = TiltFrame(["1s"], "ts", measures, ["tags"])
    results = finish(rollup(table_of([{"ts": 0, "tags": {"host": "a"}, "x": 1}, {"ts": 0, "x": 1}]), frame), frame)
    assert results.select(["n", "text"]).to_pylist() == [{"n": 1, "text": "a!"}, {"n": 0, "text": None}]


def test_dictionaries_and_large_texts_in_fields_are_plain_texts():
    hosts = pa.array(["a", None, "a"])
    states = []
    frame = TiltFrame(["1s"], "ts", {"n": aggr.count()}, ["tags"])
    for field in (hosts.dictionary_encode(), hosts.cast(pa.large_string()), hosts):
        tags = pa.StructArray.from_arrays([field], ["host"])
        states.append(rollup(pa.table({"ts": [0, 0, 0], "tags": tags}), frame))
    assert states[0].equals(states[2])
    assert states[1].equals(states[2])


def test_open_windows_emit_the_results_of_a_rollup():
    rows = sorted(random_rows(2), key=lambda row: row["ts"])
    windows, emitted = OpenWindows(FRAME), []
    for first in range(0, len(rows), 60):
        windows.add_rows(table_of(rows[first : first + 60]))
        emitted.append(windows.results(windows.advance(rows[first]["ts"] * 1000)))
        windows = OpenWindows.from_ipc(windows.to_ipc())
    emitted.append(windows.results(windows.close()))
    assert counts_of(pa.concat_tables(part for part in emitted if part.num_rows)) == naive(rows)


def test_ordered_windows_and_sessions():
    rows = [{"ts": ts, "tags": tags, "x": 1} for ts, tags in enumerate([None, {"host": "a"}, {}, None, {"host": "a"}])]
    frame = OrderedFrame(["count(2)"], "ts", {"n": aggr.count()}, keys=["tags"])
    pairs = finish_ordered(ordered_rollup(table_of(rows), frame), frame)
    assert sorted(map(plain, pairs["tags"].to_pylist()), key=repr) == [plain({"host": "a", "at": None}), None]
    session = TiltFrame(["session(3ms)"], "ts", {"n": aggr.count()}, ["tags"])
    assert finish(rollup(table_of(rows), session), session)["n"].to_pylist() == [2, 2, 1]


@pytest.fixture(params=["memory", "folder"])
def store(request, tmp_path) -> FrameStore:
    return FrameStore(MemoryBackend() if request.param == "memory" else tmp_path / "store", FRAME)


@pytest.mark.store
def test_queries_of_a_store(store):
    rows = random_rows(3)
    store.append_rows(table_of(rows[:250]), "w", 1)
    store.append_rows(table_of(rows[250:]), "w", 2)
    assert counts_of(queried(store)) == naive(rows)

    with_host = [row for row in rows if row["tags"] is not None and row["tags"]["host"] in ("a", "")]
    assert counts_of(queried(store, where="tags.host IN ('a', '')")) == naive(with_host)
    assert counts_of(queried(store, where="tags IS NULL")) == naive([row for row in rows if row["tags"] is None])
    with_row = [row for row in rows if row["tags"] and row["tags"]["at"] and row["tags"]["at"]["row"] == 2]
    assert counts_of(queried(store, where="tags.at.row = 2")) == naive(with_row)

    by_host = naive(rows, lambda tags: tags and tags["host"])
    assert counts_of(queried(store, keys=["tags.host"]), "tags.host") == by_host
    by_place = naive(rows, lambda tags: tags and tags["at"])
    assert counts_of(queried(store, keys=["tags.at"]), "tags.at") == by_place

    store.compact()
    assert counts_of(queried(store)) == naive(rows)
    store.retract(rollup(table_of(rows[:100]), FRAME), "w", 3)
    assert counts_of(queried(store)) == naive(rows[100:])
    assert not store.verify().problems


@pytest.mark.store
def test_order_having_expressions_latest_and_filled_windows(store):
    hosts = [("b", 0), ("a", 0), ("a", 2000), (None, 0)]
    rows = [{"ts": ts, "tags": {"host": host}, "x": 1} for host, ts in hosts]
    store.append_rows(table_of(rows), "w", 1)

    def hosts_of(**options):
        return [row["tags"]["host"] for row in store.query(**options).to_pylist()]

    assert hosts_of(per="1m", order_by="tags.host desc") == ["b", "a", None]
    assert hosts_of(per="1m", having="tags.host > 'a'") == ["b"]
    assert hosts_of(per="1s", latest=True, where="tags.host = 'a'") == ["a"]
    upper = store.query(per="1m", measures={"upper": "upper(tags.host)"}, flat=True)
    assert upper.select(["tags_host", "upper"]).to_pylist() == [
        {"tags_host": "a", "upper": "A"},
        {"tags_host": "b", "upper": "B"},
        {"tags_host": None, "upper": None},
    ]
    filled = store.query(per="1s", within=(0, 3000), fill="zero", keys=["tags.host"])
    assert filled.select(["tags.host", "n"]).to_pylist() == [
        {"tags.host": host, "n": n}
        for counts in ((1, 1, 1), (0, 0, 0), (1, 0, 0))
        for host, n in zip(("a", "b", None), counts, strict=True)
    ]


@pytest.mark.store
def test_joins_compare_a_struct_or_a_field(store):
    store.append_rows(table_of([{"ts": 0, "tags": {"host": host}, "x": 5} for host in ("a", "b", "b")]), "w", 1)
    events = pa.table({"ts": [0, 0, 0], "tags": pa.array([{"host": "b"}, None, {"host": "c"}], TAGS)})
    joined = store.join(events, on="tags", per="1m")
    assert joined["total"].to_pylist() == [10, None, None]
    by_host = store.join(pa.table({"ts": [0, 0], "h": ["a", "c"]}), on="tags.host = h", per="1m", keys=["tags.host"])
    assert by_host["total"].to_pylist() == [5, None]


@pytest.mark.store
def test_a_store_has_a_column_for_each_field(tmp_path):
    store = FrameStore(tmp_path / "store", FRAME)
    store.append_rows(table_of(random_rows(4)), "w", 1)
    [file] = (tmp_path / "store").rglob("level=1m/**/*.parquet")
    group = pq.ParquetFile(file).metadata.row_group(0)
    has_statistics = {group.column(i).path_in_schema: group.column(i).is_stats_set for i in range(group.num_columns)}
    assert [path for path, is_set in has_statistics.items() if is_set] == [
        *("window_start", "tags.host", "tags.at.row", "tags.at.load"),
    ]


@pytest.mark.store
def test_a_key_of_the_name_of_a_field_is_another_column(store_of_two_keys):
    store = store_of_two_keys
    assert store.query(per="1m", where="tags.host = 'flat'", keys=[])["n"].to_pylist() == [2]
    assert store.query(per="1m", keys=["tags.host"]).select(["tags.host", "n"]).to_pylist() == [
        {"tags.host": "flat", "n": 2},
    ]
    assert store.query(per="1m", keys=["tags"]).select(["tags", "n"]).to_pylist() == [
        {"tags": {"host": "a"}, "n": 1},
        {"tags": {"host": "b"}, "n": 1},
    ]


@pytest.fixture(params=["memory", "folder"])
def store_of_two_keys(request, tmp_path) -> FrameStore:
    frame = TiltFrame(["1m"], "ts", {"n": aggr.count()}, ["tags", "tags.host"])
    store = FrameStore(MemoryBackend() if request.param == "memory" else tmp_path / "store", frame)
    rows = pa.table({"ts": [0, 0], "tags": [{"host": "a"}, {"host": "b"}], "tags.host": ["flat", "flat"]})
    store.append_rows(rows, "w", 1)
    return store


@pytest.mark.store
def test_a_store_evolves_and_is_copied(tmp_path):
    rows = random_rows(5)
    store = FrameStore(tmp_path / "store", FRAME)
    store.append_rows(table_of(rows), "w", 1)
    store.evolve(FRAME.with_measures({"most": aggr.max("tags.at.row")}), row_schema=ROWS)
    store.append_rows(table_of(rows), "w", 2)
    twice = {group: (2 * n, 2 * total) for group, (n, total) in naive(rows).items()}
    assert counts_of(queried(store, measures=["n", "total"])) == twice
    store.copy_to(tmp_path / "copy")
    assert counts_of(queried(FrameStore(tmp_path / "copy"), measures=["n", "total"])) == twice


@pytest.mark.store
def test_postgresql_has_a_column_for_each_field(postgres):
    """PostgreSQL has no null structs: a struct whose fields are all null is refused, and a null struct is kept."""
    rows = [row for row in random_rows(6) if row["tags"] is None or row["tags"]["host"] is not None]
    for row in rows:
        if row["tags"] is not None and row["tags"]["at"] is not None:
            row["tags"]["at"]["row"] = 1
    store = FrameStore(postgres, FRAME)
    store.append_rows(table_of(rows), "w", 1)
    assert counts_of(queried(store)) == naive(rows)
    with_host = [row for row in rows if row["tags"] is not None and row["tags"]["host"] == "a"]
    assert counts_of(queried(store, where="tags.host = 'a'")) == naive(with_host)
    by_host = naive(rows, lambda tags: tags and tags["host"])
    assert counts_of(queried(store, keys=["tags.host"]), "tags.host") == by_host
    store.export()
    for name in ("frame_1m_current", "frame_1m_flat"):
        flat = store.query(per="1m", flat=True).select(["tags_host", "tags_at_row", "tags_at_load", "n"])
        assert sorted(map(repr, rows_in(postgres, name, flat.column_names))) == sorted(map(repr, tuples_of(flat)))
    with pytest.raises(StoreError, match=r"cannot store 'tags', .* a struct whose fields are all null"):
        store.append_rows(table_of([{"ts": 0, "tags": {}, "x": 1}]), "w", 2)


def rows_in(uri: str, table: str, names: list[str]) -> list[tuple]:
    import adbc_driver_postgresql.dbapi as dbapi

    with dbapi.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(names)} FROM {table}")
        return tuples_of(cursor.fetch_arrow_table())


def tuples_of(table: pa.Table) -> list[tuple]:
    return [tuple(row.values()) for row in table.to_pylist()]


def write_lines(path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_json_lines(tmp_path):
    """Times in the fields stay text, and an empty struct differs from null. A missing struct is null."""
    tags = [{"host": "007", "at": "2024-05-01"}, {"host": "007", "at": "2024-05-01"}, {"at": None}, {}, None]
    write_lines(tmp_path / "rows.jsonl", [*({"ts": 0, "tags": value} for value in tags), {"ts": 0}])
    frame = TiltFrame(["1s"], "ts", {"n": aggr.count()}, ["tags"])

    def counts(reading=None):
        results = finish(rollup(tmp_path / "rows.jsonl", frame, reading), frame)
        return [(row["tags"] and tuple(row["tags"].values()), row["n"]) for row in results.to_pylist()]

    assert counts() == [(("007", "2024-05-01"), 2), ((None, None), 2), (None, 2)]
    [(dated, _), *_] = counts(ReadOptions(types={"tags.at": "date"}))
    assert dated[1] == dt.date(2024, 5, 1)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (["tags"], [(("a", "2024-05-01"), 1), (("a", None), 500)]),
        ({"tags": "each(tags)"}, [("day", 1), ("host", 501)]),
        ({"tags": "each(map_keys(tags))"}, [("day", 1), ("host", 501)]),
        ({"tags": "to_json(tags)"}, [('{"host":"a","day":"2024-05-01"}', 1), ('{"host":"a","day":null}', 500)]),
        ({"tags": "tags.host"}, [("a", 501)]),
    ],
)
def test_fields_that_first_appear_after_the_rows_of_the_types(keys, expected, tmp_path, monkeypatch):
    """Types are inferred from the first 16 MB of JSON, here 1 KB. Later fields widen the structs; empty ones do not."""
    monkeypatch.setattr("tiltframe.files.formats._INFERRED_BYTES", 1000)
    rows = [{"ts": 0, "tags": {"host": "a"}} for _ in range(501)]
    rows[300]["tags"] |= {"nothing": None}
    rows[400]["tags"] |= {"day": "2024-05-01", "nothing": None}
    write_lines(tmp_path / "rows.jsonl", rows)
    frame = TiltFrame(["1s"], "ts", {"n": aggr.count()}, keys)
    results = finish(rollup(tmp_path / "rows.jsonl", frame), frame)
    values = [tuple(key.values()) if isinstance(key, dict) else key for key in results["tags"].to_pylist()]
    assert sorted(zip(values, results["n"].to_pylist(), strict=True), key=repr) == sorted(expected, key=repr)


@pytest.mark.slow
def test_a_stream_of_lines_refuses_fields_that_its_first_lines_lack():
    options = ["--time", "ts", "--key", "tags", "--measure", "n=count()", "--levels", "1s"]
    with subprocess.Popen(
        [sys.executable, "-m", "tiltframe.cli", "stream", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as stream:
        stream.stdin.write('{"ts": 0, "tags": {"host": "a", "at": "2024-05-01"}}\n{"ts": 2000, "tags": {}}\n')
        stream.stdin.flush()
        assert json.loads(stream.stdout.readline())["tags"] == {"host": "a", "at": "2024-05-01"}
        _, errors = stream.communicate('{"ts": 3000, "tags": {"host": "a", "rack": 7}}\n')
    assert stream.returncode == 2
    assert "do not have tags.rack; add such fields to the first row, with null if they have no value" in errors


@pytest.mark.store
def test_fields_that_a_file_lacks_are_null_in_a_store(tmp_path):
    frame = TiltFrame(["1s"], "ts", {"n": aggr.count()}, ["tags"])
    store = FrameStore(tmp_path / "store", frame)
    files = [
        [{"ts": 0, "tags": {"host": "a", "at": {"row": "r"}}}],
        [{"ts": 0, "tags": {"at": None, "host": "a"}}],
        [{"ts": 0, "tags": {"at": {"row": "r", "other": None}, "host": "a"}}],
        [{"ts": 0, "tags": None}],
    ]
    for number, rows in enumerate(files):
        write_lines(tmp_path / f"{number}.jsonl", rows)
        store.append_rows(tmp_path / f"{number}.jsonl", "w", number + 1)
    assert store.query(per="1s").select(["tags", "n"]).to_pylist() == [
        {"tags": {"host": "a", "at": {"row": "r"}}, "n": 2},
        {"tags": {"host": "a", "at": None}, "n": 1},
        {"tags": None, "n": 1},
    ]
    write_lines(tmp_path / "more.jsonl", [{"ts": 0, "tags": {"host": "a", "rack": 7}}])
    with pytest.raises(OtherFrame, match=r"contains struct<host.* in 'tags'; got struct<host: string, .*rack: int64>"):
        store.append_rows(tmp_path / "more.jsonl", "w", 9)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [1], "b c": 1}, r"the field 'a' of type list<.*; group by single fields, such as .*tags\.`b c`"),
        ({"a": 1, "b": {"c": [1]}}, r"the key 'tags\.b' is a struct with the field 'c' of type list<"),
        ({}, "the key 'tags' is a struct without fields"),
    ],
)
def test_fields_that_cannot_be_keys(value, message):
    with pytest.raises(TypeError, match=message):
        rollup(pa.table({"ts": [0], "tags": [value]}), TiltFrame(["1s"], "ts", {"n": aggr.count()}, ["tags"]))


def test_a_struct_with_two_fields_of_one_name():
    tags = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    with pytest.raises(TypeError, match="two fields called 'a'; rename one"):
        rollup(pa.table({"ts": [0], "tags": tags}), TiltFrame(["1s"], "ts", {"n": aggr.count()}, ["tags"]))


@pytest.mark.store
def test_names_of_fields_in_a_store_differ_by_more_than_case(tmp_path):
    frame = TiltFrame(["1s"], "ts", {"n": aggr.count()}, ["tags"])
    inner = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "A"])
    rows = pa.table({"ts": [0], "tags": pa.StructArray.from_arrays([inner], ["in"])})
    with pytest.raises(ValueError, match=r"the columns 'tags\.in\.a' and 'tags\.in\.A', which differ only by case"):
        FrameStore(tmp_path / "store", frame).append_rows(rows, "w", 1)


@pytest.mark.store
def test_a_field_that_a_query_does_not_find(store):
    store.append_rows(table_of([{"ts": 0, "tags": None, "x": 1}]), "w", 1)
    with pytest.raises(ValueError, match="there is no field 'rack'; there are host, at"):
        store.query(per="1m", keys=["tags.rack"])
    with pytest.raises(ValueError, match="there is no field 'rack'; there are host, at"):
        store.query(per="1m", where="tags.rack = 1")
