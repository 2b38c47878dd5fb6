"""The run of a stream: it processes batch after batch until its inputs end or a signal stops it, and saves its state at
the end.
"""

from __future__ import annotations

import os
import signal
import sys
import time as clock
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import click

from tiltframe.cli.metrics_server import serving_metrics
from tiltframe.cli.stopping import record_signals
from tiltframe.cli.stream_inputs import SINGLE_INPUT, STANDARD_INPUT, Inputs, RowSource, open_pipe
from tiltframe.cli.stream_line import progress_line
from tiltframe.cli.stream_losses import DroppedRows
from tiltframe.cli.stream_metrics import StreamMetrics
from tiltframe.cli.stream_options import StreamOptions
from tiltframe.cli.stream_sinks import OutputSink, StoreSink, dropped_rows_writer
from tiltframe.cli.stream_sources import ArrivingFiles, InputLines
from tiltframe.cli.stream_start import create_sink
from tiltframe.event_time import event_times
from tiltframe.files.bad_rows import BadRows
from tiltframe.ordered.aggregator import OrderedAggregator
from tiltframe.store import FrameStore
from tiltframe.streaming.saved import read_extension
from tiltframe.streaming.source_watermarks import SourceWatermarks


def run_stream(options: StreamOptions, bad: BadRows | None) -> None:
    """Open the saved state or the store of a stream, and run the stream until its inputs end or a signal stops it.
    ``bad`` is the treatment of rows that cannot be read.
    """
    state = options.state
    data = state.read_bytes() if state is not None and state.exists() else None
    store = _open_store(options)
    sink = create_sink(options, data=data, store=store, name=_stream_name(options))
    notes = {} if data is None else read_extension(data)[0].get("notes", {})
    watermarks = _restore_watermarks(options, notes)
    has_next_run = options.once and state is not None and not options.drain
    row_sources = _open_inputs(options, bad, sink=sink, notes=notes, store=store)
    all_inputs = Inputs(row_sources, watermarks, has_next_run=has_next_run)
    dropped_file = None if options.dropped is None else str(options.dropped)
    losses = DroppedRows(sink.row_frame, bad, dropped_file, has_disorder=options.disorder_micros > 0)
    metrics = StreamMetrics(sink, losses, watermarks)
    with serving_metrics(options.metrics_address, metrics.text, metrics.is_alive), record_signals() as received_signals:
        _run_until_stopped(options, sink=sink, inputs=all_inputs, metrics=metrics, received_signals=received_signals)
    _report_and_exit(sink, options, received_signals, losses)


def _open_store(options: StreamOptions) -> FrameStore | None:
    """Return the store into which the stream writes, or None if it writes to standard output."""
    if options.uri is None or isinstance(options.frame, OrderedAggregator):
        return None
    return FrameStore(options.uri, options.frame, name=options.name, durable=options.durable)


def _stream_name(options: StreamOptions) -> str:
    """Return the name of the stream in a store: the value of the option ``--stream``, or otherwise a name that is
    derived from the inputs.
    """
    if options.stream_name is not None:
        return options.stream_name
    if SINGLE_INPUT not in options.paths:
        return f"inputs {', '.join(sorted(options.paths))}"
    path = options.paths[SINGLE_INPUT]
    return "standard input" if path == STANDARD_INPUT else f"folder {path.resolve()}"


def _restore_watermarks(options: StreamOptions, notes: Mapping[str, Any]) -> SourceWatermarks:
    """Return the watermarks of the inputs. ``notes`` is the part of the saved state that describes the inputs. If the
    notes contain the watermark of an input, the input begins with this watermark.
    """
    watermarks = SourceWatermarks(options.paths, idle=options.idle)
    now = clock.time_ns() // 1000
    for name, watermark in notes.get("watermarks", {}).items():
        if name in options.paths and watermark is not None:
            watermarks.advance(name, watermark, now)
    return watermarks


def _open_inputs(
    options: StreamOptions,
    bad: BadRows | None,
    *,
    sink: OutputSink | StoreSink,
    notes: Mapping[str, Any],
    store: FrameStore | None,
) -> dict[str, RowSource]:
    """Open the inputs, and return them by name. Pipes and standard input are read as lines. In a folder, the
    files that ``notes`` lists as already read are skipped. ``notes`` is the part of the saved state that describes the
    inputs.
    """
    row_sources: dict[str, RowSource] = {}
    reading = options.reading
    common = {"bad": bad, "ahead": options.ahead_limit}
    for name, path in options.paths.items():
        own_notes = notes if name == SINGLE_INPUT else notes.get("inputs", {}).get(name, {})
        if path == STANDARD_INPUT or path.is_fifo():
            line_options: dict[str, Any] = {"arrival": options.arrival, **common}
            if path != STANDARD_INPUT:
                line_options |= {"pipe": open_pipe(path), "source_name": f"{name} ({path})"}
            row_sources[name] = InputLines(sink.row_frame, sink.try_reduce, reading, **line_options)
        else:
            once = options.once or path.is_file()
            file_options = {"store": store, "once": once, "files_read": own_notes.get("files", {}), **common}
            row_sources[name] = ArrivingFiles(path, sink.row_frame, sink.try_reduce, reading, **file_options)
    return row_sources


