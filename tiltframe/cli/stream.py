"""tiltframe stream: rows as they come, from a pipe or a folder, and windows on standard output or in a store."""

from __future__ import annotations

import os
import signal
import sys
import time as clock
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from tiltframe.cli.options import read_bad_rows, with_bad_rows, with_frame, with_store
from tiltframe.cli.output import as_moment, on_same_terminal
from tiltframe.cli.state_lock import locked
from tiltframe.cli.stream_losses import Losses
from tiltframe.cli.stream_sinks import IntoStore, OrderedOutput, Output, side_output
from tiltframe.cli.stream_sources import Ahead, Arrivals, Lines
from tiltframe.event_time import event_times
from tiltframe.files.bad_rows import BadRows
from tiltframe.files.read_options import ReadOptions
from tiltframe.frame import TiltFrame
from tiltframe.ordered.aggregator import OrderedAggregator
from tiltframe.regular_files import not_a_file
from tiltframe.store import FrameStore
from tiltframe.store.closed_windows import ClosedWindows
from tiltframe.streaming import OpenWindows, OrderedStream, read_emit, read_late
from tiltframe.streaming.ahead import read_ahead
from tiltframe.streaming.policies import micros
from tiltframe.streaming.saved import extension

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_STANDARD_INPUT = "standard input"
_SHOWN_EVERY = 0.25  # seconds
_STOPPING = (signal.SIGINT, signal.SIGTERM)


@click.command(
    epilog="\b\nExamples:\n  "
    "tail -f requests.jsonl | tiltframe stream --time ts --measure 'n=count()' --levels 10s,1m --emit on_update\n  "
    "tiltframe stream arriving/ --time ts --key host --measure 'p=dds(ms)' --levels 10s,1m,1h "
    "--store web --state web.state"
)
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@partial(with_frame, ordered=True)
@click.option("--emit", default="after_close", show_default=True, metavar="POLICY", help="When windows are emitted.")
@click.option(
    "--late", metavar="POLICY", help="What becomes of late events: drop by default, true_window with --store."
)
@click.option(
    "--disorder", default="0s", show_default=True, metavar="TIME", help="How far the watermark stays behind the events."
)
@click.option(
    "--ahead",
    default="1h",
    show_default=True,
    metavar="TIME",
    help="How far an event may be ahead of the clock, or none for any time; beyond it is a bad row.",
)
@click.option("--arrival", is_flag=True, help="The event time of a row is when it comes: --time names what is made.")
@click.option(
    "--dropped", type=click.Path(path_type=Path), metavar="FILE", help="Append events that are dropped, as JSON lines."
)
@with_bad_rows
@click.option("--max-keys", type=int, metavar="N", help="How many distinct keys may be held at once.")
@click.option("--state", type=click.Path(path_type=Path), metavar="FILE", help="Go on from here, and save at the end.")
@with_store(required=False)
@click.option("--stream", "stream_name", metavar="NAME", help="Of this stream, among all that go into the store.")
@click.option("--once", is_flag=True, help="Of a folder or a Spark source: take what is there, and end.")
@click.option("--spark", is_flag=True, help="Read a source of Spark Structured Streaming.")
@click.option("--format", "source", metavar="NAME", help="Of the Spark source: kafka, json, rate, …")
@click.option("--option", "options", multiple=True, metavar="KEY=VALUE", help="Of the Spark source; may repeat.")
@click.option(
    "--shards", type=int, metavar="N", help="Of keys, with --spark: each a task's work. The cores by default."
)
def stream(
    folder: Path | None, spark: bool, source: str | None, options: tuple[str, ...], shards: int | None, **given: Any
) -> None:
    """Aggregate rows while they come: JSON lines from standard input, or the files that arrive in a folder.

    Windows that are emitted go to standard output as JSON lines. At the end of the input all windows are closed and
    emitted; with --state they are saved instead, and the next run goes on with them. Ctrl-C, or SIGTERM, ends the
    stream after the lines, or the file, that were read. One process at a time runs a stream: --state is locked.

    Rows that come late are dropped, and counted on standard error: the first with a warning, then once a minute, and at
    the end. --disorder waits for late rows, --late keeps closed windows for them.

    Of --ordered windows each result comes once, when the watermark has passed the row that brings it about.

    With --store, windows go into a store once they are closed, each row once, together with --state. Without it, the
    stream goes on from the store: rows of windows that are committed are not taken again.

    \b
    POLICY of --emit: after_close(delay=10s, timeout=5m), periodic(1m, repeat), on_update(batch=2s),
    after_count(100), after_key_expire(1m, maxspan=5m, only); each with mode=accumulating, discarding or
    changelog, and having='n > 300'. Into a store: after_close.
    POLICY of --late: drop(5m), true_window, buffer(3, older=drop).
    """
    if spark:
        _on_spark(folder, source, options, shards=shards, **given)
        return
    if source is not None or options or shards is not None:
        raise ValueError("--format, --option and --shards are of a Spark source; give --spark too")
    _run(folder, **given)


