"""The protocol of a store's backend: what a store needs of whatever keeps its states, Delta Lake or PostgreSQL.

One table a level. Rows come in *parts*: the rows of one commit within one bucket of time. A commit makes the parts it
names readable in one level, and cuts ranges out of others, in one transaction. What is written and never committed is
never read.

    write, by many tasks ──▶ parts ──▶ commit(level, add, cut, txn_versions)   one transaction
    view(levels)                   ──▶ a snapshot of each level, finest first

`tiltframe.store.testing.check_backend` checks what is promised here, of any backend.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

from tiltframe.store.core.writers import MERGED

Range: TypeAlias = tuple[int, int]  # [from, to) of window starts, microseconds UTC


class StoreError(ValueError):
    """A store is missing, damaged, newer than this release, of another frame, or cannot be reached."""


class Conflict(Exception):
    """Another commit has changed what a commit or a read was about; nothing was written. Take a new snapshot, retry."""


@dataclass(frozen=True)
class Part:
    """The rows that one commit has in one bucket of a level.

    Parameters
    ----------
    level : str
        A level's name, ``10s``.
    writer, commit : str, int
        What wrote them, and its number.
    least, greatest : int
        Starts of the first and the last window, microseconds UTC; of a part without rows any number.
    rows, bytes : int
        Its size. PostgreSQL does not know the bytes of rows: 0.
    name : str
        Tells it from all other parts of the level: a file's name, or an identifier in a database.
    """

    level: str
    writer: str
    commit: int
    least: int
    greatest: int
    rows: int
    bytes: int = 0
    name: str = ""

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
        low, high = max(self.least, span[0]), min(self.greatest + 1, span[1])
        return (low, high) if low < high else None


@dataclass(frozen=True)
class Snapshot:
    """What a level held at one moment.

    Parameters
    ----------
    level : str
    parts : tuple of Part
        That are readable.
    txn_versions : writer -> number
        The last number that the level holds of each writer, and of each note.
    unfilled : bool
        Whether it is a new level that has not taken over yet what the finer one holds. Backends leave it at False.
    """

    level: str
    parts: tuple[Part, ...]
    txn_versions: Mapping[str, int]
    unfilled: bool = False

    def holds(self, part: Part) -> bool:
        """Say whether the level holds the commit that a part of a finer level came with.

        Parameters
        ----------
        part : Part

        Returns
        -------
        bool
        """
        return part.writer == MERGED or self.txn_versions.get(part.writer, -1) >= part.commit


@runtime_checkable
class Backend(Protocol):
    """One table a level, and a manifest that describes the store.

    Implementations are small values that pickle: tasks in other processes read and write through them. Examples are
    `tiltframe.store.testing.MemoryBackend`, `tiltframe.store.delta.backend` and `tiltframe.store.postgres.backend`.
    """

    @property
    def uri(self) -> str:
        """Where the store is."""

    @property
    def place(self) -> str:
        """Where the store is, as it may be shown: without a password."""

    def named(self, name: str) -> Backend:
        """Return the backend of the store of a name, where a place may hold several; otherwise itself.

        Parameters
        ----------
        name : str
            Letters, digits and underscores.

        Returns
        -------
        Backend
        """

    def describe(self) -> dict[str, Any] | None:
        """Read the manifest.

        Returns
        -------
        dict or None
            What `create` or `alter` was given; None where there is no store.

        Raises
        ------
        StoreError
            For a damaged manifest, and where the place cannot be read.
        """

    def create(self, manifest: Mapping[str, Any], schema: pa.Schema) -> None:
        """Make the tables of a store. Of several calls, also at once, the first one decides; the others do nothing.

        Parameters
        ----------
        manifest : dict
            As JSON; `tiltframe.store.core.manifest.Manifest.from_dict` reads it.
        schema : schema
            Of the states of every level: window_start (timestamp of microseconds, UTC), keys, states.

        Raises
        ------
        StoreError
            For types that cannot be stored.
        """

    def alter(self, manifest: Mapping[str, Any], schema: pa.Schema, seen: Mapping[str, Any]) -> None:
        """Replace the manifest by another of the same name and keys, at once, perhaps with more states and levels.

        Parameters
        ----------
        manifest : dict
            As JSON, as for `create`.
        schema : schema
            Of the states of every level: all columns that there were, and perhaps more. Rows that lack a column have
            null in it.
        seen : dict
            The manifest that is replaced, as `describe` returned it.

        Raises
        ------
        Conflict
            Where the manifest is another by now. Nothing was changed.
        StoreError
            Where there is no store, it cannot be written, or for types that cannot be stored.
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

    def view(self, levels: Sequence[str], writers: Iterable[str] = ()) -> list[Snapshot]:
        """Take a snapshot of each level, in the order given, which is from fine to coarse.

        A snapshot is of one moment. A later one in the list is never older than one before it.

        Parameters
        ----------
        levels : list of str
            Names of levels of the store's frame; one to which nothing was committed has no parts.
        writers : names, optional
            Whose last numbers are asked for.

        Returns
        -------
        list of Snapshot
            Each has the last numbers that its level holds of those writers, of ``tiltframe:expired`` and
            ``tiltframe:frame``, and of every writer of a part in any of the snapshots; it may have others.
        """

    def write(self, level: str, states: pa.Table, writer: str, commit: int) -> list[Part]:
        """Write states, which stay unreadable until their parts are committed.

        Many processes may write for one commit at once, and write the same again.

        Parameters
        ----------
        level : str
        states : table
            With the columns of the store's schema; states may lack, and there may be others, which are not stored.
        writer, commit : str, int
            The commit that they will be part of.

        Returns
        -------
        list of Part
            One for each bucket (`tiltframe.store.core.buckets`); of no states, one part without rows.

        Raises
        ------
        StoreError
            For values or types that cannot be stored.
        """

    def discard(self, parts: Sequence[Part]) -> None:
        """Remove parts that were written here and will not be committed; what may be someone else's too, may stay.

        Parameters
        ----------
        parts : of any levels, as `write` returned them in this process
        """

    def commit(
        self,
        level: str,
        add: Sequence[Part],
        cut: Sequence[tuple[Part, Range]] = (),
        txn_versions: Mapping[str, int] | None = None,
        seen: Snapshot | None = None,
        notes: Mapping[str, int] | None = None,
    ) -> None:
        """Make parts readable, cut ranges out of others, and record numbers of writers, in one transaction.

        Parameters
        ----------
        level : str
        add : parts
            As `write` returned them, here or in another process.
        cut : list of (Part, Range)
            Readable parts, and the windows that go. What is left of a part keeps its writer and number.
        txn_versions : writer -> number, optional
            To be the writers' last numbers; each must be greater than the writer's last number.
        seen : Snapshot, optional
            Of the level: the last numbers of the writers in ``txn_versions``, and of ``tiltframe:frame``, must still be
            those of the snapshot.
        notes : name -> number, optional
            Numbers recorded under other names, which may shrink; snapshots have them like those of writers.

        Raises
        ------
        Conflict
            Where a part that is cut is not readable any more, or a number is not as it must be. Nothing was changed.
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
            Where a part was cut since the snapshot and its rows cannot be read any more.
        StoreError
            Where its rows are lost or damaged.
        """

    def clean(self, older_than: float) -> int:
        """Remove what is not readable any more.

        Parameters
        ----------
        older_than : float
            Seconds; what is younger stays, for a query or a commit may still be under way.

        Returns
        -------
        int
            How many files, rows or parts were removed.
        """

    def size(self, level: str) -> int:
        """Return the bytes that a level takes.

        Parameters
        ----------
        level : str

        Returns
        -------
        int
        """

    def check(self, levels: Sequence[str]) -> list[str]:
        """Verify the records of which parts levels have; rows are verified by `tiltframe.store.check`.

        Parameters
        ----------
        levels : list of str

        Returns
        -------
        list of str
            A sentence for everything that is damaged or lost.
        """


@runtime_checkable
class KeepsResults(Protocol):
    """What a backend has beside, that keeps results of levels in plain tables: see `tiltframe.store.export`."""

    def flat_parts(self, level: str) -> Mapping[str, Range] | None:
        """Read what a level's plain table was made from.

        Parameters
        ----------
        level : str

        Returns
        -------
        mapping, part's name -> starts of its windows, end exclusive
            None where there is no such table.
        """

    def write_flat(self, level: str, ranges: Sequence[Range], results: pa.Table, parts: Mapping[str, Range]) -> None:
        """Replace the rows of the windows that start in ranges, and note what the table was made from, at once.

        Parameters
        ----------
        level : str
        ranges : sequence of (start, end)
            Microseconds UTC, end exclusive.
        results : table
            Of these windows, in plain columns.
        parts : mapping, part's name -> starts of its windows
            What the whole table is made from then.

        Raises
        ------
        Conflict
            Where someone else was faster.
        """
