"""tiltframe copy: a store into another place, and what has changed since."""

from __future__ import annotations

import click

from tiltframe.cli.interrupts import STEPS, from_now
from tiltframe.cli.progress import progress_bar
from tiltframe.store import FrameStore


@click.command(
    epilog="\b\nExamples:\n  tiltframe copy web backups/web\n  tiltframe copy web postgresql://me@host/database"
)
@click.argument("uri", metavar="STORE")
@click.argument("to", metavar="STORE")
@click.option("--name", metavar="NAME", help="Which store of a database is copied.")
@click.option("--to-name", metavar="NAME", help="Of the copy; that of the store unless given.")
@click.option("--durable", is_flag=True, help="Have the copy on the disk before it is acknowledged.")
def copy(uri: str, to: str, name: str | None, to_name: str | None, durable: bool) -> None:
    """Copy a store into a folder, object store or PostgreSQL, or bring a copy up to date.

    Nobody sees a part of it: it is there at once. If it is interrupted, it goes on when it is called again.
    """
    store = FrameStore(uri, name=name)
    from_now(STEPS)
    with progress_bar("copying states", 0) as progress:
        written = store.copy_to(to, name=to_name, durable=durable, progress=progress)
    copied = FrameStore(to, name=to_name or store.name)
    click.echo(f"{copied.display_uri}: {written:,} states copied from {store.display_uri}", err=True)
