"""One process for each saved state: a lock that ends with the process that has it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(state: Path | None) -> Iterator[None]:
    """Hold the lock of a state while a stream runs; without a state, none.

    The lock is a file next to the state, which is removed at the end. The system releases it if the process is killed.

    Raises
    ------
    ValueError
        If another process holds it.
    """
    if state is None:
        yield
        return
    place = state.resolve()
    file = place.with_name(f".{place.name}.lock")
    descriptor = _acquire(file, state)
    try:
        yield
    finally:
        file.unlink(missing_ok=True)  # while it is held: another process sees that its file is no longer this one
        os.close(descriptor)


def _acquire(file: Path, state: Path) -> int:
    """Open and lock the file; again if the process that had it removed it meanwhile."""
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise ValueError(
                f"--state {state} is used by another process{f' ({holder})' if holder else ''}; one process at a time "
                "runs a stream: end that one, or give this one a state of its own"
            ) from None
        except OSError:
            return descriptor  # a file system without locks, such as some network folders
        if _is_at(file, descriptor):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
            return descriptor
        os.close(descriptor)


def _is_at(file: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(file), os.fstat(descriptor))
    except FileNotFoundError:
        return False
