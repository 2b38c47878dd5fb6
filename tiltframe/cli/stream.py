"""tiltframe stream: aggregate rows from a pipe or a folder as they arrive, and write windows to standard output or into
a store.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tiltframe.cli.options import with_bad_rows, with_frame, with_rejected_options, with_store
from tiltframe.cli.state_lock import lock_state
from tiltframe.cli.stream_options import StreamOptions, check_for_spark, checked_without_spark
from tiltframe.cli.stream_run import run_stream

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


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
    "--option", "source_options", multiple=True, metavar="KEY=VALUE", help="An option of the Spark source; may repeat."
)
@click.option(
    "--shards",
    type=int,
    metavar="N",
    help="With --spark: the number of groups of keys, each for one task. By default the number of cores.",
)
def stream(**arguments: Any) -> None:
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
    once, even if the process is killed: the next run continues from the last saved state, and again reads the files
    whose rows this state does not contain. With --store alone, the next run continues from the store, and skips rows of
    windows that are already committed.

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
    options = StreamOptions(**arguments)
    if options.spark:
        check_for_spark(options)
        _run_on_spark(options)
        return
    bad = checked_without_spark(options)
    with lock_state(options.state):
        run_stream(options, bad)


def _run_on_spark(options: StreamOptions) -> None:
    from importlib.metadata import entry_points

    points: list[EntryPoint] = list(entry_points(group="tiltframe.streams", name="spark"))
    if not points:
        raise ValueError("--spark needs PySpark: pip install 'tiltframe[spark]'")
    points[0].load()(options)
