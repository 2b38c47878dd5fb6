"""Calls in worker threads that can be stopped, so that no thread computes an answer that its client no longer awaits.

Deadlines are checked between the slices of an answer, but parsing, planning and reading have no such places. A stopped
call therefore gets an exception from outside, which Python raises before the next bytecode of its thread. A call of
native code ends first; the limits of requests keep such calls short.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from tiltframe.serve.errors import OutOfTime

T = TypeVar("T")
_ARRIVAL_SECONDS = 1.0  # the maximum seconds until a raised exception arrives in an idle thread


class _Stopped(BaseException):
    """Raised in the thread of a stopped call. It is not an ``Exception``, so that error handlers do not catch it."""


class InterruptibleCall(Generic[T]):
    """A call without arguments that another thread can stop. Each object is called once.

    >>> InterruptibleCall(lambda: 7)()
    7
    """

    def __init__(self, function: Callable[[], T]) -> None:
        """Create the call without starting it."""
        self._function = function
        self._lock = threading.Lock()
        self._thread: int | None = None  # the thread while it runs the function
        self._is_stopped = False

    def __call__(self) -> T:
        """Return the result of the function; raise `OutOfTime` if the call was stopped."""
        has_arrived = False
        try:
            try:
                self._begin()
                return self._function()
            except _Stopped:
                has_arrived = True
                raise
            finally:
                self._end(has_arrived)
        except _Stopped:
            raise OutOfTime("the request has ended, and its work was stopped") from None

    def stop(self) -> None:
        """Make the call end soon. A call that has ended, or has not begun, does nothing more."""
        with self._lock:
            self._is_stopped = True
            if self._thread is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), ctypes.py_object(_Stopped))

    def _begin(self) -> None:
        with self._lock:
            if self._is_stopped:
                raise _Stopped
            self._thread = threading.get_ident()

    def _end(self, has_arrived: bool) -> None:
        """Mark the function as ended. If the call was stopped and the exception has not arrived yet, wait for it, so
        that it is not raised in later work of this thread.
        """
        with self._lock:
            is_awaited = self._is_stopped and self._thread is not None and not has_arrived
            self._thread = None
        end = time.monotonic() + _ARRIVAL_SECONDS
        while is_awaited and time.monotonic() < end:
            time.sleep(0.001)
