"""The same rows give the same bits in local tables and on every kind of Spark."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_udaf.plan.conservation import Message
from spark_udaf.plan.shard_messages import Content
from tests import engines
from tiltframe import FrameStore, rollup

pytestmark = pytest.mark.spark


@pytest.mark.long
def test_engines_agree_to_the_bit(spark, tmp_path):
    table = engines.rows()
    file = str(tmp_path / "rows.parquet")
    pq.write_table(table, file)
    expected = [engines.local_digests(table), engines.local_digests(pq.read_table(engines.write_in_order(file)))]
    assert list(engines.rollup_digests(spark, file, [17])) == expected
    df = spark.read.parquet(file).repartition(17)
    assert engines.results_of_other_ways(spark, df, file) == engines.local_results_of_other_ways(table)


@pytest.mark.parametrize(("kind", "partitions"), [("connect", 5), ("cluster", 4)])
@pytest.mark.long
def test_other_kinds_of_spark_agree_to_the_bit_and_fill_stores(kind, partitions, tmp_path):
    """One session for rollups and stores, and fewer rows: its start and the first jobs take most of the time."""
    file, table = str(tmp_path / "rows.parquet"), engines.rows(6000)
    pq.write_table(table, file, row_group_size=1500)
    command = [sys.executable, "-m", "tests.engines", kind, file, str(partitions), "store", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    answers = [line.partition(" ") for line in done.stdout.splitlines()]
    parsed = [(name, json.loads(text)) for name, _, text in answers if name in ("digests", "others", "store")]
    close = engines.local_digests(pq.read_table(engines.write_in_order(file)))
    expected = [("digests", engines.local_digests(table)), ("digests", close)]
    if kind == "connect":
        expected.append(("others", engines.local_results_of_other_ways(table)))
    assert parsed[:-1] == expected, done.stderr[-3000:]
    name, outcome = parsed[-1]
    assert name == "store", done.stderr[-3000:]
    assert outcome["new"] == [True] * len(outcome["stores"]) + [False]
    assert outcome["read"]
    assert outcome["seen"] > 10
    store = FrameStore(tmp_path / "local", engines.STORE_FRAME)
    store.append(rollup(table, engines.STORE_FRAME), "w", 1)
    assert list(outcome["stores"].values()) == [engines.digests_of_store(store)] * len(outcome["stores"])


def test_batch_bytes_are_set_unless_the_user_has(spark):
    import spark_udaf as su

    name = "spark.sql.execution.arrow.maxBytesPerBatch"
    df = spark.createDataFrame(engines.rows(10))
    su.rollup(df, engines.FRAME)
    assert spark.conf.get(name) == str(2**31 - 1)
    spark.conf.set(name, "1048576")
    su.rollup(df, engines.FRAME)
    assert spark.conf.get(name) == "1048576"
    spark.conf.unset(name)


def test_columns_of_plain_names_reach_python_without_a_copy(spark):
    import aggr
    import spark_udaf as su
    from tiltframe import TiltFrame

    def rolled(name, other_names=()):
        table = engines.rows(50).select(["ts", "i", "x"]).rename_columns(["ts", name, "other"])
        for other in other_names:
            table = table.append_column(other, table.column(name))
        frame = TiltFrame(["1d"], "ts", {"n": aggr.sum(f"`{name}`")})
        df = su.finish(su.rollup(spark.createDataFrame(table), frame), frame)
        plan = df._jdf.queryExecution().optimizedPlan().toString()
        return "c1#" in plan, sorted(map(str, df.select("window_start", "n").collect()))

    copied, expected = rolled("value")
    assert (copied, len(expected)) == (False, 4)  # three days of New York are on four of UTC
    assert rolled("a.b") == (True, expected)
    spark.conf.set("spark.sql.caseSensitive", "true")
    case_sensitive = rolled("value", ["Value"])
    spark.conf.unset("spark.sql.caseSensitive")
    assert case_sensitive == (True, expected)


def test_what_does_not_fit_is_refused_before_a_job(spark):
    import aggr
    import spark_udaf as su
    from tiltframe import TiltFrame

    df = spark.createDataFrame(engines.rows(10))
    with pytest.raises(ValueError, match="no column 'latency'"):
        su.rollup(df, TiltFrame(["1h"], "ts", {"p": aggr.dds("latency")}))
    with pytest.raises(TypeError, match="sum cannot take a column of type string"):
        su.rollup(df, TiltFrame(["1h"], "ts", {"p": aggr.sum("word")}))
    with pytest.raises(ValueError, match="not states of this frame"):
        su.finish(df, engines.FRAME)


def test_an_error_in_a_worker_names_the_measure(spark):
    import aggr
    import spark_udaf as su
    from tiltframe import TiltFrame

    df = spark.createDataFrame(engines.rows(10))
    with pytest.raises(Exception, match=r"hdr\('i', digits=2\): hdr accepts only numbers of at least 0"):
        su.rollup(
            df.selectExpr("ts", "-abs(i) - 1 AS i"), TiltFrame(["1h"], "ts", {"p": aggr.hdr("i", digits=2)})
        ).collect()


def test_an_empty_dataframe_has_no_windows(spark):
    import spark_udaf as su

    df = spark.createDataFrame(engines.rows(10)).where("false")
    states = su.rollup(df, engines.FRAME)
    assert su.finish(states, engines.FRAME).count() == 0
    assert states.columns == engines.FRAME.states_schema(engines.rows(1).schema).names


@pytest.mark.long
def test_states_travel_through_parquet_and_sql(spark, tmp_path):
    import spark_udaf as su

    table = engines.rows(2000)
    states = su.rollup(spark.createDataFrame(table), engines.FRAME)
    states.write.parquet(str(tmp_path / "states"))
    back = spark.read.parquet(str(tmp_path / "states"))
    united = back.where("level = '1h'").union(back.where("level <> '1h'"))
    results = su.finish(united, engines.FRAME)
    assert engines.digests(united.toArrow(), results.toArrow()) == engines.local_digests(table)


def test_shards_are_cut_only_where_they_end(monkeypatch):
    """Small buffers, so that a shard is often longer."""
    module = importlib.import_module("spark_udaf.plan.two_phase")
    shards = ([0, 0, 1], [1, 1], [], [1, 2], [3], [3, 3, 3], [4, 5, 6, 6])
    messages = [Message(p, f"{p:09}".encode(), Content.STATES, 1) for part in shards for p in part]
    for limit in (1, 20, 40, 60, 2000):
        monkeypatch.setattr(module, "MAX_STATE_BYTES", limit)
        pieces = [[int(message.data) for message in piece] for piece in module._whole_shards(iter(messages))]
        assert [s for piece in pieces for s in piece] == [s for part in shards for s in part]
        assert all(not set(a) & set(b) for i, a in enumerate(pieces) for b in pieces[i + 1 :])
        assert len(pieces) >= (2 if limit < 50 else 1)


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["", "a", "b", "ab", "ba", None, "a\x00", "ä"]),
        pa.array([b"", b"a", b"b", b"ab", b"ba", None, b"a\x00", b"\x00"]),
        pa.array([0, 1, 2, -1, 2**62, None, -(2**63), 256]),
        pa.array([0, 1, 2, 3, 2**63, None, 2**64 - 1, 256], pa.uint64()),
        pa.array([0.0, 1.0, 0.5, -1.0, 1e300, None, float("inf"), float("nan")]),
        pa.array([0, 1, 2, -1, 2**40, None, 7, 256], pa.timestamp("us", "UTC")),
        pa.array([0, 1, 2, -1, 20000, None, 7, 256], pa.date32()),
        pa.array([0, 1, 2, -1, 20000, None, 7, 256]).cast(pa.decimal128(38, 2)),
        pa.array([False, True, None]),
    ],
    ids=lambda column: str(column.type),
)
def test_shards_tell_values_apart_and_equal_ones_together(column):
    from spark_udaf.plan.shards import shard_of

    words = shard_of([column], 1 << 30)
    assert len(set(words.tolist())) == len(column)
    back = pa.concat_arrays([column.slice(2), column.slice(0, 2)])
    assert shard_of([back], 1 << 30).tolist() == [*words[2:].tolist(), *words[:2].tolist()]
    assert shard_of([back.slice(1, 1)], 1 << 30)[0] == shard_of([back], 1 << 30)[1]


def test_shards_are_filled_evenly():
    from spark_udaf.plan.shards import shard_of

    for column in (pa.array(range(64_000)), pa.array([f"host-{i}" for i in range(64_000)])):
        filled = np.bincount(shard_of([column, column], 64), minlength=64)
        assert 800 < filled.min() <= filled.max() < 1200
