"""The command line: a file a command, or a few that belong together."""

from tiltframe.cli.app import main

__all__ = ["main"]
