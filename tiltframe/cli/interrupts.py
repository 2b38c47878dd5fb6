"""Ctrl-C: the message of an interrupted command says whether data was written."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

NOTHING = "interrupted; nothing was written"
WRITTEN = "interrupted; the rows were written"
UNSURE = (
    "interrupted during a commit, which was written completely or not at all; run the command again: no row is "
    "counted twice"
)
STEPS = "interrupted; the completed steps remain, and the store is intact; run the command again to do the others"

# the number of seconds after which `never_swallowed` sends the signal of a Ctrl-C to this process again
_SOON = 0.01

# the current message, as the only element of a list, so that functions can replace it
_sentence = [NOTHING]


def interrupted() -> str:
    """Return the message to print if the command is interrupted now."""
    return _sentence[0]


def set_interrupt_message(sentence: str) -> None:
    """Set the message that `interrupted` returns from now on."""
    _sentence[0] = sentence


@cache
def too_late_at_exit() -> None:
    """Make the process ignore Ctrl-C while it exits. At this point the command is complete, and a signal would only
    interrupt the cleanup of the Python interpreter.
    """
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


@contextmanager
def never_swallowed() -> Iterator[None]:
    """Within the block, send the signal of a Ctrl-C to this process again if the first one arrives in code that
    cannot raise exceptions, such as the callback of a weak reference.

    In such code, Python prints the KeyboardInterrupt and ignores it, so that the command would continue.
    """
    previous_hook = sys.unraisablehook

    def again(what: sys.UnraisableHookArgs) -> None:
        if isinstance(what.exc_value, KeyboardInterrupt):
            threading.Timer(_SOON, os.kill, (os.getpid(), signal.SIGINT)).start()
        else:
            previous_hook(what)

    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = previous_hook


@contextmanager
def writing(written: Callable[[], bool]) -> Iterator[None]:
    """Set the message that is printed if the block, which writes to a store, is interrupted. The message says whether
    the store contains the new data. ``written`` is a function that returns whether the store contains it.
    """
    set_interrupt_message(UNSURE)
    try:
        yield
    except KeyboardInterrupt:
        set_interrupt_message(WRITTEN if written() else NOTHING)
        raise
    except BaseException:
        set_interrupt_message(NOTHING)
        raise
    set_interrupt_message(WRITTEN)
