"""Vacuum: delete old files that do not belong to the current version of a table, and limit the size of the table's log.

In Delta Lake's own vacuum, the minimum age of files to delete must be a whole number of hours. This vacuum is therefore
used only to list the files that do not belong to the current version. The time at which a file was removed from the
table is read from the log: from its entries, and from its last checkpoint for earlier removals.
"""

from __future__ import annotations

import json
import math
import time
from contextlib import suppress
from urllib.parse import unquote

import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable
from pyarrow import fs

from tiltframe.store.backends.protocol import Vacuumed

_LOG = "_delta_log"
# the minimum age, in seconds, of a file that was never committed: a job may still commit the files that it has written
_UNCOMMITTED_SECONDS = 86_400.0
# A commit reads all entries of the log after the last checkpoint, and the names of all files of the log. A checkpoint
# is therefore written every 20 commits, and entries before the last checkpoint are deleted after a minute.
_LOG_PROPERTIES = {"delta.checkpointInterval": "20", "delta.logRetentionDuration": "interval 60 seconds"}


def bound_log(table: DeltaTable, older_than: float) -> None:
    """Set the properties of a table with which Delta Lake limits the size of the log. Delta Lake then deletes entries
    of the log whose content is in a checkpoint. New checkpoints do not list files that were removed from the table more
    than ``older_than`` seconds before.
    """
    kept_seconds = max(math.ceil(older_than), 60)
    properties = {**_LOG_PROPERTIES, "delta.deletedFileRetentionDuration": f"interval {kept_seconds} seconds"}
    present = table.metadata().configuration
    if any(present.get(name) != value for name, value in properties.items()):
        table.alter.set_table_properties(
            properties, raise_if_not_exists=False, commit_properties=CommitProperties(max_commit_retries=0)
        )


def vacuum_table(table: DeltaTable, folder: fs.FileSystem, older_than: float) -> Vacuumed:
    """Delete files that were removed from a table at least ``older_than`` seconds ago. Also delete files that were
    never committed, if they are at least ``older_than`` seconds and at least a day old. If ``older_than`` is 0, delete
    all removed files and all files that were never committed. Return the number of deleted files, and the number of
    files that are too recent to delete.
    """
    removed = _removal_times(folder, table.version())
    deleted = 0
    kept_until = list[float]()
    for name in table.vacuum(0, dry_run=True, enforce_retention_duration=False, full=True):
        info = folder.get_file_info(name)
        if not info.is_file:
            continue
        if name in removed or not older_than:
            may_delete_at = removed.get(name, _modification_time(info)) + older_than
        else:
            may_delete_at = _modification_time(info) + max(older_than, _UNCOMMITTED_SECONDS)
        if may_delete_at > time.time():
            kept_until.append(may_delete_at)
            continue
        with suppress(FileNotFoundError):  # another process has already deleted the file
            folder.delete_file(name)
            deleted += 1
    return Vacuumed(deleted, kept=len(kept_until), kept_until=max(kept_until, default=None))


def _removal_times(folder: fs.FileSystem, version: int) -> dict[str, float]:
    """Return the files that were removed from a table up to the version ``version``, as name → time of the removal in
    seconds since 1970. They are read from the last checkpoint and from the entries of the log after it. Files that were
    removed long ago may be missing.
    """
    checkpoint, times = _last_checkpoint(folder)
    for at in range(checkpoint + 1, version + 1):
        try:
            with folder.open_input_stream(f"{_LOG}/{at:020d}.json") as file:
                entries = [json.loads(line) for line in file.read().splitlines() if line]
        except FileNotFoundError:
            continue
        removed = (entry["remove"] for entry in entries if "remove" in entry)
        times.update({unquote(file["path"]): file.get("deletionTimestamp", 0) / 1000 for file in removed})
    return times


def _last_checkpoint(folder: fs.FileSystem) -> tuple[int, dict[str, float]]:
    """Return the version of the last checkpoint of a table, and the files that this checkpoint lists as removed, as
    name → time of the removal in seconds since 1970. Return -1 and no files if there is no checkpoint, or if the
    checkpoint consists of several files. Only other programs write such checkpoints.
    """
    try:
        with folder.open_input_stream(f"{_LOG}/_last_checkpoint") as file:
            version = int(json.loads(file.read())["version"])
        with folder.open_input_file(f"{_LOG}/{version:020d}.checkpoint.parquet") as file:
            removed = pq.read_table(file, columns=["remove.path", "remove.deletionTimestamp"]).flatten()
    except FileNotFoundError:
        return -1, {}
    paths, instants = (column.to_pylist() for column in removed.columns)
    removal_times = ((path, instant or 0) for path, instant in zip(paths, instants, strict=True) if path is not None)
    return version, {unquote(path): instant / 1000 for path, instant in removal_times}


def _modification_time(info: fs.FileInfo) -> float:
    return 0.0 if info.mtime_ns is None else info.mtime_ns / 1e9
