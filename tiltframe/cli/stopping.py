"""Signals that stop a stream. The stream ends after its current batch."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

_STOPPING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def record_signals() -> Iterator[list[int]]:
    """Within the block, record Ctrl-C and SIGTERM instead of exiting at once. A batch is then processed either
    completely or not at all.

    Yield a list, to which the number of each received signal is appended.
    """
    received_signals: list[int] = []
    before = {number: signal.signal(number, lambda got, _: received_signals.append(got)) for number in _STOPPING}
    try:
        yield received_signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
