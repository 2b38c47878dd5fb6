"""The command line, or the sentence that says which extra it needs."""

from __future__ import annotations

import sys

from aggr.extras import MissingExtra


def main() -> None:
    """Run the command line, or say in one sentence which extra it needs."""
    try:
        from tiltframe.cli import main as run
    except ImportError as error:
        if error.name not in ("click", "rich"):
            raise
        sys.stderr.write(f"tiltframe: {MissingExtra('the command line', 'cli', error)}\n")
        sys.exit(2)
    run()
