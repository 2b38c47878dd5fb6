"""Roll up a Parquet file on one kind of Spark, or on Sail, in this process, and print the digests of the results.

python -m tests.engines connect|cluster|sail FILE [PARTITIONS…] [store FOLDER]

With ``store``, jobs also write stores in FOLDER, and the digests of their states are printed.
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
from aggr.tables.state_plan import plan_state_columns
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
LISTS = {  # measures whose states contain lists of structs, which the PostgreSQL backend does not store
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
    """Return random rows with nulls, NaN, infinities, doubles that cancel each other, decimals, and times in an hour
    that the local clock repeats.
    """
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
    """Return the digest of each column of states and results, which are sorted by `ORDER`."""
    states, results = states.sort_by(ORDER), results.sort_by(ORDER)
    digests_of_columns = {name: digest(states.column(name)) for name in states.column_names}
    return digests_of_columns | {f"result {name}": digest(results.column(name)) for name in results.column_names}


def local_digests(table: pa.Table) -> dict[str, str]:
    """Return the digests of a rollup without Spark."""
    states = rollup(table, FRAME)
    return digests(states, finish(states, FRAME))


def results_of_other_ways(spark: Any, df: Any, file: str) -> dict[str, list[str]]:
    """Return the results by host of every other way to aggregate on Spark: two steps, files, UDAFs, SQL, accessors and
    interchange. The results are texts.
    """
    import spark_udaf as su
    from spark_udaf import functions as A

    def read_column(rows: Any, column: str) -> list[str]:
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
        "two steps": read_column(su.finish(states, measures), "d"),
        "files": read_column(su.finish(su.aggregate(scan, ["host"], OTHER_MEASURES), measures), "d"),
        "files, a task a core": read_column(
            su.finish(su.aggregate(each_core, ["host"], OTHER_MEASURES), measures), "d"
        ),
        "median": read_column(median, "q"),
        "udaf": read_column(udaf, "q"),
        "sql": read_column(spark.sql(sql), "q"),
        "interchange": read_column(
            states.select("host", d.alias("d")).select("host", su.states.quantile("d", 0.5).alias("q")), "q"
        ),
    }


def local_results_of_other_ways(table: pa.Table) -> dict[str, list[str]]:
    """Return the results of `results_of_other_ways`, computed without Spark."""
    states = reduce_by(table, {"host": key_column(table["host"])}, plan_state_columns(OTHER_MEASURES))
    records = OTHER_MEASURES["d"].function.finish(states["d"]).to_pylist()
    all_records, medians = [repr(r) for r in records], [repr(r["quantiles"]["0.5"]) for r in records]
    results_of_ways = {"two steps": all_records, "files": all_records, "files, a task a core": all_records}
    return results_of_ways | dict.fromkeys(("median", "udaf", "sql", "interchange"), medians)


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
    """A backend of a store. The first write fails after it has written its files, and creates the folder ``marker``."""

    backend: Any
    marker: str

    def write(self, *arguments: Any) -> Any:
        parts = self.backend.write(*arguments)
        try:
            os.mkdir(self.marker)
        except FileExistsError:
            return parts
        raise OSError("the disk was pulled out")

    def __getattr__(self, name: str) -> Any:
        if name in ("backend", "marker"):  # these attributes do not exist yet while the object is unpickled
            raise AttributeError(name)
        return getattr(self.backend, name)


def digests_of_store(store: FrameStore) -> dict[str, str]:
    """Return the digests of the states of every level."""
    levels = {level.name: store.states(level.name) for level in store.frame.levels}
    return {f"{name} {c}": digest(states.column(c)) for name, states in levels.items() for c in states.column_names}


def store_digests(spark: Any, file: str, folder: str, kind: str) -> dict[str, Any]:
    """Write stores in every way, and read one of them as a table, except on Sail. Return the digests of the stores, and
    whether the results that were read are equal to those of a query.
    """
    import spark_udaf as su

    fails_once = kind == "cluster"
    df, scan = spark.read.parquet(file).repartition(3), su.scan_parquet(spark, file, rows_per_task=7000)
    names = ["rows"] if fails_once else ["rows", "files", "states"]
    stores = {name: FrameStore(f"{folder}/{name}", STORE_FRAME) for name in names}
    if fails_once:
        stores["rows"].ensure_created(STORE_FRAME.states_schema(scan.schema))
        stores["rows"]._backend = FailsOnce(stores["rows"].backend, f"{folder}/failed")
    new = [su.rollup_into(df, stores["rows"], "w", 1)]
    if not fails_once:
        new += [
            su.rollup_into(scan, stores["files"], "w", 1),
            su.append(su.rollup(df, STORE_FRAME), stores["states"], "w", 1),
        ]
    new.append(su.rollup_into(df.repartition(2), stores["rows"], "w", 1))
    assert not fails_once or os.path.exists(f"{folder}/failed")
    if fails_once:  # the data source may not be installed where the server of Spark Connect runs
        hours = spark.read.format("tiltframe").option("per", "1h").load(stores["rows"].uri)
        assert hours.count() == stores["rows"].query("1h").num_rows
    digests_by_store = {name: digests_of_store(FrameStore(one_store.uri)) for name, one_store in stores.items()}
    if kind == "sail":
        return {"new": new, "stores": digests_by_store}
    store_table = su.read(spark, stores["rows"].uri, per="1h", where="host = 'a' AND shelf > 0", rows_per_task=100)
    results = store_table.toArrow().sort_by(ORDER)
    query = stores["rows"].query("1h", where="host = 'a' AND shelf > 0").sort_by(ORDER)
    equal_columns = {name: digest(results.column(name)) == digest(query.column(name)) for name in query.column_names}
    return {"new": new, "read": all(equal_columns.values()), "seen": len(query), "stores": digests_by_store}


def write_in_order(file: str) -> str:
    """Write the rows of a file in the order of time, with times that are close together, so that tasks finish most of
    their windows before the shuffle. Return the path of the new file.
    """
    table = pq.read_table(file)
    times = table["ts"].cast(pa.int64()).to_numpy()
    close_times = pa.array(times.min() + (times - times.min()) // 40).cast(pa.timestamp("us", "UTC"))
    target = file.removesuffix(".parquet") + "-in-order.parquet"
    pq.write_table(table.set_column(0, "ts", close_times).sort_by("ts"), target, row_group_size=1500)
    return target


@contextmanager
def session(kind: str, more_settings: Mapping[str, str] | None = None) -> Iterator[Any]:
    """Start a kind of Spark, yield its session, and stop it. ``kind`` is "classic", "connect", "cluster" or "sail",
    which needs the extra of this name but not Java.
    """
    if kind == "sail":
        from spark_udaf.sail import sail_session

        with sail_session() as spark:
            spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
            yield spark
        return
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    if kind == "cluster":  # two executors, each in its own JVM
        import pyspark

        os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    from pyspark.sql import SparkSession

    if kind == "connect":
        builder = SparkSession.builder.remote("local[2]")
        lock = os.open(Path(tempfile.gettempdir()) / "tiltframe-tests-connect.lock", os.O_CREAT | os.O_RDWR)
        fcntl.flock(
            lock, fcntl.LOCK_EX
        )  # held until the process ends, because all servers of PySpark use the same port
    else:
        builder = SparkSession.builder.master("local-cluster[2,1,1024]" if kind == "cluster" else "local[2]")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.session.timeZone": "Asia/Tokyo",  # results must not depend on it
        "spark.driver.host": "127.0.0.1",
    }
    if kind == "cluster":  # tests of executors use Spark's own daemon
        settings["spark.executor.extraJavaOptions"] = os.environ.get("SPARK_SUBMIT_OPTS", "")
    else:
        settings["spark.python.daemon.module"] = "spark_udaf.daemon"  # saves about a second per worker
    for name, value in {**settings, **(more_settings or {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


SMALL_JOBS = {  # settings that shorten the planning of jobs with few rows
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}


@contextmanager
def settings(spark: Any, values: Mapping[str, str]) -> Iterator[None]:
    """Within the block, change settings of a session. Restore them at the end."""
    previous = {name: spark.conf.get(name, None) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in previous.items():
            _ = spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def rollup_digests(spark: Any, file: str, partitions: Iterable[int]) -> Iterator[dict[str, str]]:
    """Yield the digests of a rollup of a file in each number of partitions, and of a rollup of its rows in the order of
    time.
    """
    import spark_udaf as su

    frames = [spark.read.parquet(file).repartition(count) for count in partitions]
    for rows in [*frames, su.scan_parquet(spark, write_in_order(file), rows_per_task=7000)]:
        states = su.rollup(rows, FRAME)
        results = su.finish(states, FRAME)
        yield digests(states.toArrow(), results.toArrow())


def main(kind: str, file: str, *arguments: str) -> None:
    """Print one line of digests for each number of partitions, and one for each of the other comparisons."""
    partitions = [int(argument) for argument in arguments if argument.isdigit()]
    with session(kind) as spark:
        if partitions:
            for digests_of_rollup in rollup_digests(spark, file, partitions):
                print("digests", json.dumps(digests_of_rollup), flush=True)
            if kind != "cluster":  # on a cluster, these jobs would be the same as on classic Spark
                df = spark.read.parquet(file).repartition(partitions[-1])
                print("others", json.dumps(results_of_other_ways(spark, df, file)), flush=True)
        if "store" in arguments:
            print("store", json.dumps(store_digests(spark, file, arguments[-1], kind)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
