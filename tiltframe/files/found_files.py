"""Found files: the files of known formats at a path."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from tiltframe.files.formats import (
    kind_of,
    known_endings,
)
from tiltframe.store_folders import is_store

_EXCEL = re.compile(r"(?i)\.xls[xmb]?$")


def find_files(path: Path) -> list[Path]:
    """Return the file at a path or, if the path is a folder, all files of known formats in it. Raise an error if the
    path does not exist, if the format of the file is unknown, or if the folder has no such files.
    """
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {path}; correct the path")
    if path.is_file():
        if kind_of(path) is None:
            excel = (
                "; read Excel's sheets with pandas.read_excel, or save them as CSV" if _EXCEL.search(path.name) else ""
            )
            raise ValueError(
                f"cannot determine the format of {path} from its name; use one of the endings {known_endings()}{excel}"
            )
        return [path]
    if not path.is_dir():
        raise ValueError(f"{path} is neither a file nor a folder; write its content to a file first")
    files = list(files_below(path))
    if not files:
        raise ValueError(
            f"the folder {path} has no data: none of its files has one of the endings {known_endings()}; name a folder "
            "with such files"
        )
    return files


def files_below(folder: Path, parents: tuple[Path, ...] = ()) -> Iterator[Path]:
    """Yield the files of known formats in a folder and its subfolders, in the order of their names. Links are followed.
    ``parents`` has the folders that contain ``folder``. If a link leads back to such a folder, this folder is not
    listed again.
    """
    real_folder = folder.resolve()
    if real_folder in parents or is_store(folder):
        return
    for entry in sorted(os.scandir(folder), key=lambda e: e.name):
        path = folder / entry.name
        if entry.name[0] in "._":
            continue
        if entry.is_dir():
            yield from files_below(path, (*parents, real_folder))
        elif kind_of(path) is not None:
            if not path.exists():
                raise ValueError(f"{path} is a link to a missing file; restore that file, or remove the link")
            if not path.is_file():
                raise ValueError(f"{path} is not a regular file; leave it out, or write its content to a file first")
            yield path
