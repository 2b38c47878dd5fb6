"""Options that several commands share: options that declare a frame, such as measures, keys and levels, and options for
reading files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from shlex import quote
from typing import Any

import click

from aggr import Measure
from aggr.arguments import shown
from aggr.call_text import split
from tiltframe.files.bad_rows import BadRows
from tiltframe.files.read_options import ReadOptions
from tiltframe.frame import TiltFrame
from tiltframe.memory_sizes import memory_size
from tiltframe.ordered.aggregation import RunningAggregation
from tiltframe.ordered.aggregator import OrderedAggregator
from tiltframe.ordered.chain import OrderedFrame, OrderedRollup
from tiltframe.regular_files import kind_unless_file
from tiltframe.text.measures import keys_from, measures_from
from windows import read_windows

_FRAME = (
    click.option("--time", required=True, metavar="COL", help="The column of event times, or NAME=EXPRESSION."),
    click.option(
        "--key",
        "keys",
        multiple=True,
        metavar="KEY",
        help="Compute windows for each value of a column, or of NAME=EXPRESSION; may repeat.",
    ),
    click.option(
        "--measure",
        "measures",
        multiple=True,
        required=True,
        metavar="NAME=CALL",
        help="A result to compute, such as p=dds(x); may repeat.",
    ),
    click.option(
        "--timezone",
        default="UTC",
        show_default=True,
        metavar="ZONE",
        help="The timezone of the windows: an IANA name, or an offset such as +05:30.",
    ),
)
_LEVELS = "The window sizes from fine to coarse: 10s,1m,10m,1h, or 'sec ... year'."
_ORDERED = (
    click.option("--levels", metavar="SIZES", help=f"{_LEVELS[:-1]}; or --ordered."),
    click.option(
        "--ordered", metavar="WINDOWS", help="Windows over rows in order: sliding(10), since(hourly()); or a chain."
    ),
    click.option(
        "--until", metavar="next|TIME", help="With --ordered: emit results at ticks up to TIME, or up to the next tick."
    ),
    click.option(
        "--fill",
        type=click.Choice(["zero"]),
        help="With --ordered: emit all ticks for all keys, with 0 in place of null.",
    ),
)
_READING = (
    click.option(
        "--type",
        "types",
        multiple=True,
        metavar="COL=TYPE",
        help="The type of a column, for files that do not declare types; may repeat.",
    ),
    click.option("--text", "texts", multiple=True, metavar="COL", help="Short for --type COL=text; may repeat."),
    click.option(
        "--encoding", default="utf-8", show_default=True, metavar="NAME", help="The encoding of CSV and JSON files."
    ),
    click.option(
        "--delimiter", metavar="SIGN", help="The separator of CSV fields. The default depends on the file's ending."
    ),
    click.option(
        "--skip-rows",
        type=int,
        default=0,
        metavar="N",
        help="The number of lines above the names of columns in CSV, such as a title.",
    ),
    click.option("--decimal-comma", is_flag=True, help="Read the comma in numbers of CSV as the decimal sign: 1,5."),
    click.option("--thousands", metavar="SIGN", help="The sign between groups of digits in CSV: . in 1.234,5."),
    click.option("--null", multiple=True, metavar="TEXT", help="A text that means null, such as -; may repeat."),
    click.option(
        "--time-format", metavar="FORMAT", help="The format of times that are not ISO 8601: '%d.%m.%Y %H:%M'."
    ),
    click.option(
        "--clock", metavar="ZONE", help="The IANA timezone of times without a timezone, such as Europe/Berlin."
    ),
    click.option(
        "--where", metavar="CONDITION", help="Count only rows for which this condition is true: 'status < 500'."
    ),
)
# the options that are passed to `ReadOptions` under the same names
_SAME_NAMES = (
    "encoding",
    "delimiter",
    "skip_rows",
    "decimal_comma",
    "thousands",
    "null",
    "time_format",
    "clock",
    "where",
)


def with_rejected_options(*words: str, use: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that makes a command reject the options ``words``, such as --port, which users know from other
    programs. If a user passes such an option, ``UsageError`` is raised with the advice ``use``. The help text does not
    list the options.
    """

    def refuse(_context: click.Context, _option: click.Parameter, value: str | None) -> None:
        if value is not None:
            raise click.UsageError(f"there is no option {' or '.join(words)}; use {use}")

    name = f"not_{words[0].strip('-')}"  # any name is allowed, because the option is hidden and passes no argument
    return click.option(*words, name, hidden=True, expose_value=False, callback=refuse)


with_bad_rows = click.option(
    "--bad-rows",
    default="fail",
    show_default=True,
    metavar="fail|skip|FILE",
    help="What to do with rows that cannot be read. FILE receives them as JSON lines, with line and reason.",
)


def bad_rows_from(text: str, once: bool = True) -> BadRows | None:
    """Return the `BadRows` for a value of --bad-rows. Return None for ``fail``, which means that the first bad row
    raises an error. If ``once`` is true, bad rows that the file already contains are not written to it again.
    """
    if text == "fail":
        return None
    if text == "skip":
        return BadRows()
    file = Path(text)
    if not text.strip() or not file.parent.is_dir() or (problem := kind_unless_file(file)):
        explanation = f", which is {problem}" if text.strip() and file.parent.is_dir() else ""
        raise ValueError(
            f"cannot write bad rows to {shown(text)}{explanation}; pass fail, skip, or a file in an existing folder"
        )
    return BadRows(file, once)


