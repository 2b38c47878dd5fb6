"""The entry point ``tiltframe``: run the command line, or print which extra is missing."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from aggr.extras import MissingExtra


def main() -> None:
    """Run the command line. If its packages are missing, print a sentence that names the extra to install, and exit
    with status 2.
    """
    try:
        # The commands import rich only when they print a table. If rich is missing, this check raises an error before a
        # command starts its work.
        if find_spec("rich") is None:
            raise ModuleNotFoundError("No module named 'rich'", name="rich")
        from tiltframe.cli import main as run
    except ImportError as error:
        if error.name not in ("click", "rich"):
            raise
        sys.stderr.write(f"tiltframe: {MissingExtra('the command line', 'cli', error)}\n")
        sys.exit(2)
    run()
