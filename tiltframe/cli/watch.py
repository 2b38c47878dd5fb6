"""tiltframe watch: the windows of a store that change, as they do."""

from __future__ import annotations

import time
from pathlib import Path

import click
import pyarrow as pa

from tiltframe.cli.interrupts import NOTHING, from_now
from tiltframe.regular_files import replaced
from tiltframe.store import FrameStore
from tiltframe.store.changes import Changes, Seen
from tiltframe.store.recorded import snapshot_of
from tiltframe.text.results import json_lines
from windows import window


@click.command(epilog="\b\nExamples:\n  tiltframe watch web --every 5s\n  tiltframe watch web --since seen.json --once")
@click.argument("uri", metavar="STORE")
@click.option("--name", metavar="NAME", help="Which store of a database.")
@click.option(
    "--since",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Go on from what this file says was printed, and keep it there; without it, from now on.",
)
@click.option("--every", default="1s", show_default=True, metavar="TIME", help="How often to look.")
@click.option("--once", is_flag=True, help="Look once, and end.")
def watch(uri: str, name: str | None, since: Path | None, every: str, once: bool) -> None:
    """Print the windows that change, as JSON lines: version, level, window_start, window_end and keys.

    Levels and windows come as they are told; after a kill some may be printed again, and none is lost.
    """
    seconds, store = window(every).length / 1e6, FrameStore(uri, name=name)
    seen = Seen.from_json(since.read_text()) if since is not None and since.exists() else None
    if since is None or seen is None:
        snapshot = snapshot_of(store.backend)
        seen = Seen(snapshot.version, snapshot.parts)
        _keep(since, seen)
    from_now(NOTHING)
    while True:
        found = store.changes(seen)
        if found.seen != seen:
            seen = found.seen
            _print(found)
            _keep(since, seen)
        if once:
            return
        time.sleep(seconds)


def _print(changes: Changes) -> None:
    version = pa.repeat(pa.scalar(changes.seen.version), changes.windows.num_rows)
    click.echo(json_lines(changes.windows.add_column(0, "version", version)), nl=False)


def _keep(since: Path | None, seen: Seen) -> None:
    if since is not None:
        with replaced(since) as file:
            file.write(seen.to_json().encode())
