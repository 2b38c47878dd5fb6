"""tiltframe stream: aggregate rows from a pipe or a folder as they arrive, and write windows to standard output or into
a store.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tiltframe.cli.metrics_server import metrics_address
from tiltframe.cli.options import bad_rows_from, with_bad_rows, with_frame, with_rejected_options, with_store
from tiltframe.cli.state_lock import lock_state
from tiltframe.cli.stream_inputs import STANDARD_INPUT, check_input, read_inputs
from tiltframe.cli.stream_run import run_stream
from tiltframe.cli.stream_sources import AheadLimit
from tiltframe.cli.stream_start import Settings
from tiltframe.files.read_options import ReadOptions
from tiltframe.frame import TiltFrame
from tiltframe.ordered.aggregator import OrderedAggregator
from tiltframe.regular_files import kind_unless_file
from tiltframe.store import FrameStore
from tiltframe.streaming.ahead import read_ahead
from tiltframe.streaming.policies import micros

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

# option that does not work with --spark → the advice in its error message
_ADVICE_FOR_SPARK = {
    "inputs": "union the sources in Spark, which uses the minimum of their watermarks",
    "idle": "Spark does not support idle sources; leave it out",
    "drain": "Spark keeps open windows in its checkpoint; use --emit on_update to emit them early",
    "metrics": "Spark has its own metrics; su.progress returns those of the stream",
}


@click.command(
    epilog="\b\nExamples:\n  "
    "tail -f requests.jsonl | tiltframe stream --time ts --measure 'n=count()' --levels 10s,1m --emit on_update\n  "
    "tiltframe stream arriving/ --time ts --key host --measure 'p=dds(ms)' --levels 10s,1m,1h "
    "--store web --state web.state\n  "
    "tiltframe stream --input eu=eu/ --input us=us.pipe --idle 1m --time ts --measure 'n=count()' --levels 1m "
    "--metrics 127.0.0.1:9465"
)
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@partial(with_frame, ordered=True)
@click.option(
    "--emit",
    metavar="POLICY",
    help="When to emit windows. The default is after_close, or periodic(2s) if the only level is all.",
)
@click.option(
    "--late", metavar="POLICY", help="What to do with late events. The default is drop, or true_window with --store."
)
@with_rejected_options("--watermark", "--delay", use="--disorder TIME, or --emit 'after_close(delay=TIME)'")
@click.option(
    "--disorder",
    default="0s",
    show_default=True,
    metavar="TIME",
    help="The time by which the watermark stays behind the newest event.",
)
@click.option(
    "--ahead",
    default="1h",
    show_default=True,
    metavar="TIME",
    help="An event that is more than TIME ahead of the clock is a bad row. Pass none to allow any time.",
)
@click.option(
    "--arrival", is_flag=True, help="Use the time when a row arrives as its event time. --time names the new column."
)
@click.option(
    "--dropped",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Append dropped events to this file, as JSON lines.",
)
@with_bad_rows
@click.option("--max-keys", type=int, metavar="N", help="The maximum number of distinct keys in memory.")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=PATH",
    help="A folder, file or named pipe, or - for standard input; may repeat. Each has a watermark of its own.",
)
@click.option("--idle", metavar="TIME", help="The watermark ignores inputs that had no rows for this time.")
@click.option("--drain", is_flag=True, help="Emit open windows at the end, even with --state or after a signal.")
@click.option(
    "--metrics", metavar="HOST:PORT", help="Serve /metrics for Prometheus, and /healthz, while the stream runs."
)
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Continue from the state in this file, and save the state there at the end.",
)
@with_store(required=False)
@click.option(
    "--stream",
    "stream_name",
    metavar="NAME",
    help="The name of this stream, which is unique among the streams that write to the store.",
)
@click.option("--once", is_flag=True, help="Read the rows that a folder or a Spark source has now, and end.")
@click.option("--spark", is_flag=True, help="Read a source of Spark Structured Streaming.")
@click.option("--format", "source", metavar="NAME", help="The format of the Spark source: kafka, json, rate, …")
@click.option(
    "--option", "options", multiple=True, metavar="KEY=VALUE", help="An option of the Spark source; may repeat."
)
@click.option(
    "--shards",
    type=int,
    metavar="N",
    help="With --spark: the number of groups of keys, each for one task. By default the number of cores.",
)
def stream(
    folder: Path | None, spark: bool, source: str | None, options: tuple[str, ...], shards: int | None, **settings: Any
) -> None:
    """Aggregate rows as they arrive: JSON lines from standard input, or the files that arrive in a folder.

    Emitted windows are printed as JSON lines. At the end of the input, all windows are closed and emitted. With
    --state, open windows are saved instead, and the next run continues with them. After Ctrl-C or SIGTERM, the stream
    processes the lines or the file that it has already read, and ends. A lock on --state prevents two processes from
    running the same stream.

    A window closes when the watermark passes its end. The watermark is the time of the newest event minus --disorder.
    Rows that arrive after the close of their window are late: they are dropped and counted. Standard error shows a
    warning for the first late row, and the count once a minute and at the end. With --disorder, windows are closed
    later. With --late, closed windows still accept late rows.

    Each input, --input NAME=PATH, has its own watermark. The watermark of the stream is the earliest of them.

    With --ordered, each result is printed once, when the watermark has passed the row that triggers it.

    With --store, closed windows are written to a store. With --store and --state together, each row counts exactly
    once, even if the process is killed: the next run reads files again from the last saved state. With --store alone,
    the next run continues from the store, and skips rows of windows that are already committed.

    \b
    POLICY of --emit: the open windows to emit; all policies emit closed windows
      after_close          none; the only policy that is allowed with --store
      periodic(1m)         every minute, windows with new rows;
                           periodic(1m, repeat): all windows
      on_update            after each batch, windows with new rows;
                           on_update(batch=2s): at most every 2 seconds
      after_count(100)     windows with at least 100 new rows
      after_key_expire(1m)
                           with --levels all: the window of a key that had no
                           rows for a minute; the key is then removed;
                           (1m, maxspan=5m, only): emit it only if the rows
                           of the key span more than 5 minutes

    \b
    Arguments of any POLICY of --emit, such as after_close(delay=10s)
      delay=10s            close windows 10 seconds after their end
      timeout=5m           close windows that had no rows for 5 minutes
      mode=accumulating    emit all rows of a window each time (the default)
      mode=discarding      emit only the rows since the last emission
      mode=changelog       retract the last emission, and then emit all rows
      changed=result       emit a window again only if a result has changed
      having='n > 300'     emit only windows that meet a condition
    With --store, only delay and timeout are allowed.

    \b
    POLICY of --late: the treatment of rows that arrive after the close
      drop(5m)             for 5 minutes, add them to their window, and emit it
                           again; then drop them
      true_window          always add them to their window; without --store,
                           all windows stay in memory
      buffer(3)            close windows without a watermark: the newest window
                           and 3 before it are open, and older rows count in
                           the oldest open window
      buffer(3, older=drop)
                           the same, but drop older rows
    """
    if spark:
        unusable = [option for option in _ADVICE_FOR_SPARK if settings.pop(option)]
        if unusable:
            raise ValueError(
                f"--{'input' if unusable[0] == 'inputs' else unusable[0]} cannot be used with --spark; "
                f"{_ADVICE_FOR_SPARK[unusable[0]]}"
            )
        _on_spark(folder, source, options, shards=shards, **settings)
        return
    if source is not None or options or shards is not None:
        raise ValueError("--format, --option and --shards apply only to a Spark source; pass --spark too")
    _run(folder, **settings)


def _run(
    folder: Path | None,
    frame: TiltFrame | OrderedAggregator,
    reading: ReadOptions,
    emit: str | None,
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
    inputs: tuple[str, ...],
    idle: str | None,
    drain: bool,
    metrics: str | None,
) -> None:
    """Check the options of a stream that runs without Spark, and run the stream."""
    disorder_micros = micros(disorder)
    allowed_ahead = AheadLimit(ahead, read_ahead(ahead))
    if folder is not None and not folder.is_dir():
        raise ValueError(
            f"{folder} is not a folder; name a folder in which files arrive, or send rows through standard input"
        )
    paths = read_inputs(folder, inputs)
    _check_inputs(paths, once=once, arrival=arrival, idle=idle)
    address = None if metrics is None else metrics_address(metrics)
    if uri is None and (name is not None or durable or stream_name is not None):
        raise ValueError("--name, --durable and --stream apply only to a store; pass --store too")
    bad = bad_rows_from(bad_rows, once=any(_has_files(path) for path in paths.values()))
    written: dict[Path, str] = {}
    for option, file in (("--state", state), ("--dropped", dropped), ("--bad-rows", None if bad is None else bad.file)):
        if file is None:
            continue
        if kind := kind_unless_file(file):
            raise ValueError(
                f"{option} {file}: this path is {kind}; name a regular file, or a path that does not exist yet"
            )
        if (other := written.setdefault(file.absolute(), option)) != option:
            raise ValueError(f"{other} and {option} would both write to {file}; use a different file for each")
    if isinstance(frame, OrderedAggregator):
        _check_ordered(emit, late, max_keys, uri)
    with lock_state(state):
        settings = Settings(
            reading=reading, emit=emit, late=late, disorder_micros=disorder_micros, ahead=allowed_ahead,
            arrival=arrival, dropped=dropped, max_keys=max_keys, state=state, once=once, bad=bad,
            stream_name=stream_name, drain=drain, idle=idle, metrics=address,
        )  # fmt: skip
        open_store = None if uri is None else partial(FrameStore, uri, name=name, durable=durable)
        run_stream(inputs=paths, frame=frame, settings=settings, open_store=open_store)


def _has_files(path: Path) -> bool:
    return path != STANDARD_INPUT and not path.is_fifo()


def _check_inputs(paths: Mapping[str, Path], *, once: bool, arrival: bool, idle: str | None) -> None:
    """Raise ``ValueError`` if an input cannot be read, or if one of the options --once, --arrival and --idle does not
    apply to the inputs.
    """
    for name, path in paths.items():
        check_input(name, path)
    has_files = [_has_files(path) for path in paths.values()]
    if once and not any(has_files):
        raise ValueError(
            "--once applies only to a folder or a Spark source; leave it out, because standard input ends by itself"
        )
    if arrival and any(has_files):
        raise ValueError(
            "--arrival applies only to standard input or a Spark source; for files, name the column of event times "
            "with --time"
        )
    if idle is not None and len(paths) == 1:
        raise ValueError(
            "--idle needs several inputs, and there is only one; to close windows without new rows, use --emit "
            f"'after_close(timeout={idle})'"
        )


def _check_ordered(emit: str | None, late: str | None, max_keys: int | None, uri: str | None) -> None:
    """Raise ``ValueError`` if an option was passed that cannot be used with --ordered."""
    if uri is not None:
        raise ValueError(
            "a store can contain only time windows; leave out --store, or use --levels in place of --ordered"
        )
    if (emit, late, max_keys) != (None, None, None):
        raise ValueError(
            "--ordered emits each result once, when the watermark has passed it, and drops later rows, so "
            "--emit, --late and --max-keys cannot be used; leave them out"
        )


def _on_spark(folder: Path | None, source: str | None, options: tuple[str, ...], **settings: Any) -> None:
    from importlib.metadata import entry_points

    points: list[EntryPoint] = list(entry_points(group="tiltframe.streams", name="spark"))
    if not points:
        raise ValueError("--spark needs PySpark: pip install 'tiltframe[spark]'")
    points[0].load()(folder, source, options, **settings)
