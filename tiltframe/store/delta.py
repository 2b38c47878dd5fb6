"""Delta Lake: one table a level in a folder or object store, through deltalake, without a JVM.

    store/
      tiltframe/                   a table without rows: its configuration describes the store
      flights_1h/                  one table a level, which any Delta reader reads
        _delta_log/                commits; the last number of each writer is an application transaction
        bucket=2024-05/3f2a….parquet

Files are written by any number of tasks; a write transaction of the driver makes them, and the numbers of their
writers, visible at once. A file that no transaction names is read by nobody, and removed by `clean`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from tiltframe.frame import END, INSTANT, START
from tiltframe.store.delta_log import Live, added, clear, removed
from tiltframe.store.description import Description
from tiltframe.store.files import bucket_of_file, data_files, read_files, reason, stored_rows, write_file
from tiltframe.store.ranges import minus
from tiltframe.store.stored import stored_schema
from tiltframe.store.tables import (
    BUCKET,
    COMMIT,
    EXPIRED,
    WRITER,
    Conflict,
    Part,
    Range,
    StoreError,
    View,
    bucket_names,
    whole_path,
)

DESCRIPTION = "tiltframe"  # the table whose configuration describes the store


@dataclass(frozen=True)
class DeltaTables:
    """The tables of a store in a folder or an object store; see `tiltframe.store.tables.Tables`.

    Parameters
    ----------
    uri : str
        A folder, or what deltalake takes: ``s3://bucket/path``.
    options : pairs of str
        Of the object store, as deltalake names them.
    """

    uri: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    _live: dict[str, Live] = field(default_factory=dict, compare=False, repr=False)
    _seen: list[Description] = field(default_factory=list, compare=False, repr=False)
    _opening: threading.RLock = field(default_factory=threading.RLock, compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without what is open."""
        return DeltaTables, (whole_path(self.uri), self.options)

    @property
    def place(self) -> str:
        """The folder or URI: options are not shown."""
        return self.uri

    def named(self, name: str) -> DeltaTables:
        """Return itself: a folder holds one store, and says what it is called."""
        return self

    def describe(self) -> dict[str, Any] | None:
        """Read the description from the configuration of the table ``tiltframe``."""
        with clear(self.uri):
            try:
                table = DeltaTable(self._path(DESCRIPTION), storage_options=dict(self.options))
            except TableNotFoundError:
                return None
            text = table.metadata().configuration.get(DESCRIPTION)
        try:
            description: dict[str, Any] = json.loads(text or "")
        except ValueError:
            description = {}
        if not isinstance(description, dict) or not description:
            raise StoreError(f"the store {self.uri} is damaged: its description cannot be read") from None
        return description

    def create(self, description: Mapping[str, Any], schema: pa.Schema) -> None:
        """Create the table that describes the store; those of the levels are made when they are first written."""
        with clear(self.uri):
            try:
                DeltaTable.create(
                    self._path(DESCRIPTION),
                    pa.schema([("level", pa.string())]),
                    mode="error",
                    configuration={DESCRIPTION: json.dumps(description)},
                    raise_if_key_not_exists=False,
                    storage_options=dict(self.options),
                )
            except (DeltaError, CommitFailedError):
                if self.describe() is None:  # not because someone else was first
                    raise

    def alter(self, description: Mapping[str, Any]) -> None:
        """Replace the description."""
        with clear(self.uri):
            table = DeltaTable(self._path(DESCRIPTION), storage_options=dict(self.options))
            table.alter.set_table_properties({DESCRIPTION: json.dumps(description)}, raise_if_not_exists=False)

    def view(self, levels: Sequence[str], writers: Iterable[str] = ()) -> list[View]:
        """Look at each level's table as it is now."""
        lives, parts = [], []
        with ExitStack() as held, clear(self.uri):
            for level in levels:  # one after the other: a table may be made meanwhile
                lives.append(live := self._table(level))
                if live is not None:
                    held.enter_context(live.lock)  # until all numbers are read: they must be of the same moment
                parts.append(() if live is None else live.parts(level, self.uri))
            asked = {EXPIRED, *writers, *(part.writer for some in parts for part in some)}
            covers = [{} if live is None else live.numbers(asked) for live in lives]
        return [View(*seen) for seen in zip(levels, parts, covers, strict=True)]

    def write(self, level: str, states: pa.Table, writer: str, commit: int) -> list[Part]:
        """Write one Parquet file for each bucket."""
        described = self._described()
        starts = states.column(START).cast(pa.int64()).to_numpy()
        names = bucket_names(starts, described.frame.level(level))
        with clear(self.uri):
            return [
                self._write(level, states.filter(pa.array(names == name)), writer, commit, str(name))
                for name in np.unique(names)
            ] or [self._write(level, states, writer, commit, "none")]

    def _write(self, level: str, states: pa.Table, writer: str, commit: int, bucket: str) -> Part:
        folder = data_files(self._path(self._name(level)), self.options)
        rows = stored_rows(states, self._described(), level, writer, commit)
        return write_file(rows, folder, bucket, Part(level, writer, commit, 0, 0, 0))

    def commit(
        self,
        level: str,
        add: Sequence[Part],
        cut: Sequence[tuple[Part, Range]] = (),
        covers: Mapping[str, int] | None = None,
        seen: View | None = None,
    ) -> None:
        """Commit one write transaction: files added and removed, numbers of writers."""
        live = self._table(level, create=True)
        assert live is not None
        covers = covers or {}
        with live.lock, clear(self.uri):
            there = {part.name for part in live.parts(level, self.uri)}
            if any(part.name not in there for part, _ in cut):
                raise Conflict(f"{level}: what was to be replaced has been replaced by someone else")
            last = live.numbers(covers)
            if seen and any(last.get(writer, -1) != seen.covers.get(writer, -1) for writer in covers):
                raise Conflict(f"{level}: someone else has committed the same meanwhile")
            if any(last.get(writer, -1) >= number for writer, number in covers.items()):
                raise Conflict(f"{level}: the commit is already there")
            spans: dict[Part, list[Range]] = {}
            for part, span in cut:
                spans.setdefault(part, []).append(span)
            kept = [part for whole, gone in spans.items() for part in self._without(whole, gone)]
            actions: list[AddAction | RemoveAction] = [
                *(added(part) for part in [*add, *kept]),
                *(removed(part) for part in spans),
            ]
            transactions = [Transaction(writer, number) for writer, number in covers.items()]
            try:
                live.table.create_write_transaction(
                    actions,
                    "append",
                    live.table.schema(),
                    [BUCKET],
                    commit_properties=CommitProperties(app_transactions=transactions),
                )
            except CommitFailedError as error:
                raise Conflict(f"{level}: {reason(error)}") from None

    def _without(self, part: Part, gone: Sequence[Range]) -> list[Part]:
        """Write what remains of a part without some ranges into a file of its own."""
        left = [(part, span) for span in minus([(part.least, part.greatest + 1)], gone)]
        rows = self.read(left, self._described().schema.names[1:])
        if not rows.num_rows:
            return []
        return [self._write(part.level, rows, part.writer, part.commit, bucket_of_file(part))]

    def read(self, parts: Sequence[tuple[Part, Range]], columns: Sequence[str]) -> pa.Table:
        """Read files, those that are wanted whole together."""
        schema = self._described().schema
        wanted = pa.schema([schema.field(name) for name in [START, *columns]])
        tables = [wanted.empty_table()]
        for level in dict.fromkeys(part.level for part, _ in parts):
            mine = [(part, span) for part, span in parts if part.level == level]
            folder = data_files(self._path(self._name(level)), self.options)
            try:
                with clear(self.uri):
                    tables.append(read_files(mine, folder, wanted))
            except FileNotFoundError as error:
                self._gone(level, mine, error)
        return pa.concat_tables(tables)

    def _gone(self, level: str, parts: Sequence[tuple[Part, Range]], error: FileNotFoundError) -> None:
        """Say why a file is not there: its rows are in others since, or the store has lost it."""
        now = {part.name for part in self.view([level])[0].parts}
        if all(part.name in now for part, _ in parts):
            raise StoreError(f"the store {self.uri} is damaged: a file of {level} is missing: {error}") from None
        raise Conflict(f"{level}: what was to be read has been replaced") from None

    def clean(self, older_than: float) -> int:
        """Remove files that no version of the last ``older_than`` seconds names, rounded up to hours."""
        removed = 0
        for level in self._described().frame.levels:
            live = self._table(level.name)
            if live is not None:
                with live.lock, clear(self.uri):
                    live.table.update_incremental()
                    hours = int(np.ceil(older_than / 3600))
                    gone = live.table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
                    removed += len(gone)
        return removed

    def size(self, level: str) -> int:
        """Sum the sizes of a level's files."""
        return sum(part.bytes for part in self.view([level])[0].parts)

    def _described(self) -> Description:
        """Read the description once: what is read here of it never changes."""
        if not self._seen:
            described = self.describe()
            if described is None:
                raise StoreError(f"there is no store {self.uri}")
            self._seen.append(Description.from_dict(described, self.uri))
        return self._seen[0]

    def _table(self, level: str, create: bool = False) -> Live | None:
        """Open a level's table, once; None where nothing has been written to it."""
        with self._opening:
            if level not in self._live:
                path, options = self._path(self._name(level)), dict(self.options)
                with clear(self.uri):
                    try:
                        self._live[level] = Live(DeltaTable(path, storage_options=options))
                    except TableNotFoundError:
                        if not create:
                            return None
                        self._live[level] = Live(self._made(path, options))
            return self._live[level]

    def _made(self, path: str, options: dict[str, str]) -> DeltaTable:
        schema = stored_schema(self._described().schema)
        own = [pa.field(WRITER, pa.string()), pa.field(COMMIT, pa.int64())]  # Delta keeps no statistics of late columns
        first = [schema.field(START), pa.field(END, INSTANT), *own]
        columns = pa.schema([*first, *list(schema)[1:], pa.field(BUCKET, pa.string())])
        with suppress(DeltaError, CommitFailedError):  # someone else was first
            DeltaTable.create(path, columns, mode="ignore", partition_by=[BUCKET], storage_options=options)
        return DeltaTable(path, storage_options=options)

    def _path(self, name: str) -> str:
        return f"{self.uri.rstrip('/')}/{name}"

    def _name(self, level: str) -> str:
        return f"{self._described().name}_{level}"
