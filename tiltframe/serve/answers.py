"""Answers: responses that are computed in worker threads, and cached in bounded memory. An answer belongs to one
version of a store, and its ETag is derived from this version and the request. If several requests need the same answer
at the same time, the first request computes it, and the other requests wait for it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tiltframe.serve.answer_cache import Answer, AnswerCache
from tiltframe.serve.cost import Limits
from tiltframe.serve.deadline import Deadline
from tiltframe.serve.observed import Metrics
from tiltframe.serve.response_formats import JSON, compression_of
from tiltframe.serve.workers import WorkerPool, stream

# the maximum number of bytes of an answer that is cached; a longer answer is sent while it is computed
_MAX_CACHED_BYTES = 1 << 20
# the header Cache-Control of answers: before a client uses a cached answer, it must ask whether the answer is current
_CACHE_CONTROL = "private, no-cache"
# an entity tag in the header If-None-Match; the prefix W/ of weak tags does not matter for this header
_ETAG = re.compile('"[^"]*"')


@dataclass(frozen=True)
class Question:
    """A request for data, and the function that computes the answer. Questions with equal ``request_key``, ``versions``
    and ``media_type`` have equal answers.
    """

    # a text that is equal for equal requests
    request_key: str
    # store name → the `StoreView.content_id` of the view from which the answer is computed
    versions: Mapping[str, str]
    media_type: str
    # The function that computes the answer. Its arguments are the compression, and the deadline of the body's first
    # piece. It returns the headers and an iterator over the pieces of the body.
    compute: Callable[[str | None, Deadline], tuple[Mapping[str, str], Iterator[bytes]]]


class Answers:
    """Responses to requests, computed in worker threads and cached."""

    def __init__(self, pool: WorkerPool, limits: Limits, metrics: Metrics) -> None:
        """Create an empty cache."""
        self._pool = pool
        self._limits = limits
        self._metrics = metrics
        # half of the memory limit is for answers, and the other half for the files that stores keep open
        self._cache = AnswerCache(limits.memory // 2)
        # tag → the task that computes the answer; used only in the event loop
        self._tasks: dict[str, asyncio.Task[Answer]] = {}

    async def respond(self, request: Request, make_question: Callable[[], Question]) -> Response:
        """Return the response to a request. ``make_question``, called in a worker thread, returns the `Question` to
        answer.
        """
        compression = compression_of(request.headers.get("accept-encoding", ""))
        etags = request.headers.get("if-none-match", "")
        question, tag, answer = await self._pool.look_up(self._find_answer, make_question, compression)
        if tag in _ETAG.findall(etags) or etags.strip() == "*":
            self._metrics.cache_hits.inc()
            return Response(status_code=304, headers=_headers(tag))
        (self._metrics.cache_hits if answer else self._metrics.cache_misses).inc()
        if answer is None:
            answer = await self._compute_once(question, tag, compression)
        if answer.remaining is None:
            return Response(answer.body, 200, dict(answer.headers), answer.media_type)
        return StreamingResponse(
            stream(self._pool, answer.deadline, answer.body, answer.remaining),
            200,
            dict(answer.headers),
            answer.media_type,
        )

    async def _compute_once(self, question: Question, tag: str, compression: str | None) -> Answer:
        """Return the answer to ``question``. If another request is already computing the answer with the same ``tag``,
        wait for that answer; otherwise compute the answer. An answer that is too long for the cache is computed again
        for each request, because the iterator over its remaining bytes can be used only once.
        """
        task_of_other_request = self._tasks.get(tag)
        if task_of_other_request is None:
            task = asyncio.ensure_future(self._compute_in_thread(question, tag, compression))
            self._tasks[tag] = task
            task.add_done_callback(lambda _: self._tasks.pop(tag))
            return await task
        try:
            answer = await asyncio.shield(task_of_other_request)
        except asyncio.CancelledError:
            # Either this request or the task that computes the answer was cancelled. If the task was cancelled, the
            # answer is computed again.
            if not task_of_other_request.cancelled():
                raise
            return await self._compute_once(question, tag, compression)
        if answer.remaining is None:
            return answer
        return await self._compute_in_thread(question, tag, compression)

    async def _compute_in_thread(self, question: Question, tag: str, compression: str | None) -> Answer:
        deadline = Deadline(self._limits.seconds)
        compute = partial(self._compute_and_cache, question, tag, compression, deadline=deadline)
        return await self._pool.run(compute)

    def _find_answer(
        self, make_question: Callable[[], Question], compression: str | None
    ) -> tuple[Question, str, Answer | None]:
        """Call ``make_question``, and return the question, the tag of its answer, and the answer if it is cached."""
        question = make_question()
        versions = json.dumps(question.versions, sort_keys=True)
        answer_key = f"{question.request_key} {versions} {question.media_type} {compression}"
        tag = f'"{hashlib.sha256(answer_key.encode(errors="surrogatepass")).hexdigest()[:32]}"'
        return question, tag, self._cache.get(tag)

    def _compute_and_cache(self, question: Question, tag: str, compression: str | None, deadline: Deadline) -> Answer:
        """Compute an answer, cache it and return it. After the deadline, raise `OutOfTime`, which becomes the status
        503 of the response. The deadline includes the time for which the request waited for a thread.
        """
        deadline.check()
        format_headers, pieces = question.compute(compression, deadline)
        headers = {**_headers(tag), **format_headers}
        if compression:
            headers["content-encoding"] = compression
        body = bytearray()
        for piece in deadline.check_each(pieces):
            body += piece
            if len(body) > _MAX_CACHED_BYTES:
                return Answer(headers, question.media_type, bytes(body), remaining=pieces, deadline=deadline)
        answer = Answer(headers, question.media_type, bytes(body), question.versions)
        self._cache.put(tag, answer)
        return answer


def _headers(tag: str) -> dict[str, str]:
    """Return the headers that an answer has in common with the response that the client's answer is current."""
    return {"etag": tag, "vary": "accept, accept-encoding", "cache-control": _CACHE_CONTROL}


def object_question(request_key: str, versions: Mapping[str, str], describe: Callable[[], object]) -> Question:
    """Return a `Question` whose answer is the object that ``describe`` returns, as JSON."""
    return text_question(
        request_key, versions, lambda deadline: json.dumps(describe(), ensure_ascii=False, allow_nan=False)
    )


def text_question(request_key: str, versions: Mapping[str, str], write: Callable[[Deadline], str]) -> Question:
    """Return a `Question` whose answer is the JSON text that ``write`` returns."""

    def compute(compression: str | None, deadline: Deadline) -> tuple[Mapping[str, str], Iterator[bytes]]:
        text = write(deadline).encode()
        return {}, iter([pa.compress(text, compression, asbytes=True) if compression else text])

    return Question(request_key, versions, JSON, compute)
