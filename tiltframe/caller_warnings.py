"""Warnings that name the line of the program that called the library."""

from __future__ import annotations

import inspect
import warnings

# the packages of the library; a warning never names a line of code in these packages
_LIBRARY = ("tiltframe", "spark_udaf", "windows", "aggr")


def warn_caller(sentence: str, category: type[Warning] = UserWarning) -> None:
    """Emit a warning that names the innermost line of code outside of the library.

    Parameters
    ----------
    sentence : str
    category : class of a warning
    """
    level = 1
    frame = inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _LIBRARY:
        level = level + 1
        frame = frame.f_back
    warnings.warn(sentence, category, stacklevel=level)
