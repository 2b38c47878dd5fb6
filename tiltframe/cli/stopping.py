"""Signals that stop a stream. The stream ends after its current batch."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

_STOPPING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stopped_by_signals() -> Iterator[list[int]]:
    """Record Ctrl-C and SIGTERM instead of exiting at once, so that a batch is either processed completely or not at
    all.

    Yield a list; the numbers of received signals are appended to it.
    """
    stopped: list[int] = []
    before = {number: signal.signal(number, lambda got, _: stopped.append(got)) for number in _STOPPING}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
