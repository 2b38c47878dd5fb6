"""Flat results have the same names and values from every way of reading, and plain tables are updated."""

from __future__ import annotations

import datetime as dt
import io
import math

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import aggr
from aggr.tables.flat_results import flattened
from tiltframe import FrameStore, StoreError, TiltFrame, finish, rollup
from tiltframe.cli.output import write_results
from tiltframe.store.backends.postgres.session import session
from tiltframe.store.testing import MemoryBackend

FRAME = TiltFrame(
    ["1m", "1h"],
    "ts",
    {
        "requests": aggr.count(),
        "bytes": aggr.sum("bytes"),
        "latency": aggr.dds("ms", [0.5, 0.99, 0.999]),
        "took": aggr.hdr("whole", [0.5]),
        "last_route": aggr.last("route"),
    },
    ["host"],
)
START = 1714521600_000


def rows(first=0, n=5000):
    return pa.table(
        {
            "ts": [START + 1500 * i for i in range(first, first + n)],
            "host": [None if i % 5 == 0 else f"h'{i % 3}" for i in range(first, first + n)],
            "bytes": [i * 7919 % 10007 for i in range(first, first + n)],
            "ms": [(i * 7919 % 1009) / 7 for i in range(first, first + n)],
            "whole": [i * 7919 % 1009 for i in range(first, first + n)],
            "route": [f"/{i % 4}" for i in range(first, first + n)],
        }
    )


NAMES = [
    "requests",
    "bytes",
    "latency_count",
    "latency_sum",
    "latency_min",
    "latency_max",
    "latency_mean",
    "latency_p50",
    "latency_p99",
    "latency_p99_9",
    "took_count",
    "took_min",
    "took_max",
    "took_mean",
    "took_stdev",
    "took_var",
    "took_p50",
    "last_route",
]
COLUMNS_OF_WINDOWS = ("level", "window_start", "window_end", "host", "partial")


def values(table, names=NAMES):
    """Give rows of plain values in the order of window and host; whole sums as numbers."""
    plain_rows = []
    for row in table.select(["window_start", "host", *names]).to_pylist():
        row["window_start"] = row["window_start"].astimezone(dt.UTC)
        plain_rows.append({k: int(v) if k == "bytes" else v for k, v in row.items()})  # PostgreSQL's are numeric
    return sorted(plain_rows, key=lambda row: (row["window_start"], row["host"] or ""))


