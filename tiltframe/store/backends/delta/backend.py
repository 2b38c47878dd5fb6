"""Delta Lake: a store is one table in a folder or object store, accessed by the package deltalake without a JVM.

    store/tiltframe/                       the table, partitioned by level and bucket of time
      _delta_log/                          commits of all levels; the metadata of the column level contain the manifest
      level=1h/bucket=2024-05/….parquet    states; such a file is called a part
      level=_recorded/bucket=_/….parquet   records: pairs of a name and a text
      _head                                the last version of the log

Any number of tasks may write files. One process then commits the files, which makes them visible atomically. A file
that no commit has added is never read, and is removed by `vacuum`.

Other programs may read the table, and may run VACUUM and OPTIMIZE on it. This package detects conflicts itself, and
lets delta-rs, the library inside deltalake, try each commit only once. The conflict detection of delta-rs (tested with
1.6.6, from two processes) is not used, because it rejects two commits that remove different files, and does not check
records.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import fs

from tiltframe.instants import instants_of
from tiltframe.names import BUCKET, LEVEL, START
from tiltframe.ranges import Range
from tiltframe.store.backends.buckets import split_by_bucket
from tiltframe.store.backends.cache_memory import cache_memory
from tiltframe.store.backends.delta.cached_results import read_results
from tiltframe.store.backends.delta.cached_rows import memory_of
from tiltframe.store.backends.delta.contents import Contents, contents_of, table_schema
from tiltframe.store.backends.delta.file_cache import CACHE, FileVersion, versions_of
from tiltframe.store.backends.delta.files import (
    constant_field_problems,
    copy_file,
    forget_files,
    open_file_system,
    read_files,
    write_states,
)
from tiltframe.store.backends.delta.fsync import sync_commit, sync_written
from tiltframe.store.backends.delta.head import (
    Head,
    entry_id,
    has_version,
    log_problem,
    remove_unfinished_heads,
    write_head,
)
from tiltframe.store.backends.delta.log import (
    add_action,
    as_store_errors,
    one_line_message,
    partition_of,
    remove_action,
)
from tiltframe.store.backends.delta.process import check_process
from tiltframe.store.backends.delta.record_files import read_records, write_records
from tiltframe.store.backends.delta.records import (
    RecordFile,
    Records,
)
from tiltframe.store.backends.delta.result_tables import result_sources, vacuum_results, write_results
from tiltframe.store.backends.delta.vacuum import bound_log, vacuum_table
from tiltframe.store.backends.key_bounds import bounds_of_keys
from tiltframe.store.backends.open import absolute_uri
from tiltframe.store.backends.protocol import Part, Record, RowFunction, Snapshot, Transaction, Vacuumed
from tiltframe.store.log.errors import Conflict, DamagedStore, MissingStore, UnreachableStore
from tiltframe.store.log.manifest import Manifest
from tiltframe.store_folders import TABLE, folder_problem
from windows import TimeWindow

_PARTITIONS = [LEVEL, BUCKET]
# the memory, in bytes, that the key of a kept table takes for each part from which the table was computed: for the
# version of the part's file, and for a range
_KEY_BYTES_PER_PART = 512


class _LastSnapshot(NamedTuple):
    """A snapshot, with the contents of the table and the names of records that were used to create the snapshot."""

    contents: Contents
    names: tuple[str, ...] | None
    snapshot: Snapshot


@dataclass
class _OpenTable:
    """The open table of a store, and its contents. ``table`` is used only while ``lock`` is held, but ``contents`` may
    be read without the lock. After a commit by this process, ``contents`` has the new version, and ``table`` still has
    the version before the commit.
    """

    lock: threading.RLock = field(default_factory=threading.RLock)
    table: DeltaTable | None = None
    contents: Contents = field(default_factory=Contents)
    # the `entry_id` of the last version in ``contents``; None for object stores
    last_entry: tuple[int, ...] | None = None
    last_snapshot: _LastSnapshot | None = None
    parsed_manifest: Manifest | None = None
    # the records of each file of records that was read or written: file name → records
    records_by_file: dict[str, Records] = field(default_factory=dict)
    # the digests of the files of the log that were verified: file name → digest
    verified_digests: dict[str, str] = field(default_factory=dict)

    def forget(self) -> None:
        """Forget the table and everything that was read from it, so that it is opened again."""
        self.table = None
        self.contents = Contents()
        self.last_entry = None
        self.last_snapshot = None
        self.parsed_manifest = None
        self.records_by_file = {}
        self.verified_digests = {}


@dataclass(frozen=True)
class DeltaBackend:
    """The backend of a store in a folder or an object store; see `tiltframe.store.backends.protocol.Backend`."""

    # The absolute path of a folder, or a URI for deltalake, such as ``s3://bucket/path``.
    uri: str
    # The options of the object store, with the names that deltalake uses.
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    # Whether a commit to a folder is written to the disk before it is acknowledged.
    durable: bool = False
    # The folder as the user wrote it, for messages. If it is empty, messages contain ``uri``.
    written_uri: str = field(default="", compare=False, repr=False)
    works_in_threads: ClassVar[bool] = True
    _open_table: _OpenTable = field(default_factory=_OpenTable, compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return DeltaBackend, (self.uri, self.options, self.durable)

    @classmethod
    def at(cls, uri: str, name: str, options: Mapping[str, str], durable: bool) -> DeltaBackend:
        """Return the backend for a folder, a ``file://`` URI, or the URI of an object store. The path of a folder is
        made absolute, so that the backend uses the same folder when the working directory changes.
        """
        if uri.startswith("file://"):
            # `url2pathname` is not imported at the top of the module, because urllib.request loads http and ssl, which
            # takes time.
            from urllib.request import url2pathname

            uri = url2pathname(urlsplit(uri).path)
        return cls(absolute_uri(uri), tuple(options.items()), durable, written_uri=uri)

    @property
    def display_uri(self) -> str:
        """The folder or URI as the user wrote it, without options."""
        return self.written_uri or self.uri

    def store_named(self, name: str) -> DeltaBackend:
        """Return the backend unchanged, because a folder has only one store. The manifest contains the name of the
        store.
        """
        return self

    @property
    def _path(self) -> str:
        return f"{self.uri.rstrip('/')}/{TABLE}"

    @property
    def _is_in_folder(self) -> bool:
        return "://" not in self.uri

    def create(self, manifest: Mapping[str, Any], schema: pa.Schema) -> None:
        """Create the table, unless another process has created it."""
        with as_store_errors(self.display_uri):
            check_process()
            try:
                DeltaTable.create(
                    self._path,
                    table_schema(schema, json.dumps(manifest)),
                    mode="error",
                    partition_by=_PARTITIONS,
                    storage_options=dict(self.options),
                    commit_properties=CommitProperties(max_commit_retries=0),
                )
                self._acknowledge(0)
            except (DeltaError, CommitFailedError):
                if self.snapshot() is None:
                    raise

    def check_values(self, states: pa.Table) -> None:
        """Do nothing, because Delta Lake can store all values of the stored types."""

    def snapshot(self, recorded: Iterable[str] | None = ()) -> Snapshot | None:
        """Return a snapshot of the current table, or None if there is no store."""
        names = None if recorded is None else tuple(recorded)
        with suppress(MissingStore):
            return self._current_snapshot(names)
        # The file ``_head`` shows that the store exists or has existed. Another process may have created the store
        # after the attempt above, so try once more. If the second attempt also finds no store, the log of the store is
        # missing.
        if self._is_in_folder and Head.read(self._path):
            with suppress(MissingStore):
                return self._current_snapshot(names)
        self._check_no_remains()
        return None

    def _current_snapshot(self, names: tuple[str, ...] | None) -> Snapshot:
        open_table = self._open_table
        contents = self._open_table.contents
        # Read without the lock, so that this thread does not wait while another thread commits. If a file of records
        # cannot be read, for example because a vacuum removed it, the log is read again below.
        if self._is_current(contents):
            with suppress(OSError):
                return self._snapshot(open_table, contents, names)
        with self._locked_and_updated():
            return self._snapshot(open_table, open_table.contents, names)

    def _is_current(self, contents: Contents) -> bool:
        """Return True if the table is in a folder, and ``contents`` belong to the last version of the table. If the
        result is False, ``contents`` may still be current, for example if the table is in an object store.
        """
        if contents.version < 0 or not self._is_in_folder or has_version(self._path, contents.version + 1):
            return False
        last_entry = self._open_table.last_entry
        if last_entry is None or entry_id(self._path, contents.version) != last_entry:
            return False
        head = self._verified_head()
        return head is None or head.version <= contents.version

    def _snapshot(self, open_table: _OpenTable, contents: Contents, names: tuple[str, ...] | None) -> Snapshot:
        """Return a snapshot of ``contents`` with the named records. If the last snapshot had the same contents and
        names, it is returned again, because many queries of one version need the same snapshot.
        """
        last = open_table.last_snapshot
        if last is not None and last.contents is contents and last.names == names:
            return last.snapshot
        records = read_records(
            contents.records,
            names,
            records_by_file=open_table.records_by_file,
            open_folder=partial(open_file_system, self._path, self.options),
        )
        names_read = records if names is None else set(names) & records.keys()
        snapshot_records = {name: Record(*records[name]) for name in names_read}
        snapshot = Snapshot(contents.version, contents.manifest, contents.parts, snapshot_records)
        open_table.last_snapshot = _LastSnapshot(contents, names, snapshot)
        return snapshot

    def write(self, level: TimeWindow, states: pa.Table) -> list[Part]:
        """Write one Parquet file for each bucket of time, and return the files as parts."""
        manifest = self._manifest()
        parts: list[Part] = []
        try:
            with as_store_errors(self.display_uri):
                folder = open_file_system(self._path, self.options)
                for bucket, rows in split_by_bucket(states, level):
                    subfolder = f"{LEVEL}={re.sub('[^A-Za-z0-9.-]', '_', level.name)}/{BUCKET}={bucket}"
                    name, size = write_states(rows, level, manifest=manifest, folder=folder, subfolder=subfolder)
                    starts = instants_of(rows)
                    parts.append(
                        Part(
                            level.name,
                            int(starts.min()),
                            last_start=int(starts.max()),
                            rows=len(starts),
                            bytes=size,
                            name=name,
                        )
                    )
        except BaseException:
            self.discard(parts)
            raise
        return parts

    def discard(self, parts: Sequence[Part | RecordFile]) -> None:
        """Delete files that will not be committed. Names of files are unique, so no other process uses these files."""
        for part in parts:
            with suppress(OSError):
                folder = open_file_system(self._path, self.options)
                forget_files([part.name], folder)
                folder.delete_file(part.name)

    def commit(self, transaction: Transaction) -> int:
        """Commit the changes as the version after the current one, and return the number of the new version. Raise
        `Conflict` if the transaction conflicts with the current version, or if another process commits the same version
        first.
        """
        with self._locked_and_updated() as open_table:
            assert open_table.table is not None
            before = open_table.contents
            if reason := transaction.conflict(
                self._snapshot(open_table, before, tuple(sorted(transaction.record_names)))
            ):
                raise Conflict(reason)
            version = before.version + 1
            record_files, outdated_files = write_records(
                transaction.recorded,
                version,
                before.records,
                records_by_file=open_table.records_by_file,
                open_folder=partial(open_file_system, self._path, self.options),
            )
            actions: list[AddAction | RemoveAction] = [
                *map(add_action, transaction.added),
                *map(add_action, record_files),
            ]
            copies: list[Part] = []
            changes: dict[str, Any] = {"mode": "append", "schema": open_table.table.schema()}
            if transaction.manifest is None:
                actions += [*map(remove_action, transaction.removed), *map(remove_action, outdated_files)]
            else:
                # The schema contains the manifest. deltalake changes a schema only in a commit that overwrites
                # partitions, so the commit overwrites the partitions of the removed parts.
                filters, copies = self._partitions_to_overwrite(open_table, transaction.removed)
                columns = transaction.schema or self._manifest().columns
                schema = table_schema(columns, json.dumps(transaction.manifest))
                changes = {"mode": "overwrite", "partition_filters": filters, "schema": schema}
                actions += map(add_action, copies)
            check_process()
            if self.durable and self._is_in_folder:
                parts = (*transaction.added, *copies)
                sync_written(self._path, [*(part.name for part in parts), *(file.name for file in record_files)])
            try:
                open_table.table.create_write_transaction(
                    actions,
                    partition_by=_PARTITIONS,
                    commit_properties=CommitProperties(max_commit_retries=0),
                    **changes,
                )
            except CommitFailedError as error:
                self.discard([*record_files, *copies])
                raise Conflict(one_line_message(error)) from None
            # After a commit, deltalake cleans up the log. An error in this step does not undo the commit, so the error
            # is raised only if the table does not contain the files of the commit.
            except (DeltaError, OSError):
                names = {*(part.name for part in transaction.added), *(file.name for file in record_files)}
                if not self._has_files(open_table, version, names):
                    raise
            if transaction.manifest is None:
                # The contents of the new version are derived from those of the version before. They are not read from
                # the log, because reading the log takes longer the more files the table has.
                open_table.contents = before.after_commit(
                    added_parts=transaction.added,
                    removed_parts=transaction.removed,
                    added_records=record_files,
                    removed_records=outdated_files,
                )
                open_table.last_entry = self._entry_id(version)
            self._acknowledge(version)
            forget_files((part.name for part in transaction.removed), open_file_system(self._path, self.options))
            return version

    def _has_files(self, open_table: _OpenTable, version: int, names: set[str]) -> bool:
        """Return whether the table has the version ``version`` or a later one, and contains the files ``names``. If the
        result is True, the commit that added the files has succeeded, because the names of files are unique.
        """
        assert open_table.table is not None
        with suppress(DeltaError, OSError):
            open_table.table.update_incremental()
            self._update_contents(open_table, open_table.table)
        contents = open_table.contents
        file_names = {*(part.name for part in contents.parts), *(file.name for file in contents.records)}
        return bool(names) and contents.version >= version and names <= file_names

    def _partitions_to_overwrite(
        self, open_table: _OpenTable, removed_parts: Sequence[Part]
    ) -> tuple[list[tuple[str, str, Any]], list[Part]]:
        """Return two values for a commit that changes the schema: filters, and copies of parts. Such a commit must
        overwrite complete partitions. The filters match the partitions that contain ``removed_parts``. Other parts in
        the same partitions must remain readable, so the commit replaces each other part by a copy.

        The copies have new names, because one commit of Delta Lake cannot remove and add the same file. If
        ``removed_parts`` is empty, the filters do not match any partition, and there are no copies.
        """
        if not removed_parts:
            return [(LEVEL, "=", "")], []
        partitions = [partition_of(part) for part in removed_parts]
        levels, buckets = ({str(partition[name]) for partition in partitions} for name in _PARTITIONS)
        names = {part.name for part in removed_parts}
        folder = open_file_system(self._path, self.options)
        copies = list[Part]()
        for part in open_table.contents.parts:
            partition = partition_of(part)
            if partition[LEVEL] in levels and partition[BUCKET] in buckets and part.name not in names:
                copies.append(replace(part, name=copy_file(part.name, folder)))
        return [(LEVEL, "in", sorted(levels)), (BUCKET, "in", sorted(buckets))], copies

    def read(self, parts: Sequence[tuple[Part, Range]], columns: Sequence[str], where: str | None = None) -> pa.Table:
        """Return, for each pair of a part and a range, the rows of the part whose windows start in the range. Row
        groups that the condition ``where`` excludes are not read.
        """
        schema = self._manifest().columns
        bounds = bounds_of_keys(where, schema)
        requested = pa.schema([schema.field(name) for name in dict.fromkeys([START, *columns])])
        if bounds is None or not parts:
            return requested.empty_table()
        with self._folder_to_read(parts) as folder:
            return read_files(parts, folder, requested, bounds)

    def part_problems(self, part: Part) -> list[str]:
        """Some fields have the same value in all rows of a part, and this value is also stored in the metadata of the
        part's file, where `read` reads it. Return a message for each such field whose values in the rows differ from
        the value in the metadata. Return an empty list for object stores.
        """
        if not self._is_in_folder:
            return []
        with self._folder_to_read([(part, part.range)]) as folder:
            return constant_field_problems(part, folder)

    def read_results(
        self,
        parts: Sequence[tuple[Part, Range]],
        columns: Sequence[str],
        functions: Mapping[str, RowFunction],
        where: str | None = None,
    ) -> pa.Table | None:
        """Read rows of parts as `read` does, but return results of functions instead of states. The results are kept in
        the cache of files. Return None for object stores, whose results are not kept.
        """
        schema = self._manifest().columns
        bounds = bounds_of_keys(where, schema)
        if bounds is None or not parts or not self._is_in_folder:
            return None
        needed = [START, *columns, *(function.column for function in functions.values())]
        requested = pa.schema([schema.field(name) for name in dict.fromkeys(needed)])
        with self._folder_to_read(parts) as folder:
            return read_results(parts, folder, requested, functions=functions, keys=columns, bounds=bounds)

    @property
    def keeps_tables(self) -> bool:
        """Whether `keep_table` keeps tables: for a store in a folder, unless caches have no memory."""
        return self._is_in_folder and cache_memory() > 0

    def kept_tables(self, groups: Sequence[Sequence[Part]], key: Hashable) -> list[pa.Table | None]:
        """Return the tables of groups of parts that `keep_table` has put into the cache of files. None stands for a
        table that the cache does not contain, and for all tables of a store in an object store.
        """
        if not self._is_in_folder:
            return [None] * len(groups)
        files = iter(self._files_of([part for parts in groups for part in parts]))
        files_of_groups = [list(islice(files, len(parts))) for parts in groups]
        entries: list[tuple[Sequence[FileVersion], pa.Table] | None] = CACHE.get_all(
            [(files_of_group[0], key) for files_of_group in files_of_groups]
        )
        return [
            entry[1] if entry is not None and entry[0] == files_of_group else None
            for files_of_group, entry in zip(files_of_groups, entries, strict=True)
        ]

    def keep_table(self, parts: Sequence[Part], key: Hashable, table: pa.Table) -> None:
        """Put a table that was computed from parts into the cache of files. Tables of object stores are not kept.

        For each key and first part, only one table is kept. While new parts are added to a store, this limits the
        number of tables that are not needed any more.
        """
        if self._is_in_folder:
            files = self._files_of(parts)
            size = memory_of(table.columns) + _KEY_BYTES_PER_PART * len(parts)
            CACHE.put((files[0], key), (files, table), size, files)

    def _files_of(self, parts: Sequence[Part]) -> list[FileVersion]:
        with self._folder_to_read([(part, part.range) for part in parts]) as folder:
            return versions_of([part.name for part in parts], folder)

    @contextmanager
    def _folder_to_read(self, parts: Sequence[tuple[Part, Range]]) -> Iterator[fs.FileSystem]:
        """Yield the file system of the store for a block that reads ``parts``, and convert the errors of the block to
        store errors. If a file is missing, raise `Conflict` if another process has removed a part, and otherwise
        `DamagedStore`.
        """
        folder = open_file_system(self._path, self.options)
        try:
            with as_store_errors(self.display_uri):
                yield folder
        except FileNotFoundError:
            with self._locked_and_updated() as open_table:
                readable = {part.name for part in open_table.contents.parts}
            if any(part.name not in readable for part, _ in parts):
                raise Conflict(
                    "a part of the store was removed by another process, and can no longer be read"
                ) from None
            lost = next(part for part, _ in parts if not folder.get_file_info(part.name).is_file)
            raise self._missing_file_error(lost.name) from None

    def vacuum(self, older_than: float) -> Vacuumed:
        """Delete files that were removed from the table, or were written but not committed, at least ``older_than``
        seconds ago (see `vacuum_table`). Return the number of deleted files. Also limit the size of the table's log
        (see `bound_log`).
        """
        manifest = self._manifest()
        with self._locked_and_updated() as open_table:
            assert open_table.table is not None
            check_process()
            # If another process commits at the same time, `bound_log` fails. The next vacuum calls it again.
            with suppress(CommitFailedError):
                bound_log(open_table.table, older_than)
        # The table is opened a second time. Otherwise ``open_table.table`` would have to stay locked until all files
        # are deleted, and commits of other threads would wait for this lock.
        vacuumed = vacuum_table(self._open(), open_file_system(self._path, self.options), older_than)
        if self._is_in_folder:
            remove_unfinished_heads(self._path, older_than)
        with as_store_errors(self.display_uri):
            for level in manifest.frame.levels:
                vacuumed += vacuum_results(self._plain_table_path(level.name), dict(self.options), older_than)
        return vacuumed

    def result_sources(self, level: str) -> dict[str, Range] | None:
        """Return the parts from which a level's plain table (its results as plain columns) was computed, or None if the
        level has no plain table."""
        with as_store_errors(self.display_uri):
            return result_sources(self._plain_table_path(level), dict(self.options))

    def write_results(
        self, level: str, ranges: Sequence[Range], results: pa.Table, sources: Mapping[str, Range]
    ) -> None:
        """In a level's plain table, remove the rows of the windows that start in ``ranges``, and add the rows of
        ``results``. In the same commit, store ``sources`` as the list of the parts from which the table was computed.
        """
        with as_store_errors(self.display_uri):
            write_results(self._plain_table_path(level), dict(self.options), ranges, results=results, sources=sources)

    def verify(self) -> list[str]:
        """Read the complete log again, and return a message for each problem."""
        try:
            snapshot = replace(self, _open_table=_OpenTable()).snapshot()
        except (DamagedStore, UnreachableStore) as error:
            return [str(error)]
        problem = f"the store {self.display_uri} is damaged: its log is missing or incomplete; restore it from a backup"
        return [] if snapshot else [problem]

    def _plain_table_path(self, level: str) -> str:
        return f"{self.uri.rstrip('/')}/{self._manifest().name}_{level}_flat"

    def _manifest(self) -> Manifest:
        """Return the manifest that this backend has read last. If no manifest has been read yet, read it now. The store
        may have a newer manifest. `write` and `read` can use the older manifest, because they need only the name of the
        store, the keys, and the columns that the caller names. The name and the keys of a store never change.
        """
        if (parsed_manifest := self._open_table.parsed_manifest) is not None:
            return parsed_manifest
        if self.snapshot() is None:
            raise MissingStore(
                f"there is no store {self.display_uri}; correct its address, or create it with a first commit"
            )
        with self._open_table.lock:
            if self._open_table.parsed_manifest is None:
                self._open_table.parsed_manifest = Manifest.from_dict(
                    self._open_table.contents.manifest, self.display_uri
                )
            return self._open_table.parsed_manifest

    @contextmanager
    def _locked_and_updated(self) -> Iterator[_OpenTable]:
        """Yield the table and its contents, after reading the commits that were added since the last read. The lock is
        held until the block ends.
        """
        open_table = self._open_table
        with open_table.lock:
            try:
                with as_store_errors(self.display_uri):
                    if self._is_in_folder:
                        # The store may have been deleted, or replaced by another one in the same folder.
                        if entry_id(self._path, open_table.contents.version) != open_table.last_entry:
                            open_table.forget()
                        self._check_files(open_table)
                    if open_table.table is None:
                        open_table.table = self._open()
                    elif not self._is_in_folder or has_version(self._path, open_table.table.version() + 1):
                        check_process()
                        open_table.table.update_incremental()
                    if self._is_in_folder:
                        self._check_head(open_table.table)
                    self._update_contents(open_table, open_table.table)
                    yield open_table
            # A file of records is missing, because it was lost or another commit has removed it.
            except FileNotFoundError as error:
                raise self._missing_file_error(str(error)) from None

    def _open(self) -> DeltaTable:
        check_process()
        try:
            return DeltaTable(self._path, storage_options=dict(self.options))
        except TableNotFoundError:
            raise MissingStore(
                f"there is no store {self.display_uri}; correct its address, or create it with a first commit"
            ) from None

    def _update_contents(self, open_table: _OpenTable, table: DeltaTable) -> None:
        before = open_table.contents
        contents = contents_of(table, before, self.display_uri)
        if contents.manifest is not before.manifest:
            open_table.parsed_manifest = None
        open_table.contents = contents
        open_table.last_entry = self._entry_id(contents.version)
        # Queries in other threads add entries to ``loaded`` without the lock, and a dictionary must not grow during an
        # iteration. The loop therefore iterates over the names of files, and not over ``loaded``.
        loaded = open_table.records_by_file
        names = (file.name for file in open_table.contents.records)
        open_table.records_by_file = {name: loaded[name] for name in names if name in loaded}

    def _entry_id(self, version: int) -> tuple[int, ...] | None:
        return entry_id(self._path, version) if self._is_in_folder else None

    def _check_files(self, open_table: _OpenTable) -> None:
        if open_table.table is None and (problem := folder_problem(Path(self.uri))):
            raise UnreachableStore(problem)
        # ``contents`` always includes the last commit of this object, and ``table`` may be older. The later of the two
        # versions is therefore used.
        version = None if open_table.table is None else max(open_table.table.version(), open_table.contents.version)
        if problem := log_problem(self._path, version):
            raise self._damage_error(problem)

    def _check_head(self, table: DeltaTable) -> None:
        """Raise `DamagedStore` if the log ends before the version that its head (the file ``_head``) records, or if an
        entry of the log does not have the digest that the head records.
        """
        head = self._verified_head()
        if head is None:
            return
        if head.version > table.version():
            # Another process may have committed since the table was last read.
            table.update_incremental()
        if head.version > table.version():
            raise self._damage_error(
                f"its log ends at version {table.version()}, and the last commit has version {head.version}; restore "
                f"the missing entries of the log from a backup"
            )

    def _verified_head(self) -> Head | None:
        """Return the head, or None if the table has none. Raise `DamagedStore` if the head is damaged, or if an entry
        of the log does not have the digest that the head records.
        """
        try:
            head = Head.read(self._path)
        except ValueError as error:
            raise self._damage_error(str(error)) from None
        if head is None:
            return None
        verified = self._open_table.verified_digests
        for name in head.damaged_files(self._path, verified):
            raise self._damage_error(f"{name} of its log has changed since it was written; restore it from a backup")
        # Digests of files that the head no longer lists are dropped, so that their number does not grow with each
        # commit.
        self._open_table.verified_digests = {name: verified[name] for name in head.digests if name in verified}
        return head

    def _acknowledge(self, version: int) -> None:
        """After a commit to a folder, write the head: the file ``_head``, which records the last version of the log. If
        the store is durable, first wait until the commit is on the disk. Do nothing for object stores, which have no
        head.

        If the head cannot be written, for example because the disk is full, no error is raised, because the commit is
        complete.
        """
        if not self._is_in_folder:
            return
        if self.durable:
            sync_commit(self._path, version)
        with suppress(OSError):
            write_head(self._path, version)

    def _check_no_remains(self) -> None:
        """Raise an error if the folder contains a store whose log is missing, or files of other programs."""
        if not self._is_in_folder:
            return
        folder = Path(self.uri)
        if Head.read(self._path):
            raise self._damage_error("its log is missing; restore it from a backup")
        if folder.exists() and any(entry.name != TABLE for entry in folder.iterdir()):
            raise UnreachableStore(
                f"the folder {self.display_uri} contains other files and is not a store; pass a new or an empty folder"
            )

    def _missing_file_error(self, name: str) -> DamagedStore:
        return self._damage_error(f"a file is missing: {name}; restore it from a backup")

    def _damage_error(self, problem: str) -> DamagedStore:
        return DamagedStore(f"the store {self.display_uri} is damaged: {problem}")
