"""Durability: wait until the files of a store in a folder are on the disk (``fsync``), so that they survive a power
failure. Object stores do not need this.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import PurePath

from aggr.workers import map_in_threads
from tiltframe.regular_files import sync

# The number of files for which `sync_written` waits at the same time. Disks write several files in about the same time
# as one file.
_THREADS = 8


def sync_written(table: str, names: Collection[str]) -> None:
    """Wait until new data files are on the disk, and also the directory entries in their folders and in all folders
    above, up to the folder of the table, because these folders may be new. ``names`` are the paths of the files,
    relative to the folder of the table.
    """
    files = [PurePath(table, name) for name in names]
    folders = dict.fromkeys(PurePath(table, folder) for name in names for folder in PurePath(name).parents)
    list(map_in_threads(sync, map(os.fspath, (*files, *folders)), _THREADS))


def sync_commit(table: str, version: int) -> None:
    """Wait until the file of a version in a table's log is on the disk, and also the directory entry of this file. For
    the first version, also wait for the directory entries in the folder of the table and in the two folders above it,
    because these folders may be new.
    """
    log = f"{table}/_delta_log"
    store = os.path.dirname(os.path.abspath(table))
    for path in (f"{log}/{version:020d}.json", log, *([] if version else [table, store, os.path.dirname(store)])):
        sync(path)
