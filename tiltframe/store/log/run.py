"""Retry: an operation on a store is attempted until no other writer was faster."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from tiltframe.store.errors import CommitConflict, Conflict

_TRIES = 200  # waits double from 5 ms to half a second, half of that on average: some 50 seconds in all

Result = TypeVar("Result")


def retry_on_conflict(attempt: Callable[[], Result]) -> Result:
    """Try until nobody else was faster; raises `CommitConflict` if that never happens."""
    for tries in range(_TRIES):
        try:
            return attempt()
        except Conflict as conflict:
            last = conflict
            time.sleep(random.random() * min(0.005 * 2**tries, 0.5))
    raise CommitConflict(f"gave up after {_TRIES} tries, for others write at the same places all the time: {last}")
