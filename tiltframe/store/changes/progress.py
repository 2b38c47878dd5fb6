"""Progress: a callback that long operations on a store call with the finished and the total amount of work."""

from __future__ import annotations

from collections.abc import Callable

from aggr.arguments import shown

Progress = Callable[[int, int], None]


def check_progress(progress: object) -> None:
    """Raise ``ValueError`` if an object cannot be called."""
    if not callable(progress):
        raise ValueError(
            f"progress must be a function of two numbers, the amount done and the total; got {shown(progress)}"
        )
