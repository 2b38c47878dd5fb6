"""Answers: responses that are computed in worker threads, and cached in bounded memory. An answer belongs to one
version of a store, and its ETag is derived from this version and the request. If several requests need the same answer
at the same time, the first request computes it, and the other requests wait for it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tiltframe.serve.cost import Limits
from tiltframe.serve.deadline import Deadline
from tiltframe.serve.forms import JSON, packing_of
from tiltframe.serve.observed import Metrics
from tiltframe.serve.workers import WorkerPool

_BUFFERED_BYTES = 1 << 20  # the maximum bytes of an answer that is cached; a longer one is sent while it is computed
_ENTRY = 440  # the memory of a cached answer in addition to its body and headers, in bytes, as measured
# the number of bytes that are sent at once; for a slow client, no more than this waits in memory
_CHUNK = 1 << 16
_LIVES = "private, no-cache"  # before a cache uses an answer, it must ask the server whether the answer is current


@dataclass(frozen=True)
class Question:
    """A request for data: the key of its answer in the cache, and the function that computes the answer."""

    # The first part of the key in the cache: the store, its version and the query. ``form`` and the compression follow.
    words: str
    form: str  # the media type of the answer
    # A function of the compression and the deadline of the first piece. It returns the headers and an iterator over the
    # pieces of the body.
    compute: Callable[[str | None, Deadline], tuple[Mapping[str, str], Iterator[bytes]]]


@dataclass(frozen=True)
class _Begun:
    """An answer whose first bytes, ``body``, have been computed. ``remaining`` is an iterator over the remaining bytes,
    or None if ``body`` is the complete answer.
    """

    headers: Mapping[str, str]
    form: str
    body: bytes
    remaining: Iterator[bytes] | None = None
    deadline: Deadline | None = None  # the time by which the next piece must be computed


class Answers:
    """Responses to requests, computed in worker threads and cached."""

    def __init__(self, pool: WorkerPool, limits: Limits, metrics: Metrics) -> None:
        """Create an empty cache."""
        self._pool, self._limits, self._metrics = pool, limits, metrics
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, _Begun] = OrderedDict()
        # tag → the task that computes the answer; used only in the event loop
        self._running: dict[str, asyncio.Task[_Begun]] = {}
        self._bytes = 0
        # the maximum bytes of cached answers; the other half of the limit is for the files that stores keep open
        self._most_bytes = limits.memory // 2

    async def to(self, request: Request, ask: Callable[[], Question]) -> Response:
        """Return the response to a request. ``ask``, called in a worker thread, returns the `Question` to answer."""
        packing = packing_of(request.headers.get("accept-encoding", ""))
        etags = request.headers.get("if-none-match", "")
        begun = await self._pool.look_up(self._find_answer, ask, packing, etags)
        if isinstance(begun, tuple):
            begun = await self._computed_once(*begun, packing)
        if begun is None or begun.remaining is None:
            status, body = (200, begun.body) if begun else (304, b"")
            headers = begun.headers if begun else {"etag": etags, "cache-control": _LIVES}
            return Response(body, status, dict(headers), begun.form if begun else None)
        return StreamingResponse(self._sent(begun), 200, dict(begun.headers), begun.form)

    async def _computed_once(self, question: Question, tag: str, packing: str | None) -> _Begun:
        """Return the answer to ``question``. If another request is already computing the answer with the same ``tag``,
        wait for it; otherwise compute the answer. An answer that is too long for the cache is computed again for each
        request, because the iterator over its remaining bytes can be used only once.
        """
        running = self._running.get(tag)
        if running is None:
            deadline = Deadline(self._limits.seconds)
            own = asyncio.ensure_future(self._pool.run(self._computed, question, tag, packing, deadline))
            self._running[tag] = own
            own.add_done_callback(lambda _: self._running.pop(tag))
            return await own
        try:
            begun = await asyncio.shield(running)
        except asyncio.CancelledError:
            if not running.cancelled():  # this request was cancelled, not the task that computes the answer
                raise
            return await self._computed_once(question, tag, packing)
        if begun.remaining is None:
            return begun
        return await self._pool.run(self._computed, question, tag, packing, Deadline(self._limits.seconds))

    async def _sent(self, begun: _Begun) -> AsyncIterator[bytes]:
        """Yield the bytes of an answer in chunks of at most `_CHUNK` bytes. The remaining pieces of the answer are
        computed in worker threads, one after the other, when the previous piece has been sent.
        """
        assert begun.remaining is not None
        assert begun.deadline is not None
        body = begun.body
        while body:
            for at in range(0, len(body), _CHUNK):
                yield body[at : at + _CHUNK]
            begun.deadline.restart()
            body = await self._pool.run(next, begun.remaining, b"")

    def _find_answer(
        self, ask: Callable[[], Question], packing: str | None, etags: str
    ) -> _Begun | tuple[Question, str] | None:
        """Call ``ask``, and return the cached answer to the question that it returns. If the answer is not cached,
        return a pair: the question and its tag, which is the key in the cache. Return None if the client already has
        the answer: ``etags`` are the tags of the answers that it has.
        """
        question = ask()
        question_text = f"{question.words} {question.form} {packing}"
        tag = f'"{hashlib.sha256(question_text.encode(errors="surrogatepass")).hexdigest()[:32]}"'
        if tag in etags.replace("W/", "").split(", "):
            self._metrics.add("cache_hits_total")
            return None
        with self._lock:
            if cached := self._kept.get(tag):
                self._kept.move_to_end(tag)
        self._metrics.add("cache_hits_total" if cached else "cache_misses_total")
        return cached or (question, tag)

    def _computed(self, question: Question, tag: str, packing: str | None, deadline: Deadline) -> _Begun:
        """Compute an answer, cache it and return it. Raise `OutOfTime`, which becomes status 503, after the deadline.
        The deadline includes the time for which the request waited for a thread.
        """
        deadline.check()
        more, pieces = question.compute(packing, deadline)
        headers = {"etag": tag, "vary": "accept, accept-encoding", "cache-control": _LIVES, **more}
        if packing:
            headers["content-encoding"] = packing
        body = bytearray()
        for piece in deadline.checked(pieces):
            body += piece
            if len(body) > _BUFFERED_BYTES:
                return _Begun(headers, question.form, bytes(body), remaining=pieces, deadline=deadline)
        begun = _Begun(headers, question.form, bytes(body))
        with self._lock:
            replaced = self._kept.pop(tag, None)  # another thread may have computed the same answer
            self._kept[tag] = begun
            self._bytes += _kept_bytes(begun) - (_kept_bytes(replaced) if replaced else 0)
            while self._bytes > self._most_bytes:
                self._bytes -= _kept_bytes(self._kept.popitem(last=False)[1])
        return begun


def _kept_bytes(begun: _Begun) -> int:
    """Return the bytes of memory that a cached answer needs, including overhead."""
    return sys.getsizeof(begun.body) + sum(map(len, begun.headers.values())) + _ENTRY


def described(words: str, describe: Callable[[], object]) -> Question:
    """Return a `Question` whose answer is the object that ``describe`` returns, as JSON. ``words`` becomes
    `Question.words`, the first part of the key under which the answer is cached.
    """
    return written(words, lambda deadline: json.dumps(describe(), ensure_ascii=False, allow_nan=False))


def written(words: str, write: Callable[[Deadline], str]) -> Question:
    """Return a `Question` whose answer is the JSON text that ``write`` returns. ``words`` becomes `Question.words`,
    the first part of the key under which the answer is cached.
    """

    def compute(packing: str | None, deadline: Deadline) -> tuple[Mapping[str, str], Iterator[bytes]]:
        text = write(deadline).encode()
        return {}, iter([_packed(text, packing) if packing else text])

    return Question(words, JSON, compute)


def _packed(text: bytes, packing: str) -> bytes:
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, packing) as stream:
        stream.write(text)
    return bytes(out.getvalue())
