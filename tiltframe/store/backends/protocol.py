"""The protocol of a store's backend: what a store needs of whatever keeps its states, Delta Lake or PostgreSQL.

A store is one log. Rows of all levels come in *parts*; a commit makes some parts readable, others unreadable, and
records names with texts, in one transaction. What is written and never committed is never read.

    snapshot()                                    a moment: the manifest, all parts, what is recorded
    write(level, states)                ──▶ parts by many tasks, unreadable yet
    commit(add, remove, recorded, expected)       all levels at once, or Conflict

`tiltframe.store.testing.check_backend` checks what is promised here, of any backend.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from tiltframe.store.ranges import Range
from windows import TimeWindow

OWN = "tiltframe:"  # recorded names that begin so are the store's own
KNOWN = f"{OWN}known"  # recorded by evolution, and by replacements that fill in the past
EXPIRED = f"{OWN}expired"  # recorded by every expiry and replacement: of two at once, one has to try again


@dataclass(frozen=True)
class Part:
    """Rows of one level in one bucket of time, written together.

    Parameters
    ----------
    level : str
        A level's name, ``10s``.
    first_start, last_start : int
        Starts of its first and its last window, microseconds UTC.
    rows, bytes : int
        Its size, stored or about.
    name : str
        Tells it from all other parts of the store: a file's name, or an identifier in a database.
    """

    level: str
    first_start: int
    last_start: int
    rows: int
    bytes: int = 0
    name: str = ""

    @property
    def range(self) -> Range:
        """The range of its window starts, end exclusive."""
        return self.first_start, self.last_start + 1

    def within(self, span: Range) -> Range | None:
        """Intersect the part's range of window starts with another range.

        Parameters
        ----------
        span : (int, int)
            ``[from, to)``, microseconds UTC.

        Returns
        -------
        (int, int) or None
            None if the intersection is empty.
        """
        low, high = max(self.first_start, span[0]), min(self.last_start + 1, span[1])
        return (low, high) if low < high else None


@dataclass(frozen=True)
class Snapshot:
    """What a store held at one moment.

    Parameters
    ----------
    version : int
        Grows with every commit.
    manifest : dict
        As JSON; `tiltframe.store.manifest.Manifest.from_dict` reads it.
    parts : tuple of Part
        That are readable, of all levels.
    recorded : name -> text
        Of the names that were asked for, those that are recorded.
    """

    version: int
    manifest: Mapping[str, Any]
    parts: tuple[Part, ...]
    recorded: Mapping[str, str]

    def of(self, level: str) -> tuple[Part, ...]:
        """Choose the parts of a level.

        Parameters
        ----------
        level : str
            A level's name.

        Returns
        -------
        tuple of Part
        """
        return tuple(part for part in self.parts if part.level == level)


@runtime_checkable
class Backend(Protocol):
    """A log of parts, and a manifest that describes the store.

    Implementations are small values that pickle: tasks in other processes read and write through them. Examples are
    `tiltframe.store.testing.MemoryBackend`, and those in the folders ``delta`` and ``postgres`` beside this file. An
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
            Of the store, where a place may hold several; perhaps empty.
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
            As JSON; `tiltframe.store.manifest.Manifest.from_dict` reads it.
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
            Whose texts are asked for; None for all that are recorded.

        Returns
        -------
        Snapshot or None
            None where there is no store. A later snapshot is never older.

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

    def commit(
        self,
        add: Sequence[Part],
        remove: Sequence[Part],
        recorded: Mapping[str, str],
        expected: Snapshot,
        manifest: Mapping[str, Any] | None = None,
        schema: pa.Schema | None = None,
    ) -> int:
        """Make parts readable and others unreadable, and record texts, in one transaction.

        Parameters
        ----------
        add : parts
            As `write` returned them, here or in another process.
        remove : parts
            That are readable. Snapshots that have them can be read until `vacuum`.
        recorded : name -> text
            Replaces what was recorded under the names.
        expected : Snapshot
            That the commit was derived from; it was asked for all names in ``recorded``.
        manifest : dict, optional
            Replaces the store's, at the same name, keys and levels, perhaps with more levels and states.
        schema : schema, optional
            With a manifest: all columns that there were, and perhaps more. Rows that lack a column have null in it.

        Returns
        -------
        int
            The version of snapshots that have it.

        Raises
        ------
        Conflict
            If a part to remove is not readable any more, a text is another than in ``expected``, or the manifest is;
            with a new manifest, if anything was committed since. Nothing was changed.
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

    def vacuum(self, older_than: float) -> int:
        """Remove rows that are not readable any more.

        Parameters
        ----------
        older_than : float
            Seconds; what was removed or written later stays, for a query or a commit may still be under way.

        Returns
        -------
        int
            How many files, rows or parts were removed.
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
    """What a backend has beside, that keeps results of levels in plain tables: see `tiltframe.store.result_tables`."""

    def result_sources(self, level: str) -> Mapping[str, Range] | None:
        """Read what a level's plain table was made from.

        Parameters
        ----------
        level : str

        Returns
        -------
        mapping, part's name -> starts of its windows, end exclusive
            None where there is no such table.
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
            Of these windows, in plain columns.
        sources : mapping, part's name -> starts of its windows
            What the whole table is made from then.

        Raises
        ------
        Conflict
            Where someone else was faster.
        """
