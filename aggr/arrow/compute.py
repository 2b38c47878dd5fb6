"""Functions of ``pyarrow.compute``, imported on first use.

The import of ``pyarrow.compute`` takes longer than the import of aggr. Modules that are loaded by ``import tiltframe``
or by the command line must therefore import the functions from here (``tests/docs/test_import_costs.py``).

>>> import pyarrow as pa
>>> from aggr.arrow import compute as pc
>>> pc.sum(pa.array([1, 2])).as_py()
3
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """Return a function of ``pyarrow.compute``, and store it in this module, where Python finds it the next time
    without calling ``__getattr__``.
    """
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import pyarrow.compute

    function = globals()[name] = getattr(pyarrow.compute, name)
    return function
