"""tiltframe inspect, check, compact, expire, end-stream, evolve, copy: maintain a store."""

from __future__ import annotations

import sys

import click
import pyarrow as pa

from aggr.arguments import nearest, shown
from tiltframe.cli.interrupts import STEPS_REMAIN, set_interrupt_message
from tiltframe.cli.jobs_option import with_jobs
from tiltframe.cli.options import CommandReadOptions, read_types
from tiltframe.cli.output import print_report, progress_bar, time_or_dot
from tiltframe.cli.rollup import read_retention
from tiltframe.frame import TiltFrame
from tiltframe.ranges import as_text
from tiltframe.store import DamagedStore, FrameStore, Vacuumed, VerifyReport
from tiltframe.store.backends import backend_at
from tiltframe.text.measures import measures_from
from tiltframe.time_range import read_age
from windows import read_windows

_STORE = click.argument("uri", metavar="STORE")
_NAME = click.option("--name", metavar="NAME", help="The name of the store in its database.")
_CLEAN = click.option(
    "--clean",
    default="1d",
    show_default=True,
    metavar="TIME",
    help="Remove files that were replaced longer ago than TIME. It must exceed the duration of any query or write; 0s "
    "removes all.",
)


@click.command(epilog="\b\nExamples:\n  tiltframe inspect web\n  tiltframe inspect web --format json")
@_STORE
@_NAME
@click.option("--format", "form", type=click.Choice(("table", "json")), default="table", show_default=True)
def inspect(uri: str, name: str | None, form: str) -> None:
    """Show the content of a store: levels, ranges, rows, bytes, parts, gaps and retention."""
    report = FrameStore(uri, name=name).inspect()
    if form == "json":
        click.echo(report.to_json())
    else:
        print_report(report)


@click.command(epilog="\b\nExamples:\n  tiltframe compact web\n  tiltframe compact web --before 2024-05-01")
@_STORE
@_NAME
@click.option(
    "--before", metavar="TIME", help="Merge only windows that end by this time. The default is the current time."
)
@_CLEAN
@with_jobs
def compact(uri: str, name: str | None, before: str | None, clean: str, jobs: int | None) -> None:
    """Merge the states that several commits wrote for closed windows, and remove files that no reader needs."""
    read_age(clean)
    store = FrameStore(uri, name=name, jobs=jobs)
    until = store.at(before).now
    set_interrupt_message(STEPS_REMAIN)
    with progress_bar("merging parts", 0) as progress:
        done = store.compact(as_text(until), progress)
    removed = store.vacuum(clean)
    merged = ", ".join(f"{level} {was:,} → {now:,}" for level, (was, now) in done.items() if was) or "nothing to merge"
    click.echo(
        f"{store.display_uri}: parts {merged}; {removed:,} old files or rows removed{_kept_text(removed)}", err=True
    )


@click.command(epilog="\b\nExamples:\n  tiltframe expire web\n  tiltframe expire web --retention 10s=1d,1m=7d")
@_STORE
@_NAME
@click.option(
    "--retention", metavar="LEVEL=TIME,…", help="Set how long each level is kept from now on: 10s=1d,1m=7d,1h=none."
)
@click.option(
    "--now", metavar="TIME", help="The moment from which retention counts back. The default is the current time."
)
@_CLEAN
def expire(uri: str, name: str | None, retention: str | None, now: str | None, clean: str) -> None:
    """Remove windows that are older than the retention of their level. Coarser levels still contain their data."""
    read_age(clean)
    retained = read_retention(retention)
    store = FrameStore(uri, name=name)
    until = store.at(now).now
    if retained is not None:
        store.check_retention(retained)
    elif not store.retention:
        raise ValueError(
            f"the store {store.display_uri} keeps every level for ever, so nothing expires; pass --retention, such as "
            "--retention 10s=1d,1m=7d"
        )
    set_interrupt_message(STEPS_REMAIN)
    store = FrameStore(uri, name=name, retention=retained)  # opening the store writes the new retention
    if not store.retention:
        click.echo(f"{store.display_uri}: every level is kept for ever from now on; nothing was removed", err=True)
        return
    for level, (before, rows) in store.expire(as_text(until)).items():
        click.echo(f"{store.display_uri}: {level} before {time_or_dot(before)}: {rows:,} states removed", err=True)
    removed = store.vacuum(clean)
    click.echo(f"{store.display_uri}: {removed:,} old files or rows removed{_kept_text(removed)}", err=True)


@click.command(
    epilog="\b\nExamples:\n  tiltframe end-stream web requests\n  "
    "tiltframe end-stream postgresql://user@host/database requests --name web"
)
@_STORE
@click.argument("stream", metavar="STREAM")
@_NAME
def end_stream(uri: str, stream: str, name: str | None) -> None:
    """Remove the watermark of a stream that does not continue, so that this stream no longer keeps windows open.

    The states of the stream stay. tiltframe inspect lists the streams.
    """
    store = FrameStore(uri, name=name)
    set_interrupt_message(STEPS_REMAIN)
    store.end_stream(stream)
    click.echo(f"{store.display_uri}: the stream {stream!r} keeps no windows open from now on", err=True)


