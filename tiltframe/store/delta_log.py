"""The Delta log, as a store uses it: files as parts, parts as actions, failures as sentences."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from tiltframe.frame import START
from tiltframe.store.files import bucket_of_file, reason
from tiltframe.store.tables import BUCKET, COMMIT, MERGED, WRITER, Part, StoreError


@dataclass
class Live:
    """A table that stays open; what it knows of its parts holds for one version."""

    table: DeltaTable
    lock: threading.RLock = field(default_factory=threading.RLock)
    version: int = -1
    known: tuple[Part, ...] = ()
    numbered: int = -1
    last: dict[str, int | None] = field(default_factory=dict)

    def numbers(self, writers: Collection[str]) -> dict[str, int]:
        """Return the last numbers of those writers that have any, as of the version that is open."""
        if self.table.version() != self.numbered:
            self.last, self.numbered = {}, self.table.version()
        for writer in writers:
            if writer not in self.last:  # to look one up takes a millisecond
                self.last[writer] = None if writer == MERGED else self.table.transaction_version(writer)
        found = ((writer, self.last[writer]) for writer in writers)
        return {writer: number for writer, number in found if number is not None}

    def parts(self, level: str, uri: str) -> tuple[Part, ...]:
        """Look which files there are now."""
        self.table.update_incremental()
        if self.table.version() != self.version:
            files = pa.table(self.table.get_add_actions(flatten=True))
            self.known = tuple(parts_of(files, level, uri))
            self.version = self.table.version()
        return self.known


def parts_of(files: pa.Table, level: str, uri: str) -> Iterator[Part]:
    """Read what a table says of its files."""
    if not files.num_rows:
        return
    sides = [f"{side}.{name}" for name in (WRITER, COMMIT) for side in ("min", "max")]
    if set(sides) - set(files.column_names) or not all(
        files.column(least).equals(files.column(greatest)) for least, greatest in (sides[:2], sides[2:])
    ):
        raise StoreError(
            f"the store {uri} is damaged: another tool has rewritten files of {level}; restore the version before"
        )
    starts = [files.column(f"{side}.{START}").cast(pa.int64()).to_pylist() for side in ("min", "max")]
    columns = [files.column(name).to_pylist() for name in (sides[0], sides[2], "num_records", "size_bytes", "path")]
    if any(None in column for column in (*starts, *columns)):
        raise StoreError(f"the store {uri} is damaged: the log of {level} does not say what its files hold")
    for least, greatest, writer, number, rows, size, path in zip(*starts, *columns, strict=True):
        yield Part(level, writer, number, least, greatest, rows, size, unquote(path))


def added(part: Part) -> AddAction:
    """Describe a file to Delta; the least and the greatest are what readers choose files by."""
    least, greatest = (
        {START: _iso(at), WRITER: part.writer, COMMIT: part.commit} for at in (part.least, part.greatest)
    )
    nothing = dict.fromkeys((START, WRITER, COMMIT), 0)
    stats = {"numRecords": part.rows, "minValues": least, "maxValues": greatest, "nullCount": nothing}
    now = int(time.time() * 1000)
    return AddAction(part.name, part.bytes, {BUCKET: bucket_of_file(part)}, now, True, json.dumps(stats))


def removed(part: Part) -> RemoveAction:
    """Say to Delta that a file is no longer of the table."""
    return RemoveAction(part.name, True, int(time.time() * 1000), part.bytes, {BUCKET: bucket_of_file(part)})


def _iso(at: int) -> str:
    return np.datetime_as_string(np.datetime64(at, "us")) + "Z"


@contextmanager
def clear(uri: str) -> Iterator[None]:
    """Turn what goes wrong below into one sentence; a missing file is for the caller."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise StoreError(f"the store {uri} cannot be read or written: {reason(error)}") from None
