"""Upkeep: what keeps a store small, whole and right; readers and writers go on meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tiltframe.frame import LEVEL, START, TiltFrame
from tiltframe.store.answer import held_range, moment
from tiltframe.store.compact import catch_up, merge_parts
from tiltframe.store.description import Description
from tiltframe.store.inspect import Report, inspect
from tiltframe.store.replace import replace_range
from tiltframe.store.retention import expire
from tiltframe.store.tables import Tables
from tiltframe.store.within import read_within
from windows import window


class Kept(Protocol):
    """What upkeep needs of a store."""

    frame: TiltFrame
    _tables: Tables

    def prepare(self, states: pa.Schema) -> Description:
        """Make the store, if it is not there."""

    def _held(self) -> Description: ...


class Upkeep:
    """The part of `tiltframe.FrameStore` that looks after it."""

    def replace(self: Kept, states: pa.Table, within: Any) -> None:
        """Replace the windows of a range in every level, at once.

        Parameters
        ----------
        states : table
            As `tiltframe.rollup` gives it, of rows in the range.
        within : range
            Of whole windows of the finest level; as for `query`.

        Raises
        ------
        ValueError
            If states lie outside the range, or the range is not of whole windows, or windows that coarser ones are
            made of have expired.
        """
        kept = self.prepare(states.schema)
        span = read_within(within, self.frame.timezone)
        finest = states.filter(pc.equal(states.column(LEVEL), self.frame.levels[0].name))
        starts = finest.column(START).cast(pa.int64()).to_numpy()
        if ((starts < span[0]) | (starts >= span[1])).any():
            raise ValueError("there are states outside the range that is to be replaced; leave out their rows")
        replace_range(self._tables, kept, finest, span)

    def rebuild(self: Kept, within: Any = None) -> None:
        """Derive coarser levels anew from finer ones, in a range or wherever the finest level is held."""
        kept = self._held()
        span = read_within(within, self.frame.timezone) if within is not None else held_range(self._tables, kept)
        if span is not None:
            replace_range(self._tables, kept, None, span)

    def catch_up(self: Kept) -> int:
        """Have coarser levels take over what finer ones hold; returns how many commits were missing somewhere."""
        return catch_up(self._tables, self._held())

    def compact(
        self: Kept, before: Any = None, progress: Callable[[int, int], None] = lambda done, of: None
    ) -> dict[str, tuple[int, int]]:
        """Have coarser levels catch up with finer ones, and merge the parts of closed windows; readers notice nothing.

        Parameters
        ----------
        before : moment, optional
            Windows that end after it are still open; the clock's time by default.
        progress : called with how many parts have been merged, and of how many

        Returns
        -------
        level name -> (parts that were merged, parts that they became)
        """
        kept = self._held()
        catch_up(self._tables, kept)
        return merge_parts(self._tables, kept, moment(before, self.frame.timezone), progress)

    def expire(self: Kept, now: Any = None) -> dict[str, tuple[int, int]]:
        """Remove windows that are older than their level's retention; coarser levels catch up first.

        Returns
        -------
        level name -> (the time before which the level holds no windows, microseconds UTC; rows removed)
        """
        return expire(self._tables, self._held(), moment(now, self.frame.timezone))

    def clean(self: Kept, older_than: str = "1d") -> int:
        """Remove what nobody reads: files that were replaced or never committed; returns how many.

        Parameters
        ----------
        older_than : duration
            Longer than any query or write takes.
        """
        self._held()
        return self._tables.clean(window(older_than).sort_key / 1e6)

    def inspect(self: Kept) -> Report:
        """Say what is there: for each level its range, rows, bytes, commits, gaps, retention."""
        return inspect(self._tables, self._held())
