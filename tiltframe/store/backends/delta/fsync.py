"""Durability: wait until files of a folder are on the disk, so that they survive a loss of power.

Files and the folders that contain them are synced by ``fsync``. Object stores keep the objects that they acknowledge.
"""

from __future__ import annotations

import os


def sync_written(folder: str, name: str) -> None:
    """Wait until a new data file of a table, its entry in its folder, and the folder's entry are on the disk."""
    path = os.path.join(folder, name)
    _sync(path, os.path.dirname(path), folder)


def sync_commit(table: str, version: int) -> None:
    """Wait until an entry of a table's log is on the disk; for the first entry, also the folders above it."""
    log, store = f"{table}/_delta_log", os.path.dirname(os.path.abspath(table))
    _sync(f"{log}/{version:020d}.json", log, *([] if version else [table, store, os.path.dirname(store)]))


def _sync(*paths: str) -> None:
    for path in paths:
        opened = os.open(path, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
