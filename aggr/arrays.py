"""Type aliases for numpy arrays, named by their content."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Ids = NDArray[np.intp]  # indices of rows, or for each row the index of its group
T = TypeVar("T", bound=np.generic)


def read_only(array: NDArray[T]) -> NDArray[T]:
    """Return a read-only view of an array that several functions share."""
    view = array[:]
    view.flags.writeable = False
    return view
