"""tiltframe warm: compile before anybody waits for it."""

from __future__ import annotations

import click

import aggr
from aggr.warming import warm as warm_functions


@click.command(epilog="\b\nExamples:\n  tiltframe warm\n  tiltframe warm dds hdr")
@click.argument("functions", nargs=-1, metavar="[FUNCTION]...")
def warm(functions: tuple[str, ...]) -> None:
    """Compile what FUNCTIONS need, or all of them, and say where the code is kept.

    In an image, set NUMBA_CACHE_DIR to a folder of it, and NUMBA_CPU_NAME=generic with NUMBA_CPU_FEATURES= empty, both
    when it is built and when it runs: code is otherwise kept for the very processor it was compiled on.
    """
    folders = warm_functions(functions or None)
    click.echo(f"compiled what {', '.join(functions or aggr.names())} need; the code is kept in:", err=True)
    for folder in folders or ["nowhere: no folder can be written to; set NUMBA_CACHE_DIR to one that can"]:
        click.echo(folder)
