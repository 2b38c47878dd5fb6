"""Checks of single commits: the manifest, written and committed parts, records, reading and removal."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import pyarrow as pa

from tiltframe.instants import instants_of
from tiltframe.names import LEVEL, START
from tiltframe.ranges import EVER
from tiltframe.store.backends.buckets import bucket_of
from tiltframe.store.backends.guarantees.store_under_test import (
    COARSE,
    FINE,
    StoreUnderTest,
    are_equal,
    expect,
    manifest_of_store,
    new_transaction,
    rows_of_host_a,
    states_between,
    states_of_hosts,
    states_of_hours,
)
from tiltframe.store.backends.protocol import Backend
from tiltframe.store.log.errors import Conflict


def check_manifest(backend: Backend) -> None:
    """Check that a store is created once, and that its manifest is replaced only by a transaction with a current
    snapshot.
    """
    expect(backend.snapshot() is None, "snapshot() returns None without a store")
    manifest = manifest_of_store()
    backend = backend.store_named(manifest.name)
    new_manifest = manifest.to_dict()
    backend.create(new_manifest, manifest.schema)
    store = StoreUnderTest(backend, manifest.schema)
    expect(store.snapshot().manifest == new_manifest, "a snapshot has the manifest that was passed to create()")
    other = replace(manifest, retention={FINE.name: "1d"}).to_dict()
    backend.create(other, manifest.schema)
    snapshot = store.snapshot()
    expect(snapshot.manifest == new_manifest, "a second call of create() does not change the store")
    backend.commit(new_transaction(snapshot, describes=(other, manifest.schema)))
    expect(store.snapshot().manifest == other, "commit() replaces the manifest by the one of the transaction")
    outdated_replacement = new_transaction(snapshot, describes=(new_manifest, manifest.schema))
    store.expect_conflict(
        "a transaction that replaces a manifest which has changed since its snapshot", outdated_replacement
    )
    outdated_record = new_transaction(snapshot, records={"w": "{}"})
    store.expect_conflict("a transaction whose snapshot has an earlier manifest", outdated_record)
    copied_backend: Backend = pickle.loads(pickle.dumps(backend))
    expect(
        StoreUnderTest(copied_backend, manifest.schema).snapshot().manifest == other,
        "a pickled copy of a backend opens the same store",
    )
    expect(
        isinstance(backend.uri, str) and isinstance(backend.display_uri, str),
        "the attributes uri and display_uri are str",
    )


def check_empty(store: StoreUnderTest) -> None:
    """Check a store without commits."""
    snapshot = store.snapshot("w")
    expect(not snapshot.parts and not snapshot.records, "a store without commits has no parts and no records")
    no_rows = store.backend.read([], store.schema.names[1:])
    expect(
        no_rows.schema.equals(store.schema) and not no_rows.num_rows,
        "read() of an empty list of parts returns an empty table with the schema",
    )
    expect(
        store.backend.write(FINE, states_of_hours([0]).slice(0, 0)) == [],
        "write() of a table without rows returns no parts",
    )
    expect(store.backend.verify() == [], "verify() returns an empty list for an undamaged store")


def check_commit(store: StoreUnderTest) -> None:
    """Check that a commit makes written parts and records readable, and that the states that are read have the same
    bits as the states that were written.
    """
    states = states_of_hours(range(3))
    # A store passes states with an additional column ``level`` to `write`, so this check does the same. The column
    # contains the name of the level in each row.
    more = states.add_column(0, LEVEL, pa.repeat(pa.scalar(FINE.name), states.num_rows))
    fine = store.backend.write(FINE, more)
    coarse = store.backend.write(COARSE, states_between(states, 0, 1))
    before = store.snapshot("w", "note")
    note = '{"a": "\'\u00fc"}'
    expect(not before.parts, "states are not readable before they are committed")
    transaction = new_transaction(before, adds=[*fine, *coarse], records={"w": "1", "note": note})
    version = store.backend.commit(transaction)
    snapshot = store.snapshot("w", "note", "other")
    expect(
        snapshot.version == version > before.version,
        "commit() returns the version of the new snapshot, which is greater than earlier versions",
    )
    expect(set(snapshot.parts) == {*fine, *coarse}, "the parts of a snapshot equal those that write() returned")
    expect(set(snapshot.of(COARSE.name)) == set(coarse), "a part has the level that was passed to write()")
    expect(snapshot.texts == {"w": "1", "note": note}, "a snapshot has exactly the requested records")
    store.expect_rows(states, "read() returns states with the same bits as those passed to write()")
    later = store.backend.commit(new_transaction(snapshot, records={"w": json.dumps("x" * 10_000)}))
    snapshot = store.snapshot("w", "note")
    expect(
        snapshot.version == later > version,
        "each commit() returns the version of its snapshot, which is greater than all earlier versions",
    )
    expect(len(snapshot.texts["w"]) == 10_002, "a transaction without parts can replace a record")
    expect(
        set(snapshot.records) == {"w", "note"}, "a commit does not change records that its transaction does not name"
    )
    many = {f"name {i}": str(i) for i in range(1000)}
    for i in range(40):
        store.add(states.slice(0, 0), **{f"w{i}": str(i)}, **(many if i == 20 else {}))
    all_records = store.snapshot(*many, *(f"w{i}" for i in range(40)))
    expect(all_records.texts == {**many, **{f"w{i}": str(i) for i in range(40)}}, "a store keeps a thousand records")
    complete = store.backend.snapshot(None)
    recorded_names = set() if complete is None else {*complete.records}
    expect(recorded_names == {*all_records.records, "w", "note"}, "snapshot(None) has all records of the store")
    expect(store.backend.verify() == [], "verify() returns an empty list for an undamaged store with states")


def check_parts(store: StoreUnderTest) -> None:
    """Check the attributes of parts, and reading with ranges, columns and a condition."""
    states = states_of_hours(range(3))
    bucket = bucket_of(FINE)
    parts = store.add(states)
    expect(len(parts) == 3, "write() returns one part for each bucket of time")
    expect(len({part.name for part in parts}) == 3, "the names of parts are distinct")
    for part in parts:
        expect(part.level == FINE.name, "the level of a part equals the level that was passed to write()")
        rows = store.backend.read([(part, EVER)], [])
        expect(rows.column_names == [START], "read() returns window_start and the requested columns")
        starts = instants_of(rows)
        is_same = (int(starts.min()), int(starts.max()), len(starts)) == (part.first_start, part.last_start, part.rows)
        expect(is_same, "first_start, last_start and rows of a part describe its states")
        expect(len({*bucket.starts(starts).tolist()}) == 1, "all states of a part lie in one bucket of time")
    first = min(parts, key=lambda part: part.first_start)
    first_rows = store.backend.read([(first, (first.first_start, first.first_start + 1))], ["n", "host"])
    expect(first_rows.column_names == [START, "n", "host"], "read() returns the columns in the requested order")
    expected = states_between(states, first.first_start, first.first_start + 1).select(first_rows.column_names)
    expect(are_equal(first_rows, expected), "read() returns only states within the requested range")
    rows = store.backend.read([(part, EVER) for part in parts], store.schema.names[1:], "host = 'a'")
    expect(
        are_equal(rows_of_host_a(rows), rows_of_host_a(states)),
        "read() returns every row for which the condition is true",
    )


def check_many_rows(store: StoreUnderTest) -> None:
    """Check a part with thousands of rows."""
    states = states_of_hosts(4_000)
    store.add(states)
    store.expect_rows(states, "read() returns all rows of a part with thousands of rows")


def check_written_twice(store: StoreUnderTest) -> None:
    """Check that states which were written without a commit are not read."""
    states = states_of_hours(range(2))
    store.backend.write(FINE, states)
    store.add(states)
    store.backend.write(FINE, states)
    store.expect_rows(
        states, "read() returns states of committed parts only, and not of parts that were written without a commit"
    )
    store.backend.discard(store.backend.write(FINE, states))
    store.expect_rows(states, "discard() does not remove committed parts")


def check_removal(store: StoreUnderTest) -> None:
    """Check that a commit can remove parts, and that a part cannot be removed twice."""
    states = states_of_hours(range(2))
    added = states_of_hours([5])
    first, second = sorted(store.add(states, w="1"), key=lambda part: part.first_start)
    before = store.snapshot()
    new = store.backend.write(FINE, added)
    store.backend.commit(new_transaction(before, adds=new, removes=[first]))
    remaining = states_between(states, second.first_start, EVER[1])
    store.expect_rows(pa.concat_tables([remaining, added]), "one commit can add and remove parts")
    expect(second in store.snapshot().parts, "a commit does not change the parts that it does not remove")
    extra = store.backend.write(FINE, states_of_hours([7]))
    repeated_removal = new_transaction(store.snapshot(), adds=extra, removes=[first])
    store.expect_conflict("a transaction that removes a part which is already removed", repeated_removal)
    # Read all parts of the snapshot ``before``. A later commit has removed one of them.
    try:
        old = store.backend.read([(part, EVER) for part in before.parts], store.schema.names[1:])
    except Conflict:
        pass
    else:
        expect(
            are_equal(old, states), "read() of the parts of an older snapshot returns their rows, or raises Conflict"
        )
    expect(store.snapshot("w").texts == {"w": "1"}, "a record remains when the parts of the same commit are removed")
