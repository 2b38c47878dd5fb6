"""The folder of a Delta table: what is in its log, and whether it can be opened without waiting for ever.

Delta Lake would wait for a writer of a pipe, and read a folder again and again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from tiltframe.regular_files import not_a_file, not_a_folder
from tiltframe.store.core.backend import StoreError

LOG = "_delta_log"
CHECKPOINT = ".checkpoint.parquet"
_READ = (".json", ".parquet", "_last_checkpoint")  # what Delta reads of a log


def table_path(store: str, name: str) -> str:
    """Return where a table of a store is."""
    return f"{store.rstrip('/')}/{name}"


def check_log(store: str, path: str) -> None:
    """Raise `StoreError` where a log, or anything in it, is no file or folder as it should be: it would not be read."""
    if "://" in path:
        return
    for folder in (path, f"{path}/{LOG}"):
        if problem := not_a_folder(folder):
            raise StoreError(f"the store {store} is damaged: {folder} is {problem}, not a folder")
    if os.path.isdir(f"{path}/{LOG}"):
        names = []
        with os.scandir(f"{path}/{LOG}") as entries:
            for entry in entries:
                if not entry.is_file(follow_symlinks=False) and entry.name.endswith(_READ):
                    _refuse(store, entry.path)
                names.append(entry.name)
        _check_gaps(store, path, names)


def _check_gaps(store: str, path: str, names: Sequence[str]) -> None:
    """Raise `StoreError` where an entry is missing that others follow, and that no checkpoint stands for."""
    entries, checkpoints = versions_of(names)
    needed = range(max(checkpoints, default=-1) + 1, max(entries, default=-1))
    if gone := set(needed) - set(entries):
        raise StoreError(
            f"the store {store} is damaged: entry {min(gone)} of the log of {os.path.basename(path)}: it is missing; "
            "restore it from a backup"
        )


def versions_of(names: Iterable[str]) -> tuple[list[int], list[int]]:
    """Choose the versions that have an entry, and those that have a checkpoint."""
    stems = [name.partition(".") for name in names]
    found = [(int(stem), end) for stem, _, end in stems if stem.isascii() and stem.isdigit()]
    entries, checkpoints = (sorted(at for at, end in found if f".{end}" == dtype) for dtype in (".json", CHECKPOINT))
    return entries, checkpoints


def check_next(store: str, path: str, version: int) -> None:
    """Raise `StoreError` where what follows a version of a log is no file."""
    while os.path.lexists(entry := f"{path}/{LOG}/{version:020d}.json"):
        _refuse(store, entry)
        version += 1


def _refuse(store: str, path: str) -> None:
    if problem := not_a_file(path):
        raise StoreError(f"the store {store} is damaged: {path} is {problem}, not a file")


def whole_path(uri: str) -> str:
    """Give a folder by its whole path: other processes may run in other folders. URIs stay as they are."""
    return uri if "://" in uri else os.path.abspath(uri)
