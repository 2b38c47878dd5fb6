"""tiltframe rollup: files into a store."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from aggr.arguments import shown
from aggr.tables.keys import columns_keys_may_read
from tiltframe.cli.ingested_files import look_up
from tiltframe.cli.ingestion import append_new, replace_in
from tiltframe.cli.options import memory_bytes, read_bad_rows, with_bad_rows, with_frame, with_store
from tiltframe.cli.standard_input import INPUT_FORMATS, with_standard_input
from tiltframe.files.bad_rows import open_leniently
from tiltframe.files.inputs import open_source
from tiltframe.files.read_options import ReadOptions
from tiltframe.frame import TiltFrame
from tiltframe.store import FrameStore
from tiltframe.store.manifest import checked_retention
from tiltframe.store.query.time_range import read_time_range
from tiltframe.store.rewrite import check_whole
from tiltframe.store.types_from_store import settled

_A_STATE_TAKES = 16  # times its own size, where all that is held of it, its rows and its files is counted


@click.command(
    epilog="\b\nExamples:\n  "
    "tiltframe rollup events/ --time ts --key host --measure 'p=dds(ms)' "
    "--levels 1m,1h --store web\n  "
    "cat day.csv | tiltframe rollup - --time ts --measure 'n=count()' "
    "--levels 1h,1d --store web"
)
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT…", type=click.Path(path_type=Path))
@with_frame
@with_store(required=True)
@click.option("--retention", metavar="SIZE=TIME,…", help="How long expire keeps levels: 10s=1d,1m=7d; others for ever.")
@click.option(
    "--replace-within", metavar="START,END", help="Derive this range anew, from the inputs alone, instead of adding."
)
@with_bad_rows
@click.option(
    "--memory",
    callback=memory_bytes,
    metavar="SIZE",
    help="What it may take, about: 1GB unless given; states beyond it wait on the disk.",
)
@click.option("--input-format", type=click.Choice(INPUT_FORMATS), help="Of standard input; told by how it begins.")
def rollup(
    inputs: tuple[Path, ...],
    frame: TiltFrame,
    reading: ReadOptions,
    uri: str,
    name: str | None,
    retention: str | None,
    replace_within: str | None,
    durable: bool,
    bad_rows: str,
    memory: int,
    input_format: str | None,
) -> None:
    """Roll up Parquet, CSV or JSON lines, files or folders, into a store; - is standard input.

    What is rolled up into a store that is already there is added to it; files it has already seen are left out.

    \b
    KEY is a column, or NAME=EXPRESSION such as route=lower(route); tag=each(tags) counts a row once per element.
    TYPE is text, int64, uint64, float64, decimal(digits, fraction), bool, date or timestamp; of whole numbers in the
    time column seconds, milliseconds, microseconds or nanoseconds.
    """
    bad = read_bad_rows(bad_rows)
    store = FrameStore(uri, frame, name=name, durable=durable)
    kept = read_retention(retention)
    if kept is not None:
        checked_retention(kept, store.frame)
    if replace_within is not None:
        check_whole(read_time_range(replace_within, frame.timezone), store.frame)

    def writable() -> FrameStore:
        """Open the store anew once everything has been checked: what is agreed on retention is written then."""
        return FrameStore(uri, frame, name=name, retention=kept, durable=durable)

    with with_standard_input(inputs, input_format) as (given, piped):
        keys = columns_keys_may_read(frame.keyed_by)
        opened = partial(open_source, given, frame.time, keys, reading, frame.timezone)
        source = opened() if bad is None else open_leniently(opened, frame.check, reading)
        source.check(frame.check)
        source = replace(source, schema=settled(source.schema, frame, store))
        store.check_states(store.frame.states_schema(source.schema))
        filed = look_up(source.files, store, piped)
        if replace_within is None:
            append_new(source, filed, store, writable, bad, max(memory // _A_STATE_TAKES, 1))
        else:
            replace_in(source, filed, replace_within, store, writable, bad)
        if bad is not None and (told := bad.told()):
            click.echo(told, err=True)


def read_retention(text: str | None) -> dict[str, str | None] | None:
    """Read ``10s=1d,1m=7d,1h=none``; raises ``ValueError`` for what is none."""
    if text is None:
        return None
    kept: dict[str, str | None] = {}
    for part in text.split(","):
        level, equals, duration = (piece.strip() for piece in part.partition("="))
        if not equals or not level or not duration:
            raise ValueError(
                f"cannot read the retention {shown(text)}; write LEVEL=TIME,… such as 10s=1d,1m=7d,1h=none"
            )
        if level in kept:
            raise ValueError(f"the retention of {shown(level)} is given twice; give it once")
        kept[level] = None if duration.lower() == "none" else duration
    return kept
