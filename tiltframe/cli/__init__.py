"""The command line: one file per command, or per group of related commands."""

from tiltframe.cli.app import main

__all__ = ["main"]
