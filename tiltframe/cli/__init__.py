"""The command line, a file a command."""

from tiltframe.cli.app import main

__all__ = ["main"]
