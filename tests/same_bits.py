"""Digests of results and states for stored rows. The digests must be equal on every engine and version of Spark.

python -m tests.same_bits write                                 write the rows, and the digests of local code
python -m tests.same_bits classic|connect|cluster|sail FOLDER   print the digests of an engine; stores are in FOLDER

The stored digests do not change, so that all versions are compared with each other, and not only with the local code of
the same version. Write them again only if a measure below is added or changed, and never to make a test pass.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import aggr
from aggr.arrow.bit_equality import digest
from aggr.tables.by_key import key_column, reduce_by
from aggr.tables.state_plan import plan_state_columns
from tests import engines
from tests.golden import make as golden
from tiltframe import FrameStore, rollup

GOLDEN = Path(golden.__file__).parent / "engines"
ROWS, DIGESTS = GOLDEN / "rows.parquet", GOLDEN / "digests.json"
KEYS = ["host", "shelf"]
MEASURES = {  # measures by any keys, without a frame and without event times
    "n": aggr.count("x"),
    "lo": aggr.min("word"),
    "hi": aggr.max("x"),
    "whole": aggr.sum("i"),
    "money": aggr.sum("price"),
    "mean": aggr.avg("x"),
    "sd": aggr.stdev("i"),
    "d": aggr.dds("x", [0.5, 0.99]),
    "h": aggr.hdr("i", [0.5, 0.99], where="i >= 0"),
    "visitors": aggr.approx_count_distinct("i", k=64),
    "last": aggr.last("word", by="ts"),
    "best": aggr.top_k("word", by="i", k=3),
}
BY_HOST = {"s": aggr.sum("i"), "d": aggr.dds("price", [0.5]), "n": aggr.count("word")}
SU_SQL_QUERY = """
    SELECT host, aggr_sum_bigint(i) AS s, aggr_dds(price, array(0.5D)).quantiles['0.5'] AS d, aggr_count(word) AS n
    FROM rows GROUP BY host"""
SPARK_SQL_QUERY = """
    SELECT host, aggr_sum_bigint(array_compact(array(i))) AS s, aggr_count(word) AS n,
           aggr_dds_quantile(aggr_dds_state(array_compact(array(price))), 0.5D) AS d
    FROM rows GROUP BY host"""


def function_cases() -> dict[str, tuple[aggr.Measure, pa.Array]]:
    """Return a measure and its column for each golden state of a function with one input."""
    golden_cases = {name.replace("-", "_"): case for name, case in golden.CASES.items()}
    return {
        name: (aggr.Measure(function, name), values)
        for name, (function, values) in golden_cases.items()
        if not pa.types.is_struct(values.type)
    }


def _column_digests(table: pa.Table, keys: list[str]) -> dict[str, str]:
    """Return the digest of each column except the keys. Rows are sorted by the keys."""
    sorted_table = table.sort_by([(key, "ascending") for key in keys])
    return {name: digest(sorted_table[name]) for name in sorted_table.column_names if name not in keys}


def _value_digests(table: pa.Table, keys: list[str], names: list[str]) -> dict[str, str]:
    """Return digests of the values of columns in Python's notation, because Spark and Arrow have different types for
    some results.
    """
    sorted_table = table.sort_by([(key, "ascending") for key in keys])
    texts = {name: repr(sorted_table[name].to_pylist()) for name in names}
    return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}


def _aggregate(rows: pa.Table, measures: Mapping[str, aggr.Measure], keys: list[str]) -> pa.Table:
    """Aggregate rows by keys, and return the results."""
    key_columns = {key: key_column(rows[key]) for key in keys}
    states = {
        name: reduce_by(rows, key_columns, plan_state_columns({name: measure})) for name, measure in measures.items()
    }
    columns = {name: measures[name].function.finish(table[name].combine_chunks()) for name, table in states.items()}
    (first, *_) = states.values()
    return pa.table({**{key: first[key] for key in keys}, **columns})


def digests_of_local_code(folder: Path) -> dict[str, dict[str, str]]:
    """Return the digests of the results of local code, by job."""
    rows = pq.read_table(ROWS)
    functions = function_cases()
    measures = {name: measure for name, (measure, _) in functions.items()}
    table = pa.table({"k": golden.IDS.ids, **{name: values for name, (_, values) in functions.items()}})
    states = reduce_by(table, {"k": key_column(table["k"])}, plan_state_columns(measures))
    by_host = _aggregate(rows, BY_HOST, ["host"])
    medians = [record["quantiles"]["0.5"] for record in by_host["d"].to_pylist()]
    by_host = by_host.set_column(by_host.schema.get_field_index("d"), "d", pa.array(medians, pa.float64()))
    sql = _value_digests(by_host, ["host"], list(BY_HOST))
    store = FrameStore(folder / "store", engines.STORE_FRAME)
    store.append(rollup(rows, engines.STORE_FRAME), "w", 1)
    hours = store.query("1h")
    return {
        "rollup": engines.local_digests(rows),
        "functions": _column_digests(states.select(["k", *measures]), ["k"]),
        "group_by": _value_digests(_aggregate(rows, MEASURES, KEYS), KEYS, list(MEASURES)),
        "su.sql": sql,
        "spark.sql": sql,
        "store": engines.digests_of_store(store),
        "su.read": _value_digests(hours, ["window_start", *KEYS], list(engines.STORE_FRAME.measures)),
    }


def digests_of_engine(spark: Any, folder: Path, kind: str = "classic") -> dict[str, dict[str, str]]:
    """Return the digests of the results of an engine, by job."""
    import spark_udaf as su
    from spark_udaf.versions.arrow_tables import collect_arrow

    df = spark.read.parquet(str(ROWS)).repartition(3)
    df.createOrReplaceTempView("rows")
    states = su.rollup(df, engines.FRAME)
    functions = function_cases()
    measures = {name: measure for name, (measure, _) in functions.items()}
    table = {"k": golden.IDS.ids, **{name: values for name, (_, values) in functions.items()}}
    pq.write_table(pa.table(table), folder / "functions.parquet")
    by_k = collect_arrow(su.aggregate(spark.read.parquet(str(folder / "functions.parquet")), ["k"], measures))
    su.register(spark, "sum", "count", "dds", types=["bigint"])
    store = FrameStore(folder / "store", engines.STORE_FRAME)
    su.rollup_into(df, store, "w", 1)
    digests = {
        "rollup": engines.digests(collect_arrow(states), collect_arrow(su.finish(states, engines.FRAME))),
        "functions": _column_digests(by_k.select(["k", *measures]), ["k"]),
        "group_by": _value_digests(collect_arrow(su.group_by(df, *KEYS).agg(**MEASURES)), KEYS, list(MEASURES)),
        "su.sql": _value_digests(collect_arrow(su.sql(spark, SU_SQL_QUERY)), ["host"], list(BY_HOST)),
        "spark.sql": _value_digests(collect_arrow(spark.sql(SPARK_SQL_QUERY)), ["host"], list(BY_HOST)),
        "store": engines.digests_of_store(store),
    }
    if kind != "sail":  # Sail does not read stores
        hours = collect_arrow(su.read(spark, store.uri, per="1h"))
        digests["su.read"] = _value_digests(hours, ["window_start", *KEYS], list(engines.STORE_FRAME.measures))
    return digests


def expected(kind: str = "classic") -> dict[str, dict[str, str]]:
    """Return the stored digests for the jobs that an engine of this kind can run."""
    stored: dict[str, dict[str, str]] = json.loads(DIGESTS.read_text())
    return {name: digests for name, digests in stored.items() if kind != "sail" or name != "su.read"}


def differences(digests: Mapping[str, Mapping[str, str]], kind: str = "classic") -> list[str]:
    """List the jobs and columns whose digests differ from the stored ones."""
    stored = expected(kind)
    if digests.keys() != stored.keys():
        return sorted(digests.keys() ^ stored.keys())
    return [
        f"{job}: {column}"
        for job in stored
        for column in sorted(stored[job].keys() | digests[job].keys())
        if stored[job].get(column) != digests[job].get(column)
    ]


def main(kind: str, *arguments: str) -> None:
    """Write the digests of local code, or print the digests of an engine."""
    if kind == "write":
        import tempfile

        GOLDEN.mkdir(exist_ok=True)
        if not ROWS.exists():
            pq.write_table(engines.rows(2000), ROWS, compression="zstd")
        with tempfile.TemporaryDirectory() as folder:
            DIGESTS.write_text(json.dumps(digests_of_local_code(Path(folder)), indent=1) + "\n")
        return
    with engines.session(kind) as spark:
        print("digests", json.dumps(digests_of_engine(spark, Path(arguments[0]), kind)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
