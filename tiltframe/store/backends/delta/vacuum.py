"""Vacuum: delete the files that have not belonged to the current version of a table for at least a number of seconds.

Delta Lake's own vacuum supports only whole hours, so it is used only to list these files. The time at which a file was
removed from the table is read from the log.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from urllib.parse import unquote

from deltalake import DeltaTable
from pyarrow import fs

from tiltframe.store.backends.protocol import Vacuumed

_LOG = "_delta_log"


def vacuum_table(table: DeltaTable, folder: fs.FileSystem, older_than: float) -> Vacuumed:
    """Delete files that were removed from a table, or were written but not committed, at least ``older_than`` seconds
    ago. Return the number of deleted files, and the number of such files that are too recent to delete.
    """
    cutoff = time.time() - older_than
    removed = _removal_times(folder, table.version(), cutoff)
    deleted, kept_since = 0, list[float]()
    for name in table.vacuum(0, dry_run=True, enforce_retention_duration=False, full=True):
        info = folder.get_file_info(name)
        if not info.is_file:
            continue
        unread_since = removed.get(name, _modified(info))
        if unread_since > cutoff:
            kept_since.append(unread_since)
            continue
        with suppress(FileNotFoundError):  # another process has already deleted the file
            folder.delete_file(name)
            deleted += 1
    kept_until = max(kept_since) + older_than if kept_since else None
    return Vacuumed(deleted, kept=len(kept_since), kept_until=kept_until)


def _removal_times(folder: fs.FileSystem, version: int, cutoff: float) -> dict[str, float]:
    """Return the files that were removed from a table after ``cutoff``, as name → time of the removal. Both times are
    in seconds since 1970. The entries of the log are read backwards, from the entry of the version ``version``.
    """
    times: dict[str, float] = {}
    for at in range(version, -1, -1):
        name = f"{_LOG}/{at:020d}.json"
        info = folder.get_file_info(name)
        # Stop at an entry that was deleted after a checkpoint or is older than the cutoff, because all earlier entries
        # are deleted or older, too.
        if not info.is_file or _modified(info) < cutoff:
            break
        with folder.open_input_stream(name) as file:
            entries = [json.loads(line) for line in file.read().splitlines() if line]
        for entry in entries:
            if "remove" in entry:
                removed = entry["remove"]
                times.setdefault(unquote(removed["path"]), removed.get("deletionTimestamp", 0) / 1000)
    return times


def _modified(info: fs.FileInfo) -> float:
    return 0.0 if info.mtime_ns is None else info.mtime_ns / 1e9