def _kept_text(removed: Vacuumed) -> str:
    """Return text for the end of a sentence: the number of files or rows that are too recent to remove, and the time
    from which these can be removed. Return ``""`` if all files or rows were removed.
    """
    if removed.kept_until is None:
        return ""
    return f", {removed.kept:,} kept until {time_or_dot(int(removed.kept_until * 1e6))}"


@click.command(
    epilog="\b\nExamples:\n  tiltframe check web\n  tiltframe check postgresql://user@host/database --format json"
)
@click.argument("uri", metavar="STORE")
@click.option("--name", metavar="NAME", help="The name of the store in its database.")
@click.option("--format", "form", type=click.Choice(("table", "json")), default="table", show_default=True)
@with_jobs
def check(uri: str, name: str | None, form: str, jobs: int | None) -> None:
    """Check a complete store: its log, its files, its states, and whether its levels agree.

    If data is damaged or lost, print a sentence for each problem, and exit with status 1. The store is not changed.
    """
    try:
        store = FrameStore(uri, name=name, jobs=jobs)
        with progress_bar("checking", 0) as progress:
            report = store.verify(progress)
    except DamagedStore as error:  # The store is so damaged that it cannot be opened.
        report = VerifyReport(
            backend_at(uri, name or "", {}).display_uri, levels=(), parts=0, rows=0, problems=(str(error),)
        )
    if form == "json":
        click.echo(report.to_json())
    elif report.ok:
        contents = f"{len(report.levels)} levels, {report.parts:,} parts, {report.rows:,} states"
        click.echo(f"{report.uri}: {contents}: no problem found")
    else:
        for problem in report.problems:
            click.echo(problem)
    if not report.ok:
        sys.exit(1)


@click.command(
    epilog="\b\nExamples:\n  tiltframe copy web backups/web\n  tiltframe copy web postgresql://me@host/database"
)
@click.argument("uri", metavar="STORE")
@click.argument("to", metavar="STORE")
@click.option("--name", metavar="NAME", help="The name of the store in its database.")
@click.option("--to-name", metavar="NAME", help="The name of the copy. The default is the name of the store.")
@click.option("--durable", is_flag=True, help="Write the copy through to the disk (fsync) before this command ends.")
def copy(uri: str, to: str, name: str | None, to_name: str | None, durable: bool) -> None:
    """Copy a store to a folder, an object store or PostgreSQL, or update an existing copy.

    The copy becomes visible when it is complete. An interrupted copy continues when the same command is run again.
    """
    store = FrameStore(uri, name=name)
    set_interrupt_message(STEPS_REMAIN)
    with progress_bar("copying states", 0) as progress:
        written = store.copy_to(to, name=to_name, durable=durable, progress=progress)
    copied = FrameStore(to, name=to_name or store.name)
    click.echo(f"{copied.display_uri}: {written:,} states copied from {store.display_uri}", err=True)


@click.command(
    epilog="\b\nExamples:\n  "
    "tiltframe evolve web --measure 'errors=count(where=\"status >= 500\")' --levels 1d,1mo\n  "
    "tiltframe evolve web --measure 'ms=dds(ms)' --type ms=float64 --drop bytes"
)
@click.argument("uri", metavar="STORE")
@click.option("--name", metavar="NAME", help="The name of the store in its database.")
@click.option(
    "--measure", "measures", multiple=True, metavar="NAME=CALL", help="A measure to add, such as p=dds(x); may repeat."
)
@click.option("--drop", "drops", multiple=True, metavar="NAME", help="A measure to drop; may repeat.")
@click.option("--levels", metavar="SIZES", help="Levels to add above the coarsest level, from fine to coarse: 1d,1mo.")
@click.option(
    "--type", "types", multiple=True, metavar="COL=TYPE", help="The type of a column of future rows; may repeat."
)
def evolve(
    uri: str,
    name: str | None,
    measures: tuple[str, ...],
    drops: tuple[str, ...],
    levels: str | None,
    types: tuple[str, ...],
) -> None:
    """Add measures and coarser levels to a store, and drop measures.

    Stored states stay. An added measure that cannot be computed from the stored states is null in windows with earlier
    rows, until these windows are computed again by tiltframe rollup --replace-within. A new level is merged from all
    windows of the coarsest level.
    """
    store = FrameStore(uri, name=name)
    frame = store.frame
    added = measures_from(measures)
    if not added and not drops and levels is None:
        raise ValueError("there is nothing to add or to drop; pass --measure, --levels or --drop")
    for dropped in drops:
        if dropped not in frame.results:
            raise ValueError(f"the store has no measure {shown(dropped)}; {nearest(dropped, frame.results)}")
        if dropped in added:
            raise ValueError(
                f"the measure {dropped!r} cannot be added and dropped at once; choose another name for the new measure"
            )
    kept_measures = {name: measure for name, measure in frame.results.items() if name not in drops}
    more = () if levels is None else read_windows(levels, frame.timezone)
    new_frame = TiltFrame(
        [*frame.levels, *more],
        frame.time,
        {**kept_measures, **added},
        keys=frame.keyed_by,
        timezone=frame.timezone,
    )
    typed = CommandReadOptions(read_types(types))
    typed.check(new_frame.time, new_frame.may_read())
    declared = typed.declared
    set_interrupt_message(STEPS_REMAIN)
    store.evolve(new_frame, row_schema=pa.schema(list(declared.items())) if declared else None)
    click.echo(f"{store.display_uri}: {store.frame!r}", err=True)
