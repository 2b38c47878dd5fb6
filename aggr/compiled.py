"""compiled: loops over rows as plain Python, turned into machine code at their first call.

Whole-array operations make a pass over memory each; a loop that does all of a row's work at once makes one. Numba
compiles it once for a machine and keeps the code beside the source, or in the user's cache folder.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
R = TypeVar("R")


def compiled(loop: Callable[P, R]) -> Callable[P, R]:
    """Compile a function of arrays and numbers at its first call.

    Parameters
    ----------
    loop : function
        Written in what numba compiles without Python's objects. It gets its arrays read-only, so it must return new
        ones; integers wrap around, and an index out of bounds is not noticed.

    Returns
    -------
    function
        Of the same arguments. Where nothing can be kept on disk, each process compiles for itself.

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
        made: R = _machine_code(loop)(*[_read_only(a) if isinstance(a, np.ndarray) else a for a in args], **kwargs)
        return made

    return call


@lru_cache(maxsize=None)
def _machine_code(loop: Callable[..., R]) -> Callable[..., R]:
    import numba  # a fifth of a second, which a command that only prints help need not wait for

    try:
        code: Callable[..., R] = numba.njit(cache=True, nogil=True)(loop)
    except RuntimeError:  # no folder to write to
        code = numba.njit(nogil=True)(loop)
    return code


def _read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Make arrays of Arrow's, which nobody may write to, and of numpy's one type, compiled once."""
    view = np.ascontiguousarray(array)[:] if array.ndim else array
    view.flags.writeable = False
    return view
