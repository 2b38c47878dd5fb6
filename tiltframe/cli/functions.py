"""tiltframe functions: the catalogue of functions, including those of installed packages."""

from __future__ import annotations

import json

import click

from aggr.catalogue import catalogue


@click.command(
    epilog="\b\nExamples:\n  tiltframe functions\n  tiltframe functions dds hdr --format json\n"
    "  tiltframe functions --format json | jq -r 'select(.is_subtractable) | .name'"
)
@click.argument("names", nargs=-1, metavar="[FUNCTION]...")
@click.option("--format", "form", type=click.Choice(("table", "json")), default="table", show_default=True)
def functions(names: tuple[str, ...], form: str) -> None:
    """List FUNCTIONS, by default all functions, with their states, results and guarantees.

    With --format json, print one object per line. It also contains the signature, the inputs and parameters, the fields
    of the state, whether states can be subtracted, whether the function takes weights, its name in Spark's SQL, and the
    bytes, errors and nanoseconds of the last benchmark. Every function works in Python, in stores and streams, on the
    command line and on Spark.
    """
    entries = catalogue(*names)
    if form == "json":
        for entry in entries:
            click.echo(json.dumps({**entry.to_dict(), "spark_sql": f"aggr_{entry.name}"}, ensure_ascii=False))
        return
    # imported here, because the import takes about 30 ms
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table("function", "keeps", "returns", "guarantee", header_style="bold", box=SIMPLE_HEAD)
    for entry in entries:
        table.add_row(", ".join([entry.name, *entry.aliases]), entry.keeps, entry.returns, entry.guarantee)
    console = Console()
    if not console.is_terminal:
        console.width = 200
    console.print(table)
