"""The line on a terminal with the progress of a stream."""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.text import Text

from tiltframe.cli.output import as_moment, on_same_terminal
from tiltframe.cli.stream_losses import Losses
from tiltframe.cli.stream_sinks import IntoStore, Output

_SHOWN_EVERY = 0.25  # seconds


@contextmanager
def live_line(sink: Output | IntoStore, losses: Losses) -> Iterator[Callable[[], None]]:
    """Show a line on standard error, if it is a terminal: rows per second, watermark, open windows, late rows."""
    console, begun, first = Console(stderr=True), clock.monotonic(), sink.windows.progress.rows
    if not console.is_terminal:
        yield lambda: None
        return
    shown = [0.0]
    with Live(console=console, refresh_per_second=4, transient=True, redirect_stdout=on_same_terminal()) as live:

        def show() -> None:
            if clock.monotonic() - shown[0] < _SHOWN_EVERY:
                return
            shown[0] = clock.monotonic()
            progress = sink.windows.progress
            rate = (progress.rows - first) / max(clock.monotonic() - begun, 1e-9)
            at = as_moment(progress.watermark_us)
            open_counts = ", ".join(f"{level} {count:,}" for level, count in progress.open_windows.items()) or "·"
            rows = f"{progress.rows:,} rows, {rate:,.0f}/s"
            live.update(Text(f"{rows} · watermark {at} · open {open_counts} · late {losses.late:,}"))

        yield show
