"""tiltframe query, watch: print the results of a query, or the windows of a store as they change."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import click
import pyarrow as pa

from aggr.arguments import because, shown
from tiltframe.cli.interrupts import NOTHING_WRITTEN, set_interrupt_message
from tiltframe.cli.jobs_option import with_jobs
from tiltframe.cli.output import FormatChoice, format_of, print_table, write_results
from tiltframe.cli.query_keys import query_keys_from
from tiltframe.regular_files import replace_file
from tiltframe.store import FILLS, LEAST_NUMBERS, FrameStore, Query, SeenParts, number_from_text
from tiltframe.text.measures import query_measures_from
from tiltframe.text.results import json_lines
from windows import window


def _read_number(context: click.Context, option: click.Parameter, text: str | None) -> int | None:
    name = option.name or ""
    return None if text is None else number_from_text(name, text, LEAST_NUMBERS[name])


@click.command(
    epilog="\b\nExamples:\n  "
    "tiltframe query flights --per 1h --within 2024-05-01\n  "
    "tiltframe query flights --points 500 --within=-30d --flat --format csv"
)
@click.argument("uri", metavar="STORE")
@click.option(
    "--per",
    multiple=True,
    metavar="SIZE",
    help="A level, a coarser window, hopping(1h, 10m), or all for one result; may repeat.",
)
@click.option(
    "--points",
    callback=_read_number,
    metavar="N",
    help="Choose the finest windows that divide the range into at most N, in place of --per.",
)
@click.option(
    "--within",
    metavar="RANGE",
    help="Select windows that start in START,END; in START, (without an end); in 2026-03; or since -24h.",
)
@click.option("--where", metavar="EXPR", help="A condition on the keys: \"host = 'a'\".")
@click.option("--having", metavar="EXPR", help="A condition on results: 'requests > 100 AND latency_p99 > 0.5'.")
@click.option(
    "--timezone", metavar="ZONE", help="Use this timezone to read --within, to choose windows, and to print times."
)
@click.option(
    "--now", metavar="TIME", help="The moment from which relative times count back. The default is the current time."
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="NAME[=LOOKUP]",
    help="Group by this key only, or by its value in a file: 'site=lookup(device, sites.csv)'; may repeat.",
)
@click.option("--no-keys", is_flag=True, help="Merge over all keys.")
@click.option(
    "--measure",
    "measures",
    multiple=True,
    metavar="NAME[=CALL]",
    help="Return only this measure, a new measure, or an expression, NAME='errors / n'; may repeat.",
)
@click.option(
    "--flat", is_flag=True, help="Write plain columns such as latency_p99 in place of records, like CSV always does."
)
@click.option(
    "--fill",
    is_flag=False,
    flag_value="null",
    type=click.Choice(FILLS),
    help="Return windows without events too, with nulls and counts of 0, or with the chosen fill.",
)
@click.option("--latest", is_flag=True, help="Return only the last window of each key.")
@click.option(
    "--closed", is_flag=True, help="Leave out windows that are partial, or that a stream into the store keeps open."
)
@click.option("--running", is_flag=True, help="Merge each window with the earlier windows of its key in the range.")
@click.option(
    "--edges",
    metavar="LENGTH",
    help="Extend curves to both ends of each window, by points of other windows at most LENGTH away: 1h.",
)
@click.option(
    "--order-by",
    multiple=True,
    metavar="COL [desc]",
    help="Sort rows by this column, such as 'latency_p99 desc'; may repeat.",
)
@click.option("--limit", callback=_read_number, metavar="N", help="Return at most N rows.")
@click.option(
    "--with-open",
    "state_files",
    multiple=True,
    metavar="STATE",
    help="Include the open windows of a stream. STATE is the file in the stream's option --state; may repeat.",
)
@click.option("--name", metavar="NAME", help="The name of the store in its database.")
@click.option(
    "--format",
    "form",
    type=FormatChoice(),
    default=None,
    help="The default is the ending of --out, such as .csv, or a table.",
)
@click.option(
    "--out", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), help="Write here instead of printing."
)
@with_jobs
def query(
    uri: str,
    keys: tuple[str, ...],
    no_keys: bool,
    measures: tuple[str, ...],
    per: tuple[str, ...],
    name: str | None,
    form: str | None,
    out: Path | None,
    fill: str | None,
    state_files: tuple[str, ...],
    jobs: int | None,
    **conditions: Any,
) -> None:
    """Query a store: results per window, within a range of time."""
    form = form or format_of(out)
    if form == "parquet" and out is None:
        raise ValueError("Parquet is binary and cannot be printed; write it to a file with --out FILE")
    if keys and no_keys:
        raise ValueError("--key and --no-keys contradict each other; pass only one of them")
    if not per and conditions["points"] is None:
        raise ValueError(
            "name the windows of the results: pass --per with a level, or with all for a single result; or pass "
            "--points N"
        )
    if out is not None:
        _check_writable(out)
    store = FrameStore(uri, name=name, jobs=jobs)
    for state in state_files:
        store = store.with_open(state)
    conditions |= {
        "keys": [] if no_keys else query_keys_from(keys),
        "measures": query_measures_from(measures),
        "fill": fill or False,
    }
    query = Query(list(per) or None, **conditions)
    sentences: list[str] = []
    answer = store.ask(query).reporting_unmapped(sentences.append)
    if form != "table":
        with _open_output(out) as file:
            write_results(answer.slices, form, len(per) > 1, file)
    elif out is None:
        print_table(answer.table())
    else:
        with open(out, "w") as text:
            print_table(answer.table(), text)
    for sentence in (*answer.expired, *answer.unknown, *sentences):
        click.echo(f"tiltframe: {sentence}", err=True)


def _check_writable(out: Path) -> None:
    """Raise ``ValueError`` if a file cannot be written. This is checked before the query runs."""
    try:
        out.parent.stat()
        with suppress(FileNotFoundError):  # A file that does not exist yet is allowed.
            out.stat()
    except OSError as error:
        raise ValueError(
            f"cannot write {shown(str(out))}: {because(error)}; name a file in an existing folder"
        ) from None


@contextmanager
def _open_output(out: Path | None) -> Iterator[BinaryIO]:
    """Yield a binary file to write to: ``out``, or standard output if ``out`` equals None. A regular file appears under
    its name when it is complete. A pipe is written directly.
    """
    if out is None:
        yield sys.stdout.buffer
    elif out.exists() and not out.is_file():  # a pipe or a device, which cannot be replaced by a new file
        with out.open("wb") as file:
            yield file
    else:
        with replace_file(out) as file:
            yield file


@click.command(epilog="\b\nExamples:\n  tiltframe watch web --every 5s\n  tiltframe watch web --since seen.json --once")
@click.argument("uri", metavar="STORE")
@click.option("--name", metavar="NAME", help="The name of the store in its database.")
@click.option(
    "--since",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Continue from the version in this file, and save the last printed version there. By default start now.",
)
@click.option(
    "--every", default="1s", show_default=True, metavar="TIME", help="The time between two checks for changes."
)
@click.option("--once", is_flag=True, help="Check for changes once, and end.")
def watch(uri: str, name: str | None, since: Path | None, every: str, once: bool) -> None:
    """Print the windows that change, as JSON lines: version, level, window_start, window_end and keys.

    Windows are printed in the order of their commits. If the process is killed and started again, some windows may be
    printed twice, but each window is printed.
    """
    seconds = window(every).length / 1e6
    store = FrameStore(uri, name=name)
    seen = SeenParts.from_json(since.read_text()) if since is not None and since.exists() else None
    if since is None or seen is None:
        seen = store.at().seen
        _save_version(since, seen)
    set_interrupt_message(NOTHING_WRITTEN)
    while True:
        changes = store.changes(seen)
        if changes.seen != seen:
            seen = changes.seen
            version = pa.repeat(pa.scalar(seen.version), changes.windows.num_rows)
            click.echo(json_lines(changes.windows.add_column(0, "version", version)), nl=False)
            _save_version(since, seen)
        if once:
            return
        time.sleep(seconds)


def _save_version(since: Path | None, seen: SeenParts) -> None:
    if since is not None:
        with replace_file(since) as file:
            file.write(seen.to_json().encode())
