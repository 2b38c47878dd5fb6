"""Regular files: distinguish them from pipes, devices and folders, and replace them atomically."""

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


def kind_unless_file(path: str | os.PathLike[str]) -> str | None:
    """Return a description of the object at a path, such as ``a folder``. Return None for a regular file, and if the
    path does not exist.

    Call this function before a path is opened, because opening a pipe waits until another process writes to it, and
    some devices, such as /dev/zero, have no end. Symbolic links are followed.

    >>> kind_unless_file("/dev/null"), kind_unless_file("/"), kind_unless_file(__file__)
    ('a device', 'a folder', None)
    """
    kind = _kind(path)
    return None if kind == "a file" else kind


def kind_unless_folder(path: str | os.PathLike[str]) -> str | None:
    """Return a description of the object at a path, such as ``a file``. Return None for a folder, and if the path does
    not exist.
    """
    kind = _kind(path)
    return None if kind == "a folder" else kind


def _kind(path: str | os.PathLike[str]) -> str | None:
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "a link to a missing file" if os.path.islink(path) else None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return "a loop of symbolic links"
        raise
    return _KINDS.get(stat.S_IFMT(mode), "a special file")


def sync(path: str | Path) -> None:
    """Write a file, or the names of the files in a folder, to the disk, and wait until this is done (``fsync``)."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextmanager
def replace_file(file: Path, durable: bool = False) -> Iterator[BinaryIO]:
    """Yield a temporary file that is open for writing, and rename it to ``file`` at the end of the block. If the block
    raises an error, ``file`` keeps its old content. If ``file`` is a symbolic link, its target is replaced.
    With ``durable``, wait until the new content is on the disk (``fsync``).
    """
    file = Path(os.path.realpath(file))
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as out:
            yield out
            out.flush()
            if durable:
                os.fsync(out.fileno())
        temporary.replace(file)
        if durable:
            sync(file.parent)
    finally:
        temporary.unlink(missing_ok=True)
