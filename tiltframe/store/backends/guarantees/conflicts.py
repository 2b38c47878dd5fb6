"""Checks of transactions with an outdated snapshot: which commits raise `Conflict`, and which do not."""

from __future__ import annotations

from dataclasses import replace

from tiltframe.store.backends.guarantees.store_under_test import (
    COARSE,
    FINE,
    HOUR,
    StoreUnderTest,
    expect,
    manifest_of_store,
    new_transaction,
    states_between,
    states_of_hours,
    transaction_that_read,
)


def check_conflicts(store: StoreUnderTest) -> None:
    """Check that a commit conflicts if one of its records was written after its snapshot, and that commits which write
    different records do not conflict.
    """
    store.add(states_of_hours([0]), w="3")
    snapshot = store.snapshot("w", "other")
    new = store.backend.write(FINE, states_of_hours([1]))
    store.add(states_of_hours([2]), w="4")
    late_transaction = new_transaction(snapshot, adds=new, records={"w": "5"})
    store.expect_conflict("a transaction that writes a record which was written after its snapshot", late_transaction)
    store.backend.commit(new_transaction(snapshot, adds=new, records={"other": "1"}))
    store.expect_rows(states_of_hours([0, 2, 1]), "commits that write different records do not conflict")
    expect(store.snapshot("other").texts == {"other": "1"}, "a commit with an older snapshot writes its records")
    store.expect_conflict(
        "a transaction that writes the same record again with the older snapshot",
        new_transaction(snapshot, records={"other": "1"}),
    )


def check_revisions(store: StoreUnderTest) -> None:
    """Check that a conflict is found by the revision of a record, and not by its text: writing the same text again
    counts as a change.
    """
    store.add(states_of_hours([0]), w="1")
    snapshot = store.snapshot("w", "other")
    store.add(states_of_hours([1]), w="1")
    expect(store.snapshot("w").texts == {"w": "1"}, "a record can be replaced by a record with the same text")
    expect(
        store.snapshot("w").revision("w") != snapshot.revision("w"),
        "writing a record with the same text changes its revision",
    )
    store.expect_conflict(
        "a transaction that writes a record which was replaced by the same text after its snapshot",
        new_transaction(snapshot, records={"w": "1"}),
    )
    store.add(states_of_hours([2]), w="2")
    store.add(states_of_hours([3]), w="1")
    store.expect_conflict(
        "a transaction that read a record whose text has changed and changed back after its snapshot",
        transaction_that_read(snapshot, "w", other="x"),
    )
    store.backend.commit(transaction_that_read(store.snapshot("w", "other"), "w", other="x"))
    expect(
        store.snapshot("other").texts == {"other": "x"}, "a transaction that read an unchanged record does not conflict"
    )
    snapshot = store.snapshot("none", "w")
    store.add(states_of_hours([4]), none="1")
    store.expect_conflict(
        "a transaction that read a missing record which was written after its snapshot",
        transaction_that_read(snapshot, "none", w="9"),
    )


def check_ranges(store: StoreUnderTest) -> None:
    """Check that a commit conflicts with changes in the ranges of time that its transaction read."""
    store.add(states_of_hours([0, 4]))
    snapshot = store.snapshot()
    hours = [(hour * HOUR, (hour + 1) * HOUR) for hour in range(6)]
    new = [store.backend.write(FINE, states_of_hours([hour])) for hour in range(6)]
    coarse = store.backend.write(COARSE, states_between(states_of_hours([2]), 2 * HOUR, 2 * HOUR + 1))
    store.backend.commit(new_transaction(store.snapshot(), adds=[*new[1], *coarse]))
    late_transaction = new_transaction(snapshot, adds=new[2])
    late_transaction.reads(FINE.name, (0, 2 * HOUR))
    store.expect_conflict(
        "a transaction that read a range to which a part was added after its snapshot", late_transaction
    )
    transaction_outside = new_transaction(snapshot, adds=new[3])
    transaction_outside.reads(FINE.name, hours[2])
    transaction_outside.reads(COARSE.name, hours[3])
    store.backend.commit(transaction_outside)
    store.expect_rows(
        states_of_hours([0, 4, 1, 3]), "parts that are added outside the ranges of a transaction do not conflict"
    )
    snapshot = store.snapshot()
    removed = [part for part in snapshot.of(FINE.name) if part.within(hours[4])]
    store.backend.commit(new_transaction(snapshot, removes=removed))
    late_transaction = new_transaction(snapshot, adds=new[5])
    late_transaction.reads(FINE.name, hours[4])
    store.expect_conflict(
        "a transaction that read a range from which a part was removed after its snapshot", late_transaction
    )


def check_combined_transaction(store: StoreUnderTest) -> None:
    """Check one transaction that adds and removes parts, writes records and changes the manifest. The transaction
    removes only one of the two parts of a bucket.
    """
    first, _ = sorted(store.add(states_of_hours([0, 1]), w="1"), key=lambda part: part.first_start)
    store.add(states_of_hours([0]))
    new_manifest = replace(manifest_of_store(), retention={FINE.name: "1d"}).to_dict()
    new = store.backend.write(FINE, states_of_hours([2]))
    snapshot = store.snapshot("w")
    manifest = (new_manifest, store.schema)
    store.backend.commit(new_transaction(snapshot, adds=new, removes=[first], records={"w": "2"}, describes=manifest))
    store.expect_rows(states_of_hours([0, 1, 2]), "a commit that replaces the manifest can also add and remove parts")
    now = store.snapshot("w")
    expect(
        now.texts == {"w": "2"} and now.manifest == new_manifest,
        "a commit that replaces the manifest can also write records",
    )
    late_transaction = new_transaction(now, removes=[first], describes=(manifest_of_store().to_dict(), store.schema))
    store.expect_conflict(
        "a transaction that replaces the manifest and removes a part which is already removed", late_transaction
    )
