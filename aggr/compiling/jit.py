"""compiled: a decorator for loops over rows in plain Python. They are compiled to machine code if this saves time.

A sequence of array operations makes many passes over memory. A loop that does all the work of a row makes only one
pass. Numba compiles the loop once per machine and stores the code next to the source, or in the user's cache folder,
or, if neither can be written, in a private folder (`aggr.compiling.code_folders`).

Compiling a loop takes a quarter of a second to several seconds, and loading numba and the compiled code takes a third
of a second. Plain Python finishes a loop over ten thousand rows in less time. A loop is therefore interpreted if this
is predicted to take less time than loading or compiling its machine code, and if the process spends at most
`_MAX_INTERPRETING_SECONDS` on interpreting in total. With `TILTFRAME_COMPILE_FROM=0` in the environment, each loop is
compiled at its first call.

The choice between interpreting and compiling is the ski rental problem: renting skis until the total rent reaches their
price, and buying them then, costs at most twice the minimum (Karlin, Manasse, Rudolph and Sleator 1988).
"""

from __future__ import annotations

import os
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, update_wrapper, wraps
from types import CodeType, FunctionType
from typing import Any, ParamSpec, TypeVar

import numpy as np

from aggr.compiling.code_folders import copy_code, private_folder
from aggr.compiling.one_process import compile_once

Int = Any  # the type of an integer in a loop, which is an integer of NumPy or of Python
P = ParamSpec("P")
R = TypeVar("R")

_LOOP_ATTRIBUTE = "__compiled_loop__"
_CODE_FOLDERS: set[str] = set()
# the numba dispatcher (the callable machine code) of each loop that was compiled or loaded
_MACHINE_CODE: dict[Any, Callable[..., Any]] = {}
# A process spends at most this number of seconds on interpreting loops. Then it compiles them, because later processes
# can load the compiled code from disk.
_MAX_INTERPRETING_SECONDS = 2.0
# the time for loading numba and the code of a few loops, in seconds
_NUMBA_LOAD_SECONDS = 0.3
# the time for loading the code of one loop from disk, in seconds
_CODE_LOAD_SECONDS = 0.02
# the time for compiling one byte of bytecode, in seconds
_COMPILE_SECONDS_PER_BYTE = 3e-4
# the time of plain Python for one element, in seconds, for a loop that has not been measured yet
_SECONDS_PER_ELEMENT = 5e-6
# The time of a loop is predicted from its mean time per element. This number of assumed elements, each with the time
# `_SECONDS_PER_ELEMENT`, is added to the measured elements, so that a few measured elements do not determine the mean.
_ASSUMED_ELEMENTS = 1000


class _Interpreter:
    """Decides whether a loop is interpreted, runs interpreted loops, and records the time that they take.

    A loop is interpreted if this is predicted to take less time than loading or compiling its machine code.
    """

    def __init__(self) -> None:
        # a loop over at least this number of elements is always compiled
        self.max_elements = int(os.environ.get("TILTFRAME_COMPILE_FROM", 1 << 20))
        # the seconds spent on interpreting all loops
        self.total_seconds = 0.0
        # the seconds spent on interpreting each loop
        self.loop_seconds: dict[Any, float] = {}
        # the number of elements that each interpreted loop has processed
        self.loop_elements: dict[Any, int] = {}
        # the number of open contexts of `compile_at_first_call` in all threads
        self.compile_contexts = 0

    def should_interpret(self, loop: Any, arguments: list[Any]) -> bool:
        """Return whether a loop with these arguments should be interpreted.

        Only numba can determine whether the code of the loop is on disk. If numba is not loaded yet, the loop is
        interpreted as long as the total time of interpreting loops in this process, including the predicted time of
        this loop, does not exceed the time of loading numba.
        """
        if self.max_elements <= 0 or self.compile_contexts:
            return False
        has_arrays, elements = _count_elements(arguments)
        if not has_arrays or elements >= self.max_elements:
            return False
        seconds = self.predict(loop, elements)
        total_seconds = self.total_seconds + seconds
        loop_seconds = self.loop_seconds.get(loop, 0.0) + seconds
        if "numba" not in sys.modules and total_seconds <= _NUMBA_LOAD_SECONDS:
            return True
        if total_seconds > _MAX_INTERPRETING_SECONDS:
            return False
        return loop_seconds <= _CODE_LOAD_SECONDS or (
            loop_seconds <= _COMPILE_SECONDS_PER_BYTE * _bytecode_size(loop) and not _is_on_disk(loop)
        )

    def predict(self, loop: Any, elements: int) -> float:
        """Return the predicted seconds of interpreting a loop over a number of elements. The prediction uses the times
        of earlier calls.
        """
        measured_and_assumed_seconds = self.loop_seconds.get(loop, 0.0) + _ASSUMED_ELEMENTS * _SECONDS_PER_ELEMENT
        measured_and_assumed_elements = self.loop_elements.get(loop, 0) + _ASSUMED_ELEMENTS
        return elements * measured_and_assumed_seconds / measured_and_assumed_elements

    def run(self, loop: Any, arguments: list[Any], kwargs: Any) -> Any:
        """Interpret a loop and return its result. Integers wrap around and floats overflow without a warning, as in
        machine code.
        """
        start = time.thread_time()
        try:
            with np.errstate(all="ignore"):
                return _as_python(loop)(*arguments, **kwargs)
        finally:
            seconds = time.thread_time() - start
            self.total_seconds += seconds
            self.loop_seconds[loop] = self.loop_seconds.get(loop, 0.0) + seconds
            self.loop_elements[loop] = self.loop_elements.get(loop, 0) + _count_elements(arguments)[1]


