"""The command line: rollup, query, functions, and what other packages add through ``tiltframe.commands``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path

import click
import pyarrow as pa
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import aggr
from tiltframe.call import measures_from
from tiltframe.frame import TiltFrame
from tiltframe.inputs import Source, open_source
from tiltframe.rollup import rollup_batches
from tiltframe.show import FORMATS, as_bytes, print_table
from tiltframe.store import Store, fingerprint, number_of
from tiltframe.within import read_range

_MISTAKES = (ValueError, TypeError, OverflowError, aggr.UnknownFunction)


class _Commands(click.Group):
    """The commands of this package, and those that installed packages add."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List both."""
        return sorted(
            {*super().list_commands(ctx), *(point.name for point in entry_points(group="tiltframe.commands"))}
        )

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Look among both."""
        own = super().get_command(ctx, cmd_name)
        added = entry_points(group="tiltframe.commands", name=cmd_name)
        if own is None and added:
            command: click.Command = next(iter(added)).load()
            return command
        return own


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tiltframe")
def cli() -> None:
    """Keep mergeable aggregates of event data at every resolution, and ask at any."""


@cli.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT…", type=click.Path(path_type=Path))
@click.option("--time", required=True, metavar="COL", help="The column of event times.")
@click.option("--key", "keys", multiple=True, metavar="COL", help="Keep windows per value of this column; may repeat.")
@click.option(
    "--measure",
    "measures",
    multiple=True,
    required=True,
    metavar="NAME=CALL",
    help="Such as p=dds(x); may repeat.",
)
@click.option("--levels", required=True, metavar="SIZES", help="From fine to coarse: 10s,1m,10m,1h.")
@click.option(
    "--timezone",
    default="UTC",
    show_default=True,
    metavar="ZONE",
    help="IANA zone the windows are aligned in.",
)
@click.option(
    "--store",
    "folder",
    required=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Where states are kept.",
)
def rollup(
    inputs: tuple[Path, ...],
    time: str,
    keys: tuple[str, ...],
    measures: tuple[str, ...],
    levels: str,
    timezone: str,
    folder: Path,
) -> None:
    """Roll up Parquet, CSV or JSON lines, files or folders, into a store.

    What is rolled up into a store that is already there is added to it; files it has already seen are left out.
    """
    frame = TiltFrame(levels.split(","), time, measures_from(measures), keys, timezone)
    store = Store.open_or_create(folder, frame)
    frame = store.frame
    source = open_source(inputs, time)
    frame.check(source.schema)
    fresh = _fresh(source, store)
    if not fresh:
        click.echo(f"nothing new: {folder} already holds all {len(source.files)} files", err=True)
        return
    store.check_types(frame.states_schema(source.schema))
    source = Source(fresh, source.schema, time)
    with _progress("rolling up", source.bytes) as progress:
        batches = _counted(source.batches(frame.columns, lambda file: progress(0, file.stat().st_size)), progress)
        states = rollup_batches(batches, frame)
    made_from = [fingerprint(file) for file in fresh]
    if not store.commit(states, number_of(made_from), made_from):
        click.echo(f"nothing new: someone else has added the same {len(fresh)} files to {folder} meanwhile", err=True)
        return
    click.echo(f"{folder}: {states.num_rows:,} states at {len(frame.levels)} levels, from {len(fresh)} files", err=True)


def _fresh(source: Source, store: Store) -> tuple[Path, ...]:
    """Leave out files that are in the store; refuse those that have changed since."""
    seen = {name for commit in store.commits.values() for name in commit["made_from"]}
    paths = {name.rsplit(":", 2)[0] for name in seen}
    fresh = tuple(file for file in source.files if fingerprint(file) not in seen)
    for file in fresh:
        if str(file.resolve()) in paths:
            raise ValueError(
                f"{file} has changed since it was rolled up into {store.path}, and its old rows would count twice; "
                "put new rows into a file of their own"
            )
    return fresh


@cli.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--per", required=True, metavar="SIZE", help="The level to ask: 1h.")
@click.option("--within", metavar="START,END", help="Windows that start in this range, end exclusive.")
@click.option("--where", metavar="EXPR", help="A condition on the keys: \"host = 'a'\".")
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True)
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write here instead of printing.",
)
def query(folder: Path, per: str, within: str | None, where: str | None, form: str, out: Path | None) -> None:
    """Ask a store for the results of one level."""
    store = Store.open(folder)
    span = read_range(within, store.frame.timezone) if within else None
    results = store.query(per, span, where)
    if form == "parquet" and out is None:
        raise ValueError("Parquet is not for the screen; name a file with --out FILE")
    if form == "table":
        if out is None:
            print_table(results, store.frame.timezone)
        else:
            with open(out, "w") as file:
                print_table(results, store.frame.timezone, file)
    elif out is None:
        click.echo(as_bytes(results, form), nl=False)
    else:
        out.write_bytes(as_bytes(results, form))


@cli.command()
def functions() -> None:
    """List the functions: name, what it keeps, what it returns, its guarantee."""
    table = Table("function", "keeps", "returns", "guarantee", header_style="bold", box=SIMPLE_HEAD)
    for name in aggr.names():
        function = aggr.get(name)
        table.add_row(name, function.keeps, function.returns, function.guarantee)
    console = Console()
    if not console.is_terminal:
        console.width = 200
    console.print(table)


def _counted(batches: Iterator[pa.RecordBatch], progress: Callable[[int, int], None]) -> Iterator[pa.RecordBatch]:
    """Let batches pass, and count their rows."""
    for batch in batches:
        progress(batch.num_rows, 0)
        yield batch


@contextmanager
def _progress(doing: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """Show rows and a bar of bytes on standard error, if that is a terminal; yields what advances both."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    rows = 0
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(doing, total=total)

        def advance(more_rows: int, more_bytes: int) -> None:
            nonlocal rows
            rows += more_rows
            bar.update(task, description=f"{doing} {rows:,} rows", advance=more_bytes)

        yield advance


def main(args: list[str] | None = None) -> None:
    """Run the command line: a user's mistake is one sentence on standard error and exit status 2."""
    try:
        cli.main(args, standalone_mode=False)
    except click.exceptions.Abort:
        _end("interrupted; nothing was written", 130)
    except KeyboardInterrupt:
        _end("interrupted; nothing was written", 130)
    except BrokenPipeError:
        sys.stderr.close()  # whoever read us has gone
        sys.exit(0)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        sys.exit(2)
    except click.ClickException as error:
        _end(error.format_message(), 2)
    except OSError as error:
        _end(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error), 2)
    except (pa.ArrowException, *_MISTAKES) as error:
        _end(str(error).splitlines()[0] if str(error) else repr(error), 2)


def _end(message: str, status: int) -> None:
    click.echo(f"tiltframe: {message}", err=True)
    sys.exit(status)


if __name__ == "__main__":
    main()
