"""Cached answers: their tags change with the store and the time, names in any script are allowed, and their memory is
limited.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pytest
from starlette.requests import Request
from starlette.responses import StreamingResponse

import aggr
from tests.serve.servers import make_store, rows, serving
from tiltframe import FrameStore, TiltFrame
from tiltframe.serve.answer_cache import Answer, AnswerCache
from tiltframe.serve.answers import Answers, Question
from tiltframe.serve.cost import Limits
from tiltframe.serve.observed import Metrics
from tiltframe.serve.response_formats import JSON
from tiltframe.serve.workers import WorkerPool

pytestmark = pytest.mark.store


@pytest.mark.long
def test_key_values_of_a_moving_range_are_asked_anew(tmp_path):
    """A value leaves the range: the tag changes with it, as the finest window is over."""
    store = FrameStore(tmp_path / "web", TiltFrame(["1s", "1m"], "ts", {"n": aggr.count()}, ["k"]))
    now = int(time.time() * 1000)
    store.append_rows(pa.table({"ts": [now - 10_000, now - 500], "k": ["old", "new"]}), "w", 1)
    with serving(tmp_path, tmp_path / "web") as server:
        first = server.ask("/v1/stores/web/keys/k?within=-1h")
        assert first.json()["values"] == ["new", "old"]
        time.sleep(1.2)
        later = server.ask("/v1/stores/web/keys/k?within=-1h", headers={"If-None-Match": first.headers["etag"]})
        assert later.status == 200
        assert later.headers["etag"] != first.headers["etag"]
        unlimited = server.ask("/v1/stores/web/keys/k")
        assert unlimited.json()["values"] == ["new", "old"]


@pytest.mark.long
@pytest.mark.parametrize("name", ["名", "größe", "a\u2028b", "emoji 🎉"])
def test_a_name_in_any_script_is_no_error_of_the_header(tmp_path, name):
    first = TiltFrame(["1m"], "ts", {"n": aggr.count()})
    store = FrameStore(tmp_path / "web", first)
    store.append_rows(pa.table({"ts": [0], "v": [1]}), "w", 1)
    added = TiltFrame(["1m"], "ts", {"n": aggr.count(), name: aggr.sum("v")})
    store.evolve(added, row_schema=pa.schema([("ts", pa.int64()), ("v", pa.int64())]))
    with serving(tmp_path, tmp_path / "web") as server:
        answer = server.query(store="web", per="1m")
        assert answer.status == 200, answer.body
        assert name in answer.json()["warnings"][0]
        assert answer.headers["warning"].isascii()


@pytest.mark.parametrize("size", [0, 100, 10_000])
def test_the_memory_of_kept_answers_is_counted(size):
    """What is counted is what Python allocates for answers like those of a server, within a fifth."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    cache, counted = AnswerCache(1 << 30), 0
    for number in range(2000):
        tag = f'"{number:032x}"'
        headers = {"etag": tag, "vary": "accept, accept-encoding", "cache-control": "private, no-cache"}
        answer = Answer(headers, "application/json", bytes(bytearray(size)), {"web": 1000})
        cache.put(tag, answer)
        counted += answer.memory
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert cache.get(tag) is answer
    assert used / 1.2 <= counted <= used * 1.2


@pytest.mark.long
def test_caches_are_bounded_by_the_option_memory(tmp_path):
    """100 different answers of 370 kB, 37 MB in all, are cached in 2 MiB."""
    make_store(tmp_path / "web", data=rows(hours=24))
    with serving(tmp_path, tmp_path / "web", "--memory", "4MiB", "--max-queries", "1") as server:

        def ask(numbers):
            for number in numbers:
                assert server.query(store="web", per="1m", limit=1000, where=f"host <> 'x{number}'").status == 200

        def resident():
            status = Path(f"/proc/{server.process.pid}/status").read_text()
            return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024

        ask(range(20))
        before = resident()
        ask(range(20, 120))
        assert resident() < before + 15


def answered(compute, count: int) -> list[bytes | str]:
    """Ask the same question several times at once; return the bodies, or the sentences of errors."""
    limits = Limits()
    pool = WorkerPool(limits)
    answers = Answers(pool, limits, Metrics())

    async def body() -> bytes | str:
        request = Request({"type": "http", "method": "GET", "path": "/", "headers": []})
        try:
            response = await answers.respond(request, lambda: Question("query", {"store": 1}, JSON, compute))
        except ValueError as error:
            return str(error)
        if isinstance(response, StreamingResponse):
            return b"".join([bytes(piece) async for piece in response.body_iterator])
        return bytes(response.body)

    async def bodies() -> list[bytes | str]:
        return await asyncio.gather(*(body() for _ in range(count)))

    try:
        return asyncio.run(bodies())
    finally:
        pool.close()


@pytest.mark.parametrize("size", [10, 3 << 20])
def test_equal_requests_at_the_same_time_wait_for_one_answer(size):
    threads_of_answers = []

    def compute(compression, deadline):
        threads_of_answers.append(threading.get_ident())
        time.sleep(0.3)  # the other requests arrive
        return {}, (b"x" * (size // 10) for _ in range(10))

    found = answered(compute, 12)
    assert found == [b"x" * (size // 10 * 10)] * 12
    if size == 10:
        assert len(threads_of_answers) == 1
    else:  # an answer that is sent while it is computed has one reader
        assert len(threads_of_answers) == 12


def test_an_error_is_the_answer_of_all_requests_that_wait_for_it():
    def compute(compression, deadline):
        time.sleep(0.3)
        raise ValueError("there is no such measure")

    assert answered(compute, 5) == ["there is no such measure"] * 5
