"""tiltframe inspect, compact, expire: looking after a store."""

from __future__ import annotations

import click

from tiltframe.cli.interrupts import STEPS, from_now
from tiltframe.cli.output import as_moment, print_report
from tiltframe.cli.progress import progress_bar
from tiltframe.cli.rollup import read_retention
from tiltframe.store import FrameStore
from tiltframe.store.manifest import checked_retention
from tiltframe.store.query.execution import moment
from tiltframe.store.ranges import as_text
from windows import window

_STORE = click.argument("uri", metavar="STORE")
_NAME = click.option("--name", metavar="NAME", help="Which store of a database.")
_CLEAN = click.option(
    "--clean",
    default="1d",
    show_default=True,
    metavar="TIME",
    help="Then remove files that nobody has read for so long: longer than any query or write takes.",
)


@click.command(epilog="\b\nExamples:\n  tiltframe inspect web\n  tiltframe inspect web --format json")
@_STORE
@_NAME
@click.option("--format", "form", type=click.Choice(("table", "json")), default="table", show_default=True)
def inspect(uri: str, name: str | None, form: str) -> None:
    """Show what a store holds: levels, ranges, rows, bytes, parts, gaps, retention."""
    report = FrameStore(uri, name=name).inspect()
    if form == "json":
        click.echo(report.to_json())
    else:
        print_report(report)


@click.command(epilog="\b\nExamples:\n  tiltframe compact web\n  tiltframe compact web --before 2024-05-01")
@_STORE
@_NAME
@click.option("--before", metavar="TIME", help="Windows that end later are still open; now unless given.")
@_CLEAN
def compact(uri: str, name: str | None, before: str | None, clean: str) -> None:
    """Merge the commits of closed windows, and remove files that nobody reads any more."""
    window(clean)
    store = FrameStore(uri, name=name)
    until = moment(before, store.frame.timezone)
    from_now(STEPS)
    with progress_bar("merging parts", 0) as progress:
        done = store.compact(as_text(until), progress)
    removed = store.vacuum(clean)
    merged = ", ".join(f"{level} {was:,} → {now:,}" for level, (was, now) in done.items() if was) or "nothing to merge"
    click.echo(f"{store.display_uri}: parts {merged}; {removed:,} old files or rows removed", err=True)


@click.command(epilog="\b\nExamples:\n  tiltframe expire web\n  tiltframe expire web --retention 10s=1d,1m=7d")
@_STORE
@_NAME
@click.option("--retention", metavar="SIZE=TIME,…", help="From now on keep levels so long: 10s=1d,1m=7d,1h=none.")
@click.option("--now", metavar="TIME", help="Count back from this moment; from the clock's unless given.")
@_CLEAN
def expire(uri: str, name: str | None, retention: str | None, now: str | None, clean: str) -> None:
    """Remove windows that are older than their level's retention; coarser levels hold them."""
    window(clean)
    given = read_retention(retention)
    store = FrameStore(uri, name=name)
    until = moment(now, store.frame.timezone)
    if given is not None:
        checked_retention(given, store.frame)
    elif not store.retention:
        raise ValueError(
            f"the store {store.display_uri} keeps every level for ever; say how long with --retention 10s=1d,1m=7d"
        )
    from_now(STEPS)
    store = FrameStore(uri, name=name, retention=given)  # now it is written
    if not store.retention:
        click.echo(f"{store.display_uri}: every level is kept for ever from now on; nothing was removed", err=True)
        return
    for level, (before, rows) in store.expire(as_text(until)).items():
        click.echo(f"{store.display_uri}: {level} before {as_moment(before)}: {rows:,} states removed", err=True)
    store.vacuum(clean)
