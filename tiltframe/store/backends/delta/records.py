"""Records: the names and texts that a store has next to its states, as rows of a partition of its own.

    level=_recorded     _record           revision   _recorded
                        tiltframe:writer  17         {"last": 7, …}

A commit writes what it records to a file; of several rows of a name the one of the highest revision counts, whose
commit came last. So any tool may merge such files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from tiltframe.names import RECORD, RECORDED, REVISION

RECORDS = "_recorded"  # in place of a level's name
FOLD_AT = 32  # files: then a commit makes one of them

SCHEMA = pa.schema([(RECORD, pa.string()), (REVISION, pa.int64()), (RECORDED, pa.string())])

Records: TypeAlias = dict[str, tuple[int, str]]  # name -> revision and text


@dataclass(frozen=True)
class RecordFile:
    """A file of records, and the first and the last name in it."""

    name: str
    first: str
    last: str
    rows: int
    bytes: int

    @property
    def level(self) -> str:
        """What stands for a level."""
        return RECORDS

    def may_have(self, names: Iterable[str]) -> bool:
        """Say whether any of some names may be in it."""
        return any(self.first <= name <= self.last for name in names)


def table_of_records(records: Mapping[str, tuple[int, str]]) -> pa.Table:
    """Write records as rows, by name."""
    rows = [{RECORD: name, REVISION: at, RECORDED: text} for name, (at, text) in sorted(records.items())]
    return pa.Table.from_pylist(rows, SCHEMA)


def records_in(rows: pa.Table) -> Records:
    """Read records from rows, among which a tool that merges files may have put several of a name."""
    columns = (rows.column(name).to_pylist() for name in SCHEMA.names)
    return latest({name: (revision, text)} for name, revision, text in zip(*columns, strict=True))


def latest(files: Iterable[Records]) -> Records:
    """Keep the last record of each name."""
    newest: Records = {}
    for records in files:
        for name, record in records.items():
            if name not in newest or newest[name][0] < record[0]:
                newest[name] = record
    return newest
