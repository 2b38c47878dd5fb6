"""Records: pairs of a name and a text, such as the last commit number of a writer. They are stored in the same table as
the states of a store, as rows of a separate partition.

    level=_recorded     _record           revision   _recorded
                        tiltframe:writer  17         {"last": 7, …}

A commit writes its records to a new file. The revision of a record is the version that this commit gives the table. If
several rows have the same name, the row with the highest revision is valid. Other programs may therefore merge the
files, for example by OPTIMIZE.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from tiltframe.names import RECORD, RECORDED, REVISION

# The value that rows of records have in the column ``level``.
RECORDS = "_recorded"
# If there are at least this many files of records, a commit merges all of them into one file.
MAX_RECORD_FILES = 32

SCHEMA = pa.schema([(RECORD, pa.string()), (REVISION, pa.int64()), (RECORDED, pa.string())])

# The name of each record → its revision and its text.
Records: TypeAlias = dict[str, tuple[int, str]]


@dataclass(frozen=True)
class RecordFile:
    """A file of records: its path, the first and the last name in it, its number of rows, and its size in bytes."""

    name: str
    first: str
    last: str
    rows: int
    bytes: int

    @property
    def level(self) -> str:
        """The value that all rows of the file have in the column ``level``."""
        return RECORDS

    def may_contain(self, names: Iterable[str]) -> bool:
        """Return whether the file may contain a record with one of the names, according to the first and the last name
        in it.
        """
        return any(self.first <= name <= self.last for name in names)


def table_of_records(records: Mapping[str, tuple[int, str]]) -> pa.Table:
    """Return records as a table, sorted by name."""
    rows = [{RECORD: name, REVISION: at, RECORDED: text} for name, (at, text) in sorted(records.items())]
    return pa.Table.from_pylist(rows, SCHEMA)


def records_in(rows: pa.Table) -> Records:
    """Return the records in a table. If a name has several rows, because another program has merged files, the row with
    the highest revision is returned.
    """
    columns = (rows.column(name).to_pylist() for name in SCHEMA.names)
    return merge_records({name: (revision, text)} for name, revision, text in zip(*columns, strict=True))


def merge_records(files: Iterable[Records]) -> Records:
    """Merge several dicts of records. For each name, the record with the highest revision is returned."""
    merged: Records = {}
    for records in files:
        for name, record in records.items():
            if name not in merged or merged[name][0] < record[0]:
                merged[name] = record
    return merged
