"""Deadlines: long requests stop soon after their deadline, also within the merging of states and the encoding of
samples.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest

import aggr
from tests.serve.test_remote_read import request
from tiltframe import FrameStore, TiltFrame
from tiltframe.serve.cost import Budget, Limits
from tiltframe.serve.deadline import Deadline
from tiltframe.serve.errors import OutOfTime
from tiltframe.serve.observed import Metrics
from tiltframe.serve.prometheus import _Api
from tiltframe.serve.promql.metrics import metrics_by_name
from tiltframe.serve.promql.remote_read import ReadRequest
from tiltframe.serve.response_formats import ARROW, CSV, JSON, headers_and_body
from tiltframe.store import Query

SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))
SERIES = 1000
MINUTES = 720
BEGIN = 1_714_521_600  # 2024-05-01, in seconds
END = BEGIN + 60 * MINUTES
MEASURES = {"n": aggr.count(), "d": aggr.dds("x", quantiles=[0.5]), "e": aggr.exponential("x")}
EXPRESSIONS = {
    "merged ranges": "quantile_over_time(0.5, d[1h])",
    "newest values": "histogram_quantile(0.9, d)",
    "subquery": "max_over_time(n_total[2h:1m])",
    "operators": "n_total + n_total * n_total - n_total",
}


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> FrameStore:
    """Return a store of a thousand keys with a row in each minute of half a day."""
    keys = np.tile(np.arange(SERIES), MINUTES)
    minutes = np.repeat(np.arange(MINUTES), SERIES)
    rows = pa.table(
        {
            "ts": pa.array((BEGIN + 60 * minutes) * 1000, pa.timestamp("ms", "UTC")),
            "host": pa.array([f"host-{key}" for key in range(SERIES)]).take(pa.array(keys)),
            "x": np.random.default_rng(0).lognormal(0, 1, len(keys)),
        }
    )
    store = FrameStore(tmp_path_factory.mktemp("s"), TiltFrame(["1m", "1h"], "ts", MEASURES, ["host"]), name="web")
    store.append_rows(rows, "w", 1)
    return store


def range_query(expression: str, step: int) -> Callable:
    """Return a function that evaluates an expression from the beginning to ``end``."""

    def work(api: _Api, store: FrameStore, end: int, deadline: Deadline) -> None:
        form = {"query": [expression], "start": [str(BEGIN)], "end": [str(end)], "step": [str(step)]}
        api.query_range(form, metrics_by_name({"web": store.at()}), deadline)

    return work


def remote_read(metric: str, *, is_streamed: bool) -> Callable:
    def work(api: _Api, store: FrameStore, end: int, deadline: Deadline) -> None:
        read = ReadRequest.parse(request(("__name__", 0, metric), start=BEGIN, end=end))
        metrics = metrics_by_name({"web": store.at()})
        if not is_streamed:
            api.read(read, metrics, deadline)
            return
        for _ in api.read_chunks(read, metrics, deadline):
            pass

    return work


def query(form: str) -> Callable:
    def work(api: _Api, store: FrameStore, end: int, deadline: Deadline) -> None:
        view = store.at()
        answer = view.ask(Query("1m", within=(BEGIN * 1_000, end * 1_000)))
        _, pieces = headers_and_body("web", view, answer, media_type=form, compression=None, deadline=deadline)
        for _ in pieces:
            pass

    return work


WORKS = {
    **{name: range_query(expression, 60) for name, expression in EXPRESSIONS.items()},
    **{f"remote read of {name}": remote_read(name, is_streamed=False) for name in ("n_total", "d", "e")},
    **{f"chunks of {name}": remote_read(name, is_streamed=True) for name in ("n_total", "d", "e")},
    **{f"results as {form}": query(form) for form in (JSON, CSV, ARROW)},
}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", WORKS)
def test_work_ends_soon_after_its_deadline(name, store):
    """The time of the processor is measured, because the machine may have other work. Each work takes longer than the
    shortest deadline, so it must be stopped. It may end before a longer one.
    """
    print(f"TILTFRAME_SEED={SEED}")
    api = _Api(Budget(Limits(), Metrics()))
    WORKS[name](api, store, BEGIN + 600, Deadline())  # loads and compiles
    shortest = 0.1
    random_seconds = random.Random(f"{SEED} {name}").uniform(0.1, 1.5)
    for seconds in (shortest, 0.2, 0.8, random_seconds):
        began = time.thread_time()
        with pytest.raises(OutOfTime) if seconds == shortest else suppress(OutOfTime):
            WORKS[name](api, store, END, Deadline(seconds))
        assert time.thread_time() - began < seconds + 1, f"with a deadline of {seconds} s, TILTFRAME_SEED={SEED}"
