"""The run of a stream: it processes batch after batch until its inputs end or a signal stops it, and saves its state at
the end.
"""

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

from tiltframe.cli.metrics_server import serving_metrics
from tiltframe.cli.stopping import stopped_by_signals
from tiltframe.cli.stream_inputs import ONLY, STANDARD_INPUT, Inputs, Rows, open_pipe
from tiltframe.cli.stream_line import live_line
from tiltframe.cli.stream_losses import Losses
from tiltframe.cli.stream_metrics import StreamMetrics
from tiltframe.cli.stream_sinks import IntoStore, Output, side_output
from tiltframe.cli.stream_sources import Arrivals, Lines
from tiltframe.cli.stream_start import Settings, sink_of
from tiltframe.event_time import event_times
from tiltframe.frame import TiltFrame
from tiltframe.ordered.aggregator import OrderedAggregator
from tiltframe.store import FrameStore
from tiltframe.streaming.saved import read_extension
from tiltframe.streaming.source_watermarks import SourceWatermarks


def run_stream(
    *,
    inputs: Mapping[str, Path],
    frame: TiltFrame | OrderedAggregator,
    settings: Settings,
    open_store: Callable[..., FrameStore] | None,
) -> None:
    """Open the saved state or the store of a stream, and run the stream until its inputs end or a signal stops it."""
    state, bad = settings.state, settings.bad
    data = state.read_bytes() if state is not None and state.exists() else None
    store = None if open_store is None or isinstance(frame, OrderedAggregator) else open_store(frame)
    sink = sink_of(data=data, frame=frame, store=store, name=_stream_name(inputs, settings), settings=settings)
    notes = {} if data is None else read_extension(data)[0].get("notes", {})
    sources = _watermarks(inputs, settings, notes)
    has_next_run = settings.once and settings.state is not None and not settings.drain
    opened = _opened(inputs, sink=sink, settings=settings, notes=notes, store=store)
    rows = Inputs(opened, sources, has_next_run=has_next_run)
    kept_in = None if settings.dropped is None else str(settings.dropped)
    losses = Losses(sink.read, bad, kept_in, waits=settings.behind > 0)
    metrics = StreamMetrics(sink, losses, sources)
    with serving_metrics(settings.metrics, metrics.text, metrics.is_alive), stopped_by_signals() as stopped:
        _run_until_stopped(sink=sink, rows=rows, settings=settings, metrics=metrics, stopped=stopped)
    _end(sink, settings, stopped, losses)


def _stream_name(inputs: Mapping[str, Path], settings: Settings) -> str:
    """Return the name of the stream in a store: the value of the option ``--stream``, or otherwise a name that is
    derived from the inputs.
    """
    if settings.stream_name is not None:
        return settings.stream_name
    if ONLY not in inputs:
        return f"inputs {', '.join(sorted(inputs))}"
    path = inputs[ONLY]
    return "standard input" if path == STANDARD_INPUT else f"folder {path.resolve()}"


def _watermarks(inputs: Mapping[str, Path], settings: Settings, notes: Mapping[str, Any]) -> SourceWatermarks:
    """Return the watermarks of the inputs. ``notes`` is the information about inputs in the saved state. If it contains
    the watermark of an input, the input begins with this watermark.
    """
    sources, now = SourceWatermarks(inputs, idle=settings.idle), clock.time_ns() // 1000
    for name, watermark in notes.get("watermarks", {}).items():
        if name in inputs and watermark is not None:
            sources.advance(name, watermark, now)
    return sources


def _opened(
    inputs: Mapping[str, Path],
    *,
    sink: Output | IntoStore,
    settings: Settings,
    notes: Mapping[str, Any],
    store: FrameStore | None,
) -> dict[str, Rows]:
    """Open the inputs, and return them by name. Pipes and standard input are read as lines. The files in folders are
    read, except those that ``notes``, the information about inputs in the saved state, lists as already read.
    """
    opened: dict[str, Rows] = {}
    reading, common = settings.reading, {"bad": settings.bad, "ahead": settings.ahead}
    for name, path in inputs.items():
        own_notes = notes if name == ONLY else notes.get("inputs", {}).get(name, {})
        if path == STANDARD_INPUT or path.is_fifo():
            lines: dict[str, Any] = {"arrival": settings.arrival, **common}
            if path != STANDARD_INPUT:
                lines |= {"pipe": open_pipe(path), "source_name": f"{name} ({path})"}
            opened[name] = Lines(sink.read, sink.attempt, reading, **lines)
        else:
            once = settings.once or path.is_file()
            files = {"store": store, "once": once, "known": own_notes.get("files", {}), **common}
            opened[name] = Arrivals(path, sink.read, sink.attempt, reading, **files)
    return opened


