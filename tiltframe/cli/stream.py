"""tiltframe stream: rows as they come, from a pipe or a folder, and windows on standard output or in a store."""

from __future__ import annotations

import signal
import time as clock
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from tiltframe.cli.options import read_bad_rows, with_bad_rows, with_frame, with_store
from tiltframe.cli.output import as_moment, on_same_terminal
from tiltframe.cli.stream_sinks import IntoStore, OrderedOutput, Output, side_output
from tiltframe.cli.stream_sources import Arrivals, Lines
from tiltframe.event_time import event_times
from tiltframe.files.bad_rows import BadRows
from tiltframe.files.read_options import ReadOptions
from tiltframe.frame import TiltFrame
from tiltframe.ordered.aggregator import OrderedAggregator
from tiltframe.regular_files import not_a_file
from tiltframe.store import FrameStore
from tiltframe.store.closed_windows import ClosedWindows
from tiltframe.streaming import OpenWindows, OrderedStream, read_emit, read_late
from tiltframe.streaming.policies import micros
from tiltframe.streaming.saved import extension

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_STANDARD_INPUT = "standard input"
_SHOWN_EVERY = 0.25  # seconds


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
    emitted; with --state they are saved instead, and the next run goes on with them. Ctrl-C ends the stream after the
    lines, or the file, that were read.

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
    behind = micros(disorder)
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
    data = state.read_bytes() if state is not None and state.exists() else None
    store = None
    if isinstance(frame, OrderedAggregator):
        _check_ordered(emit, late, max_keys, uri)
        sink: Output | IntoStore = OrderedOutput(OrderedStream.from_ipc(data, frame) if data else OrderedStream(frame))
    elif uri is None:
        sink = Output(_windows(data, frame, emit, "drop" if late is None else late, max_keys))
    else:
        store = FrameStore(uri, frame, name=name, durable=durable)
        if stream_name is None:
            stream_name = _STANDARD_INPUT if folder is None else f"folder {folder.resolve()}"
        sink = IntoStore(_closed(data, store, stream_name, emit, "true_window" if late is None else late, max_keys))
    rows: Lines | Arrivals = Lines(sink.read, sink.attempt, reading, arrival, bad)
    if folder is not None:
        notes = {} if data is None else extension(data)[0].get("notes", {})
        rows = Arrivals(folder, sink.read, sink.attempt, reading, store, once, notes.get("files", {}), bad)
    safe = sink.copy()
    with _stopped_by_ctrl_c() as stopped, _live_line(sink, bad) as show, side_output(dropped) as put_aside:
        try:
            for arrived in rows.batches(stopped):
                watermark = clock.time_ns() // 1000 - behind if arrival else None
                if arrived.rows is not None and arrived.rows.num_rows:
                    put_aside(sink.add(arrived.rows))
                    times = event_times(arrived.rows.column(sink.read.time), sink.read.time)
                    watermark = int(times.max()) - behind
                sink.tell(watermark)
                if arrived.whole:
                    sink.settle(state, rows.notes)
                    safe = sink.copy()
                show()
        except Exception as error:
            _save_first(safe, state, rows.notes, told=not isinstance(error, BrokenPipeError))
            raise
        if state is None and not stopped:
            sink.close()
        sink.settle(state, rows.notes, ended=True)
    _end(sink, state, bool(stopped), bad)


def _check_ordered(emit: str, late: str | None, max_keys: int | None, uri: str | None) -> None:
    if uri is not None:
        raise ValueError("a store keeps time windows, and --ordered has none; leave out --store, or give --levels")
    if (emit, late, max_keys) != ("after_close", None, None):
        raise ValueError(
            "--ordered gives each result once, when the watermark has passed it, and drops what comes later; leave out "
            "--emit, --late and --max-keys"
        )


def _save_first(safe: Output | IntoStore, state: Path | None, notes: Mapping[str, Any], told: bool) -> None:
    """Keep what had come before an error: the rows of whole batches and files."""
    if state is None:
        if safe.windows.progress.rows and told:
            click.echo("tiltframe: open windows are lost by the error that follows: --state FILE keeps them", err=True)
        return
    with suppress(Exception):  # the error that counts is the first
        safe.settle(state, notes, ended=True)
        if told:
            click.echo(f"tiltframe: what came before the error that follows is kept in {state}", err=True)


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


def _end(sink: Output | IntoStore, state: Path | None, stopped: bool, bad: BadRows | None) -> None:
    if bad is not None and (told := bad.told()):
        click.echo(f"tiltframe: {told}", err=True)
    known = sink.windows.progress.committed_rows
    if known:
        click.echo(f"tiltframe: {known:,} rows of windows that are committed were not taken again", err=True)
    if stopped and state is None:
        left = "are not in the store" if isinstance(sink, IntoStore) else "were not emitted"
        click.echo(f"tiltframe: stopped; open windows {left}: --state FILE keeps them", err=True)
    if stopped:
        raise SystemExit(130)


def _on_spark(folder: Path | None, source: str | None, options: tuple[str, ...], **given: Any) -> None:
    from importlib.metadata import entry_points

    found: list[EntryPoint] = list(entry_points(group="tiltframe.streams", name="spark"))
    if not found:
        raise ValueError("--spark needs PySpark: pip install 'tiltframe[spark]'")
    found[0].load()(folder, source, options, **given)


@contextmanager
def _stopped_by_ctrl_c() -> Iterator[list[bool]]:
    """Note Ctrl-C instead of raising it, so that a batch is taken whole or not at all; what is yielded is true then."""
    stopped: list[bool] = []
    before = signal.signal(signal.SIGINT, lambda *_: stopped.append(True))
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _live_line(sink: Output | IntoStore, bad: BadRows | None) -> Iterator[Callable[[], None]]:
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
            live.update(Text(f"{rows} · watermark {at} · open {held} · late {said.late_rows:,}"))

        yield show
