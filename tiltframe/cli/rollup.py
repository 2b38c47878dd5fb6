"""tiltframe rollup: add the rows of new files to a store, or replace a range of the store by the rows of files. In both
cases, the store records the files.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar

import click
import pyarrow as pa

from aggr.arguments import shown
from aggr.arrow import compute as pc
from aggr.arrow.bit_equality import same_bits
from aggr.tables.keys import plain_keys
from aggr.workers import checked_jobs
from tiltframe.cli.ingested_files import InputFile, check_unchanged, commit_records, look_up_files, records_to_write
from tiltframe.cli.interrupts import STEPS_REMAIN, report_commit_on_interrupt, set_interrupt_message
from tiltframe.cli.jobs_option import with_jobs
from tiltframe.cli.options import bad_rows_from, memory_bytes, with_bad_rows, with_frame, with_store
from tiltframe.cli.output import progress_bar
from tiltframe.cli.standard_input import input_format, with_standard_input
from tiltframe.event_time import event_times
from tiltframe.files.bad_rows import UNREADABLE, BadRows, file_batches, open_leniently
from tiltframe.files.inputs import open_source
from tiltframe.files.read_options import ReadOptions
from tiltframe.files.source import Source
from tiltframe.files.type_widening import read_widening
from tiltframe.frame import TiltFrame
from tiltframe.names import LEVEL, START
from tiltframe.ranges import Range, align_outward, as_text, difference, range_text, union
from tiltframe.reducing import reduce_rows
from tiltframe.rolling_up import rollup_batches
from tiltframe.spilled_states import Slices, spill_states
from tiltframe.store import FrameStore, Query
from tiltframe.time_range import read_time_range

# the total memory of the process, including rows and files, as a multiple of the bytes of states in memory
_MEMORY_FACTOR = 16
# the increase of `_MEMORY_FACTOR` for each additional thread
_MEMORY_FACTOR_PER_THREAD = 10
# The interval, in seconds, after which a thread lets another thread run Python code. With Python's default of 5 ms, the
# thread that merges states would often wait for 5 ms while another thread writes states to files.
_SWITCH_INTERVAL = 0.0005
_WHOLE_FILES = "and pass every file that has rows in this range"
_Reduced = TypeVar("_Reduced")
# a function that receives rows, and raises an error if a measure rejects a row
_Check: TypeAlias = Callable[[pa.Table], object]


def _default_memory() -> int:
    """Return the memory limit if --memory is not passed, in bytes: 1 GB or a quarter of this machine's memory,
    whichever is less.
    """
    return min(10**9, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4)


@click.command(
    epilog="\b\nExamples:\n  "
    "tiltframe rollup events/ --time ts --key host --measure 'p=dds(ms)' --levels 1m,1h --store web\n  "
    "cat day.csv | tiltframe rollup - --time ts --measure 'n=count()' --levels 1h,1d --store web"
)
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT…", type=click.Path(path_type=Path))
@with_frame
@with_store(required=True)
@click.option(
    "--retention",
    metavar="LEVEL=TIME,…",
    help="How long `expire` keeps each level: 10s=1d,1m=7d. Other levels are kept forever.",
)
@click.option(
    "--replace-within",
    metavar="START,END",
    help="Replace the windows in this range by those of the inputs, instead of adding rows.",
)
@with_bad_rows
@click.option(
    "--memory",
    callback=memory_bytes,
    metavar="SIZE",
    help="The approximate limit of memory, by default 1GB. Further states are written to the disk.",
)
@with_jobs
@click.option(
    "--input-format",
    callback=input_format,
    metavar="[csv|tsv|json|parquet|READER]",
    help="The format of standard input, also the name of a reader of another package. By default it is detected.",
)
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
    memory: int | None,
    jobs: int | None,
    input_format: str | None,
) -> None:
    """Roll up files or folders of Parquet, CSV or JSON lines into a store; - is standard input.

    Rows are added to an existing store. Files whose rows the store already contains are skipped.

    \b
    KEY is a column, or NAME=EXPRESSION such as route=lower(route). With tag=each(tags), a row counts once per element
    of the list in the column tags.
    TYPE is text, int64, uint64, float64, decimal(digits, fraction), bool, date or timestamp. For a time column of
    whole numbers, TYPE is seconds, milliseconds, microseconds or nanoseconds.
    """
    bad = bad_rows_from(bad_rows)
    retained = read_retention(retention)
    threads = checked_jobs(jobs)
    if threads > 1:
        sys.setswitchinterval(_SWITCH_INTERVAL)

    def open_writable() -> FrameStore:
        """Open the store again, and return the store. Opening it writes the retention, so this function is called only
        after all checks have passed. If the retention of an existing store changes, print the new retention.
        """
        store_before = FrameStore(uri, frame, name=name)
        store_after = FrameStore(uri, frame, name=name, retention=retained, durable=durable, jobs=threads)
        if store_before.schema is not None and store_after.retention != store_before.retention:
            levels = ", ".join(f"{level} {age}" for level, age in store_after.retention.items())
            click.echo(
                f"{store_after.display_uri}: the retention is now {levels or 'for ever at every level'}", err=True
            )
        return store_after

    max_memory = _default_memory() if memory is None else memory
    with with_standard_input(inputs, input_format) as (paths, standard_input_file):
        uses = frame.column_uses(reading.where)
        open_files = partial(open_source, paths, frame.time, uses, reading=reading, timezone=frame.timezone)
        source = open_files() if bad is None else open_leniently(open_files, frame.check, reading)
        source.check(frame.check)
        store = FrameStore(uri, frame, name=name, durable=durable, jobs=threads)
        if retained is not None:
            store.check_retention(retained)
        if replace_within is not None:
            store.replaced_range(replace_within)
        source = replace(source, schema=store.with_stored_types(source.schema, guessed=source.replaceable_columns))
        store.check_states(store.frame.states_schema(source.schema))
        input_files = look_up_files(source.files, store, standard_input_file)
        if replace_within is None:
            append_new(
                source,
                input_files,
                store,
                open_writable=open_writable,
                bad=bad,
                max_bytes=max(max_memory // (_MEMORY_FACTOR + _MEMORY_FACTOR_PER_THREAD * (threads - 1)), 1),
            )
        else:
            replace_in(source, input_files, replace_within, store=store, open_writable=open_writable, bad=bad)
        if bad is not None and (summary := bad.summary()):
            click.echo(summary, err=True)


def read_retention(text: str | None) -> dict[str, str | None] | None:
    """Return the retention in a text such as ``10s=1d,1m=7d,1h=none``, as a dict from level to duration. The duration
    ``none`` becomes None. Return None if ``text`` equals None. Raise ``ValueError`` if the text cannot be read.
    """
    if text is None:
        return None
    durations: dict[str, str | None] = {}
    for part in text.split(","):
        level, equals, duration = (piece.strip() for piece in part.partition("="))
        if not equals or not level or not duration:
            raise ValueError(
                f"cannot read the retention {shown(text)}; write LEVEL=TIME,… such as 10s=1d,1m=7d,1h=none"
            )
        if level in durations:
            raise ValueError(f"the retention of {shown(level)} is listed twice; list it once")
        durations[level] = None if duration.lower() == "none" else duration
    return durations


@dataclass
class _FilesRead:
    """The files that were read. For each file, ``window_ranges`` has the range from the first to the last window of its
    rows, and ``row_counts`` has the number of its rows in the range to replace.
    """

    window_ranges: dict[Path, Range] = field(default_factory=dict)
    row_counts: dict[Path, int] = field(default_factory=dict)


def append_new(
    source: Source,
    input_files: Sequence[InputFile],
    store: FrameStore,
    open_writable: Callable[[], FrameStore],
    bad: BadRows | None,
    max_bytes: int,
) -> None:
    """Add the rows of each file in ``input_files`` whose bytes were not added to the store before. For the other files,
    only record the path. ``open_writable`` is a function that opens the store for writing and returns it.
    """
    for input_file in input_files:
        _check_addable(input_file, store)
    added_files = list(
        {input_file.digest: input_file for input_file in reversed(input_files) if not input_file.is_stored}.values()
    )[::-1]
    for input_file in input_files:
        if input_file not in added_files and not input_file.is_path_recorded:
            click.echo(
                f"{input_file.file}: skipped, because {store.display_uri} already contains the same bytes from a file "
                "with another name",
                err=True,
            )
    if not added_files:
        click.echo(f"nothing new: {store.display_uri} already contains all {len(input_files)} files", err=True)
        set_interrupt_message(STEPS_REMAIN)
        store = open_writable()
        commit_records(store, *records_to_write(input_files, (), {}))
        return
    with ExitStack() as stack:
        files = replace(source, files=tuple(input_file.file for input_file in added_files))
        initial_store = store

        def spill(batches: Iterator[pa.RecordBatch]) -> Slices:
            check = initial_store.backend.check_values
            jobs = initial_store.jobs
            return stack.enter_context(spill_states(batches, initial_store.frame, max_bytes, check=check, jobs=jobs))

        slices, files_read = _read_files(files, store.frame, bad, spill)
        for input_file in added_files:
            check_unchanged(input_file)
        if not files_read.window_ranges and store.schema is None:
            click.echo(
                f"the inputs have no rows: {store.display_uri} is not created, because its column types follow from "
                "the rows; pass inputs with rows",
                err=True,
            )
            return
        new_records, expected_records = records_to_write(input_files, added_files, files_read.window_ranges)
        store = open_writable() if store.schema is None else store
        writer_id = f"rollup {hashlib.sha256(repr(sorted(new_records.items())).encode()).hexdigest()[:16]}"
        with report_commit_on_interrupt(lambda: store.has_commit(writer_id, 0)):
            added = store.append_spilled(
                slices,
                writer_id,
                0,
                recorded=new_records,
                replacing=expected_records,
                note=partial(click.echo, err=True),
            )
    if added is None:
        click.echo(
            f"nothing new: another process has added the same files to {store.display_uri} in the meantime", err=True
        )
        return
    open_writable()  # Opening the store writes the retention. This is done last, after the rows were committed.
    levels = len(store.frame.levels)
    click.echo(f"{store.display_uri}: {added:,} states at {levels} levels, from {len(added_files)} files", err=True)


def replace_in(
    source: Source,
    input_files: Sequence[InputFile],
    within: str,
    store: FrameStore,
    open_writable: Callable[[], FrameStore],
    bad: BadRows | None,
) -> None:
    """Compute the windows in the range ``within`` from the rows of ``input_files``, and replace the windows of the
    store in this range by them. Record the files that have rows in this range. ``open_writable`` is a function that
    opens the store for writing and returns it.
    """
    span = read_time_range(within, store.frame.timezone)
    distinct_files = list({input_file.digest: input_file for input_file in input_files}.values())
    files = replace(source, files=tuple(input_file.file for input_file in distinct_files))
    states, files_read = _read_files(
        files, store.frame, bad, lambda batches: rollup_batches(batches, store.frame), span=span
    )
    for input_file in distinct_files:
        check_unchanged(input_file)
    # Only the finest level is passed to `FrameStore.replace`, which merges the coarser levels from it.
    finest = states.filter(pc.equal(states.column(LEVEL), store.frame.levels[0].name))
    new_states = _states_in_range(finest, span)
    if not new_states.num_rows:
        raise ValueError(
            f"the inputs have no rows in {range_text(span)}, so the range would become empty; pass files with "
            "rows in this range; only FrameStore.replace, in Python, empties a range"
        )
    added_files = [input_file for input_file in distinct_files if files_read.row_counts.get(input_file.file)]
    unstored_files = [input_file for input_file in added_files if not input_file.is_stored]
    _check_equal_outside_range(unstored_files, finest, span, window_ranges=files_read.window_ranges, store=store)
    digests = {input_file.digest for input_file in added_files}
    new_records, expected_records = records_to_write(
        [input_file for input_file in input_files if input_file.digest in digests],
        added_files,
        files_read.window_ranges,
        input_files,
    )
    store = open_writable() if store.schema is None else store
    with report_commit_on_interrupt(lambda: bool(new_records) and store.recorded(list(new_records)) == new_records):
        store.replace(
            new_states,
            (as_text(span[0]), as_text(span[1])),
            new_records,
            expected_records,
            note=partial(click.echo, err=True),
        )
    open_writable()
    message = f"{store.display_uri}: replaced {within}, {new_states.num_rows:,} states from {len(added_files)} files"
    left_out_count = finest.num_rows - new_states.num_rows
    click.echo(
        message + (f"; {left_out_count:,} states outside of it were left out" if left_out_count else ""), err=True
    )
    for input_file in distinct_files:
        if input_file not in added_files:
            click.echo(f"{input_file.file} has no rows in the range, and was left out", err=True)


def _read_files(
    source: Source,
    frame: TiltFrame,
    bad: BadRows | None,
    reduce: Callable[[Iterator[pa.RecordBatch]], _Reduced],
    span: Range = (0, 0),
) -> tuple[_Reduced, _FilesRead]:
    """Read the files of ``source``, and show a progress bar. ``reduce`` is a function that receives the batches of
    rows. Return the result of ``reduce``, and a `_FilesRead`. The attribute ``row_counts`` of the `_FilesRead` has, for
    each file, the number of rows in the range ``span``.

    If a measure rejects rows and bad rows are skipped, the files are read a second time to find these rows.
    """

    def read_batches(
        source_with_dictionaries: Source,
        files_read: _FilesRead,
        check: _Check | None,
        advance: Callable[[int, int], None],
    ) -> Iterator[pa.RecordBatch]:
        """Yield an empty batch, which has the schema, and then the batches of the files. For each file, update
        ``files_read`` with the range of its windows, and with the number of its rows in the range ``span``. ``advance``
        receives the number of rows and the number of bytes that were read since its last call.
        """
        columns = frame.columns_in(source_with_dictionaries.schema.names)
        yield pa.RecordBatch.from_pylist(
            [], pa.schema([source_with_dictionaries.schema.field(name) for name in columns])
        )
        for file in source_with_dictionaries.files:
            for batch in file_batches(source_with_dictionaries, file, columns, bad=bad, check=check):
                if batch.num_rows:
                    times = event_times(batch.column(frame.time), frame.time, frame.timezone)
                    low, high = align_outward((int(times.min()), int(times.max()) + 1), frame.levels[0])
                    range_so_far = files_read.window_ranges.get(file, (low, high))
                    files_read.window_ranges[file] = min(range_so_far[0], low), max(range_so_far[1], high)
                    row_count = int(((times >= span[0]) & (times < span[1])).sum())
                    files_read.row_counts[file] = files_read.row_counts.get(file, 0) + row_count
                advance(batch.num_rows, 0)
                yield batch
            advance(0, file.stat().st_size)

    def read_with(source: Source, check: _Check | None) -> tuple[_Reduced, _FilesRead]:
        files_read = _FilesRead()
        source_with_dictionaries = source.with_dictionaries(plain_keys(frame.keyed_by))
        if bad is not None:
            bad.restart()
        with progress_bar("rolling up", source.bytes) as advance:
            return reduce(read_batches(source_with_dictionaries, files_read, check, advance)), files_read

    def read(check: _Check | None = None) -> tuple[_Reduced, _FilesRead]:
        return read_widening(source, lambda source: read_with(source, check), Source.with_wider_type)

    try:
        return read()
    except UNREADABLE:
        if bad is None:
            raise
    return read(lambda rows: reduce_rows(rows, frame))


def _check_addable(input_file: InputFile, store: FrameStore) -> None:
    """Raise ``ValueError`` if a file has changed since the store recorded it, if the store contains only some rows of
    the file, or if the rows of the file were once in the store and were then replaced by rows of other files.
    """
    if input_file.has_stored_rows and (backfill := input_file.unfinished_backfill) is not None:
        added = range_text((backfill["within"][0], backfill["within"][1]))
        again = f"compute all its windows again with --replace-within START,END {_WHOLE_FILES}"
        raise ValueError(
            f"{store.display_uri} contains only those rows of {input_file.file} that a backfill has added in {added}; "
            f"{again}"
            if backfill["is_complete"]
            else f"{store.display_uri} contains only some rows of {input_file.file}, because its backfill was "
            f"interrupted; run the same tiltframe backfill again, which adds the other rows, or {again}"
        )
    if input_file.has_changed and input_file.earlier_range is not None:
        raise ValueError(
            f"{input_file.file} has changed since it was rolled up into {store.display_uri}, and its old rows, in "
            f"{range_text(input_file.earlier_range)}, would be counted twice; put new rows into a separate file, "
            f"or compute the range of its old and new rows again with --replace-within START,END {_WHOLE_FILES}"
        )
    if input_file.record is not None and not input_file.is_stored:
        raise ValueError(
            f"{input_file.file} contains rows that were replaced in {store.display_uri}; leave out the file, or "
            f"compute their range again with --replace-within START,END {_WHOLE_FILES}"
        )


def _check_equal_outside_range(
    unstored_files: Sequence[InputFile],
    finest: pa.Table,
    span: Range,
    window_ranges: Mapping[Path, Range],
    store: FrameStore,
) -> None:
    """Raise ``ValueError`` if the store's states differ from the states of the input files at a time outside of
    ``span``, the range to replace.

    ``unstored_files`` are the input files whose rows are not in the store. Only the ranges of ``unstored_files``, and
    the ranges of earlier versions of the same files, are compared.

    ``finest`` has the states of the inputs on the finest level. ``window_ranges`` maps each file to the range of its
    windows.
    """
    ranges = [
        *(window_ranges[input_file.file] for input_file in unstored_files),
        *(input_file.earlier_range for input_file in unstored_files if input_file.earlier_range),
    ]
    for part in difference(union(ranges), [span]):
        if not _equals_stored(_states_in_range(finest, part), store, part):
            low = min(low for low, _ in [*ranges, span])
            high = max(high for _, high in [*ranges, span])
            raise ValueError(
                f"{', '.join(str(input_file.file) for input_file in unstored_files)}: in {range_text(part)}, outside "
                f"the range to replace, {store.display_uri} differs from the inputs; use a range that contains all "
                f"rows of the named files, --replace-within {range_text((low, high))}, {_WHOLE_FILES}"
            )


def _equals_stored(states: pa.Table, store: FrameStore, span: Range) -> bool:
    """Return whether ``states`` and the store's states of the finest level in the range ``span`` have the same bits."""
    if store.schema is None:
        return not states.num_rows
    query = Query(store.frame.levels[0], within=(as_text(span[0]), as_text(span[1])))
    stored = store.at().states(query).table()
    return all(same_bits(states.column(name), stored.column(name)) for name in [START, *store.schema.names[1:]])


def _states_in_range(states: pa.Table, span: Range) -> pa.Table:
    starts = states.column(START).cast(pa.int64())
    return states.filter(pc.and_(pc.greater_equal(starts, span[0]), pc.less(starts, span[1])))
