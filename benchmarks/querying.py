"""Queries of a year and of a day, compared with states in ClickHouse and with exported results in DuckDB.

    python -m benchmarks.querying [--quick] [--out FILE]

The rows are those that `benchmarks.storing` generates for one day, and four rows per key on each of the 364 days before
this day. The commands of `benchmarks.storing` write the rows to all systems at four levels: the store and ClickHouse
(chdb) contain states, and DuckDB contains results. Before the queries, DuckDB's results are loaded into a database
file, sorted by key and time. Such results cannot be merged over keys, so DuckDB is left out of queries that merge keys.
All systems run in this process and take turns. Each query is timed when a system answers it for the first time, and
when it is repeated. The range of each repetition begins one window later, as that of a dashboard does. In between, the
results of all systems are compared. A query returns an Arrow table with the results in columns.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from aggr.bench.timing import alternate, circumstances
from aggr.workers import available_cores
from benchmarks.costs import create_table, print_table
from benchmarks.musthold import LimitedFigure, show_limits
from benchmarks.storing import (
    BEGIN,
    HOUR,
    HOURS,
    LEVELS,
    RunSize,
    clickhouse_command,
    duckdb_command,
    rollup_command,
    run_process,
    with_suffix,
    write_day,
)
from tiltframe import FrameStore

DAY = HOURS * HOUR  # the length of a day in microseconds
FULL = RunSize(rows=6_000_000, keys=1000, rounds=9)
QUICK = RunSize(rows=240_000, keys=100, rounds=3)
DAYS = 365
# the lengths of the windows of the queried levels, in microseconds
_WINDOW_LENGTHS = {"1m": 60 * 10**6, "1h": HOUR, "1d": DAY}
OURS = "tiltframe"
CLICKHOUSE = "ClickHouse"
DUCKDB = "DuckDB"
# The names of the results, which are columns of the results of each system. ClickHouse computes both quantiles at once.
MEASURES = ("n", "avg", "most", "p")
_CLICKHOUSE = {"n": "count", "avg": "avg", "most": "max", "p": "quantilesDD(0.01, 0.5, 0.99)"}


@dataclass(frozen=True)
class Panel:
    """One query: the results of one level for the last ``days`` days.

    ``hosts`` is the number of keys, or None for all keys. With ``is_merged``, the results are merged over all keys. The
    first ``skipped_windows`` windows of the range are left out.
    """

    level: str
    days: int
    hosts: int | None
    measures: Sequence[str] = MEASURES
    is_merged: bool = False
    skipped_windows: int = 0

    @property
    def begin(self) -> int:
        """The begin of the range of the query, in microseconds since 1970. The range ends with the last row."""
        return BEGIN - (self.days - 1) * DAY + self.skipped_windows * _WINDOW_LENGTHS[self.level]


def dashboard() -> list[Panel]:
    """Return twelve panels, one per measure and range. The three ranges are a day by minute of one host, 30 days by
    hour of one host, and a year by day of ten hosts.
    """
    views = (("1m", 1, 1), ("1h", 30, 1), ("1d", DAYS, 10))
    return [Panel(*view, measures=[measure]) for view in views for measure in MEASURES]


QUERIES: Mapping[str, Sequence[Panel]] = {
    "a dashboard of twelve panels": dashboard(),
    "a year by day": [Panel("1d", DAYS, None)],
    "a day by minute": [Panel("1m", 1, None)],
    "a year by day, merged over keys": [Panel("1d", DAYS, None, is_merged=True)],
    "a day by minute, merged over keys": [Panel("1m", 1, None, is_merged=True)],
}


class System(ABC):
    """A system that has written the rows to a folder, and answers queries from this folder."""

    can_merge = True

    @abstractmethod
    def ask(self, panel: Panel) -> pa.Table:
        """Return the results of the query of a panel, in any order. The columns are t, host and the measures. Results
        that are merged over all keys do not have the column host.
        """


class Store(System):
    """A store of tiltframe."""

    def __init__(self, folder: Path) -> None:
        """Open the store of tiltframe in a folder."""
        self._store = FrameStore(str(folder / "store"))

    def ask(self, panel: Panel) -> pa.Table:
        """Query the store of tiltframe, and return the results of the panel."""
        where = None if panel.hosts is None else f"host in ({_host_list(panel)})"
        keys = [] if panel.is_merged else ["host"]
        within = (_moment(panel.begin), _moment(BEGIN + DAY))
        return self._store.query(panel.level, within=within, where=where, measures=list(panel.measures), keys=keys)


class ClickHouse(System):
    """Tables of states in ClickHouse."""

    def __init__(self, folder: Path) -> None:
        """Open the database of ClickHouse in a folder."""
        self._session = importlib.import_module("chdb.session").Session(str(folder / "chdb"))

    def ask(self, panel: Panel) -> pa.Table:
        """Return the results of the panel from merged states. ClickHouse stores a table in several parts, which may
        contain states of the same window and key. The query therefore merges these states.
        """
        results = ", ".join(f"{with_suffix(_CLICKHOUSE[name], 'Merge', name)} AS r_{name}" for name in panel.measures)
        keys = "" if panel.is_merged else ", host"
        query = f"SELECT t{keys}, {results} FROM d.of_{panel.level} WHERE t >= {panel.begin // 10**6}"
        query += "" if panel.hosts is None else f" AND host IN ({_host_list(panel)})"
        return self._session.query(f"{query} GROUP BY t{keys} SETTINGS max_threads = {available_cores()}", "ArrowTable")


class DuckDB(System):
    """Tables of results in DuckDB."""

    can_merge = False

    def __init__(self, folder: Path) -> None:
        """Load the exported results into a database file."""
        config = {"threads": available_cores()}
        self._connection = importlib.import_module("duckdb").connect(str(folder / "results.db"), config=config)
        for level in LEVELS:
            select = f"SELECT * FROM read_parquet('{folder}/{level}.parquet') ORDER BY host, t"
            self._connection.execute(f"CREATE TABLE of_{level} AS {select}")

    def ask(self, panel: Panel) -> pa.Table:
        """Select the results of the panel from the database file."""
        query = f"SELECT t, host, {', '.join(panel.measures)} FROM of_{panel.level}"
        query += f" WHERE t >= make_timestamptz({panel.begin})"
        query += "" if panel.hosts is None else f" AND host IN ({_host_list(panel)})"
        return self._connection.sql(query).to_arrow_table()


def _moment(micros: int) -> datetime:
    return datetime.fromtimestamp(micros / 10**6, UTC)


def _host_list(panel: Panel) -> str:
    return ", ".join(f"'host-{number:04}'" for number in range(panel.hosts or 0))


def main(run_size: RunSize, out: Path | None) -> list[LimitedFigure]:
    """Measure all queries, print the figures, and write them to ``out`` if it is passed."""
    about = circumstances(("tiltframe", "pyarrow", "numpy", "duckdb", "chdb"))
    seconds: dict[str, dict[str, float]] = {}
    first_seconds: dict[str, dict[str, float]] = {}
    rows: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        systems = dict(_systems(Path(folder), run_size))
        for name, panels in QUERIES.items():
            able_systems = {
                label: system for label, system in systems.items() if system.can_merge or not panels[0].is_merged
            }
            calls = [partial(_ask_all, system, panels, count()) for system in able_systems.values()]
            first_seconds[name] = dict(zip(able_systems, map(_seconds_of, calls), strict=True))
            rows[name] = check(able_systems, panels)
            seconds[name] = dict(zip(able_systems, alternate(calls, run_size.rounds), strict=True))
    limited_figures = [
        LimitedFigure(
            f"{name}: tiltframe / the fastest other system", 0.5, _ratio(seconds_by_system), is_judged=run_size == FULL
        )
        for name, seconds_by_system in seconds.items()
    ]
    for title, measured in (("repeated", seconds), ("for the first time", first_seconds)):
        table = create_table(f"Queries of {run_size.keys:,} keys, {title}, in ms", ["", "rows", *systems])
        for name, by_system in measured.items():
            cells = [f"{1000 * by_system[label]:,.1f}" if label in by_system else "" for label in systems]
            table.add_row(name, f"{rows[name]:,}", *cells)
        print_table(table)
    show_limits(limited_figures)
    if out is not None:
        limits = [{**asdict(figure), "verdict": figure.verdict} for figure in limited_figures]
        figures = {"result_rows": rows, "seconds": seconds, "first_seconds": first_seconds, "must_hold": limits}
        out.write_text(json.dumps({**about, **asdict(run_size), **figures}, indent=1) + "\n")
    return limited_figures


def _systems(folder: Path, run_size: RunSize) -> Iterator[tuple[str, System]]:
    """Write the rows to each installed system. Yield the name of each system, and the system itself."""
    rows = folder / "rows"
    write_day(rows, run_size)
    write_past(rows, run_size.keys)
    installations: list[tuple[str, str, Callable[..., Sequence[str]], Callable[[Path], System]]] = [
        (OURS, "tiltframe", rollup_command, Store),
        (CLICKHOUSE, "chdb", clickhouse_command, ClickHouse),
        (DUCKDB, "duckdb", duckdb_command, DuckDB),
    ]
    for name, package, command, system in installations:
        if importlib.util.find_spec(package):
            target = folder / package
            target.mkdir()
            run_process(command(rows, target))
            yield name, system(target)


def write_past(folder: Path, keys: int) -> None:
    """Write one file for each of the 364 days before the day of `write_day`, with a row per key every six hours."""
    rng = np.random.default_rng(11)
    hosts = pa.array([f"host-{number:04}" for number in range(keys)])
    for day in range(1 - DAYS, 0):
        times = np.repeat(BEGIN + day * DAY + np.arange(4) * 6 * HOUR, keys)
        table = pa.table(
            {
                "ts": pa.array(times, pa.timestamp("us", "UTC")),
                "host": hosts.take(pa.array(np.tile(np.arange(keys), 4))),
                "ms": np.round(rng.lognormal(3, 1, len(times)), 3),
            }
        )
        pq.write_table(table, folder / f"past-{day + DAYS:03}.parquet")


def _seconds_of(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _ask_all(system: System, panels: Sequence[Panel], rounds: Iterator[int]) -> list[pa.Table]:
    """Return the results of all panels. In each round, their ranges begin one window later."""
    skipped_windows = next(rounds)
    return [system.ask(replace(panel, skipped_windows=skipped_windows)) for panel in panels]


def check(systems: Mapping[str, System], panels: Sequence[Panel]) -> int:
    """Compare the results of all systems, and return the number of rows of all panels.

    Windows, keys, counts and maxima must be equal, and averages differ by at most 1e-9 of their value. Medians of
    windows merged over all keys may differ by 3 %, because sketches estimate them. Other medians are not compared,
    because the systems define the median of a few rows differently.

    Raises
    ------
    ValueError
        If results differ.
    """
    rows = 0
    for panel in panels:
        (first_label, expected), *other_results = (
            (label, _comparable(system.ask(panel), panel)) for label, system in systems.items()
        )
        for label, results in other_results:
            _compare(results, expected, f"{first_label} and {label}: {panel}")
        rows += expected.num_rows
    return rows


def _comparable(table: pa.Table, panel: Panel) -> pa.Table:
    """Return results in a form that all systems share: the columns t (microseconds), host (unless the panel is merged
    over all hosts) and the measures as doubles, sorted by host and t. A struct of quantiles is replaced by its median,
    and a list by its first element.
    """
    new_names = {"window_start": "t", **{f"r_{name}": name for name in panel.measures}}
    table = table.rename_columns([new_names.get(name, name) for name in table.column_names])
    starts = table["t"]
    if pa.types.is_unsigned_integer(starts.type):  # ClickHouse returns a DateTime as an unsigned number of seconds.
        starts = starts.cast(pa.int64()).cast(pa.timestamp("s", "UTC"))
    micros = starts.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    columns: dict[str, Any] = {"t": micros}
    if not panel.is_merged:
        columns["host"] = table["host"].cast(pa.string())
    for name in panel.measures:
        column = table[name]
        if pa.types.is_struct(column.type):
            column = pc.struct_field(column, ["quantiles", "0.5"])
        elif pa.types.is_list(column.type):
            column = pc.list_element(column, 0)
        columns[name] = column.cast(pa.float64())
    order = [(name, "ascending") for name in ("host", "t") if name in columns]
    return pa.table(columns).sort_by(order)


def _compare(results: pa.Table, expected: pa.Table, label: str) -> None:
    """Raise ``ValueError``, with a message that begins with ``label``, if results differ from the expected ones."""
    for name in expected.column_names:
        column = results[name]
        expected_column = expected[name]
        if name in ("t", "host"):
            is_equal = column.to_pylist() == expected_column.to_pylist()
        elif name == "p" and "host" in expected.column_names:
            is_equal = column.null_count == expected_column.null_count == 0
        else:
            tolerance = 0.03 if name == "p" else 1e-9
            is_equal = np.allclose(column.to_numpy(), expected_column.to_numpy(), rtol=tolerance, atol=0)
        if not is_equal:
            raise ValueError(f"{label}: the columns {name} differ")


def _ratio(seconds: Mapping[str, float]) -> float | None:
    """Return the time of tiltframe divided by that of the fastest other system, or None if there is no other system."""
    seconds_of_peers = [value for label, value in seconds.items() if label != OURS]
    return seconds[OURS] / min(seconds_of_peers) if seconds_of_peers else None


@click.command()
@click.option("--quick", is_flag=True, help="Use few rows; figures are not compared with their limits.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures to this JSON file.")
def command(quick: bool, out: Path | None) -> None:
    """Compare the time of queries with ClickHouse and DuckDB. Exit with status 1 if a limit is exceeded."""
    limited_figures = main(QUICK if quick else FULL, out)
    if any(figure.verdict == "FAIL" for figure in limited_figures):
        raise SystemExit(1)


if __name__ == "__main__":
    command()
