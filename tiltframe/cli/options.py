"""Options that commands share: what is rolled up, by which keys, to which levels, and what columns are."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from aggr.arguments import shown
from tiltframe.cli.measure_parser import keys_from, measures_from
from tiltframe.files.column_types import read_declared_types
from tiltframe.files.inputs import checked_encoding
from tiltframe.frame import TiltFrame
from windows import read_windows

_FRAME = (
    click.option("--time", required=True, metavar="COL", help="The column of event times."),
    click.option(
        "--key",
        "keys",
        multiple=True,
        metavar="KEY",
        help="Keep windows per value of a column, or NAME=EXPRESSION; may repeat.",
    ),
    click.option(
        "--measure", "measures", multiple=True, required=True, metavar="NAME=CALL", help="Such as p=dds(x); may repeat."
    ),
    click.option("--levels", required=True, metavar="SIZES", help="From fine to coarse: 10s,1m,10m,1h."),
    click.option(
        "--timezone", default="UTC", show_default=True, metavar="ZONE", help="IANA zone the windows are aligned in."
    ),
)
_TYPES = (
    click.option(
        "--type",
        "types",
        multiple=True,
        metavar="COL=TYPE",
        help="What a column is, where a file does not say; may repeat.",
    ),
    click.option("--text", "texts", multiple=True, metavar="COL", help="Short for --type COL=text; may repeat."),
    click.option("--encoding", default="utf-8", show_default=True, metavar="NAME", help="Of CSV and JSON files."),
)


def with_frame(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a frame and of columns; the command is given ``frame``, ``declared`` and ``encoding``."""

    @wraps(command)
    def call(
        time: str,
        keys: tuple[str, ...],
        measures: tuple[str, ...],
        levels: str,
        timezone: str,
        types: tuple[str, ...],
        texts: tuple[str, ...],
        encoding: str,
        **others: Any,
    ) -> Any:
        frame = TiltFrame(read_windows(levels, timezone), time, measures_from(measures), keys_from(keys), timezone)
        declared = read_declared_types(types, texts, time)
        declared.check(time, frame.may_read())
        return command(frame=frame, declared=declared, encoding=checked_encoding(encoding), **others)

    for option in reversed((*_FRAME, *_TYPES)):
        call = option(call)
    return call


def memory_bytes(context: click.Context, option: click.Parameter, given: str | None) -> int:
    """Read an amount of memory, or choose one: 1 GB, or a quarter of what there is.

    >>> memory_bytes(None, None, "1.5 GB"), memory_bytes(None, None, "512MiB")
    (1500000000, 536870912)
    """
    if given is None:
        return min(10**9, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4)
    read = re.fullmatch(r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([KMGT])(i?)B?\s*", given, re.IGNORECASE)
    if not read:
        raise click.BadParameter(f"{shown(given)} is no amount of memory; write 500MB, 2GB or 4GiB")
    return int(float(read[1]) * (1024 if read[3] else 1000) ** (" KMGT".index(read[2].upper())))


def with_store(required: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options that say where a store is: the command is given ``uri``, ``name`` and ``durable``."""
    options = (
        click.option(
            "--store", "uri", required=required, metavar="STORE", help="A folder, or postgresql://user@host/database."
        ),
        click.option("--name", metavar="NAME", help="Of the store: what the names of its tables begin with."),
        click.option(
            "--durable", is_flag=True, help="Have what is committed on the disk (fsync) before this command ends."
        ),
    )

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return add
