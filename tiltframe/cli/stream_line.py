"""The progress of a stream on standard error. On a terminal it is a line that is updated in place, and otherwise one
line per minute.
"""

from __future__ import annotations

import sys
import time as clock
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from tiltframe.cli.output import on_same_terminal
from tiltframe.cli.stream_metrics import StreamMetrics

# the minimum number of seconds between two updates of the line on a terminal
_SHOWN_EVERY = 0.25
# the minimum number of seconds between two lines if the output is not a terminal
_LOGGED_EVERY = 60.0


@contextmanager
def progress_line(metrics: StreamMetrics) -> Iterator[Callable[[], None]]:
    """Yield a function without arguments that shows the rows per second, the watermark, the open windows and the
    dropped rows. If the last update was less than the minimum interval ago, a call does nothing.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield _logged(metrics)
        return
    # imported here, because the import takes about 30 ms
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(stderr=True)
    shown = [0.0]
    with Live(console=console, refresh_per_second=4, transient=True, redirect_stdout=on_same_terminal()) as live:

        def show() -> None:
            if clock.monotonic() - shown[0] < _SHOWN_EVERY:
                return
            shown[0] = clock.monotonic()
            metrics.refresh(now=True)
            live.update(Text(metrics.line()))

        yield show


def _logged(metrics: StreamMetrics) -> Callable[[], None]:
    """Return a function that writes the metrics to standard error as one line of text, at most once a minute."""
    last = [clock.monotonic()]

    def show() -> None:
        if clock.monotonic() - last[0] < _LOGGED_EVERY:
            return
        last[0] = clock.monotonic()
        metrics.refresh(now=True)
        click.echo(f"tiltframe: {metrics.line()}", err=True)

    return show