def _run(
    folder: Path | None,
    frame: TiltFrame | OrderedAggregator,
    reading: ReadOptions,
    emit: str,
    late: str | None,
    disorder: str,
    ahead: str,
    arrival: bool,
    dropped: Path | None,
    max_keys: int | None,
    state: Path | None,
    uri: str | None,
    name: str | None,
    durable: bool,
    stream_name: str | None,
    once: bool,
    bad_rows: str,
) -> None:
    behind, allowed_ahead = micros(disorder), Ahead(ahead, read_ahead(ahead))
    if folder is not None and not folder.is_dir():
        raise ValueError(f"{folder} is no folder; name one that files arrive in, or give rows by standard input")
    if folder is None and once:
        raise ValueError("--once is of a folder or a Spark source; standard input has an end of its own")
    if folder is not None and arrival:
        raise ValueError("--arrival is of standard input or a Spark source; of files, name the column of event times")
    if uri is None and (name is not None or durable or stream_name is not None):
        raise ValueError("--name, --durable and --stream are of a store; give --store too")
    bad = read_bad_rows(bad_rows, once=folder is not None)
    written: dict[Path, str] = {}
    for option, file in (("--state", state), ("--dropped", dropped), ("--bad-rows", None if bad is None else bad.file)):
        if file is None:
            continue
        if there := not_a_file(file):
            raise ValueError(f"{option} {file}: there is {there}; name a file, or one that is not there yet")
        if (other := written.setdefault(file.absolute(), option)) != option:
            raise ValueError(f"{other} and {option} would both write to {file}; give each a file of its own")
    if isinstance(frame, OrderedAggregator):
        _check_ordered(emit, late, max_keys, uri)
    with locked(state):
        settings = Settings(
            reading=reading, emit=emit, late=late, behind=behind, ahead=allowed_ahead, arrival=arrival,
            dropped=dropped, max_keys=max_keys, state=state, once=once, bad=bad, stream_name=stream_name,
        )  # fmt: skip
        open_store = None if uri is None else partial(FrameStore, uri, name=name, durable=durable)
        _stream(folder=folder, frame=frame, settings=settings, open_store=open_store)


@dataclass(frozen=True)
class Settings:
    """How a stream runs, as the options say."""

    reading: ReadOptions
    emit: str
    late: str | None
    behind: int  # the watermark, behind the events; microseconds
    ahead: Ahead
    arrival: bool
    dropped: Path | None
    max_keys: int | None
    state: Path | None
    once: bool
    bad: BadRows | None
    stream_name: str | None


def _stream(
    *,
    folder: Path | None,
    frame: TiltFrame | OrderedAggregator,
    settings: Settings,
    open_store: Callable[..., FrameStore] | None,
) -> None:
    """Open what the stream goes on from, and run it until its input ends or it is stopped."""
    state, bad = settings.state, settings.bad
    data = state.read_bytes() if state is not None and state.exists() else None
    store = None if open_store is None or isinstance(frame, OrderedAggregator) else open_store(frame)
    name = settings.stream_name or (_STANDARD_INPUT if folder is None else f"folder {folder.resolve()}")
    sink = _sink(data=data, frame=frame, store=store, name=name, settings=settings)
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
    with _stopped_by_signals() as stopped:
        _run_until_stopped(sink=sink, rows=rows, settings=settings, losses=losses, stopped=stopped)
    _end(sink, state, stopped, losses)


def _run_until_stopped(
    *, sink: Output | IntoStore, rows: Lines | Arrivals, settings: Settings, losses: Losses, stopped: list[int]
) -> None:
    """Take batch after batch; whole batches and files before an error are saved."""
    state, safe = settings.state, sink.copy()
    with _live_line(sink, losses) as show, side_output(settings.dropped) as put_aside:
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
                if arrived.whole:
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


def _sink(
    *, data: bytes | None, frame: TiltFrame | OrderedAggregator, store: FrameStore | None, name: str, settings: Settings
) -> Output | IntoStore:
    """Make the sink of the rows, from its saved state if there is one."""
    emit, late, max_keys = settings.emit, settings.late, settings.max_keys
    if isinstance(frame, OrderedAggregator):
        return OrderedOutput(OrderedStream.from_ipc(data, frame) if data else OrderedStream(frame))
    if store is None:
        return Output(_windows(data, frame, emit, "drop" if late is None else late, max_keys))
    return IntoStore(_closed(data, store, name, emit, "true_window" if late is None else late, max_keys))


