"""Worker threads for the requests of the server, so that long queries do not block the event loop or short calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from tiltframe.serve.cost import Limits
from tiltframe.serve.deadline import Deadline
from tiltframe.serve.errors import OutOfTime, Refused
from tiltframe.serve.interruptible import InterruptibleCall

P = ParamSpec("P")
T = TypeVar("T")
_ASK_FOR_LESS = "use a shorter range, fewer keys or fewer windows"
# the number of bytes that are sent at once; for a slow client, no more bytes than these wait in memory
_CHUNK_BYTES = 1 << 16
_WRITE_THREADS = 32  # the number of threads for writes; usually they only wait for a group commit
_SEND_AGAIN = (
    "the write continues; send the same request again, with the same writer and number; its rows are added only once"
)


class WorkerPool:
    """Three thread pools: for queries, look-ups and writes. Calls in different pools do not wait for each other.

    A query computes an answer from the states of a store, and may run for seconds. A look-up is a call that is short
    as a rule, such as a search for the answer in the cache, a test whether a store has changed, or the parsing of a
    request. The pools for queries and look-ups have `Limits.queries` threads each, and the pool for writes has 32.
    """

    def __init__(self, limits: Limits) -> None:
        """Create the thread pools without starting a thread."""
        self._limits = limits
        self._query_threads = ThreadPoolExecutor(limits.queries, "query")
        self._look_up_threads = ThreadPoolExecutor(limits.queries, "look-up")
        self._write_threads = ThreadPoolExecutor(_WRITE_THREADS, "write")
        self._unfinished_calls: set[Future[Any]] = set()

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function in a thread for queries and return its result. After the time limit of a query, stop the
        function and raise `OutOfTime`, or `Refused` if the function was still waiting for a thread.
        """
        return await self._run_interruptible(self._query_threads, partial(function, *args, **kwargs))

    async def look_up(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function like `run`, but in a thread for look-ups, so that the call does not wait for queries."""
        return await self._run_interruptible(self._look_up_threads, partial(function, *args, **kwargs))

    async def write(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function in a thread for writes and return its result. After the time limit of a query, raise
        an error like `run`, but let the function run to its end.
        """
        return await self._await_result(
            self._write_threads.submit(function, *args, **kwargs), f"{_WRITE_THREADS} writes", _SEND_AGAIN
        )

    async def _run_interruptible(self, threads: ThreadPoolExecutor, function: Callable[[], T]) -> T:
        call = InterruptibleCall(function)
        future = threads.submit(call)
        try:
            return await self._await_result(future, f"{self._limits.queries} queries", _ASK_FOR_LESS)
        finally:
            if not future.done():
                call.stop()

    async def _await_result(self, future: Future[T], running_calls_text: str, advice: str) -> T:
        """Return the result of the call that ``future`` stands for. After the time limit of a query, raise an error
        with status 503.

        If the call was still waiting for a thread, the error is `Refused`, and its message says that
        ``running_calls_text``, such as ``4 queries``, are running. Otherwise it is `OutOfTime`, and its message ends
        with ``advice``.
        """
        self._unfinished_calls.add(future)
        future.add_done_callback(self._unfinished_calls.discard)
        seconds = self._limits.seconds
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), seconds)
        except TimeoutError:
            if future.cancelled():
                raise Refused(
                    503,
                    f"{running_calls_text} are running, and none has ended for {seconds} s; send the request again "
                    "later",
                    {"retry-after": "5"},
                ) from None
            raise OutOfTime(f"the request took longer than {seconds} s; {advice}") from None

    def count_calls(self) -> tuple[int, int]:
        """Return the number of calls that are running, and the number of calls that are waiting for a thread, for
        queries, look-ups and writes together.
        """
        is_running = [call.running() for call in list(self._unfinished_calls)]
        return sum(is_running), len(is_running) - sum(is_running)

    def close(self) -> bool:
        """Accept no further calls, and cancel those that wait for a thread. Return whether a call is still running."""
        for threads in (self._query_threads, self._look_up_threads, self._write_threads):
            threads.shutdown(wait=False, cancel_futures=True)
        return bool(self._unfinished_calls)


async def stream(
    pool: WorkerPool, deadline: Deadline, first_piece: bytes, remaining: Iterator[bytes]
) -> AsyncIterator[bytes]:
    """Yield the bytes of an answer, at most `_CHUNK_BYTES` at once. ``first_piece`` of the answer has already been
    computed. Each later piece is computed in a thread for queries after the previous piece was sent. The time limit
    applies to each piece, and not to the whole answer.
    """
    piece = first_piece
    while piece:
        for at in range(0, len(piece), _CHUNK_BYTES):
            yield piece[at : at + _CHUNK_BYTES]
        deadline.restart()
        piece = await pool.run(next, remaining, b"")
