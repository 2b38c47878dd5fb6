"""Roll up a Parquet file on one kind of Spark, or on Sail, in this process, and print the digests of the results.

python -m tests.engines connect|cluster|sail FILE [PARTITIONS…] [store FOLDER]      also digests of stores after jobs
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import aggr
from aggr.arrow.bit_equality import digest
from aggr.tables.by_key import key_column, reduce_by
from aggr.tables.state_plan import plan
from tiltframe import FrameStore, TiltFrame, finish, rollup

FLAT = {
    "visitors": aggr.approx_count_distinct("i", k=64),
    "registers": aggr.hll("word", lg_k=8),
    "buckets": aggr.exponential("x", max_buckets=20),
    "candle": aggr.candlestick("price", volume="i"),
    "plot": aggr.m4("x"),
    "all": aggr.bool_and("i >= 0"),
    "bits": aggr.bit_xor("i"),
    "any": aggr.any_value("word"),
    "edges": aggr.histogram("i", [0, 1000, 500_000]),
    "geometric": aggr.geometric_mean("i"),
    "harmonic": aggr.harmonic_mean("x"),
}
LISTS = {  # of structs, which PostgreSQL does not keep
    "words": aggr.per("word", {"n": aggr.count(), "m": aggr.sum("i")}, max=3, beyond="sample"),
    "often": aggr.frequent("i", 0.2),
    "grown": aggr.increase("x"),
    "held": aggr.time_weighted_avg("price", "linear"),
    "steps": aggr.funnel("word", ["a", "zz"], max=20_000),
    "decayed": aggr.decayed_avg("i", "1h"),
    "best": aggr.top_k("word", by="i", k=3),
}
FLAT_FRAME = TiltFrame(
    levels=["1m", "1h", "1d", "1mo"],
    time="ts",
    keys=["host", "shelf"],
    timezone="America/New_York",
    measures={
        "rows": aggr.count(),
        "n": aggr.count("x"),
        "lo": aggr.min("word"),
        "hi": aggr.max("x"),
        "whole": aggr.sum("i"),
        "money": aggr.sum("price"),
        "mean": aggr.avg("x"),
        "var": aggr.var("x"),
        "sd": aggr.stdev("i"),
        "noon": aggr.avg("ts"),
        "d": aggr.dds("x", [0.5, 0.99]),
        "h": aggr.hdr("i", [0.5, 0.99], where="i >= 0"),
        "first": aggr.first("word"),
        "last": aggr.last("x"),
        "some": aggr.count(where="i > 5 AND host = 'a'"),
        **FLAT,
    },
)
FRAME = FLAT_FRAME.with_measures(LISTS)
OTHER_MEASURES = {"d": aggr.dds("price", [0.5]), "sd": aggr.stdev("i")}
ORDER = [("level", "ascending"), ("window_start", "ascending"), ("host", "ascending"), ("shelf", "ascending")]


def rows(n: int = 20_000, seed: int = 0) -> pa.Table:
    """Draw rows with nulls, NaN, infinities, cancellation, decimals, and an hour that the clock repeats."""
    rng = np.random.default_rng(seed)
    x = rng.lognormal(0, 40, n) * rng.choice([-1, 1], n)
    x[rng.random(n) < 0.01] = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324])
    start = 1_383_364_800_000_000  # 2013-11-02 in New York, the day before the clock goes back
    return pa.table(
        {
            "ts": pa.array(start + rng.integers(0, 3 * 86_400_000_000, n)).cast(pa.timestamp("us", "UTC")),
            "host": pa.array([None if k == 0 else "abc"[k - 1] for k in rng.integers(0, 4, n)]),
            "shelf": pa.array(rng.integers(0, 3, n)),
            "x": pa.array(x, mask=rng.random(n) < 0.05),
            "i": pa.array(rng.integers(-10, 10**6, n)),
            "price": pa.array(rng.integers(-(10**9), 10**9, n)).cast(pa.decimal128(19, 0)).cast(pa.decimal128(21, 2)),
            "word": pa.array(rng.choice(["", "a", "ä", "zz"], n)),
            "unread": pa.array(["x"] * n),
        }
    )


def digests(states: pa.Table, results: pa.Table) -> dict[str, str]:
    """Digest every column of states and results, rows in one order."""
    states, results = states.sort_by(ORDER), results.sort_by(ORDER)
    digests_of_columns = {name: digest(states.column(name)) for name in states.column_names}
    return digests_of_columns | {f"result {name}": digest(results.column(name)) for name in results.column_names}


def local(table: pa.Table) -> dict[str, str]:
    """Digest what the local engine gives."""
    states = rollup(table, FRAME)
    return digests(states, finish(states, FRAME))


def digests_of_others(spark: Any, df: Any, file: str) -> dict[str, list[str]]:
    """Ask for the same in every other way: two steps, files, UDAFs, SQL, accessors, interchange; by host."""
    import spark_udaf as su
    from spark_udaf import functions as A

    def read(rows: Any, column: str) -> list[str]:
        table = rows.toArrow().sort_by("host")
        return [repr(value) for value in table.column(column).to_pylist()]

    scan, each_core = su.scan_parquet(spark, file, rows_per_task=7000), su.scan_parquet(spark, file)
    fine = su.aggregate(df, ["host", "shelf"], OTHER_MEASURES)
    states = su.merge(fine, ["host"])
    su.register(spark)
    df.createOrReplaceTempView("rows")
    measures = dict(OTHER_MEASURES)
    d = su.from_dds_proto(su.to_dds_proto("d", keys="lower"), mins="d.min", maxs="d.max", keys="lower")
    median = states.select("host", su.states.quantile("d", 0.5).alias("q"))
    udaf = df.groupBy("host").agg(A.dds("price", [0.5]).getField("quantiles").getField("0.5").alias("q"))
    sql = "SELECT host, aggr_dds(price, array(0.5D)).quantiles['0.5'] AS q FROM rows GROUP BY host"
    return {
        "two steps": read(su.finish(states, measures), "d"),
        "files": read(su.finish(su.aggregate(scan, ["host"], OTHER_MEASURES), measures), "d"),
        "files, a task a core": read(su.finish(su.aggregate(each_core, ["host"], OTHER_MEASURES), measures), "d"),
        "median": read(median, "q"),
        "udaf": read(udaf, "q"),
        "sql": read(spark.sql(sql), "q"),
        "interchange": read(
            states.select("host", d.alias("d")).select("host", su.states.quantile("d", 0.5).alias("q")), "q"
        ),
    }


def others_local(table: pa.Table) -> dict[str, list[str]]:
    """Answer the same by the local engine."""
    states = reduce_by(table, {"host": key_column(table["host"])}, plan(OTHER_MEASURES))
    records = OTHER_MEASURES["d"].function.finish(states["d"]).to_pylist()
    all_records, medians = [repr(r) for r in records], [repr(r["quantiles"]["0.5"]) for r in records]
    named = {"two steps": all_records, "files": all_records, "files, a task a core": all_records}
    return named | dict.fromkeys(("median", "udaf", "sql", "interchange"), medians)


STORE_FRAME = TiltFrame(
    levels=["1m", "1h", "1d"],
    time="ts",
    keys=["host", "shelf"],
    timezone="America/New_York",
    measures={
        "rows": aggr.count(),
        "money": aggr.sum("price"),
        "d": aggr.dds("x", [0.5]),
        "first": aggr.first("word"),
        "peak": aggr.arg_max("word", by="x"),
        "mean": aggr.weighted_avg("x", weight="i"),
        "corr": aggr.corr("x", x="i"),
        "skewness": aggr.skewness("x"),
        **FLAT,
    },
)


@dataclass(frozen=True)
class FailsOnce:
    """What keeps a store, but that the first write of a task fails when its files are there."""

    backend: Any
    mark: str

    def write(self, *arguments: Any) -> Any:
        parts = self.backend.write(*arguments)
        try:
            os.mkdir(self.mark)
        except FileExistsError:
            return parts
        raise OSError("the disk was pulled out")

    def __getattr__(self, name: str) -> Any:
        if name in ("backend", "mark"):  # while it is unpickled
            raise AttributeError(name)
        return getattr(self.backend, name)


def digests_of_store(store: FrameStore) -> dict[str, str]:
    """Digest the states of every level."""
    levels = {level.name: store.states(level.name) for level in store.frame.levels}
    return {f"{name} {c}": digest(states.column(c)) for name, states in levels.items() for c in states.column_names}


def store(spark: Any, file: str, folder: str, kind: str) -> dict[str, Any]:
    """Write into stores in every way, and read one as a table, which Sail cannot."""
    import spark_udaf as su

    retries = kind == "cluster"
    df, scan = spark.read.parquet(file).repartition(3), su.scan_parquet(spark, file, rows_per_task=7000)
    names = ["rows"] if retries else ["rows", "files", "states"]
    stores = {name: FrameStore(f"{folder}/{name}", STORE_FRAME) for name in names}
    if retries:
        stores["rows"].ensure_created(STORE_FRAME.states_schema(scan.schema))
        stores["rows"]._backend = FailsOnce(stores["rows"].backend, f"{folder}/failed")
    new = [su.rollup_into(df, stores["rows"], "w", 1)]
    if not retries:
        new += [
            su.rollup_into(scan, stores["files"], "w", 1),
            su.append(su.rollup(df, STORE_FRAME), stores["states"], "w", 1),
        ]
    new.append(su.rollup_into(df.repartition(2), stores["rows"], "w", 1))
    assert not retries or os.path.exists(f"{folder}/failed")
    if retries:  # Connect's server finds what is installed where it runs, and this may not be
        hours = spark.read.format("tiltframe").option("per", "1h").load(stores["rows"].uri)
        assert hours.count() == stores["rows"].query("1h").num_rows
    digests_by_store = {name: digests_of_store(FrameStore(one_store.uri)) for name, one_store in stores.items()}
    if kind == "sail":
        return {"new": new, "stores": digests_by_store}
    read = su.read(spark, stores["rows"].uri, per="1h", where="host = 'a' AND shelf > 0", rows_per_task=100)
    results = read.toArrow().sort_by(ORDER)
    query = stores["rows"].query("1h", where="host = 'a' AND shelf > 0").sort_by(ORDER)
    same = {name: digest(results.column(name)) == digest(query.column(name)) for name in query.column_names}
    return {"new": new, "read": all(same.values()), "seen": len(query), "stores": digests_by_store}


def in_order(file: str) -> str:
    """Write the rows of a file close together and in the order of time, so that tasks finish most of their windows."""
    table = pq.read_table(file)
    times = table["ts"].cast(pa.int64()).to_numpy()
    close = pa.array(times.min() + (times - times.min()) // 40).cast(pa.timestamp("us", "UTC"))
    other = file.removesuffix(".parquet") + "-in-order.parquet"
    pq.write_table(table.set_column(0, "ts", close).sort_by("ts"), other, row_group_size=1500)
    return other


@contextmanager
def session(kind: str, more: Mapping[str, str] | None = None) -> Iterator[Any]:
    """Start Spark of a kind, with more settings, and stop it; sail needs the extra of that name, and no Java."""
    if kind == "sail":
        from spark_udaf.sail import sail_session

        with sail_session() as spark:
            spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
            yield spark
        return
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    if kind == "cluster":  # two worker processes, each its own JVM and Python
        import pyspark

        os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    from pyspark.sql import SparkSession

    if kind == "connect":
        builder = SparkSession.builder.remote("local[2]")
        lock = os.open(Path(tempfile.gettempdir()) / "tiltframe-tests-connect.lock", os.O_CREAT | os.O_RDWR)
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the process ends: PySpark's server has one port
    else:
        builder = SparkSession.builder.master("local-cluster[2,1,1024]" if kind == "cluster" else "local[2]")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.session.timeZone": "Asia/Tokyo",  # must not matter
        "spark.driver.host": "127.0.0.1",
    }
    if kind == "cluster":  # its tests are about executors, and keep Spark's own daemon
        settings["spark.executor.extraJavaOptions"] = os.environ.get("SPARK_SUBMIT_OPTS", "")
    else:
        settings["spark.python.daemon.module"] = "spark_udaf.daemon"  # a second less for each worker
    for name, value in {**settings, **(more or {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


SMALL_JOBS = {  # planned and compiled in less time than their rows take
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}


@contextmanager
def settings(spark: Any, values: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session within a block."""
    before = {name: spark.conf.get(name, None) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            _ = spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def rollups(spark: Any, file: str, partitions: Iterable[int]) -> Iterator[dict[str, str]]:
    """Roll up a file in each number of partitions, and its rows in the order of time; digest states and results."""
    import spark_udaf as su

    frames = [spark.read.parquet(file).repartition(count) for count in partitions]
    for rows in [*frames, su.scan_parquet(spark, in_order(file), rows_per_task=7000)]:
        states = su.rollup(rows, FRAME)
        results = su.finish(states, FRAME)
        yield digests(states.toArrow(), results.toArrow())


def main(kind: str, file: str, *words: str) -> None:
    """Print one line of digests for each number of partitions, and one for each of the other comparisons."""
    partitions = [int(word) for word in words if word.isdigit()]
    with session(kind) as spark:
        if partitions:
            for digests_of_rollup in rollups(spark, file, partitions):
                print("digests", json.dumps(digests_of_rollup), flush=True)
            if kind != "cluster":  # calls of the driver, which are those of classic Spark
                df = spark.read.parquet(file).repartition(partitions[-1])
                print("others", json.dumps(digests_of_others(spark, df, file)), flush=True)
        if "store" in words:
            print("store", json.dumps(store(spark, file, words[-1], kind)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