def expected(per):
    """Evaluate naively, row by row, what needs no sketch."""
    size = {"1m": 60_000, "1h": 3_600_000}[per]
    groups = {}
    for row in rows().to_pylist():
        groups.setdefault((row["ts"] // size * size, row["host"]), []).append(row)
    return {
        key: (
            len(rows_of_group),
            sum(r["bytes"] for r in rows_of_group),
            len(rows_of_group),
            min(r["ms"] for r in rows_of_group),
            math.fsum(r["ms"] for r in rows_of_group),
        )
        for key, rows_of_group in groups.items()
    }


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
def test_the_same_names_and_values_from_all_ways(spark, postgres, tmp_path):
    import spark_udaf as su

    states = rollup(rows(), FRAME)
    store, database = FrameStore(tmp_path / "store", FRAME), FrameStore(postgres, FRAME, name="web")
    for target in (store, database):
        target.append(states, "test", 1)
    assert database.export() == {
        level.name: states.filter(pc.field("level") == level.name).num_rows for level in FRAME.levels
    }
    store.export(per="1h", flat=True)
    hours = states.filter(pc.field("level") == "1h")
    with session(postgres) as db:
        view = db.ask("SELECT * FROM web_1h_current")
    parquet = str(tmp_path / "states.parquet")
    pq.write_table(hours, parquet)
    loaded = spark.read.format("tiltframe")
    su.read(spark, store.uri, per="1h")  # which makes the source known
    ways = {
        "finish": finish(hours, FRAME, flat=True),
        "query": store.query("1h", flat=True),
        "query of a database": database.query("1h", flat=True),
        "su.finish": su.finish(su.scan_parquet(spark, parquet), FRAME, flat=True).toArrow(),
        "su.finish of a rollup": su.finish(su.rollup(spark.createDataFrame(rows()), FRAME), FRAME, flat=True)
        .where("level = '1h'")
        .toArrow(),
        "su.read": su.read(spark, store.uri, per="1h", flat=True).toArrow(),
        "data source": loaded.option("per", "1h").option("flat", "true").load(store.uri).toArrow(),
        "view": view,
        "export": deltalake.DeltaTable(str(tmp_path / "store" / "frame_1h_flat")).to_pyarrow_table(),
    }
    naive = expected("1h")
    for way, table in ways.items():
        named = [
            name
            for name in table.column_names
            if name not in ("level", "window_start", "window_end", "host", "partial")
        ]
        assert named == NAMES, way
        assert values(table) == values(ways["finish"]), way
        assert ("partial" in table.column_names) == ("finish" not in way), way
    for row in values(ways["view"]):
        key = (int(row["window_start"].timestamp() * 1000), row["host"])
        assert (
            tuple(row[name] for name in ("requests", "bytes", "latency_count", "latency_min", "latency_sum"))
            == naive[key]
        )
    written = io.BytesIO()
    write_results([store.query("1h")], "csv", False, written)
    header = written.getvalue().decode().splitlines()[0].replace('"', "").split(",")
    assert header == ["window_start", "window_end", "host", *NAMES, "partial"]


def test_names_that_clash_are_refused():
    frame = TiltFrame(["1m"], "ts", {"ms": aggr.dds("ms"), "ms_count": aggr.count()})
    with pytest.raises(ValueError, match=r"two columns 'ms_count'; rename the key or the measure"):
        finish(rollup(rows(), frame), frame, flat=True)


def test_a_record_that_is_null_is_null_in_every_column():
    record = pa.array([{"count": 1, "quantiles": {"0.5": 2.0}}, None])
    assert flattened(pa.table({"x": record})).to_pydict() == {"x_count": [1, None], "x_p50": [2.0, None]}


def test_order_by_flat_names(tmp_path):
    store = FrameStore(tmp_path / "store", FRAME)
    store.append(rollup(rows(), FRAME), "test", 1)
    by = store.query("1m", order_by="latency_p99 desc", limit=3)
    assert by.equals(store.query("1m", order_by="latency.quantiles.0.99 desc", limit=3))
    assert store.query("1m", order_by="latency_p99 desc", limit=3, flat=True).equals(flattened(by))


def plain(store, level):
    """Read a plain table as another tool does."""
    if store.uri.startswith("postgres"):
        with session(store.uri) as db:
            return db.ask(f"SELECT * FROM frame_{level}_flat")
    return deltalake.DeltaTable(f"{store.uri}/frame_{level}_flat").to_pyarrow_table()


@pytest.mark.long
@pytest.mark.slow
def test_plain_tables_are_kept_up_to_date(place):
    store = FrameStore(place, FRAME)
    now = START + 3_600_000
    store.append(rollup(rows(), FRAME), "test", 1)
    assert store.export(now=now)["1m"] == store.query("1m").num_rows
    assert store.export(now=now)["1m"] < store.query("1m").num_rows  # only the windows that were not over
    steps = {
        "a commit": lambda: store.append(rollup(rows(4990, 100), FRAME), "test", 2),
        "a commit of later rows": lambda: store.append(rollup(rows(90_000, 10), FRAME), "test", 3),
        "a compaction": lambda: store.compact(),
        "a replacement": lambda: store.replace(rollup(rows(0, 40), FRAME), "2024-05-01 00:00:**"),
        "nothing": lambda: None,
    }
    for step, change in steps.items():
        change()
        if step != "a compaction":  # which does so itself
            store.export(now=now)
        for level in ("1m", "1h"):
            results = store.query(level, flat=True)
            assert values(plain(store, level)) == values(results), step
    partial = {r["window_start"]: r["partial"] for r in plain(store, "1h").to_pylist()}
    assert set(partial.values()) == {True, False}
    assert store.verify().ok


@pytest.mark.slow
def test_the_view_shows_no_quantile_that_is_out_of_date(postgres):
    store = FrameStore(postgres, FRAME)
    store.append(rollup(rows(), FRAME), "test", 1)

    def view():
        with session(postgres) as db:
            return {(r["window_start"], r["host"]): r for r in db.ask("SELECT * FROM frame_1h_current").to_pylist()}

    assert {row["latency_p99"] for row in view().values()} == {None}  # nothing is kept yet
    store.compact()
    before = view()
    assert None not in {row["latency_p99"] for row in before.values()}
    store.append(rollup(rows(0, 1), FRAME), "test", 2)  # one row, of the first hour and no host
    after = view()
    changed = [key for key in after if after[key] != before[key]]
    assert len(changed) == 1
    assert (after[changed[0]]["latency_p99"], after[changed[0]]["latency_count"]) == (
        None,
        before[changed[0]]["latency_count"] + 1,
    )
    store.export("1h")
    results = store.query("1h", flat=True)
    with session(postgres) as db:
        assert values(db.ask("SELECT * FROM frame_1h_current")) == values(results)
        (comment,) = db.rows("SELECT obj_description('frame_1h_current'::regclass) AS text")
    assert "As of the last compact or export" in comment["text"]


def test_a_backend_without_plain_tables_says_so():
    store = FrameStore(MemoryBackend("test"), FRAME)
    store.append(rollup(rows(), FRAME), "test", 1)
    with pytest.raises(StoreError, match="does not support plain tables"):
        store.export()
    store.compact()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
def test_states_of_a_store_as_a_dataframe(spark, tmp_path):
    import spark_udaf as su

    store, other = FrameStore(tmp_path / "store", FRAME), FrameStore(tmp_path / "other", FRAME)
    store.append(rollup(rows(), FRAME), "test", 1)
    within = "2024-05-01 00:**:**"
    old = su.read_states(spark, store.uri, per="1m", within=within)
    assert (
        old.toArrow()
        .sort_by([("window_start", "ascending"), ("host", "ascending")])
        .equals(store.states("1m", within).sort_by([("window_start", "ascending"), ("host", "ascending")]))
    )
    assert values(su.finish(old, FRAME, flat=True).toArrow()) == values(store.query("1m", within, flat=True))
    new = spark.createDataFrame(rows(0, 40).to_pandas()).selectExpr("timestamp_millis(ts) AS ts", "* EXCEPT (ts)")
    states = su.rollup(new, FRAME).where("level = '1m'")
    assert su.append(old.unionByName(states), other, "test", 1)
    store.append(rollup(rows(0, 40), FRAME), "test", 2)
    assert values(other.query("1h", flat=True)) == values(store.query("1h", "2024-05-01 00", flat=True))
    with pytest.raises(ValueError, match="has no level '2h'"):
        su.read_states(spark, store.uri, per="2h")
