"""Held windows: what a policy is shown of the windows of a level."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tiltframe.event_time import event_times
from windows.timezone import Instants


@dataclass(frozen=True)
class HeldWindows:
    """The windows of a level, one a row, whether open or closed; times are microseconds UTC.

    Parameters
    ----------
    starts, ends : array of int64, shape (windows,)
        Of windows over all time, `windows.MIN_INSTANT` and `windows.MAX_INSTANT`.
    new_rows : array of int64, shape (windows,)
        How many rows have come since the last emission.
    last_arrival : array of int64, shape (windows,)
        Where the clock of arrival stood when the last rows came.
    result : callable, name -> array of as many results
        Reads one of the policy's own measures (`EmitPolicy.measures`): null where it has nothing to read from, or has
        not seen all rows of the window.
    """

    starts: Instants
    ends: Instants
    new_rows: NDArray[np.int64]
    last_arrival: NDArray[np.int64]
    result: Callable[[str], pa.Array]

    def __len__(self) -> int:
        return len(self.starts)

    def times(self, name: str) -> pa.Array:
        """Read a measure of the policy whose results are times, of any type that a tilt frame takes.

        Parameters
        ----------
        name : str

        Returns
        -------
        array of int64, microseconds UTC, null where the result is null

        Raises
        ------
        ValueError
            If the results are no times.
        """
        results = self.result(name)
        known = results.is_valid().to_numpy(zero_copy_only=False)
        micros = np.zeros(len(results), np.int64)
        if known.any():
            micros[known] = event_times(results.drop_null(), name)
        return pa.array(micros, mask=~known)