def _run_until_stopped(
    options: StreamOptions,
    *,
    sink: OutputSink | StoreSink,
    inputs: Inputs,
    metrics: StreamMetrics,
    received_signals: list[int],
) -> None:
    """Process batch after batch, until the inputs end or ``received_signals`` contains a signal. After an error, save
    the state as of the last complete batch or file, and raise the error again.
    """
    state = options.state
    last_complete = sink.copy()
    losses = metrics.losses
    with progress_line(metrics) as show, dropped_rows_writer(options.dropped) as write_dropped:
        try:
            for arrived in inputs.batches(received_signals):
                now = clock.time_ns() // 1000
                if arrived.rows is not None and arrived.rows.num_rows:
                    late_rows = sink.add(arrived.rows)
                    metrics.count_arrived(arrived.source, arrived.rows.num_rows)
                    write_dropped(late_rows)
                    losses.count_late(late_rows, sink.windows.progress.watermark_us if late_rows.num_rows else None)
                    row_frame = sink.row_frame
                    times = event_times(arrived.rows.column(row_frame.time), row_frame.time, row_frame.timezone)
                    inputs.watermarks.advance(arrived.source, int(times.max()) - options.disorder_micros, now)
                sink.advance(now - options.disorder_micros if options.arrival else inputs.watermarks.combined(now))
                if arrived.may_save:
                    sink.flush(state, inputs.resume_notes)
                    last_complete = sink.copy()
                losses.report()
                metrics.refresh()
                show()
        except BrokenPipeError:
            _end_without_reader(last_complete, state, inputs)
        except Exception:
            losses.end()
            _report_excluded(sink)
            _save_before_error(last_complete, state, inputs.resume_notes)
            raise
        if options.drain or (state is None and not received_signals):
            sink.close()
        try:
            sink.flush(state, inputs.resume_notes, ended=True)
        except BrokenPipeError:
            _end_without_reader(last_complete, state, inputs)


def _save_before_error(last_complete: OutputSink | StoreSink, state: Path | None, notes: Mapping[str, Any]) -> None:
    """Save the state of a stream after an error, without the batch or file in which the error occurred.

    ``last_complete`` is a copy of the stream's destination before this batch or file. The copy is saved to the file
    ``state``. If ``state`` equals None, print a warning that open windows are lost.
    """
    if state is None:
        if last_complete.windows.progress.rows:
            click.echo("tiltframe: the following error loses the open windows; use --state FILE to keep them", err=True)
        return
    with suppress(Exception):  # An error while saving is ignored, because the caller raises the first error again.
        last_complete.flush(state, notes, ended=True)
        click.echo(f"tiltframe: the rows before the following error are saved in {state}", err=True)


def _end_without_reader(last_complete: OutputSink | StoreSink, state: Path | None, inputs: Inputs) -> NoReturn:
    """Print which results are lost because the reader of standard output has closed the pipe, and exit with the status
    of a broken pipe.

    ``last_complete`` is a copy of the stream's destination after the last complete batch or file. If ``state`` is
    passed, the copy is first saved to the file ``state``.
    """
    # Redirect standard output to the null device. Otherwise Python would try to write the buffered output at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    lost = "and open windows are lost; use --state FILE to keep them"
    if state is not None:
        last_complete.discard_output()
        last_complete.flush(state, inputs.resume_notes, ended=True)
        lost = f"and the state without the last batch is kept in {state}: {inputs.resend_advice}"
    click.echo(f"tiltframe: standard output was closed; the last results may be lost, {lost}", err=True)
    raise SystemExit(128 + signal.SIGPIPE)


def _report_excluded(sink: OutputSink | StoreSink) -> None:
    """Print two numbers for each measure: the number of groups with more values than the measure's limit, and the
    number of values that the measure refused.
    """
    if sink.excluded is not None:
        sink.excluded.report(lambda sentence: click.echo(f"tiltframe: {sentence}", err=True))


def _report_and_exit(
    sink: OutputSink | StoreSink, options: StreamOptions, received_signals: list[int], losses: DroppedRows
) -> None:
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
    if received_signals and options.state is None and not options.drain:
        left = "are not in the store" if isinstance(sink, StoreSink) else "were not emitted"
        click.echo(f"tiltframe: stopped; open windows {left}: --state FILE keeps them, --drain emits them", err=True)
    if received_signals:
        raise SystemExit(128 + received_signals[0])
