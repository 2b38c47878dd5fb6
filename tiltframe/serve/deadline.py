"""The deadline of a request: the time after which the server stops computing its answer."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from tiltframe.serve.errors import OutOfTime

T = TypeVar("T")


class Deadline:
    """The time at which the server stops computing the answer to a request.

    Parameters
    ----------
    seconds : float
        The seconds from now; infinite if there is no deadline.
    """

    def __init__(self, seconds: float = math.inf) -> None:
        """Start the timer."""
        self._seconds = seconds
        self.restart()

    def restart(self) -> None:
        """Start the timer again with the full number of seconds. The method is called before each piece of a long
        answer, so that each piece may take as long as the first piece.
        """
        self._end = time.monotonic() + self._seconds

    def within(self, seconds: float) -> Deadline:
        """Return the earlier of two deadlines: this deadline, and the one that is ``seconds`` from now."""
        return Deadline(min(seconds, self._end - time.monotonic()))

    def check(self) -> None:
        """Raise `OutOfTime` if the deadline has passed."""
        if time.monotonic() > self._end:
            raise OutOfTime("the query exceeded its time limit; use a shorter range, fewer series or coarser steps")

    def check_each(self, items: Iterable[T]) -> Iterator[T]:
        """Yield ``items``. Raise `OutOfTime` in place of an item if the deadline has passed when the item is ready."""
        for item in items:
            self.check()
            yield item
