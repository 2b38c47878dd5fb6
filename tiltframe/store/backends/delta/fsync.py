"""Durability: wait until the files of a store in a folder are on the disk (``fsync``), so that they survive a power
failure. Object stores do not need this.
"""

from __future__ import annotations

import os


def sync_written(folder: str, name: str) -> None:
    """Wait until three things are on the disk: a new data file, its entry in its folder, and the entry of this folder
    in the folder of the store.
    """
    path = os.path.join(folder, name)
    _sync(path, os.path.dirname(path), folder)


def sync_commit(table: str, version: int) -> None:
    """Wait until two things are on the disk: the file of a version in a table's log, and its entry in the folder of the
    log. For the first version, also wait for the entries of new folders: those in the folder of the table, and those in
    the two folders above it.
    """
    log, store = f"{table}/_delta_log", os.path.dirname(os.path.abspath(table))
    _sync(f"{log}/{version:020d}.json", log, *([] if version else [table, store, os.path.dirname(store)]))


def _sync(*paths: str) -> None:
    for path in paths:
        opened = os.open(path, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
