"""tiltframe backfill: roll up historical files into a store, one range of time after another."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from tiltframe.cli.ingested_files import commit_records, look_up_files, records_of_backfill
from tiltframe.cli.interrupts import STEPS_REMAIN, set_interrupt_message
from tiltframe.cli.options import with_frame, with_store
from tiltframe.cli.output import progress_bar
from tiltframe.files.inputs import open_source
from tiltframe.files.read_options import ReadOptions
from tiltframe.frame import TiltFrame
from tiltframe.ranges import as_text
from tiltframe.store import FrameStore


@click.command(
    epilog="\b\nExamples:\n  "
    "tiltframe backfill archive/ --time ts --key host --measure 'n=count()' "
    "--levels 1m,1h --store web --chunk 1d --newest-first\n  "
    "tiltframe backfill archive/ --time ts --measure 'n=count()' --levels 1h --store web --within 2024 --plan"
)
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT…", type=click.Path(path_type=Path))
@with_frame
@with_store(required=True)
@click.option(
    "--chunk", default="1d", show_default=True, metavar="SIZE", help="The length of the time range of one commit."
)
@click.option("--newest-first", is_flag=True, help="Start with the latest range.")
@click.option("--within", metavar="START,END", help="Roll up only rows with times in this range.")
@click.option(
    "--plan", "only_plan", is_flag=True, help="Only read the times, and print the ranges that the store lacks."
)
def backfill(
    inputs: tuple[Path, ...],
    frame: TiltFrame,
    reading: ReadOptions,
    uri: str,
    name: str | None,
    durable: bool,
    chunk: str,
    newest_first: bool,
    within: str | None,
    only_plan: bool,
) -> None:
    """Roll up historical files into a store, one time range after another.

    Each range is one commit, and other processes can write new rows at the same time. An interrupted backfill continues
    when the same command is run again.
    """
    store = FrameStore(uri, frame, name=name, durable=durable)
    plan = store.plan_backfill(inputs, chunk, within=within, newest_first=newest_first, reading=reading)
    missing_ranges = plan.ranges_left(store)
    if only_plan:
        for low, high in missing_ranges:
            click.echo(f"{as_text(low)},{as_text(high)}")
        return
    input_files = look_up_files(open_source(inputs, frame.time).files, store)
    if len(missing_ranges) == len(plan.ranges) and (
        ingested := [input_file.file for input_file in input_files if input_file.has_stored_rows]
    ):
        raise ValueError(
            f"the store {store.display_uri} already contains rows of {ingested[0]}, which would be counted twice; "
            "leave out this file"
        )
    files_by_path = {str(input_file.file.resolve()): input_file.file for input_file in input_files}
    times = {
        files_by_path[path]: (span[0], span[1])
        for path, (_, span) in plan.record["files"].items()
        if span and path in files_by_path
    }
    # the range of all times that the plan adds
    added_range = (min(low for low, _ in plan.ranges), max(high for _, high in plan.ranges)) if plan.ranges else (0, 0)
    records = partial(records_of_backfill, input_files, times, level=store.frame.levels[0], within=added_range)
    set_interrupt_message(STEPS_REMAIN)
    with progress_bar("ranges", 0) as progress:
        done = plan.follow(store, records(is_complete=False), progress)
    store = FrameStore(uri, frame, name=name, durable=durable)  # opened again, because it may be new
    if store.schema is not None:  # otherwise, no file has rows in the range, and there is no store
        new_records = records(is_complete=True)
        commit_records(store, new_records, store.recorded(list(new_records)))
    click.echo(f"{store.display_uri}: {done:,} of {len(plan.ranges):,} ranges added now, no range remains", err=True)
