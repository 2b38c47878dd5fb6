"""A lock for each saved state, so that one process uses it; the lock ends with the process."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(state: Path | None) -> Iterator[None]:
    """Lock a state while a stream runs; without a state, do nothing.

    The lock is a file next to the state, and is removed at the end. The system releases it if the process is killed.

    Raises
    ------
    ValueError
        If another process has the lock.
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
        file.unlink(missing_ok=True)  # before the unlock: a waiting process then sees that its file was replaced
        os.close(descriptor)


def _acquire(file: Path, state: Path) -> int:
    """Open and lock the file; repeat if the previous owner has removed it meanwhile."""
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
            return descriptor  # the file system does not support locks, such as some network folders
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
