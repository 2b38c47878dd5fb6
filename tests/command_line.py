"""Run a command in this process, and return its exit status and its texts on standard output and standard error."""

from __future__ import annotations

from tiltframe.cli.app import main


def call(capfd, *args) -> tuple[int, str, str]:
    """Run a command. Output that was captured before the command is discarded."""
    capfd.readouterr()
    try:
        main([str(a) for a in args])
        status = 0
    except SystemExit as end:
        status = end.code or 0
    out, err = capfd.readouterr()
    return status, out, err
