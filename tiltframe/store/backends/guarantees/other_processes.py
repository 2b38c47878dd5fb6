"""Checks with several backend objects, as several processes have them: added columns, vacuum and concurrent commits."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import pyarrow as pa

import aggr
from tiltframe.frame import TiltFrame
from tiltframe.ranges import EVER
from tiltframe.store.backends.guarantees.store_under_test import (
    FINE,
    FRAME,
    HOUR,
    StoreUnderTest,
    are_equal,
    expect,
    manifest_of_store,
    new_transaction,
    shifted,
    states_between,
    states_of_hours,
)
from tiltframe.store.backends.protocol import Backend, Part
from tiltframe.store.log.errors import Conflict
from tiltframe.store.log.run import retry_on_conflict


def check_added_columns(store: StoreUnderTest) -> None:
    """Check that columns of states and a level can be added to a store that has rows. A second backend object, which
    opened the store before the change, must still be able to write.
    """
    before = states_of_hours([0])
    older_backend: Backend = pickle.loads(pickle.dumps(store.backend))
    store.add(before)
    older_backend.snapshot()
    measures = {**FRAME.measures, "more": aggr.min("x", where="x > 0")}
    frame = TiltFrame([*FRAME.levels, "1d"], FRAME.time, measures, FRAME.keys)
    more = before.append_column("more", before.column("low"))
    schema = pa.schema([*store.schema, pa.field("more", before.schema.field("low").type)])
    new_manifest = replace(manifest_of_store(), frame=frame, schema=schema, generation=1).to_dict()
    # The windows of the written states start at time 0, and a window of the level 1d starts at the same time. The
    # states can therefore be written as states of the level 1d.
    days = store.backend.write(frame.levels[-1], states_between(before, 0, 1))
    snapshot = store.snapshot("w")
    store.backend.commit(new_transaction(snapshot, adds=days, records={"w": "1"}, describes=(new_manifest, schema)))
    snapshot = store.snapshot("w")
    expect(snapshot.manifest == new_manifest, "a commit can replace the manifest by a manifest with more states")
    expect(
        set(snapshot.of("1d")) == set(days) and snapshot.texts == {"w": "1"},
        "the parts and records of a commit that replaces the manifest are readable",
    )
    states_without_column = before.append_column(
        schema.field("more"), pa.nulls(before.num_rows, schema.field("more").type)
    )
    store.schema = schema
    store.expect_rows(states_without_column, "read() returns null for a column that was added after a part was written")
    store.add(shifted(more, HOUR))
    store.expect_rows(
        pa.concat_tables([states_without_column, shifted(more, HOUR)]),
        "read() returns the rows that were written before and after a column was added",
    )
    late_parts = older_backend.write(FINE, shifted(before, 2 * HOUR))
    older_backend.commit(new_transaction(store.snapshot(), adds=late_parts))
    store.expect_rows(
        pa.concat_tables([states_without_column, shifted(more, HOUR), shifted(states_without_column, 2 * HOUR)]),
        "write() accepts states that lack a column of the new manifest",
    )


def check_vacuum(store: StoreUnderTest) -> None:
    """Check that vacuum does not remove readable parts, which must remain readable in all processes. A read of a part
    that vacuum has removed must raise `Conflict` or return all rows of the part.
    """
    states = states_of_hours(range(2))
    first, second = sorted(store.add(states), key=lambda part: part.first_start)
    before = store.snapshot()
    # ``reader`` stands for the backend of another process, which does not run vacuum itself.
    reader: Backend = pickle.loads(pickle.dumps(store.backend))
    reader.read([(part, EVER) for part in before.parts], store.schema.names[1:])
    store.backend.write(FINE, states_of_hours([1]))
    store.backend.commit(new_transaction(store.snapshot(), removes=[first]))
    expect(store.backend.vacuum(0.0) >= 0, "vacuum() returns the number of removed parts")
    store.expect_rows(states_between(states, first.last_start + 1, EVER[1]), "vacuum() does not remove readable parts")
    for backend in (store.backend, reader):
        for parts in (before.parts, (first,), (second, first)):
            _expect_whole_or_conflict(backend, parts, store.schema, states)
        remaining_part = [(second, EVER)]
        remaining_rows = backend.read(remaining_part, store.schema.names[1:])
        expect(
            are_equal(remaining_rows, states_between(states, second.first_start, EVER[1])),
            "a part that no commit has removed remains readable",
        )


def _expect_whole_or_conflict(backend: Backend, parts: Sequence[Part], schema: pa.Schema, states: pa.Table) -> None:
    """Read ``parts`` of an older snapshot, and compare the rows with the written states ``states``. Check that the read
    returns all rows of the parts, or raises `Conflict` because vacuum has removed a part. The read must never return
    fewer rows.
    """
    try:
        rows = backend.read([(part, EVER) for part in parts], schema.names[1:])
    except Conflict:
        return
    written = pa.concat_tables([states_between(states, part.first_start, part.last_start + 1) for part in parts])
    expect(
        are_equal(rows, written), "read() of a part that vacuum() has removed raises Conflict, or returns all its rows"
    )


def check_concurrent_commits(store: StoreUnderTest) -> None:
    """Check concurrent commits of several threads. Each thread uses its own pickled copy of the backend."""
    unexpected_errors: list[BaseException] = []
    winners: list[str] = []
    snapshot = store.snapshot("race")

    def work(i: int) -> None:
        try:
            backend: Backend = pickle.loads(pickle.dumps(store.backend))
            for number in range(3):
                parts = backend.write(FINE, states_of_hours([4 * i + number]))
                retry_on_conflict(lambda: commit(backend, parts, f"w{i}", str(number)))  # noqa: B023
            retry_on_conflict(lambda: race(backend, i))
        except BaseException as error:
            unexpected_errors.append(error)

    def commit(backend: Backend, parts: Sequence[Part], name: str, text: str) -> None:
        now = backend.snapshot([name])
        assert now is not None
        backend.commit(new_transaction(now, adds=parts, records={name: text}))

    def race(backend: Backend, i: int) -> None:
        now = backend.snapshot(["race"])
        if now is not None and "race" in now.records:
            return
        backend.commit(new_transaction(snapshot, records={"race": str(i)}))
        winners.append(str(i))

    _run_threads(work, range(4))
    if unexpected_errors:
        raise unexpected_errors[0]
    states = pa.concat_tables([states_of_hours([4 * i + number]) for i in range(4) for number in range(3)])
    store.expect_rows(states, "concurrent commits of several writers are all applied exactly once")
    expect(
        [store.snapshot("race").texts["race"]] == winners,
        "only one of several commits with the same snapshot and record succeeds",
    )


def check_concurrent_replacements(store: StoreUnderTest) -> None:
    """Check concurrent commits that all add a part and replace the same record by the same text. Only one of them may
    succeed.
    """
    store.add(states_of_hours([0]), guard="{}")
    snapshot = store.snapshot("guard")
    start = threading.Barrier(4)
    accepted: list[int] = []
    unexpected_errors: list[BaseException] = []

    def work(hour: int) -> None:
        try:
            backend: Backend = pickle.loads(pickle.dumps(store.backend))
            transaction = new_transaction(
                snapshot, adds=backend.write(FINE, states_of_hours([hour])), records={"guard": "{}"}
            )
            start.wait()
            backend.commit(transaction)
            accepted.append(hour)
        except Conflict:
            pass
        except BaseException as error:
            unexpected_errors.append(error)
            start.abort()

    _run_threads(work, range(1, 5))
    if unexpected_errors:
        raise unexpected_errors[0]
    expect(len(accepted) == 1, "only one of several concurrent commits that replace a record by the same text succeeds")
    store.expect_rows(states_of_hours([0, *accepted]), "read() returns the rows of the successful commit only")


def _run_threads(work: Callable[[int], None], numbers: Iterable[int]) -> None:
    """Call ``work`` with each number, all at the same time in threads, and wait for the calls to end."""
    threads = [threading.Thread(target=work, args=[number]) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
