"""Timestamps of any unit as microseconds; what is finer is cut towards the past."""

from __future__ import annotations

import pyarrow as pa

from aggr.arrays import Whole


def microseconds(times: pa.Array) -> Whole:
    """Read timestamps without nulls as microseconds since 1970.

    >>> microseconds(pa.array([-1, 2000], pa.timestamp("ns")))
    array([-1,  2])
    """
    if times.type.unit == "ns":  # of which a cast would cut those before 1970 upwards
        whole: Whole = times.view(pa.int64()).to_numpy() // 1000
        return whole
    fine: Whole = times.cast(pa.timestamp("us", times.type.tz)).view(pa.int64()).to_numpy()
    return fine
