"""A notice of compilation: a program can inform its user, once per process, that it is waiting for the compiler."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# After this number of seconds of waiting, the function that was passed to `announce_compiling` is called.
_NOTICE_AFTER_SECONDS = 1.0


class _Notice:
    """The function to call, and the seconds that this process has waited for the compiler."""

    def __init__(self) -> None:
        self.announce: Callable[[], None] | None = None
        self.waited_seconds = 0.0


_notice = _Notice()


def announce_compiling(announce: Callable[[], None] | None) -> None:
    """Register a function that is called once, as soon as this process has waited for the compiler for a second in
    total.

    Parameters
    ----------
    announce : function, optional
        A function without arguments. It is called in another thread. None removes the function of an earlier call.

    Examples
    --------
    >>> announce_compiling(lambda: print("compiling, once for this machine"))
    >>> announce_compiling(None)
    """
    _notice.announce = announce


@contextmanager
def waiting_for_compiler() -> Iterator[None]:
    """Add the time of the block to the time for which this process has waited for the compiler. When the total reaches
    a second, the function that was passed to `announce_compiling` is called.

    >>> with waiting_for_compiler():
    ...     pass
    """
    if _notice.announce is None:
        yield
        return
    timer = threading.Timer(max(_NOTICE_AFTER_SECONDS - _notice.waited_seconds, 0.0), _call_once)
    timer.daemon = True
    start = time.monotonic()
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        _notice.waited_seconds += time.monotonic() - start


def _call_once() -> None:
    announce = _notice.announce
    _notice.announce = None
    if announce is not None:
        announce()
