"""Workers: threads that run several calls at the same time and return their results in the order of the calls.

Arrow and compiled loops release Python's global interpreter lock, so threads can use several cores. Unlike processes,
threads share tables without copying them.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeVar

from aggr.arguments import checked_whole

if TYPE_CHECKING:
    # not imported at run time until several threads are used, because the import is slow
    from concurrent.futures import Future, ThreadPoolExecutor

# The default number of threads is limited: more threads would only wait for the calling thread, which reads the items
# and merges the results, and would need more memory.
MAX_JOBS = 4
T = TypeVar("T")
R = TypeVar("R")


def available_cores() -> int:
    """Return the number of cores that the process may use.

    >>> available_cores() >= 1
    True
    """
    if hasattr(os, "sched_getaffinity"):  # the function does not exist on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def checked_jobs(jobs: int | None) -> int:
    """Return a number of threads, by default one for each available core, but at most `MAX_JOBS`.

    Raise ``ValueError`` for a number below 1.

    >>> checked_jobs(3)
    3
    """
    return min(available_cores(), MAX_JOBS) if jobs is None else checked_whole(jobs, "jobs", 1)


class Workers:
    """A pool of up to ``jobs`` threads. With one job, or for a single item, calls run in the calling thread.

    No call is running after the context has been left. Leave the context before you remove files that failed calls have
    written.

    >>> with Workers(2) as workers:
    ...     list(workers.map(abs, [-1, 2, -3]))
    [1, 2, 3]
    """

    def __init__(self, jobs: int) -> None:
        """Set the number of threads. Threads start when `map` is called."""
        self.jobs = jobs
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Call ``function`` with each item in a thread, and yield the results in the order of the items.

        At most ``jobs`` calls are running, or have results that were not yielded yet. If several calls fail, the error
        of the first of their items is raised. Items are fetched in the calling thread.
        """
        items = iter(items)
        if self.jobs == 1:
            yield from map(function, items)
            return
        first_items = deque(islice(items, 2))
        if len(first_items) < 2:
            if first_items:
                yield function(first_items.popleft())
            return
        pool = self._start_pool()
        futures: deque[Future[R]] = deque()
        for item in chain(_pop_items(first_items), items):
            if len(futures) == self.jobs:
                yield futures.popleft().result()
            futures.append(pool.submit(function, item))
            del item  # an item may be large, so no reference to it is kept
        while futures:
            yield futures.popleft().result()

    def _start_pool(self) -> ThreadPoolExecutor:
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(self.jobs, thread_name_prefix="tiltframe-worker")
        return self._pool


def _pop_items(items: deque[T]) -> Iterator[T]:
    """Yield items, and remove them from ``items``, so that no reference to them remains."""
    while items:
        yield items.popleft()
