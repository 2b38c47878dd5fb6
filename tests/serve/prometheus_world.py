"""Fixtures of the tests of the Prometheus API: stores of known rows, and a real server of them."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import numpy as np
import pyarrow as pa
import uvicorn
from starlette.applications import Starlette

import aggr
from tiltframe import FrameStore, TiltFrame
from tiltframe.serve.answers import Answers
from tiltframe.serve.cost import Budget, Limits
from tiltframe.serve.observed import Metrics
from tiltframe.serve.prometheus import routes
from tiltframe.serve.workers import WorkerPool

BEGIN = 1_774_656_000  # 2026-03-28T00:00:00Z
HOSTS = ("a", "b", "web-1", "w.2", "ü", None)
LEVELS = {"10s": 10, "1m": 60, "10m": 600, "1h": 3600}
FRAME = TiltFrame(
    list(LEVELS),
    "ts",
    {
        "requests": aggr.count(),
        "bytes": aggr.sum("bytes"),
        "seconds": aggr.sum("seconds"),
        "latency": aggr.dds("seconds", [0.5, 0.99]),
        "rounded": aggr.hdr("seconds", [0.5], unit=0.001),
        "fastest": aggr.min("seconds"),
        "slowest": aggr.max("seconds"),
        "mean": aggr.avg("seconds"),
        "spread": aggr.stdev("seconds"),
        "first": aggr.first("host"),
    },
    ["host", "code"],
)


def rows(count=6000, hours=3, seed=7):
    """Rows of some hours, the busiest in the middle, so that series have gaps at both ends."""
    rng = np.random.default_rng(seed)
    times = BEGIN * 1000 + np.clip(rng.normal(0.5, 0.2, count), 0, 0.9999) * hours * 3_600_000
    return pa.table(
        {
            "ts": times.astype(np.int64),
            "host": pa.array(rng.choice(np.array(HOSTS, object), count), pa.string()),
            "code": rng.choice([200, 404, 500], count, p=[0.8, 0.15, 0.05]),
            "bytes": rng.integers(0, 2**40, count),
            "seconds": rng.lognormal(0, 1, count),
        }
    )


class Answer(NamedTuple):
    """What the server has answered."""

    status: int
    body: str

    @property
    def data(self):
        answer = json.loads(self.body)
        assert answer["status"] == "success", answer
        return answer["data"]

    @property
    def warnings(self):
        return json.loads(self.body).get("warnings", [])

    @property
    def infos(self):
        return json.loads(self.body).get("infos", [])

    def by_labels(self):
        """Map the labels of each series to its value, or to its values by time."""
        series_by_labels = {}
        for series in self.data["result"]:
            labels = frozenset(series["metric"].items())
            assert labels not in series_by_labels
            points = series.get("values") or [series["value"]]
            series_by_labels[labels] = {at: float(value) for at, value in points}
        return series_by_labels


class Server(NamedTuple):
    """A server that runs."""

    url: str

    def ask(self, path, form=None, method=None, headers=None, **params) -> Answer:
        """Ask below ``/api/v1``: by the address, or by a form in the body."""
        query = urlencode(params, doseq=True)
        body = form if isinstance(form, bytes | None) else urlencode(form, doseq=True).encode()
        request = Request(f"{self.url}/api/v1/{path}?{query}", body, headers or {}, method=method)
        try:
            with urlopen(request, timeout=60) as answer:
                return Answer(answer.status, answer.read().decode())
        except HTTPError as error:
            return Answer(error.code, error.read().decode())

    def query(self, query, at, **more) -> Answer:
        """Ask at one moment."""
        return self.ask("query", query=query, time=at, **more)

    def query_range(self, query, start, end, step, **more) -> Answer:
        """Ask over moments."""
        return self.ask("query_range", query=query, start=start, end=end, step=step, **more)


@contextmanager
def serving(stores, **options):
    """Serve stores on a free port of this machine."""
    limits, metrics = options.pop("limits", Limits()), Metrics()
    before, pool = options.pop("before", lambda app: app), WorkerPool(limits)

    def now():
        return {name: store.at() for name, store in stores.items()}

    shared = pool, Answers(pool, limits, metrics), Budget(limits, metrics)
    app = before(Starlette(routes=routes(now, *shared, **options)))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield Server(f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}")
    finally:
        server.should_exit = True
        thread.join()
        pool.close()


def store_of(place, data=None, frame=FRAME):
    """Make a store of rows."""
    store = FrameStore(place, frame)
    store.append_rows(rows() if data is None else data, "test", 1)
    return store
