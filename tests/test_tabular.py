"""Inputs of every kind give the states that the same rows give as an Arrow table."""

from __future__ import annotations

import gzip

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import aggr
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


@pytest.mark.parametrize("kind", [*OF_STATES, "duckdb"])
def test_states_of_any_kind(kind, tmp_path):
    given = lambda: KINDS[kind](STATES, tmp_path)  # noqa: E731
    assert finish(given(), FRAME).equals(finish(STATES, FRAME))
    store = FrameStore(tmp_path / "store", FRAME)
    assert store.append(given(), "test", 1)
    assert store.query("1m").drop_columns(["partial"]).equals(finish(STATES, FRAME).filter(ds.field("level") == "1m"))
    store.replace(given(), "2024-05-01 00:**:**")
    assert not FrameStore(store.uri).append(STATES, "test", 1)


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
    class Told:
        """A dataset that remembers what was asked of it."""

        schema = ROWS.schema

        def scanner(self, columns):
            self.asked = columns
            return ds.dataset(ROWS).scanner(columns=columns)

    told = Told()
    assert rollup(told, FRAME).equals(STATES)
    assert "beside" not in told.asked


def test_no_rows():
    nothing = ROWS.slice(0, 0)
    assert rollup(nothing.to_reader(), FRAME).equals(rollup(nothing, FRAME))
    assert rollup(pa.RecordBatchReader.from_batches(ROWS.schema, iter([])), FRAME).num_rows == 0


@pytest.mark.parametrize("given", [pa.chunked_array([[1]]), "nowhere.csv", ["a.csv", 5], object(), pa.schema([])])
def test_what_is_no_table(given):
    with pytest.raises(ValueError, match=r"data must be a pyarrow\.Table, .* got"):
        rollup(given, FRAME)
    with pytest.raises(ValueError, match=r"states must be a pyarrow\.Table, .* got"):
        finish(given, FRAME)
