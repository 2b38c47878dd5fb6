"""Arrays of numpy by what they hold, as signatures name them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Ids = NDArray[np.intp]  # rows, or the group of each
