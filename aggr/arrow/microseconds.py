"""Timestamps of any unit as microseconds; what is finer is cut towards the past."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def microseconds(times: pa.Array) -> NDArray[np.int64]:
    """Read timestamps without nulls as microseconds since 1970.

    >>> microseconds(pa.array([-1, 2000], pa.timestamp("ns")))
    array([-1,  2])
    """
    if times.type.unit == "ns":  # of which a cast would cut those before 1970 upwards
        whole: NDArray[np.int64] = times.view(pa.int64()).to_numpy() // 1000
        return whole
    fine: NDArray[np.int64] = times.cast(pa.timestamp("us", times.type.tz)).view(pa.int64()).to_numpy()
    return fine
