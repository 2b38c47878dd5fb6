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
        A function that returns, at each call, the backend of a new, empty place. It is called once for each check,
        about fifteen times.

    Raises
    ------
    AssertionError
        For the first guarantee that is broken; the message names it. Errors of the backend are not caught.

    Examples
    --------
    >>> from tiltframe.store.testing import MemoryBackend
    >>> check_backend(MemoryBackend)
    """
    _check_manifest(make_backend())
    of_states = (_check_empty, _check_commit, _check_parts, _check_many_rows, _check_written_twice, _check_removal)
    of_transactions = (_check_conflicts, _check_revisions, _check_ranges, _check_all_at_once)
    of_processes = (_check_together, _check_guarded_together, _check_evolving, _check_vacuum)
    for check in (*of_states, *of_transactions, *of_processes):
        check(_Tried.create(make_backend()))


@dataclass
class _Tried:
    """A backend with a new store, and methods that write to the store and compare its contents with expected states."""

    backend: Backend
    schema: pa.Schema

    @classmethod
    def create(cls, backend: Backend) -> _Tried:
        manifest = _manifest()
        backend = backend.store_named(manifest.name)
        backend.create(manifest.to_dict(), manifest.schema)
        return cls(backend, manifest.schema)

    def snapshot(self, *recorded: str) -> Snapshot:
        snapshot = self.backend.snapshot(recorded)
        assert snapshot is not None, "the backend breaks a promise: snapshot() is not None after create()"
        return snapshot

    def add(self, states: pa.Table, **recorded: str) -> list[Part]:
        parts = self.backend.write(FINE, states)
        self.backend.commit(_transaction(self.snapshot(*recorded), adds=parts, records=recorded))
        return parts

    def rows(self) -> pa.Table:
        pieces = [(part, EVER) for part in self.snapshot().of(FINE.name)]
        return self.backend.read(pieces, self.schema.names[1:])

    def expect_rows(self, states: pa.Table, why: str) -> None:
        _expect(_same(self.rows(), states), why)

    def expect_conflict(self, why: str, transaction: Transaction) -> None:
        """Check that a commit of ``transaction`` raises `Conflict` and changes nothing. ``why`` is a description of
        the transaction, which the message of an error contains.
        """
        before, rows = self.snapshot("w", "other"), self.rows()
        try:
            self.backend.commit(transaction)
        except Conflict:
            pass
        else:
            raise AssertionError(f"the backend breaks a promise: commit() raises Conflict for {why}")
        after = self.snapshot("w", "other")
        same = set(before.parts) == set(after.parts) and before.records == after.records
        same = same and before.manifest == after.manifest
        _expect(same and _same(rows, self.rows()), "a commit that raises Conflict changes nothing")


def _check_manifest(backend: Backend) -> None:
    _expect(backend.snapshot() is None, "snapshot() returns None without a store")
    manifest = _manifest()
    backend, described = backend.store_named(manifest.name), manifest.to_dict()
    backend.create(described, manifest.schema)
    tried = _Tried(backend, manifest.schema)
    _expect(tried.snapshot().manifest == described, "a snapshot has the manifest that was passed to create()")
    other = replace(manifest, retention={FINE.name: "1d"}).to_dict()
    backend.create(other, manifest.schema)
    seen = tried.snapshot()
    _expect(seen.manifest == described, "a second call of create() does not change the store")
    backend.commit(_transaction(seen, describes=(other, manifest.schema)))
    _expect(tried.snapshot().manifest == other, "commit() replaces the manifest by the one of the transaction")
    again = _transaction(seen, describes=(described, manifest.schema))
    tried.expect_conflict("a transaction that replaces a manifest which has changed since its snapshot", again)
    by_old = _transaction(seen, records={"w": "{}"})
    tried.expect_conflict("a transaction whose snapshot has an earlier manifest", by_old)
    moved: Backend = pickle.loads(pickle.dumps(backend))
    _expect(
        _Tried(moved, manifest.schema).snapshot().manifest == other, "a pickled copy of a backend opens the same store"
    )
    _expect(
        isinstance(backend.uri, str) and isinstance(backend.display_uri, str),
        "the attributes uri and display_uri are str",
    )


def _check_empty(tried: _Tried) -> None:
    seen = tried.snapshot("w")
    _expect(not seen.parts and not seen.records, "a store without commits has no parts and no records")
    none = tried.backend.read([], tried.schema.names[1:])
    _expect(
        none.schema.equals(tried.schema) and not none.num_rows,
        "read() of an empty list of parts returns an empty table with the schema",
    )
    _expect(
        tried.backend.write(FINE, _states([0]).slice(0, 0)) == [], "write() of a table without rows returns no parts"
    )
    _expect(tried.backend.verify() == [], "verify() returns an empty list for an undamaged store")


def _check_commit(tried: _Tried) -> None:
    states = _states(range(3))
    # Like a store, pass states with a further column ``level``. Its value in each row is the name of the level.
    more = states.add_column(0, LEVEL, pa.repeat(pa.scalar(FINE.name), states.num_rows))
    fine, coarse = tried.backend.write(FINE, more), tried.backend.write(COARSE, _between(states, 0, 1))
    before, note = tried.snapshot("w", "note"), '{"a": "\'\u00fc"}'
    _expect(not before.parts, "states are not readable before they are committed")
    transaction = _transaction(before, adds=[*fine, *coarse], records={"w": "1", "note": note})
    version = tried.backend.commit(transaction)
    seen = tried.snapshot("w", "note", "other")
    _expect(
        seen.version == version > before.version,
        "commit() returns the version of the new snapshot, which is greater than earlier versions",
    )
    _expect(set(seen.parts) == {*fine, *coarse}, "the parts of a snapshot equal those that write() returned")
    _expect(set(seen.of(COARSE.name)) == set(coarse), "a part has the level that was passed to write()")
    _expect(seen.texts == {"w": "1", "note": note}, "a snapshot has exactly the requested records")
    tried.expect_rows(states, "read() returns states with the same bits as those passed to write()")
    later = tried.backend.commit(_transaction(seen, records={"w": json.dumps("x" * 10_000)}))
    seen = tried.snapshot("w", "note")
    _expect(
        seen.version == later > version,
        "each commit() returns the version of its snapshot, which is greater than all earlier versions",
    )
    _expect(len(seen.texts["w"]) == 10_002, "a transaction without parts can replace a record")
    _expect(set(seen.records) == {"w", "note"}, "a commit does not change records that its transaction does not name")
    many = {f"name {i}": str(i) for i in range(1000)}
    for i in range(40):
        tried.add(states.slice(0, 0), **{f"w{i}": str(i)}, **(many if i == 20 else {}))
    every = tried.snapshot(*many, *(f"w{i}" for i in range(40)))
    _expect(every.texts == {**many, **{f"w{i}": str(i) for i in range(40)}}, "a store keeps a thousand records")
    complete = tried.backend.snapshot(None)
    recorded_names = set() if complete is None else {*complete.records}
    _expect(recorded_names == {*every.records, "w", "note"}, "snapshot(None) has all records of the store")
    _expect(tried.backend.verify() == [], "verify() returns an empty list for an undamaged store with states")


def _check_parts(tried: _Tried) -> None:
    states = _states(range(3))
    bucket = bucket_of(FINE)
    parts = tried.add(states)
    _expect(len(parts) == 3, "write() returns one part for each bucket of time")
    _expect(len({part.name for part in parts}) == 3, "the names of parts are distinct")
    for part in parts:
        _expect(part.level == FINE.name, "the level of a part equals the level that was passed to write()")
        rows = tried.backend.read([(part, EVER)], [])
        _expect(rows.column_names == [START], "read() returns window_start and the requested columns")
        starts = instants_of(rows)
        same = (int(starts.min()), int(starts.max()), len(starts)) == (part.first_start, part.last_start, part.rows)
        _expect(same, "first_start, last_start and rows of a part describe its states")
        _expect(len({*bucket.starts(starts).tolist()}) == 1, "all states of a part lie in one bucket of time")
    first = min(parts, key=lambda part: part.first_start)
    first_rows = tried.backend.read([(first, (first.first_start, first.first_start + 1))], ["n", "host"])
    _expect(first_rows.column_names == [START, "n", "host"], "read() returns the columns in the requested order")
    expected = _between(states, first.first_start, first.first_start + 1).select(first_rows.column_names)
    _expect(_same(first_rows, expected), "read() returns only states within the requested range")
    rows = tried.backend.read([(part, EVER) for part in parts], tried.schema.names[1:], "host = 'a'")
    _expect(
        _same(_rows_of_host_a(rows), _rows_of_host_a(states)),
        "read() returns every row for which the condition is true",
    )


def _check_many_rows(tried: _Tried) -> None:
    states = _states_of_hosts(4_000)
    tried.add(states)
    tried.expect_rows(states, "read() returns all rows of a part with thousands of rows")


def _check_written_twice(tried: _Tried) -> None:
    states = _states(range(2))
    tried.backend.write(FINE, states)
    tried.add(states)
    tried.backend.write(FINE, states)
    tried.expect_rows(
        states, "read() returns states of committed parts only, and not of parts that were written without a commit"
    )
    tried.backend.discard(tried.backend.write(FINE, states))
    tried.expect_rows(states, "discard() does not remove committed parts")


def _check_removal(tried: _Tried) -> None:
    states, added = _states(range(2)), _states([5])
    first, second = sorted(tried.add(states, w="1"), key=lambda part: part.first_start)
    before = tried.snapshot()
    new = tried.backend.write(FINE, added)
    tried.backend.commit(_transaction(before, adds=new, removes=[first]))
    remaining = _between(states, second.first_start, EVER[1])
    tried.expect_rows(pa.concat_tables([remaining, added]), "one commit can add and remove parts")
    _expect(second in tried.snapshot().parts, "a commit does not change the parts that it does not remove")
    extra = tried.backend.write(FINE, _states([7]))
    twice = _transaction(tried.snapshot(), adds=extra, removes=[first])
    tried.expect_conflict("a transaction that removes a part which is already removed", twice)
    try:  # The snapshot ``before`` lists a part that a later commit has removed.
        old = tried.backend.read([(part, EVER) for part in before.parts], tried.schema.names[1:])
    except Conflict:
        pass
    else:
        _expect(_same(old, states), "read() of the parts of an older snapshot returns their rows, or raises Conflict")
    _expect(tried.snapshot("w").texts == {"w": "1"}, "a record remains when the parts of the same commit are removed")


def _check_conflicts(tried: _Tried) -> None:
    tried.add(_states([0]), w="3")
    seen = tried.snapshot("w", "other")
    new = tried.backend.write(FINE, _states([1]))
    tried.add(_states([2]), w="4")
    late = _transaction(seen, adds=new, records={"w": "5"})
    tried.expect_conflict("a transaction that writes a record which was written after its snapshot", late)
    tried.backend.commit(_transaction(seen, adds=new, records={"other": "1"}))
    tried.expect_rows(_states([0, 2, 1]), "commits that write different records do not conflict")
    _expect(tried.snapshot("other").texts == {"other": "1"}, "a commit with an older snapshot writes its records")
    tried.expect_conflict(
        "a transaction that writes the same record again with the older snapshot",
        _transaction(seen, records={"other": "1"}),
    )


def _check_revisions(tried: _Tried) -> None:
    """Check that records are compared by revision: writing the same text again counts as a change."""
    tried.add(_states([0]), w="1")
    seen = tried.snapshot("w", "other")
    tried.add(_states([1]), w="1")
    _expect(tried.snapshot("w").texts == {"w": "1"}, "a record can be replaced by a record with the same text")
    _expect(
        tried.snapshot("w").revision("w") != seen.revision("w"),
        "writing a record with the same text changes its revision",
    )
    tried.expect_conflict(
        "a transaction that writes a record which was replaced by the same text after its snapshot",
        _transaction(seen, records={"w": "1"}),
    )
    tried.add(_states([2]), w="2")
    tried.add(_states([3]), w="1")
    tried.expect_conflict(
        "a transaction that read a record whose text has changed and changed back after its snapshot",
        _reading(seen, "w", other="x"),
    )
    tried.backend.commit(_reading(tried.snapshot("w", "other"), "w", other="x"))
    _expect(
        tried.snapshot("other").texts == {"other": "x"}, "a transaction that read an unchanged record does not conflict"
    )
    seen = tried.snapshot("none", "w")
    tried.add(_states([4]), none="1")
    tried.expect_conflict(
        "a transaction that read a missing record which was written after its snapshot", _reading(seen, "none", w="9")
    )


def _check_ranges(tried: _Tried) -> None:
    tried.add(_states([0, 4]))
    seen = tried.snapshot()
    hours = [(hour * HOUR, (hour + 1) * HOUR) for hour in range(6)]
    new = [tried.backend.write(FINE, _states([hour])) for hour in range(6)]
    coarse = tried.backend.write(COARSE, _between(_states([2]), 2 * HOUR, 2 * HOUR + 1))
    tried.backend.commit(_transaction(tried.snapshot(), adds=[*new[1], *coarse]))
    late = _transaction(seen, adds=new[2])
    late.reads(FINE.name, (0, 2 * HOUR))
    tried.expect_conflict("a transaction that read a range to which a part was added after its snapshot", late)
    outside = _transaction(seen, adds=new[3])
    outside.reads(FINE.name, hours[2])
    outside.reads(COARSE.name, hours[3])
    tried.backend.commit(outside)
    tried.expect_rows(_states([0, 4, 1, 3]), "parts that are added outside the ranges of a transaction do not conflict")
    seen = tried.snapshot()
    removed = [part for part in seen.of(FINE.name) if part.within(hours[4])]
    tried.backend.commit(_transaction(seen, removes=removed))
    late = _transaction(seen, adds=new[5])
    late.reads(FINE.name, hours[4])
    tried.expect_conflict("a transaction that read a range from which a part was removed after its snapshot", late)


def _check_all_at_once(tried: _Tried) -> None:
    """Check one transaction that adds and removes parts, writes records and changes the manifest. The transaction
    removes only one of the two parts of a bucket.
    """
    first, _ = sorted(tried.add(_states([0, 1]), w="1"), key=lambda part: part.first_start)
    tried.add(_states([0]))
    described = replace(_manifest(), retention={FINE.name: "1d"}).to_dict()
    new = tried.backend.write(FINE, _states([2]))
    seen, manifest = tried.snapshot("w"), (described, tried.schema)
    tried.backend.commit(_transaction(seen, adds=new, removes=[first], records={"w": "2"}, describes=manifest))
    tried.expect_rows(_states([0, 1, 2]), "a commit that replaces the manifest can also add and remove parts")
    now = tried.snapshot("w")
    _expect(
        now.texts == {"w": "2"} and now.manifest == described,
        "a commit that replaces the manifest can also write records",
    )
    late = _transaction(now, removes=[first], describes=(_manifest().to_dict(), tried.schema))
    tried.expect_conflict("a transaction that replaces the manifest and removes a part which is already removed", late)


def _check_evolving(tried: _Tried) -> None:
    """Check that columns of states and a level can be added to a store that has rows. A second backend object, which
    opened the store before the change, must still be able to write.
    """
    before = _states([0])
    opened: Backend = pickle.loads(pickle.dumps(tried.backend))
    tried.add(before)
    opened.snapshot()
    measures = {**FRAME.measures, "more": aggr.min("x", where="x > 0")}
    frame = TiltFrame([*FRAME.levels, "1d"], FRAME.time, measures, FRAME.keys)
    more = before.append_column("more", before.column("low"))
    schema = pa.schema([*tried.schema, pa.field("more", before.schema.field("low").type)])
    described = replace(_manifest(), frame=frame, schema=schema, generation=1).to_dict()
    # these states start at the time 0, at which a day starts too, so they can be written as states of the level 1d
    days = tried.backend.write(frame.levels[-1], _between(before, 0, 1))
    seen = tried.snapshot("w")
    tried.backend.commit(_transaction(seen, adds=days, records={"w": "1"}, describes=(described, schema)))
    seen = tried.snapshot("w")
    _expect(seen.manifest == described, "a commit can replace the manifest by a manifest with more states")
    _expect(
        set(seen.of("1d")) == set(days) and seen.texts == {"w": "1"},
        "the parts and records of a commit that replaces the manifest are readable",
    )
    lacking = before.append_column(schema.field("more"), pa.nulls(before.num_rows, schema.field("more").type))
    tried.schema = schema
    tried.expect_rows(lacking, "read() returns null for a column that was added after a part was written")
    tried.add(_moved(more, HOUR))
    tried.expect_rows(
        pa.concat_tables([lacking, _moved(more, HOUR)]),
        "read() returns the rows that were written before and after a column was added",
    )
    late = opened.write(FINE, _moved(before, 2 * HOUR))
    opened.commit(_transaction(tried.snapshot(), adds=late))
    tried.expect_rows(
        pa.concat_tables([lacking, _moved(more, HOUR), _moved(lacking, 2 * HOUR)]),
        "write() accepts states that lack a column of the new manifest",
    )


def _moved(states: pa.Table, by: int) -> pa.Table:
    starts = pa.array(instants_of(states) + by).cast(states.schema.field(START).type)
    return states.set_column(states.column_names.index(START), states.schema.field(START), starts)


def _check_vacuum(tried: _Tried) -> None:
    states = _states(range(2))
    first, second = sorted(tried.add(states), key=lambda part: part.first_start)
    before = tried.snapshot()
    # this copy stands for the backend of another process, in which vacuum does not run
    reader: Backend = pickle.loads(pickle.dumps(tried.backend))
    reader.read([(part, EVER) for part in before.parts], tried.schema.names[1:])
    tried.backend.write(FINE, _states([1]))
    tried.backend.commit(_transaction(tried.snapshot(), removes=[first]))
    _expect(tried.backend.vacuum(0.0) >= 0, "vacuum() returns the number of removed parts")
    tried.expect_rows(_between(states, first.last_start + 1, EVER[1]), "vacuum() does not remove readable parts")
    for backend in (tried.backend, reader):
        for parts in (before.parts, (first,), (second, first)):
            _expect_whole_or_conflict(backend, parts, tried.schema, states)
        own = [(second, EVER)]
        left = backend.read(own, tried.schema.names[1:])
        _expect(
            _same(left, _between(states, second.first_start, EVER[1])),
            "a part that no commit has removed remains readable",
        )


def _expect_whole_or_conflict(backend: Backend, parts: Sequence[Part], schema: pa.Schema, states: pa.Table) -> None:
    """Check that a read of ``parts``, which belong to an older snapshot, returns all their rows (``states``), or raises
    `Conflict` because vacuum has removed a part. The read must never return fewer rows.
    """
    try:
        rows = backend.read([(part, EVER) for part in parts], schema.names[1:])
    except Conflict:
        return
    written = pa.concat_tables([_between(states, part.first_start, part.last_start + 1) for part in parts])
    _expect(_same(rows, written), "read() of a part that vacuum() has removed raises Conflict, or returns all its rows")


def _check_together(tried: _Tried) -> None:
    """Check concurrent commits of several threads. Each thread uses its own pickled copy of the backend."""
    errors: list[BaseException] = []
    winners: list[str] = []
    seen = tried.snapshot("race")

    def work(i: int) -> None:
        try:
            backend: Backend = pickle.loads(pickle.dumps(tried.backend))
            for number in range(3):
                parts = backend.write(FINE, _states([4 * i + number]))
                retry_on_conflict(lambda: commit(backend, parts, f"w{i}", str(number)))  # noqa: B023
            retry_on_conflict(lambda: race(backend, i))
        except BaseException as error:
            errors.append(error)

    def commit(backend: Backend, parts: Sequence[Part], name: str, text: str) -> None:
        now = backend.snapshot([name])
        assert now is not None
        backend.commit(_transaction(now, adds=parts, records={name: text}))

    def race(backend: Backend, i: int) -> None:
        now = backend.snapshot(["race"])
        if now is not None and "race" in now.records:
            return
        backend.commit(_transaction(seen, records={"race": str(i)}))
        winners.append(str(i))

    threads = [threading.Thread(target=work, args=[i]) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    states = pa.concat_tables([_states([4 * i + number]) for i in range(4) for number in range(3)])
    tried.expect_rows(states, "concurrent commits of several writers are all applied exactly once")
    _expect(
        [tried.snapshot("race").texts["race"]] == winners,
        "only one of several commits with the same snapshot and record succeeds",
    )


def _check_guarded_together(tried: _Tried) -> None:
    """Check concurrent commits that all add a part and replace the same record by the same text. Only one of them may
    succeed.
    """
    tried.add(_states([0]), guard="{}")
    seen = tried.snapshot("guard")
    start = threading.Barrier(4)
    accepted: list[int] = []
    errors: list[BaseException] = []

    def work(hour: int) -> None:
        try:
            backend: Backend = pickle.loads(pickle.dumps(tried.backend))
            transaction = _transaction(seen, adds=backend.write(FINE, _states([hour])), records={"guard": "{}"})
            start.wait()
            backend.commit(transaction)
            accepted.append(hour)
        except Conflict:
            pass
        except BaseException as error:
            errors.append(error)
            start.abort()

    threads = [threading.Thread(target=work, args=[hour]) for hour in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    _expect(
        len(accepted) == 1, "only one of several concurrent commits that replace a record by the same text succeeds"
    )
    tried.expect_rows(_states([0, *accepted]), "read() returns the rows of the successful commit only")


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


def _reading(snapshot: Snapshot, name: str, **records: str) -> Transaction:
    transaction = _transaction(snapshot, records=records)
    transaction.read(name)
    return transaction


def _expect(holds: bool, promise: str) -> None:
    if not holds:
        raise AssertionError(f"the backend breaks a promise: {promise}")


def _manifest() -> Manifest:
    return Manifest("checked", FRAME, schema_of(_states([0]).schema, FRAME))


def _states(hours: Sequence[int]) -> pa.Table:
    """Return states of the finest level whose rows have values that are difficult to store: ``"``, a backslash and null
    as keys, and -0.0, infinity, NaN and the smallest double as numbers. There are states for three hosts, in the first
    five seconds of each hour in ``hours``.
    """
    hosts, values = ["a", 'ü"\\', None], [0.1, -0.0, float("inf"), 5e-324, float("nan")]
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
    hosts, values = [f"h{i}" for i in numbers], [i / 3 for i in numbers]
    events = pa.table({"ts": pa.array([0] * count), "host": hosts, "x": values})
    states = rollup(events, FRAME)
    finest = states.filter(pc.equal(states.column(LEVEL), FINE.name))
    return finest.select(schema_of(states.schema, FRAME).names)


def _between(states: pa.Table, low: int, high: int) -> pa.Table:
    return states.filter(pa.array(inside(instants_of(states), [(low, high)])))


def _rows_of_host_a(states: pa.Table) -> pa.Table:
    return states.filter(pc.equal(states.column("host"), "a"))


def _same(table: pa.Table, other: pa.Table) -> bool:
    if table.column_names != other.column_names or table.schema.types != other.schema.types:
        return False
    by = [(name, "ascending") for name in (START, "host") if name in table.column_names]
    table, other = table.sort_by(by), other.sort_by(by)
    return table.num_rows == other.num_rows and all(
        digest(table[name]) == digest(other[name]) for name in table.column_names
    )
