"""The command line: all commands, and the exit status and message of each error. Other packages add commands by entry
points of the group ``tiltframe.commands``.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeGuard

import click
import pyarrow as pa

import aggr
from aggr.arguments import because
from aggr.compiling.notice import announce_compiling
from aggr.entry_points import load
from aggr.extras import MissingExtra
from tiltframe.cli.backfill import backfill
from tiltframe.cli.bench import bench_command
from tiltframe.cli.doctor import doctor, warm
from tiltframe.cli.functions import functions
from tiltframe.cli.interrupts import (
    NOTHING_WRITTEN,
    ignore_interrupts_at_exit,
    interrupt_message,
    resend_swallowed_interrupts,
    set_interrupt_message,
)
from tiltframe.cli.maintenance import check, compact, copy, end_stream, evolve, expire, inspect
from tiltframe.cli.new_function import new_function
from tiltframe.cli.query import query, watch
from tiltframe.cli.rollup import rollup
from tiltframe.cli.stream import stream
from tiltframe.parameter_names import options_in_messages, use_option_names

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_LONGEST = 900  # the maximum length of a message, in characters
_USER_ERRORS = (ValueError, TypeError, OverflowError, aggr.UnknownFunction)


class _OutputClosed(Exception):
    """Raised in place of BrokenPipeError if standard output is closed. BrokenPipeError itself would be caught by click,
    which would then exit with status 1.
    """


class _Commands(click.Group):
    """The group of all commands: the commands of this package, and those that other installed packages add."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *(point.name for point in _added_commands())})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        if command is None and (added := [point for point in _added_commands() if point.name == cmd_name]):
            return _load_command(added[0])
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Invoke a command, and return its result. If standard output is closed, as by ``| head -1``, raise
        `_OutputClosed`. `main` catches this error, and exits with status 0.
        """
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _OutputClosed from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return three values: the name of the command, the command, and the list of its arguments.

        Raise an error if an option that takes one value is passed twice. Without this check, click would use the last
        value without a message.
        """
        name, command, arguments = super().resolve_command(ctx, args)
        if command is not None:
            ctx.with_resource(options_in_messages())
            use_option_names({option.name: option.opts[0] for option in command.params if _is_option(option)})
            command_context = click.Context(command, parent=ctx, **command.context_settings)
            _, _, options = command.make_parser(command_context).parse_args(list(arguments))
            for option, count in Counter(options).items():
                if isinstance(option, click.Option) and count > 1 and not (option.multiple or option.is_flag):
                    raise click.UsageError(
                        f"{option.opts[0]} takes one value and is passed {count} times; pass it once"
                    )
        return name, command, arguments


def _is_option(option: click.Parameter) -> TypeGuard[click.Option]:
    return isinstance(option, click.Option)


def _load_command(point: EntryPoint) -> click.Command:
    """Return the command of an entry point. If a package that the command requires is missing, return a command that
    always fails. The error message of this command names the extra to install.
    """
    try:
        command: click.Command = load(point)
        return command
    except ImportError as error:
        missing = MissingExtra(f"the command {point.name}", point.extras[0] if point.extras else point.name, error)

    def refuse(**_: object) -> None:
        raise click.ClickException(str(missing))

    settings = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(point.name, callback=refuse, help=f"Not installed: {missing}.", context_settings=settings)


def _added_commands() -> Iterable[EntryPoint]:
    # imported here, because importlib.metadata imports email and zipfile, which slows down the start
    from importlib.metadata import entry_points

    return entry_points(group="tiltframe.commands")


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tiltframe")
def cli() -> None:
    """Store mergeable aggregates of event data at several time resolutions, and query any resolution."""


_COMMANDS = (
    rollup, backfill, stream, query, watch, inspect, check, compact, expire, end_stream, evolve, copy, functions,
    new_function, bench_command, doctor, warm,
)  # fmt: skip
for _command in _COMMANDS:
    cli.add_command(_command)


def main(args: list[str] | None = None) -> None:
    """Run the command line. For a user's mistake, write one sentence to standard error, and exit with status 2."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # Characters that the terminal cannot write are escaped.
    if sys.stderr is not None and sys.stderr.isatty():
        announce_compiling(lambda: click.echo("tiltframe: compiling, once for this machine …", err=True))
    ignore_interrupts_at_exit()
    set_interrupt_message(NOTHING_WRITTEN)
    try:
        with resend_swallowed_interrupts():
            cli.main(args, standalone_mode=False)
        if sys.stdout is not None:
            # Write the buffered output now. Python would write it only at exit, which is too late to report an error
            # such as a full disk.
            sys.stdout.flush()
    except (KeyboardInterrupt, click.exceptions.Abort):
        _exit_with_message(interrupt_message(), 130)
    except (BrokenPipeError, _OutputClosed):
        sys.stderr.close()
        sys.exit(0)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        sys.exit(2)
    except click.ClickException as error:
        # click's messages may quote long values. Only the first 80 characters of such a value are shown.
        _exit_with_message(re.sub(r"'([^']{80})[^']{40,}'", r"'\1…'", error.format_message()), 2)
    except OSError as error:
        _drop_output()
        _exit_with_message(because(error), 2)
    except (pa.ArrowException, *_USER_ERRORS) as error:
        _exit_with_message(str(error).splitlines()[0] if str(error) else repr(error), 2)
    except RecursionError:
        _exit_with_message("an argument is nested too deeply; use fewer nested parentheses and operators", 2)


def _drop_output() -> None:
    """Redirect standard output to the null device if the buffered output cannot be written, for example to a full disk.
    Otherwise Python would try to write the buffer again at exit.
    """
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _exit_with_message(message: str, status: int) -> None:
    """Write one line to standard error, in characters that any terminal can write, and exit with the status
    ``status``.
    """
    line = " ".join(message.split()).encode(errors="backslashreplace").decode()
    click.echo(f"tiltframe: {line if len(line) <= _LONGEST else line[: _LONGEST - 1] + '…'}", err=True)
    sys.exit(status)