def _check_ordered(emit: str, late: str | None, max_keys: int | None, uri: str | None) -> None:
    if uri is not None:
        raise ValueError("a store keeps time windows, and --ordered has none; leave out --store, or give --levels")
    if (emit, late, max_keys) != ("after_close", None, None):
        raise ValueError(
            "--ordered gives each result once, when the watermark has passed it, and drops what comes later; leave out "
            "--emit, --late and --max-keys"
        )


def _save_first(safe: Output | IntoStore, state: Path | None, notes: Mapping[str, Any]) -> None:
    """Keep what had come before an error: the rows of whole batches and files."""
    if state is None:
        if safe.windows.progress.rows:
            click.echo("tiltframe: open windows are lost by the error that follows: --state FILE keeps them", err=True)
        return
    with suppress(Exception):  # the error that counts is the first
        safe.settle(state, notes, ended=True)
        click.echo(f"tiltframe: what came before the error that follows is kept in {state}", err=True)


def _end_without_reader(safe: Output | IntoStore, state: Path | None, rows: Lines | Arrivals) -> NoReturn:
    """End because standard output was closed: report the loss, with the status of a broken pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the held output is not written again at the end
    lost = "and open windows are lost: --state FILE keeps them"
    if state is not None:
        safe.discard_output()
        safe.settle(state, rows.notes, ended=True)
        lost = f"and the state without the last batch is kept in {state}: {rows.unsaved}"
    click.echo(f"tiltframe: the reader of standard output has gone; the last results may be lost, {lost}", err=True)
    raise SystemExit(128 + signal.SIGPIPE)


def _windows(data: bytes | None, frame: TiltFrame, emit: str, late: str, max_keys: int | None) -> OpenWindows:
    policies = read_emit(emit), read_late(late)
    if data is None:
        return OpenWindows(frame, *policies, max_keys=max_keys)
    if "writer" in extension(data)[0]:
        raise ValueError("the saved state is of a stream into a store; give --store, or begin a new state")
    return OpenWindows.from_ipc(data, frame, *policies, max_keys=max_keys)


def _closed(
    data: bytes | None, store: FrameStore, stream_name: str, emit: str, late: str, max_keys: int | None
) -> ClosedWindows:
    """Begin, go on from a saved state, whose last commit may be missing, or from the store alone."""
    if data is not None:
        closed = ClosedWindows.from_ipc(data, store, stream_name, emit, late, max_keys=max_keys)
        closed.commit()
        return closed
    closed = ClosedWindows(store, stream_name, emit, late, max_keys=max_keys)
    if closed.committed is not None:
        click.echo(
            f"tiltframe: there is no saved state; the stream {stream_name!r} goes on from {store.display_uri} as a new "
            f"writer, and rows of windows that end by {as_moment(closed.committed)} count as committed",
            err=True,
        )
    return closed


def _end(sink: Output | IntoStore, state: Path | None, stopped: list[int], losses: Losses) -> None:
    losses.end()
    known = sink.windows.progress.committed_rows
    if known:
        click.echo(f"tiltframe: {known:,} rows of windows that are committed were not taken again", err=True)
    if stopped and state is None:
        left = "are not in the store" if isinstance(sink, IntoStore) else "were not emitted"
        click.echo(f"tiltframe: stopped; open windows {left}: --state FILE keeps them", err=True)
    if stopped:
        raise SystemExit(128 + stopped[0])


def _on_spark(folder: Path | None, source: str | None, options: tuple[str, ...], **given: Any) -> None:
    from importlib.metadata import entry_points

    found: list[EntryPoint] = list(entry_points(group="tiltframe.streams", name="spark"))
    if not found:
        raise ValueError("--spark needs PySpark: pip install 'tiltframe[spark]'")
    found[0].load()(folder, source, options, **given)


@contextmanager
def _stopped_by_signals() -> Iterator[list[int]]:
    """Note Ctrl-C and SIGTERM instead of ending at once, so that a batch is taken whole or not at all.

    Yields a list that has the numbers of the signals.
    """
    stopped: list[int] = []
    before = {number: signal.signal(number, lambda got, _: stopped.append(got)) for number in _STOPPING}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _live_line(sink: Output | IntoStore, losses: Losses) -> Iterator[Callable[[], None]]:
    """Show a line on standard error, if that is a terminal: rows a second, watermark, open windows, late rows."""
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
            said = sink.windows.progress
            rate = (said.rows - first) / max(clock.monotonic() - begun, 1e-9)
            at = as_moment(said.watermark_us)
            held = ", ".join(f"{level} {count:,}" for level, count in said.open_windows.items()) or "·"
            rows = f"{said.rows:,} rows, {rate:,.0f}/s"
            live.update(Text(f"{rows} · watermark {at} · open {held} · late {losses.late:,}"))

        yield show
