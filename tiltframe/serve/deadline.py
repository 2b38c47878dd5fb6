"""The deadline of a request: one value, passed into every loop whose length depends on the request."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from tiltframe.serve.errors import OutOfTime

T = TypeVar("T")


class Deadline:
    """The time until which the server computes for a request.

    Parameters
    ----------
    seconds : float
        The time from now; infinite for no deadline.
    """

    def __init__(self, seconds: float = math.inf) -> None:
        """Start the time."""
        self._seconds = seconds
        self.restart()

    def restart(self) -> None:
        """Start the time again: each piece of a long answer has as much time as the first."""
        self._end = time.monotonic() + self._seconds

    def within(self, seconds: float) -> Deadline:
        """Return a deadline after a number of seconds, or at this deadline if that is earlier."""
        return Deadline(min(seconds, self._end - time.monotonic()))

    def check(self) -> None:
        """Raise `OutOfTime` after the deadline."""
        if time.monotonic() > self._end:
            raise OutOfTime("the query took longer than it may; ask for a shorter range, fewer series or coarser steps")

    def checked(self, items: Iterable[T]) -> Iterator[T]:
        """Yield items; raise `OutOfTime` before the first item after the deadline."""
        for item in items:
            self.check()
            yield item
