"""All kinds of inputs give the states of an Arrow table with the same rows."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import aggr
import tiltframe.cli as cli
from tiltframe import FrameStore, OrderedFrame, TiltFrame, finish, finish_ordered, ordered_rollup, rollup, running

FRAME = TiltFrame(
    ["10s", "1m"],
    "ts",
    {"n": aggr.count(), "latency": aggr.dds("ms", [0.5, 0.99]), "most": aggr.max("ms"), "name": aggr.last("route")},
    ["host"],
)
N = 300
ROWS = pa.table(
    {
        "ts": pa.array([1714521600_000_000 + 250_000 * i for i in range(N)]).cast(pa.timestamp("us", "UTC")),
        "host": [None if i % 7 == 0 else f"host-{i % 3}" for i in range(N)],
        "ms": [i * 37 % 101 + 0.5 for i in range(N)],
        "route": [f"/{i % 5}" for i in range(N)],
        "beside": list(range(N)),
    }
)
STATES = rollup(ROWS, FRAME)


def polars_frame(table, folder):
    return pytest.importorskip("polars").from_arrow(table)


def duckdb_relation(table, folder):
    duckdb = pytest.importorskip("duckdb")
    return duckdb.connect().from_arrow(table)


def pandas_frame(table, folder):
    pytest.importorskip("pandas")
    return table.to_pandas(types_mapper={pa.string(): __import__("pandas").ArrowDtype(pa.string())}.get)


def parquet(table, folder):
    pq.write_table(table, folder / "rows.parquet")
    return folder / "rows.parquet"


def folder_of_parquet(table, folder):
    (folder / "several").mkdir()
    for i in range(3):
        pq.write_table(table.slice(i * 100, 100 if i < 2 else None), folder / "several" / f"{i}.parquet")
    return str(folder / "several")


KINDS = {
    "reader": lambda table, folder: table.to_reader(max_chunksize=7),
    "batch": lambda table, folder: table.combine_chunks().to_batches()[0],
    "polars": polars_frame,
    "duckdb": duckdb_relation,
    "pandas": pandas_frame,
    "dataset": lambda table, folder: ds.dataset(table),
    "scanner": lambda table, folder: ds.dataset(table).scanner(),
    "parquet": parquet,
    "folder": folder_of_parquet,
}
OF_STATES = ("reader", "polars", "dataset", "scanner", "parquet")


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_any_kind(kind, tmp_path):
    assert rollup(KINDS[kind](ROWS, tmp_path), FRAME).equals(STATES)


def test_text_files_and_lists_of_them(tmp_path):
    pacsv.write_csv(ROWS.slice(0, 100), tmp_path / "a.csv")
    with gzip.open(tmp_path / "b.csv.gz", "wb") as file:
        pacsv.write_csv(ROWS.slice(100), file)
    assert rollup([tmp_path / "a.csv", str(tmp_path / "b.csv.gz")], FRAME).equals(STATES)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*OF_STATES, "duckdb"])
def test_states_of_any_kind(kind, tmp_path):
    make_states = lambda: KINDS[kind](STATES, tmp_path)  # noqa: E731
    assert finish(make_states(), FRAME).equals(finish(STATES, FRAME))
    store = FrameStore(tmp_path / "store", FRAME)
    assert store.append(make_states(), "test", 1)
    assert store.query("1m").drop_columns(["partial"]).equals(finish(STATES, FRAME).filter(ds.field("level") == "1m"))
    store.replace(make_states(), "2024-05-01 00:**:**")
    assert not FrameStore(store.uri).append(STATES, "test", 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["reader", "polars", "duckdb", "dataset", "parquet", "folder"])
def test_rows_in_order_of_any_kind(kind, tmp_path):
    rows = ROWS.drop_columns(["host"])
    frame = OrderedFrame({"fives": "count(5)"}, "ts", {"most": aggr.max("ms")})
    (tmp_path / "second").mkdir()
    totals = running(KINDS[kind](rows, tmp_path), {"total": aggr.sum("ms")}, time="ts")
    assert (
        totals.column("total").to_pylist() == running(rows, {"total": aggr.sum("ms")}, time="ts")["total"].to_pylist()
    )
    states = ordered_rollup(KINDS[kind](rows, tmp_path / "second"), frame)
    assert finish_ordered(states, frame).equals(finish_ordered(ordered_rollup(rows, frame), frame))


def test_only_the_columns_that_are_needed_are_read(tmp_path):
    class RecordedStates:
        """A dataset that remembers what was asked of it."""

        schema = ROWS.schema

        def scanner(self, columns):
            self.asked = columns
            return ds.dataset(ROWS).scanner(columns=columns)

    recorded_states = RecordedStates()
    assert rollup(recorded_states, FRAME).equals(STATES)
    assert "beside" not in recorded_states.asked


def test_no_rows():
    nothing = ROWS.slice(0, 0)
    assert rollup(nothing.to_reader(), FRAME).equals(rollup(nothing, FRAME))
    assert rollup(pa.RecordBatchReader.from_batches(ROWS.schema, iter([])), FRAME).num_rows == 0


@pytest.mark.parametrize("value", [pa.chunked_array([[1]]), ["a.csv", 5], object(), pa.schema([])])
def test_what_is_no_table(value):
    with pytest.raises(ValueError, match=r"data must be a pyarrow\.Table or dataset, .* got"):
        rollup(value, FRAME)
    with pytest.raises(ValueError, match=r"states must be a pyarrow\.Table or dataset, .* got"):
        finish(value, FRAME)


@pytest.mark.parametrize("path", ["nowhere.csv", ["nowhere.csv"], Path("nowhere.csv")])
def test_a_path_that_does_not_exist(path):
    for name, read in (("data", rollup), ("states", finish)):
        with pytest.raises(ValueError, match=rf"^{name}: there is no file or folder 'nowhere\.csv'; correct the path"):
            read(path, FRAME)


@pytest.mark.slow
def test_texts_that_parquet_holds_as_dictionaries(tmp_path):
    """Files with the same texts in other types, with nulls and without the column: as the rows in one table."""
    texts = pa.array([None if i % 7 == 0 else f"h{i * 31 % 11}" for i in range(500)])
    kinds = [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.null(), None]
    tables = []
    for i, kind in enumerate(kinds):
        plain = pa.nulls(500, pa.string()) if kind in (None, pa.null()) else texts
        rows = pa.table({"ts": range(i * 500, i * 500 + 500), "host": plain, "route": plain})
        tables.append(rows)
        if kind == pa.null():
            stored = pa.nulls(500)
        else:
            stored = texts.dictionary_encode() if i == 2 else texts.cast(kind or pa.string())
        written = pa.table({"ts": rows["ts"], **({"host": stored, "route": stored} if kind else {})})
        pq.write_table(written, tmp_path / f"{i}.parquet", use_dictionary=i != 1)
    measures = {
        "n": aggr.count(where="host <> 'h3' AND route LIKE 'h%'"),
        "last": aggr.last("route"),
        "least": aggr.min("host"),
    }
    frame = TiltFrame(["1s"], "ts", measures, {"host": "host", "up": "upper(route)", "route": "route"})
    states = rollup(pa.concat_tables(tables), frame)
    assert rollup(tmp_path, frame).equals(states)
    options = ["--time", "ts", "--levels", "1s", "--key", "host", "--key", "up=upper(route)", "--key", "route"]
    options += ["--measure", "n=count(where=\"host <> 'h3' AND route LIKE 'h%'\")"]
    options += ["--measure", "last=last(route)", "--measure", "least=min(host)", "--store", str(tmp_path / "store")]
    cli.main(["rollup", *map(str, sorted(tmp_path.glob("*.parquet"))), *options])
    result, expected = FrameStore(str(tmp_path / "store")).query("1s"), finish(states, frame)
    order = [(name, "ascending") for name in ("window_start", "host", "route")]
    for name in ("host", "up", "route", "n", "last", "least"):
        assert result.sort_by(order)[name].to_pylist() == expected.sort_by(order)[name].to_pylist(), name


def polars_columns(table):
    polars = pytest.importorskip("polars")
    codes = polars.Series(["x", "y"] * (len(table) // 2))
    return polars.from_arrow(table).with_columns(
        category=codes.cast(polars.Categorical),
        kind=codes.cast(polars.Enum(["x", "y"])),
        thing=polars.Series([object()] * len(table), dtype=polars.Object),
    )


def pandas_columns(table):
    pandas = pytest.importorskip("pandas")
    mixed = table.to_pandas().assign(mixed=[1, "x", None] * (len(table) // 3))
    return pandas.concat([mixed, mixed[["beside"]]], axis=1)


@pytest.mark.parametrize("make_column", [polars_columns, pandas_columns])
def test_columns_that_nobody_reads_may_be_of_any_kind(make_column):
    assert rollup(make_column(ROWS), FRAME).equals(STATES)


@pytest.mark.parametrize("name", ["category", "kind"])
def test_categories_of_polars_are_texts(name):
    frame, rows = TiltFrame(["1m"], "ts", {"n": aggr.count(), "most": aggr.max(name)}, [name]), polars_columns(ROWS)
    polars = pytest.importorskip("polars")
    texts = rows.drop("thing").with_columns(polars.col(name).cast(polars.String))
    assert rollup(rows, frame).equals(rollup(texts, frame))
    last = {"last": aggr.last("beside")}
    last_values = running(rows.drop("thing"), last, time="ts", keys=[name]).select([name, "ts", "last"])
    assert last_values.equals(running(texts, last, time="ts", keys=[name]).select([name, "ts", "last"]))


NOT_YET = {
    "lazy": (
        lambda: pytest.importorskip("polars").LazyFrame({"ts": [0]}),
        r"got a polars.LazyFrame: call .collect\(\) first",
    ),
    "a result": (
        lambda: pytest.importorskip("duckdb").connect().execute("SELECT 0 AS ts"),
        r"fetch the result with .arrow\(\)",
    ),
    "a column": (lambda: pytest.importorskip("pandas").Series([0]), r"call .to_frame\(\) first"),
    "mixed": (
        lambda: pandas_columns(ROWS).assign(ms=[1, "x", None] * 100),
        "column ms with type object; use values of a single type",
    ),
    "two": (
        lambda: pandas_columns(ROWS).assign(beside=0).rename(columns={"mixed": "host"}),
        "two columns called 'host'; rename",
    ),
    "without a key": (lambda: ROWS.to_pandas().drop(columns="host"), "no column 'host'; there are ts, ms, route, b"),
    "a dataset": (lambda: ds.dataset(ROWS.drop_columns("host")), "no column 'host'; there are ts, ms, route, b"),
}


@pytest.mark.parametrize("name", NOT_YET)
def test_what_is_no_table_yet_is_told_what_to_do(name):
    make, says = NOT_YET[name]
    with pytest.raises(ValueError, match=says) as error:
        rollup(make(), FRAME)
    assert len(str(error.value)) <= 300
