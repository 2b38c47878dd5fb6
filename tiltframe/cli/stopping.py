"""Signals that stop a stream: they are noted, and the stream ends after what it has begun."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

_STOPPING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stopped_by_signals() -> Iterator[list[int]]:
    """Note Ctrl-C and SIGTERM instead of ending at once, so that a batch is taken whole or not at all.

    Yields a list that has the numbers of the signals.
    """
    stopped: list[int] = []
    before = {number: signal.signal(number, lambda got, _: stopped.append(got)) for number in _STOPPING}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
