"""Every benchmark, each in a process of its own: kernels and peers on one core, then Spark.

python -m benchmarks [--quick] [--results DIR]
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click

PARTS = ("kernels", "peers", "retrieval", "spark")


@click.command()
@click.option(
    "--quick", is_flag=True, help="Smaller data and fewer rounds: some minutes; figures are shown and not judged."
)
@click.option(
    "--results",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the JSON and PNG files go; by default benchmarks/results, or with --quick a folder bench-quick.",
)
def main(quick: bool, results: Path | None) -> None:
    """Run every benchmark; exit status 1 if something that must hold does not."""
    folder = results or (Path("bench-quick") if quick else Path(__file__).parent / "results")
    folder.mkdir(parents=True, exist_ok=True)
    failed = []
    for part in PARTS:
        command = [sys.executable, "-m", f"benchmarks.{part}", "--out", str(folder / f"{part}.json")]
        command += ["--quick"] * (quick and part != "kernels") + ["--rounds", "3"] * (quick and part == "kernels")
        command += ["--plots", str(folder)] * (part != "kernels")
        if subprocess.run(command, check=False).returncode:
            failed.append(part)
    click.echo(f"figures and plots: {folder}")
    if failed:
        raise SystemExit(f"not all that must hold does: {', '.join(failed)}")


if __name__ == "__main__":
    main()
