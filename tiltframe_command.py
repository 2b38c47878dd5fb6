"""The installed command ``tiltframe``. It is not part of the packages, so that Ctrl-C can also interrupt their
import.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from contextlib import suppress

# Settings of memory allocators for commands that run for weeks; libraries read them when they are loaded. Arrow's own
# allocator (mimalloc) and that of deltalake (jemalloc) keep freed memory, and the amount grows with each commit.
_ALLOCATORS_OF_LONG_COMMANDS = {"ARROW_DEFAULT_MEMORY_POOL": "system", "_RJEM_MALLOC_CONF": "dirty_decay_ms:0"}
# A setting for all other commands: Arrow's allocator keeps freed memory, because getting it from the system again takes
# a twentieth of the time of a rollup.
_ALLOCATORS_OF_OTHER_COMMANDS = {"MIMALLOC_PURGE_DELAY": "-1"}


def main() -> None:
    """Import the command line, and run it."""
    _open_missing_streams()
    completed = _Completed()
    atexit.register(completed.end_process)  # registered first, so that it runs after all other functions at exit
    # Imported objects live for ever, so the garbage collector starts after the imports. Otherwise it would take a tenth
    # of the start.
    gc.disable()
    # The command does not use BLAS. Its threads, which numpy starts, would wait for work in busy loops.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    is_long = sys.argv[1:2] in (["serve"], ["stream"])
    for name, value in (_ALLOCATORS_OF_LONG_COMMANDS if is_long else _ALLOCATORS_OF_OTHER_COMMANDS).items():
        os.environ.setdefault(name, value)
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)  # A KeyboardInterrupt during an import would print a traceback or get lost.
    with suppress(ImportError):  # `tiltframe.command` reports missing modules
        import tiltframe.cli  # noqa: F401
    from aggr.skipped_pandas import skip_pandas
    from tiltframe.command import main as run

    skip_pandas()

    gc.freeze()
    gc.set_threshold(50_000)
    gc.enable()
    signal.signal(signal.SIGINT, before)
    run()
    completed.is_true = True


def _open_missing_streams() -> None:
    """Replace standard streams that the caller has closed, as some supervisors do, by the null device. Otherwise, the
    next file that the process opens would have the number of a standard stream.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  (open until the process ends)


class _Completed:
    """Whether the command has completed without an error."""

    def __init__(self) -> None:
        self.is_true = False

    def end_process(self) -> None:
        """End the process at once after a complete command. Freeing its memory first would take 0.3 s of a rollup."""
        if self.is_true:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
            os._exit(0)


def _end(*_: object) -> None:
    os.write(2, b"tiltframe: interrupted; nothing was written\n")
    os._exit(130)
