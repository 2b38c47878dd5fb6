"""Progress: a bar on standard error for long work, where somebody looks."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn


def on_same_terminal() -> bool:
    """Say whether standard output is the terminal that standard error is.

    Only then may what is printed go through what shows progress there: above its line.
    """
    try:
        both = (sys.stdout.fileno(), sys.stderr.fileno())
        return all(map(os.isatty, both)) and len({os.fstat(stream).st_rdev for stream in both}) == 1
    except (AttributeError, OSError):  # closed, or no file
        return False


@contextmanager
def progress_bar(doing: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """Show a count and a bar on standard error, if that is a terminal.

    Yields what is called with how much more has been done, and how much further the bar goes; without a total, with
    how much has been done and of how much.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda more, further: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    done = 0
    with Progress(*columns, console=console, transient=True, redirect_stdout=on_same_terminal()) as bar:
        task = bar.add_task(doing, total=total or None)

        def advance(more: int, further: int) -> None:
            nonlocal done
            done += more
            bar.update(task, description=f"{doing} {done:,} rows", advance=further)

        def reach(at: int, end: int) -> None:
            bar.update(task, description=f"{doing} {at:,} of {end:,}", completed=at, total=end)

        yield advance if total else reach
