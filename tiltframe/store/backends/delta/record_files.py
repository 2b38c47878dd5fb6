"""Files of records: read the records of a version, and write those of a commit.

The functions receive ``records_by_file``, a dict with the records of each file that the process has read or written
before. The functions add further files to this dict, so that each file is read only once. ``open_folder`` is a function
that returns the file system of the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from pyarrow import fs

from tiltframe.names import BUCKET, LEVEL, RECORD
from tiltframe.store.backends.delta.files import read_file, write_file
from tiltframe.store.backends.delta.records import (
    MAX_RECORD_FILES,
    RECORDS,
    RecordFile,
    Records,
    merge_records,
    records_in,
    table_of_records,
)

_SUBFOLDER = f"{LEVEL}={RECORDS}/{BUCKET}=_"


def read_records(
    files: Iterable[RecordFile],
    names: Iterable[str] | None,
    *,
    records_by_file: dict[str, Records],
    open_folder: Callable[[], fs.FileSystem],
) -> Records:
    """Return the records with the names ``names``, or all records if ``names`` equals None. The result may also contain
    records with other names, because complete files are read.
    """
    needed = (file for file in files if names is None or file.may_contain(names))
    return merge_records(_load_records(file, records_by_file, open_folder) for file in needed)


def write_records(
    recorded: Mapping[str, str],
    revision: int,
    files: Sequence[RecordFile],
    *,
    records_by_file: dict[str, Records],
    open_folder: Callable[[], fs.FileSystem],
) -> tuple[list[RecordFile], list[RecordFile]]:
    """Write the records ``recorded`` with the revision ``revision`` to a new file. Return two lists: one with the new
    file, and one with the existing files that the new file replaces. Both lists are empty if there are no records to
    write.
    """
    if not recorded:
        return [], []
    records: Records = {name: (revision, text) for name, text in recorded.items()}
    outdated = [file for file in files if file.first == file.last and file.first in records]
    if len(files) - len(outdated) >= MAX_RECORD_FILES:
        outdated = list(files)
        records = merge_records([_load_records(file, records_by_file, open_folder) for file in outdated] + [records])
    name, size = write_file(table_of_records(records), [RECORD], folder=open_folder(), subfolder=_SUBFOLDER)
    records_by_file[name] = records
    return [RecordFile(name, min(records), last=max(records), rows=len(records), bytes=size)], outdated


def _load_records(
    file: RecordFile, records_by_file: dict[str, Records], open_folder: Callable[[], fs.FileSystem]
) -> Records:
    records = records_by_file.get(file.name)
    if records is None:
        records = records_in(read_file(file.name, open_folder()))
        records_by_file[file.name] = records
    return records
