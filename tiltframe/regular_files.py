"""Regular files: opening them does not wait for another process, and they have an end."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_KINDS = {
    stat.S_IFREG: "a file",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def not_a_file(path: str | os.PathLike[str]) -> str | None:
    """Return a description of the object at a path, such as ``a folder``, or None for a regular file or a missing path.

    Opening a pipe would wait for a writer, and some devices have no end. Symbolic links are followed.

    >>> not_a_file("/dev/null"), not_a_file("/"), not_a_file(__file__)
    ('a device', 'a folder', None)
    """
    kind = _kind(path)
    return None if kind == "a file" else kind


def not_a_folder(path: str | os.PathLike[str]) -> str | None:
    """Return a description of the object at a path, or None for a folder or a missing path."""
    kind = _kind(path)
    return None if kind == "a folder" else kind


def _kind(path: str | os.PathLike[str]) -> str | None:
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "a link to nothing" if os.path.islink(path) else None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return "a loop of symbolic links"
        raise
    return _KINDS.get(stat.S_IFMT(mode), "no file")


def _sync_folder(folder: Path) -> None:
    """Wait until the entries of a folder are written to the disk."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextmanager
def replaced(file: Path, durable: bool = False) -> Iterator[BinaryIO]:
    """Replace a file completely or not at all. With ``durable``, wait until it is written to the disk."""
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with beside.open("wb") as out:
            yield out
            out.flush()
            if durable:
                os.fsync(out.fileno())
        beside.replace(file)
        if durable:
            _sync_folder(file.parent)
    finally:
        beside.unlink(missing_ok=True)
