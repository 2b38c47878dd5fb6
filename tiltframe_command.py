"""The installed command ``tiltframe``. It is not part of the packages, so that Ctrl-C can also interrupt their
import.
"""

from __future__ import annotations

import gc
import os
import signal
from contextlib import suppress


def main() -> None:
    """Import the command line, and run it."""
    # Imported objects live for ever; without this, collecting them repeatedly would take a tenth of the start.
    gc.set_threshold(50_000)
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)  # A KeyboardInterrupt during an import would print a traceback or get lost.
    with suppress(ImportError):  # `tiltframe.command` reports missing modules
        import tiltframe.cli  # noqa: F401
    from tiltframe.command import main as run

    signal.signal(signal.SIGINT, before)
    run()


def _end(*_: object) -> None:
    os.write(2, b"tiltframe: interrupted; nothing was written\n")
    os._exit(130)
