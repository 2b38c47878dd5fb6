"""Workers: threads that run several calls at the same time and return their results in the order of the calls, and
threads that work in the background and are stopped when the process exits.

Arrow and compiled loops release Python's global interpreter lock, so threads can use several cores. Unlike processes,
threads share tables without copying them.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeVar

from aggr.arguments import checked_whole

if TYPE_CHECKING:
    from concurrent.futures import Future

# The default number of threads is limited. More threads would need more memory, and would only wait for the calling
# thread, which reads the items and merges the results.
MAX_JOBS = 4
# the maximum number of seconds for which the exit of a process waits for its background threads
_EXIT_SECONDS = 2.0
T = TypeVar("T")
R = TypeVar("R")


def available_cores() -> int:
    """Return the number of cores that the process may use.

    >>> available_cores() >= 1
    True
    """
    if hasattr(os, "sched_getaffinity"):  # this function does not exist on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def checked_jobs(jobs: int | None) -> int:
    """Return ``jobs``, a number of threads. By default, return the number of available cores, but at most `MAX_JOBS`.

    Raise ``ValueError`` for a number below 1.

    >>> checked_jobs(3)
    3
    """
    return min(available_cores(), MAX_JOBS) if jobs is None else checked_whole(jobs, "jobs", 1)


def map_in_threads(
    function: Callable[[T], R], items: Iterable[T], jobs: int, is_large: Callable[[T], bool] = lambda item: False
) -> Generator[R, None, None]:
    """Call ``function`` with each item, in up to ``jobs`` threads, and yield the results in the order of the items.
    With one job, or for a single item, calls run in the calling thread.

    The first call starts when the second item has been fetched, because only then it is known that there are several
    items. If ``is_large`` is true for the first item, its call starts at once, in another thread.

    At most ``jobs`` calls are running, or have results that were not yielded yet. If several calls fail, the error of
    the first of their items is raised. Items are fetched in the calling thread. No call is running after the generator
    has ended, raised an error or been closed. Close the generator before you remove files that calls have written.

    >>> list(map_in_threads(abs, [-1, 2, -3], jobs=2))
    [1, 2, 3]
    """
    items = iter(items)
    if jobs == 1:
        yield from map(function, items)
        return
    first_items = deque(islice(items, 1))
    if not first_items:
        return
    if not is_large(first_items[0]):
        first_items.extend(islice(items, 1))
        if len(first_items) < 2:
            yield function(first_items.popleft())
            return
    from concurrent.futures import ThreadPoolExecutor  # imported here, because the import is slow

    pool = ThreadPoolExecutor(jobs, thread_name_prefix="tiltframe-worker")
    futures: deque[Future[R]] = deque()
    try:
        for item in chain(_pop_items(first_items), items):
            if len(futures) == jobs:
                yield futures.popleft().result()
            futures.append(pool.submit(function, item))
            del item  # an item may be large, so no reference to it is kept
        while futures:
            yield futures.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


# the background threads that have not ended, each with the function that asks it to stop
_stops_of_threads: dict[threading.Thread, Callable[[], None]] = {}


def start_background_thread(function: Callable[[], None], stop: Callable[[], None], name: str) -> None:
    """Call ``function`` in a thread. When the process exits, ``stop`` is called, which asks the thread to end soon. The
    exit then waits for the thread for at most `_EXIT_SECONDS`.

    Python ends a daemon thread when the thread returns from C++ to Python while the interpreter shuts down. If the C++
    code does not expect this, the process is aborted. The exit therefore waits for the thread. A thread that is not a
    daemon would keep the process running until ``function`` returns, for example until a pipe has data.
    """

    # A thread stays in the dictionary until it has ended. After ``function`` has returned, the thread destroys what
    # ``function`` referred to, for example a reader whose C++ code waits for its own threads.
    for ended in [thread for thread in list(_stops_of_threads) if thread.ident is not None and not thread.is_alive()]:
        _stops_of_threads.pop(ended, None)
    thread = threading.Thread(target=function, name=name, daemon=True)
    _stops_of_threads[thread] = stop
    try:
        thread.start()
    except BaseException:
        _stops_of_threads.pop(thread, None)
        raise


@atexit.register
def _stop_background_threads() -> None:
    stops = dict(_stops_of_threads)
    for stop in stops.values():
        stop()
    end = time.monotonic() + _EXIT_SECONDS
    for thread in stops:
        thread.join(max(end - time.monotonic(), 0.0))


def _pop_items(items: deque[T]) -> Iterator[T]:
    """Yield items, and remove them from ``items``, so that no reference to them remains."""
    while items:
        yield items.popleft()
