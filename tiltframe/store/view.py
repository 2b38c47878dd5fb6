"""A view: a store at one moment, with the methods that query it.

The results of a query depend only on the manifest, a snapshot, the backend and a time. `tiltframe.FrameStore`, the
server, the command line and Spark all query views. A snapshot lists the parts of the store; a part consists of states
of one level that were written together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from aggr.arguments import checked_type
from tiltframe.frame import TiltFrame
from tiltframe.ranges import EVER
from tiltframe.store.backends.protocol import Backend, Snapshot
from tiltframe.store.creation import current_manifest
from tiltframe.store.log.manifest import Manifest
from tiltframe.store.log.records import available_from, column_starts, expired_before
from tiltframe.store.log.run import snapshot_of
from tiltframe.store.planned_join import PlannedJoin
from tiltframe.store.query.answer import Answer, Cost, PlannedRead
from tiltframe.store.query.changed_windows import Changes, SeenParts, changes
from tiltframe.store.query.execution import (
    PlannedQuery,
    plan_read,
    query_schema,
    read_states_with_level,
    results_of,
    states_schema,
)
from tiltframe.store.query.join import Join
from tiltframe.store.query.join_execution import Joined, join_rows, join_schema
from tiltframe.store.query.missing import messages_of_missing_data
from tiltframe.store.query.plan import QueryPlan, plan_queries
from tiltframe.store.query.query import Query
from tiltframe.store.query.resolution import finest_windows
from tiltframe.store.query.results import format_results
from tiltframe.time_range import moment_or_now, read_moment, read_time_range


@dataclass(frozen=True)
class HeldLevel:
    """The windows of one level in a store: their first and last times and the number of rows. These values are computed
    from the list of the level's parts, without reading states.

    Parameters
    ----------
    first_start, last_start : int or None
        The starts of the first and the last window, in microseconds UTC; None if the level has no windows.
    end : int or None
        The end of the last window, in microseconds UTC; None if the level has no windows.
    rows : int
        The number of rows of states.
    available_from : int
        The time before which windows of the level have expired, in microseconds UTC; the smallest possible time if no
        window has expired.
    has_expired : bool
        Whether windows of the level have expired. This includes windows that were not derived when the level was added,
        because their finer windows had expired.
    """

    first_start: int | None
    last_start: int | None
    end: int | None
    rows: int
    available_from: int
    has_expired: bool


@dataclass(frozen=True, eq=False)
class StoreView:
    """A store at one moment. All answers of a view are based on the same states and the same time.

    `tiltframe.FrameStore.at` returns it. A view is cheap to create, and later commits do not change it. If vacuum has
    removed a part that a compaction had replaced, the view reads the windows of this part from the current version of
    the store.

    Parameters
    ----------
    backend : Backend
    manifest : Manifest
    snapshot : Snapshot
    now : int
        The time for queries that do not specify ``now``, in microseconds UTC.
    jobs : int
        The number of threads of a query. Results do not depend on it.

    Examples
    --------
    >>> import aggr, tempfile, pyarrow as pa
    >>> from tiltframe import FrameStore, Query, TiltFrame
    >>> store = FrameStore(tempfile.mkdtemp(), TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}))
    >>> store.append_rows(pa.table({"ts": [0, 60_000]}), writer="docs", commit=1)
    True
    >>> before = store.at()
    >>> store.append_rows(pa.table({"ts": [0]}), writer="docs", commit=2)
    True
    >>> [view.ask(Query(per="1h")).table()["n"].to_pylist() for view in (before, store.at())]
    [[2], [3]]
    """

    backend: Backend
    manifest: Manifest
    snapshot: Snapshot
    now: int
    jobs: int = 1

    @classmethod
    def of(cls, backend: Backend, manifest: Manifest, now: int, *, jobs: int = 1) -> StoreView:
        """Return a view of a store at the current moment.

        Parameters
        ----------
        backend : Backend
        manifest : Manifest
        now : int
            The time for queries that do not specify ``now``, in microseconds UTC.
        jobs : int
            The number of threads that compute the results of a query.

        Returns
        -------
        StoreView

        Raises
        ------
        MissingStore
            If there is no store.
        OtherFrame
            If the store was deleted and created again with another frame since ``manifest`` was read.
        """
        snapshot = snapshot_of(backend)
        return cls(backend, current_manifest(backend, manifest, snapshot), snapshot, now, jobs=jobs)

    @property
    def frame(self) -> TiltFrame:
        """The frame of the store."""
        return self.manifest.frame

    @property
    def version(self) -> int:
        """The version of the store. While the version does not change, a query that passes ``now`` returns the same
        results.
        """
        return self.snapshot.version

    @property
    def content_id(self) -> str:
        """A text that differs between versions of the store, and between stores that existed at the same address."""
        return f"{self.manifest.store_id} {self.snapshot.version}"

    @property
    def seen(self) -> SeenParts:
        """The version and the parts of the store. Pass this object to `changes` of a later view to get the windows that
        have changed in between.
        """
        return SeenParts(self.snapshot.version, self.snapshot.parts)

    @property
    def known_from(self) -> Mapping[str, int]:
        """For each measure that was added later, the time in microseconds UTC before which its results are null."""
        starts = column_starts(self.snapshot)
        columns = {name: self.frame.state_of(name) for name in self.frame.measures}
        return {name: starts[column] for name, column in columns.items() if column in starts}

    def ask(self, query: Query) -> Answer:
        """Plan a query and return an answer, whose results are computed while they are read.

        Parameters
        ----------
        query : Query

        Returns
        -------
        Answer
            The schema, an iterator of tables, the estimated cost, and messages about expired windows. The messages are
            not emitted as warnings.

        Raises
        ------
        ValueError, StoreError
            If the query is invalid; the error is raised before anything is read.

        Examples
        --------
        >>> import aggr, tempfile, pyarrow as pa
        >>> from tiltframe import FrameStore, Query, TiltFrame
        >>> store = FrameStore(tempfile.mkdtemp(), TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}))
        >>> store.append_rows(pa.table({"ts": [0, 60_000, 3_600_000]}), writer="docs", commit=1)
        True
        >>> store.ask(Query.from_json('{"per": "1h", "measures": {"twice": "2 * n"}}')).table()["twice"].to_pylist()
        [4, 2]
        """
        plans = self._plans(query)
        schema = query_schema(self.manifest, plans[0], query)
        planned_reads = [plan_read(plan, self.snapshot, is_filled=bool(query.fill)) for plan in plans]
        results = self._results(planned_reads, query)
        answer = self._answer(schema, format_results(results, query, plans[0].timezone), planned_reads)
        return replace(answer, derived_keys=query.derived_keys) if query.derived_keys else answer

    def _results(self, planned_reads: list[PlannedRead], query: Query) -> Iterator[pa.Table]:
        """Yield the results of all kinds of windows in a query, one kind after another."""
        now = self._now(query)
        for planned_read in planned_reads:
            yield from results_of(self.backend, self.manifest, planned_read, query, now=now, jobs=self.jobs)

    def states(self, query: Query) -> Answer:
        """Read the merged states of windows, in tables with the columns of a rollup.

        Parameters
        ----------
        query : Query
            A query for one kind of window. Apart from ``per``, only ``within``, ``where``, ``measures`` and ``keys``
            are used.

        Returns
        -------
        Answer
            Tables with level, window_start, window_end, keys, and a struct for each column of states.

        Raises
        ------
        ValueError, StoreError
            If the query is invalid; the error is raised before anything is read.
        """
        planned_read = plan_read(self._plan(query), self.snapshot)
        slices = read_states_with_level(self.backend, self.manifest, planned_read, self.jobs)
        return self._answer(states_schema(self.manifest, planned_read.plan), slices, [planned_read])

    def windows(self, query: Query) -> Answer:
        """Return the windows and keys that have rows, without their states.

        Parameters
        ----------
        query : Query
            A query for one kind of window. Apart from ``per``, only ``within``, ``where`` and ``keys`` are used.

        Returns
        -------
        Answer
            Tables with level, window_start, window_end and keys.

        Raises
        ------
        ValueError, StoreError
            If the query is invalid; the error is raised before anything is read.
        """
        planned_read = plan_read(replace(self._plan(query), measures={}), self.snapshot)
        slices = read_states_with_level(self.backend, self.manifest, planned_read, self.jobs)
        return self._answer(states_schema(self.manifest, planned_read.plan), slices, [planned_read])

    def plan(self, query: Query, as_states: bool = False, *, stored_types: bool = False) -> PlannedQuery:
        """Plan a query for one kind of window, so that other processes can read its partitions.

        Parameters
        ----------
        query : Query
        as_states : bool
            If true, the plan returns the states of a level instead of results.
        stored_types : bool
            If true, a column of a type that Delta Lake and Spark do not support is returned in the type in which it is
            stored, such as decimal instead of uint64.

        Returns
        -------
        PlannedQuery
            The plan, which can be pickled. Its method ``partitions(rows)`` splits the range of the query into
            partitions, and ``read(partition)`` returns the results of one partition.

        Raises
        ------
        ValueError, StoreError
            If the query is invalid, or requests several kinds of windows.

        Examples
        --------
        >>> import aggr, tempfile, pyarrow as pa
        >>> from tiltframe import FrameStore, Query, TiltFrame
        >>> store = FrameStore(tempfile.mkdtemp(), TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}))
        >>> store.append_rows(pa.table({"ts": [0, 60_000, 3_600_000]}), writer="docs", commit=1)
        True
        >>> plan = store.plan(Query(per="1m"))
        >>> [row for part in plan.partitions(rows=1) for row in plan.read(part)["n"].to_pylist()]
        [1, 1, 1]
        """
        plan, *other_plans = self._plans(query)
        if other_plans:
            raise ValueError(
                f"the parameter 'per' names {1 + len(other_plans)} kinds of windows, which cannot be planned together; "
                "plan each kind separately"
            )
        expired_messages, unknown_messages = messages_of_missing_data(plan_read(plan, self.snapshot), self.snapshot)
        return PlannedQuery(
            self.backend,
            self.manifest,
            query,
            plan,
            as_states=as_states,
            stored_types=stored_types,
            expired=expired_messages,
            unknown=unknown_messages,
        )

    def join(self, rows: pa.Table, join: Join) -> Joined:
        """Join rows with the results of the store; `tiltframe.FrameStore.join` describes it.

        Parameters
        ----------
        rows : table
        join : Join

        Returns
        -------
        Joined
            The schema, an iterator of tables, and the cost, which is known before anything is read.

        Raises
        ------
        ValueError, StoreError
            If the join is invalid, or the store is damaged.

        Examples
        --------
        >>> import aggr, tempfile, pyarrow as pa
        >>> from tiltframe import FrameStore, TiltFrame
        >>> from tiltframe.store import Join
        >>> store = FrameStore(tempfile.mkdtemp(), TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}, ["host"]))
        >>> store.append_rows(pa.table({"ts": [0, 60_000], "host": ["a", "a"]}), writer="docs", commit=1)
        True
        >>> joined = store.at().join(pa.table({"host": ["a", "b"]}), Join(["host"], per="1h"))
        >>> pa.concat_tables(joined.slices)["n"].to_pylist()
        [2, None]
        """
        checked_type(rows, pa.Table, "the rows of a join")
        join = checked_type(join, Join, "a join")
        return join_rows(rows, join, self.ask, frame=self.frame, now=self._now(Query(**join.options)))

    def join_schema(self, rows: pa.Schema, join: Join) -> pa.Schema:
        """Return the schema of joined rows without reading states.

        Parameters
        ----------
        rows : pa.Schema
        join : Join

        Returns
        -------
        pa.Schema

        Raises
        ------
        ValueError, StoreError
            For the same reasons as `join`.
        """
        return join_schema(rows, join, self.ask, frame=self.frame, now=self._now(Query(**join.options)))

    def plan_join(self, rows: pa.Schema, join: Join) -> PlannedJoin:
        """Plan a join that runs in other processes, such as tasks of Spark, which have the rows.

        Parameters
        ----------
        rows : pa.Schema
            The schema of the rows.
        join : Join
            The arguments of the join.

        Returns
        -------
        PlannedJoin
            The plan, which can be pickled. Its method ``joined(tables)`` joins tables of rows with the store at one
            moment.

        Raises
        ------
        ValueError, StoreError
            If the join does not fit the columns of the rows or the store.

        Examples
        --------
        >>> import aggr, tempfile
        >>> from tiltframe import FrameStore, TiltFrame
        >>> from tiltframe.store import Join
        >>> store = FrameStore(tempfile.mkdtemp(), TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}, ["host"]))
        >>> store.append_rows(pa.table({"ts": [0, 60_000], "host": ["a", "a"]}), writer="docs", commit=1)
        True
        >>> events = pa.table({"host": ["a", "b"]})
        >>> planned = store.plan_join(events.schema, Join("host", per="1h"))
        >>> [row["n"] for table in planned.joined([events.slice(0, 1), events.slice(1)]) for row in table.to_pylist()]
        [2, None]
        """
        schema = self.join_schema(rows, join)
        current_view = partial(_current_view, self.backend, self.manifest)
        return PlannedJoin(current_view, join, row_schema=rows, result_schema=schema)

    def cost(self, query: Query) -> Cost:
        """Estimate how much a query reads and returns, without reading states.

        Parameters
        ----------
        query : Query

        Returns
        -------
        Cost
            The same cost as in the answer of `ask`.

        Raises
        ------
        ValueError, StoreError
            If the query is invalid.

        Examples
        --------
        >>> import aggr, tempfile, pyarrow as pa
        >>> from tiltframe import FrameStore, Query, TiltFrame
        >>> store = FrameStore(tempfile.mkdtemp(), TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}))
        >>> store.append_rows(pa.table({"ts": [0, 60_000, 120_000]}), writer="docs", commit=1)
        True
        >>> store.at().cost(Query(per="1m"))
        Cost(rows=3, windows=3)
        """
        return self.ask(query).cost

    def key_values(self, key: str, within: object = None) -> pa.Array:
        """Return the different values of a key in the store.

        Parameters
        ----------
        key : str
            A key of the frame.
        within : range, optional
            A range of windows, in the form that `Query` accepts.

        Returns
        -------
        array
            The different values, ascending; null is last.

        Raises
        ------
        ValueError
            If the frame does not have this key, or the range cannot be read.
        StoreError
            If the store is damaged.
        """
        values = self.windows(Query(within=within, keys=[key])).table().column(key).combine_chunks()
        return values.sort()

    def changes(self, since: SeenParts | None = None) -> Changes:
        """Return the windows that have changed since an earlier view.

        Parameters
        ----------
        since : SeenParts, optional
            The attribute ``seen`` of the earlier view. By default all windows of the store are returned.

        Returns
        -------
        Changes
            Its attribute ``windows`` is a table of the windows that were added, changed or removed, with level,
            window_start, window_end and keys. Its attribute ``seen`` is the argument of the next call;
            ``seen.to_json()`` converts it to text.

        Raises
        ------
        ValueError
            If ``since`` does not come from a view of this store.
        StoreError
            If the store is damaged.

        Guarantee
        ---------
        The table contains every window that was added or removed, or whose state changed, and no window that only
        `compact` has rewritten. If a vacuum has already removed the previous states, the table contains all windows of
        the new parts instead, and may lack removed windows.

        Examples
        --------
        >>> import aggr, tempfile, pyarrow as pa
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
        seen = None if since is None else checked_type(since, SeenParts, "since")
        return changes(self.backend, self.manifest, self.snapshot, seen)

    def level(self, name: str) -> HeldLevel:
        """Return the first and last times of a level's windows in the store, and the number of rows.

        Parameters
        ----------
        name : str
            The name of a level of the frame.

        Returns
        -------
        HeldLevel

        Raises
        ------
        ValueError
            If the frame does not have this level.
        """
        level = self.frame.level(name)
        parts = self.snapshot.of(level.name)
        first = min((part.first_start for part in parts), default=None)
        last = max((part.last_start for part in parts), default=None)
        return HeldLevel(
            first_start=first,
            last_start=last,
            end=None if last is None else int(level.ends(np.array([last], np.int64))[0]),
            rows=sum(part.rows for part in parts),
            available_from=available_from(self.snapshot, level.name),
            has_expired=level.name in expired_before(self.snapshot),
        )

    def _now(self, query: Query) -> int:
        """Return the time for a query, in microseconds UTC: the query's own ``now``, or else the view's ``now``."""
        zone = query.timezone or self.frame.timezone
        return self.now if query.now is None else read_moment(query.now, zone)

    def _plans(self, query: Query) -> list[QueryPlan]:
        """Return a plan for each kind of window in a query. All plans have the same range of time."""
        checked_type(query, Query, "a query")
        now = self._now(query)
        zone = query.timezone or self.frame.timezone
        within = EVER if query.within is None else read_time_range(query.within, zone, now, open_ends=True)
        requested_windows = query.sizes
        if query.points is not None:
            requested_windows = (
                finest_windows(self.snapshot, self.frame, within=within, points=query.points, timezone=zone),
            )
        return plan_queries(self.frame, query, within=within, requested_windows=requested_windows, now=now)

    def _plan(self, query: Query) -> QueryPlan:
        plan, *other_plans = self._plans(query)
        if other_plans:
            raise ValueError(
                f"the parameter 'per' names {1 + len(other_plans)} kinds of windows, which cannot be read together; "
                "read each kind separately"
            )
        return plan

    def _answer(self, schema: pa.Schema, slices: Iterator[pa.Table], planned_reads: list[PlannedRead]) -> Answer:
        """Return an answer with the messages about expired windows and about measures that were added later."""
        missing = [messages_of_missing_data(planned_read, self.snapshot) for planned_read in planned_reads]
        expired_messages = dict.fromkeys(sentence for sentences, _ in missing for sentence in sentences)
        unknown_messages = dict.fromkeys(sentence for _, sentences in missing for sentence in sentences)
        return Answer(
            schema, slices, expired=tuple(expired_messages), unknown=tuple(unknown_messages), readings=planned_reads
        )


def _current_view(backend: Backend, manifest: Manifest) -> StoreView:
    """Return a view of a store at the current moment."""
    return StoreView.of(backend, manifest, moment_or_now(None, manifest.frame.timezone))
