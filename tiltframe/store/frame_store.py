"""The frame store: states in a folder, an object store or a database, and all ways to query them.

Queries use a view of the store at the current moment (`tiltframe/store/view.py`). The operations that change the store
are functions in `tiltframe/store/changes/`. `tiltframe/store/address.py` opens the backend of
the store, and `tiltframe/store/creation.py` reads or creates the manifest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial, wraps
from html import escape
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import pyarrow as pa

from aggr.arguments import checked_type, shown
from aggr.tables.column_uses import ColumnUses
from aggr.workers import checked_jobs
from tiltframe.caller_warnings import warn_caller
from tiltframe.frame import TiltFrame
from tiltframe.store.address import StoreAddress, checked_address
from tiltframe.store.backends.protocol import Backend, Vacuumed
from tiltframe.store.changes import append as appending
from tiltframe.store.changes import backfill as backfilling
from tiltframe.store.changes import commit as committing
from tiltframe.store.changes import (
    compaction,
    copying,
    expiry,
    group_commit,
    recording,
    replacement,
    result_tables,
    retraction,
)
from tiltframe.store.changes.evolution import evolve, set_retention
from tiltframe.store.changes.progress import Progress, check_progress
from tiltframe.store.checked_states import checked_levels
from tiltframe.store.creation import create_store, existing_manifest, frame_of_store, read_manifest
from tiltframe.store.log.carried_functions import FunctionClasses, carried_functions, register_missing
from tiltframe.store.log.manifest import Manifest, check_name, check_types, checked_retention, schema_of
from tiltframe.store.open_windows_backend import OpenWindowsBackend
from tiltframe.store.query.derived_keys import Unmapped
from tiltframe.store.query.join import Join
from tiltframe.store.query.join_keys import On
from tiltframe.store.query.merging import groups_to_compact
from tiltframe.store.query.missing import warn_of_missing
from tiltframe.store.query.query import Query, with_query_parameters
from tiltframe.store.report import Report, inspect
from tiltframe.store.types_from_store import with_stored_types
from tiltframe.store.verify import VerifyReport, verify_store
from tiltframe.store.view import StoreView
from tiltframe.tabular import consume, rows_of
from tiltframe.time_range import moment_or_now, read_age
from windows import TimeWindow

DEFAULT_NAME = "frame"

P = ParamSpec("P")
T = TypeVar("T")


def _method_of_view(method: Callable[Concatenate[StoreView, P], T]) -> Callable[Concatenate[FrameStore, P], T]:
    """Return a method of `FrameStore` with the parameters of ``method``, a method of `StoreView`. The returned method
    calls ``method`` on a view of the store at the current moment.
    """

    @wraps(method)
    def method_of_store(store: FrameStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(store.at(), *args, **kwargs)

    return method_of_store


class FrameStore:
    """A store for the states of a tilt frame, in a folder or object store (Delta Lake) or in PostgreSQL.

    A commit normally only adds states, which may belong to windows that the store already has; `replace`, `retract` and
    `expire` remove states. A query merges all states of a window. Each commit becomes visible completely and exactly
    once, even if its writer fails.

    Parameters
    ----------
    uri : str, path or Backend
        A folder, the URI of an object store such as ``s3://bucket/path``, or ``postgresql://user@host/database``. A
        backend of your own is accepted too (see `tiltframe.store.testing`); ``storage_options`` and ``durable`` are
        then not allowed.
    frame : TiltFrame, optional
        The frame of the store; optional if the store exists. Unless ``row_schema`` is passed, nothing is written before
        the first commit, because the types of states depend on the rows.
    name : str, optional
        The name of the store, by default ``"frame"``. The names of its tables begin with it, such as ``<name>_states``
        in PostgreSQL. In a database with several stores, the name selects the store.
    retention : level -> duration, optional
        How long `expire` keeps each level: ``{"10s": "1d", "1m": "7d", "1h": None}``. None means that windows are kept
        for ever. If the store exists, this argument replaces its retention.
    storage_options : str -> str, optional
        Options of the object store, with the names that deltalake uses.
    durable : bool
        Whether commits to a folder are written to the disk (``fsync``) before they are acknowledged, so that they
        survive a power failure. If False, commits survive the end of the process, but not a power failure. Object
        stores and databases are durable without this option.
    row_schema : schema, optional
        The schema of future rows. If the store does not exist, it is created at once, so that readers find it.
    jobs : int, optional
        The number of threads for rollups, queries, compaction and verification, by default one for each core that the
        process may use, up to 4. Small work uses one thread. States, results and their order do not depend on the
        number of threads.

    Raises
    ------
    ValueError
        If an argument is not valid, such as 0 jobs.
    MissingStore
        If the store does not exist and no frame is passed.
    OtherFrame
        If the store has another frame than ``frame``; the message names the difference.
    DamagedStore, UnreachableStore
        If the store is damaged, or its folder, object store or database cannot be read.
    StoreError
        If the store was written by a newer release, or a package that its backend needs is not installed.

    Examples
    --------
    >>> import aggr, tempfile
    >>> from tiltframe import TiltFrame, rollup
    >>> frame = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}, ["host"])
    >>> store = FrameStore(tempfile.mkdtemp(), frame)
    >>> store.append(rollup(pa.table({"ts": [0, 1], "host": ["a", "b"]}), frame), writer="docs", commit=1)
    True
    >>> FrameStore(store.uri).query(per="1h", where="host = 'a'").column("n").to_pylist()
    [1]
    """

    def __init__(
        self,
        uri: str | os.PathLike[str] | Backend,
        frame: TiltFrame | None = None,
        *,
        name: str | None = None,
        retention: Mapping[str, str | None] | None = None,
        storage_options: Mapping[str, str] | None = None,
        durable: bool = False,
        row_schema: pa.Schema | None = None,
        jobs: int | None = None,
    ) -> None:
        """Open the store, and read its manifest if it exists."""
        self.jobs = checked_jobs(jobs)
        if name is not None:
            check_name(name)
        self._address = checked_address(uri, storage_options, durable)
        self.uri = self._address.uri
        if frame is not None:
            checked_type(frame, TiltFrame, "frame")
        self._backend = self._address.open_backend(name or "")
        self._name = name or DEFAULT_NAME
        self._manifest = read_manifest(self._backend, name)
        self.frame = frame_of_store(self._manifest, frame, self.display_uri)
        self._retention = {} if retention is None else checked_retention(retention, self.frame)
        if self._manifest is not None:
            self._backend = self._backend.store_named(self._manifest.name)
            if retention is not None and self._retention != self._manifest.retention:
                self._manifest = set_retention(self._backend, self._retention)
        if row_schema is not None:
            self.ensure_created(self.frame.states_schema(checked_type(row_schema, pa.Schema, "row_schema")))

    @property
    def display_uri(self) -> str:
        """The URI of the store without a password, for messages."""
        return self._backend.display_uri

    @property
    def storage_options(self) -> Mapping[str, str]:
        """The options of the object store that were passed when the store was opened."""
        return self._address.storage_options

    @property
    def backend(self) -> Backend:
        """The backend that stores the states. The backend can be pickled for tasks in other processes."""
        return self._backend

    @property
    def manifest(self) -> Manifest:
        """The manifest of the store; raises `MissingStore` before the first commit."""
        if self._manifest is None:
            self._manifest = existing_manifest(self._backend)
        return self._manifest

    @property
    def name(self) -> str:
        """The name of the store, with which the names of its tables begin."""
        return self._manifest.name if self._manifest else self._name

    @property
    def retention(self) -> Mapping[str, str]:
        """How long each level is kept. A level without an entry is kept for ever."""
        return self._manifest.retention if self._manifest else self._retention

    @property
    def schema(self) -> pa.Schema | None:
        """The schema of the states: window_start, keys, states. None before the first commit."""
        return self._manifest.schema if self._manifest else None

    def at(self, now: Any = None) -> StoreView:
        """Return a view of the store at the current moment.

        Parameters
        ----------
        now : moment, optional
            The time for queries that do not pass ``now``; by default the current time.

        Returns
        -------
        StoreView
            All queries of the view are answered from the same states and for the same time.

        Raises
        ------
        ValueError
            If ``now`` cannot be read.
        StoreError
            If the store does not exist or is damaged.
        """
        return StoreView.of(self._backend, self.manifest, moment_or_now(now, self.frame.timezone), jobs=self.jobs)

    @with_query_parameters(Query)
    def query(self, query: Query) -> pa.Table:
        """Return the results of a query. A query never changes a state.

        Parameters
        ----------
        per, within, where, measures, keys, fill, order_by, limit : optional
            Arguments of `Query`, which describes them.
        now, flat, having, points, timezone, latest, closed, edges, running : optional
            Arguments of `Query`.

        Returns
        -------
        table
            A table with the columns level, window_start, window_end, keys, one column per measure, and ``partial``.
            With ``flat``, a measure whose results are records has one column per field. ``partial`` is true if the
            window has not ended yet, or overlaps expired windows of its level. Starts and ends are in the time zone of
            the query, or in that of the frame if the query does not specify one.

        Raises
        ------
        ValueError
            If the query is invalid; the message lists the valid values.
        StoreError
            If the store does not exist or is damaged.

        Guarantee
        ---------
        The method warns with `Expired` if windows in the range have expired on the level that is read, with `NotKnown`
        if a measure was added after some rows in the range, and with `Unmapped` if a derived key has no value for some
        keys.
        """
        return pa.concat_tables(self._slices_with_warnings(query))

    @with_query_parameters(Query)
    def query_slices(self, query: Query) -> Iterator[pa.Table]:
        """Return results like `query`, but a few windows at a time, so that memory does not grow with the number of
        windows.

        Parameters
        ----------
        per, within, where, measures, keys, fill, order_by, limit : optional
            Arguments of `Query`. With ``fill`` or ``edges``, all states are in memory. With ``order_by``, all results
            are in memory.
        now, flat, having, points, timezone, latest, closed, edges, running : optional
            Arguments of `Query`.

        Returns
        -------
        iterator of tables
            There is at least one table, which may have no rows. All tables describe the store at one moment, with
            one exception: if vacuum removes a part before it is read, its windows are read from the current store.

        Raises
        ------
        ValueError, StoreError
            For the same reasons as `query`, before anything is read.

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
        return self._slices_with_warnings(query)

    def join(
        self,
        rows: Any,
        on: On,
        *,
        within: Any = None,
        per: Any = None,
        how: str = "left",
        prefix: str = "",
        **options: Any,
    ) -> pa.Table:
        """Join each row with the results of the store for its keys, its range of time and its windows.

        Parameters
        ----------
        rows : table, DataFrame, stream or path
        on : str, list of str, or key -> expression
            The condition that matches keys of the store with the rows, in one of three forms:

            - the names of keys that are also columns of the rows: ``["symbol"]``;
            - equalities of a key and an expression of the rows: ``ticker = symbol AND upper(venue) = market``. A name
              that both the rows and the store have needs ``row.`` or ``store.`` before it;
            - a mapping of keys to expressions of the rows: ``{"symbol": "ticker"}``.

            Null is not equal to any value.
        within : range, column, or pair of moments or columns, optional
            A range in the form that `Query` accepts, or the name of a column of the rows whose values are such ranges.
            Each end of a pair is a moment, or the name of a column of moments. A row in which a named column is null
            has no results.
        per : windows or column, optional
            Windows in a form that `Query` accepts, or the name of a column of the rows that contains windows as text.
        how : "left" or "inner"
            "left" also returns the rows without results, with nulls in the columns of the results. "inner" leaves these
            rows out.
        prefix : str
            Text to prepend to the names of all result columns, for rows that have columns of the same names.
        options : values by name
            where, measures, keys, having, fill, latest, closed, flat, timezone, now, edges and running; see `Query`.

        Returns
        -------
        table
            A table with the columns of the rows, followed by those of `query`, except keys that the rows have under the
            same name. Rows are in the order of the input. The results of one row are in the order of `query`.

        Raises
        ------
        ValueError
            If the rows and the arguments do not fit the store.
        StoreError
            If the store does not exist or is damaged.

        Guarantee
        ---------
        The results of a row are bit-for-bit those of `query` with the row's range and windows and a condition on its
        keys. The store is queried once for all rows whose ranges overlap. For one window over the whole range, hopping
        windows, windows of another zone, and queries with ``fill``, ``latest`` or ``edges``, the store is queried once
        for each different range, because the results depend on the range. All results are for the same version of the
        store.

        Examples
        --------
        >>> import aggr, tempfile
        >>> from tiltframe import FrameStore, TiltFrame
        >>> frame = TiltFrame(["1m", "1h"], "ts", {"total": aggr.sum("price")}, ["symbol"])
        >>> store = FrameStore(tempfile.mkdtemp(), frame)
        >>> trades = pa.table({"ts": [0, 60_000, 0], "symbol": ["A", "A", "B"], "price": [1, 2, 5]})
        >>> store.append_rows(trades, writer="docs", commit=1)
        True
        >>> events = pa.table({"ticker": ["a", "c"], "size": ["1m", "1h"]})
        >>> joined = store.join(events, on="upper(ticker) = symbol", within="1970-01-01", per="size")
        >>> joined.select(["ticker", "size", "total"]).to_pylist()  # doctest: +NORMALIZE_WHITESPACE
        [{'ticker': 'a', 'size': '1m', 'total': 1}, {'ticker': 'a', 'size': '1m', 'total': 2},
         {'ticker': 'c', 'size': '1h', 'total': None}]
        """
        join = Join(on, within=within, per=per, how=how, prefix=prefix, options=options)
        keys = {name: name for name in self.frame.keys}
        read = rows_of(rows, "the rows of a join", columns=None, time=self.frame.time, uses=ColumnUses(keys))
        joined = self.at().join(consume(read, lambda rows: pa.Table.from_batches(rows.batches, rows.schema)), join)
        warn_of_missing(joined.expired, joined.unknown)
        return pa.concat_tables(joined.slices)

    def query_schema(self, query: Query) -> pa.Schema:
        """Return the schema of the results of a query, without reading results.

        Parameters
        ----------
        query : Query

        Returns
        -------
        pa.Schema

        Raises
        ------
        ValueError, StoreError
            For the same reasons as `query`.
        """
        return self.ask(query).schema

    ask = _method_of_view(StoreView.ask)
    plan = _method_of_view(StoreView.plan)
    plan_join = _method_of_view(StoreView.plan_join)
    key_values = _method_of_view(StoreView.key_values)
    changes = _method_of_view(StoreView.changes)

    def version(self) -> int:
        """Return the version of the store. Each commit, and each change of the frame, increases it.

        Returns
        -------
        int
            While the version does not change, a query that passes ``now`` returns the same results.
        """
        return self.at().version

    def states(self, per: str | TimeWindow, within: Any = None, where: str | None = None) -> pa.Table:
        """Read the merged states of a level.

        Parameters
        ----------
        per : str or TimeWindow
            A level of the frame.
        within : (start, end) or str, optional
            The range in which the windows start, in the form that `query` accepts.
        where : str, optional
            An SQL condition on the keys.

        Returns
        -------
        table
            A table with one row for each window and key, like the result of `tiltframe.rollup`: level, window_start,
            window_end, keys, and a struct for each column of states.

        Raises
        ------
        ValueError
            If the frame does not have this level, or the range or the condition cannot be read.
        StoreError
            If the store does not exist or is damaged.
        """
        query = Query(self.frame.level(per), within, where)
        answer = self.at().states(query)
        warn_of_missing(answer.expired, answer.unknown)
        return answer.table()

    def plot(self, measure: str, quantiles: Sequence[float] | None = None, **options: Any) -> Any:
        """Plot a measure over time as steps, one per window. Each key has a colour and each quantile a line style; if
        several levels are plotted, finer ones have a paler colour.

        Parameters
        ----------
        measure : str
            A measure of the frame. If its results are records with quantiles, the quantiles are plotted. For other
            records, all fields that are numbers are plotted.
        quantiles : numbers from 0 to 1, optional
            The quantiles to plot instead of the measure's own.
        options : keyword arguments
            ``ax``, the matplotlib axes to draw on; ``unit``, a text for the axis of values, such as ``"ms"``; and
            arguments of `query`: ``per`` (one or several), ``within``, ``where``, ``points``, ``keys``. With ``keys``,
            each combination of key values has its own line. By default, all keys are merged, and at most 500 points
            are plotted.

        Returns
        -------
        matplotlib axes
            Times are in the time zone of the results. The legend is at the right of the axes. For counts, sums and
            other amounts, the axis of values includes 0. A window is dotted if it has not ended yet, if it overlaps
            expired windows, or if the data of the store begin or end in it. The line is interrupted if windows are
            missing. At most four quantiles are drawn, and at most ten keys, those with the largest values. The legend
            names the quantiles that are not drawn, and states how many of the keys are drawn.

        Raises
        ------
        ValueError
            If the measure does not exist or has no numbers.
        MissingExtra
            If matplotlib is not installed.
        """
        # The module is imported here, because most programs do not plot.
        from tiltframe.store.plot import plot

        return plot(self, measure, quantiles, **options)

    def _slices_with_warnings(self, query: Query) -> Iterator[pa.Table]:
        """Return the results of a query. Warn about windows that have expired, about measures that were added later
        and, after the last table, about derived keys that are null in some results.
        """
        answer = self.ask(query)
        warn_of_missing(answer.expired, answer.unknown)
        return answer.reporting_unmapped(partial(warn_caller, category=Unmapped)).slices

    append = appending.append
    append_rows = appending.append_rows
    append_spilled = appending.append_spilled
    prepare_rows = group_commit.prepare_rows
    commit_group = group_commit.commit_group
    begin = committing.begin
    plan_backfill = backfilling.plan_backfill
    backfill = backfilling.backfill
    replaced_range = replacement.replaced_range
    replace = replacement.replace
    begin_replacement = replacement.begin_replacement
    rebuild = replacement.rebuild
    retract = retraction.retract
    begin_retraction = retraction.begin_retraction
    compact = compaction.compact
    expire = expiry.expire
    export = result_tables.export
    copy_to = copying.copy_to
    has_commit = recording.has_commit
    last_commit = recording.last_commit
    refused_values = recording.refused_values
    recorded = recording.recorded
    record = recording.record
    end_stream = recording.end_stream

    def ensure_created(self, states: pa.Schema) -> Manifest:
        """Create the store if it does not exist, and check that it accepts states of a schema. `append` does this
        before it adds states.

        Parameters
        ----------
        states : pa.Schema
            A schema from `tiltframe.TiltFrame.states_schema`.

        Returns
        -------
        Manifest
            The stored manifest.

        Raises
        ------
        ValueError, StoreError
            For the same reasons as `check_states`.
        """
        return self.create_if_missing(self.check_states(states))

    def with_stored_types(
        self, schema: pa.Schema, change_numbers: bool = False, guessed: Collection[str] = ()
    ) -> pa.Schema:
        """Choose a type for each column of type null in the schema of rows. With these types, the measures compute
        states of the store's types from the rows.

        Parameters
        ----------
        schema : pa.Schema
            The schema of the rows. A column without values has the type null.
        change_numbers : bool
            Whether the types of number columns may change too, if the states would otherwise have other types than in
            the store. For example, a few rows may have only whole numbers in a column that has fractions in other rows.
        guessed : names
            Columns of a text file that contain only digits, and were therefore read as numbers. In the store, they may
            be text.

        Returns
        -------
        pa.Schema
            The schema of the rows with the chosen types. It is unchanged if the store has no states yet. A column is
            unchanged if no type produces states of the store's types.
        """
        if self.schema is None:
            return schema
        return with_stored_types(schema, self.frame, self.schema, change_numbers=change_numbers, guessed=guessed)

    def check_retention(self, retention: Mapping[str, str | None]) -> dict[str, str]:
        """Check a retention, and return it without the levels that are kept for ever. Nothing is written.

        Parameters
        ----------
        retention : level -> duration
            See `FrameStore`.

        Returns
        -------
        dict of level name -> duration
            The levels that are kept for a limited time.

        Raises
        ------
        ValueError
            If the store does not have one of the levels, or if a level would be kept for a shorter time than a finer
            level.
        """
        return checked_retention(retention, self.frame)

    def create_if_missing(self, states: pa.Schema) -> Manifest:
        """Create the store if it does not exist, and check that it accepts states of a schema. Unlike `ensure_created`,
        this method does not check that the schema belongs to the frame.

        Parameters
        ----------
        states : pa.Schema
            The schema that `check_states` has returned.

        Returns
        -------
        Manifest
            The stored manifest.

        Raises
        ------
        StoreError
            If the store has states of other types, or another frame.
        """
        if self._manifest is None:
            manifest = Manifest(self._name, self.frame, schema_of(states, self.frame), self._retention)
            self._backend = self._backend.store_named(manifest.name)
            self._manifest = create_store(self._backend, manifest)
        check_types(self._manifest, states, self.display_uri)
        return self._manifest

    def check_states(self, states: pa.Schema) -> pa.Schema:
        """Raise an error if states of a schema cannot be added to the store. Nothing is written.

        Parameters
        ----------
        states : pa.Schema
            A schema from `tiltframe.TiltFrame.states_schema`.

        Returns
        -------
        pa.Schema
            The schema with the types that the store uses.

        Raises
        ------
        ValueError
            If the schema does not belong to states of the store's frame.
        StoreError
            If the store has states of other types.
        """
        checked_type(states, pa.Schema, "the schema of states")
        states = checked_levels(states.empty_table(), self.frame).schema
        if self._manifest is not None:
            check_types(self._manifest, states, self.display_uri)
        return states

    def with_open(self, saved: bytes | str | os.PathLike[str]) -> FrameStore:
        """Return a read-only store that also contains the windows that a stream has not written into this store yet.
        Each row counts exactly once.

        Parameters
        ----------
        saved : path or bytes
            The saved state of the stream: the file of ``tiltframe stream --state``, which is read again after it has
            changed, or the bytes from ``to_ipc`` of `tiltframe.store.closed_windows.ClosedWindows`.

        Returns
        -------
        FrameStore
            A store that supports `query` and all other methods that read. For several streams, call the method once for
            each: ``store.with_open(a).with_open(b)``.

        Raises
        ------
        TypeError
            If ``saved`` is neither a path nor bytes.
        StoreError
            If ``saved`` is not a saved state of a stream into this store, or was saved before the stream's last commit.
            The error is raised when the returned store is queried.

        Guarantee
        ---------
        Results are bit-for-bit those of the rows in the store and in the saved state together. A window that is closed
        but not yet in the store counts once, at whatever point the stream was killed.

        Examples
        --------
        >>> import aggr, tempfile
        >>> from tiltframe import TiltFrame
        >>> from tiltframe.store.closed_windows import ClosedWindows
        >>> store = FrameStore(tempfile.mkdtemp() + "/store", TiltFrame(["1s", "1m"], "ts", {"n": aggr.count()}))
        >>> stream = ClosedWindows(store, "requests")
        >>> late = stream.add_rows(pa.table({"ts": [0, 500, 1500]}))
        >>> stream.advance(1_000_000)
        >>> stream.commit()
        True
        >>> store.query("1m")["n"].to_pylist(), store.with_open(stream.to_ipc()).query("1m")["n"].to_pylist()
        ([2], [3])
        """
        if not isinstance(saved, bytes | str | os.PathLike):
            raise TypeError(
                "a saved stream must be a path, such as the file of tiltframe stream --state, or the bytes that to_ipc "
                f"returns; got {shown(saved)}"
            )
        _ = self.manifest
        # The path is absolute, so that a change of the working directory does not matter.
        data_or_file = saved if isinstance(saved, bytes) else Path(os.fspath(saved)).absolute()
        backend = OpenWindowsBackend(self._backend, data_or_file)
        return FrameStore(backend, jobs=self.jobs)

    def evolve(self, frame: TiltFrame, row_schema: pa.Schema | None = None) -> None:
        """Change the frame of the store: add or drop measures, or add coarser levels.

        Parameters
        ----------
        frame : TiltFrame
            The new frame. Its keys, time zone and column of times must be those of the old frame. It must have all
            existing levels, and may have coarser ones. A measure with the name of an existing measure must be equal to
            the existing measure, except for parameters that do not change the states, such as quantiles.
        row_schema : schema, optional
            The schema of future rows. The schema is required if a new measure reads columns from which the store has no
            states.

        Raises
        ------
        ValueError, TypeError
            If the store cannot change to this frame (the message names the reason), or if the rows do not fit a
            measure. In both cases, the store is not changed.
        StoreError
            If the store does not exist or is damaged, or its frame has changed since the store was opened.

        Guarantee
        ---------
        The change is one commit: readers see either the old or the new frame. Stored states do not change. Other
        programs may read and write at the same time. Programs that opened the store before the change continue to read
        with the old frame. If such a program writes, an error is raised, which says that the store must be opened
        again. An added measure that cannot be computed from the stored states is null in every window that has rows
        from before the change. The states of a dropped measure are removed when compaction rewrites their parts. New
        levels are derived from all windows of the previously coarsest level that are still in the store.

        Examples
        --------
        >>> import aggr, tempfile
        >>> from tiltframe import TiltFrame, rollup
        >>> frame = TiltFrame(["1m"], "ts", {"n": aggr.count()})
        >>> store = FrameStore(tempfile.mkdtemp(), frame)
        >>> store.append(rollup(pa.table({"ts": [0, 60_000]}), frame), writer="docs", commit=1)
        True
        >>> store.evolve(TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}))
        >>> store.query("1h").column("n").to_pylist()
        [2]
        """
        checked_type(frame, TiltFrame, "frame")
        if row_schema is not None:
            checked_type(row_schema, pa.Schema, "row_schema")
        self._manifest = evolve(self._backend, self.manifest, frame, row_schema)
        self.frame = self._manifest.frame

    def vacuum(self, older_than: str = "1d") -> Vacuumed:
        """Remove files, or rows of a database, whose states were replaced, retracted or expired, or never committed.

        Parameters
        ----------
        older_than : str
            The minimum age of the files or rows to remove, a duration such as ``1d``. It must be longer than any query
            takes. Files that were never committed are kept for at least a day, except with ``0s``. ``0s`` removes all
            files and rows that are not in use, however recent, for example to erase personal data completely. No other
            process may then read or write at the same time, because the files that it uses are removed too.

        Returns
        -------
        Vacuumed
            An int: the number of removed files, or rows of a database. Its attribute ``kept`` is the number of such
            files or rows that are too recent to remove, and ``kept_until`` is the time, in seconds since 1970, after
            which the same call would remove them.

        Raises
        ------
        ValueError
            If the duration cannot be read.
        StoreError
            If the store does not exist.
        """
        seconds = read_age(older_than)
        _ = self.manifest  # The property `manifest` raises an error if the store does not exist.
        return self._backend.vacuum(seconds)

    def verify(self, progress: Progress = lambda done, total: None) -> VerifyReport:
        """Check that the log, the files and the states of the store are undamaged, and that each level equals the
        merged states of the next finer level. Everything is read, and nothing is changed.

        Parameters
        ----------
        progress : callable of (rows checked, rows to check), optional
            It is called repeatedly during the verification.

        Returns
        -------
        VerifyReport
            A report with ``ok``, which is true if no problem was found, and ``problems``, a message for each problem.

        Raises
        ------
        ValueError
            If ``progress`` cannot be called.
        StoreError
            If the store does not exist.
        """
        check_progress(progress)
        return verify_store(self._backend, self.manifest, progress, self.jobs)

    def inspect(self) -> Report:
        """Return a report with the time range, rows, bytes, parts, gaps and retention of each level of the store."""
        return inspect(self._backend, self.manifest)

    def waiting_parts(self) -> dict[str, int]:
        """Return the number of parts that compaction will merge once their windows are closed, by level.

        Returns
        -------
        dict of level name -> int
            All numbers are 0 if the store does not exist.

        Raises
        ------
        StoreError
            If the store cannot be read.
        """
        snapshot = self._backend.snapshot()
        parts = {level: snapshot.of(level.name) if snapshot else () for level in self.frame.levels}
        return {level.name: sum(map(len, groups_to_compact(parts[level], level))) for level in parts}

    def _repr_html_(self) -> str:
        return f"<p><b>FrameStore</b> {escape(self.display_uri)}</p>{self.frame._repr_html_()}"

    def __repr__(self) -> str:
        return f"FrameStore({self.display_uri!r}, {self.frame!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        carried = carried_functions(self.frame)
        return _unpickle, (carried, self._address.absolute(), None if self._manifest else self.frame, self.name)


def _unpickle(carried: FunctionClasses, address: StoreAddress, frame: TiltFrame | None, name: str) -> FrameStore:
    """Open a store that was pickled. First register ``carried``, the functions that the store's manifest needs, because
    they may not be registered in this process.
    """
    register_missing(carried)
    return FrameStore(
        address.location,
        frame,
        name=name,
        storage_options=address.storage_options,
        durable=address.durable,
    )
