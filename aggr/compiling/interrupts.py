"""Deferred Ctrl-C: a KeyboardInterrupt is raised only after code that would discard it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Defer the KeyboardInterrupt of Ctrl-C until the end of the block.

    LLVM calls back into Python while it compiles. An exception in such a callback is only printed, so without this
    function the program would ignore Ctrl-C and continue.

    >>> with defer_interrupts():
    ...     pass
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield  # Python runs signal handlers only in the main thread
        return
    frames: list[FrameType | None] = []

    def record_interrupt(_: int, frame: FrameType | None) -> None:
        frames.append(frame)

    signal.signal(signal.SIGINT, record_interrupt)
    try:
        yield
    finally:
        # If the block has installed another handler, as Spark does, that handler stays.
        if signal.getsignal(signal.SIGINT) is record_interrupt:
            signal.signal(signal.SIGINT, handler)
        if frames:
            handler(signal.SIGINT, frames[0])
