"""Maintenance: compaction, expiry, replacement and verification of a store, while others read and write."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from aggr.arguments import checked_names, checked_truth, shown
from tiltframe.ranges import Range
from tiltframe.store.backends.open import backend_at, check_options, checked_uri
from tiltframe.store.backends.protocol import Vacuumed
from tiltframe.store.changes.compaction import compact, mergeable
from tiltframe.store.changes.copying import copy
from tiltframe.store.changes.expiry import expire
from tiltframe.store.changes.replacement import Replacement, check_whole, checked_finest, replace_range
from tiltframe.store.changes.result_tables import export_level, exported_levels
from tiltframe.store.log.manifest import Manifest, check_name
from tiltframe.store.log.records import checked_records, expected_texts
from tiltframe.store.query.execution import held_range, moment
from tiltframe.store.reading import Reading
from tiltframe.store.report import Report, inspect
from tiltframe.store.verify import VerifyReport, verify_store
from tiltframe.tabular import table_of
from tiltframe.time_range import read_age, read_time_range


class Maintenance(Reading):
    """The part of `tiltframe.FrameStore` that looks after it."""

    check_states: Callable[[pa.Schema], pa.Schema]
    ensure_created: Callable[[pa.Schema], Manifest]

    def replace(
        self,
        states: Any,
        within: Any,
        recorded: Mapping[str, Any] | None = None,
        replacing: Mapping[str, Any] | None = None,
    ) -> None:
        """Replace the windows of a range in every level, at once.

        Parameters
        ----------
        states : table
            As `tiltframe.rollup` gives it, of rows in the range; whatever `append` takes.
        within : range
            Of whole windows of the finest level; as for `query`.
        recorded, replacing : name -> plain data, optional
            What the store records with it, and what it replaces, as for `append`.

        Raises
        ------
        ValueError
            If they are not states of this frame, as for `append`; if states lie outside the range, or the range is not
            of whole windows, or windows that coarser ones are made of have expired.
        """
        table = table_of(states, "states")
        # everything is checked before begin_replacement, which creates a store that does not exist yet
        finest = checked_finest(table, self.frame, self._replaced_range(within))
        self._backend.check_values(finest)
        replacement = self.begin_replacement(within, table.schema, recorded, replacing)
        replacement.commit([replacement.write_checked(finest)])

    def begin_replacement(
        self,
        within: Any,
        states: pa.Schema,
        recorded: Mapping[str, Any] | None = None,
        replacing: Mapping[str, Any] | None = None,
    ) -> Replacement:
        """Begin a replacement whose states many processes write.

        Parameters
        ----------
        within, recorded, replacing : range and mappings
            As `replace` takes them.
        states : pa.Schema
            As `tiltframe.TiltFrame.states_schema` returns it.

        Returns
        -------
        Replacement
            It pickles. Its ``write(states)`` returns a receipt, in any process, and ``commit(receipts)`` ends it.

        Raises
        ------
        ValueError, StoreError
            As `replace` does.
        """
        span = self._replaced_range(within)
        texts, unchanged = checked_records(recorded), expected_texts(recorded, replacing)
        return Replacement(self._backend, self.ensure_created(states), span, texts, unchanged)

    def _replaced_range(self, within: Any) -> Range:
        return check_whole(read_time_range(within, self.frame.timezone), self.frame)

    def rebuild(self, within: Any = None) -> None:
        """Derive coarser levels again from finer ones.

        Parameters
        ----------
        within : range, optional
            As for `query`; of whole windows of the coarsest level. By default wherever the finest level holds windows.

        Raises
        ------
        ValueError
            If the range cannot be read, is not of whole windows, or finer windows that are needed have expired.
        StoreError
            For a store that holds nothing or is damaged.
        """
        manifest = self.manifest
        span = held_range(self._backend, manifest) if within is None else read_time_range(within, self.frame.timezone)
        if span is not None:
            replace_range(self._backend, manifest, None, check_whole(span, self.frame))

    def compact(
        self, before: Any = None, progress: Callable[[int, int], None] = lambda done, of: None
    ) -> dict[str, tuple[int, int]]:
        """Merge the parts of closed windows.

        Plain tables of results that are kept (`export`) are brought up to date.

        Parameters
        ----------
        before : moment, optional
            Windows that end after it are still open; the clock's time by default.
        progress : callable of (parts merged, parts to merge), optional

        Returns
        -------
        dict of level name -> (parts that were merged, parts that they became)

        Raises
        ------
        ValueError
            If ``before`` cannot be read, or ``progress`` cannot be called.
        StoreError
            For a store that holds nothing or is damaged.

        Guarantee
        ---------
        Results stay the same, to the bit; others may read and write at the same time.
        """
        manifest, at = self.manifest, moment(before, self.frame.timezone)
        _check_progress(progress)
        merged = compact(self._backend, manifest, at, progress)
        for level in exported_levels(self._backend, manifest):
            try:
                export_level(self._backend, manifest, level, moment(None, self.frame.timezone))
            except OverflowError as error:  # the parts are merged, and queries of other windows have results
                warnings.warn(f"the plain table of {level} is not up to date: {error}", stacklevel=2)
        return merged

    def export(self, per: str | Sequence[str] | None = None, flat: bool = True, now: Any = None) -> dict[str, int]:
        """Keep results of levels as plain tables, ``<name>_<level>_flat``: for tools that know nothing of states.

        In a folder or object store each is a Delta table of its own, which any reader of Delta reads; in PostgreSQL a
        table, from which the view ``<name>_<level>_current`` takes quantiles. `compact` brings those that are there
        up to date, and so does this.

        Parameters
        ----------
        per : level or levels, optional
            All of them unless given.
        flat : bool
            Records as plain columns, ``latency_p99``; other tables are not kept.
        now : moment, optional
            For ``partial``; the clock's.

        Returns
        -------
        level name -> rows that were written: those of windows that have changed

        Raises
        ------
        ValueError
            For a level that is not there, and for names of columns that clash.
        StoreError
            Where the backend keeps no such tables.
        """
        if not checked_truth(flat, "flat"):
            raise ValueError("plain tables are flat; read records by query()")
        manifest, at = self.manifest, moment(now, self.frame.timezone)
        named = [per] if isinstance(per, str) else per
        given = self.frame.levels if named is None else checked_names(named, "per", "levels")
        levels = [self.frame.level(level).name for level in given]
        return {level: export_level(self._backend, manifest, level, at) for level in levels}

    def expire(self, now: Any = None) -> dict[str, tuple[int, int]]:
        """Remove windows that are older than their level's retention.

        Parameters
        ----------
        now : moment, optional
            What age is measured from; the clock's time by default.

        Returns
        -------
        dict of level name -> (time before which the level holds no windows, rows removed)
            The time in microseconds UTC.

        Raises
        ------
        ValueError
            If ``now`` cannot be read.
        StoreError
            For a store that holds nothing or is damaged.
        """
        return expire(self._backend, self.manifest, moment(now, self.frame.timezone))

    def vacuum(self, older_than: str = "1d") -> Vacuumed:
        """Remove files, or rows of a database, that were replaced, retracted, expired or never committed.

        Parameters
        ----------
        older_than : str
            A duration, such as ``1d``, longer than any query or commit takes. With ``0s`` all of them are removed, for
            erasure: no other process may read or write meanwhile, since its files are removed too.

        Returns
        -------
        Vacuumed
            The number of files, or rows of a database, that were removed, an int. Its ``kept`` is the number of those
            that are not old enough, and ``kept_until`` the time, in seconds since 1970, from which on the same call
            removes all of them.

        Raises
        ------
        ValueError
            If the duration cannot be read.
        StoreError
            For a store that holds nothing.
        """
        seconds = read_age(older_than)
        _ = self.manifest  # raises where the store holds nothing
        return self._backend.vacuum(seconds)

    def verify(self, progress: Callable[[int, int], None] = lambda done, of: None) -> VerifyReport:
        """Verify the whole store: log, files, states, levels against each other; reads everything, changes nothing.

        Parameters
        ----------
        progress : callable of (rows checked, rows to check), optional

        Returns
        -------
        VerifyReport
            ``ok``, and in ``problems`` a sentence for everything that is damaged or lost.

        Raises
        ------
        ValueError
            If ``progress`` cannot be called.
        StoreError
            For a store that holds nothing.
        """
        _check_progress(progress)
        return verify_store(self._backend, self.manifest, progress)

    def copy_to(
        self,
        uri: str | os.PathLike[str],
        *,
        name: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        durable: bool = False,
        progress: Callable[[int, int], None] = lambda done, of: None,
    ) -> int:
        """Copy the store into another place, a folder, object store or database, or bring a copy up to date.

        Parameters
        ----------
        uri, storage_options, durable : str or path, mapping and bool
            Of the copy, as `tiltframe.FrameStore` takes them.
        name : str, optional
            Of the copy; that of the store unless given.
        progress : callable of (states copied, states to copy), optional

        Returns
        -------
        int
            How many states were written: of a copy that is there, those that have changed since.

        Raises
        ------
        ValueError, StoreError
            For a place that cannot be a store; where another store is there, or the copy has been written to since.

        Guarantee
        ---------
        The copy is there at once, as of one moment, with the same bits, and with all that is recorded: a writer whose
        commit is in it may try that again. Killed at any moment, it goes on when it is called again. Others may be at
        work in the store meanwhile.

        Examples
        --------
        >>> import aggr, tempfile
        >>> from tiltframe import FrameStore, TiltFrame
        >>> store = FrameStore(tempfile.mkdtemp(), TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}))
        >>> store.append_rows(pa.table({"ts": [0, 60_000]}), writer="docs", commit=1)
        True
        >>> place = tempfile.mkdtemp()
        >>> store.copy_to(place), store.copy_to(place)
        (3, 0)
        >>> FrameStore(place).query("1h").column("n").to_pylist()
        [2]
        """
        _check_progress(progress)
        name = check_name(self.manifest.name if name is None else name)
        options = check_options(storage_options)
        target = backend_at(checked_uri(uri), name, options, checked_truth(durable, "durable")).store_named(name)
        if (target.display_uri, name) == (self._backend.display_uri, self.manifest.name):
            raise ValueError(f"the store {target.display_uri} would be copied onto itself; give another place or name")
        return copy(self._backend, target, name, progress)

    def inspect(self) -> Report:
        """Report what the store holds: for each level its range, rows, bytes, parts, gaps and retention."""
        return inspect(self._backend, self.manifest)

    def waiting_parts(self) -> dict[str, int]:
        """Count the parts that compaction will merge once their windows are closed; none if the store is not made.

        Returns
        -------
        dict of level name -> int

        Raises
        ------
        StoreError
            If the store cannot be read.
        """
        snapshot = self._backend.snapshot()
        parts = {level: snapshot.of(level.name) if snapshot else () for level in self.frame.levels}
        return {level.name: sum(map(len, mergeable(parts[level], level))) for level in parts}


def _check_progress(progress: object) -> None:
    if not callable(progress):
        raise ValueError(f"progress must be a function of how much is done, and of how much; got {shown(progress)}")
