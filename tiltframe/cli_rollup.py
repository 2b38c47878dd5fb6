"""tiltframe rollup: files into a store."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.compute as pc

from tiltframe.call import measures_from
from tiltframe.frame import LEVEL, START, TiltFrame
from tiltframe.inputs import Source, open_source
from tiltframe.progress import progress_bar
from tiltframe.rollup import rollup_batches
from tiltframe.store import FrameStore
from tiltframe.store.within import read_within


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT…", type=click.Path(path_type=Path))
@click.option("--time", required=True, metavar="COL", help="The column of event times.")
@click.option("--key", "keys", multiple=True, metavar="COL", help="Keep windows per value of this column; may repeat.")
@click.option(
    "--measure", "measures", multiple=True, required=True, metavar="NAME=CALL", help="Such as p=dds(x); may repeat."
)
@click.option("--levels", required=True, metavar="SIZES", help="From fine to coarse: 10s,1m,10m,1h.")
@click.option(
    "--timezone", default="UTC", show_default=True, metavar="ZONE", help="IANA zone the windows are aligned in."
)
@click.option("--store", "uri", required=True, metavar="STORE", help="A folder, or postgresql://user@host/database.")
@click.option("--name", metavar="NAME", help="Of the store: what the names of its tables begin with.")
@click.option("--retention", metavar="SIZE=TIME,…", help="How long expire keeps levels: 10s=1d,1m=7d; others for ever.")
@click.option(
    "--replace-within", metavar="START,END", help="Derive this range anew from the inputs, instead of adding."
)
def rollup(
    inputs: tuple[Path, ...],
    time: str,
    keys: tuple[str, ...],
    measures: tuple[str, ...],
    levels: str,
    timezone: str,
    uri: str,
    name: str | None,
    retention: str | None,
    replace_within: str | None,
) -> None:
    """Roll up Parquet, CSV or JSON lines, files or folders, into a store.

    What is rolled up into a store that is already there is added to it; files it has already seen are left out.
    """
    frame = TiltFrame(levels.split(","), time, measures_from(measures), keys, timezone)
    store = FrameStore(uri, frame, name=name, retention=read_retention(retention))
    frame = store.frame
    span = read_within(replace_within, frame.timezone) if replace_within else None
    source = open_source(inputs, time)
    frame.check(source.schema)
    seen = {} if span else _seen(source, store)
    fresh = tuple(file for file in source.files if _number(file) != seen.get(_name(file)))
    if not fresh:
        click.echo(f"nothing new: {store.place} already holds all {len(source.files)} files", err=True)
        store.catch_up()
        return
    store.check(frame.states_schema(source.schema))
    states = _rolled(Source(fresh, source.schema, time), frame)
    if span is None:
        _append(store, states, fresh)
    else:
        _replace(store, states, str(replace_within), len(fresh))


def _rolled(source: Source, frame: TiltFrame) -> pa.Table:
    with progress_bar("rolling up", source.bytes) as progress:
        batches = source.batches(frame.columns, lambda file: progress(0, file.stat().st_size))
        return rollup_batches(_counted(batches, progress), frame)


def _append(store: FrameStore, states: pa.Table, files: Sequence[Path]) -> None:
    made_from = {_name(file): _number(file) for file in files}
    writer = f"rollup {hashlib.sha256(repr(sorted(made_from.items())).encode()).hexdigest()[:16]}"
    try:
        added = store.append(states, writer, 0, made_from)
    except KeyboardInterrupt:
        if not store.holds(writer, 0):
            raise
        added = True
    if not added:
        click.echo(f"nothing new: someone else has added the same files to {store.place} meanwhile", err=True)
        return
    levels = len(store.frame.levels)
    click.echo(f"{store.place}: {states.num_rows:,} states at {levels} levels, from {len(files)} files", err=True)


def _replace(store: FrameStore, states: pa.Table, within: str, files: int) -> None:
    low, high = read_within(within, store.frame.timezone)
    states = states.filter(pc.equal(states.column(LEVEL), store.frame.levels[0].name))  # coarser ones follow
    starts = states.column(START).cast(pa.int64())
    inside = states.filter(pc.and_(pc.greater_equal(starts, low), pc.less(starts, high)))
    store.replace(inside, within)
    said = f"{store.place}: replaced {within}, {inside.num_rows:,} states from {files} files"
    left = states.num_rows - inside.num_rows
    click.echo(said + (f"; {left:,} states outside of it were left out" if left else ""), err=True)


def read_retention(text: str | None) -> dict[str, str | None] | None:
    """Read ``10s=1d,1m=7d,1h=none``; raises ``ValueError`` for what is none."""
    if text is None:
        return None
    kept: dict[str, str | None] = {}
    for part in text.split(","):
        level, equals, duration = (piece.strip() for piece in part.partition("="))
        if not equals or not level or not duration:
            raise ValueError(f"cannot read the retention {text!r}; write LEVEL=TIME,… such as 10s=1d,1m=7d,1h=none")
        kept[level] = None if duration.lower() == "none" else duration
    return kept


def _seen(source: Source, store: FrameStore) -> dict[str, int]:
    """Look which files are in the store; refuse those that have changed since."""
    seen = store.numbers(_name(file) for file in source.files)
    for file in source.files:
        if seen.get(_name(file), _number(file)) != _number(file):
            raise ValueError(
                f"{file} has changed since it was rolled up into {store.place}, and its old rows would count twice; "
                "put new rows into a file of their own, or derive their range anew with --replace-within"
            )
    return seen


def _name(file: Path) -> str:
    return f"file {file.resolve()}"


def _number(file: Path) -> int:
    """Tell a file's contents apart by size and time of change, as a number."""
    status = file.stat()
    text = f"{status.st_size}:{status.st_mtime_ns}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 2


def _counted(batches: Iterator[pa.RecordBatch], progress: Callable[[int, int], None]) -> Iterator[pa.RecordBatch]:
    """Let batches pass, and count their rows."""
    for batch in batches:
        progress(batch.num_rows, 0)
        yield batch
