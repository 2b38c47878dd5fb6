"""The installed command ``tiltframe``. It is outside of the packages so that Ctrl-C also stops their import."""

from __future__ import annotations

import gc
import os
import signal
from contextlib import suppress


def main() -> None:
    """Import the command line, and run it."""
    gc.set_threshold(50_000)  # imported objects live forever; repeated collections of them take a tenth of the start
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)  # KeyboardInterrupt during an import would print a traceback, or be lost
    with suppress(ImportError):  # `tiltframe.command` reports a missing module
        import tiltframe.cli  # noqa: F401
    from tiltframe.command import main as run

    signal.signal(signal.SIGINT, before)
    run()


def _end(*_: object) -> None:
    os.write(2, b"tiltframe: interrupted; nothing was written\n")
    os._exit(130)
