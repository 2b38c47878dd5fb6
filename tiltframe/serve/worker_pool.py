"""Worker threads: answers are looked up and computed in them, so many at once, while the server goes on listening."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from tiltframe.serve.cost import Limits
from tiltframe.serve.errors import Refused

P = ParamSpec("P")
T = TypeVar("T")


class WorkerPool:
    """As many threads as queries may run at once; and as many to look up what is known, which waits for no query."""

    def __init__(self, limits: Limits) -> None:
        """Start no thread yet."""
        self._limits = limits
        self._computing, self._looking = (ThreadPoolExecutor(limits.queries, name) for name in ("query", "look-up"))
        self._begun: set[Future[Any]] = set()

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in a thread, for so long as a query may take; raises `Refused` after that.

        A thread cannot be stopped: it ends what it is at, and until then others wait for it.
        """
        return await self._awaited(self._computing.submit(function, *args, **kwargs))

    async def look_up(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that computes nothing, as `run` does, while queries run."""
        return await self._awaited(self._looking.submit(function, *args, **kwargs))

    async def _awaited(self, future: Future[T]) -> T:
        self._begun.add(future)
        future.add_done_callback(self._begun.discard)
        seconds = self._limits.seconds
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), seconds)
        except TimeoutError:
            if future.cancelled():
                raise Refused(
                    503,
                    f"{self._limits.queries} queries are running, and none has ended for {seconds} s; ask again later",
                    {"retry-after": "5"},
                ) from None
            raise Refused(
                503, f"this took longer than {seconds} s; take less at once: a shorter range, fewer keys, fewer windows"
            ) from None

    def close(self) -> bool:
        """Begin nothing more; say whether a thread is still at something."""
        for threads in (self._computing, self._looking):
            threads.shutdown(wait=False, cancel_futures=True)
        return bool(self._begun)
