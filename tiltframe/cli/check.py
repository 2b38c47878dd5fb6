"""tiltframe check: whether a store is whole."""

from __future__ import annotations

import sys

import click

from tiltframe.cli.progress import progress_bar
from tiltframe.store import DamagedStore, FrameStore
from tiltframe.store.backends.open import backend_at
from tiltframe.store.verify import VerifyReport


@click.command(
    epilog="\b\nExamples:\n  tiltframe check web\n  tiltframe check postgresql://user@host/database --format json"
)
@click.argument("uri", metavar="STORE")
@click.option("--name", metavar="NAME", help="Which store of a database.")
@click.option("--format", "form", type=click.Choice(("table", "json")), default="table", show_default=True)
def check(uri: str, name: str | None, form: str) -> None:
    """Check a whole store: its log, files, states, and its levels against each other.

    Prints a sentence for everything that is damaged or lost, and ends with exit status 1 then. Changes nothing.
    """
    try:
        store = FrameStore(uri, name=name)
        with progress_bar("checking", 0) as progress:
            report = store.verify(progress)
    except DamagedStore as error:  # so that it cannot even be opened
        report = VerifyReport(backend_at(uri, name or "", {}).display_uri, (), 0, 0, (str(error),))
    if form == "json":
        click.echo(report.to_json())
    elif report.ok:
        held = f"{len(report.levels)} levels, {report.parts:,} parts, {report.rows:,} states"
        click.echo(f"{report.uri}: {held}: no problem found")
    else:
        for problem in report.problems:
            click.echo(problem)
    if not report.ok:
        sys.exit(1)
