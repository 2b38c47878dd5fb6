"""A transaction: changes of a store that are derived from a snapshot, and the data that these changes depend on.

A transaction can be committed if the data that it depends on has not changed since the snapshot. This data is the
manifest, the parts that the transaction removes, the records that it reads or replaces, and the parts in the ranges
that it reads. If this data has changed, a backend raises `tiltframe.store.log.errors.Conflict`, and the transaction is
derived again from a new snapshot. The rules are those of the conflict checker of Delta Lake. A part consists of states
of one level that were written together.

A transaction that merges parts, such as a compaction, and one that appends states to the same windows can be committed
in either order, because queries merge all states of a window. A transaction that merges parts therefore reads no
ranges, and concurrent appends do not conflict with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tiltframe.ranges import Range

if TYPE_CHECKING:
    from tiltframe.store.log.snapshot import Part, Snapshot


class Transaction:
    """Changes of a store that are derived from a snapshot.

    Parameters
    ----------
    snapshot : Snapshot
        The snapshot, with all records that the transaction reads or replaces.

    Attributes
    ----------
    added, removed : list of Part
        Parts that become readable, and parts that become unreadable.
    recorded : name -> text
        Records to write.
    record_names : set of str
        Names of records whose revision must not change before the commit, including the names in ``recorded``.
    ranges : list of (level, range)
        Ranges of window starts. The readable parts in these ranges must not change before the commit.
    manifest : dict or None
        The new manifest as plain data; None if the manifest does not change.
    schema : schema or None
        The schema that comes with a new manifest: all earlier columns, and optionally new ones.

    Examples
    --------
    >>> from tiltframe.store.log.snapshot import Part, Record, Snapshot
    >>> before = Snapshot(1, {}, (Part("1m", 0, 0, 1, name="a"),), {"note": Record(1, "x")})
    >>> transaction = Transaction(before)
    >>> transaction.removes(before.parts)
    >>> transaction.read("note")
    'x'
    >>> transaction.conflict(Snapshot(2, {}, before.parts, before.records))
    >>> transaction.conflict(Snapshot(2, {}, before.parts, {"note": Record(2, "x")}))
    "another commit has recorded 'note'"
    """

    def __init__(self, snapshot: Snapshot) -> None:
        """Create a transaction without changes."""
        self.snapshot = snapshot
        self.added: list[Part] = []
        self.removed: list[Part] = []
        self.recorded: dict[str, str] = {}
        self.record_names: set[str] = set()
        self.ranges: list[tuple[str, Range]] = []
        self.manifest: Mapping[str, Any] | None = None
        self.schema: pa.Schema | None = None

    def reads(self, level: str, span: Range) -> tuple[Part, ...]:
        """Return the readable parts of a level in a range. The transaction then depends on these parts.

        Parameters
        ----------
        level : str
            A level's name.
        span : (int, int)
            A range ``[from, to)`` of window starts, in microseconds UTC.

        Returns
        -------
        tuple of Part
        """
        self.ranges.append((level, span))
        return tuple(part for part in self.snapshot.of(level) if part.within(span) is not None)

    def read(self, name: str) -> str | None:
        """Return the text of a record. The transaction then depends on this record.

        Parameters
        ----------
        name : str

        Returns
        -------
        str or None
            None if there is no record of this name.
        """
        self.record_names.add(name)
        return self.snapshot.text(name)

    def adds(self, parts: Iterable[Part]) -> None:
        """Make parts readable.

        Parameters
        ----------
        parts : parts
            Parts that the backend's ``write`` has returned, in this or in another process.
        """
        self.added += parts

    def removes(self, parts: Iterable[Part]) -> None:
        """Remove parts, so that readers no longer find them.

        Parameters
        ----------
        parts : parts
            Parts of the snapshot.
        """
        self.removed += parts

    def records(self, name: str, text: str) -> None:
        """Write a record that replaces the snapshot's record of the same name.

        Parameters
        ----------
        name, text : str
        """
        self.record_names.add(name)
        self.recorded[name] = text

    def describes(self, manifest: Mapping[str, Any], schema: pa.Schema) -> None:
        """Replace the manifest.

        Parameters
        ----------
        manifest : dict
            The new manifest as plain data. The name and the keys must not change, and levels must not be removed.
            Levels and columns of states may be added.
        schema : schema
            All earlier columns, and optionally new ones. A new column is null in rows that were written without it.
        """
        self.manifest = manifest
        self.schema = schema

    @property
    def is_empty(self) -> bool:
        """Whether the transaction has no changes."""
        return not (self.added or self.removed or self.recorded or self.manifest)

    def conflict(self, now: Snapshot) -> str | None:
        """Compare the data that the transaction depends on with the store at the moment of the commit.

        Parameters
        ----------
        now : Snapshot
            A snapshot of the store directly before the commit, with the records in ``record_names``. No other commit
            may take place between this snapshot and the commit.

        Returns
        -------
        str or None
            The reason for a conflict in words, or None if the transaction may be committed.
        """
        if now.manifest != self.snapshot.manifest:
            return "another commit has changed the store's manifest"
        if self.removed:
            readable = {part.name for part in now.parts}
            if any(part.name not in readable for part in self.removed):
                return "another commit has removed a part that this commit removes"
        for name in sorted(self.record_names):
            if now.revision(name) != self.snapshot.revision(name):
                return f"another commit has recorded {name!r}"
        if now.version == self.snapshot.version:
            return None
        for level, span in self.ranges:
            if now.names_within(level, span) != self.snapshot.names_within(level, span):
                return f"another commit has changed the windows of {level} that this commit has read"
        return None
