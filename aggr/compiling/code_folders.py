"""Folders of compiled code for processes that cannot write numba's own folders, such as executors in a container.

Numba stores code in the folder of the source or in the cache folder of the user, and does not use the code in a folder
that it cannot write. This module adds two things. If neither folder can be written, code is stored in a private
temporary folder, which all processes of the user on this machine share. Code that was compiled in advance into a
read-only folder, for example in the image of a container, is copied to the folder in which the process stores code.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

# Files are copied in this order: files of code, then the index that lists them. A copied index therefore never lists a
# missing file.
_CODE = ("*.nbc", "*.nbi")


@cache
def private_folder() -> str | None:
    """Return a temporary folder that only this user can write, or None if it cannot be created.

    The process executes the code in this folder, so a folder that belongs to another user is never returned.
    """
    if not hasattr(os, "getuid"):
        # This is Windows, where the folder for temporary files belongs to the user, so its owner is not checked.
        return str(Path(tempfile.gettempdir()) / "tiltframe-code")
    try:
        folder = Path(tempfile.gettempdir()) / f"tiltframe-code-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return None
    is_private = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
    return str(folder) if is_private else None


@cache
def copy_code(target: str, sources: tuple[str, ...]) -> None:
    """Copy files of compiled code to the folder ``target`` from those folders in ``sources`` that this process cannot
    write. Files that exist in the target are not replaced.

    The folders are copied once per process. Numba ignores copied code that was compiled from another version of the
    source. Files that cannot be read or written are left out.
    """
    for source in sources:
        if not os.access(source, os.W_OK):
            for file in _files_of_code(Path(source)):
                with suppress(OSError):
                    _copy(file, Path(target) / file.name)


def _files_of_code(folder: Path) -> Iterable[Path]:
    return (file for pattern in _CODE for file in sorted(folder.glob(pattern)))


def _copy(file: Path, target: Path) -> None:
    """Copy a file unless the target exists. Other processes never see an incomplete file."""
    if not target.exists():
        partial = target.with_name(f"{target.name}.{os.getpid()}")
        try:
            shutil.copyfile(file, partial)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
