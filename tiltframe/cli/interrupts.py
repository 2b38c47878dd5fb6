"""Ctrl-C: the sentence that says truly what a command has written when it is interrupted."""

from __future__ import annotations

import atexit
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

NOTHING = "interrupted; nothing was written"
WRITTEN = "interrupted; the rows were written"
UNSURE = "interrupted while the store was written to: it holds all of it or nothing; run it again, it counts once"
STEPS = "interrupted; the steps that were done stay done, and the store is whole; run it again"

_sentence = [NOTHING]  # of this process: a signal has no arguments


def interrupted() -> str:
    """Return what to say of an interrupt now."""
    return _sentence[0]


def from_now(sentence: str) -> None:
    """Say this of an interrupt from now on."""
    _sentence[0] = sentence


@cache
def too_late_at_exit() -> None:
    """Ignore Ctrl-C while the process ends: all is done and said, and a signal would kill what is left of it."""
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


@contextmanager
def writing(written: Callable[[], bool]) -> Iterator[None]:
    """Write to a store within.

    Parameters
    ----------
    written : function of nothing
        Says whether the store holds what was to be written; asked only after an interrupt.
    """
    from_now(UNSURE)
    try:
        yield
    except KeyboardInterrupt:
        from_now(WRITTEN if written() else NOTHING)
        raise
    except BaseException:
        from_now(NOTHING)
        raise
    from_now(WRITTEN)
