"""Store folders: what tells the folder of a store from others, without opening it."""

from __future__ import annotations

from pathlib import Path

DESCRIPTION = "tiltframe"  # the table whose configuration describes a store


def is_store(folder: Path) -> bool:
    """Say whether a folder is a store."""
    return (folder / DESCRIPTION / "_delta_log").is_dir()