class CommandReadOptions(ReadOptions):
    """`ReadOptions` of the command line. Messages write an option as on the command line, such as ``--delimiter``."""

    def type_option_text(self, name: str, kind: str) -> str:
        name, kind = (quote(text if len(text) <= 80 else f"{text[:80]}…") for text in (name, kind))
        return f"--text {name}" if kind == "text" else f"--type {name}={kind}"

    def option_text(self, option: str, value: object) -> str:
        return f"--{option.replace('_', '-')}{'' if value is True else ' ' + quote(str(value))}"


def read_types(types: Iterable[str], texts: Iterable[str] = ()) -> dict[str, str]:
    """Return a dict from names of columns to declared types. Each of ``types`` has the form ``COL=TYPE``. The columns
    that are named in ``texts`` have the type ``text``. Raise ``ValueError`` if a column occurs twice.

    >>> read_types(["zip=int64", "n=decimal(20, 0)", "ts=seconds"], ["id"])
    {'zip': 'int64', 'n': 'decimal(20, 0)', 'ts': 'seconds', 'id': 'text'}
    """
    types_by_name: dict[str, str] = {}
    for text in [*types, *(f"{name}=text" for name in texts)]:
        name, equals, kind = (part.strip() for part in text.rpartition("="))
        if not equals or not name:
            raise ValueError(f"cannot read the type {text!r}; write COL=TYPE such as zip=text")
        if name in types_by_name:
            raise ValueError(f"the type of {name!r} is listed twice; list it once")
        types_by_name[name] = kind
    return types_by_name


def with_frame(command: Callable[..., Any], ordered: bool = False) -> Callable[..., Any]:
    """Return a command to which the options for a frame and for reading files are added. It calls ``command`` with the
    arguments ``frame``, a `TiltFrame`, and ``reading``, a `ReadOptions`.

    If ``ordered`` is true, the command also has the option --ordered. If a user passes this option, ``frame`` is an
    `OrderedAggregator`.
    """

    @wraps(command)
    def call(
        time: str, keys: tuple[str, ...], measures: tuple[str, ...], levels: str | None, timezone: str, **arguments: Any
    ) -> Any:
        ((name, computed),) = keys_from([time]).items()
        frame: TiltFrame | OrderedAggregator
        in_order: str | None = arguments.pop("ordered", None)
        tick_options = {name: arguments.pop(name) for name in ("until", "fill") if name in arguments}
        if (levels is None) == (in_order is None):
            passed = "neither" if levels is None else "both"
            raise ValueError(
                f"pass exactly one of --levels, such as 10s,1m,1h, and --ordered, such as 'count(100)'; got {passed}"
            )
        if levels is not None:
            if any(tick_options.values()):
                raise ValueError(
                    "--until and --fill need --ordered with ticks, and cannot be used with --levels; leave them out"
                )
            frame = TiltFrame(
                read_windows(levels, timezone),
                name,
                measures_from(measures),
                keys=keys_from(keys),
                timezone=timezone,
            )
        else:
            frame = _ordered_aggregator(
                str(in_order),
                name,
                measures=measures_from(measures),
                keys=keys_from(keys),
                timezone=timezone,
                **tick_options,
            )
        types = read_types(arguments.pop("types"), arguments.pop("texts"))
        read_arguments = {option: arguments.pop(option) for option in _SAME_NAMES}
        read_arguments["delimiter"] = "\t" if read_arguments["delimiter"] == "\\t" else read_arguments["delimiter"]
        reading = CommandReadOptions(types, time=None if computed == name else computed, **read_arguments)
        reading.check(name, (frame.query if isinstance(frame, OrderedAggregator) else frame).may_read())
        return command(frame=frame, reading=reading, **arguments)

    windows = _ORDERED if ordered else (click.option("--levels", required=True, metavar="SIZES", help=_LEVELS),)
    for option in reversed((*_FRAME, *windows, *_READING)):
        call = option(call)
    return call


def _ordered_aggregator(
    text: str,
    time: str,
    *,
    measures: dict[str, Measure | str],
    keys: dict[str, str],
    timezone: str,
    until: str | None,
    fill: str | None,
) -> OrderedAggregator:
    """Return the aggregation over the ordered windows in ``text``: a `RunningAggregation` for a single window, and an
    `OrderedRollup` for a chain of several windows.
    """
    if timezone != "UTC":
        raise ValueError(
            "--timezone works only with --levels; write the zone of ticks in --ordered, such as "
            "since(daily('Europe/Berlin'))"
        )
    windows = split(text)
    if not windows or len(windows) == 1:
        return RunningAggregation(measures, text, time=time, keys=keys, until=until, fill=fill)
    if until is not None or fill is not None:
        raise ValueError("--until and --fill need ticks, which a chain of windows does not have; leave them out")
    return OrderedRollup(OrderedFrame(windows, time, measures, keys))


def memory_bytes(context: click.Context, option: click.Parameter, text: str | None) -> int | None:
    """Return the number of bytes for ``text``, the value of an option for an amount of memory. Return None if the
    option was not passed. Raise ``BadParameter`` if `tiltframe.memory_sizes.memory_size` cannot read the text.

    >>> memory_bytes(None, None, "512MiB")
    536870912
    """
    try:
        return None if text is None else memory_size(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def with_store(required: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds the options of a store to a command. The command receives ``uri``, ``name`` and
    ``durable``.
    """
    options = (
        click.option(
            "--store", "uri", required=required, metavar="STORE", help="A folder, or postgresql://user@host/database."
        ),
        click.option(
            "--name", metavar="NAME", help="The store's name in the database, with which the names of its tables begin."
        ),
        click.option(
            "--durable", is_flag=True, help="Write commits through to the disk (fsync) before this command ends."
        ),
    )

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return add
