"""A transaction: changes of a store that are derived from a snapshot, and their dependencies.

It is committed if the store has not changed since in anything that it depends on: the manifest, the parts that it
removes, the records that it read or replaces, and the parts in the ranges that it read. Otherwise a backend refuses it
with `tiltframe.store.log.errors.Conflict`, and it is derived again from a new snapshot. (After the conflict checker of
Delta Lake.)

Appends commute with rewriting, because reading merges. So a rewrite that stays right if rows are added to its windows
declares no ranges, and concurrent appends do not delay it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from tiltframe.ranges import Range
from tiltframe.store.log.snapshot import Part, Snapshot


class Transaction:
    """Changes of a store that are derived from a snapshot.

    Parameters
    ----------
    snapshot : Snapshot
        It was asked for all records that the transaction reads or replaces.

    Attributes
    ----------
    added, removed : list of Part
        Parts that become readable, and that become unreadable.
    recorded : name -> text
        Records that are replaced or made.
    record_names : set of str
        Records that must not have another revision when it is committed. Names in ``recorded`` are among them.
    ranges : list of (level, range)
        The readable parts that have windows there must be the same when it is committed.
    manifest : dict or None
        The new manifest, as JSON.
    schema : schema or None
        With a new manifest: all earlier columns, and optionally more.

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
        """Begin with no changes."""
        self.snapshot = snapshot
        self.added: list[Part] = []
        self.removed: list[Part] = []
        self.recorded: dict[str, str] = {}
        self.record_names: set[str] = set()
        self.ranges: list[tuple[str, Range]] = []
        self.manifest: Mapping[str, Any] | None = None
        self.schema: pa.Schema | None = None

    def reads(self, level: str, span: Range) -> tuple[Part, ...]:
        """Depend on the readable parts of a level in a range, which are returned.

        Parameters
        ----------
        level : str
            A level's name.
        span : (int, int)
            ``[from, to)`` of window starts, microseconds UTC.

        Returns
        -------
        tuple of Part
        """
        self.ranges.append((level, span))
        return tuple(part for part in self.snapshot.of(level) if part.within(span) is not None)

    def read(self, name: str) -> str | None:
        """Depend on a record, whose text is returned.

        Parameters
        ----------
        name : str

        Returns
        -------
        str or None
            None if nothing is recorded under the name.
        """
        self.record_names.add(name)
        return self.snapshot.text(name)

    def adds(self, parts: Iterable[Part]) -> None:
        """Make parts readable.

        Parameters
        ----------
        parts : parts
            As the backend's ``write`` returned them, here or in another process.
        """
        self.added += parts

    def removes(self, parts: Iterable[Part]) -> None:
        """Make parts unreadable.

        Parameters
        ----------
        parts : parts
            Of the snapshot.
        """
        self.removed += parts

    def records(self, name: str, text: str) -> None:
        """Record a text in place of the one that the snapshot has.

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
            As JSON. Name and keys stay the same, and all levels are kept; there may be more levels and states.
        schema : schema
            All earlier columns, and optionally more. Rows that lack a column have null in it.
        """
        self.manifest = manifest
        self.schema = schema

    @property
    def is_empty(self) -> bool:
        """Whether committing it would change nothing."""
        return not (self.added or self.removed or self.recorded or self.manifest)

    def conflict(self, now: Snapshot) -> str | None:
        """Compare the dependencies of the transaction with the store at the moment of the commit.

        Parameters
        ----------
        now : Snapshot
            The store that the commit is about to change, with the records in ``record_names``. No other commit may
            come between this snapshot and the change.

        Returns
        -------
        str or None
            The change, in words; None if it may be committed.
        """
        if now.manifest != self.snapshot.manifest:
            return "another commit has changed the store's manifest"
        if self.removed:
            readable = {part.name for part in now.parts}
            if any(part.name not in readable for part in self.removed):
                return "another commit has removed a part that this one removes"
        for name in sorted(self.record_names):
            if now.revision(name) != self.snapshot.revision(name):
                return f"another commit has recorded {name!r}"
        if now.version == self.snapshot.version:
            return None
        for level, span in self.ranges:
            if now.names_within(level, span) != self.snapshot.names_within(level, span):
                return f"another commit has changed the windows of {level} that this one has read"
        return None
