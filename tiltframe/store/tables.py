"""Tables: what a store needs of whatever keeps its states, Delta Lake or PostgreSQL.

One table a level. Rows come in *parts*, the rows of one commit within one bucket of time; a commit makes parts
readable, and others not, in one level, at once or not at all. What is written and never committed is read by nobody.

    write, by many tasks ──▶ parts ──▶ commit(level, add, cut, covers)     one moment
    view(…)                        ──▶ which parts each level has          as of one moment each, finest first
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from windows import Window, window

WRITER, COMMIT, BUCKET = "writer", "commit", "bucket"
OWN = "tiltframe:"  # writers of this name are the store's own
MERGED = "tiltframe:merged"  # states of many commits, all of which every coarser level holds
CHANGED = "tiltframe:changed"  # in the finest level, grows with every replacement and expiry: one at a time
EXPIRED = "tiltframe:expired"  # its number is the time before which a level holds no windows, microseconds UTC

_NUMPY_UNITS = {"h": "h", "d": "D", "mo": "M", "y": "Y"}

Range = tuple[int, int]  # [from, to) of window starts, microseconds UTC


class StoreError(ValueError):
    """A store is missing, damaged, newer than this release, of another frame, or cannot be reached."""


class Conflict(Exception):
    """Someone else has changed what a commit was about; nothing was written: look again, and try again."""


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
        Starts of the first and the last window, microseconds UTC; of a part without rows, the beginning of its bucket.
    rows, bytes : int
        How much it is. PostgreSQL does not tell the bytes of rows: 0.
    name : str
        Where it is: a file; in PostgreSQL nothing, the table and the columns above say it.
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
        """Return what the part and a range have in common; None if nothing."""
        low, high = max(self.least, span[0]), min(self.greatest + 1, span[1])
        return (low, high) if low < high else None


@dataclass(frozen=True)
class View:
    """What a level held at one moment: its parts, and the last number of each writer asked about."""

    level: str
    parts: tuple[Part, ...]
    covers: Mapping[str, int]

    def holds(self, part: Part) -> bool:
        """Say whether the level holds what a part of a finer level brought."""
        return part.writer == MERGED or self.covers.get(part.writer, -1) >= part.commit


class Tables(Protocol):
    """One table a level, and a description of the store; see `tiltframe.store.delta` and `tiltframe.store.postgres`.

    Implementations are small values that pickle: tasks in other processes write and read through them.
    """

    @property
    def uri(self) -> str:
        """Where the store is."""

    @property
    def place(self) -> str:
        """Where the store is, as may be shown: without a password."""

    def named(self, name: str) -> Tables:
        """Say which store is meant, where a place may hold several."""

    def describe(self) -> dict[str, Any] | None:
        """Read the store's description; None where there is no store. Raises `StoreError` for a damaged one."""

    def create(self, description: Mapping[str, Any], schema: pa.Schema) -> None:
        """Make the tables of a store; whoever comes second changes nothing, and finds the first one's description."""

    def alter(self, description: Mapping[str, Any]) -> None:
        """Replace the description."""

    def view(self, levels: Sequence[str], writers: Iterable[str] = ()) -> list[View]:
        """Look at levels, in the order given, which is from fine to coarse.

        Each view knows the last number of every writer named, and of every writer of a part in any of the views.
        """

    def write(self, level: str, states: pa.Table, writer: str, commit: int) -> list[Part]:
        """Write states (window_start, keys, states) that nobody reads yet: one part for each bucket.

        May run in many processes at once; doing it again is harmless.
        """

    def commit(
        self,
        level: str,
        add: Sequence[Part],
        cut: Sequence[tuple[Part, Range]] = (),
        covers: Mapping[str, int] | None = None,
        seen: View | None = None,
    ) -> None:
        """Make parts readable, cut ranges out of others, and note the last numbers of writers, at once.

        Raises `Conflict`, and changes nothing, where a part that is cut is no longer as it was seen, or the last
        number of a writer that ``covers`` names is no longer as the level's view had it, if that is given.
        """

    def read(self, parts: Sequence[tuple[Part, Range]], columns: Sequence[str]) -> pa.Table:
        """Read the rows of parts whose windows start in the ranges: window_start and the columns asked for.

        Raises `Conflict` where a part is gone since it was seen, `StoreError` where it is damaged.
        """

    def clean(self, older_than: float) -> int:
        """Remove what nobody reads any more and is older than some seconds; return how many files or rows."""

    def size(self, level: str) -> int:
        """Return the bytes that a level takes."""


def expired_in(level: str) -> str:
    """Name what the finest level notes before a coarser one expires windows."""
    return f"{EXPIRED} {level}"


def bucket_of(level: Window) -> Window:
    """Choose how a level's rows are kept together: by the shortest of hour, day, month, year with 300 windows, in UTC.

    >>> [bucket_of(window(size)).name for size in ("1s", "10s", "1m", "10m", "1h", "1d", "1y")]
    ['1h', '1h', '1d', '1mo', '1mo', '1y', '1y']
    """
    sizes = [window(size) for size in ("1h", "1d", "1mo", "1y")]
    return next((size for size in sizes if size.sort_key >= 300 * level.sort_key), sizes[-1])


def bucket_names(starts: NDArray[np.int64], level: Window) -> NDArray[np.str_]:
    """Name the bucket of each window by its beginning: ``2024-05-01T13``, ``2024-05-01``, ``2024-05`` or ``2024``."""
    bucket = bucket_of(level)
    begins = bucket.starts(starts).astype("datetime64[us]")
    names: NDArray[np.str_] = begins.astype(f"datetime64[{_NUMPY_UNITS[bucket.unit]}]").astype(np.str_)
    return names


def check_name(name: str) -> str:
    """Check a store's name, which becomes part of tables' names; raises ``ValueError``."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,30}", name):
        raise ValueError(f"a store's name is letters, digits and _, from a letter, at most 31; got {name!r}")
    return name


def whole_path(uri: str) -> str:
    """Give a folder by its whole path: other processes may run in other folders. URIs stay as they are."""
    return uri if "://" in uri else os.path.abspath(uri)
