"""Checks of the guarantees of `tiltframe.store.backends.protocol.Backend`, for any implementation."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import aggr
from aggr.arrow.bit_equality import digest
from tiltframe.frame import TiltFrame
from tiltframe.instants import instants_of
from tiltframe.names import LEVEL, START
from tiltframe.ranges import EVER, inside
from tiltframe.rolling_up import rollup
from tiltframe.store.backends.buckets import bucket_of
from tiltframe.store.backends.protocol import Backend, Part, Snapshot, Transaction
from tiltframe.store.log.errors import Conflict
from tiltframe.store.log.manifest import Manifest, schema_of
from tiltframe.store.log.run import retry_on_conflict

SECOND = 1_000_000
HOUR = 3600 * SECOND
FRAME = TiltFrame(["1s", "1h"], "ts", {"n": aggr.count(), "s": aggr.sum("x"), "low": aggr.min("x")}, ["host"])
FINE, COARSE = FRAME.levels


def check_backend(make_backend: Callable[[], Backend]) -> None:
    """Check that a backend fulfils the guarantees of the protocol.

    Parameters
    ----------
    make_backend : callable
        A function without parameters. Each call returns a backend for a new, empty location. The function is called
        once for each check, about fifteen times.

    Raises
    ------
    AssertionError
        If the backend breaks a guarantee. The message names the first guarantee that is broken. Errors that the backend
        raises are not caught.

    Examples
    --------
    >>> from tiltframe.store.testing import MemoryBackend
    >>> check_backend(MemoryBackend)
    """
    _check_manifest(make_backend())
    checks_of_states = (
        _check_empty,
        _check_commit,
        _check_parts,
        _check_many_rows,
        _check_written_twice,
        _check_removal,
    )
    checks_of_transactions = (_check_conflicts, _check_revisions, _check_ranges, _check_combined_transaction)
    checks_of_processes = (
        _check_concurrent_commits,
        _check_concurrent_replacements,
        _check_added_columns,
        _check_vacuum,
    )
    for check in (*checks_of_states, *checks_of_transactions, *checks_of_processes):
        check(_StoreUnderTest.create(make_backend()))


@dataclass
class _StoreUnderTest:
    """A backend with a new store, and methods that write to the store and compare its contents with expected states."""

    backend: Backend
    schema: pa.Schema

    @classmethod
    def create(cls, backend: Backend) -> _StoreUnderTest:
        manifest = _manifest()
        backend = backend.store_named(manifest.name)
        backend.create(manifest.to_dict(), manifest.schema)
        return cls(backend, manifest.schema)

    def snapshot(self, *recorded: str) -> Snapshot:
        snapshot = self.backend.snapshot(recorded)
        assert snapshot is not None, "the backend breaks a guarantee: snapshot() is not None after create()"
        return snapshot

    def add(self, states: pa.Table, **recorded: str) -> list[Part]:
        parts = self.backend.write(FINE, states)
        self.backend.commit(_transaction(self.snapshot(*recorded), adds=parts, records=recorded))
        return parts

    def rows(self) -> pa.Table:
        pieces = [(part, EVER) for part in self.snapshot().of(FINE.name)]
        return self.backend.read(pieces, self.schema.names[1:])

    def expect_rows(self, states: pa.Table, guarantee: str) -> None:
        _expect(_are_equal(self.rows(), states), guarantee)

    def expect_conflict(self, description: str, transaction: Transaction) -> None:
        """Check that a commit of ``transaction`` raises `Conflict` and changes nothing. ``description`` describes the
        transaction in the message of an error.
        """
        before = self.snapshot("w", "other")
        rows = self.rows()
        try:
            self.backend.commit(transaction)
        except Conflict:
            pass
        else:
            raise AssertionError(f"the backend breaks a guarantee: commit() must raise Conflict for {description}")
        after = self.snapshot("w", "other")
        is_same = set(before.parts) == set(after.parts) and before.records == after.records
        is_same = is_same and before.manifest == after.manifest
        _expect(is_same and _are_equal(rows, self.rows()), "a commit that raises Conflict changes nothing")


def _check_manifest(backend: Backend) -> None:
    _expect(backend.snapshot() is None, "snapshot() returns None without a store")
    manifest = _manifest()
    backend = backend.store_named(manifest.name)
    new_manifest = manifest.to_dict()
    backend.create(new_manifest, manifest.schema)
    store = _StoreUnderTest(backend, manifest.schema)
    _expect(store.snapshot().manifest == new_manifest, "a snapshot has the manifest that was passed to create()")
    other = replace(manifest, retention={FINE.name: "1d"}).to_dict()
    backend.create(other, manifest.schema)
    snapshot = store.snapshot()
    _expect(snapshot.manifest == new_manifest, "a second call of create() does not change the store")
    backend.commit(_transaction(snapshot, describes=(other, manifest.schema)))
    _expect(store.snapshot().manifest == other, "commit() replaces the manifest by the one of the transaction")
    outdated_replacement = _transaction(snapshot, describes=(new_manifest, manifest.schema))
    store.expect_conflict(
        "a transaction that replaces a manifest which has changed since its snapshot", outdated_replacement
    )
    outdated_record = _transaction(snapshot, records={"w": "{}"})
    store.expect_conflict("a transaction whose snapshot has an earlier manifest", outdated_record)
    copied_backend: Backend = pickle.loads(pickle.dumps(backend))
    _expect(
        _StoreUnderTest(copied_backend, manifest.schema).snapshot().manifest == other,
        "a pickled copy of a backend opens the same store",
    )
    _expect(
        isinstance(backend.uri, str) and isinstance(backend.display_uri, str),
        "the attributes uri and display_uri are str",
    )


def _check_empty(store: _StoreUnderTest) -> None:
    snapshot = store.snapshot("w")
    _expect(not snapshot.parts and not snapshot.records, "a store without commits has no parts and no records")
    no_rows = store.backend.read([], store.schema.names[1:])
    _expect(
        no_rows.schema.equals(store.schema) and not no_rows.num_rows,
        "read() of an empty list of parts returns an empty table with the schema",
    )
    _expect(
        store.backend.write(FINE, _states([0]).slice(0, 0)) == [], "write() of a table without rows returns no parts"
    )
    _expect(store.backend.verify() == [], "verify() returns an empty list for an undamaged store")


def _check_commit(store: _StoreUnderTest) -> None:
    states = _states(range(3))
    # A store passes states with an additional column ``level`` to `write`, so this check does the same. The column
    # contains the name of the level in each row.
    more = states.add_column(0, LEVEL, pa.repeat(pa.scalar(FINE.name), states.num_rows))
    fine = store.backend.write(FINE, more)
    coarse = store.backend.write(COARSE, _states_between(states, 0, 1))
    before = store.snapshot("w", "note")
    note = '{"a": "\'\u00fc"}'
    _expect(not before.parts, "states are not readable before they are committed")
    transaction = _transaction(before, adds=[*fine, *coarse], records={"w": "1", "note": note})
    version = store.backend.commit(transaction)
    snapshot = store.snapshot("w", "note", "other")
    _expect(
        snapshot.version == version > before.version,
        "commit() returns the version of the new snapshot, which is greater than earlier versions",
    )
    _expect(set(snapshot.parts) == {*fine, *coarse}, "the parts of a snapshot equal those that write() returned")
    _expect(set(snapshot.of(COARSE.name)) == set(coarse), "a part has the level that was passed to write()")
    _expect(snapshot.texts == {"w": "1", "note": note}, "a snapshot has exactly the requested records")
    store.expect_rows(states, "read() returns states with the same bits as those passed to write()")
    later = store.backend.commit(_transaction(snapshot, records={"w": json.dumps("x" * 10_000)}))
    snapshot = store.snapshot("w", "note")
    _expect(
        snapshot.version == later > version,
        "each commit() returns the version of its snapshot, which is greater than all earlier versions",
    )
    _expect(len(snapshot.texts["w"]) == 10_002, "a transaction without parts can replace a record")
    _expect(
        set(snapshot.records) == {"w", "note"}, "a commit does not change records that its transaction does not name"
    )
    many = {f"name {i}": str(i) for i in range(1000)}
    for i in range(40):
        store.add(states.slice(0, 0), **{f"w{i}": str(i)}, **(many if i == 20 else {}))
    all_records = store.snapshot(*many, *(f"w{i}" for i in range(40)))
    _expect(all_records.texts == {**many, **{f"w{i}": str(i) for i in range(40)}}, "a store keeps a thousand records")
    complete = store.backend.snapshot(None)
    recorded_names = set() if complete is None else {*complete.records}
    _expect(recorded_names == {*all_records.records, "w", "note"}, "snapshot(None) has all records of the store")
    _expect(store.backend.verify() == [], "verify() returns an empty list for an undamaged store with states")


def _check_parts(store: _StoreUnderTest) -> None:
    states = _states(range(3))
    bucket = bucket_of(FINE)
    parts = store.add(states)
    _expect(len(parts) == 3, "write() returns one part for each bucket of time")
    _expect(len({part.name for part in parts}) == 3, "the names of parts are distinct")
    for part in parts:
        _expect(part.level == FINE.name, "the level of a part equals the level that was passed to write()")
        rows = store.backend.read([(part, EVER)], [])
        _expect(rows.column_names == [START], "read() returns window_start and the requested columns")
        starts = instants_of(rows)
        is_same = (int(starts.min()), int(starts.max()), len(starts)) == (part.first_start, part.last_start, part.rows)
        _expect(is_same, "first_start, last_start and rows of a part describe its states")
        _expect(len({*bucket.starts(starts).tolist()}) == 1, "all states of a part lie in one bucket of time")
    first = min(parts, key=lambda part: part.first_start)
    first_rows = store.backend.read([(first, (first.first_start, first.first_start + 1))], ["n", "host"])
    _expect(first_rows.column_names == [START, "n", "host"], "read() returns the columns in the requested order")
    expected = _states_between(states, first.first_start, first.first_start + 1).select(first_rows.column_names)
    _expect(_are_equal(first_rows, expected), "read() returns only states within the requested range")
    rows = store.backend.read([(part, EVER) for part in parts], store.schema.names[1:], "host = 'a'")
    _expect(
        _are_equal(_rows_of_host_a(rows), _rows_of_host_a(states)),
        "read() returns every row for which the condition is true",
    )


def _check_many_rows(store: _StoreUnderTest) -> None:
    states = _states_of_hosts(4_000)
    store.add(states)
    store.expect_rows(states, "read() returns all rows of a part with thousands of rows")


def _check_written_twice(store: _StoreUnderTest) -> None:
    states = _states(range(2))
    store.backend.write(FINE, states)
    store.add(states)
    store.backend.write(FINE, states)
    store.expect_rows(
        states, "read() returns states of committed parts only, and not of parts that were written without a commit"
    )
    store.backend.discard(store.backend.write(FINE, states))
    store.expect_rows(states, "discard() does not remove committed parts")


def _check_removal(store: _StoreUnderTest) -> None:
    states = _states(range(2))
    added = _states([5])
    first, second = sorted(store.add(states, w="1"), key=lambda part: part.first_start)
    before = store.snapshot()
    new = store.backend.write(FINE, added)
    store.backend.commit(_transaction(before, adds=new, removes=[first]))
    remaining = _states_between(states, second.first_start, EVER[1])
    store.expect_rows(pa.concat_tables([remaining, added]), "one commit can add and remove parts")
    _expect(second in store.snapshot().parts, "a commit does not change the parts that it does not remove")
    extra = store.backend.write(FINE, _states([7]))
    repeated_removal = _transaction(store.snapshot(), adds=extra, removes=[first])
    store.expect_conflict("a transaction that removes a part which is already removed", repeated_removal)
    # Read all parts of the snapshot ``before``. A later commit has removed one of them.
    try:
        old = store.backend.read([(part, EVER) for part in before.parts], store.schema.names[1:])
    except Conflict:
        pass
    else:
        _expect(
            _are_equal(old, states), "read() of the parts of an older snapshot returns their rows, or raises Conflict"
        )
    _expect(store.snapshot("w").texts == {"w": "1"}, "a record remains when the parts of the same commit are removed")


def _check_conflicts(store: _StoreUnderTest) -> None:
    store.add(_states([0]), w="3")
    snapshot = store.snapshot("w", "other")
    new = store.backend.write(FINE, _states([1]))
    store.add(_states([2]), w="4")
    late_transaction = _transaction(snapshot, adds=new, records={"w": "5"})
    store.expect_conflict("a transaction that writes a record which was written after its snapshot", late_transaction)
    store.backend.commit(_transaction(snapshot, adds=new, records={"other": "1"}))
    store.expect_rows(_states([0, 2, 1]), "commits that write different records do not conflict")
    _expect(store.snapshot("other").texts == {"other": "1"}, "a commit with an older snapshot writes its records")
    store.expect_conflict(
        "a transaction that writes the same record again with the older snapshot",
        _transaction(snapshot, records={"other": "1"}),
    )


def _check_revisions(store: _StoreUnderTest) -> None:
    """Check that a conflict is found by the revision of a record, and not by its text: writing the same text again
    counts as a change.
    """
    store.add(_states([0]), w="1")
    snapshot = store.snapshot("w", "other")
    store.add(_states([1]), w="1")
    _expect(store.snapshot("w").texts == {"w": "1"}, "a record can be replaced by a record with the same text")
    _expect(
        store.snapshot("w").revision("w") != snapshot.revision("w"),
        "writing a record with the same text changes its revision",
    )
    store.expect_conflict(
        "a transaction that writes a record which was replaced by the same text after its snapshot",
        _transaction(snapshot, records={"w": "1"}),
    )
    store.add(_states([2]), w="2")
    store.add(_states([3]), w="1")
    store.expect_conflict(
        "a transaction that read a record whose text has changed and changed back after its snapshot",
        _transaction_that_read(snapshot, "w", other="x"),
    )
    store.backend.commit(_transaction_that_read(store.snapshot("w", "other"), "w", other="x"))
    _expect(
        store.snapshot("other").texts == {"other": "x"}, "a transaction that read an unchanged record does not conflict"
    )
    snapshot = store.snapshot("none", "w")
    store.add(_states([4]), none="1")
    store.expect_conflict(
        "a transaction that read a missing record which was written after its snapshot",
        _transaction_that_read(snapshot, "none", w="9"),
    )


def _check_ranges(store: _StoreUnderTest) -> None:
    store.add(_states([0, 4]))
    snapshot = store.snapshot()
    hours = [(hour * HOUR, (hour + 1) * HOUR) for hour in range(6)]
    new = [store.backend.write(FINE, _states([hour])) for hour in range(6)]
    coarse = store.backend.write(COARSE, _states_between(_states([2]), 2 * HOUR, 2 * HOUR + 1))
    store.backend.commit(_transaction(store.snapshot(), adds=[*new[1], *coarse]))
    late_transaction = _transaction(snapshot, adds=new[2])
    late_transaction.reads(FINE.name, (0, 2 * HOUR))
    store.expect_conflict(
        "a transaction that read a range to which a part was added after its snapshot", late_transaction
    )
    transaction_outside = _transaction(snapshot, adds=new[3])
    transaction_outside.reads(FINE.name, hours[2])
    transaction_outside.reads(COARSE.name, hours[3])
    store.backend.commit(transaction_outside)
    store.expect_rows(_states([0, 4, 1, 3]), "parts that are added outside the ranges of a transaction do not conflict")
    snapshot = store.snapshot()
    removed = [part for part in snapshot.of(FINE.name) if part.within(hours[4])]
    store.backend.commit(_transaction(snapshot, removes=removed))
    late_transaction = _transaction(snapshot, adds=new[5])
    late_transaction.reads(FINE.name, hours[4])
    store.expect_conflict(
        "a transaction that read a range from which a part was removed after its snapshot", late_transaction
    )


def _check_combined_transaction(store: _StoreUnderTest) -> None:
    """Check one transaction that adds and removes parts, writes records and changes the manifest. The transaction
    removes only one of the two parts of a bucket.
    """
    first, _ = sorted(store.add(_states([0, 1]), w="1"), key=lambda part: part.first_start)
    store.add(_states([0]))
    new_manifest = replace(_manifest(), retention={FINE.name: "1d"}).to_dict()
    new = store.backend.write(FINE, _states([2]))
    snapshot = store.snapshot("w")
    manifest = (new_manifest, store.schema)
    store.backend.commit(_transaction(snapshot, adds=new, removes=[first], records={"w": "2"}, describes=manifest))
    store.expect_rows(_states([0, 1, 2]), "a commit that replaces the manifest can also add and remove parts")
    now = store.snapshot("w")
    _expect(
        now.texts == {"w": "2"} and now.manifest == new_manifest,
        "a commit that replaces the manifest can also write records",
    )
    late_transaction = _transaction(now, removes=[first], describes=(_manifest().to_dict(), store.schema))
    store.expect_conflict(
        "a transaction that replaces the manifest and removes a part which is already removed", late_transaction
    )


def _check_added_columns(store: _StoreUnderTest) -> None:
    """Check that columns of states and a level can be added to a store that has rows. A second backend object, which
    opened the store before the change, must still be able to write.
    """
    before = _states([0])
    older_backend: Backend = pickle.loads(pickle.dumps(store.backend))
    store.add(before)
    older_backend.snapshot()
    measures = {**FRAME.measures, "more": aggr.min("x", where="x > 0")}
    frame = TiltFrame([*FRAME.levels, "1d"], FRAME.time, measures, FRAME.keys)
    more = before.append_column("more", before.column("low"))
    schema = pa.schema([*store.schema, pa.field("more", before.schema.field("low").type)])
    new_manifest = replace(_manifest(), frame=frame, schema=schema, generation=1).to_dict()
    # The states start at time 0, where a day also starts. They can therefore be written as states of the level 1d.
    days = store.backend.write(frame.levels[-1], _states_between(before, 0, 1))
    snapshot = store.snapshot("w")
    store.backend.commit(_transaction(snapshot, adds=days, records={"w": "1"}, describes=(new_manifest, schema)))
    snapshot = store.snapshot("w")
    _expect(snapshot.manifest == new_manifest, "a commit can replace the manifest by a manifest with more states")
    _expect(
        set(snapshot.of("1d")) == set(days) and snapshot.texts == {"w": "1"},
        "the parts and records of a commit that replaces the manifest are readable",
    )
    states_without_column = before.append_column(
        schema.field("more"), pa.nulls(before.num_rows, schema.field("more").type)
    )
    store.schema = schema
    store.expect_rows(states_without_column, "read() returns null for a column that was added after a part was written")
    store.add(_shifted(more, HOUR))
    store.expect_rows(
        pa.concat_tables([states_without_column, _shifted(more, HOUR)]),
        "read() returns the rows that were written before and after a column was added",
    )
    late_parts = older_backend.write(FINE, _shifted(before, 2 * HOUR))
    older_backend.commit(_transaction(store.snapshot(), adds=late_parts))
    store.expect_rows(
        pa.concat_tables([states_without_column, _shifted(more, HOUR), _shifted(states_without_column, 2 * HOUR)]),
        "write() accepts states that lack a column of the new manifest",
    )


def _shifted(states: pa.Table, by: int) -> pa.Table:
    starts = pa.array(instants_of(states) + by).cast(states.schema.field(START).type)
    return states.set_column(states.column_names.index(START), states.schema.field(START), starts)


def _check_vacuum(store: _StoreUnderTest) -> None:
    states = _states(range(2))
    first, second = sorted(store.add(states), key=lambda part: part.first_start)
    before = store.snapshot()
    # ``reader`` stands for the backend of another process, which does not run vacuum itself.
    reader: Backend = pickle.loads(pickle.dumps(store.backend))
    reader.read([(part, EVER) for part in before.parts], store.schema.names[1:])
    store.backend.write(FINE, _states([1]))
    store.backend.commit(_transaction(store.snapshot(), removes=[first]))
    _expect(store.backend.vacuum(0.0) >= 0, "vacuum() returns the number of removed parts")
    store.expect_rows(_states_between(states, first.last_start + 1, EVER[1]), "vacuum() does not remove readable parts")
    for backend in (store.backend, reader):
        for parts in (before.parts, (first,), (second, first)):
            _expect_whole_or_conflict(backend, parts, store.schema, states)
        remaining_part = [(second, EVER)]
        remaining_rows = backend.read(remaining_part, store.schema.names[1:])
        _expect(
            _are_equal(remaining_rows, _states_between(states, second.first_start, EVER[1])),
            "a part that no commit has removed remains readable",
        )


def _expect_whole_or_conflict(backend: Backend, parts: Sequence[Part], schema: pa.Schema, states: pa.Table) -> None:
    """Read ``parts`` of an older snapshot. Check that the read returns all rows of the parts, which are in ``states``,
    or raises `Conflict` because vacuum has removed a part. The read must never return fewer rows.
    """
    try:
        rows = backend.read([(part, EVER) for part in parts], schema.names[1:])
    except Conflict:
        return
    written = pa.concat_tables([_states_between(states, part.first_start, part.last_start + 1) for part in parts])
    _expect(
        _are_equal(rows, written), "read() of a part that vacuum() has removed raises Conflict, or returns all its rows"
    )


def _check_concurrent_commits(store: _StoreUnderTest) -> None:
    """Check concurrent commits of several threads. Each thread uses its own pickled copy of the backend."""
    unexpected_errors: list[BaseException] = []
    winners: list[str] = []
    snapshot = store.snapshot("race")

    def work(i: int) -> None:
        try:
            backend: Backend = pickle.loads(pickle.dumps(store.backend))
            for number in range(3):
                parts = backend.write(FINE, _states([4 * i + number]))
                retry_on_conflict(lambda: commit(backend, parts, f"w{i}", str(number)))  # noqa: B023
            retry_on_conflict(lambda: race(backend, i))
        except BaseException as error:
            unexpected_errors.append(error)

    def commit(backend: Backend, parts: Sequence[Part], name: str, text: str) -> None:
        now = backend.snapshot([name])
        assert now is not None
        backend.commit(_transaction(now, adds=parts, records={name: text}))

    def race(backend: Backend, i: int) -> None:
        now = backend.snapshot(["race"])
        if now is not None and "race" in now.records:
            return
        backend.commit(_transaction(snapshot, records={"race": str(i)}))
        winners.append(str(i))

    threads = [threading.Thread(target=work, args=[i]) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if unexpected_errors:
        raise unexpected_errors[0]
    states = pa.concat_tables([_states([4 * i + number]) for i in range(4) for number in range(3)])
    store.expect_rows(states, "concurrent commits of several writers are all applied exactly once")
    _expect(
        [store.snapshot("race").texts["race"]] == winners,
        "only one of several commits with the same snapshot and record succeeds",
    )


def _check_concurrent_replacements(store: _StoreUnderTest) -> None:
    """Check concurrent commits that all add a part and replace the same record by the same text. Only one of them may
    succeed.
    """
    store.add(_states([0]), guard="{}")
    snapshot = store.snapshot("guard")
    start = threading.Barrier(4)
    accepted: list[int] = []
    unexpected_errors: list[BaseException] = []

    def work(hour: int) -> None:
        try:
            backend: Backend = pickle.loads(pickle.dumps(store.backend))
            transaction = _transaction(snapshot, adds=backend.write(FINE, _states([hour])), records={"guard": "{}"})
            start.wait()
            backend.commit(transaction)
            accepted.append(hour)
        except Conflict:
            pass
        except BaseException as error:
            unexpected_errors.append(error)
            start.abort()

    threads = [threading.Thread(target=work, args=[hour]) for hour in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if unexpected_errors:
        raise unexpected_errors[0]
    _expect(
        len(accepted) == 1, "only one of several concurrent commits that replace a record by the same text succeeds"
    )
    store.expect_rows(_states([0, *accepted]), "read() returns the rows of the successful commit only")


def _transaction(
    snapshot: Snapshot,
    adds: Sequence[Part] = (),
    removes: Sequence[Part] = (),
    records: Mapping[str, str] | None = None,
    describes: tuple[Mapping[str, Any], pa.Schema] | None = None,
) -> Transaction:
    transaction = Transaction(snapshot)
    transaction.adds(adds)
    transaction.removes(removes)
    for name, text in (records or {}).items():
        transaction.records(name, text)
    if describes is not None:
        transaction.describes(*describes)
    return transaction


def _transaction_that_read(snapshot: Snapshot, name: str, **records: str) -> Transaction:
    transaction = _transaction(snapshot, records=records)
    transaction.read(name)
    return transaction


def _expect(holds: bool, guarantee: str) -> None:
    if not holds:
        raise AssertionError(f"the backend breaks a guarantee: {guarantee}")


def _manifest() -> Manifest:
    return Manifest("checked", FRAME, schema_of(_states([0]).schema, FRAME))


def _states(hours: Sequence[int]) -> pa.Table:
    """Return states of the finest level whose rows have values that are difficult to store: ``"``, a backslash and null
    as keys, and -0.0, infinity, NaN and the smallest double as numbers. There are states for three hosts, in the first
    five seconds of each hour in ``hours``.
    """
    hosts = ["a", 'ü"\\', None]
    values = [0.1, -0.0, float("inf"), 5e-324, float("nan")]
    events = [
        {"ts": (hour * HOUR + second * SECOND) // 1000, "host": host, "x": values[(second + i) % 5]}
        for hour in hours
        for second in range(5)
        for i, host in enumerate(hosts)
    ]
    schema = pa.schema([("ts", pa.int64()), ("host", pa.string()), ("x", pa.float64())])
    states = rollup(pa.Table.from_pylist(events, schema), FRAME)
    finest = states.filter(pc.equal(states.column(LEVEL), FINE.name))
    return finest.select(schema_of(states.schema, FRAME).names)


def _states_of_hosts(count: int) -> pa.Table:
    """Return one state of the finest level for each of ``count`` hosts, all in the first second."""
    numbers = range(count)
    hosts = [f"h{i}" for i in numbers]
    values = [i / 3 for i in numbers]
    events = pa.table({"ts": pa.array([0] * count), "host": hosts, "x": values})
    states = rollup(events, FRAME)
    finest = states.filter(pc.equal(states.column(LEVEL), FINE.name))
    return finest.select(schema_of(states.schema, FRAME).names)


def _states_between(states: pa.Table, low: int, high: int) -> pa.Table:
    return states.filter(pa.array(inside(instants_of(states), [(low, high)])))


def _rows_of_host_a(states: pa.Table) -> pa.Table:
    return states.filter(pc.equal(states.column("host"), "a"))


def _are_equal(table: pa.Table, other: pa.Table) -> bool:
    if table.column_names != other.column_names or table.schema.types != other.schema.types:
        return False
    by = [(name, "ascending") for name in (START, "host") if name in table.column_names]
    table = table.sort_by(by)
    other = other.sort_by(by)
    return table.num_rows == other.num_rows and all(
        digest(table[name]) == digest(other[name]) for name in table.column_names
    )
