"""The command line: rollup, query, functions, and what other packages add through ``tiltframe.commands``."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points

import click
import pyarrow as pa
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import aggr
from tiltframe.cli_query import query
from tiltframe.cli_rollup import rollup
from tiltframe.cli_store import compact, expire, inspect

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


for _command in (rollup, query, inspect, compact, expire):
    cli.add_command(_command)


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
