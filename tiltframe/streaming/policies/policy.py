"""The base class of emit policies and late policies, and `HeldWindows`, the form in which policies receive windows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arguments import shown
from aggr.call_text import write_call
from aggr.duration import duration_text, read_duration
from tiltframe.event_time import event_times
from windows.timezone import Instants

# The metadata of a field that contains a duration such as 10s. The value of ``shortest`` is the minimum duration in
# microseconds.
DURATION = {"shortest": 0}
LONGER_THAN_0 = {"shortest": 1}


class Policy:
    """The base class of policies, which are frozen dataclasses. The text of a policy is its name with its fields as
    arguments.
    """

    name: ClassVar[str]

    def __post_init__(self) -> None:
        """Check the fields that contain durations, and write each duration in its longest unit: ``60s`` becomes
        ``1m``.
        """
        for argument in fields(self):  # type: ignore[arg-type]
            value = getattr(self, argument.name)
            if value is None or "shortest" not in argument.metadata:
                continue
            length = read_duration(value, argument.name)
            if length < argument.metadata["shortest"]:
                raise ValueError(
                    f"the {argument.name} must be longer than 0; got {shown(value)}; pass a duration such as 10s"
                )
            object.__setattr__(self, argument.name, duration_text(length) if length else "0s")

    def changed_arguments(self) -> dict[str, Any]:
        """Return the values of the fields that differ from their defaults, by name. Positional fields come first, then
        the fields that are passed by keyword, as in the text of the policy.
        """
        ordered_fields = sorted(fields(self), key=lambda f: bool(f.kw_only))  # type: ignore[arg-type]
        return {f.name: getattr(self, f.name) for f in ordered_fields if getattr(self, f.name) != f.default}

    def __str__(self) -> str:
        return write_call(self.name, self.changed_arguments())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.changed_arguments().items())})"


def micros(duration: str) -> int:
    """Return a duration in microseconds.

    Parameters
    ----------
    duration : str
        A text such as ``10s``.

    Returns
    -------
    int

    Raises
    ------
    ValueError
        If the text cannot be read.
    """
    return read_duration(duration, "duration")


@dataclass(frozen=True)
class HeldWindows:
    """The windows of a level that are in memory, open or closed, as arrays with one entry per window. Times are in
    microseconds UTC.

    Parameters
    ----------
    starts, ends : array of int64, shape (windows,)
        The bounds of the windows. For windows over all time, they are `windows.MIN_INSTANT` and `windows.MAX_INSTANT`.
    new_rows : array of int64, shape (windows,)
        The number of rows that arrived since the last emission of the window.
    last_arrival : array of int64, shape (windows,)
        The arrival time of the window's last rows.
    result : callable, name -> array, shape (windows,)
        A function that returns the results of a measure in `EmitPolicy.measures`. A result is null if the measure has
        no value for the window, or if the window has rows from before the policy was changed.
    """

    starts: Instants
    ends: Instants
    new_rows: NDArray[np.int64]
    last_arrival: NDArray[np.int64]
    result: Callable[[str], pa.Array]

    def __len__(self) -> int:
        return len(self.starts)

    def times(self, name: str) -> pa.Array:
        """Return the results of one of the policy's measures as times. The results may have any type that a tilt frame
        accepts as times.

        Parameters
        ----------
        name : str
            A name in `EmitPolicy.measures`.

        Returns
        -------
        array of int64, shape (windows,)
            Microseconds UTC, or null if the result is null.

        Raises
        ------
        ValueError
            If the results are not times.
        """
        results = self.result(name)
        is_valid = results.is_valid().to_numpy(zero_copy_only=False)
        micros = np.zeros(len(results), np.int64)
        if is_valid.any():
            micros[is_valid] = event_times(results.drop_null(), name)
        return pa.array(micros, mask=~is_valid)
