"""Run the main benchmarks, each in its own process: `kernels`, `peers`, `retrieval` and `spark`.

python -m benchmarks [--quick] [--results DIR]
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click

from benchmarks.pictures import write_pictures

MAIN_BENCHMARKS = ("kernels", "peers", "retrieval", "spark")


@click.command()
@click.option(
    "--quick",
    is_flag=True,
    help="Smaller data and fewer rounds, which takes some minutes. Figures are not compared with their limits.",
)
@click.option(
    "--results",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder of the JSON and SVG files; by default benchmarks/results, or with --quick the folder bench-quick.",
)
def main(quick: bool, results: Path | None) -> None:
    """Run the benchmarks in `MAIN_BENCHMARKS`, and draw the plots of their figures. Exit with status 1 if a limit is
    exceeded.
    """
    folder = results or (Path("bench-quick") if quick else Path(__file__).parent / "results")
    folder.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in MAIN_BENCHMARKS:
        command = [sys.executable, "-m", f"benchmarks.{name}", "--out", str(folder / f"{name}.json")]
        if quick:
            command += ["--rounds", "3"] if name == "kernels" else ["--quick"]
        if subprocess.run(command, check=False).returncode:
            failed.append(name)
    write_pictures(folder)
    click.echo(f"figures and plots: {folder}")
    if failed:
        raise SystemExit(f"these benchmarks exceed their limits: {', '.join(failed)}")


if __name__ == "__main__":
    main()
