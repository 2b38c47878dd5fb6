"""Prevent pyarrow from importing pandas, so that the command line starts faster.

``pa.array`` and ``pa.scalar`` also accept objects of pandas. Their first call therefore imports pandas if it is
installed. This takes half a second, even in a process that never uses pandas.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import Any

import pyarrow as pa

_PANDAS = "pandas"


class _State:
    is_skipped = False
    is_allowed = False  # whether code of other packages is loaded; such code may pass objects of pandas to pyarrow


class _PandasBlocker(MetaPathFinder):
    """A finder of modules that reports pandas as not installed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Raise ``ModuleNotFoundError`` for pandas."""
        if name == _PANDAS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def skip_pandas() -> None:
    """Let ``pa.array`` and ``pa.scalar`` treat objects of pandas like other Python objects.

    Nothing happens if pandas is imported already, or after `allow_pandas`. Conversions to and from DataFrames work as
    before. Old versions of pyarrow, such as 14, try to import pandas again at the next conversion.
    """
    if _State.is_allowed or _PANDAS in sys.modules:
        return
    blocker = _PandasBlocker()
    sys.meta_path.insert(0, blocker)
    try:
        pa.scalar(0)  # pyarrow imports pandas in its first conversion, and remembers whether that succeeded
    finally:
        sys.meta_path.remove(blocker)
    _State.is_skipped = True


def allow_pandas() -> None:
    """Let pyarrow accept objects of pandas from now on, because code of another package is loaded."""
    _State.is_allowed = True
    if _State.is_skipped:
        _State.is_skipped = False
        try:
            pa.array([], pa.int8()).to_pandas()  # this conversion makes pyarrow import pandas again
        except ImportError:
            return
