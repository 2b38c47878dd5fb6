"""The frame store: aggregates that last, and every way to ask for them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from html import escape
from pathlib import Path
from typing import Any

import pyarrow as pa

from aggr.arguments import checked_names, checked_truth, checked_type, checked_whole, shown
from tiltframe.files.read_options import ReadOptions
from tiltframe.frame import TiltFrame
from tiltframe.level_chain import from_rows, labelled
from tiltframe.spilled_states import HELD_BYTES, Slices, spilled
from tiltframe.store.backends.open import absolute_uri, backend_at, check_options, checked_uri
from tiltframe.store.backends.protocol import OWN, Backend
from tiltframe.store.carried_functions import Carried, carried_functions, register_carried
from tiltframe.store.changes.backfill import follow, plan_backfill
from tiltframe.store.changes.commit import Commit, begin_commit, by_level, check_unchanged, check_writer, last_commits
from tiltframe.store.changes.compaction import Progress
from tiltframe.store.changes.evolution import evolve, retain
from tiltframe.store.changes.retraction import Retraction, check_retractable, retract
from tiltframe.store.checked_states import check_readable, checked
from tiltframe.store.log.errors import MissingStore, OtherFrame
from tiltframe.store.log.manifest import Manifest, check_levels, check_name, check_types, checked_retention, schema_of
from tiltframe.store.log.records import checked_records, expected_texts, values_of
from tiltframe.store.log.run import Attempt, run
from tiltframe.store.maintenance import Maintenance
from tiltframe.store.with_open import WithOpen
from tiltframe.tabular import table_of

DEFAULT_NAME = "frame"


class FrameStore(Maintenance):
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
        commit, for rows tell the types of states, unless ``row_schema`` does.
    name : str, optional
        Of the store: its tables are called ``<name>_<level>``. ``frame`` unless given; in a database with several
        stores it says which.
    retention : level -> duration, optional
        How long each level is kept by `expire`: ``{"10s": "1d", "1m": "7d", "1h": None}``; None is for ever. Given
        for a store that is there, it replaces what was agreed.
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
        If what is stored is damaged, or the place cannot be read.
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
        kept = self._manifest.frame if self._manifest else frame
        assert kept is not None
        check_levels(kept)
        self.frame: TiltFrame = kept
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
        """Return what is recorded next to the states, with commits.

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
            If ``names`` is no list of names.
        StoreError
            If the store cannot be read.
        """
        wanted = checked_names(names, "names")
        snapshot = self._backend.snapshot(wanted)
        return {} if snapshot is None else values_of(snapshot.texts, wanted)

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

    def append(
        self,
        states: Any,
        writer: str,
        commit: int,
        recorded: Mapping[str, Any] | None = None,
        replacing: Mapping[str, Any] | None = None,
    ) -> bool:
        """Add states under a writer's commit number, at once or not at all.

        Parameters
        ----------
        states : table
            As `tiltframe.rollup` gives it, or whatever holds the same: a DataFrame of polars or pandas, a stream, a
            pyarrow dataset, Parquet files. With rows of finer levels only, coarser ones are derived.
        writer : str
            Who writes.
        commit : int
            Grows from commit to commit of one writer. One that is there already, with the same states, changes
            nothing, so a commit that is tried again counts once; with others it is an error.
        recorded : name -> plain data, optional
            What the store records with it, such as the files it was made from, in place of what was recorded under
            the names before; `recorded` returns it.
        replacing : name -> plain data, optional
            What `recorded` has returned of the names in ``recorded``: if others are recorded by now, nothing is
            written. Unless given, nothing may be recorded under them yet.

        Returns
        -------
        bool
            Whether the states were added.

        Raises
        ------
        ValueError, OverflowError
            If they are not states of this frame: of other levels, windows, time zone, measures or conditions, or
            levels that do not fit together; if a result could not be read. Nothing is written.
        OtherFrame
            If they are of other types than those in the store, or its frame has evolved since it was opened.
        CommitConflict
            If the number is there with other states, or is below the last one of the writer and not known to be of
            these, or someone else has recorded the same.
        """
        check_writer(writer, commit)
        checked_records(recorded)
        states = checked(table_of(states, "states"), self.frame)
        check_readable(states, self.frame)
        self._backend.check_values(states)
        made = self._begin(states.schema, writer, commit, recorded, replacing)
        return made.commit([made.write_checked(by_level(states, self.frame))])

    def retract(
        self,
        states: Any,
        writer: str,
        commit: int,
        recorded: Mapping[str, Any] | None = None,
        replacing: Mapping[str, Any] | None = None,
    ) -> bool:
        """Take states out of the store again, at every level, at once or not at all: for erasure and corrections.

        Parameters
        ----------
        states : table
            As `append` takes it: those of the rows that go, ``rollup(rows, store.frame)``.
        writer, commit : str, int
            As for `append`: a number that is there already, with the same retraction, changes nothing.
        recorded, replacing : name -> plain data, optional
            As `append` takes them.

        Returns
        -------
        bool
            Whether the states were taken out now.

        Raises
        ------
        TypeError
            For measures whose states do not tell what is left: min, max, first, last, sets and lists, all named.
        CannotSubtract
            If the rows are not in the store, as far as can be known, or what is left is not known, as for
            `aggr.subtract`; it names level, measure, window and keys. Nothing has changed. A ``ValueError``.
        ValueError, StoreError
            As `append`.

        Guarantee
        ---------
        What is left is to the bit what a store holds that never had the rows; a window and key of which nothing is left
        is gone. Windows that have expired stay so. Files of before are there until `vacuum`.

        Examples
        --------
        >>> import aggr, tempfile
        >>> from tiltframe import TiltFrame, rollup
        >>> store = FrameStore(tempfile.mkdtemp(), TiltFrame(["1m", "1h"], "ts", {"s": aggr.sum("x")}))
        >>> rows = pa.table({"ts": [0, 1, 60_000], "x": [0.1, 1e300, 5.0]})
        >>> store.append_rows(rows, writer="docs", commit=1)
        True
        >>> store.retract(rollup(rows.slice(1), store.frame), writer="docs", commit=2)
        True
        >>> store.query(per="1h").column("s").to_pylist()
        [0.1]
        """
        check_writer(writer, commit)
        checked_records(recorded)
        _ = self.manifest
        check_retractable(self.frame)
        states = checked(table_of(states, "states"), self.frame)
        return retract(self._begin(states.schema, writer, commit, recorded, replacing), states)

    def begin_retraction(
        self, writer: str, commit: int, states: pa.Schema, recorded: Mapping[str, Any] | None = None
    ) -> Retraction:
        """Begin a retraction whose states many processes write.

        Parameters
        ----------
        writer, commit, recorded : str, int and mapping
            As `retract` takes them.
        states : pa.Schema
            As `tiltframe.TiltFrame.states_schema` returns it.

        Returns
        -------
        Retraction
            It pickles. Its ``write(states)`` returns a receipt, in any process, and ``commit(receipts)`` ends it.

        Raises
        ------
        TypeError, ValueError, StoreError
            As `retract` does.
        """
        check_writer(writer, commit)
        _ = self.manifest
        check_retractable(self.frame)
        return Retraction(self.begin(writer, commit, states, recorded))

    def append_rows(
        self,
        data: Any,
        writer: str,
        commit: int,
        recorded: Mapping[str, Any] | None = None,
        max_bytes: int = HELD_BYTES,
        reading: ReadOptions | None = None,
    ) -> bool:
        """Roll up rows and add their states as `append` does, in memory that grows neither with rows nor windows.

        States beyond ``max_bytes`` wait in the folder for temporary files until all rows have been read; nothing is
        written to the store before.

        Parameters
        ----------
        data : table, DataFrame, stream, dataset or paths
            As `tiltframe.rollup` takes it.
        writer, commit, recorded : str, int and mapping
            As `append` takes them.
        max_bytes : int
            Of states that are held at once; the process takes some times as much.
        reading : ReadOptions, optional
            As `tiltframe.rollup` takes it.

        Returns
        -------
        bool
            Whether the states were added.

        Raises
        ------
        ValueError, TypeError, OverflowError
            If the data does not fit the frame, or a result could not be read. Nothing is written.
        StoreError
            As `append` raises it. What was written is removed.

        Examples
        --------
        >>> import aggr, tempfile
        >>> from tiltframe import TiltFrame
        >>> store = FrameStore(tempfile.mkdtemp(), TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}))
        >>> store.append_rows(pa.table({"ts": [0, 60_000, 3_600_000]}), writer="docs", commit=1)
        True
        >>> store.query(per="1h").column("n").to_pylist()
        [2, 1]
        """
        check_writer(writer, commit)
        checked_records(recorded)
        bound = checked_whole(max_bytes, "max_bytes", 1)
        with ExitStack() as held:

            def spill(batches: Iterator[pa.RecordBatch]) -> Slices:
                return held.enter_context(spilled(batches, self.frame, bound))

            slices = from_rows(data, self.frame, reading, spill)
            return self.append_spilled(slices, writer, commit, recorded) is not None

    def append_spilled(
        self,
        slices: Slices,
        writer: str,
        commit: int,
        recorded: Mapping[str, Any] | None = None,
        replacing: Mapping[str, Any] | None = None,
    ) -> int | None:
        """Add the states of a rollup that was spilled, as `append_rows` does.

        Parameters
        ----------
        slices : Slices
        writer, commit, recorded, replacing : str, int and mappings
            As `append` takes them.

        Returns
        -------
        int or None
            How many states were added; None if the commit was there already.

        Raises
        ------
        ValueError, OverflowError, StoreError
            As `append` does.
        """
        n = 0
        for _, states in slices.levels():
            self._backend.check_values(states)
            check_readable(states, self.frame)
            n += states.num_rows
        schema = labelled(slices.schema.empty_table(), self.frame, self.frame.levels[0]).schema
        made = self._begin(schema, writer, commit, recorded, replacing)
        return n if made.commit([made.write_checked(slices.levels())]) else None

    def backfill(
        self,
        data: Any,
        chunk: str = "1d",
        *,
        within: Any = None,
        writer: str | None = None,
        newest_first: bool = False,
        reading: ReadOptions | None = None,
        progress: Progress = lambda done, of: None,
    ) -> int:
        """Add the past, range by range of time, each in a commit of its own, while others write what comes.

        Parameters
        ----------
        data : path, list of paths, or function
            Files and folders, of which a range reads those that have times in it; or what returns the rows of a range,
            as `append_rows` takes them, given its start and end as datetimes, end exclusive.
        chunk : str
            How long a range is, ``1d``, by the clock of the frame.
        within : range, optional
            Of the rows, as for `query`; all that files have unless given.
        writer : str, optional
            Whose commits these are; of files, their paths.
        newest_first : bool
            Begin with the last range.
        reading : ReadOptions, optional
            As `append_rows` takes it.
        progress : callable of (ranges done, of how many), optional

        Returns
        -------
        int
            How many ranges were added now.

        Raises
        ------
        ValueError
            If the writer's ranges were others before: of another chunk, order or range, or of files that have changed.
        StoreError
            As `append_rows`.

        Guarantee
        ---------
        Each range counts once. Killed at any moment, it goes on behind the last range that is in the store.

        Examples
        --------
        >>> import aggr, tempfile
        >>> from tiltframe import TiltFrame
        >>> store = FrameStore(tempfile.mkdtemp(), TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}))
        >>> def rows(start, end):
        ...     return pa.table({"ts": [start, start]})
        >>> past = {"within": "2024-05", "writer": "archive"}
        >>> store.backfill(rows, "1w", **past), store.backfill(rows, "1w", **past)
        (5, 0)
        >>> store.query(per="all").column("n").to_pylist()
        [10]
        """
        plan = plan_backfill(
            self.frame, data, chunk, within, writer, checked_truth(newest_first, "newest_first"), reading
        )
        return follow(self, plan, {}, progress)

    def begin(self, writer: str, commit: int, states: pa.Schema, recorded: Mapping[str, Any] | None = None) -> Commit:
        """Begin a commit whose states many processes write.

        Parameters
        ----------
        writer, commit, recorded : str, int and mapping
            As `append` takes them.
        states : pa.Schema
            As `tiltframe.TiltFrame.states_schema` returns it.

        Returns
        -------
        Commit
            It pickles. Its ``write(states)`` returns a receipt, in any process, and ``commit(receipts)`` ends it.

        Raises
        ------
        ValueError, StoreError
            As `ensure_created` does.

        Examples
        --------
        >>> import aggr, tempfile
        >>> from tiltframe import TiltFrame, rollup
        >>> store = FrameStore(tempfile.mkdtemp(), TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}))
        >>> states = rollup(pa.table({"ts": [0, 60_000]}), store.frame)
        >>> made = store.begin("docs", 1, states.schema)
        >>> receipts = [made.write(states)]
        >>> store.has_commit("docs", 1)
        False
        >>> made.commit(receipts), store.has_commit("docs", 1)
        (True, True)
        """
        check_writer(writer, commit)
        return self._begin(self.check_states(states), writer, commit, recorded, self.recorded(list(recorded or ())))

    def _begin(
        self,
        schema: pa.Schema,
        writer: str,
        commit: int,
        recorded: Mapping[str, Any] | None,
        replacing: Mapping[str, Any] | None,
    ) -> Commit:
        texts, unchanged = checked_records(recorded), expected_texts(recorded, replacing)
        manifest = self._ensure_created(schema)
        return begin_commit(self._backend, manifest, writer, check_writer(writer, commit), texts, unchanged)

    def ensure_created(self, states: pa.Schema) -> Manifest:
        """Make the store, if it is not there, and check that it can take states of a schema; `append` does so first.

        Parameters
        ----------
        states : pa.Schema
            As `tiltframe.TiltFrame.states_schema` returns it.

        Returns
        -------
        Manifest
            As it is stored.

        Raises
        ------
        ValueError, StoreError
            As `check_states` does.
        """
        return self._ensure_created(self.check_states(states))

    def _ensure_created(self, states: pa.Schema) -> Manifest:
        """Make the store for states of a schema that has been checked against the frame."""
        if self._manifest is None:
            made = Manifest(self._name, self.frame, schema_of(states, self.frame), self._retention)
            self._backend = self._backend.store_named(made.name)
            self._backend.create(made.to_dict(), made.schema)
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
        """Read the store with what a stream into it still holds: the newest windows, of which each row counts once.

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
            If it is no path and no bytes.
        StoreError
            When it is read: if that is no saved state of a stream into this store, or one that is older than the store.

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
        It is one commit: whoever opens the store sees one frame or the other, and nothing that is stored changes.
        Others may read and write at the same time: those that have opened the store before go on reading by the frame
        it had, and are told to open it again if they write. An added measure that the states do not answer is null in
        every window that has rows from before; a dropped one is forgotten as parts are compacted. New levels have all
        that the coarsest one still holds.

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
