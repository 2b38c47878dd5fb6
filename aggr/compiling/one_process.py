"""Compile once: if several processes on a machine start together, one compiles a loop and the others wait for it.

Numba stores compiled code on disk, but without this module, all processes that lack the same code would compile it. A
process that does not find the code on disk locks a file in the code's folder, looks for the code again, and then
compiles. The other processes wait for the lock, and then find the code. The operating system releases the lock when the
process ends in any way, so a remaining lock file does not block other processes. If files cannot be locked, each
process compiles the code.

Loops that are defined in different source files have different locks, so that several processes can compile them at the
same time. If loops of two files call the same third loop, two processes may compile the third loop at the same time,
for different types of arguments. A second lock lets only one process at a time store code in a folder. To store code,
numba reads the index of the stored code, chooses a file name that is not in the index, and writes the index again.
Without the second lock, two processes could choose the same file name.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from aggr.compiling.interrupts import defer_interrupts
from aggr.compiling.notice import waiting_for_compiler

LOCK_SUFFIX = ".compiling.lock"
_STORING_LOCK = "storing.lock"
# The packages of this project. Numba loads the code of their loops without its registries, the implementations of all
# functions that loops can call. They take 0.15 s to import, or 0.3 s if SciPy is installed, and only the compiler needs
# them. Code of other packages is loaded with them, because it may refer to symbols of an extension of numba.
_OWN_PACKAGES = frozenset({"aggr", "windows", "tiltframe", "spark_udaf"})

if sys.platform == "win32":
    import msvcrt

    def _lock(file: int) -> None:
        while True:
            try:
                msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
                return
            except PermissionError:  # another process has the lock
                time.sleep(0.05)
else:
    import fcntl

    def _lock(file: int) -> None:
        # With lockf, the lock belongs to this process only. With flock, the lock would belong to the open file, which a
        # forked process shares.
        fcntl.lockf(file, fcntl.LOCK_EX)


def _open_locked(path: Path) -> int:
    """Lock a file, and return its descriptor. The file is created if it does not exist.

    Closing the descriptor releases the lock.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _lock(file)
    except BaseException:
        os.close(file)
        raise
    return file


class _CompilerLock:
    """The file lock that this process has while it compiles. A process has at most one such lock at a time, so two
    processes cannot wait for each other.

    All methods run under numba's own lock, which lets only one thread of a process compile at a time.
    """

    def __init__(self) -> None:
        self.depth = 0  # the depth of nested compilations; compiling a loop also compiles the loops that it calls
        self.file: int | None = None
        self.has_paused_collector = False

    def acquire(self, path: Path) -> bool:
        """Lock a file, unless this process already has a lock. Return True if this call has locked the file.

        The caller then searches for the code again, because another process may have compiled the code while this
        process waited for the lock.
        """
        if self.file is not None:
            return False
        with suppress(OSError):
            self.file = _open_locked(path)
        return self.file is not None

    def release(self) -> None:
        """Release the lock if this process has it."""
        if self.file is not None:
            file = self.file
            self.file = None
            os.close(file)  # closing the file releases the lock

    def pause_collector(self) -> None:
        """Switch Python's garbage collector off while this process compiles.

        The compiler creates millions of objects, but few reference cycles. Without the collector, compiling takes a
        tenth less time, and 10 MB more memory.
        """
        self.has_paused_collector = gc.isenabled()
        gc.disable()

    def resume_collector(self) -> None:
        """Switch the garbage collector on again if `pause_collector` has switched it off."""
        if self.has_paused_collector:
            self.has_paused_collector = False
            gc.enable()

    def reset_after_fork(self) -> None:
        """Reset this object in a forked process. The forked process has no lock and does not compile, even if its
        parent process does.
        """
        self.depth = 0
        self.file = None
        self.resume_collector()


_compiler_lock = _CompilerLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_compiler_lock.reset_after_fork)


@contextmanager
def _storage_lock(folder: Path) -> Iterator[None]:
    """Let only one process at a time store code in a folder. If the lock file cannot be locked, code is stored without
    a lock.
    """
    file = None
    with suppress(OSError):
        file = _open_locked(folder / _STORING_LOCK)
    try:
        yield
    finally:
        if file is not None:
            os.close(file)


class _Cache:
    """Numba's cache of one loop. If the code is not on disk, the process acquires a file lock and looks for the code
    again.

    Parameters
    ----------
    cache : numba.core.caching.Cache
    lock_name : str
        The name of the lock file.
    needs_registries : bool
        Whether numba must import its registries before it loads the code.
    """

    def __init__(self, cache: Any, lock_name: str, needs_registries: bool) -> None:
        self._cache = cache
        self._lock_name = lock_name
        self._needs_registries = needs_registries

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def load_overload(self, signature: Any, target: Any) -> Any:
        overload = self._load(signature, target)
        folder = self._cache.cache_path
        if overload is None and folder is not None and _compiler_lock.acquire(Path(folder, self._lock_name)):
            overload = self._load(signature, target)
        return overload

    def _load(self, signature: Any, target: Any) -> Any:
        """Return the code from disk, or None if the code is not on disk or cannot be loaded.

        Loading fails, for example, while another process stores the code, because numba writes the index before the
        code. On Windows, reading a file that another process writes is a ``PermissionError``.
        """
        try:
            if self._needs_registries:
                return self._cache.load_overload(signature, target)
            from numba.core.runtime.nrt import rtsys

            rtsys.initialize(target)  # the part of `load_overload` that compiled code needs: numba's memory management
            return self._cache._load_overload(signature, target)
        except (RuntimeError, PermissionError):
            return None

    def save_overload(self, signature: Any, overload: Any) -> None:
        """Store the code. If this fails, for example because the disk is full, only this process has the code."""
        folder = self._cache.cache_path
        if folder is not None:
            with suppress(OSError), _storage_lock(Path(folder)):
                self._cache.save_overload(signature, overload)


def compile_once(dispatcher: Any) -> Callable[..., Any]:
    """Change numba's dispatcher (the compiled function) of a loop, and return it.

    If code is stored on disk, only one process at a time compiles the loop. Ctrl-C does not interrupt the compiler.
    """
    from numba.core.compiler_lock import global_compiler_lock

    compile_without_lock = dispatcher.compile
    source = Path(dispatcher.py_func.__code__.co_filename)
    module = dispatcher.py_func.__module__ or ""
    is_own = module.partition(".")[0] in _OWN_PACKAGES
    needs_registries = dispatcher._cache.cache_path is None or not is_own
    dispatcher._cache = _Cache(dispatcher._cache, f"{source.stem}{LOCK_SUFFIX}", needs_registries)

    def compile_with_lock(signature: Any) -> Any:
        with defer_interrupts(), global_compiler_lock:
            if not _compiler_lock.depth:
                _compiler_lock.pause_collector()
            _compiler_lock.depth += 1
            try:
                with waiting_for_compiler() if _compiler_lock.depth == 1 else nullcontext():
                    return compile_without_lock(signature)
            finally:
                _compiler_lock.depth -= 1
                if not _compiler_lock.depth:
                    _compiler_lock.release()
                    _compiler_lock.resume_collector()

    dispatcher.compile = compile_with_lock
    changed_dispatcher: Callable[..., Any] = dispatcher
    return changed_dispatcher
