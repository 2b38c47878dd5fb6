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

NOTHING_WRITTEN = "interrupted; nothing was written"
ROWS_WRITTEN = "interrupted; the rows were written"
COMMIT_UNSURE = (
    "interrupted during a commit, which was written completely or not at all; run the command again: no row is "
    "counted twice"
)
STEPS_REMAIN = (
    "interrupted; the completed steps remain, and the store is intact; run the command again to do the others"
)

# the number of seconds after which `resend_swallowed_interrupts` sends the signal of a Ctrl-C to this process again
_RESEND_SECONDS = 0.01

# the current message, as the only element of a list, so that functions can replace it
_current_message = [NOTHING_WRITTEN]


def interrupt_message() -> str:
    """Return the message to print if the command is interrupted now."""
    return _current_message[0]


def set_interrupt_message(sentence: str) -> None:
    """Set the message that `interrupt_message` returns from now on."""
    _current_message[0] = sentence


@cache
def ignore_interrupts_at_exit() -> None:
    """Make the process ignore Ctrl-C while it exits. At this point the command is complete, and a signal would only
    interrupt the cleanup of the Python interpreter.
    """
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


@contextmanager
def resend_swallowed_interrupts() -> Iterator[None]:
    """Within the block, send the signal of a Ctrl-C to this process again if the first signal had no effect.

    A signal may arrive in code that cannot raise exceptions, such as the callback of a weak reference. Python then
    prints the KeyboardInterrupt and ignores it. Without a second signal, the command would continue.
    """
    previous_hook = sys.unraisablehook

    def resend(what: sys.UnraisableHookArgs) -> None:
        if isinstance(what.exc_value, KeyboardInterrupt):
            threading.Timer(_RESEND_SECONDS, os.kill, (os.getpid(), signal.SIGINT)).start()
        else:
            previous_hook(what)

    sys.unraisablehook = resend
    try:
        yield
    finally:
        sys.unraisablehook = previous_hook


@contextmanager
def report_commit_on_interrupt(is_written: Callable[[], bool]) -> Iterator[None]:
    """Set the message that is printed if the block is interrupted. The block writes data to a store, and the message
    says whether the store contains this data. The function ``is_written`` returns whether the data was written.
    """
    set_interrupt_message(COMMIT_UNSURE)
    try:
        yield
    except KeyboardInterrupt:
        set_interrupt_message(ROWS_WRITTEN if is_written() else NOTHING_WRITTEN)
        raise
    except BaseException:
        set_interrupt_message(NOTHING_WRITTEN)
        raise
    set_interrupt_message(ROWS_WRITTEN)
