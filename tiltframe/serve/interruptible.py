"""Calls in worker threads that can be stopped. If a client no longer awaits an answer, the computation of the answer is
stopped.

A deadline is checked only between the slices of an answer. While a query is parsed and planned, and states are read, a
call must be stopped in another way: another thread asks Python to raise an exception in the thread of the call. Python
raises it before the next bytecode that this thread runs. Native code is not interrupted, but the limits of requests
keep its duration short.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from tiltframe.serve.errors import OutOfTime

T = TypeVar("T")
# the maximum number of seconds that a thread waits for an exception that another thread has raised in it
_RAISE_SECONDS = 1.0


class _Stopped(BaseException):
    """An exception that is raised in the thread of a stopped call. The class is not a subclass of ``Exception``, so
    that error handlers do not catch it.
    """


class InterruptibleCall(Generic[T]):
    """A call of a function, without arguments, that can be stopped by another thread. An object can be called only
    once.

    >>> InterruptibleCall(lambda: 7)()
    7
    """

    def __init__(self, function: Callable[[], T]) -> None:
        """Create the call without starting it."""
        self._function = function
        self._lock = threading.Lock()
        # while the function runs, the identifier of its thread; otherwise None
        self._thread: int | None = None
        self._is_stopped = False

    def __call__(self) -> T:
        """Return the result of the function; raise `OutOfTime` if the call was stopped."""
        was_raised = False
        try:
            try:
                self._begin()
                return self._function()
            except _Stopped:
                was_raised = True
                raise
            finally:
                self._end(was_raised)
        except _Stopped:
            raise OutOfTime(
                "the computation was stopped, because its request has ended; send the request again"
            ) from None

    def stop(self) -> None:
        """Stop the call, which then raises `OutOfTime`. If the call has not begun, the function is not run. If the call
        has ended, do nothing.
        """
        with self._lock:
            self._is_stopped = True
            if self._thread is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), ctypes.py_object(_Stopped))

    def _begin(self) -> None:
        with self._lock:
            if self._is_stopped:
                raise _Stopped
            self._thread = threading.get_ident()

    def _end(self, was_raised: bool) -> None:
        """Record that the function has ended. ``was_raised`` says whether the exception of `stop` was already raised
        in this thread. If the call was stopped and the exception was not raised yet, wait for it. Otherwise it would
        be raised in the next call that this thread runs.
        """
        with self._lock:
            is_pending = self._is_stopped and self._thread is not None and not was_raised
            self._thread = None
        end = time.monotonic() + _RAISE_SECONDS
        while is_pending and time.monotonic() < end:
            time.sleep(0.001)
