"""Compile once: of several processes that start together on a machine, one compiles a loop and the others wait for it.

Numba keeps compiled code on disk, but processes that miss the same code all compile it. Here the one that finds none
locks a file next to where it would be kept, looks again, and compiles; the others wait, and then find it. The system
takes the lock from a process that ends, however it ends: a lock file that is left behind blocks no process. Where files
cannot be locked, each compiles for itself.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from aggr.compiling.interrupts import hold_interrupts

LOCK_NAME = "compiling.lock"

if sys.platform == "win32":
    import msvcrt

    def _lock(file: int) -> None:
        while True:
            try:
                msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
                return
            except PermissionError:  # another process has it
                time.sleep(0.05)
else:
    import fcntl

    def _lock(file: int) -> None:
        fcntl.lockf(file, fcntl.LOCK_EX)  # of this process alone: one that is forked while it is held has it not


class _Turn:
    """The lock that this process holds while it compiles: one at most, so that no two processes wait for each other.

    Numba's own lock lets one thread of a process compile at a time; all of this happens under it.
    """

    def __init__(self) -> None:
        self.depth = 0  # compilations within each other: a loop, and those that it calls
        self.file: int | None = None
        self.process = os.getpid()

    def take(self, folder: str) -> bool:
        """Lock a folder, unless one is locked; say whether another process may have compiled in the meantime."""
        if self.process != os.getpid():  # forked: the lock is the parent's
            self.__init__()  # type: ignore[misc]
        if self.file is not None:
            return False
        with suppress(OSError):
            file = os.open(Path(folder) / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                _lock(file)
                self.file = file
            finally:
                if self.file is None:
                    os.close(file)
        return self.file is not None

    def give_back(self) -> None:
        """Let the next one compile."""
        if self.file is not None and self.process == os.getpid():
            file, self.file = self.file, None
            os.close(file)  # unlocks


_turn = _Turn()


class _Cache:
    """Numba's cache of one loop, which takes the lock where it finds nothing, and then looks again."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def load_overload(self, signature: Any, target: Any) -> Any:
        overload = self._cache.load_overload(signature, target)
        folder = self._cache.cache_path
        if overload is None and folder is not None and _turn.take(folder):
            overload = self._cache.load_overload(signature, target)
        return overload


def compile_once(dispatcher: Any) -> Callable[..., Any]:
    """Let a loop of numba's be compiled by one process at a time, if its code is kept on disk, and to the end."""
    from numba.core.compiler_lock import global_compiler_lock

    compile_now = dispatcher.compile
    dispatcher._cache = _Cache(dispatcher._cache)

    def compile_in_turn(signature: Any) -> Any:
        with hold_interrupts(), global_compiler_lock:
            _turn.depth += 1
            try:
                return compile_now(signature)
            finally:
                _turn.depth -= 1
                if not _turn.depth:
                    _turn.give_back()

    dispatcher.compile = compile_in_turn
    in_turn: Callable[..., Any] = dispatcher
    return in_turn
