"""Check that a process was not forked from a process that used deltalake, because the threads of deltalake are missing
in a forked process.
"""

from __future__ import annotations

import os

from tiltframe.store.log.errors import StoreError

_PROCESS_OF_THREADS: list[int] = []  # the id of the process in which deltalake started its threads; at first empty


def check_process() -> None:
    """Raise `StoreError` in a process that was forked after deltalake had started its threads."""
    if not _PROCESS_OF_THREADS:
        _PROCESS_OF_THREADS.append(os.getpid())
    if _PROCESS_OF_THREADS[0] != os.getpid():
        raise forked_error()


def forked_error() -> StoreError:
    """Return the error for a forked process, with advice on how to start processes."""
    return StoreError(
        "this process was forked from one that had opened a store in a folder or object store, and Delta Lake does "
        "not work in forked processes; start processes with multiprocessing.get_context('spawn')"
    )
