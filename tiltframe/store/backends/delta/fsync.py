"""Durability: files written to a folder are on the disk, and survive a loss of power.

Files are synced by ``fsync``, and so are the folders that name them. Object stores keep what they have acknowledged.
"""

from __future__ import annotations

import os


def sync_written(folder: str, name: str) -> None:
    """Wait until a new data file of a table is on the disk, and its name, and that of the folder it is in."""
    path = os.path.join(folder, name)
    _sync(path, os.path.dirname(path), folder)


def sync_commit(table: str, version: int) -> None:
    """Wait until an entry of a table's log is on the disk; of the first one, the folders above it too."""
    log, store = f"{table}/_delta_log", os.path.dirname(os.path.abspath(table))
    _sync(f"{log}/{version:020d}.json", log, *([] if version else [table, store, os.path.dirname(store)]))


def _sync(*paths: str) -> None:
    for path in paths:
        opened = os.open(path, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
