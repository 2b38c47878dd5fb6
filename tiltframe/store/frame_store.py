"""The frame store: aggregates that last, and every way to ask for them.

A store is opened here. It answers through a view of this moment (`tiltframe/store/view.py`), and its operations are the
functions in `tiltframe/store/changes/`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from html import escape
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import pyarrow as pa

from aggr.arguments import checked_names, checked_truth, checked_type, shown
from tiltframe.frame import TiltFrame
from tiltframe.store.backends.open import absolute_uri, backend_at, check_options, checked_uri
from tiltframe.store.backends.protocol import OWN, Backend, Vacuumed
from tiltframe.store.changes import append as appending
from tiltframe.store.changes import backfill as backfilling
from tiltframe.store.changes import compaction, copying, expiry, replacement, result_tables, retraction
from tiltframe.store.changes.commit import check_unchanged
from tiltframe.store.changes.evolution import evolve, retain
from tiltframe.store.changes.progress import Progress, check_progress
from tiltframe.store.checked_states import checked
from tiltframe.store.log.carried_functions import Carried, carried_functions, register_carried
from tiltframe.store.log.errors import MissingStore, OtherFrame
from tiltframe.store.log.manifest import Manifest, check_levels, check_name, check_types, checked_retention, schema_of
from tiltframe.store.log.records import checked_records, expected_texts, values_of
from tiltframe.store.log.run import Attempt, run
from tiltframe.store.log.writers import check_writer, last_commits
from tiltframe.store.query.execution import Answer
from tiltframe.store.query.lookup import Unmapped
from tiltframe.store.query.merging import mergeable
from tiltframe.store.query.missing import warn_of_missing
from tiltframe.store.query.query import Query, asking
from tiltframe.store.report import Report, inspect
from tiltframe.store.types_from_store import settled
from tiltframe.store.verify import VerifyReport, verify_store
from tiltframe.store.view import StoreView
from tiltframe.store.with_open import WithOpen
from tiltframe.time_range import moment_or_now, read_age
from windows import TimeWindow

DEFAULT_NAME = "frame"

P = ParamSpec("P")
T = TypeVar("T")


def _of_view(method: Callable[Concatenate[StoreView, P], T]) -> Callable[Concatenate[FrameStore, P], T]:
    """Make a method of a store that calls a method of its view of this moment."""

    @wraps(method)
    def of_store(store: FrameStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(store.at(), *args, **kwargs)

    return of_store


class FrameStore:
    """States of a tilt frame that last: in a folder or object store (Delta Lake), or in PostgreSQL.

    Append-only: a commit adds states, also to windows that are already there, and reading merges. Each commit is
    there at once and once, whatever happens to its writer.

    Parameters
    ----------
    uri : str, path or Backend
        A folder, an object store's URI such as ``s3://bucket/path``, or ``postgresql://user@host/database``; or a
        backend of one's own (`tiltframe.store.testing`), which takes no ``storage_options``.
    frame : TiltFrame, optional
        What the store is to keep; may be left out for a store that is there. Nothing is written before the first
        commit, for the types of states follow from rows, unless ``row_schema`` is given.
    name : str, optional
        Of the store: its tables are called ``<name>_<level>``. ``frame`` unless given; in a database with several
        stores it says which.
    retention : level -> duration, optional
        How long each level is kept by `expire`: ``{"10s": "1d", "1m": "7d", "1h": None}``; None is for ever. Given
        for a store that is there, it replaces the store's retention.
    storage_options : str -> str, optional
        Of the object store, as deltalake names them.
    durable : bool
        Whether commits to a folder are on the disk (``fsync``) before they are acknowledged, and so survive the loss
        of power; without, they survive the end of the process. Object stores and databases look after that themselves.
    row_schema : schema, optional
        Of the rows that are to come: the store is made at once, if there is none, and readers find it.

    Raises
    ------
    MissingStore
        If there is no store and no frame is given.
    OtherFrame
        If the store is of another frame, naming the difference.
    DamagedStore, UnreachableStore
        If the store is damaged, or the place cannot be read.
    StoreError
        If the store is of a newer release, or what keeps it is not installed.

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
    ) -> None:
        """Open the store, and read its manifest if it exists."""
        if name is not None:
            check_name(name)
        self._given = uri if isinstance(uri, Backend) else None
        self.uri = uri.uri if isinstance(uri, Backend) else checked_uri(uri)
        self._options = check_options(storage_options)
        self._durable = checked_truth(durable, "durable")
        if self._given is not None and (self._options or durable is not False):
            raise ValueError("a backend has its options itself: leave out storage_options and durable")
        if frame is not None:
            checked_type(frame, TiltFrame, "frame")
        self._backend: Backend = self._given or backend_at(self.uri, name or "", self._options, durable)
        self._name = name or DEFAULT_NAME
        self._manifest = self._read_manifest(name)
        if self._manifest is None and frame is None:
            raise MissingStore(f"there is no store {self.display_uri}")
        if self._manifest is not None and frame is not None:
            self._check_frame(frame)
        own_frame = self._manifest.frame if self._manifest else frame
        assert own_frame is not None
        check_levels(own_frame)
        self.frame: TiltFrame = own_frame
        self._retention = {} if retention is None else checked_retention(retention, self.frame)
        if self._manifest is not None:
            self._backend = self._backend.store_named(self._manifest.name)
            if retention is not None and self._retention != self._manifest.retention:
                self._manifest = retain(self._backend, self._retention)
        if row_schema is not None:
            self.ensure_created(self.frame.states_schema(checked_type(row_schema, pa.Schema, "row_schema")))

    def _read_manifest(self, name: str | None = None) -> Manifest | None:
        """Read what the store says of itself, if it is there; raises `OtherFrame` if it has another name."""
        snapshot = self._backend.snapshot()
        if snapshot is None:
            return None
        manifest = Manifest.from_dict(snapshot.manifest, self.display_uri)
        if name is not None and name != manifest.name:
            raise OtherFrame(f"the store {self.display_uri} is called {manifest.name!r}, not {name!r}")
        return manifest

    @property
    def display_uri(self) -> str:
        """Where it is, as may be shown: without a password."""
        return self._backend.display_uri

    @property
    def storage_options(self) -> Mapping[str, str]:
        """The options of the object store that it was opened with."""
        return self._options

    @property
    def backend(self) -> Backend:
        """What keeps the states: it pickles, so that tasks in other processes read and write through it."""
        return self._backend

    @property
    def manifest(self) -> Manifest:
        """What the store says of itself; raises `MissingStore` if it holds nothing yet."""
        if self._manifest is None:
            self._manifest = self._read_manifest()
        if self._manifest is None:
            raise MissingStore(
                f"the store {self.display_uri} holds nothing yet: its first commit makes it, or FrameStore(…, "
                "row_schema=SCHEMA) with the schema of the rows to come"
            )
        return self._manifest

    @property
    def name(self) -> str:
        """What the names of its tables begin with."""
        return self._manifest.name if self._manifest else self._name

    @property
    def retention(self) -> Mapping[str, str]:
        """How long levels are kept; those not named, for ever."""
        return self._manifest.retention if self._manifest else self._retention

    @property
    def schema(self) -> pa.Schema | None:
        """The schema of the states: window_start, keys, states; None before the first commit."""
        return self._manifest.schema if self._manifest else None

    def at(self, now: Any = None) -> StoreView:
        """Return a view of the current store.

        Parameters
        ----------
        now : moment, optional
            For queries that do not name theirs; the clock's time by default.

        Returns
        -------
        StoreView
            Every way to ask the store; all its answers are of the same states and the same time.

        Raises
        ------
        ValueError
            If ``now`` cannot be read.
        StoreError
            For a store that holds nothing or is damaged.
        """
        return StoreView.of(self._backend, self.manifest, moment_or_now(now, self.frame.timezone))

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
        return pa.concat_tables(self._noting(self._warned(self.ask(query))))

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
            At least one; it may have no rows. They are of one moment, but for rows that are merged meanwhile.

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
        return self._noting(self._warned(self.ask(query)))

    def query_schema(self, query: Query) -> pa.Schema:
        """Return the schema of the results of a query, reading none.

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

    ask = _of_view(StoreView.ask)
    plan = _of_view(StoreView.plan)
    key_values = _of_view(StoreView.key_values)
    changes = _of_view(StoreView.changes)

    def version(self) -> int:
        """Number what the store holds now: any commit, and any change of its frame, gives it a greater number.

        Returns
        -------
        int
            Equal ones stand for equal answers to queries that name their ``now``.
        """
        return self.at().version

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
        query = Query(self.frame.level(per), within, where)
        return self._warned(self.at().states(query)).table()

    def plot(self, measure: str, quantiles: Sequence[float] | None = None, **options: Any) -> Any:
        """Plot a measure over time, as steps from window to window; levels over each other, the finer ones paler.

        Parameters
        ----------
        measure : str
            Of the frame. Of a record its quantiles are shown; of one without quantiles all of its numbers.
        quantiles : numbers from 0 to 1, optional
            In place of the measure's own.
        options : keyword arguments
            ``ax`` to draw on, and what `query` takes: ``per``, or several of them, ``within``, ``where``, ``points``;
            ``keys`` give a line each. Keys are merged over, and there are at most 500 points, unless something else is
            asked.

        Returns
        -------
        matplotlib axes
            Times are those of the zone of the results. Windows that are not over yet, or overlap expired windows,
            are dotted; where there is no window, there is no line.

        Raises
        ------
        ValueError
            For a measure that is not there, or is of no numbers; for more lines than can be distinguished.
        MissingExtra
            Without matplotlib.
        """
        from tiltframe.store.plot import plot  # which needs matplotlib

        return plot(self, measure, quantiles, **options)

    @staticmethod
    def _noting(answer: Answer) -> Iterator[pa.Table]:
        return answer.noting_unmapped(lambda sentence: warnings.warn(sentence, Unmapped, stacklevel=5)).slices

    @staticmethod
    def _warned(answer: Answer) -> Answer:
        warn_of_missing(answer.expired, answer.unknown, stacklevel=4)
        return answer

    append = appending.append
    append_rows = appending.append_rows
    append_spilled = appending.append_spilled
    begin = appending.begin
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

    def has_commit(self, writer: str, commit: int) -> bool:
        """Say whether a commit is in the store.

        Parameters
        ----------
        writer : str
        commit : int
            Its number.

        Returns
        -------
        bool

        Raises
        ------
        ValueError
            If these cannot name a commit.
        StoreError
            If the store cannot be read.
        """
        check_writer(writer, commit)
        last = self.last_commit(writer)
        return last is not None and last >= commit

    def last_commit(self, writer: str) -> int | None:
        """Return the last commit number of a writer.

        Parameters
        ----------
        writer : str

        Returns
        -------
        int or None
            None if the store has no commit of the writer.

        Raises
        ------
        ValueError
            If it cannot name a writer.
        StoreError
            If the store cannot be read.
        """
        check_writer(writer, 0)
        snapshot = self._backend.snapshot([f"{OWN}writer {writer}"])
        last = -1 if snapshot is None else last_commits(snapshot, writer)[0]
        return None if last < 0 else last

    def recorded(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the records that commits stored next to the states.

        Parameters
        ----------
        names : names
            As they were given to `append` or `replace`; however many, they are looked up at once.

        Returns
        -------
        dict of name -> plain data
            Without those that nothing is recorded under.

        Raises
        ------
        ValueError
            If ``names`` is not a list of names.
        StoreError
            If the store cannot be read.
        """
        requested = checked_names(names, "names")
        snapshot = self._backend.snapshot(requested)
        return {} if snapshot is None else values_of(snapshot.texts, requested)

    def record(self, recorded: Mapping[str, Any], replacing: Mapping[str, Any] | None = None) -> None:
        """Record something next to the states, in a commit of its own.

        Parameters
        ----------
        recorded, replacing : name -> plain data
            As `append` takes them.

        Raises
        ------
        ValueError
            For names and values that cannot be recorded.
        CommitConflict
            If someone else has recorded the same.
        StoreError
            For a store that holds nothing or cannot be written.
        """
        texts, unchanged = checked_records(recorded), expected_texts(recorded, replacing)

        def attempt(transaction: Attempt) -> None:
            check_unchanged(transaction, unchanged)
            for name, text in texts.items():
                transaction.records(name, text)

        _ = self.manifest
        run(self._backend, attempt, unchanged)

    def ensure_created(self, states: pa.Schema) -> Manifest:
        """Make the store, if it is not there, and check that it can take states of a schema; `append` does so first.

        Parameters
        ----------
        states : pa.Schema
            As `tiltframe.TiltFrame.states_schema` returns it.

        Returns
        -------
        Manifest
            The stored manifest.

        Raises
        ------
        ValueError, StoreError
            As `check_states` does.
        """
        return self.created_for(self.check_states(states))

    def settled(self, schema: pa.Schema, of_numbers: bool = False, guessed: Collection[str] = ()) -> pa.Schema:
        """Give columns without any value the types that make the states of the store.

        Parameters
        ----------
        schema : pa.Schema
            Of rows.
        of_numbers : bool
            Whether columns of numbers that would make other states get such a type as well: few rows may have whole
            numbers alone where others have fractions.
        guessed : names
            Columns that are numbers because a text file writes digits; they may be text in the store.

        Returns
        -------
        pa.Schema
            The same, if the store has no states yet; columns for which no type makes its states are unchanged.
        """
        if self.schema is None:
            return schema
        return settled(schema, self.frame, self.schema, of_numbers=of_numbers, guessed=guessed)

    def check_retention(self, retention: Mapping[str, str | None]) -> dict[str, str]:
        """Check how long levels are to be kept; nothing is written.

        Parameters
        ----------
        retention : level -> duration
            As `FrameStore` takes it.

        Returns
        -------
        dict of level name -> duration
            Without the levels that are kept for ever.

        Raises
        ------
        ValueError
            For levels that the store does not have, and if a level would be kept shorter than a finer one.
        """
        return checked_retention(retention, self.frame)

    def created_for(self, states: pa.Schema) -> Manifest:
        """Make the store, if it is not there, for states of a schema that `check_states` has returned.

        Parameters
        ----------
        states : pa.Schema

        Returns
        -------
        Manifest
            The stored manifest.

        Raises
        ------
        StoreError
            If they are of other types than those in the store, or it is of another frame.
        """
        if self._manifest is None:
            manifest = Manifest(self._name, self.frame, schema_of(states, self.frame), self._retention)
            self._backend = self._backend.store_named(manifest.name)
            self._backend.create(manifest.to_dict(), manifest.schema)
            self._manifest = self._read_manifest(self._name)
            self._check_frame(self.frame)
        assert self._manifest is not None
        check_types(self._manifest, states, self.display_uri)
        return self._manifest

    def check_states(self, states: pa.Schema) -> pa.Schema:
        """Refuse states that cannot be added, by their schema; nothing is written.

        Parameters
        ----------
        states : pa.Schema
            As `tiltframe.TiltFrame.states_schema` returns it.

        Returns
        -------
        pa.Schema
            The same in the types that a store keeps.

        Raises
        ------
        ValueError
            If they are not states of the store's frame.
        StoreError
            If they are of other types than those in the store.
        """
        checked_type(states, pa.Schema, "the schema of states")
        states = checked(states.empty_table(), self.frame).schema
        if self._manifest is not None:
            check_types(self._manifest, states, self.display_uri)
        return states

    def with_open(self, saved: bytes | str | os.PathLike[str]) -> FrameStore:
        """Read the store with what a stream into it still holds: the newest windows; each row counts once.

        Parameters
        ----------
        saved : path or bytes
            The file of ``tiltframe stream --state``, which is read again when it has changed, or what ``to_ipc`` of
            `tiltframe.store.closed_windows.ClosedWindows` gave.

        Returns
        -------
        FrameStore
            To be read by `query` and all else that reads. Of several streams one after the other:
            ``store.with_open(a).with_open(b)``.

        Raises
        ------
        TypeError
            If it is neither a path nor bytes.
        StoreError
            When it is read: if that is not a saved state of a stream into this store, or is older than the store.

        Guarantee
        ---------
        Results are, bit for bit, those of the rows that the store and the saved state have: a window that is closed and
        on its way into the store counts once, whenever the stream was killed.

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
            raise TypeError(f"a saved state is a path or bytes; got {shown(saved)}")
        _ = self.manifest
        return FrameStore(WithOpen(self._backend, saved if isinstance(saved, bytes) else Path(os.fspath(saved))))

    def evolve(self, frame: TiltFrame, row_schema: pa.Schema | None = None) -> None:
        """Have the store be of another frame: with measures added or dropped, or coarser levels added.

        Parameters
        ----------
        frame : TiltFrame
            What it is to be: the same keys, time zone and column of times, the levels that there are and perhaps
            coarser ones, and measures of which those that have the names of present ones are the same, but for what
            they read, such as quantiles.
        row_schema : schema, optional
            Of the rows that are to come; needed for measures of columns whose states are not there yet.

        Raises
        ------
        ValueError, TypeError
            For a frame that the store cannot become, naming the difference, and for measures that the rows do not fit.
            Nothing has changed.
        StoreError
            For a store that holds nothing or is damaged, and where its frame has evolved since it was opened here.

        Guarantee
        ---------
        It is one commit: a reader of the store sees one frame or the other, and stored data does not change.
        Others may read and write at the same time: those that have opened the store before go on reading by the frame
        it had, and get an error that asks to open it again if they write. An added measure that the states do not
        answer is null in every window that has rows from before; a dropped one is forgotten as parts are compacted. New
        levels have all that the coarsest one still holds.

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
        """Remove files, or rows of a database, that were replaced, retracted, expired or never committed.

        Parameters
        ----------
        older_than : str
            A duration, such as ``1d``, longer than any query or commit takes. With ``0s`` all of them are removed, for
            erasure: no other process may read or write meanwhile, since its files are removed too.

        Returns
        -------
        Vacuumed
            The number of removed files, or rows of a database, an int. Its ``kept`` is the number of unread ones
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

    def verify(self, progress: Progress = lambda done, total: None) -> VerifyReport:
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
        check_progress(progress)
        return verify_store(self._backend, self.manifest, progress)

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

    def _check_frame(self, frame: TiltFrame) -> None:
        assert self._manifest is not None
        difference = frame.difference(self._manifest.frame)
        if difference:
            fixed = difference.startswith(("time", "keys"))  # what evolve does not change
            evolved = (
                ""
                if fixed
                else ", or have the store be of this one: tiltframe evolve, FrameStore(uri).evolve(frame) in Python"
            )
            raise OtherFrame(
                f"the store {self.display_uri} is of another frame: {difference}; give another folder or name{evolved}"
            )

    def _repr_html_(self) -> str:
        return f"<p><b>FrameStore</b> {escape(self.display_uri)}</p>{self.frame._repr_html_()}"

    def __repr__(self) -> str:
        return f"FrameStore({self.display_uri!r}, {self.frame!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        uri = absolute_uri(self.uri) if self._given is None else self._given
        carried = carried_functions(self.frame)
        return _opened, (carried, uri, None if self._manifest else self.frame, self.name, self._options, self._durable)


def _opened(
    carried: Carried,
    uri: str | Backend,
    frame: TiltFrame | None,
    name: str,
    options: Mapping[str, str],
    durable: bool,
) -> FrameStore:
    """Open a store that has travelled; its manifest names functions that this process may lack."""
    register_carried(carried)
    return FrameStore(uri, frame, name=name, storage_options=options, durable=durable)