def _run_until_stopped(
    *, sink: Output | IntoStore, rows: Inputs, settings: Settings, metrics: StreamMetrics, stopped: list[int]
) -> None:
    """Process batch after batch, until the inputs end or ``stopped`` contains a signal. After an error, save the state
    as of the last complete batch or file, and raise the error again.
    """
    state, safe, losses = settings.state, sink.copy(), metrics.losses
    with live_line(metrics) as show, side_output(settings.dropped) as put_aside:
        try:
            for arrived in rows.batches(stopped):
                now = clock.time_ns() // 1000
                if arrived.rows is not None and arrived.rows.num_rows:
                    late_rows = sink.add(arrived.rows)
                    metrics.note(arrived.source, arrived.rows.num_rows)
                    put_aside(late_rows)
                    losses.note(late_rows, sink.windows.progress.watermark_us if late_rows.num_rows else None)
                    read = sink.read
                    times = event_times(arrived.rows.column(read.time), read.time, read.timezone)
                    rows.sources.advance(arrived.source, int(times.max()) - settings.behind, now)
                sink.tell(now - settings.behind if settings.arrival else rows.sources.combined(now))
                if arrived.completes:
                    sink.settle(state, rows.notes)
                    safe = sink.copy()
                losses.report()
                metrics.refresh()
                show()
        except BrokenPipeError:
            _end_without_reader(safe, state, rows)
        except Exception:
            losses.end()
            _report_excluded(sink)
            _save_before_error(safe, state, rows.notes)
            raise
        if settings.drain or (state is None and not stopped):
            sink.close()
        try:
            sink.settle(state, rows.notes, ended=True)
        except BrokenPipeError:
            _end_without_reader(safe, state, rows)


def _save_before_error(safe: Output | IntoStore, state: Path | None, notes: Mapping[str, Any]) -> None:
    """Save ``safe``, the destination as of the last complete batch or file before an error, to the file ``state``. If
    ``state`` equals None, print a warning that open windows are lost.
    """
    if state is None:
        if safe.windows.progress.rows:
            click.echo("tiltframe: the following error loses the open windows; use --state FILE to keep them", err=True)
        return
    with suppress(Exception):  # An error while saving is ignored, because the caller raises the first error again.
        safe.settle(state, notes, ended=True)
        click.echo(f"tiltframe: the rows before the following error are saved in {state}", err=True)


def _end_without_reader(safe: Output | IntoStore, state: Path | None, rows: Inputs) -> NoReturn:
    """Exit with the status of a broken pipe, because the process that read standard output has closed it. If ``state``
    is passed, first save ``safe``, the destination as of the last complete batch or file, to this file. Print which
    results are lost.
    """
    # Redirect standard output to the null device. Otherwise Python would try to write the buffered output at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    lost = "and open windows are lost; use --state FILE to keep them"
    if state is not None:
        safe.discard_output()
        safe.settle(state, rows.notes, ended=True)
        lost = f"and the state without the last batch is kept in {state}: {rows.unsaved}"
    click.echo(f"tiltframe: standard output was closed; the last results may be lost, {lost}", err=True)
    raise SystemExit(128 + signal.SIGPIPE)


def _report_excluded(sink: Output | IntoStore) -> None:
    """Print, for each measure, the number of groups that exceeded its limit of values, and the number of refused
    values.
    """
    if sink.excluded is not None:
        sink.excluded.report(lambda sentence: click.echo(f"tiltframe: {sentence}", err=True))


def _end(sink: Output | IntoStore, settings: Settings, stopped: list[int], losses: Losses) -> None:
    """Print the losses of a stream at its end: dropped and ignored rows, excluded groups and values, and open windows
    that were not emitted. If a signal has stopped the stream, exit with the status of this signal.
    """
    losses.end()
    _report_excluded(sink)
    if sink.windows.progress.late_rows > losses.late:
        total = sink.windows.progress.late_rows
        click.echo(f"tiltframe: {total:,} late rows were dropped since the saved state began", err=True)
    partly_late = sink.windows.progress.partly_late_rows
    if partly_late:
        click.echo(
            f"tiltframe: {partly_late:,} rows came too late for windows of the finest level, and count on coarser "
            "levels only; a longer --disorder, or --late 'drop(TIME)', accepts them on all levels",
            err=True,
        )
    committed = sink.windows.progress.committed_rows
    if committed:
        click.echo(f"tiltframe: {committed:,} rows were ignored because their windows are already committed", err=True)
    if stopped and settings.state is None and not settings.drain:
        left = "are not in the store" if isinstance(sink, IntoStore) else "were not emitted"
        click.echo(f"tiltframe: stopped; open windows {left}: --state FILE keeps them, --drain emits them", err=True)
    if stopped:
        raise SystemExit(128 + stopped[0])
