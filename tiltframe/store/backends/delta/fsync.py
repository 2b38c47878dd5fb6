"""Durability: wait until files in a folder are written to the disk, so that they survive a power failure.

Files and the folders that contain them are synced by ``fsync``. Object stores are durable without this.
"""

from __future__ import annotations

import os


def sync_written(folder: str, name: str) -> None:
    """Wait until the disk has a new data file of a table, its entry in its folder, and the folder's entry."""
    path = os.path.join(folder, name)
    _sync(path, os.path.dirname(path), folder)


def sync_commit(table: str, version: int) -> None:
    """Wait until the disk has an entry of a table's log; for the first entry, also the folders above it."""
    log, store = f"{table}/_delta_log", os.path.dirname(os.path.abspath(table))
    _sync(f"{log}/{version:020d}.json", log, *([] if version else [table, store, os.path.dirname(store)]))


def _sync(*paths: str) -> None:
    for path in paths:
        opened = os.open(path, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
