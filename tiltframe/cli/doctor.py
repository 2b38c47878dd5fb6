"""tiltframe doctor, warm: check the requirements on this machine, and compile functions in advance."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

import aggr
from aggr.warming import warm as warm_functions

if TYPE_CHECKING:
    from tiltframe.doctor import Finding


@click.command(epilog="\b\nExamples:\n  tiltframe doctor\n  tiltframe doctor --format json")
@click.option("--format", "form", type=click.Choice(("table", "json")), default="table", show_default=True)
def doctor(form: str) -> None:
    """Check the requirements on this machine: Java, Spark, packages, workers, memory, and the cache of compiled loops.

    If a requirement is not met, print advice and exit with status 1. A missing package that only an extra needs is
    marked with --, and does not change the exit status. Spark is not started.
    """
    from tiltframe.doctor import examine  # imported here, because only this command reads the installed packages

    findings = examine()
    for finding in findings:
        if form == "json":
            click.echo(json.dumps(asdict(finding), ensure_ascii=False))
        else:
            click.echo(f"{_label(finding)}  {finding.about}: {finding.found}")
            if finding.do:
                click.echo(f"    {finding.do}")
    if not all(finding.ok for finding in findings if finding.required):
        sys.exit(1)


def _label(finding: Finding) -> str:
    if finding.ok:
        return "ok"
    return "NO" if finding.required else "--"


@click.command(epilog="\b\nExamples:\n  tiltframe warm\n  tiltframe warm dds hdr")
@click.argument("functions", nargs=-1, metavar="[FUNCTION]...")
def warm(functions: tuple[str, ...]) -> None:
    """Compile the loops of FUNCTIONS, by default of all functions, and print the folders of the compiled code.

    In a container image, set three variables: NUMBA_CACHE_DIR to a folder in the image, NUMBA_CPU_NAME to generic, and
    NUMBA_CPU_FEATURES to an empty text. Set them when the image is built, and also when it runs. Without them, the
    code can be used only on the type of processor on which it was compiled.
    """
    folders = warm_functions(functions or None)
    click.echo(f"compiled the loops of {', '.join(functions or aggr.names())}; the code is stored in:", err=True)
    nowhere = "nowhere: no loop was compiled, or no folder is writable; then set NUMBA_CACHE_DIR to a writable folder"
    for folder in folders or [nowhere]:
        click.echo(folder)
