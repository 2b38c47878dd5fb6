"""The command line: one file per command, or per few related commands."""

from tiltframe.cli.app import main

__all__ = ["main"]