def _count_elements(arguments: list[Any]) -> tuple[bool, int]:
    """Return whether any argument is an array, and the number of elements of all arrays."""
    sizes = [argument.size for argument in arguments if isinstance(argument, np.ndarray)]
    return len(sizes) > 0, sum(sizes)


_interpreter = _Interpreter()
_lock = threading.Lock()
# Only one thread at a time may create a dispatcher, because `_dispatcher_of_private_folder` changes a setting of numba
# for the whole process, and restores it.
_settings_lock = threading.Lock()


def _renew_locks() -> None:
    """Replace the locks in a forked process. A thread of the parent process may have acquired the old locks."""
    global _lock, _settings_lock
    _lock = threading.Lock()
    _settings_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


@contextmanager
def compile_at_first_call() -> Iterator[None]:
    """Within the context, compile each loop at its first call, even for few elements. The context applies to all
    threads of the process.

    >>> with compile_at_first_call():
    ...     pass
    """
    with _lock:
        _interpreter.compile_contexts += 1
    try:
        yield
    finally:
        with _lock:
            _interpreter.compile_contexts -= 1


def compiled(loop: Callable[P, R]) -> Callable[P, R]:
    """Compile a function of arrays and numbers when it is first called with sufficiently large arguments.

    Parameters
    ----------
    loop : function
        The function must use the subset of Python that numba compiles without Python objects. It may call other
        compiled functions by their global names. Arrays that Python code passes are read-only in the function, which
        must return new arrays. Integers wrap around, and an index out of bounds is not detected.

    Returns
    -------
    function
        A function with the same parameters and results. If several processes need the same code, only one compiles it
        (`aggr.compiling.one_process`). If code cannot be stored on disk, each process compiles it.

    Examples
    --------
    >>> @compiled
    ... def steps(x):
    ...     count = 0
    ...     for i in range(1, len(x)):
    ...         count += x[i] != x[i - 1]
    ...     return count
    >>> steps(np.array([1, 1, 2]))
    1
    """

    @wraps(loop)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        arguments = [_read_only(a) if isinstance(a, np.ndarray) else a for a in args]
        code = _MACHINE_CODE.get(loop)
        if code is None:
            if _interpreter.should_interpret(loop, arguments):
                interpreted: R = _interpreter.run(loop, arguments, kwargs)
                return interpreted
            code = _MACHINE_CODE[loop] = _machine_code(loop)
        try:
            value: R = code(*arguments, **kwargs)
        # If a signal such as Ctrl-C arrives while machine code runs, Python raises a SystemError. The cause of this
        # error, the exception of the signal's handler, is raised instead.
        except SystemError as error:
            cause: BaseException = error
            while isinstance(cause, SystemError) and cause.__cause__ is not None:
                cause = cause.__cause__
            raise cause from None
        return value

    setattr(call, _LOOP_ATTRIBUTE, loop)
    return call


@cache
def _as_python(loop: Any) -> Callable[..., Any]:
    """Return a loop as a Python function. The loops that it calls are Python functions too, and not wrappers of
    `compiled`.
    """
    called_loops = {name: _as_python(other) for name, other in _called_loops(loop).items()}
    return FunctionType(loop.__code__, {**loop.__globals__, **called_loops}, closure=loop.__closure__)


@cache
def _machine_code(loop: Any, is_inner: bool = False) -> Callable[..., Any]:
    """Return numba's dispatcher (the compiled function) of a loop.

    ``is_inner`` is true if only other loops call the dispatcher. An inner loop has no wrapper that converts Python
    objects to arguments, because compiling the wrapper takes a quarter of the compile time.
    """
    import numba  # imported here because the import takes a fifth of a second

    called_loops = {name: _machine_code(other, True) for name, other in _called_loops(loop).items()}
    linked_loop = FunctionType(loop.__code__, {**loop.__globals__, **called_loops}, closure=loop.__closure__)
    # Numba stores the code under the name of the loop. A checksum is added to the name, because numba itself checks
    # only whether the file of the loop has changed, although the code also contains loops and constants of other files.
    # A suffix is added if indices are checked, and another suffix for an inner loop.
    bounds_suffix = "-bounds" if getattr(numba.config, "BOUNDSCHECK", 0) else ""
    inner_suffix = "-inner" if is_inner else ""
    update_wrapper(linked_loop, loop).__qualname__ += f"-{_fingerprint(loop):08x}{bounds_suffix}{inner_suffix}"
    options: dict[str, Any] = {"nogil": True, "no_cpython_wrapper": is_inner, "no_cfunc_wrapper": True}
    dispatcher = _dispatcher(linked_loop, options)
    if not getattr(numba.config, "DISABLE_JIT", 0):
        if dispatcher._cache.cache_path is not None:
            _CODE_FOLDERS.add(str(dispatcher._cache.cache_path))
        dispatcher = compile_once(dispatcher)
    elif not is_inner:
        # Numba is switched off, so the loop is plain Python, in which NumPy would warn when an integer wraps around.
        dispatcher = np.errstate(all="ignore")(dispatcher)
    compiled: Callable[..., Any] = dispatcher
    return compiled


