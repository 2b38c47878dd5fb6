"""--jobs: the number of threads of a command."""

from __future__ import annotations

import click

from aggr.workers import MAX_JOBS

with_jobs = click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"The number of threads, by default one for each core, up to {MAX_JOBS}. The result does not depend on it.",
)
