"""A snapshot: the parts, the records and the manifest of a store at one moment.

A part consists of states of one level that were written together. The windows of a part start in the same bucket of
time, which is an hour, a day, a month or a year, depending on the level.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tiltframe.ranges import Range, intersection


@dataclass(frozen=True)
class Part:
    """Rows of one level in one bucket of time that were written together.

    Parameters
    ----------
    level : str
        The name of the part's level, such as ``10s``.
    first_start, last_start : int
        The starts of the first and the last window, in microseconds UTC.
    rows, bytes : int
        The number of rows of states, and the stored size of the part in bytes or an estimate of this size.
    name : str
        A name that is unique in the store: a file name, or an identifier in a database.
    """

    level: str
    first_start: int
    last_start: int
    rows: int
    bytes: int = 0
    name: str = ""

    @property
    def range(self) -> Range:
        """The range of the part's window starts, ``(first, end)`` in microseconds UTC. The end is exclusive."""
        return self.first_start, self.last_start + 1

    def within(self, span: Range) -> Range | None:
        """Return the intersection of the part's range of window starts with another range.

        Parameters
        ----------
        span : (int, int)
            The other range, from its start to its end (exclusive), in microseconds UTC.

        Returns
        -------
        (int, int) or None
            None if the intersection is empty.
        """
        low = max(self.first_start, span[0])
        high = min(self.last_start + 1, span[1])
        return (low, high) if low < high else None


PartRanges: TypeAlias = list[tuple[Part, Range]]
_NO_STARTS: NDArray[np.int64] = np.array([], np.int64)


def pieces_of(parts: Iterable[Part], ranges: Iterable[Range]) -> PartRanges:
    """Return the pieces of parts that lie in ``ranges``, as pairs of a part and a range of window starts. If a part
    overlaps several ranges, there is one pair for each overlap.
    """
    spans = list(ranges)
    pieces = ((part, part.within(span)) for part in parts for span in spans)
    return [(part, piece) for part, piece in pieces if piece is not None]


def pieces_within(part_ranges: PartRanges, span: Range) -> PartRanges:
    """Return each part with the intersection of its range and ``span``. Empty intersections are left out."""
    return [(part, piece) for part, part_range in part_ranges for piece in intersection([part_range], [span])]


@dataclass(frozen=True)
class Record:
    """A text that is stored under a name.

    Parameters
    ----------
    revision : int
        A number that changes whenever the record is written, even if its text stays the same.
    text : str
    """

    revision: int
    text: str


@dataclass(frozen=True)
class Snapshot:
    """The contents of a store at one moment.

    Parameters
    ----------
    version : int
        A number that increases with every commit.
    manifest : dict
        The manifest as plain data, from which `tiltframe.store.log.manifest.Manifest.from_dict` restores it.
    parts : tuple of Part
        All readable parts of all levels.
    records : name -> Record
        The requested records that exist.
    """

    version: int
    manifest: Mapping[str, Any]
    parts: tuple[Part, ...]
    records: Mapping[str, Record]

    @property
    def texts(self) -> dict[str, str]:
        """The text of each record, by name."""
        return {name: record.text for name, record in self.records.items()}

    def text(self, name: str) -> str | None:
        """Return the text of a record.

        Parameters
        ----------
        name : str
            One of the names that were requested when the snapshot was made.

        Returns
        -------
        str or None
            None if there is no record of this name.
        """
        record = self.records.get(name)
        return None if record is None else record.text

    def revision(self, name: str) -> int | None:
        """Return the revision of a record.

        Parameters
        ----------
        name : str
            One of the names that were requested when the snapshot was made.

        Returns
        -------
        int or None
            None if there is no record of this name.
        """
        record = self.records.get(name)
        return None if record is None else record.revision

    def of(self, level: str) -> tuple[Part, ...]:
        """Return the parts of a level.

        Parameters
        ----------
        level : str
            A level's name.

        Returns
        -------
        tuple of Part
        """
        return self._parts_by_level.get(level, ())

    @cached_property
    def _parts_by_level(self) -> Mapping[str, tuple[Part, ...]]:
        parts_by_level: dict[str, list[Part]] = {}
        for part in self.parts:
            parts_by_level.setdefault(part.level, []).append(part)
        return {level: tuple(parts) for level, parts in parts_by_level.items()}

    def pieces(self, level: str, span: Range) -> PartRanges:
        """Return the parts of a level that have windows in a range.

        Parameters
        ----------
        level : str
            A level's name.
        span : (int, int)
            A range ``[from, to)`` of window starts, in microseconds UTC.

        Returns
        -------
        list of (Part, (int, int))
            Each part with the intersection of its range and ``span``, in the order of `of`.
        """
        parts = self.of(level)
        first_starts, last_starts = self._starts_by_level.get(level, (_NO_STARTS, _NO_STARTS))
        numbers = np.flatnonzero((first_starts < span[1]) & (last_starts >= span[0])).tolist()
        return pieces_of((parts[number] for number in numbers), [span])

    @cached_property
    def _starts_by_level(self) -> Mapping[str, tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """The starts of the first and of the last windows of the parts of each level. A level may have thousands of
        parts, so that queries of a short range compare arrays.
        """
        return {
            level: (
                np.array([part.first_start for part in parts], np.int64),
                np.array([part.last_start for part in parts], np.int64),
            )
            for level, parts in self._parts_by_level.items()
        }

    def names_within(self, level: str, span: Range) -> set[str]:
        """Return the names of a level's parts that have windows in a range.

        Parameters
        ----------
        level : str
            A level's name.
        span : (int, int)
            A range ``[from, to)`` of window starts, in microseconds UTC.

        Returns
        -------
        set of str
        """
        return {part.name for part, _ in self.pieces(level, span)}
