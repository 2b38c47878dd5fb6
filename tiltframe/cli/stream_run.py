"""Running a stream batch by batch, until its input ends or a signal stops it; then its state is saved."""

from __future__ import annotations

import os
import signal
import sys
import time as clock
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import click

from tiltframe.cli.stopping import stopped_by_signals
from tiltframe.cli.stream_line import live_line
from tiltframe.cli.stream_losses import Losses
from tiltframe.cli.stream_sinks import IntoStore, Output, side_output
from tiltframe.cli.stream_sources import Arrivals, Lines
from tiltframe.cli.stream_start import Settings, sink_of
from tiltframe.event_time import event_times
from tiltframe.frame import TiltFrame
from tiltframe.ordered.aggregator import OrderedAggregator
from tiltframe.store import FrameStore
from tiltframe.streaming.saved import extension

_STANDARD_INPUT = "standard input"


def run_stream(
    *,
    folder: Path | None,
    frame: TiltFrame | OrderedAggregator,
    settings: Settings,
    open_store: Callable[..., FrameStore] | None,
) -> None:
    """Open the saved state or the store of the stream, and run it until its input ends or it is stopped."""
    state, bad = settings.state, settings.bad
    data = state.read_bytes() if state is not None and state.exists() else None
    store = None if open_store is None or isinstance(frame, OrderedAggregator) else open_store(frame)
    name = settings.stream_name or (_STANDARD_INPUT if folder is None else f"folder {folder.resolve()}")
    sink = sink_of(data=data, frame=frame, store=store, name=name, settings=settings)
    read, ahead = settings.reading, settings.ahead
    rows: Lines | Arrivals
    if folder is None:
        rows = Lines(sink.read, sink.attempt, read, arrival=settings.arrival, bad=bad, ahead=ahead)
    else:
        notes = {} if data is None else extension(data)[0].get("notes", {})
        files = notes.get("files", {})
        options = {"store": store, "once": settings.once, "known": files, "bad": bad, "ahead": ahead}
        rows = Arrivals(folder, sink.read, sink.attempt, read, **options)
    kept_in = None if settings.dropped is None else str(settings.dropped)
    losses = Losses(sink.read, bad, kept_in, waits=settings.behind > 0)
    with stopped_by_signals() as stopped:
        _run_until_stopped(sink=sink, rows=rows, settings=settings, losses=losses, stopped=stopped)
    _end(sink, state, stopped, losses)


def _run_until_stopped(
    *, sink: Output | IntoStore, rows: Lines | Arrivals, settings: Settings, losses: Losses, stopped: list[int]
) -> None:
    """Process batch after batch; after an error, the complete batches and files before it are saved."""
    state, safe = settings.state, sink.copy()
    with live_line(sink, losses) as show, side_output(settings.dropped) as put_aside:
        try:
            for arrived in rows.batches(stopped):
                watermark = clock.time_ns() // 1000 - settings.behind if settings.arrival else None
                if arrived.rows is not None and arrived.rows.num_rows:
                    late_rows = sink.add(arrived.rows)
                    put_aside(late_rows)
                    losses.note(late_rows, sink.windows.progress.watermark_us if late_rows.num_rows else None)
                    read = sink.read
                    times = event_times(arrived.rows.column(read.time), read.time, read.timezone)
                    watermark = int(times.max()) - settings.behind
                sink.tell(watermark)
                if arrived.completes:
                    sink.settle(state, rows.notes)
                    safe = sink.copy()
                losses.report()
                show()
        except BrokenPipeError:
            _end_without_reader(safe, state, rows)
        except Exception:
            losses.end()
            _save_first(safe, state, rows.notes)
            raise
        if state is None and not stopped:
            sink.close()
        try:
            sink.settle(state, rows.notes, ended=True)
        except BrokenPipeError:
            _end_without_reader(safe, state, rows)


def _save_first(safe: Output | IntoStore, state: Path | None, notes: Mapping[str, Any]) -> None:
    """Save the rows of complete batches and files before an error."""
    if state is None:
        if safe.windows.progress.rows:
            click.echo("tiltframe: open windows are lost by the error that follows: --state FILE keeps them", err=True)
        return
    with suppress(Exception):  # the first error is reported, not this one
        safe.settle(state, notes, ended=True)
        click.echo(f"tiltframe: the rows before the error that follows are kept in {state}", err=True)


def _end_without_reader(safe: Output | IntoStore, state: Path | None, rows: Lines | Arrivals) -> NoReturn:
    """Exit because standard output was closed: report the lost rows, with the status of a broken pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # buffered output is not written again
    lost = "and open windows are lost: --state FILE keeps them"
    if state is not None:
        safe.discard_output()
        safe.settle(state, rows.notes, ended=True)
        lost = f"and the state without the last batch is kept in {state}: {rows.unsaved}"
    click.echo(f"tiltframe: the reader of standard output has gone; the last results may be lost, {lost}", err=True)
    raise SystemExit(128 + signal.SIGPIPE)


def _end(sink: Output | IntoStore, state: Path | None, stopped: list[int], losses: Losses) -> None:
    losses.end()
    committed = sink.windows.progress.committed_rows
    if committed:
        click.echo(f"tiltframe: {committed:,} rows of windows that are committed were not taken again", err=True)
    if stopped and state is None:
        left = "are not in the store" if isinstance(sink, IntoStore) else "were not emitted"
        click.echo(f"tiltframe: stopped; open windows {left}: --state FILE keeps them", err=True)
    if stopped:
        raise SystemExit(128 + stopped[0])
