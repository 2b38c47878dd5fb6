"""The protocol of a store's backend: the operations that a store requires from Delta Lake, PostgreSQL or other storage.

A store is a single log of commits. The rows of all levels are stored in *parts*. A part consists of the states of one
level and bucket of time that were written together; a bucket is an hour, a day, a month or a year, depending on the
level. A commit makes some parts readable and others unreadable, and writes records, all in one transaction. Parts that
are not committed are never read.

    snapshot()               ──▶ Snapshot: the manifest, all readable parts, records with their revisions
    write(level, states)     ──▶ parts that are not readable yet; called by many tasks
    commit(transaction)      ──▶ all its changes atomically, or Conflict

`tiltframe.store.testing.check_backend` checks that a backend fulfils this protocol.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Protocol, cast, runtime_checkable

import pyarrow as pa

from tiltframe.ranges import Range
from tiltframe.store.log.snapshot import Part, Record, Snapshot
from tiltframe.store.log.transaction import Transaction
from windows import TimeWindow

__all__ = [
    "Backend",
    "Part",
    "PartChecker",
    "Record",
    "ResultReader",
    "ResultTables",
    "RowFunction",
    "Snapshot",
    "TableKeeper",
    "Transaction",
    "Vacuumed",
]


class Vacuumed(int):
    """The result of a vacuum: the number of files, rows or parts that it has removed.

    Attributes
    ----------
    kept : int
        The number of unreadable files, rows or parts that were too recent to remove.
    kept_until : float or None
        The time, in seconds since 1970, from which on the same vacuum would also remove the kept files, rows or parts;
        None if ``kept`` is 0.

    Examples
    --------
    >>> Vacuumed(3) + Vacuumed(2, kept=1, kept_until=60.0)
    5 removed, 1 kept until 1970-01-01T00:01:00+00:00
    """

    kept: int
    kept_until: float | None

    def __new__(cls, removed: int, kept: int = 0, kept_until: float | None = None) -> Vacuumed:
        """Create the result of a vacuum. The result is an int that is equal to ``removed``."""
        vacuumed = super().__new__(cls, removed)
        vacuumed.kept = kept
        vacuumed.kept_until = kept_until
        return vacuumed

    def __add__(self, other: int) -> Vacuumed:
        """Return the result of two vacuums together: the sums of their numbers, and the later ``kept_until``."""
        kept = self.kept + getattr(other, "kept", 0)
        times = [at for at in (self.kept_until, getattr(other, "kept_until", None)) if at is not None]
        return Vacuumed(int(self) + int(other), kept, max(times, default=None))

    def __repr__(self) -> str:
        if self.kept_until is None:
            return f"{int(self)} removed"
        until = dt.datetime.fromtimestamp(self.kept_until, dt.UTC).isoformat(timespec="seconds")
        return f"{int(self)} removed, {self.kept} kept until {until}"


@runtime_checkable
class Backend(Protocol):
    """The storage of one store: its manifest, its parts and its records, and operations on them.

    Implementations are small objects that can be pickled, because tasks in other processes read and write through them.
    Examples are `tiltframe.store.testing.MemoryBackend`, and those in the folders ``delta`` and ``postgres`` next to
    this file. To support a scheme of URIs, register a class by an entry point of the group ``tiltframe.backends`` with
    the name of the scheme. For URIs with this scheme, `FrameStore` then calls the method `at` of the class.

    If `read` and `write` may run in several threads at the same time, the class sets the attribute ``works_in_threads``
    to True. Otherwise, the methods are called in one thread at a time.
    """

    @classmethod
    def at(cls, uri: str, name: str, options: Mapping[str, str], durable: bool) -> Backend:
        """Return the backend of an address, without reading or writing.

        Parameters
        ----------
        uri : str
            A URI with the scheme under which the class is registered.
        name : str
            The name of the store, if several stores may have the same address. It may be empty.
        options : str -> str
            The ``storage_options`` of `FrameStore`.
        durable : bool
            Whether a commit must be written to the disk before it is acknowledged.

        Returns
        -------
        Backend

        Raises
        ------
        ValueError
            If an option is not supported, or the address cannot be read.
        """

    @property
    def uri(self) -> str:
        """The address of the store."""

    @property
    def display_uri(self) -> str:
        """The address of the store without a password, for messages."""

    def store_named(self, name: str) -> Backend:
        """Return the backend of another store with the same address. Return this backend if an address has only one
        store.

        Parameters
        ----------
        name : str
            A name of letters, digits and underscores.

        Returns
        -------
        Backend
        """

    def create(self, manifest: Mapping[str, Any], schema: pa.Schema) -> None:
        """Create a store. If there are several calls, also concurrent ones, the first call creates the store, and the
        other calls do nothing.

        Parameters
        ----------
        manifest : dict
            The manifest as plain data, from which `tiltframe.store.log.manifest.Manifest.from_dict` restores it.
        schema : schema
            The schema of the states of every level: window_start (timestamp of microseconds, UTC), keys, states.

        Raises
        ------
        StoreError
            If types cannot be stored, or the address contains other data than a store.
        """

    def check_values(self, states: pa.Table) -> None:
        """Raise an error if values cannot be stored. The method is called before anything is written.

        Parameters
        ----------
        states : table
            A table with the columns of the store's schema.

        Raises
        ------
        StoreError
            If a column cannot be stored; the message names it.
        """

    def snapshot(self, recorded: Iterable[str] | None = ()) -> Snapshot | None:
        """Return a snapshot of the complete store at one moment.

        Parameters
        ----------
        recorded : names or None
            The names of the records to include, or None for all. Each record has a revision. Every commit that writes a
            record changes the record's revision, even if the text stays the same.

        Returns
        -------
        Snapshot or None
            None if the store does not exist. Snapshots never go back in time: a later call never returns an older
            snapshot.

        Raises
        ------
        DamagedStore
            If the log or the manifest is damaged.
        UnreachableStore
            If the folder, object store or database cannot be read.
        """

    def write(self, level: TimeWindow, states: pa.Table) -> list[Part]:
        """Write states, which are not readable until their parts are committed.

        Several processes may write concurrently.

        Parameters
        ----------
        level : TimeWindow
            A level of the store's frame, or a level that is about to be added to it.
        states : table
            A table with the columns of the store's schema. Columns of states may be missing; additional columns are not
            stored.

        Returns
        -------
        list of Part
            One part for each bucket (see `tiltframe.store.backends.buckets`); empty if there are no states.

        Raises
        ------
        StoreError
            If values or types cannot be stored.
        """

    def discard(self, parts: Sequence[Part]) -> None:
        """Remove parts that were written but will not be committed. An implementation may do nothing, because `vacuum`
        also removes these parts.

        Parameters
        ----------
        parts : sequence of Part
            Parts of any levels, which `write` has returned.
        """

    def commit(self, transaction: Transaction) -> int:
        """Apply all changes of a transaction atomically.

        The snapshot of the transaction may be old. The check for conflicts and the change are one step; no other commit
        may take place between them.

        Parameters
        ----------
        transaction : Transaction
            The parts to add, the parts to remove, the records to write, and the new manifest. Each of them may be
            missing. Older snapshots can still read the removed parts until `vacuum`.

        Returns
        -------
        int
            The version of the first snapshot that includes the changes.

        Raises
        ------
        Conflict
            If ``transaction.conflict(now)`` returns a reason, where ``now`` is the current snapshot. In this case,
            nothing is changed.
        StoreError
            If the store cannot be written, or types cannot be stored. The commit may have been applied nevertheless.
        """

    def read(self, parts: Sequence[tuple[Part, Range]], columns: Sequence[str], where: str | None = None) -> pa.Table:
        """Return rows of parts: for each pair of a part and a range, the rows of the part whose windows start in the
        range.

        Parameters
        ----------
        parts : list of (Part, Range)
            Parts of one or several levels, from snapshots. Each part is paired with a range of window starts in
            microseconds UTC, end exclusive.
        columns : list of str
            Names of columns in the store's schema.
        where : str, optional
            A condition on keys. Rows for which the condition is not true may be left out or returned, because the
            caller filters the rows again.

        Returns
        -------
        table
            window_start and the columns, in the types of the schema, with the same bits that were written. The order of
            the rows is undefined. A column is null in rows that were written without it.

        Raises
        ------
        Conflict
            If a part was removed after the snapshot and its rows can no longer be read.
        DamagedStore
            If rows are lost or damaged.
        """

    def vacuum(self, older_than: float) -> Vacuumed:
        """Remove rows that are no longer readable.

        Parameters
        ----------
        older_than : float
            An age in seconds. Rows that were removed or written less than this time ago stay, because a query or a
            commit may still need them.

        Returns
        -------
        Vacuumed
            The number of removed files, rows or parts, with the number that were too recent to remove, and the time
            from which on they could be removed.
        """

    def verify(self) -> list[str]:
        """Verify the log. `tiltframe.store.verify` verifies the rows.

        Returns
        -------
        list of str
            A message for each damage or loss; empty if the log is undamaged.
        """


@runtime_checkable
class ResultTables(Protocol):
    """Operations on plain tables, for backends that support them. A plain table stores the results of a level as plain
    columns; see `tiltframe.store.changes.result_tables`.
    """

    def result_sources(self, level: str) -> Mapping[str, Range] | None:
        """Return the parts from which a level's plain table (its results as plain columns) was computed.

        Parameters
        ----------
        level : str

        Returns
        -------
        mapping of part name -> (int, int)
            The range of window starts of each part, in microseconds UTC, end exclusive. None, or an empty mapping, if
            there is no plain table.
        """

    def write_results(
        self, level: str, ranges: Sequence[Range], results: pa.Table, sources: Mapping[str, Range]
    ) -> None:
        """In a level's plain table, replace the rows of the windows that start in ``ranges``. In the same atomic
        change, replace the list of the parts from which the table is computed.

        Parameters
        ----------
        level : str
        ranges : sequence of (start, end)
            Ranges of window starts, in microseconds UTC, end exclusive.
        results : table
            The results of the windows that start in ``ranges``, in plain columns.
        sources : mapping of part name -> range of window starts
            The parts from which the complete table is computed after this change.

        Raises
        ------
        Conflict
            If another writer changed the table first.
        """


class RowFunction(Hashable, Protocol):
    """A function of a column of states. The result of a row depends on the state of this row only, and equal functions
    have equal results.
    """

    @property
    def column(self) -> str:
        """The name of the column of states."""

    def __call__(self, states: pa.Array) -> pa.Array:
        """Return one result for each state.

        Parameters
        ----------
        states : column of states, shape (rows,)

        Returns
        -------
        array, shape (rows,)

        Raises
        ------
        ValueError, TypeError, OverflowError
            If a result cannot be computed.
        """


@runtime_checkable
class PartChecker(Protocol):
    """An operation of backends whose `Backend.read` does not read all bytes of a part. This operation finds damage in
    the bytes that `Backend.read` skips.
    """

    def part_problems(self, part: Part) -> list[str]:
        """Check the bytes of a part that `Backend.read` does not read.

        Parameters
        ----------
        part : Part
            A part of the store.

        Returns
        -------
        list of str
            One message per problem.

        Raises
        ------
        StoreError
            If the bytes cannot be read.
        """


@runtime_checkable
class ResultReader(Protocol):
    """An operation of backends that keep results of stored rows in memory, so that a later query does not read the
    states again.
    """

    def read_results(
        self,
        parts: Sequence[tuple[Part, Range]],
        columns: Sequence[str],
        functions: Mapping[str, RowFunction],
        where: str | None = None,
    ) -> pa.Table | None:
        """Read rows of parts as `Backend.read` does, with results instead of states.

        Parameters
        ----------
        parts : list of (Part, Range)
            See `Backend.read`.
        columns : list of str
            Names of keys.
        functions : mapping of name -> RowFunction
            The results, with the names of their columns in the returned table.
        where : str, optional
            See `Backend.read`.

        Returns
        -------
        table or None
            The keys and the results. Calls that differ only in ``columns`` and ``functions`` return the same rows in
            the same order. None if the backend cannot keep the results; the caller then reads states.

        Raises
        ------
        Conflict, DamagedStore
            For the same reasons as `Backend.read`.
        ValueError, TypeError, OverflowError
            If a result cannot be computed. This may be the result of a row that the ranges or the condition exclude.
        """


@runtime_checkable
class TableKeeper(Protocol):
    """Operations of backends that keep tables in memory, such as results or merged states of parts."""

    @property
    def keeps_tables(self) -> bool:
        """Whether `keep_table` keeps tables at present. If this is False, `keep_table` accepts tables without keeping
        them.
        """

    def kept_tables(self, groups: Sequence[Sequence[Part]], key: Hashable) -> list[pa.Table | None]:
        """Return tables that were passed to `keep_table`.

        Parameters
        ----------
        groups : sequence of sequences of Part
            The parts of each table.
        key : hashable
            See `keep_table`.

        Returns
        -------
        list of table or None
            For each group, the table that was kept for equal parts and an equal key; None if there is none, or if the
            stored data of a part has changed since then.

        Raises
        ------
        Conflict, DamagedStore
            If the stored data of a part is missing, for the same reasons as `Backend.read`.
        """

    def keep_table(self, parts: Sequence[Part], key: Hashable, table: pa.Table) -> None:
        """Keep a table in memory until the memory is needed for other data.

        Parameters
        ----------
        parts : sequence of Part
            The parts from which the table was computed.
        key : hashable
            A description of the computation. Equal descriptions must give equal tables.
        table : table
            A table without slices of larger tables. A slice would keep the complete larger table in memory.

        Raises
        ------
        Conflict, DamagedStore
            For the same reasons as `kept_tables`.
        """


def result_reader_of(backend: Backend) -> ResultReader | None:
    """Return a backend that is a `ResultReader`, or None for other backends."""
    # With `isinstance`, every query would take some percent longer, because Python looks up all members of a protocol.
    return cast(ResultReader, backend) if hasattr(backend, "read_results") else None


def table_keeper_of(backend: Backend) -> TableKeeper | None:
    """Return a backend that is a `TableKeeper`, and keeps tables at present. Return None for other backends."""
    keeper = cast(TableKeeper, backend)
    return keeper if hasattr(backend, "kept_tables") and keeper.keeps_tables else None


def threads_of(backend: Backend, jobs: int) -> int:
    """Return the number of threads in which a backend may read and write: ``jobs``, or 1 if the backend does not work
    in threads.
    """
    return jobs if getattr(backend, "works_in_threads", False) else 1
