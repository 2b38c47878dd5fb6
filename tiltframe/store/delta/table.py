"""An open table of Delta Lake: what it holds now, each entry of its log verified once, and commits that are sealed."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import fs

from tiltframe.frame import END, INSTANT, START
from tiltframe.names import BUCKET, COMMIT, WRITER
from tiltframe.store.core.backend import Part, StoreError
from tiltframe.store.core.stored_types import stored_schema
from tiltframe.store.core.writers import MERGED
from tiltframe.store.delta.files import data_files
from tiltframe.store.delta.folder import CHECKPOINT, LOG, check_log, check_next, table_path, versions_of
from tiltframe.store.delta.log import parts_of
from tiltframe.store.delta.seal import Broken, Entry, Seen, digest_of, seal, verified

_FIRST = CommitProperties(max_commit_retries=0)  # tried again, it would be an entry after the first


@dataclass
class Live:
    """A table that stays open; what it knows of its parts and its log holds for one version.

    Parameters
    ----------
    store, name : str
        Where the store is, and the table in it.
    table : DeltaTable
    files : FileSystem
        Of the table's folder.
    checkpoints : version -> checksum
        What is known of checkpoints before they are read.
    described : bool
        Whether it is the table that describes the store, whose entries have no seals.
    """

    store: str
    name: str
    table: DeltaTable
    files: fs.FileSystem
    checkpoints: Mapping[int, str] = field(default_factory=dict)
    described: bool = False
    lock: threading.RLock = field(default_factory=threading.RLock)
    identity: str = ""
    version: int = -1
    known: tuple[Part, ...] = ()
    numbered: int = -1
    last: dict[str, int | None] = field(default_factory=dict)
    checked: int = -1
    committed: int = -1
    digest: str | None = None
    seen: dict[tuple[str, str], int] = field(default_factory=dict)

    @classmethod
    def open(
        cls,
        store: str,
        name: str,
        options: Sequence[tuple[str, str]],
        checkpoints: Mapping[int, str],
        described: bool = False,
    ) -> Live:
        """Open a table.

        Raises deltalake's ``TableNotFoundError`` where there is none, `StoreError` where a log is no folder of files.
        """
        path = table_path(store, name)
        check_log(store, path)
        table = DeltaTable(path, storage_options=dict(options))
        live = cls(store, name, table, data_files(path, options), checkpoints, described)
        live.identity = str(table.metadata().id)
        return live

    def numbers(self, writers: Collection[str]) -> dict[str, int]:
        """Return the last numbers of those writers that have any, as of the version that is open."""
        if self.table.version() != self.numbered:
            self.last, self.numbered = {}, self.table.version()
        for writer in writers:
            if writer not in self.last:  # to look one up takes a millisecond
                self.last[writer] = None if writer == MERGED else self.table.transaction_version(writer)
        found = ((writer, self.last[writer]) for writer in writers)
        return {writer: number for writer, number in found if number is not None}

    def parts(self, level: str) -> tuple[Part, ...]:
        """Look which files there are now; raises `StoreError` where an entry of the log is not as it was written."""
        self.update()
        if self.table.version() != self.version:
            files = pa.table(self.table.get_add_actions(flatten=True))
            self.known = tuple(parts_of(files, level, self.store))
            self.version = self.table.version()
        return self.known

    def update(self) -> None:
        """Take in what was committed since, and verify it."""
        if "://" not in self.store:
            check_next(self.store, table_path(self.store, self.name), self.table.version() + 1)
        self.table.update_incremental()
        self._verify()

    def commit(
        self,
        actions: Sequence[AddAction | RemoveAction],
        transactions: Sequence[Transaction],
        seen: Seen,
    ) -> int:
        """Commit one write transaction on what was seen last; return its version.

        Raises deltalake's ``CommitFailedError`` where anything else was committed since.
        """
        version = self.checked + 1
        told = seal(self.identity, version, self.digest or "", seen, actions, transactions)
        self.table.create_write_transaction(
            list(actions),
            "append",
            self.table.schema(),
            [BUCKET],
            commit_properties=CommitProperties(told, max_commit_retries=0, app_transactions=list(transactions)),
        )
        self.committed = version
        return version

    def add_columns(self, columns: Sequence[pa.Field], seen: Seen) -> int:
        """Commit new columns, null in all rows that there are; return the version.

        Raises deltalake's ``CommitFailedError`` where anything else was committed since.
        """
        version = self.checked + 1
        new = Schema.from_arrow(pa.schema(columns))
        both = Schema([*self.table.schema().fields, *new.fields])
        told = seal(self.identity, version, self.digest or "", seen, [], [], both.to_json())
        self.table.alter.add_columns(list(new.fields), commit_properties=CommitProperties(told, max_commit_retries=0))
        self.committed = version
        return version

    @property
    def reached(self) -> int:
        """How far the log goes, as far as is known here."""
        return max(self.table.version(), self.committed)

    def vacuum(self, older_than: float) -> int:
        """Remove files that no version of the last seconds, rounded up to hours, names; return how many."""
        self.update()
        hours = math.ceil(older_than / 3600)
        return len(self.table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True))

    def checkpoint(self, version: int) -> str | None:
        """Return the checksum of the checkpoint of a version; None where it has none."""
        name = f"{LOG}/{version:020d}{CHECKPOINT}"
        if self.files.get_file_info(name).type != fs.FileType.File:
            return None
        return digest_of(self._read(name))

    def reaches(self, version: int) -> bool:
        """Say whether the log goes as far as a version, now."""
        if self.reached >= version:
            return True
        names = [f"{LOG}/{version:020d}{end}" for end in (".json", CHECKPOINT)]
        return any(info.type == fs.FileType.File for info in self.files.get_file_info(names))

    def _verify(self) -> None:
        """Verify the entries that are new; at first those since the last checkpoint."""
        version = self.table.version()
        if self.checked < 0:
            self._verify_checkpoint(version)
        while self.checked < version:
            self.checked, entry = self.checked + 1, self.entry(self.checked + 1, self.digest)
            self.digest = entry.digest
            for name, (identity, at) in entry.seen.items():
                self.seen[name, identity] = max(at, self.seen.get((name, identity), at))

    def entry(self, version: int, previous: str | None = None) -> Entry:
        """Read and verify an entry of the log."""
        try:
            return verified(
                self._read(f"{LOG}/{version:020d}.json"), self.identity, version, previous, not self.described
            )
        except FileNotFoundError:
            why = "it is missing"
        except Broken as error:
            why = str(error)
        raise StoreError(
            f"the store {self.store} is damaged: entry {version} of the log of {self.name}: {why}; "
            "restore it from a backup"
        ) from None

    def problems(self) -> list[str]:
        """Verify every entry of the log that is there; return a sentence for each that is damaged or missing."""
        entries, _ = self.versions()
        found, previous = [], None
        for version, checksum in self.checkpoints.items():
            if self.checkpoint(version) != checksum:
                found.append(self._damaged_checkpoint(version))
        for version in range(min(entries, default=0), max([*entries, self.table.version()]) + 1):
            try:
                previous = self.entry(version, previous).digest
            except StoreError as error:
                found.append(str(error))
                previous = None
        return found

    def versions(self) -> tuple[list[int], list[int]]:
        """List the versions that have an entry, and those that have a checkpoint."""
        found = self.files.get_file_info(fs.FileSelector(LOG))
        return versions_of(os.path.basename(info.path) for info in found)

    def _verify_checkpoint(self, version: int) -> None:
        entries, checkpoints = self.versions()
        begin = max((at for at in checkpoints if at <= version), default=-1)
        if begin in self.checkpoints and self.checkpoint(begin) != self.checkpoints[begin]:
            raise StoreError(self._damaged_checkpoint(begin))
        if begin in entries:
            self.digest = digest_of(self._read(f"{LOG}/{begin:020d}.json"))
        self.checked = begin

    def _damaged_checkpoint(self, version: int) -> str:
        return (
            f"the store {self.store} is damaged: the checkpoint {version} of the log of {self.name} is not as it was "
            "written; restore it from a backup"
        )

    def _read(self, name: str) -> bytes:
        with self.files.open_input_file(name) as file:
            data: bytes = file.read()
        return data


def make_description(path: str, configuration: dict[str, str | None], options: Sequence[tuple[str, str]]) -> None:
    """Make the table that describes a store by its configuration; raises ``DeltaError`` where there is one."""
    columns = pa.schema([("level", pa.string())])
    DeltaTable.create(
        path,
        columns,
        mode="error",
        configuration=configuration,
        raise_if_key_not_exists=False,
        storage_options=dict(options),
        commit_properties=_FIRST,
    )


def make_level(path: str, schema: pa.Schema, options: Sequence[tuple[str, str]]) -> None:
    """Make the table of a level, for states of a schema, unless someone else is first."""
    kept = stored_schema(schema)
    own = [pa.field(WRITER, pa.string()), pa.field(COMMIT, pa.int64())]  # Delta keeps no statistics of late columns
    first = [kept.field(START), pa.field(END, INSTANT), *own]
    columns = pa.schema([*first, *list(kept)[1:], pa.field(BUCKET, pa.string())])
    with suppress(DeltaError, CommitFailedError):
        DeltaTable.create(
            path, columns, mode="ignore", partition_by=[BUCKET], storage_options=dict(options), commit_properties=_FIRST
        )
