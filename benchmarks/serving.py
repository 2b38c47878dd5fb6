"""Response times of a server that writes and maintains its store, for 50 writing requests per second and 32 readers.

    python -m benchmarks.serving [--minutes M] [--writes N] [--readers N] [--out FILE]

Ten writers send events with the current time. Each writer has its own name, and numbers its requests. Each reader
requests a panel of the last hour by PromQL, or of the last ten minutes by `/v1/query`, and then waits a second, like a
dashboard that refreshes. The time from the request to the last byte and the processor time of the server are measured.
The server's memory and the number of files of the store are read every ten seconds. At the end, the store must contain
at least every acknowledged event. It may also contain events of requests whose answer was lost.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import click
import numpy as np
import pyarrow as pa

import aggr
from aggr.bench.timing import circumstances
from benchmarks.musthold import LimitedFigure, show_limits
from tiltframe import FrameStore, TiltFrame

READERS = 32
WRITERS = 10
EVENTS = 20  # the number of events in a writing request
HOSTS = 50
PAUSE_SECONDS = 1.0  # the pause of a reader between two requests
SAMPLE_SECONDS = 10.0
FRAME = TiltFrame(
    ["10s", "1m", "1h"],
    "ts",
    {"requests": aggr.count(), "bytes": aggr.sum("bytes"), "latency": aggr.dds("ms", [0.5, 0.99])},
    ["host"],
)
PANELS = (
    "sum(increase(requests_total[1m]))",
    "sum by (host) (rate(bytes[1m]))",
    "histogram_quantile(0.99, sum(rate(latency[1m])))",
)


@dataclass
class Measurements:
    """The measurements of all threads: seconds of requests, failures, and samples of the server's memory and files."""

    reads: list[float] = field(default_factory=list)
    writes: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    events: int = 0
    samples: list[dict[str, float]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    has_ended: threading.Event = field(default_factory=threading.Event)


@contextmanager
def serving(store: Path, log: Path) -> Iterator[tuple[int, int]]:
    """Run a server that writes and maintains a store, and yield its process id and its port."""
    command = [sys.executable, "-c", "from tiltframe_command import main; main()", "serve", f"web={store}"]
    options = ["--writable", "--maintain", "--listen", "127.0.0.1:0"]
    with log.open("w") as err, subprocess.Popen([*command, *options], stderr=err) as process:
        try:
            while not (address := re.search(r"at http://127.0.0.1:(\d+)/", log.read_text())):
                if process.poll() is not None:
                    raise SystemExit(f"the server ended before it listened: {log.read_text()}")
                time.sleep(0.05)
            yield process.pid, int(address[1])
        finally:
            process.terminate()


def send(connection: http.client.HTTPConnection, path: str, body: str | None = None) -> tuple[float, str | None]:
    """Send a request, and return two values. The first is the number of seconds from the request to the last byte of
    the response. The second equals None for a response with the status 200; for any other response, it is a text with
    the status and the beginning of the response.
    """
    start = time.perf_counter()
    headers = {"Content-Type": "application/x-ndjson"}
    connection.request("GET" if body is None else "POST", path, body, {} if body is None else headers)
    response = connection.getresponse()
    text = response.read()
    return time.perf_counter() - start, None if response.status == 200 else f"{response.status} {text[:150]!r}"


def write_events(port: int, number: int, per_second: float, measurements: Measurements) -> None:
    """Send ``per_second`` requests with events in each second, as the writer ``number``. Record the times of the
    requests in ``measurements`` until the measurement ends.
    """
    rng = np.random.default_rng(number)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    next_time = time.monotonic() + rng.random() / per_second
    request_number = 0
    while not measurements.has_ended.wait(max(next_time - time.monotonic(), 0)):
        next_time += 1 / per_second
        request_number += 1
        now = int(time.time() * 1000)
        events = [
            {"ts": now, "host": f"host-{host}", "bytes": size, "ms": duration}
            for host, size, duration in zip(
                rng.integers(0, HOSTS, EVENTS).tolist(),
                rng.integers(0, 100_000, EVENTS).tolist(),
                rng.lognormal(3, 1, EVENTS).tolist(),
                strict=True,
            )
        ]
        path = f"/v1/stores/web/events?writer=writer-{number}&number={request_number}"
        seconds, failure = send(connection, path, "\n".join(map(json.dumps, events)))
        with measurements.lock:
            measurements.writes.append(seconds)
            if failure:
                measurements.failures.append(failure)
            else:
                measurements.events += EVENTS


def read_panels(port: int, number: int, measurements: Measurements) -> None:
    """Request one panel after another as the reader ``number``. Record the times in ``measurements`` until the
    measurement ends.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    panel_number = number
    while not measurements.has_ended.wait(PAUSE_SECONDS):
        panel_number += 1
        now = int(time.time()) // 10 * 10
        parameters: dict[str, Any] = {"store": "web", "per": "1m", "within": "-10m", "keys": "", "flat": "true"}
        path = "/v1/query?" + urlencode(parameters)
        if panel := (*PANELS, None)[panel_number % (len(PANELS) + 1)]:
            path = "/api/v1/query_range?" + urlencode({"query": panel, "start": now - 3600, "end": now, "step": 60})
        seconds, failure = send(connection, path)
        with measurements.lock:
            measurements.reads.append(seconds)
            if failure:
                measurements.failures.append(failure)


def sample_server(process: int, store: Path, measurements: Measurements) -> None:
    """Record the server's resident memory and the number of the store's files until the measurement ends."""
    while not measurements.has_ended.wait(SAMPLE_SECONDS):
        memory = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
        files = [path for path in store.rglob("*.parquet") if path.is_file()]
        parts = len(FrameStore(store).at().snapshot.parts)
        assert memory is not None
        measurements.samples.append({"MiB": int(memory[1]) / 1024, "files": len(files), "parts": parts})


def processor_seconds(process: int) -> float:
    """Return the processor time that a process has used, in seconds."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run_load(folder: Path, minutes: float, writes: float, readers: int) -> dict[str, Any]:
    """Run readers and writers for some minutes, and return the figures. All writers together send ``writes`` requests
    per second.
    """
    store = folder / "web"
    first_event = {"ts": [int(time.time() * 1000)], "host": ["host-0"], "bytes": [1], "ms": [1.0]}
    FrameStore(store, FRAME).append_rows(pa.table(first_event), "first", 1)
    measurements = Measurements()
    with serving(store, folder / "log") as (process, port):
        threads = [threading.Thread(target=read_panels, args=(port, i, measurements)) for i in range(readers)]
        rate = writes / WRITERS
        if writes:
            threads += [
                threading.Thread(target=write_events, args=(port, i, rate, measurements)) for i in range(WRITERS)
            ]
        threads.append(threading.Thread(target=sample_server, args=(process, store, measurements)))
        used_before = processor_seconds(process)
        for thread in threads:
            thread.start()
        time.sleep(minutes * 60)
        cpu_seconds = processor_seconds(process) - used_before
        measurements.has_ended.set()
        for thread in threads:
            thread.join()
    counts = FrameStore(store).query("1h", keys=[]).column("requests").to_pylist()
    if sum(counts) < measurements.events + 1:
        raise SystemExit(
            f"the store lost acknowledged events: {measurements.events:,} were acknowledged, and the store has "
            f"{sum(counts):,}"
        )
    third = max(len(measurements.samples) // 3, 1)
    return {
        "minutes": minutes,
        "server_cores": round(cpu_seconds / (minutes * 60), 3),
        "writes_per_second": len(measurements.writes) / (minutes * 60),
        "write_ms": _percentiles(measurements.writes),
        "reads_per_second": len(measurements.reads) / (minutes * 60),
        "read_ms": _percentiles(measurements.reads),
        "failures": len(measurements.failures),
        "first_failures": sorted(set(measurements.failures))[:3],
        "median_MiB_by_third": [_median(part, "MiB") for part in _thirds(measurements.samples, third)],
        "most_parts_by_third": [max(s["parts"] for s in part) for part in _thirds(measurements.samples, third)],
        "most_files": max(s["files"] for s in measurements.samples),
    }


def _thirds(samples: list[dict[str, float]], third: int) -> list[list[dict[str, float]]]:
    return [part for part in (samples[:third], samples[third : 2 * third], samples[2 * third :]) if part]


def _median(samples: list[dict[str, float]], name: str) -> float:
    return round(float(np.median([s[name] for s in samples])), 1)


def _percentiles(seconds: list[float]) -> dict[str, float]:
    return {f"p{q}": round(float(np.percentile(seconds, q)) * 1000, 1) for q in (50, 90, 99)} if seconds else {}


def limited_figures(figures: dict[str, Any]) -> list[LimitedFigure]:
    """Return the figures with limits. ``figures`` are those that `run_load` returns."""
    memory = figures["median_MiB_by_third"]
    parts = figures["most_parts_by_third"]
    return [
        LimitedFigure("p99 of reads, in milliseconds", 250, figures["read_ms"]["p99"]),
        LimitedFigure("memory of the last third / of the first third", 1.1, memory[-1] / memory[0]),
        LimitedFigure("parts of the last third / of the first third", 1.5, parts[-1] / parts[0]),
        LimitedFigure("failed requests", 0, figures["failures"]),
    ]


@click.command()
@click.option("--minutes", default=10.0, show_default=True, help="The minutes for which clients send requests.")
@click.option("--writes", default=50.0, show_default=True, help="The number of writing requests per second.")
@click.option("--readers", default=READERS, show_default=True, help="The number of clients that read.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path(__file__).parent / "results" / "serving.json",
    help="Write the figures to this JSON file; by default benchmarks/results/serving.json.",
)
def main(minutes: float, writes: float, readers: int, out: Path) -> None:
    """Measure, print the figures and write them to a file. Exit with status 1 if a figure exceeds its limit."""
    with tempfile.TemporaryDirectory() as folder:
        figures = run_load(Path(folder), minutes, writes, readers)
    figures["load_average"] = os.getloadavg()[0]
    print(json.dumps(figures, indent=1))
    limits = limited_figures(figures)
    show_limits(limits)
    must_hold = [{**asdict(figure), "verdict": figure.verdict} for figure in limits]
    document = {**circumstances(), "figures": figures, "must_hold": must_hold}
    out.write_text(json.dumps(document, indent=1) + "\n")
    raise SystemExit(any(figure.verdict == "FAIL" for figure in limits))


if __name__ == "__main__":
    main()
