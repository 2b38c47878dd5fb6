"""The command ``tiltframe``, where it is installed: next to the packages, so that Ctrl-C ends their import as well."""

from __future__ import annotations

import gc
import os
import signal
from contextlib import suppress


def main() -> None:
    """Import the command line, and run it."""
    gc.set_threshold(50_000)  # what is imported stays: looking through it again and again is a tenth of a start
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)  # an exception within an import is a traceback, or is lost there
    with suppress(ImportError):  # which the command tells
        import tiltframe.cli  # noqa: F401
    from tiltframe.command import main as run

    signal.signal(signal.SIGINT, before)
    run()


def _end(*_: object) -> None:
    os.write(2, b"tiltframe: interrupted; nothing was written\n")
    os._exit(130)