def _dispatcher(loop: Any, options: dict[str, Any]) -> Any:
    """Return numba's dispatcher (the compiled function) of a loop. Its code is stored on disk if a folder can be
    written.
    """
    import numba

    config: Any = numba.config
    with _settings_lock:
        configured_folder = config.CACHE_DIR
        try:
            dispatcher = numba.njit(cache=True, **options)(loop)
        except RuntimeError:  # numba can write neither of its folders, or the loop is not defined in a file
            dispatcher = _dispatcher_of_private_folder(loop, options)
    target = getattr(getattr(dispatcher, "_cache", None), "cache_path", None)
    if target is not None:
        next_to_source = os.path.join(os.path.dirname(loop.__code__.co_filename), "__pycache__")
        in_configured = [os.path.join(configured_folder, os.path.basename(target))] if configured_folder else []
        copy_code(str(target), (*in_configured, next_to_source))
    return dispatcher


def _dispatcher_of_private_folder(loop: Any, options: dict[str, Any]) -> Any:
    """Return numba's dispatcher (the compiled function) of a loop. Its code is stored in the private temporary folder.

    If this folder cannot be written, or the loop is not defined in a file, the code is not stored.
    """
    import numba

    folder = private_folder()
    if folder is None:
        return numba.njit(**options)(loop)
    config: Any = numba.config
    configured_folder = config.CACHE_DIR
    config.CACHE_DIR = folder
    try:
        return numba.njit(cache=True, **options)(loop)
    except RuntimeError:
        return numba.njit(**options)(loop)
    finally:
        config.CACHE_DIR = configured_folder


@cache
def _is_on_disk(loop: Any) -> bool:
    """Return whether a loop's code is on disk for at least one combination of types. Numba must be loaded."""
    cache_file = getattr(getattr(_machine_code(loop), "_cache", None), "_cache_file", None)
    return cache_file is not None and os.path.exists(cache_file._index_path)


def cache_folders() -> list[str]:
    """List the folders in which the machine code of the loops of this process is stored.

    >>> isinstance(cache_folders(), list)
    True
    """
    return sorted(_CODE_FOLDERS)


def _called_loops(loop: Any) -> dict[str, Any]:
    """Return the loops that a loop calls, as the functions that were passed to `compiled`, by their global names."""
    loops = {name: getattr(loop.__globals__.get(name), _LOOP_ATTRIBUTE, None) for name in loop.__code__.co_names}
    return {name: other for name, other in loops.items() if other is not None}


@cache
def _bytecode_size(loop: Any) -> int:
    """Return the number of bytes of bytecode of a loop and of the loops that it calls, each counted once. The compile
    time is about proportional to this number.
    """
    loops = [loop]
    for other in loops:
        loops += [called for called in _called_loops(other).values() if called not in loops]
    return sum(len(part.__code__.co_code) for part in loops)


def _fingerprint(loop: Any) -> int:
    """Return a checksum of a loop, including the loops that it calls and the constants that it uses."""
    called_loops = {name: _fingerprint(other) for name, other in _called_loops(loop).items()}
    constants = {name: _constant_text(loop.__globals__.get(name)) for name in sorted(loop.__code__.co_names)}
    cells = [_constant_text(cell.cell_contents) for cell in loop.__closure__ or ()]
    return zlib.crc32(repr((_code_content(loop.__code__), called_loops, constants, cells)).encode())


def _code_content(code: CodeType) -> tuple[Any, ...]:
    """Return the content of a code object without its file and line numbers."""
    constants = [_code_content(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return code.co_code.hex(), constants, code.co_names, code.co_varnames, code.co_freevars


def _constant_text(value: Any) -> str:
    """Return a constant as text. Return an empty text for an object that is not a constant, such as a module."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {zlib.crc32(value.tobytes()):08x}"
    return f"{type(value).__name__} {value!r}" if isinstance(value, bool | int | float | tuple | np.generic) else ""


def _read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a read-only, contiguous view of an array, or a copy.

    Numba compiles a loop separately for writable and for read-only arrays. The arrays of Arrow are read-only. If the
    arrays of NumPy are passed as read-only views, each loop is compiled only once.
    """
    view = np.ascontiguousarray(array)[:]
    view.flags.writeable = False
    return view
