"""Progress: a function that long operations on a store call with two numbers, the amount of work done and the total."""

from __future__ import annotations

from collections.abc import Callable

from aggr.arguments import shown

Progress = Callable[[int, int], None]


def check_progress(progress: object) -> None:
    """Raise ``ValueError`` if ``progress`` cannot be called."""
    if not callable(progress):
        raise ValueError(
            f"progress must be a function of two numbers, the amount done and the total; got {shown(progress)}"
        )
