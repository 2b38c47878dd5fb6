"""Store folders: recognize the folder of a store without opening the store."""

from __future__ import annotations

import os
from pathlib import Path

from aggr.arguments import because

TABLE = "tiltframe"  # the folder of the store's table


def is_store(folder: Path) -> bool:
    """Return whether a folder contains a store: its table ``tiltframe`` has a log of Delta Lake."""
    return (folder / TABLE / "_delta_log").is_dir()


def folder_problem(path: Path) -> str | None:
    """Return the reason why a store cannot be created at a path, for a message. Return None if the path is a folder, or
    if it does not exist and its nearest existing parent is a folder.
    """
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        return f"cannot create a store at this path: {because(error)}; name another folder"
    existing = next(folder for folder in (path, *path.absolute().parents) if os.path.lexists(folder))
    if existing.is_dir():
        return None
    if existing.is_file():
        kind = "a file"
    else:
        kind = "a link to a missing folder" if existing.is_symlink() else "a device or a pipe"
    return f"{existing} is {kind}, and a store is a folder; name another folder"
