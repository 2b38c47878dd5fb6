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
import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import CommitProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import fs

from aggr.arguments import listed
from tiltframe.frame import START
from tiltframe.level_chain import instants_of
from tiltframe.store.core.backend import Conflict, Part, Range, Snapshot, StoreError
from tiltframe.store.core.buckets import bucket_names
from tiltframe.store.core.manifest import Manifest
from tiltframe.store.core.narrowing import key_bounds
from tiltframe.store.core.ranges import minus
from tiltframe.store.core.stored_types import stored_schema
from tiltframe.store.core.writers import EXPIRED, FRAME
from tiltframe.store.delta.durable import sync_commit
from tiltframe.store.delta.ends import Ends, check_ends, ends_of, log_problems
from tiltframe.store.delta.files import bucket_of_file, data_files, read_files, reason, stored_rows, write_file
from tiltframe.store.delta.flat_tables import clean_flat, flat_parts, write_flat
from tiltframe.store.delta.folder import table_path, whole_path
from tiltframe.store.delta.log import added, clear, described_by, removed
from tiltframe.store.delta.table import Live, make_description, make_level
from tiltframe.store_folders import DESCRIPTION


@dataclass(frozen=True)
class DeltaBackend:
    """The tables of a store in a folder or an object store; see `tiltframe.store.core.backend.Backend`.

    Parameters
    ----------
    uri : str
        A folder, or what deltalake takes: ``s3://bucket/path``.
    options : pairs of str
        Of the object store, as deltalake names them.
    durable : bool
        Whether what is committed to a folder is on the disk before the commit is acknowledged.
    """

    uri: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    durable: bool = False
    _live: dict[str, Live] = field(default_factory=dict, compare=False, repr=False)
    _seen: list[Manifest] = field(default_factory=list, compare=False, repr=False)
    _opened: list[bool] = field(default_factory=list, compare=False, repr=False)
    _opening: threading.RLock = field(default_factory=threading.RLock, compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without what is open."""
        return DeltaBackend, (whole_path(self.uri), self.options, self.durable)

    @property
    def place(self) -> str:
        """The folder or URI: options are not shown."""
        return self.uri

    def named(self, name: str) -> DeltaBackend:
        """Return itself: a folder holds one store, and says what it is called."""
        return self

    def describe(self) -> dict[str, Any] | None:
        """Read the description from the configuration of the table ``tiltframe``."""
        with clear(self.uri):
            try:
                live = self._live.get(DESCRIPTION) or self._open_description()
            except TableNotFoundError:
                if self._ends().heads:
                    raise StoreError(f"the store {self.uri} is damaged: its description is lost") from None
                return None
            live.update()
            check_ends(self.uri, "", [live], self._ends())
            text = live.table.metadata().configuration.get(DESCRIPTION)
        self._seen.clear()
        return described_by(text, self.uri)

    def create(self, manifest: Mapping[str, Any], schema: pa.Schema) -> None:
        """Create the table that describes the store; those of the levels are made when they are first written."""
        with clear(self.uri):
            try:
                make_description(self._path(DESCRIPTION), {DESCRIPTION: json.dumps(manifest)}, self.options)
                self._written(live := self._open_description(), live.table.version())
            except (DeltaError, CommitFailedError):
                if self.describe() is None:  # not because someone else was first
                    raise

    def alter(self, manifest: Mapping[str, Any], schema: pa.Schema, seen: Mapping[str, Any]) -> None:
        """Replace the description; the tables of the levels have the new columns when they are next written."""
        with clear(self.uri):
            live = self._open_description()
            if described_by(live.table.metadata().configuration.get(DESCRIPTION), self.uri) != seen:
                raise Conflict("the description has been changed meanwhile")
            try:
                live.table.alter.set_table_properties(
                    {DESCRIPTION: json.dumps(manifest)},
                    raise_if_not_exists=False,
                    commit_properties=CommitProperties(max_commit_retries=0),
                )
            except CommitFailedError as error:
                raise Conflict(f"the description is being changed: {reason(error)}") from None
            self._written(live, live.table.version())
            self._seen.clear()

    def _open_description(self) -> Live:
        known = self._ends().checkpoints(DESCRIPTION)
        live = Live.open(self.uri, DESCRIPTION, self.options, known, described=True)
        self._live[DESCRIPTION] = live
        return live

    def _written(self, live: Live, version: int) -> None:
        """Have a commit on the disk, if that is wanted, and note how far its log goes: then it may be acknowledged."""
        if self.durable:
            sync_commit(self._path(live.name), version)
        self._ends().raise_head(live, version)

    def _ends(self) -> Ends:
        return Ends.of(self._path(DESCRIPTION))

    def check_values(self, states: pa.Table) -> None:
        """Do nothing: whatever Arrow holds in the types of a store, Delta Lake keeps."""

    def view(self, levels: Sequence[str], writers: Iterable[str] = ()) -> list[Snapshot]:
        """Look at each level's table as it is now."""
        lives, parts = [], []
        self._open_all()
        with ExitStack() as held, clear(self.uri):
            for level in levels:  # one after the other: a table may be made meanwhile
                lives.append(live := self._table(level))
                if live is not None:
                    held.enter_context(live.lock)  # until all numbers are read: they must be of the same moment
                parts.append(() if live is None else live.parts(level))
            asked = {EXPIRED, FRAME, *writers, *(part.writer for some in parts for part in some)}
            txn_versions = [{} if live is None else live.numbers(asked) for live in lives]
            self._check_ends()
        return [Snapshot(*seen) for seen in zip(levels, parts, txn_versions, strict=True)]

    def write(self, level: str, states: pa.Table, writer: str, commit: int) -> list[Part]:
        """Write one Parquet file for each bucket."""
        described = self._described()
        starts = instants_of(states)
        names = bucket_names(starts, described.frame.level(level))
        parts: list[Part] = []
        try:
            with clear(self.uri):
                for name in np.unique(names) if len(names) else ["none"]:
                    mine = states.filter(pa.array(names == name))
                    parts.append(self._write(level, mine, writer, commit, str(name)))
        except BaseException:
            self.discard(parts)
            raise
        return parts

    def discard(self, parts: Sequence[Part]) -> None:
        """Delete files: their names are of this process alone."""
        for part in parts:
            with suppress(OSError):
                data_files(self._path(self._name(part.level)), self.options).delete_file(part.name)

    def _write(self, level: str, states: pa.Table, writer: str, commit: int, bucket: str) -> Part:
        folder = data_files(self._path(self._name(level)), self.options)
        rows = stored_rows(states, self._described(), level, writer, commit)
        keys = self._described().frame.keys
        return write_file(rows, keys, folder, bucket, Part(level, writer, commit, 0, 0, 0), self.durable)

    def commit(
        self,
        level: str,
        add: Sequence[Part],
        cut: Sequence[tuple[Part, Range]] = (),
        txn_versions: Mapping[str, int] | None = None,
        seen: Snapshot | None = None,
        notes: Mapping[str, int] | None = None,
    ) -> None:
        """Commit one write transaction: files added and removed, numbers of writers."""
        live = self._table(level, create=True)
        assert live is not None
        txn_versions = txn_versions or {}
        with live.lock, clear(self.uri):
            there = {part.name for part in live.parts(level)}
            if any(part.name not in there for part, _ in cut):
                raise Conflict(f"{level}: what was to be replaced has been replaced by someone else")
            last = live.numbers({FRAME, *txn_versions})
            named = (FRAME, *txn_versions)
            if seen and any(last.get(writer, -1) != seen.txn_versions.get(writer, -1) for writer in named):
                raise Conflict(f"{level}: someone else has committed the same meanwhile")
            if any(last.get(writer, -1) >= number for writer, number in txn_versions.items()):
                raise Conflict(f"{level}: the commit is already there")
            spans: dict[Part, list[Range]] = {}
            for part, span in cut:
                spans.setdefault(part, []).append(span)
            kept = [part for whole, gone in spans.items() for part in self._without(whole, gone)]
            actions: list[AddAction | RemoveAction] = [
                *(added(part) for part in [*add, *kept]),
                *(removed(part) for part in spans),
            ]
            transactions = [Transaction(writer, number) for writer, number in {**txn_versions, **(notes or {})}.items()]
            try:
                self._widen(live)
                version = live.commit(actions, transactions, ends_of(list(self._live.values()), live))
            except CommitFailedError as error:
                raise Conflict(f"{level}: {reason(error)}") from None
            self._written(live, version)

    def _widen(self, live: Live) -> None:
        """Give the table of a level the columns that the store has got since it was made: other readers look there."""
        if not self._described().generation:
            return
        there = {field.name for field in live.table.schema().fields}
        new = [field for field in stored_schema(self._described().columns) if field.name not in there]
        if new:
            self._written(live, live.add_columns(new, ends_of(list(self._live.values()), live)))
            live.update()

    def _open_all(self) -> None:
        """Open every level once, also those that are not asked for: they tell how far the others went."""
        if self._opened:
            return
        with clear(self.uri):
            for level in self._described().frame.levels:
                if live := self._table(level.name):
                    with live.lock:
                        live.update()
            self._check_ends()
        self._opened.append(True)

    def _check_ends(self) -> None:
        check_ends(
            self.uri, self._name(self._described().frame.levels[0].name), list(self._live.values()), self._ends()
        )

    def _without(self, part: Part, gone: Sequence[Range]) -> list[Part]:
        """Write what remains of a part without some ranges into a file of its own."""
        left = [(part, span) for span in minus([(part.least, part.greatest + 1)], gone)]
        rows = self.read(left, self._described().columns.names[1:])
        if not rows.num_rows:
            return []
        return [self._write(part.level, rows, part.writer, part.commit, bucket_of_file(part))]

    def read(self, parts: Sequence[tuple[Part, Range]], columns: Sequence[str], where: str | None = None) -> pa.Table:
        """Read files, those that are wanted whole together; row groups that the condition excludes are left out."""
        schema = self._described().columns
        bounds = key_bounds(where, schema)
        wanted = pa.schema([schema.field(name) for name in [START, *columns]])
        backend = [wanted.empty_table()]
        if bounds is None:
            return backend[0]
        for level in dict.fromkeys(part.level for part, _ in parts):
            mine = [(part, span) for part, span in parts if part.level == level]
            folder = data_files(self._path(self._name(level)), self.options)
            try:
                with clear(self.uri):
                    backend.append(read_files(mine, folder, wanted, bounds))
            except FileNotFoundError:
                now = {part.name for part in self.view([level])[0].parts}
                if any(part.name not in now for part, _ in mine):  # its rows are in others since
                    raise Conflict(f"{level}: what was to be read has been replaced") from None
                infos = folder.get_file_info([part.name for part, _ in mine])
                gone = listed([info.path for info in infos if info.type == fs.FileType.NotFound])
                raise StoreError(f"the store {self.uri} is damaged: a file of {level} is missing: {gone}") from None
        return pa.concat_tables(backend)

    def clean(self, older_than: float) -> int:
        """Remove files that no version of the last ``older_than`` seconds names, rounded up to hours."""
        removed = 0
        for level in self._described().frame.levels:
            live = self._table(level.name)
            if live is not None:
                with live.lock, clear(self.uri):
                    removed += live.vacuum(older_than)
                    self._written(live, live.table.version())
            with clear(self.uri):
                removed += clean_flat(self._flat(level.name), dict(self.options), math.ceil(older_than / 3600))
        return removed

    def flat_parts(self, level: str) -> dict[str, Range] | None:
        """Read what a level's plain table was made from; None where there is none."""
        with clear(self.uri):
            return flat_parts(self._flat(level), dict(self.options))

    def write_flat(self, level: str, ranges: Sequence[Range], results: pa.Table, parts: Mapping[str, Range]) -> None:
        """Replace rows of a level's plain table, and note what it is made from."""
        with clear(self.uri):
            write_flat(self._flat(level), dict(self.options), ranges, results, parts)

    def size(self, level: str) -> int:
        """Sum the sizes of a level's files."""
        return sum(part.bytes for part in self.view([level])[0].parts)

    def check(self, levels: Sequence[str]) -> list[str]:
        """Verify every entry of the logs, and that none has lost its end."""
        names = [DESCRIPTION, *(self._name(level) for level in levels)]
        with clear(self.uri):
            return log_problems(self.uri, names, self.options, self._ends())

    def _described(self) -> Manifest:
        """Read the description, unless it is known: what others change of it since does not matter here.

        Name, keys and levels stay, and columns that it does not know are not asked for.
        """
        if known := self._seen[:1]:
            return known[0]
        described = self.describe()
        if described is None:
            raise StoreError(f"there is no store {self.uri}")
        manifest = Manifest.from_dict(described, self.uri)
        self._seen[:] = [manifest]
        return manifest

    def _table(self, level: str, create: bool = False) -> Live | None:
        """Open a level's table, once; None where nothing has been written to it."""
        with self._opening:
            if level not in self._live:
                name, options = self._name(level), self.options
                path = self._path(name)
                with clear(self.uri):
                    known = self._ends().checkpoints(name)
                    try:
                        self._live[level] = Live.open(self.uri, name, options, known)
                    except TableNotFoundError:
                        if not create:
                            return None
                        make_level(path, self._described().columns, options)
                        if self.durable:
                            sync_commit(path, 0)
                        self._live[level] = Live.open(self.uri, name, options, {})
            return self._live[level]

    def _path(self, name: str) -> str:
        return table_path(self.uri, name)

    def _flat(self, level: str) -> str:
        return self._path(f"{self._name(level)}_flat")

    def _name(self, level: str) -> str:
        return f"{self._described().name}_{level}"
