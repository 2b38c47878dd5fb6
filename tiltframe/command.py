"""The command line, or a message that names the extra to install for it."""

from __future__ import annotations

import sys

from aggr.extras import MissingExtra


def main() -> None:
    """Run the command line, or print one sentence that names the extra to install."""
    try:
        from tiltframe.cli import main as run
    except ImportError as error:
        if error.name not in ("click", "rich"):
            raise
        sys.stderr.write(f"tiltframe: {MissingExtra('the command line', 'cli', error)}\n")
        sys.exit(2)
    run()
