"""tiltframe doctor: what this machine has, and what to do."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import click


@click.command(epilog="\b\nExamples:\n  tiltframe doctor\n  tiltframe doctor --format json")
@click.option("--format", "form", type=click.Choice(("table", "json")), default="table", show_default=True)
def doctor(form: str) -> None:
    """Look whether this machine has what is needed: Java, Spark, packages, workers, memory, the compiled loops' cache.

    Says what to do for each thing that is wrong, and ends with exit status 1 then. Starts no Spark.
    """
    from tiltframe.doctor import examine  # reads what is installed, which no other command needs

    findings = examine()
    for finding in findings:
        if form == "json":
            click.echo(json.dumps(asdict(finding), ensure_ascii=False))
        else:
            click.echo(f"{'ok ' if finding.ok else 'NO '} {finding.about}: {finding.found}")
            if finding.do:
                click.echo(f"    {finding.do}")
    if not all(finding.ok for finding in findings):
        sys.exit(1)
