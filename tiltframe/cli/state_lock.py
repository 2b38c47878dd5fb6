"""A lock for each file with a saved state, so that only one process uses the state. The lock ends with the process."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def lock_state(state: Path | None) -> Iterator[None]:
    """Lock the file ``state`` within the block, in which a stream runs. Do nothing if ``state`` is None.

    A separate file next to ``state`` is locked, and is removed at the end of the block. If the process is killed, the
    operating system releases the lock.

    Raises
    ------
    ValueError
        If another process holds the lock.
    """
    if state is None:
        yield
        return
    state_path = state.resolve()
    file = state_path.with_name(f".{state_path.name}.lock")
    descriptor = _acquire(file, state)
    try:
        yield
    finally:
        # The lock file is removed before the lock is released. Otherwise another process could lock the file just
        # before the removal. A process that has already opened the file detects the removal in `_acquire`.
        file.unlink(missing_ok=True)
        os.close(descriptor)


def _acquire(file: Path, state: Path) -> int:
    """Create and lock a file, and return its descriptor. If the process that held the lock before has removed the file
    in the meantime, try again.
    """
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise ValueError(
                f"--state {state} is used by another process{f' ({holder})' if holder else ''}; a state can be used "
                "by only one process at a time; end that process, or use another state for this one"
            ) from None
        except OSError:
            return descriptor  # Some file systems, such as network folders, do not support locks.
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
