"""The protocol of a store's backend: what a store needs of whatever keeps its states, Delta Lake or PostgreSQL.

A store is one log. Rows of all levels come in *parts*; a commit makes some parts readable, others unreadable, and
records names with texts, in one transaction. Parts that are never committed are never read.

    snapshot()               ──▶ Snapshot: the manifest, all readable parts, records with their revisions
    write(level, states)     ──▶ parts, unreadable yet; by many tasks
    commit(transaction)      ──▶ all its changes at once, or Conflict

`tiltframe.store.testing.check_backend` checks these promises for any backend.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from tiltframe.ranges import Range
from tiltframe.store.log.records import EXPIRED, KNOWN, OWN
from tiltframe.store.log.snapshot import Part, Record, Snapshot
from tiltframe.store.log.transaction import Transaction
from windows import TimeWindow

__all__ = [
    "EXPIRED",
    "KNOWN",
    "OWN",
    "Backend",
    "Part",
    "Record",
    "ResultTables",
    "Snapshot",
    "Transaction",
    "Vacuumed",
]


class Vacuumed(int):
    """The number of files, rows or parts that a vacuum has removed.

    Attributes
    ----------
    kept : int
        The number of unreadable ones that were not old enough.
    kept_until : float or None
        The time from which on the same vacuum removes all of them, in seconds since 1970; None if there are none.

    Examples
    --------
    >>> Vacuumed(3) + Vacuumed(2, kept=1, kept_until=60.0)
    5 removed, 1 kept until 1970-01-01T00:01:00+00:00
    """

    kept: int
    kept_until: float | None

    def __new__(cls, removed: int, kept: int = 0, kept_until: float | None = None) -> Vacuumed:
        """Count the removed ones."""
        vacuumed = super().__new__(cls, removed)
        vacuumed.kept = kept
        vacuumed.kept_until = kept_until
        return vacuumed

    def __add__(self, other: int) -> Vacuumed:
        """Add up what two vacuums did."""
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
    """A log of parts, and a manifest that describes the store.

    Implementations are small values that pickle: tasks in other processes read and write through them. Examples are
    `tiltframe.store.testing.MemoryBackend`, and those in the folders ``delta`` and ``postgres`` next to this file. An
    entry point of the group ``tiltframe.backends``, called as a scheme of URIs, names a class; a `FrameStore` then
    opens its addresses by `at`.
    """

    @classmethod
    def at(cls, uri: str, name: str, options: Mapping[str, str], durable: bool) -> Backend:
        """Return the backend of an address; nothing is read or written.

        Parameters
        ----------
        uri : str
            With the scheme that the class is registered for.
        name : str
            Of the store, if a place may hold several; may be empty.
        options : str -> str
            As `FrameStore` takes them, ``storage_options``.
        durable : bool
            Whether a commit must be on the disk before it is acknowledged.

        Returns
        -------
        Backend

        Raises
        ------
        ValueError
            For options that it does not take, and addresses that cannot be read.
        """

    @property
    def uri(self) -> str:
        """Where the store is."""

    @property
    def display_uri(self) -> str:
        """Where the store is, as it may be shown: the URI, without a password if it has one."""

    def store_named(self, name: str) -> Backend:
        """Return the backend of the store of a name, where a place may hold several; otherwise itself.

        Parameters
        ----------
        name : str
            Letters, digits and underscores.

        Returns
        -------
        Backend
        """

    def create(self, manifest: Mapping[str, Any], schema: pa.Schema) -> None:
        """Make a store. Of several calls, also at once, the first one decides; the others do nothing.

        Parameters
        ----------
        manifest : dict
            As JSON; `tiltframe.store.log.manifest.Manifest.from_dict` reads it.
        schema : schema
            Of the states of every level: window_start (timestamp of microseconds, UTC), keys, states.

        Raises
        ------
        StoreError
            For types that cannot be stored, and where something else is in the place.
        """

    def check_values(self, states: pa.Table) -> None:
        """Refuse values that cannot be stored; called before anything is written.

        Parameters
        ----------
        states : table
            With the columns of the store's schema.

        Raises
        ------
        StoreError
            Says which column cannot be stored.
        """

    def snapshot(self, recorded: Iterable[str] | None = ()) -> Snapshot | None:
        """Look at the whole store as of one moment.

        Parameters
        ----------
        recorded : names or None
            Names of the records that the snapshot is to have; None for all. Each has a revision. Every commit that
            records the name changes it, even if the text stays the same.

        Returns
        -------
        Snapshot or None
            None if there is no store. A later snapshot is never older.

        Raises
        ------
        DamagedStore
            If the log or the manifest is damaged.
        UnreachableStore
            If the place cannot be read.
        """

    def write(self, level: TimeWindow, states: pa.Table) -> list[Part]:
        """Write states, which stay unreadable until their parts are committed.

        Many processes may write at once.

        Parameters
        ----------
        level : TimeWindow
            Of the store's frame, or one that is about to be added to it.
        states : table
            With the columns of the store's schema; states may lack, and there may be others, which are not stored.

        Returns
        -------
        list of Part
            One for each bucket (`tiltframe.store.backends.buckets`); none of no states.

        Raises
        ------
        StoreError
            For values or types that cannot be stored.
        """

    def discard(self, parts: Sequence[Part]) -> None:
        """Remove parts that were written and will not be committed; or leave them to `vacuum`.

        Parameters
        ----------
        parts : of any levels, as `write` returned them
        """

    def commit(self, transaction: Transaction) -> int:
        """Make all changes of a transaction, at once.

        The transaction's snapshot may be old. The check and the change are one step: no other commit comes between
        them.

        Parameters
        ----------
        transaction : Transaction
            Removed parts stay readable by older snapshots until `vacuum`. Parts, records and manifest may all change in
            one transaction.

        Returns
        -------
        int
            The version of snapshots that have it.

        Raises
        ------
        Conflict
            If ``transaction.conflict(now)`` names a reason, for the current store. Nothing was changed.
        StoreError
            If the store cannot be written, or has types that cannot be stored. The same may have been committed.
        """

    def read(self, parts: Sequence[tuple[Part, Range]], columns: Sequence[str], where: str | None = None) -> pa.Table:
        """Read the rows of parts whose windows start in ranges.

        Parameters
        ----------
        parts : list of (Part, Range)
            Of one level or several, from snapshots.
        columns : list of str
            Names in the store's schema.
        where : str, optional
            A condition on keys. Rows for which it is not true may be left out, and need not be: the caller filters.

        Returns
        -------
        table
            window_start and the columns, in the schema's types, the same bits as were written, null in columns that
            the rows lack; in any order.

        Raises
        ------
        Conflict
            If a part was removed since the snapshot and its rows cannot be read any more.
        DamagedStore
            If its rows are lost or damaged.
        """

    def vacuum(self, older_than: float) -> Vacuumed:
        """Remove rows that are not readable any more.

        Parameters
        ----------
        older_than : float
            Seconds. Rows that were removed or written later stay: a query or a commit may still need them.

        Returns
        -------
        Vacuumed
            The number of files, rows or parts that were removed, and until when others are kept.
        """

    def verify(self) -> list[str]:
        """Verify the log; rows are verified by `tiltframe.store.verify`.

        Returns
        -------
        list of str
            A sentence for everything that is damaged or lost.
        """


@runtime_checkable
class ResultTables(Protocol):
    """Keeps results of levels in plain tables, if a backend has it: see `tiltframe.store.changes.result_tables`."""

    def result_sources(self, level: str) -> Mapping[str, Range] | None:
        """Read what a level's plain table was made from.

        Parameters
        ----------
        level : str

        Returns
        -------
        mapping, part's name -> starts of its windows, end exclusive
            None if there is no such table.
        """

    def write_results(
        self, level: str, ranges: Sequence[Range], results: pa.Table, sources: Mapping[str, Range]
    ) -> None:
        """Replace the rows of the windows that start in ranges, and what the table was made from, at once.

        Parameters
        ----------
        level : str
        ranges : sequence of (start, end)
            Microseconds UTC, end exclusive.
        results : table
            For the windows that start in ``ranges``, in plain columns.
        sources : mapping, part's name -> starts of its windows
            What the whole table is made from then.

        Raises
        ------
        Conflict
            Where someone else was faster.
        """
