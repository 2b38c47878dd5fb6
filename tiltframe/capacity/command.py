"""tiltframe explain: predict the cost of a frame per day."""

from __future__ import annotations

from pathlib import Path

import click

from tiltframe import ReadOptions, TiltFrame
from tiltframe.capacity.prediction import explain as explained
from tiltframe.cli.options import with_frame
from tiltframe.cli.rollup import read_retention


@click.command(
    epilog="\b\nExamples:\n  "
    "tiltframe explain sample.parquet --time ts --key host --measure 'p=dds(ms)' --levels 1m,1h "
    "--rows-per-day 1e9 --key-count 50000\n  "
    "tiltframe explain day/ --time ts --measure 'n=count()' --levels 1h,1d --retention 1h=30d"
)
@click.argument("inputs", nargs=-1, required=True, metavar="SAMPLE…", type=click.Path(path_type=Path))
@with_frame
@click.option(
    "--rows-per-day",
    type=float,
    metavar="N",
    help="The expected number of rows per day of all keys. By default it is estimated from the sample, "
    "for the expected number of keys.",
)
@click.option(
    "--key-count",
    type=float,
    metavar="N",
    help="The expected number of keys. By default it is the number in the sample.",
)
@click.option(
    "--commits-per-day",
    type=float,
    metavar="N",
    default=1,
    show_default=True,
    help="The expected number of commits per day.",
)
@click.option(
    "--retention",
    metavar="LEVEL=TIME,…",
    help="How long each level is kept: 10s=1d,1m=7d. The estimate assumes a year for other levels.",
)
@click.option("--format", "form", type=click.Choice(("table", "json")), default="table", show_default=True)
def explain(
    inputs: tuple[Path, ...],
    frame: TiltFrame,
    reading: ReadOptions,
    rows_per_day: float | None,
    key_count: float | None,
    commits_per_day: float,
    retention: str | None,
    form: str,
) -> None:
    """Predict the daily cost of a frame from a sample of rows: states, bytes, shuffled bytes, files and computing time.

    The sample is a contiguous part of the data, or a random selection of rows. For a random selection, pass
    --rows-per-day.
    """
    retained = read_retention(retention)
    keys = None if key_count is None else int(key_count)
    capacity = explained(
        [str(path) for path in inputs],
        frame,
        rows_per_day=rows_per_day,
        keys=keys,
        retention=retained,
        reading=reading,
        commits_per_day=commits_per_day,
    )
    click.echo(capacity.to_json() if form == "json" else repr(capacity))
