"""Reading: the ways to ask a store, each of a `Query`, and to see what has changed in it."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from aggr.arguments import checked_type
from aggr.arrow import compute as pc
from tiltframe.frame import TiltFrame
from tiltframe.store.backends.protocol import Backend
from tiltframe.store.log.manifest import Manifest
from tiltframe.store.log.records import snapshot_of
from tiltframe.store.query.changed_windows import Changes, Seen, changes
from tiltframe.store.query.execution import Answer, ask, read, states_of, warn_of_missing
from tiltframe.store.query.lookup import Unmapped, noting_unmapped
from tiltframe.store.query.partitions import PlannedQuery, plan_of
from tiltframe.store.query.plan import plan_query
from tiltframe.store.query.query import Query, asking
from windows import TimeWindow


class Reading(ABC):
    """The part of `tiltframe.FrameStore` that answers."""

    frame: TiltFrame
    _backend: Backend

    @property
    @abstractmethod
    def manifest(self) -> Manifest:
        """What the store says of itself."""

    @asking(Query)
    def query(self, query: Query) -> pa.Table:
        """Read results; a query never changes a state.

        Parameters
        ----------
        per, within, where, measures, keys, fill, order_by, limit : optional
            As `Query` takes them, where each is described.
        now, flat, having, points, timezone, latest, edges : optional
            As `Query` takes them.

        Returns
        -------
        table
            level, window_start, window_end, keys, a column per measure, or per field of its records, and ``partial``:
            whether the window is not over yet, or reaches into what its level has expired. Starts and ends are in the
            zone that is asked for, or the frame's.

        Raises
        ------
        ValueError
            For what cannot be asked, saying what can.
        StoreError
            For a store that holds nothing or is damaged.

        Guarantee
        ---------
        `Expired` is warned of if a level that is read no longer holds all of the range, `NotKnown` if a measure was
        added later, and `Unmapped` if a lookup has nothing for some keys.
        """
        return pa.concat_tables(self._noting(self._warned(self.ask(query)), query))

    @asking(Query)
    def query_slices(self, query: Query) -> Iterator[pa.Table]:
        """Read results as `query` does, some windows at a time, in memory that does not grow with them.

        Parameters
        ----------
        per, within, where, measures, keys, fill, order_by, limit : optional
            As `Query` takes them. With ``fill`` or ``edges`` the states, with ``order_by`` the results are held.
        now, flat, having, points, timezone, latest, edges : optional
            As `Query` takes them.

        Returns
        -------
        iterator of tables
            At least one, perhaps without rows. They are of one moment, but for rows that are merged meanwhile.

        Raises
        ------
        ValueError, StoreError
            As `query` does, for what cannot be asked before anything is read.

        Examples
        --------
        >>> import aggr, tempfile
        >>> from tiltframe import FrameStore, TiltFrame
        >>> store = FrameStore(tempfile.mkdtemp(), TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}))
        >>> store.append_rows(pa.table({"ts": [0, 60_000, 3_600_000]}), writer="docs", commit=1)
        True
        >>> sum(table.num_rows for table in store.query_slices(per="1m"))
        3
        """
        return self._noting(self._warned(self.ask(query)), query)

    def plan(self, query: Query, as_states: bool = False) -> PlannedQuery:
        """Plan a query per one kind of window, so that its parts run in other processes.

        Parameters
        ----------
        query : Query
        as_states : bool
            Give the states of a level in place of results.

        Returns
        -------
        PlannedQuery
            It pickles. ``partitions(rows)`` cuts its range, and ``read(partition)`` gives the results of a part.

        Raises
        ------
        ValueError, StoreError
            For what cannot be asked, and for a store that holds nothing or is damaged.

        Examples
        --------
        >>> import aggr, tempfile
        >>> from tiltframe import FrameStore, Query, TiltFrame
        >>> store = FrameStore(tempfile.mkdtemp(), TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}))
        >>> store.append_rows(pa.table({"ts": [0, 60_000, 3_600_000]}), writer="docs", commit=1)
        True
        >>> plan = store.plan(Query(per="1m"))
        >>> [row for part in plan.partitions(rows=1) for row in plan.read(part)["n"].to_pylist()]
        [1, 1, 1]
        """
        return plan_of(self._backend, self.manifest, query, as_states)

    def ask(self, query: Query) -> Answer:
        """Answer a query that is a value.

        Parameters
        ----------
        query : Query

        Returns
        -------
        Answer
            The schema, an iterator of tables, and what has expired, of which nothing is warned.

        Raises
        ------
        ValueError, StoreError
            As `query` does, for what cannot be asked before anything is read.

        Examples
        --------
        >>> import aggr, tempfile
        >>> from tiltframe import FrameStore, TiltFrame
        >>> store = FrameStore(tempfile.mkdtemp(), TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}))
        >>> store.append_rows(pa.table({"ts": [0, 60_000, 3_600_000]}), writer="docs", commit=1)
        True
        >>> store.ask(Query.from_json('{"per": "1h", "measures": {"twice": "2 * n"}}')).table()["twice"].to_pylist()
        [4, 2]
        """
        return ask(self._backend, self.manifest, checked_type(query, Query, "a query"))

    def query_schema(self, query: Query) -> pa.Schema:
        """Tell the schema of the results of a query, reading none.

        Parameters
        ----------
        query : Query

        Returns
        -------
        pa.Schema

        Raises
        ------
        ValueError, StoreError
            As `query` does.
        """
        return self.ask(query).schema

    def key_values(self, key: str, within: Any = None) -> pa.Array:
        """List the values that a key has, to choose from.

        Parameters
        ----------
        key : str
            Of the frame.
        within : range, optional
            Of windows, as `Query` takes it.

        Returns
        -------
        array
            Each value once, ascending; null, if it is one, is the last.

        Raises
        ------
        ValueError
            For a key that the frame has not, or a range that cannot be read.
        StoreError
            For a store that holds nothing or is damaged.
        """
        plan = replace(plan_query(self.frame, Query(within=within, keys=[key])), measures={})
        values = pa.concat_tables(read(self._backend, self.manifest, plan)[0]).column(key).combine_chunks()
        return values.take(pc.sort_indices(values))

    def version(self) -> int:
        """Number what the store holds now: any commit, and any change of its frame, gives it a greater number.

        Returns
        -------
        int
            Equal ones stand for equal answers to queries that name their ``now``.
        """
        return snapshot_of(self._backend).version

    def changes(self, since: Seen | None = None) -> Changes:
        """Find the windows that have changed since the store was looked at.

        Parameters
        ----------
        since : Seen, optional
            Of the call before; all windows that there are unless given.

        Returns
        -------
        Changes
            ``windows``, a table of level, window_start, window_end and keys of what came, changed or is gone; and
            ``seen`` for the next call, which ``to_json`` writes.

        Raises
        ------
        ValueError
            If that was not seen.
        StoreError
            For a store that holds nothing or is damaged.

        Guarantee
        ---------
        A window whose state, or whose being there, is another than it was is in it. One that only `compact` has
        rewritten is not, unless what it was before has been vacuumed.

        Examples
        --------
        >>> import aggr, tempfile
        >>> from tiltframe import FrameStore, TiltFrame
        >>> store = FrameStore(tempfile.mkdtemp(), TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}))
        >>> store.append_rows(pa.table({"ts": [0, 60_000]}), writer="docs", commit=1)
        True
        >>> seen = store.changes().seen
        >>> store.append_rows(pa.table({"ts": [60_000]}), writer="docs", commit=2)
        True
        >>> [(row["level"], row["window_start"].minute) for row in store.changes(seen).windows.to_pylist()]
        [('1m', 1), ('1h', 0)]
        """
        return changes(self._backend, self.manifest, None if since is None else checked_type(since, Seen, "since"))

    def states(self, per: str | TimeWindow, within: Any = None, where: str | None = None) -> pa.Table:
        """Read the merged states of a level.

        Parameters
        ----------
        per : str or TimeWindow
            A level.
        within : (start, end) or str, optional
            Windows that start in this range, as for `query`.
        where : str, optional
            A condition in SQL on the keys.

        Returns
        -------
        table
            level, window_start, window_end, keys, a struct for each column of states, as `tiltframe.rollup` gives it:
            one row for each window and key.

        Raises
        ------
        ValueError
            If the frame has no such level, or the range or the condition cannot be read.
        StoreError
            For a store that holds nothing or is damaged.
        """
        return self._warned(self.ask_states(per, within, where)).table()

    def ask_states(self, per: str | TimeWindow, within: Any = None, where: str | None = None) -> Answer:
        """Read the merged states of a level as `states` does, some windows at a time, and warn of nothing.

        Parameters
        ----------
        per, within, where : str or window, range and str
            As `states` takes them.

        Returns
        -------
        Answer

        Raises
        ------
        ValueError, StoreError
            As `states` does.
        """
        query = Query(self.frame.level(per), within, where)
        return states_of(self._backend, self.manifest, plan_query(self.frame, query))

    def plot(self, measure: str, quantiles: Sequence[float] | None = None, **asked: Any) -> Any:
        """Plot a measure over time, as steps from window to window; levels over each other, the finer ones paler.

        Parameters
        ----------
        measure : str
            Of the frame. Of a record its quantiles are shown; of one without quantiles all of its numbers.
        quantiles : numbers from 0 to 1, optional
            In place of the measure's own.
        asked : keyword arguments
            ``ax`` to draw on, and what `query` takes: ``per``, or several of them, ``within``, ``where``, ``points``;
            ``keys`` give a line each. Keys are merged over, and there are at most 500 points, unless something else is
            asked.

        Returns
        -------
        matplotlib axes
            Times are those of the zone of the results. Windows that are not over yet, or reach into what has expired,
            are dotted; where there is no window, there is no line.

        Raises
        ------
        ValueError
            For a measure that is not there, or is of no numbers; for more lines than can be told apart.
        MissingExtra
            Without matplotlib.
        """
        from tiltframe.store.plot import plot  # which needs matplotlib

        return plot(self, measure, quantiles, **asked)

    @staticmethod
    def _noting(answer: Answer, query: Query) -> Iterator[pa.Table]:
        return noting_unmapped(answer.slices, query.lookups, lambda said: warnings.warn(said, Unmapped, stacklevel=5))

    @staticmethod
    def _warned(answer: Answer) -> Answer:
        warn_of_missing(answer.expired, answer.unknown, stacklevel=4)
        return answer
